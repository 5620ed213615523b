"""The tables of which-interval.md, from the cards of the interval and the region task; a hook of MkDocs."""

from __future__ import annotations

from typing import Any

from assay.core.cards import Card, all_cards

PAGE = "which-interval.md"

_TITLES = {"interval": "One number", "region": "Several numbers at once"}
_MODELS = {
    "any": "any regressor; linear by default",
    "quantile": "a model of quantiles",
    "ridge": "least squares or ridge",
    "own": "brings its own model",
}


def cards() -> dict[str, list[Card]]:
    """Task -> its cards, of the tasks of this page."""
    return {task: found for task in _TITLES if (found := [c for c in all_cards().values() if c.task == task])}


def table(task: str) -> str:
    """What each method of one task needs, guarantees and costs, and when it fails."""
    rows = [("method", "use it for", "needs", "guarantee", "cost", "fails when")]
    rows.append(("---",) * len(rows[0]))
    for card in cards()[task]:
        name = f"[{card.id}](methods/{card.id}.md)"
        extra = f"; `assay[{','.join(card.requires)}]`" if card.requires else ""
        rows.append(
            (
                f"**{name}**" if card.role == "paper" else name,
                card.use_for or card.summary,
                _MODELS[card.model] + extra,
                card.guarantee or "-",
                card.cost or "-",
                card.fails_when or "-",
            )
        )
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)


def tables() -> str:
    """The tables of all tasks."""
    return "\n\n".join(f"### {_TITLES[task]}\n\n{table(task)}" for task in cards())


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """MkDocs calls this with each written page; this one gets its tables."""
    if page.file.src_uri != PAGE:
        return markdown
    return markdown.replace("<!-- tables -->", tables())
