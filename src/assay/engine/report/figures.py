"""From the statistics to charts: what each figure shows, in words too, and its numbers as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from assay.core.cards import all_cards
from assay.engine.choice import Choice
from assay.engine.report import charts
from assay.engine.report.svg import Chart
from assay.engine.report.text import nouns, relative
from assay.engine.stats import Estimate, MethodSummary, Summary
from assay.engine.wording import NONE, duration, estimate_text, number, plural, share, shorten, signed
from assay.tasks.base import Metric

#: groups of rows that are drawn, and that are in the table
MAX_GROUPS = 12
MAX_TABLE_GROUPS = 40
#: metric of the time of a row, in milliseconds
PER_ROW = "predict_ms_per_row"


@dataclass(frozen=True)
class Numbers:
    """The numbers of a figure: header and rows of strings."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Figure:
    """Charts with one caption and their numbers."""

    charts: tuple[Chart, ...]
    caption: str
    numbers: Numbers


def kind_of(choice: Choice, method: str) -> str:
    """How a method is drawn: "best", "low" (covers too little) or "plain"."""
    if method == choice.method:
        return "best"
    return "low" if choice.verdict(method).low else "plain"


def shape_of(summary: Summary, choice: Choice, method: str) -> str:
    """Square: covers too little; diamond: from a paper under test; circle: all others."""
    if choice.verdict(method).low:
        return "square"
    spec = next((m for m in summary.info.methods if m["name"] == method), {})
    card = all_cards().get(str(spec.get("card")))
    return "diamond" if card is not None and card.role == "paper" else "circle"


def _ends(of: Estimate) -> tuple[float, float] | None:
    return None if of.low is None or of.high is None else (of.low, of.high)


def finished(summary: Summary) -> list[MethodSummary]:
    """Methods with at least one finished trial."""
    return [found for found in summary.methods if found.seeds]


def expected_band(summary: Summary) -> tuple[float, float] | None:
    """The range expected of an exactly valid method on one split: the reference's, else the first known."""
    first = sorted(summary.methods, key=lambda found: found.name != summary.reference)
    return next((found.expected for found in first if found.expected), None)


def _points(summary: Summary, choice: Choice, across: str, up: str) -> list[charts.Point]:
    """A point a finished method in the plane of two metrics."""
    points = []
    for row, found in enumerate(summary.methods, 1):
        if not found.seeds:
            continue
        x, y = found.estimates[across], found.estimates[up]
        trials = summary.ok(found.name).values()
        seeds = [(t.metrics[across], t.metrics[up]) for t in trials if {across, up} <= set(t.metrics)]
        points.append(
            charts.Point(
                found.name,
                x.mean,
                y.mean,
                _ends(x),
                _ends(y),
                tuple(seeds) if len(seeds) > 1 else (),
                kind_of(choice, found.name),
                shape_of(summary, choice, found.name),
                row,
            )
        )
    return points


def overview(summary: Summary, choice: Choice, *, narrow: bool = False) -> Chart:
    """Coverage against size: the picture people look at first; or a score against the time of a row."""
    score = summary.task.size_metric
    if summary.task.coverage_metric is None:
        points = _points(summary, choice, PER_ROW, score)
        label, time = summary.label(score), "milliseconds a row"
        spoken = "; ".join(f"{p.name}: {label} {number(p.y)}, {number(p.x)} ms a row" for p in points)
        return charts.scatter(
            points,
            target=None,
            band=None,
            x_label=f"{time} to predict",
            y_label=label,
            title=f"{label} against time to predict",
            description=spoken or "No method finished a trial",
            width=320 if narrow else 960,
            height=330 if narrow else 480,
        )
    size, coverage = score, summary.task.coverage_metric
    points = _points(summary, choice, size, coverage)
    spoken = "; ".join(
        f"{p.name}: {summary.label(size)} {number(p.x)}, {summary.label(coverage)} {share(p.y)}"
        for p in points
    )
    return charts.scatter(
        points,
        target=summary.target,
        band=expected_band(summary),
        x_label=summary.label(size),
        y_label=summary.label(coverage),
        title=f"{_sentence(summary.label(coverage))} against {summary.label(size)}",
        description=f"Nominal coverage {summary.target:g}. {spoken or 'No method finished a trial'}.",
        width=320 if narrow else 960,
        height=330 if narrow else 480,
    )


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def overview_numbers(summary: Summary) -> Numbers:
    """The numbers of :func:`overview`."""
    size, coverage = summary.task.size_metric, summary.task.coverage_metric
    if coverage is None:
        names = (size, PER_ROW)
        header = ("method", *(f"{summary.label(name)} [95 %]" for name in names))
        return Numbers(
            header,
            tuple(
                (found.name, *(estimate_text(found.estimates[name]) for name in names))
                for found in finished(summary)
            ),
        )
    rows = tuple(
        (found.name, estimate_text(found.estimates[size]), estimate_text(found.estimates[coverage], 3))
        for found in finished(summary)
    )
    return Numbers(("method", f"{summary.label(size)} [95 %]", f"{summary.label(coverage)} [95 %]"), rows)


def _rows(summary: Summary, choice: Choice, values: Mapping[str, tuple[Estimate, str]]) -> list[charts.Row]:
    return [
        charts.Row(name, of.mean, _ends(of), text, kind_of(choice, name), shape_of(summary, choice, name))
        for name, (of, text) in values.items()
    ]


def _spoken(values: Mapping[str, tuple[Estimate, str]]) -> str:
    return "; ".join(f"{name}: {text}" for name, (_, text) in values.items()) + "."


def differences(summary: Summary, choice: Choice) -> Figure | None:
    """Paired differences to the reference: size and scores in percent, coverage in points."""
    reference = summary.reference
    others = [found for found in finished(summary) if found.name != reference and found.differences]
    if reference is None or not others:
        return None
    _, _, smaller, _ = nouns(summary.info.task)
    panels, header, columns = [], ["method"], []
    for metric in _judged(summary):
        percent = not metric.unit.startswith(("share", "nats"))
        values: dict[str, tuple[Estimate, str]] = {}
        for found in others:
            of = (
                relative(summary, found.name, metric.name)
                if percent
                else _scaled(found.differences.get(metric.name), 100 if metric.unit == "share" else 1)
            )
            if of is not None and not math.isnan(of.mean):
                sign = " %" if percent and math.isfinite(of.mean) else ""
                shown = signed(of.mean, None if metric.unit.startswith("nats") else 1)
                values[found.name] = (of, f"{shown}{sign}")
        if not values:
            continue
        unit = "%" if percent else "points" if metric.unit == "share" else "nats"
        label = summary.label(metric.name)
        hint = f"← {smaller if metric.name == summary.task.size_metric else 'better'}"
        hint = {"lower": hint, "higher": "better →"}.get(metric.direction, "")
        panels.append(
            charts.dot_rows(
                _rows(summary, choice, values),
                title=f"{label}, {unit}",
                description=f"Paired difference to {reference}. {_spoken(values)}",
                zero=0.0,
                hint=hint,
            )
        )
        header.append(f"{label}, {unit}")
        decimals = 4 if metric.unit.startswith("nats") else 1
        columns.append({name: _with_ends(of, decimals) for name, (of, _) in values.items()})
    if not panels:
        return None
    rows = tuple((m.name, *(column.get(m.name, NONE) for column in columns)) for m in others)
    caption = (
        f"Each method minus {reference} on the same splits, mean and 95 % interval over the seeds on which "
        f"both finished. An interval that leaves out the dashed line is more than chance. Sizes and scores "
        f"in percent of {reference}'s mean, coverages in percentage points. A triangle lies beyond the axis."
    )
    if summary.task.coverage_metric is None:
        caption = caption.replace("coverages", "likelihoods in nats, shares")
    return Figure(tuple(panels), caption, Numbers(tuple(header), rows))


def _with_ends(of: Estimate, decimals: int) -> str:
    text = signed(of.mean, decimals)
    if of.low is None or of.high is None:
        return text
    return f"{text} [{signed(of.low, decimals)}, {signed(of.high, decimals)}]"


def _judged(summary: Summary) -> list[Metric]:
    """Metrics worth a panel of differences: size, coverage, then scores and worst cases."""
    first = (summary.task.size_metric, summary.task.coverage_metric)
    if summary.task.coverage_metric is None:
        return [m for m in summary.metrics if m.direction in ("lower", "higher") and not _is_cost(m)]
    rest = [
        m.name for m in summary.metrics if m.name.endswith(("_score", "_gap")) or m.name.startswith("worst_")
    ]
    by_name = {m.name: m for m in summary.metrics}
    return [by_name[name] for name in (*first, *rest) if name in by_name]


def _scaled(of: Estimate | None, by: float) -> Estimate | None:
    if of is None:
        return None
    low = None if of.low is None else of.low * by
    high = None if of.high is None else of.high * by
    return Estimate(of.mean * by, low, high, of.basis, of.seeds, of.undefined, of.infinite)


def worst_cases(summary: Summary, choice: Choice) -> Figure | None:
    """Coverage of the worst slab or class: one number a method."""
    metrics = [m for m in summary.metrics if m.name.startswith("worst_")]
    panels, header, columns = [], ["method"], []
    for metric in metrics:
        values = {
            found.name: (found.estimates[metric.name], share(found.estimates[metric.name].mean))
            for found in finished(summary)
            if found.estimates[metric.name].seeds
        }
        if values:
            label = summary.label(metric.name)
            panels.append(
                charts.dot_rows(
                    _rows(summary, choice, values),
                    title=label,
                    description=f"Dashed line at {summary.target:g}. {_spoken(values)}",
                    zero=summary.target,
                )
            )
            header.append(f"{label} [95 %]")
            columns.append({name: estimate_text(of, 3) for name, (of, _) in values.items()})
    if not panels:
        return None
    slabs = {found.name: _slab_text(summary, found.name) for found in finished(summary)}
    rows = [(m.name, *(c.get(m.name, NONE) for c in columns)) for m in finished(summary)]
    if any(slabs.values()):
        header.append("where it is, first seed")
        rows = [(*row, slabs[row[0]] or NONE) for row in rows]
    caption = (
        "Coverage where it is lowest, mean and 95 % interval over seeds; the dashed line is the level asked "
        "for. Even an exact method falls below it a little, because the place is searched for."
    )
    return Figure(tuple(panels), caption, Numbers(tuple(header), tuple(rows)))


def _slab_text(summary: Summary, method: str) -> str:
    for result in summary.ok(method).values():
        slab = result.detail.get("slab")
        if slab:
            features = ", ".join(shorten(str(feature), 40) for feature in slab.get("features", ()))
            part = f"{share(slab.get('coverage'))} in {plural(int(slab.get('n', 0)), 'test row')}"
            return f"{part}; {features}" if features else part
    return ""


def _is_cost(metric: Metric) -> bool:
    return metric.name.endswith("_seconds") or metric.name in (PER_ROW, "peak_memory")


def costs(summary: Summary, choice: Choice) -> Figure | None:
    """Seconds to fit and to predict and memory, one panel each."""
    panels, header, columns = [], ["method"], []
    for metric in summary.metrics:
        if not _is_cost(metric):
            continue
        values = {}
        for found in finished(summary):
            of = found.estimates[metric.name]
            if of.seeds:
                other = f"{number(of.mean)} {metric.unit}"
                values[found.name] = (of, duration(of.mean) if metric.name.endswith("_seconds") else other)
        if not values:
            continue
        label = summary.label(metric.name)
        unit = "s" if metric.name.endswith("_seconds") else metric.unit
        panels.append(
            charts.dot_rows(
                _rows(summary, choice, values),
                title=f"{label}, {unit}",
                description=_spoken(values),
                log=True,
            )
        )
        header.append(f"{label}, {unit}")
        columns.append({name: estimate_text(of) for name, (of, _) in values.items()})
    if not panels:
        return None
    rows = tuple((m.name, *(c.get(m.name, NONE) for c in columns)) for m in finished(summary))
    caption = (
        "Mean over seeds and its 95 % interval, on a logarithmic axis where all numbers are positive. "
        "Memory is the peak above that of the process before the trial."
    )
    return Figure(tuple(panels), caption, Numbers(tuple(header), rows))
