"""Which source files a module's behaviour rests on, found without importing anything.

The closure of a module follows its ``import`` statements (also those inside functions, and calls
of ``import_module`` with a written-out name) through this package and through the user's own code:
files that are neither in the standard library nor installed as a distribution. Installed packages
count by their version instead.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.machinery
import importlib.util
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from assay.core.cards import all_cards

_SUFFIXES = (".py", *importlib.machinery.EXTENSION_SUFFIXES)


@dataclass(frozen=True)
class Sources:
    """``digest`` of all files; ``externals``: top-level names of what they import from elsewhere."""

    digest: str
    externals: frozenset[str]
    modules: tuple[str, ...]


@dataclass(frozen=True)
class _Import:
    """One imported name; ``names`` are those of a ``from`` import, empty for a plain one."""

    module: str
    level: int
    names: tuple[str, ...]


def closure(modules: Iterable[str]) -> Sources:
    """The files that the modules are made of and import, directly or not."""
    files: dict[str, str] = {}
    externals: set[str] = set()
    waiting = sorted(set(modules))
    starts = set(waiting)
    while waiting:
        name = waiting.pop()
        if name in files:
            continue
        local = is_local(name)
        if not local:
            externals.add(name.partition(".")[0])
        path = _module_file(name) if local or name in starts else None
        if path is None:
            continue
        content = path.read_bytes()
        files[name] = hashlib.sha256(content).hexdigest()
        if not local:
            continue
        waiting.extend(_parents(name))
        if path.suffix == ".py":
            package = name if path.name == "__init__.py" else name.rpartition(".")[0]
            for found in _imports(content):
                waiting.extend(_targets(found, package))
    text = "\n".join(f"{name} {digest}" for name, digest in sorted(files.items()))
    return Sources(hashlib.sha256(text.encode()).hexdigest(), frozenset(externals), tuple(sorted(files)))


def is_local(module: str) -> bool:
    """Whether a module is this package's or the user's own, rather than installed or standard."""
    top = module.partition(".")[0]
    if top in {"assay", "__main__"}:
        return True
    if top in sys.stdlib_module_names:
        return False
    locations = _locations(top)
    return bool(locations) and not any(_is_installed(path) for path in locations)


def _is_installed(path: Path) -> bool:
    if {"site-packages", "dist-packages"} & set(path.parts):
        return True
    return path.is_relative_to(_standard_library())


@cache
def _standard_library() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _locations(top: str) -> tuple[Path, ...]:
    """File of a top-level module, or the folders of a package; empty where there is neither."""
    if top == "__main__":
        file = getattr(sys.modules["__main__"], "__file__", None)
        return (Path(file).resolve(),) if file else ()
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return ()
    if spec is None:
        return ()
    if spec.submodule_search_locations is not None:
        return tuple(Path(location) for location in spec.submodule_search_locations)
    return (Path(spec.origin),) if spec.has_location and spec.origin else ()


def _module_file(name: str) -> Path | None:
    top, _, rest = name.partition(".")
    for location in _locations(top):
        if location.is_file():
            return None if rest else location
        base = location.joinpath(*rest.split(".")) if rest else location
        if (base / "__init__.py").is_file():
            return base / "__init__.py"
        if rest:
            for suffix in _SUFFIXES:
                path = base.with_name(base.name + suffix)
                if path.is_file():
                    return path
    return None


def _parents(name: str) -> Iterator[str]:
    while "." in name:
        name = name.rpartition(".")[0]
        yield name


@cache
def _imports(content: bytes) -> tuple[_Import, ...]:
    """The import statements of a file; none where it does not parse (the trial will say so)."""
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return ()
    found: list[_Import] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found.extend(_Import(alias.name, 0, ()) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = tuple(alias.name for alias in node.names)
            found.append(_Import(node.module or "", node.level, names))
        elif isinstance(node, ast.Call) and (name := _loaded_by_name(node)):
            found.append(_Import(name, 0, ()))
    return tuple(found)


def _loaded_by_name(call: ast.Call) -> str | None:
    """The module that ``import_module("name")`` or ``__import__("name")`` loads."""
    function = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    argument = call.args[0] if function in {"import_module", "__import__"} and call.args else None
    name = argument.value if isinstance(argument, ast.Constant) else None
    return name if isinstance(name, str) and not name.startswith(".") else None


def _targets(found: _Import, package: str) -> Iterator[str]:
    """The modules that one import statement, in a file of that package, may load."""
    base = found.module
    if found.level:
        parts = package.split(".")
        base = ".".join([*parts[: len(parts) - found.level + 1], *([found.module] if found.module else [])])
    if not base:
        return
    yield base
    if not found.names:
        yield from _family_files(base)
    for name in found.names:
        submodule = f"{base}.{name}"
        if name == "*":
            yield from _family_files(base)
        elif is_local(base) and _module_file(submodule) is not None:
            yield submodule
            yield from _family_files(submodule)
        else:
            # a family's classes are imported lazily by name: the card knows the file
            yield from (module for module, cls in _lazy_classes(base) if cls == name)


def _family_files(package: str) -> list[str]:
    """Every method's module of one of our families: importing the family may reach any of them."""
    return [module for module, _ in _lazy_classes(package)]


def _lazy_classes(package: str) -> list[tuple[str, str]]:
    if not package.startswith("assay."):
        return []
    split = (card.cls.partition(":") for card in all_cards().values())
    return [(module, cls) for module, _, cls in split if module.rpartition(".")[0] == package]
