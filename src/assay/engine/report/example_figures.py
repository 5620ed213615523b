"""What single answers look like: intervals and label sets of some test rows, and the sizes of all sets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from assay.engine.choice import Choice
from assay.engine.report import charts
from assay.engine.report.figures import Figure, Numbers, finished, kind_of
from assay.engine.report.svg import Chart
from assay.engine.stats import MethodSummary, Summary
from assay.engine.wording import number, share, shorten

#: methods whose examples are drawn
_MAX_DRAWN = 9
#: classes that fit into one panel of example sets
_MAX_CLASSES = 20
#: rows of a method in the table
_TABLE_ROWS = 15


def sizes_of_sets(summary: Summary, choice: Choice) -> Figure | None:
    """Histogram of set sizes, one panel a method, over all seeds."""
    panels, rows = [], []
    for found in finished(summary):
        counts: dict[int, float] = {}
        for result in summary.ok(found.name).values():
            for size, count in result.detail.get("size_histogram") or ():
                counts[int(size)] = counts.get(int(size), 0) + count
        if not counts:
            continue
        ordered = _binned(sorted(counts.items()))
        total = sum(counts.values())
        spoken = ", ".join(f"size {size}: {share(count / total)}" for size, count in ordered)
        kind = kind_of(choice, found.name)
        panels.append(charts.histogram(found.name, ordered, description=spoken, kind=kind))
        rows.append((found.name, spoken))
    if not panels:
        return None
    caption = "Share of test rows by the number of labels in their set, over all seeds."
    return Figure(tuple(panels), caption, Numbers(("method", "shares"), tuple(rows)))


def _binned(counts: Sequence[tuple[int, float]], most: int = 30) -> list[tuple[int, float]]:
    """At most ``most`` bars: neighbouring sizes are added up, under the smallest of them."""
    if not counts:
        return []
    last = max(size for size, _ in counts)
    width = math.ceil((last + 1) / most)
    bars = dict.fromkeys(range(0, last + 1, width), 0.0)
    for size, count in counts:
        bars[size // width * width] += count
    return list(bars.items())


def _first_detail(summary: Summary, method: str, key: str) -> tuple[int, Any] | None:
    return next(((r.seed, r.detail[key]) for r in summary.ok(method).values() if r.detail.get(key)), None)


def _with_examples(summary: Summary, choice: Choice) -> tuple[list[MethodSummary], str]:
    """Methods whose examples are drawn (the recommended and the reference among them), and a note."""
    every = finished(summary)
    if len(every) <= _MAX_DRAWN:
        return every, ""
    first = sorted(every, key=lambda found: found.name not in (choice.method, summary.reference))
    kept = {found.name for found in first[:_MAX_DRAWN]}
    return [m for m in every if m.name in kept], f" Drawn: {_MAX_DRAWN} of {len(every)} methods."


def example_intervals(summary: Summary, choice: Choice) -> Figure | None:
    """Intervals of the first finished seed over test rows, one panel a method."""
    panels: list[Chart] = []
    rows: list[tuple[str, ...]] = []
    drawn, note = _with_examples(summary, choice)
    for found in drawn:
        first = _first_detail(summary, found.name, "examples")
        if first is None or not isinstance(first[1], Mapping):
            continue
        seed, columns = first
        keys = ("row", "y", "prediction", "lower", "upper")
        examples = [dict(zip(keys, v, strict=True)) for v in zip(*(columns[k] for k in keys), strict=True)]
        if not examples:
            continue
        inside = sum(_inside(example) for example in examples)
        panels.append(
            charts.strip(
                found.name,
                examples,
                description=(
                    f"Seed {seed}: {len(examples)} test rows sorted by prediction, the interval of each, and "
                    f"the target: {inside} inside, {len(examples) - inside} outside."
                ),
                y_label=shorten(summary.info.target, 14),
            )
        )
        stride = max(1, math.ceil(len(examples) / _TABLE_ROWS))
        rows += [
            (
                found.name,
                str(e["row"]),
                number(e["y"]),
                number(e["prediction"]),
                number(-math.inf if e["lower"] is None else e["lower"]),
                number(math.inf if e["upper"] is None else e["upper"]),
                "inside" if _inside(e) else "outside",
            )
            for e in examples[::stride]
        ]
    if not panels:
        return None
    caption = (
        "Test rows of the first seed, spread evenly over the predictions: interval (bar), prediction (line), "
        "target inside (dot) and outside (cross). Bars that reach the frame go on beyond it. "
        "The table has a tenth of them; rows count from 0 in the table as it was read."
    )
    header = ("method", "row", summary.info.target, "prediction", "lower", "upper", "")
    return Figure(tuple(panels), caption + note, Numbers(header, tuple(rows)))


def _inside(example: Mapping[str, Any]) -> bool:
    if example["y"] is None:
        return False
    lower = -math.inf if example["lower"] is None else example["lower"]
    upper = math.inf if example["upper"] is None else example["upper"]
    return bool(lower <= example["y"] <= upper)


def example_sets(summary: Summary, choice: Choice) -> Figure | None:
    """Label sets of the first finished seed, one panel a method where the classes are few."""
    panels: list[Chart] = []
    rows: list[tuple[str, ...]] = []
    drawn, note = _with_examples(summary, choice)
    for found in drawn:
        first = _first_detail(summary, found.name, "examples")
        if first is None or isinstance(first[1], Mapping):
            continue
        seed, examples = first
        by_class = _first_detail(summary, found.name, "by_class")
        known = [str(group["label"]) for group in by_class[1]] if by_class else []
        seen = [str(label) for e in examples for label in (*e["set"], e["y"])]
        classes = list(dict.fromkeys([*known, *seen]))
        if len(classes) <= _MAX_CLASSES:
            hits = sum(str(e["y"]) in {str(label) for label in e["set"]} for e in examples)
            text = (
                f"Seed {seed}: label sets of {len(examples)} test rows; the true label is in {hits} of them."
            )
            panels.append(charts.set_matrix(found.name, examples, classes, description=text))
        for e in examples[:_TABLE_ROWS]:
            labels = [str(label) for label in e["set"]]
            truth = str(e["y"])
            text = ", ".join(shorten(label, 40) for label in labels[:12]) or "empty"
            more = f" and {len(labels) - 12} more" if len(labels) > 12 else ""
            row = (
                found.name,
                str(e["row"]),
                truth,
                text + more,
                "in the set" if truth in labels else "missed",
            )
            rows.append(row)
    if not rows:
        return None
    caption = (
        "Test rows of the first seed: the labels in each set (filled) and the true one (outlined, orange "
        "where it is missed). Rows count from 0 in the table as it was read."
    )
    return Figure(
        tuple(panels), caption + note, Numbers(("method", "row", "true label", "set", ""), tuple(rows))
    )
