"""Pages and tables that come from the cards, the public classes and the recorded ledger.

As a hook of MkDocs it adds the pages of the methods, the ledger and the reference to the site.
As a script it rewrites the generated tables inside written files; with --check it only says whether
they are up to date, with --example it also runs README's first comparison and renews its picture.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import assay
from assay.claims.ledger import COLUMNS, Ledger, recorded
from assay.core.cards import Card, all_cards, import_object
from assay.tasks import get_task, task_names

ROOT = Path(__file__).resolve().parents[1]

#: what people call directly, beside the classes of the methods
_PUBLIC = (
    "assay.engine.api:compare",
    "assay.engine.comparison:Comparison",
    "assay.engine.certify:certify",
    "assay.engine.certify:CertifiedTable",
    "assay.conformal.bincp:BinCP",
    "assay.conformal.rscp:RSCP",
    "assay.conformal.rscp:RSCPPlus",
    "assay.conformal.cas:CAS",
    "assay.conformal.binary_certificate:BinaryCertificate",
    "assay.conformal.smoothed_scores:SmoothedScores",
    "assay.conformal.partitioned:PartitionedClassifier",
    "assay.conformal.reliability:Certificate",
    "assay.conformal.poisoning_certificates:worst_case_vote_scores",
    "assay.claims.api:verify",
    "assay.data.builtin:datasets",
    "assay.conformal.set_fairness:set_fairness_report",
    "assay.conformal.disparate_impact:DisparateImpact",
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
            (
                f"**{link(card)}**" if card.role == "paper" else link(card),
                card.name,
                card.use_for or card.summary,
                _paper(card, short=True),
                ", ".join(card.requires) or "-",
            )
            for card in cards
        ]
        header = ("id", "method", "use it for", "paper", "needs")
        blocks.append(f"**{task}**\n\n{_table(header, rows)}")
    return "\n\n".join(blocks)


def methods_index() -> str:
    """The page that lists the methods."""
    return (
        "# Methods\n\nEvery method that a comparison can run. Those in bold are what a recent paper "
        "proposes; the others are the baselines they are held against, and often the better choice.\n\n"
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
    parts = [f"# {card.name}", card.summary, *(f"**{k}:** {v}" for k, v in facts if v and v != "-")]
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
    if not card.claims:
        return []
    rows = recorded(card.id)
    if not rows:
        return ["## Claims", f"Not run yet: `assay verify {card.id} --record`."]
    return ["## Claims", _ledger_table(rows), "What was measured and how: [ledger](../ledger.md)."]


def _ledger_table(rows: Ledger) -> str:
    return _table(COLUMNS, [row.cells() for row in rows])


def ledger_page() -> str:
    """All recorded claims, whichever way they came out."""
    rows = recorded()
    parts = [
        "# Ledger of claims",
        "What papers say beside what we measured, whichever way it came out. The gain is the paired "
        "difference to the baseline, in the direction of the claim. Code writes the verdict: a claim *holds* "
        "if the whole 95 % interval of the gain lies where the paper says, *does not hold* if all of it "
        "lies elsewhere, and is *undecided* otherwise, also where a trial failed. "
        "`assay verify --record` runs the claims and renews this page.",
        ", ".join(f"{n} {verdict}" for verdict, n in rows.counts().items() if n) or "Nothing is recorded yet",
    ]
    for method in dict.fromkeys(row.method for row in rows):
        parts += [f"## {all_cards()[method].name}", _ledger_table(rows.of(method))]
        for row in rows.of(method):
            where = f"on {row.dataset}" if row.dataset else "on data drawn from a known law"
            unit = f", in {row.unit}" if row.unit else ""
            parts.append(
                f"**{row.claim}**: {row.statement} ({row.where}). Expected: {row.expectation}. "
                f"Measured {where}{unit}, {row.seeds} seeds, {row.date}: `{row.command}`"
            )
    return "\n\n".join(parts) + "\n"


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
        if line.startswith(" ") or not line.strip():
            items.append(_inline(line.strip()))
        else:
            name, colon, kind = line.partition(" : ")
            items.append(f"- `{name.strip()}`" + (f" ({_inline(kind.strip())})" if colon else "") + ":")
    text = "\n".join("    " + line if line and not line.startswith("- ") else line for line in items)
    # an item without a description needs no colon
    return re.sub(r":(?=\n- |\Z)", "", text)


def _inline(text: str) -> str:
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    text = re.sub(r"``([^`]+)``", r"`\1`", text)
    return re.sub(r"(?<![`\w])\*(?=\w)", r"\\*", text)


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


def replace_part(text: str, name: str, content: str) -> str:
    """The text with what stands between the marks of one part made anew."""
    pattern = re.compile(rf"(<!-- begin {name}\b[^>]*-->\n).*?(<!-- end {name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(f"no part is marked {name!r}")
    return pattern.sub(lambda match: f"{match[1]}\n{content}\n\n{match[2]}", text)


def metrics_table(task: str) -> str:
    """What a task measures."""
    good = {"lower": "low", "higher": "high", "target": "at 1 - alpha", "info": "-"}
    rows = [
        (f"`{m.name}`", "of the target" if m.unit == "target" else m.unit, good[m.direction], m.description)
        for m in get_task(task).metrics
    ]
    return _table(("metric", "unit", "good is", "meaning"), rows)


def peers_table(recorded: dict[str, Any]) -> str:
    """What benchmarks/peers.json says: where and when, a row for each library, and who is not in it."""
    machine, versions = recorded["machine"], recorded["versions"]
    stack = ", ".join(f"{name} {version}" for name, version in versions.items())
    there = ", ".join(f"{peer['name']} {peer['version']}" for peer in recorded["peers"] if peer["version"])
    out = [
        f"Measured on {recorded['date']} by `{recorded['command']}`: {machine['cores']} cores "
        f"({machine['kind']}), {machine['memory_gib']} GiB, {machine['threads']} thread; Python "
        f"{recorded['python']}, {stack}; {there}.",
        _table(
            ("work", "library", "time, ratio", "memory, ratio", "its results beside ours"),
            [
                (name, row["contender"], _short(row["cpu_ratio"]), _memory(row, rows[0]), _results(row))
                for name, rows in recorded["results"].items()
                for row in rows[1:]
            ],
        ),
    ]
    absent = [f"{peer['name']} {peer['trouble']}" for peer in recorded["peers"] if peer["trouble"]]
    alike = [f"{name} ({what})" for name, what in recorded["nothing_alike"].items()]
    out += ["Not measured: " + "; ".join(absent) + "."] if absent else []
    return "\n\n".join([*out, "Nothing alike to measure in " + " and ".join(alike) + "."])


def _short(ratio: float | None) -> str:
    """Two digits or so."""
    return "–" if ratio is None else f"{ratio:.{2 if ratio < 1 else 1 if ratio < 10 else 0}f}"


def _memory(row: dict[str, Any], ours: dict[str, Any]) -> str:
    """The ratio where there is anything to divide by, and what the library took."""
    taken, own = row["extra_mib"], ours["extra_mib"]
    if taken is None or own is None:
        return "–"
    if own < 1:
        return "both under 1 MiB" if taken < 1 else f"{taken:.0f} MiB, ours under 1"
    return f"{_short(taken / own)} ({taken:.0f} MiB)"


def _results(row: dict[str, Any]) -> str:
    is_same = row["agreement"] in ("equal", "the same sets")
    return "; ".join(part for part in (row["agreement"], "" if is_same else row["note"]) if part)


def written_parts() -> list[tuple[Path, str, str]]:
    """Parts of written files that are generated: file, name of the part, content."""
    readme = ROOT / "README.md"
    recorded = json.loads((ROOT / "benchmarks" / "peers.json").read_text(encoding="utf-8"))
    return [
        (readme, "methods", methods_table(lambda card: f"`{card.id}`")),
        (readme, "peers", peers_table(recorded)),
        *((ROOT / "docs" / "tasks" / f"{task}.md", "metrics", metrics_table(task)) for task in task_names()),
    ]


def run_example(text: str) -> str:
    """README.md with the first comparison run anew: its picture is written, its answer put in."""
    from assay.cli.answer import fitted_table

    store = ROOT / "build" / "example.db"
    store.parent.mkdir(exist_ok=True)
    result = assay.compare("diamonds", seeds=5, workers=2, store=store)
    picture = ROOT / "docs" / "images" / "diamonds.svg"
    result.plot().save(picture)
    head, *rows = result.rows()
    verdict = textwrap.fill(result.verdict(), 100)
    return replace_part(text, "example", f"```text\n{fitted_table(head, rows)}\n\n{verdict}\n```")


def outdated() -> list[Path]:
    """Files whose generated part does not match; each is written anew by main."""
    parts = [
        path
        for path, name, content in written_parts()
        if (old := path.read_text(encoding="utf-8")) != replace_part(old, name, content)
    ]
    return list(dict.fromkeys(parts))


def main(argv: list[str]) -> int:
    """Rewrite the generated parts of written files, or check them."""
    if "--check" in argv:
        for path in (paths := outdated()):
            print(f"{path.relative_to(ROOT)} does not match the code; run: make readme", file=sys.stderr)
        return 1 if paths else 0
    if "--example" in argv:
        text = (ROOT / "README.md").read_text(encoding="utf-8")
        (ROOT / "README.md").write_text(run_example(text), encoding="utf-8")
    for path, name, content in written_parts():
        path.write_text(replace_part(path.read_text(encoding="utf-8"), name, content), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
