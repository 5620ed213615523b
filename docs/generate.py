"""Pages and tables that come from the cards, the public classes and the recorded ledger.

As a hook of MkDocs it adds the pages of the methods, the ledger and the reference to the site.
As a script it rewrites the marked parts of README.md; with --check it only says whether they
are up to date.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import assay
from assay.core.cards import Card, all_cards, import_object

ROOT = Path(__file__).resolve().parents[1]

#: what people call directly, beside the classes of the methods
_PUBLIC = (
    "assay.engine.api:compare",
    "assay.engine.comparison:Comparison",
    "assay.claims.api:verify",
    "assay.data.builtin:datasets",
    "assay.core.levels:conformal_rank",
    "assay.core.levels:smallest_n",
    "assay.core.quantiles:conformal_quantile",
    "assay.core.quantiles:weighted_quantile",
    "assay.core.quantiles:conformal_pvalue",
)


def _by_task() -> dict[str, list[Card]]:
    tasks: dict[str, list[Card]] = {}
    for card in all_cards().values():
        tasks.setdefault(card.task, []).append(card)
    return tasks


def _table(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _paper(card: Card, *, short: bool = False) -> str:
    if not card.paper:
        return "-"
    venue = f"{card.paper.get('venue', '')} {card.paper.get('year', '')}".strip()
    if short:
        first = str(card.paper.get("authors", "")).split(",")
        who = first[0].strip() + (" et al." if len(first) > 1 else "")
        return ", ".join(part for part in (who, venue) if part)
    parts = [str(card.paper[key]) for key in ("authors", "title") if card.paper.get(key)]
    return ". ".join([*parts, venue]) + "."


def methods_table(link: Callable[[Card], str]) -> str:
    """One table a task: method, what it is for, paper, what it needs."""
    blocks = []
    for task, cards in _by_task().items():
        rows = [
            (link(card), card.name, card.role, card.use_for or card.summary, _paper(card, short=True),
             ", ".join(card.requires) or "-")
            for card in cards
        ]  # fmt: skip
        header = ("id", "method", "role", "use it for", "paper", "needs")
        blocks.append(f"**{task}**\n\n{_table(header, rows)}")
    return "\n\n".join(blocks)


def methods_index() -> str:
    """The page that lists the methods."""
    return (
        "# Methods\n\nEvery method that a comparison can run. *paper* methods are what a paper proposes; "
        "*baseline* methods are what they are held against, and often the better choice.\n\n"
        + methods_table(lambda card: f"[{card.id}]({card.id}.md)")
        + "\n"
    )


def method_page(card: Card) -> str:
    """The page of one method: its card, its claims, its class."""
    short = card.cls.partition(":")[2]
    facts = [
        ("Use it for", card.use_for),
        ("Guarantee", card.guarantee),
        ("Fails when", card.fails_when),
        ("Cost", card.cost),
        ("Needs", f"`pip install 'assay[{','.join(card.requires)}]'`" if card.requires else "nothing more"),
        ("Compared with", ", ".join(f"[{base}]({base}.md)" for base in card.baselines)),
        ("Paper", _paper(card)),
    ]
    parts = [f"# {card.name}", card.summary, _table(("", ""), [(k, v) for k, v in facts if v and v != "-"])]
    if card.exceptions:
        parts.append("## Exceptions to the conformance laws")
        parts += [f"- **{law}**: {reason}" for law, reason in card.exceptions.items()]
    parts += claims_of(card)
    parts += [
        "## Use",
        f"```sh\nassay compare FILE --target COLUMN --methods {card.id}\n```",
        f"```python\nfrom assay.{card.family} import {short}\n```",
        f"## {short}",
        reference(card.cls),
    ]
    return "\n\n".join(parts) + "\n"


def claims_of(card: Card) -> list[str]:
    """What the paper says and what came out, for a method that makes claims."""
    return []


def reference_page() -> str:
    """Signatures and docstrings of what is public beside the methods."""
    parts = ["# Reference", "Everything here is imported on first use; `import assay` loads nothing heavy. "
             "The classes of the methods are on [their own pages](methods/index.md)."]  # fmt: skip
    for path in _PUBLIC:
        name = path.partition(":")[2]
        exported = name in assay.__all__
        where = f"assay.{name}" if exported else path.replace(":", ".")
        parts += [f"## {where}", reference(path)]
    return "\n\n".join(parts) + "\n"


def reference(path: str) -> str:
    """Signature, docstring and public methods of a class or function."""
    thing = import_object(path)
    name = path.partition(":")[2]
    parts = [f"```python\n{_signature(name, thing)}\n```", _docstring(thing)]
    if inspect.isclass(thing):
        for method_name, method in _public_methods(thing):
            parts += [f"### {name}.{method_name}", f"```python\n{_signature(method_name, method)}\n```"]
            parts.append(_docstring(method))
    return "\n\n".join(part for part in parts if part)


def _public_methods(cls: type) -> list[tuple[str, Any]]:
    """Methods documented in this package, in the order of their definition, nearest class first."""
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        if base.__module__.startswith("assay."):
            for name, value in vars(base).items():
                if not name.startswith("_") and inspect.isfunction(value) and value.__doc__:
                    found.setdefault(name, value)
    return list(found.items())


def _signature(name: str, thing: Any) -> str:
    signature = inspect.signature(thing)
    plain = [
        p.replace(annotation=inspect.Parameter.empty)
        for p in signature.parameters.values()
        if p.name != "self"
    ]
    text = f"{name}{signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)}"
    if len(text) <= 90:
        return text
    star = next((i for i, p in enumerate(plain) if p.kind is p.KEYWORD_ONLY), None)
    arguments = [str(p) for p in plain]
    if star is not None:
        arguments.insert(star, "*")
    return f"{name}(\n    " + ",\n    ".join(arguments) + ",\n)"


_SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
_LISTS = ("Parameters", "Attributes", "Returns", "Raises", "Yields")


def _docstring(thing: Any) -> str:
    """A docstring in the style of numpy as Markdown: sections in bold, parameters as a list."""
    doc = inspect.getdoc(thing) or ""
    pieces = _SECTION.split(doc)
    out = [_inline(pieces[0].strip())]
    for title, body in zip(pieces[1::2], pieces[2::2], strict=True):
        out.append(f"**{title}**")
        out.append(_items(body) if title in _LISTS else _inline(body.strip()))
    return "\n\n".join(part for part in out if part)


def _items(body: str) -> str:
    items: list[str] = []
    for line in body.strip("\n").splitlines():
        if not line.strip():
            continue
        if not line.startswith(" "):
            name, colon, kind = line.partition(" : ")
            items.append(f"- `{name.strip()}`" + (f" : {_inline(kind)}" if colon else ""))
        else:
            items.append("    " + _inline(line.strip()))
    return "\n".join(items)


def _inline(text: str) -> str:
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    return re.sub(r"(?<![`\w])\*(?=\w)", r"\\*", text)


def ledger_page() -> str:
    """All recorded claims, whichever way they came out."""
    return "# Ledger of claims\n"


def pages() -> dict[str, str]:
    """Path in the site -> Markdown of every generated page."""
    out = {f"methods/{card.id}.md": method_page(card) for card in all_cards().values()}
    return {
        "methods/index.md": methods_index(),
        "ledger.md": ledger_page(),
        "reference.md": reference_page(),
        **out,
    }


def on_files(files: Any, config: Any) -> Any:
    """MkDocs calls this when it has found the written pages; the generated ones are added."""
    from mkdocs.structure.files import File

    for path, content in pages().items():
        files.append(File.generated(config, path, content=content))
    return files


def on_config(config: Any) -> Any:
    """MkDocs calls this first; the pages of the methods go into the menu."""
    entry = next(item for item in config.nav if "Methods" in item)
    entry["Methods"] = ["methods/index.md", *(f"methods/{card.id}.md" for card in all_cards().values())]
    return config


def readme(text: str) -> str:
    """README.md with its marked parts made anew."""
    parts = {"methods": methods_table(lambda card: f"`{card.id}`")}
    for name, content in parts.items():
        pattern = re.compile(rf"(<!-- begin {name}\b[^>]*-->\n).*?(<!-- end {name} -->)", re.DOTALL)
        if not pattern.search(text):
            raise SystemExit(f"README.md has no part marked {name!r}")
        text = pattern.sub(lambda match, content=content: f"{match[1]}\n{content}\n\n{match[2]}", text)
    return text


def main(argv: list[str]) -> int:
    """Rewrite README.md, or check it."""
    path = ROOT / "README.md"
    old = path.read_text(encoding="utf-8")
    new = readme(old)
    if "--check" in argv:
        if old != new:
            print("README.md does not match the cards; run: make readme", file=sys.stderr)
            return 1
        return 0
    path.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
