"""From the statistics to charts: what each figure shows, in words too, and its numbers as a table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.core.cards import all_cards
from assay.engine.choice import Choice
from assay.engine.report import charts
from assay.engine.report.svg import Chart
from assay.engine.report.text import nouns, relative
from assay.engine.stats import Estimate, MethodSummary, Summary
from assay.engine.wording import NONE, duration, estimate_text, number, plural, share, shorten, signed
from assay.tasks.base import Metric

MAX_GROUPS = 12
MAX_TABLE_GROUPS = 40
#: methods whose examples are drawn
MAX_EXAMPLES = 9
#: classes that fit into one panel of example sets
MAX_CLASSES = 20
_EXAMPLE_ROWS = 15
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


#: detail -> (title, caption)
GROUPS = {
    "by_width": (
        "By width of the interval",
        "Test rows in five groups by the width they were given, narrowest first.",
    ),
    "by_volume": (
        "By volume of the region",
        "Test rows in five groups by the volume they were given, smallest first.",
    ),
    "by_class": ("By class", "Test rows by their true class."),
    "by_size": ("By size of the set", "Test rows by the number of labels in their set."),
}


def by_group(summary: Summary, choice: Choice, key: str) -> Figure | None:
    """Coverage within groups of test rows, one panel a method, averaged over seeds."""
    pooled = {found.name: _pool(summary, found.name, key) for found in finished(summary)}
    pooled = {name: groups for name, groups in pooled.items() if groups}
    if not pooled:
        return None
    labels = list(dict.fromkeys(label for groups in pooled.values() for label in groups))
    chosen = labels
    extra = ""
    if len(labels) > MAX_GROUPS:
        if key == "by_class":
            chosen = sorted(labels, key=lambda label: _lowest(pooled, label))[:MAX_GROUPS]
            extra = (
                f" Drawn: the {MAX_GROUPS} of {len(labels)} classes whose coverage is lowest for any method."
            )
        else:
            chosen = labels[:MAX_GROUPS]
            extra = f" Drawn: the first {MAX_GROUPS} of {len(labels)} groups."
    drawn = [groups[label] for groups in pooled.values() for label in chosen if label in groups]
    # seeds with few rows in a group reach far down; they may leave the frame
    low = min([*(max(lowest, middle - 0.15) for middle, lowest, _, _ in drawn), summary.target - 0.1])
    low = max(0.0, math.floor(low * 20) / 20)
    panels = []
    for name, groups in pooled.items():
        shown = tuple((label, *groups[label]) for label in chosen if label in groups)
        spoken = "; ".join(f"{g[0]}: {share(g[1])}" for g in shown)
        panels.append(
            charts.profile(
                charts.Profile(name, shown, "best" if name == choice.method else "plain"),
                target=summary.target,
                low=low,
                description=f"Coverage by group, level {summary.target:g}. {spoken}.",
            )
        )
    listed = labels if len(labels) <= MAX_TABLE_GROUPS else chosen
    rows = tuple((label, *(_group_text(groups.get(label)) for groups in pooled.values())) for label in listed)
    caption = (
        f"{GROUPS[key][1]} Mean over seeds, line from the lowest to the highest seed; the dashed line is the "
        f"level asked for. Orange: below the level on every seed.{extra}"
    )
    return Figure(tuple(panels), caption, Numbers(("group", *pooled), rows))


def _pool(summary: Summary, method: str, key: str) -> dict[str, tuple[float, float, float, float]]:
    """Group -> mean coverage weighted by rows, lowest and highest over seeds, rows over all seeds."""
    gathered: dict[str, list[tuple[float, float]]] = {}
    for result in summary.ok(method).values():
        for place, group in enumerate(result.detail.get(key) or ()):
            label = str(group["label"])
            if key in ("by_width", "by_volume"):
                # quintiles correspond by place, whatever their limits on this seed
                label = str(place + 1)
            if group["coverage"] is not None and group["n"]:
                gathered.setdefault(label, []).append((float(group["coverage"]), float(group["n"])))
    return {
        label: (
            sum(c * n for c, n in seen) / sum(n for _, n in seen),
            min(c for c, _ in seen),
            max(c for c, _ in seen),
            sum(n for _, n in seen),
        )
        for label, seen in gathered.items()
    }


def _lowest(pooled: Mapping[str, Mapping[str, tuple[float, float, float, float]]], label: str) -> float:
    return min(groups[label][0] for groups in pooled.values() if label in groups)


def _group_text(group: tuple[float, float, float, float] | None) -> str:
    if group is None:
        return NONE
    return f"{share(group[0])} ({share(group[1])} to {share(group[2])}), {number(group[3], 0)} rows"


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
    if len(every) <= MAX_EXAMPLES:
        return every, ""
    first = sorted(every, key=lambda found: found.name not in (choice.method, summary.reference))
    kept = {found.name for found in first[:MAX_EXAMPLES]}
    return [m for m in every if m.name in kept], f" Drawn: {MAX_EXAMPLES} of {len(every)} methods."


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
        stride = max(1, math.ceil(len(examples) / _EXAMPLE_ROWS))
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
        if len(classes) <= MAX_CLASSES:
            hits = sum(str(e["y"]) in {str(label) for label in e["set"]} for e in examples)
            text = (
                f"Seed {seed}: label sets of {len(examples)} test rows; the true label is in {hits} of them."
            )
            panels.append(charts.set_matrix(found.name, examples, classes, description=text))
        for e in examples[:_EXAMPLE_ROWS]:
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
