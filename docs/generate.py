"""Pages and tables that come from the cards, the public classes and the recorded ledger.

As a hook of MkDocs it adds the pages of the methods, the ledger and the reference to the site.
As a script it rewrites the generated tables inside written files; with --check it only says whether
they are up to date, with --example it also runs README's first comparison and renews its picture.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import ledger_page
import method_examples
import reference

import assay
from assay.core.cards import Card, all_cards
from assay.tasks import get_task, task_names

ROOT = Path(__file__).resolve().parents[1]


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
        "proposes; the others are the baselines they are held against, and often the better choice. "
        "Each has a page with a worked example on real data.\n\n"
        + methods_table(lambda card: f"[{card.id}]({card.id}.md)")
        + "\n"
    )


#: task -> what the command line wants to be told of a table
_COMMAND = {
    "region": "FILE --target COLUMN,COLUMN",
    "online": "FILE --target COLUMN --time COLUMN",
    "predictive": "FILE --target COLUMN --task predictive",
    "poisoning": "FILE --target COLUMN --task poisoning",
    "attack": "FILE --target COLUMN --task attack",
}


def _columns(card: Card) -> str:
    """File, columns and task on the command line."""
    given = _COMMAND.get(card.task, "FILE --target COLUMN")
    return f"{given} --group COLUMN" if card.needs_groups else given


def method_page(card: Card, example: method_examples.Outcome | None = None) -> str:
    """The page of one method: its card, its worked example, its claims, its class."""
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
    parts += method_examples.section(card, example)
    parts += [
        "## On your own table",
        f"```sh\nassay compare {_columns(card)} --methods {card.id}\n```",
    ]
    if card.exceptions:
        parts.append("## Exceptions to the conformance laws")
        parts += [f"- **{law}**: {reason}" for law, reason in card.exceptions.items()]
    parts += ledger_page.claims_section(card)
    parts += [
        f"## {short}",
        f"```python\nfrom assay.{card.family} import {short}\n```",
        reference.reference(card.cls),
    ]
    return "\n\n".join(parts) + "\n"


def pages(examples: Mapping[str, method_examples.Outcome] | None = None) -> dict[str, str]:
    """Path in the site -> Markdown of every generated page; ``examples``: those that ran, by method."""
    ran = examples or {}
    out = {f"methods/{card.id}.md": method_page(card, ran.get(card.id)) for card in all_cards().values()}
    return {
        "methods/index.md": methods_index(),
        "ledger.md": ledger_page.ledger_page(),
        "reference.md": reference.reference_page(),
        **out,
    }


def chart_style() -> str:
    """Style of the report's charts, in the colours of the site's light and dark scheme."""
    from assay.engine.report.style import CHART_STYLE, DARK, LIGHT

    layout = """
.md-typeset .assay-figure { width: auto; margin: 1em 0; text-align: left; }
.md-typeset .assay-figure figcaption { max-width: none; margin: .4em 0; font-style: normal; }
.assay-figure .assay-chart { display: block; width: 100%; height: auto; }
.assay-panel { display: inline-block; width: 345px; max-width: 100%; margin-right: 18px; }
.assay-narrow { display: none; }
@media (max-width: 640px) { .assay-wide { display: none; } .assay-narrow { display: block; } }
"""
    return (
        f".assay-figure {{ {LIGHT} --panel: var(--md-default-bg-color); }}\n"
        f'[data-md-color-scheme="slate"] .assay-figure {{ {DARK} --panel: var(--md-default-bg-color); '
        "--band: #2b3d4c; }\n"
        f"{CHART_STYLE}\n{layout}\n{ledger_page.STYLE}"
    )


def on_files(files: Any, config: Any) -> Any:
    """MkDocs calls this when it has found the written pages; the generated ones are added."""
    from mkdocs.structure.files import File

    made = pages(method_examples.outcomes(all_cards().values()))
    for path, content in {**made, "charts.css": chart_style()}.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_config(config: Any) -> Any:
    """MkDocs calls this first; the pages of the methods go into the menu."""
    entry = next(item for item in config.nav if "Methods" in item)
    groups = [
        {task.capitalize(): [f"methods/{card.id}.md" for card in of]} for task, of in _by_task().items()
    ]
    entry["Methods"] = ["methods/index.md", *groups]
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
    """README.md with the first comparison run anew: its pictures are written, its answer put in."""
    from assay.cli.answer import fitted_table

    store = ROOT / "build" / "example.db"
    store.parent.mkdir(exist_ok=True)
    result = assay.compare("diamonds", seeds=5, workers=2, store=store)
    images = ROOT / "docs" / "images"
    result.plot().save(images / "diamonds.svg")
    photograph(result.to_html(store.with_name("example.html")), images / "report.png")
    head, *rows = result.rows()
    verdict = textwrap.fill(result.verdict(), 100)
    return replace_part(text, "example", f"```text\n{fitted_table(head, rows)}\n\n{verdict}\n```")


def photograph(page: Path, picture: Path) -> None:
    """The head of a report as a browser shows it, down to its table.

    Raises
    ------
    SystemExit
        There is no Chromium, or it made no picture.
    """
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        raise SystemExit(f"{picture.name} is taken with Chromium, which is not installed")
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1100,1345"]
    done = subprocess.run(
        [browser, *options, f"--screenshot={picture}", page.resolve().as_uri()],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{browser} took no picture: {done.stderr[-500:]}")


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
