"""The answer of a comparison on a terminal: question, table, verdict, what must be said beside it."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay.cli import text
from assay.engine.report.text import notices, question
from assay.engine.wording import NONE

if TYPE_CHECKING:
    from assay.engine.comparison import Comparison

#: the column that a narrow terminal can do without: it is nearly the same for all methods
_SPARE_COLUMN = "expected"


def answer(result: Comparison) -> str:
    """All that the command prints about a comparison, the verdict last."""
    head, *rows = result.rows()
    info = result.info
    parts = [_filled(question(info))]
    if info.why_task:
        parts[0] += "\n" + _filled(f"Task: {info.why_task}")
    notes = [*info.notes, *result.notes(), *notices(result.statistics), *_errors(result)]
    parts += [fitted_table(head, rows), "\n".join(_filled(note) for note in notes)]
    parts += [_filled(f"Rule: {result.best().rule}"), _filled(result.verdict())]
    return "\n\n".join(part for part in parts if part) + "\n"


def _filled(sentence: str) -> str:
    return textwrap.fill(
        " ".join(sentence.split()), text.width(), break_long_words=False, break_on_hyphens=False
    )


def _errors(result: Comparison) -> list[str]:
    """What ended trials, equal errors of a method together."""
    errors: dict[tuple[str, str, str], list[int]] = {}
    for trial in result.failed:
        errors.setdefault((trial.method, trial.status, text.first_line(trial.error)), []).append(trial.seed)
    lines = []
    for (method, status, error), seeds in errors.items():
        which = f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"
        lines.append(f"{method}, {which}: {status}" + (f": {error}" if error else ""))
    return lines


def fitted_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The table as wide as it comes in a log; on a narrow terminal with the intervals under the means."""
    right = [i for i, name in enumerate(head) if name in ("time", "trials")]
    room = text.table_width()
    full = text.table(rows, head, right=right)
    if room is None or _width(full) <= room:
        return full
    if _SPARE_COLUMN in head and _width(_stacked(head, rows, right)) > room:
        at = list(head).index(_SPARE_COLUMN)
        said = [cell for cell in dict.fromkeys(row[at] for row in rows) if cell != NONE]
        head = [*head[:at], *head[at + 1 :]]
        rows = [[*row[:at], *row[at + 1 :]] for row in rows]
        right = [i - (i > at) for i in right]
        note = f"\n\n{_SPARE_COLUMN} coverage on one split: {'; '.join(said)}"
        return _stacked(head, rows, right) + note
    return _stacked(head, rows, right)


def _width(block: str) -> int:
    return max(len(line) for line in block.splitlines())


def _stacked(head: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[int]) -> str:
    lines: list[list[str]] = []
    for row in [head, *rows]:
        parts = [cell.partition(" [") for cell in row]
        lines.append([first for first, _, _ in parts])
        if any(sep for _, sep, _ in parts):
            lines.append([f"[{rest}" if sep else "" for _, sep, rest in parts])
    return text.table(lines[1:], lines[0], right=right)
