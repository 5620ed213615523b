"""A text that stands for a Python object: equal for equal behaviour, in this process and the next.

Importable classes and functions count by name, with their module noted so that its source can be
added. Those that cannot be imported (defined in a script, a notebook or inside a function) count
by their code, their default values, what they close over and the globals they mention.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import types
from collections.abc import Iterable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

import cloudpickle
import numpy as np

from assay.core.errors import MethodError

_PLAIN = (type(None), bool, int, float, complex, str, bytes, Fraction, Decimal, range, type(...))
#: attributes of a class that do not change what it does
_NOT_CODE = frozenset(
    {
        "__abstractmethods__",
        "__annotate__",
        "__annotate_func__",
        "__annotations__",
        "__annotations_cache__",
        "__dict__",
        "__doc__",
        "__firstlineno__",
        "__module__",
        "__static_attributes__",
        "__weakref__",
        "_abc_impl",
    }
)


class Describer:
    """Describes objects; ``modules`` collects the modules whose source matters as well."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []  # ids in _seen stay valid while their objects live

    def text(self, value: Any) -> str:
        """The description of one object."""
        if isinstance(value, _PLAIN):
            return f"{type(value).__name__}:{value!r}"
        if isinstance(value, types.ModuleType):
            self.modules.add(value.__name__)
            return f"module:{value.__name__}"
        if id(value) in self._seen:
            return f"again:{self._seen[id(value)]}"
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return self._compound(value)

    def _compound(self, value: Any) -> str:
        kind = type(value).__name__
        if isinstance(value, np.generic):
            return f"{value.dtype}:{value!r}"
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            return f"array:{value.dtype.descr}:{value.shape}:{_sha(np.ascontiguousarray(value).tobytes())}"
        if isinstance(value, (list, tuple)):
            return f"{kind}:{self._all(value)}"
        if isinstance(value, (set, frozenset)):
            return f"{kind}:{sorted(map(self.text, value))}"
        if isinstance(value, dict):
            return f"{kind}:{self._mapping(value)}"
        if isinstance(value, (classmethod, staticmethod)):
            return f"{kind}:{self.text(value.__func__)}"
        if isinstance(value, functools.cached_property):
            return f"{kind}:{self.text(value.func)}"
        if isinstance(value, property):
            return f"{kind}:{self._all([value.fget, value.fset, value.fdel])}"
        if isinstance(value, types.MethodType):
            return f"{kind}:{self.text(value.__func__)}:{self.text(value.__self__)}"
        if isinstance(value, functools.partial):
            return f"{kind}:{self._all([value.func, value.args, value.keywords])}"
        if isinstance(value, types.CodeType):
            return self._code(value)
        if isinstance(value, type):
            return self._reference(value) or self._class(value)
        if isinstance(value, types.FunctionType):
            return self._reference(value) or self._function(value)
        if hasattr(value, "__qualname__") and callable(value):
            return self._reference(value) or self._opaque(value)
        return self._instance(value)

    def _all(self, values: Iterable[Any]) -> list[str]:
        return [self.text(value) for value in values]

    def _mapping(self, values: Mapping[Any, Any]) -> list[tuple[str, str]]:
        """Pairs ordered by key; string keys are what parameters and attributes have."""
        ordered = sorted(values.items(), key=lambda item: (type(item[0]).__name__, repr(item[0])))
        return [(self.text(key), self.text(item)) for key, item in ordered]

    def _reference(self, value: Any) -> str | None:
        """``module:name`` where importing that gives the same object, else None."""
        name = str(getattr(value, "__module__", None))
        module = sys.modules.get(name)
        if module is None or name == "__main__":
            return None
        found: Any = module
        for part in value.__qualname__.split("."):
            found = getattr(found, part, None)
        if found is not value:
            return None
        self.modules.add(name)
        return f"import:{name}:{value.__qualname__}"

    def _class(self, cls: type) -> str:
        own = {key: item for key, item in vars(cls).items() if key not in _NOT_CODE}
        return f"class:{cls.__qualname__}:{self._all(cls.__bases__)}:{self._mapping(own)}"

    def _function(self, function: types.FunctionType) -> str:
        cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        mentioned = {
            name: function.__globals__[name]
            for name in sorted(_names(function.__code__))
            if name in function.__globals__
        }
        return (
            f"function:{self._code(function.__code__)}:{self.text(function.__defaults__)}:"
            f"{self.text(function.__kwdefaults__)}:{self._all(cells)}:{self._mapping(mentioned)}"
        )

    def _opaque(self, value: Any) -> str:
        """Something callable that is not Python code: what it wraps, or is bound to, tells it apart."""
        inner = [getattr(value, name, None) for name in ("__wrapped__", "__self__")]
        module = getattr(value, "__module__", None)
        return f"{type(value).__name__}:{module}:{value.__qualname__}:{self._all(inner)}"

    def _code(self, code: types.CodeType) -> str:
        return (
            f"code:{code.co_code.hex()}:{code.co_names}:{code.co_varnames}:{code.co_freevars}:"
            f"{code.co_argcount}:{code.co_flags}:{self._all(code.co_consts)}"
        )

    def _instance(self, value: Any) -> str:
        """Class and state, as pickling would take it: fitted attributes count."""
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            content = value.detach().cpu().reshape(-1).view(torch.uint8).numpy()
            return f"tensor:{value.dtype}:{tuple(value.shape)}:{_sha(content.tobytes())}"
        head = self.text(type(value))
        try:
            parts = value.__reduce_ex__(4)
        except Exception:  # whatever a class raises that cannot be taken apart: pickled whole, or refused
            return f"pickle:{head}:{_sha(self._pickle(value))}"
        if isinstance(parts, str):
            return f"global:{head}:{parts}"
        state = [list(part) if hasattr(part, "__next__") else part for part in parts[1:]]
        return f"instance:{head}:{self._all([parts[0], *state])}"

    def _pickle(self, value: Any) -> bytes:
        try:
            return bytes(cloudpickle.dumps(value))
        except Exception as error:
            raise MethodError(
                f"an object of type {type(value).__name__} cannot be told apart from others, because it "
                f"cannot be pickled: {error}"
            ) from error


def _is_filled(cell: types.CellType) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _names(code: types.CodeType) -> set[str]:
    """Names that a code object and those inside it look up."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
