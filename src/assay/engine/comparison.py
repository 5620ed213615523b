"""What a comparison found: the trials, their statistics, the choice, and ways to look at them."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from assay.engine.choice import Choice, choose
from assay.engine.plan import RunInfo, TrialResult
from assay.engine.report import text
from assay.engine.stats import FAILURES, Summary
from assay.tasks import get_task

if TYPE_CHECKING:
    from assay.engine.report.svg import Chart

TABLE_COLUMNS = (
    "dataset",
    "task",
    "method",
    "seed",
    "status",
    "metric",
    "value",
    "unit",
    "seconds",
    "error",
)


class Comparison:
    """Trials of several methods on the same splits, and what they say together.

    Parameters
    ----------
    info : RunInfo
        The question.
    results : sequence of TrialResult
        At most one for each method and seed.

    Attributes
    ----------
    failed : tuple of TrialResult
        Trials that were started and did not finish; empty if all did.

    Raises
    ------
    DataError
        Two results for the same method and seed.
    """

    def __init__(self, info: RunInfo, results: Sequence[TrialResult]) -> None:
        self.info = info
        self.task = get_task(info.task, **info.options)
        self.statistics = Summary(info, results, self.task)
        self.results = tuple(r for m in self.statistics.methods for r in self.statistics.trials(m.name))
        self.failed = tuple(result for result in self.results if result.status in FAILURES)

    def table(self) -> pd.DataFrame:
        """All trials, tidy: one row for each trial and metric.

        Columns ``dataset, task, method, seed, status, metric, value, unit, seconds, error``. A trial
        without metrics (it failed or was skipped) is one row whose metric, value and unit are missing.
        ``seconds`` are those of the whole trial; the unit "target" is the unit of the target column.
        """
        units = {metric.name: metric.unit for metric in self.statistics.metrics}
        rows: list[tuple[Any, ...]] = []
        for result in self.results:
            head = (self.info.dataset, self.info.task, result.method, result.seed, result.status)
            names = [name for name in units if name in result.metrics]
            tail = (result.seconds, result.error)
            rows += [(*head, name, result.metrics[name], units[name], *tail) for name in names]
            if not names:
                rows.append((*head, None, math.nan, None, *tail))
        frame = pd.DataFrame(rows, columns=list(TABLE_COLUMNS))
        return frame.astype({"seed": "int64", "value": "float64", "seconds": "float64"})

    def summary(self) -> pd.DataFrame:
        """One row for each method and metric: mean, 95 % interval, difference to the reference.

        ``low`` and ``high`` bound the mean over seeds with the corrected resampled variance of Nadeau and
        Bengio (``basis`` "corrected t"; "t" where the test parts do not overlap); for a single seed the
        coverage has an exact binomial interval and other metrics none. ``seeds`` counts the values
        averaged, ``undefined`` the NaN left out, ``infinite`` those that make the mean infinite.
        ``difference`` is paired, over the ``difference_seeds`` seeds on which the method and ``reference``
        both finished. The last columns count the method's trials by status.
        """
        rows = []
        for found in self.statistics.methods:
            counts = {status.replace(" ", "_"): n for status, n in found.counts.items()}
            for metric in self.statistics.metrics:
                of, gap = found.estimates[metric.name], found.differences.get(metric.name)
                rows.append(
                    {
                        "method": found.name,
                        "metric": metric.name,
                        "unit": metric.unit,
                        "direction": metric.direction,
                        "mean": of.mean,
                        "low": _nan(of.low),
                        "high": _nan(of.high),
                        "basis": of.basis,
                        "seeds": len(of.seeds),
                        "undefined": len(of.undefined),
                        "infinite": of.infinite,
                        "reference": self.statistics.reference,
                        "difference": gap.mean if gap else math.nan,
                        "difference_low": _nan(gap.low if gap else None),
                        "difference_high": _nan(gap.high if gap else None),
                        "difference_seeds": len(gap.seeds) if gap else 0,
                        **counts,
                        "trials": found.trials,
                    }
                )
        return pd.DataFrame(rows)

    def best(self) -> Choice:
        """The recommended method, the rule that chose it and the reason.

        It is the smallest (by the task's size metric) of the methods of which no trial failed and
        whose coverage is not significantly below 1 - alpha; ``rule`` says so with the numbers of this
        comparison. ``method`` is None if none qualifies. ``str()`` of the answer is a sentence.
        """
        return self._choice

    @cached_property
    def _choice(self) -> Choice:
        return choose(self.statistics)

    @property
    def reference(self) -> str | None:
        """The method to which the others are compared."""
        return self.statistics.reference

    def rows(self) -> list[tuple[str, ...]]:
        """The short table for a terminal, as strings: the header, then one row a method."""
        return text.table_rows(self.statistics, self._choice)

    def notes(self) -> list[str]:
        """What must be said beside the short table: failed trials, missing pairs, undefined values."""
        return text.table_notes(self.statistics, self._choice)

    def verdict(self) -> str:
        """The outcome as one sentence."""
        return text.verdict(self.statistics, self._choice)

    def to_dict(self) -> dict[str, Any]:
        """What :meth:`to_json` writes."""
        choice = self._choice
        content = {
            "format": "assay-comparison",
            "version": 1,
            "run": vars(self.info),
            "trials": self.table().to_dict("records"),
            "summary": self.summary().to_dict("records"),
            "best": asdict(choice),
        }
        plain: dict[str, Any] = _plain(content)
        return plain

    def to_json(self, path: str | PathLike[str]) -> Path:
        """Write run facts (``run``), all trials (``trials``), ``summary`` and choice (``best``) as JSON.

        Strictly valid JSON: an infinite number is the string "Infinity" or "-Infinity", a missing or
        undefined one is null.
        """
        target = Path(path)
        content = json.dumps(self.to_dict(), indent=1, ensure_ascii=True, allow_nan=False)
        target.write_text(content + "\n", encoding="utf-8")
        return target

    def to_html(self, path: str | PathLike[str]) -> Path:
        """Write the report: one HTML file that opens offline."""
        from assay.engine.report.page import render

        target = Path(path)
        target.write_text(render(self.statistics, self._choice), encoding="utf-8")
        return target

    def plot(self) -> Chart:
        """Coverage against size with intervals, as an SVG that notebooks show and ``save(path)`` writes."""
        from assay.engine.report.figures import overview

        return overview(self.statistics, self._choice)

    def _repr_html_(self) -> str:
        head, *rows = self.rows()
        cells = "".join(f"<th>{text.esc(cell)}</th>" for cell in head)
        body = "".join(
            "<tr>" + "".join(f"<td>{text.esc(cell)}</td>" for cell in row) + "</tr>" for row in rows
        )
        notes = "".join(f"<p><small>{text.esc(note)}</small></p>" for note in self.notes())
        chart = self.plot().svg(standalone=True)
        return (
            f"<p><strong>{text.esc(self.verdict())}</strong></p><table><thead><tr>{cells}</tr></thead>"
            f"<tbody>{body}</tbody></table>{notes}{chart}<p><small>{text.esc(self._choice.rule)}</small></p>"
        )

    def __repr__(self) -> str:
        rows = self.rows()
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        return "\n".join([text.question(self.info), "", *lines, "", self.verdict(), *self.notes()])


def _nan(value: float | None) -> float:
    return math.nan if value is None else value


def _plain(value: Any) -> Any:
    """The value in JSON's own types; infinite numbers as strings, NaN as null."""
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return float(value) if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "item"):
        return _plain(value.item())
    return str(value)


__all__ = ["TABLE_COLUMNS", "Comparison"]
