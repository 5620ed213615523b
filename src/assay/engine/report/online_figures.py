"""Pictures of a comparison over time: the series with its bands, rolling coverage, where errors change."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assay.engine.choice import Choice
from assay.engine.report import charts
from assay.engine.report.figures import Figure, Numbers, finished, kind_of
from assay.engine.report.svg import Chart, Scale, line, padded, text_width, words
from assay.engine.report.text import esc
from assay.engine.stats import Summary
from assay.engine.wording import NONE, number, share, shorten

WIDE, NARROW = 960, 320
#: positive series that span more than this are drawn on a logarithmic axis
_LOG_FROM = 30.0
Column = Mapping[str, Sequence[Any]]


@dataclass(frozen=True)
class TimeFigure:
    """Charts as wide as the page, each with a narrow form, under one caption, and their numbers."""

    charts: tuple[tuple[Chart, Chart], ...]
    caption: str
    numbers: Numbers


@dataclass(frozen=True)
class Stretch:
    """What one trial says of its stretch: series and bands under names in ``detail``."""

    number: int
    first: int
    last: int
    detail: Mapping[str, Any]

    @property
    def shift(self) -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = self.detail.get("shift")
        return found

    @property
    def words(self) -> tuple[str, str]:
        of = self.detail["stretch"]
        return str(of["from"]), str(of["to"])


def series_with_bands(summary: Summary, choice: Choice) -> TimeFigure | None:
    """The series over all stretches with the bands of the recommended method and the reference."""
    drawn = _drawn(summary, choice)
    if not drawn:
        return None
    every = [stretch for name in drawn for stretch in _stretches(summary, name)]
    low, high, log = reach(every, "series")
    pairs = []
    for name in drawn:
        stretches = _stretches(summary, name)
        misses = sum(not inside for s in stretches for inside in _inside(s.detail["series"]))
        shown = sum(1 for s in stretches for _ in _inside(s.detail["series"]))
        of = stretches[0].detail["stretch"]
        label = f"series {of['series']}" if of["series"] else summary.info.target
        description = f"{label} with its intervals: {misses} of the {shown} steps drawn lie outside."
        wide, narrow = (
            band_chart(
                name,
                [(s.detail["series"], s) for s in stretches],
                kind=kind_of(choice, name),
                y_ends=(low, high, log),
                y_label=shorten(label, 40),
                description=description,
                width=width,
                height=230 if width == WIDE else 190,
                shifts=True,
            )
            for width in (WIDE, NARROW)
        )
        pairs.append((wide, narrow))
    caption = (
        f"{_which_series(summary, drawn[0])}over all stretches: interval (band), forecast (line), the truth "
        "inside (dot) and outside (cross); every few steps are drawn. Bands that reach the frame go on "
        f"beyond it. Thin lines part the stretches{'; the axis is logarithmic' if log else ''}. "
        f"{_shift_words(every)}"
    )
    return TimeFigure(tuple(pairs), caption, _stretch_numbers(summary, choice, drawn))


def close_up(summary: Summary, choice: Choice) -> TimeFigure | None:
    """Every step around the greatest change of the errors, for the same methods."""
    drawn = _drawn(summary, choice)
    numbers = [{s.number: s for s in _stretches(summary, name)} for name in drawn]
    common = sorted(set.intersection(*(set(of) for of in numbers))) if numbers else []
    if not common:
        return None
    chosen = max(common, key=lambda n: (_size(numbers[0][n].shift), n))
    stretches = [of[chosen] for of in numbers]
    low, high, log = reach(stretches, "close_up")
    pairs = []
    rows: list[tuple[str, ...]] = []
    for name, stretch in zip(drawn, stretches, strict=True):
        column = stretch.detail["close_up"]
        inside = list(_inside(column))
        text = f"{len(inside)} steps in a row, {len(inside) - sum(inside)} of them outside."
        wide, narrow = (
            band_chart(
                name,
                [(column, stretch)],
                kind=kind_of(choice, name),
                y_ends=(low, high, log),
                y_label=shorten(summary.info.target, 40),
                description=text,
                width=width,
                height=210 if width == WIDE else 190,
                shifts=True,
            )
            for width in (WIDE, NARROW)
        )
        pairs.append((wide, narrow))
        rows += [
            (
                name,
                str(column["time"][i]),
                number(column["y"][i]),
                number(column["prediction"][i]),
                number(-math.inf if column["lower"][i] is None else column["lower"][i]),
                number(math.inf if column["upper"][i] is None else column["upper"][i]),
            )
            for i in range(0, len(column["step"]), max(1, len(column["step"]) // 15))
        ]
    where = (
        "around the greatest change of the errors"
        if stretches[0].shift
        else "in the middle of the last stretch"
    )
    caption = f"Steps in a row {where}, stretch {chosen}. The table has every tenth of them."
    header = ("method", "time", summary.info.target, "forecast", "lower", "upper")
    return TimeFigure(tuple(pairs), caption, Numbers(header, tuple(rows)))


def rolling_coverage(summary: Summary, choice: Choice) -> Figure | None:
    """Coverage over the last steps, one panel a method, against the level."""
    found = {m.name: _stretches(summary, m.name) for m in finished(summary)}
    found = {name: stretches for name, stretches in found.items() if stretches}
    if not found:
        return None
    every = [s for stretches in found.values() for s in stretches]
    values = [v for s in every for v in s.detail["rolling"]["coverage"] if v is not None]
    if not values:
        return None
    low = max(0.0, math.floor((min([*values, summary.target]) - 0.02) * 10) / 10)
    first, last = min(s.first for s in every), max(s.last for s in every)
    window = every[0].detail["rolling"]["window"]
    panels, rows = [], []
    for name, stretches in found.items():
        lows = {s.number: _least(s.detail["rolling"]["coverage"]) for s in stretches}
        panels.append(
            _rolling_chart(
                name,
                stretches,
                target=summary.target,
                low=low,
                ends=(first, last),
                kind=kind_of(choice, name),
                description=(
                    f"Coverage over {window} steps, level {summary.target:g}. Lowest by stretch: "
                    + ", ".join(f"{k}: {share(v)}" for k, v in lows.items())
                ),
            )
        )
        rows.append((name, *(_extremes(stretches, k) for k in summary.seeds)))
    series = every[0].detail["stretch"]["n_series"]
    whose = "" if series == 1 else f" of all {series:,} series together"
    caption = (
        f"Share of the last {window} steps{whose} whose target was in its interval; the dashed line is the "
        "level. By chance alone a share over so few steps strays by "
        f"{200 * math.sqrt(summary.target * (1 - summary.target) / window):.0f} points or so. "
        f"{_shift_words(every)}"
    )
    header = ("method, lowest to highest", *(f"stretch {k}" for k in summary.seeds))
    return Figure(tuple(panels), caption, Numbers(header, tuple(rows)))


def _drawn(summary: Summary, choice: Choice) -> list[str]:
    """The recommended method and the reference, else the first that finished."""
    have = [m.name for m in finished(summary) if _stretches(summary, m.name)]
    wanted = [name for name in (choice.method, summary.reference) if name in have]
    return list(dict.fromkeys(str(name) for name in wanted)) or have[:1]


def _stretches(summary: Summary, method: str) -> list[Stretch]:
    out = []
    for result in summary.ok(method).values():
        of = result.detail.get("stretch")
        if of:
            first = int(of["first"])
            out.append(Stretch(int(of["number"]), first, first + int(of["n"]) - 1, result.detail))
    return sorted(out, key=lambda s: s.first)


def _inside(column: Column) -> Iterator[bool]:
    """Whether each known target lies in its interval; None is an infinite end."""
    for y, lower, upper in zip(column["y"], column["lower"], column["upper"], strict=True):
        if y is not None:
            yield (lower is None or lower <= y) and (upper is None or y <= upper)


def _size(shift: Mapping[str, Any] | None) -> float:
    return abs(math.log(shift["factor"])) if shift else 0.0


def _least(values: Sequence[float | None]) -> float:
    return min((v for v in values if v is not None), default=math.nan)


def _extremes(stretches: Sequence[Stretch], number_: int) -> str:
    for s in stretches:
        known = [v for v in s.detail["rolling"]["coverage"] if v is not None]
        if s.number == number_ and known:
            return f"{share(min(known))} to {share(max(known))}"
    return NONE


def _which_series(summary: Summary, method: str) -> str:
    of = _stretches(summary, method)[0].detail["stretch"]
    if not of["series"]:
        return f"{summary.info.target} "
    return f"{of['series']}, one of {of['n_series']:,} series, "


def _shift_words(stretches: Sequence[Stretch]) -> str:
    marked = {s.number: s.shift for s in stretches if s.shift}
    if not marked:
        return "Nowhere does the mean error of the forecasts double or halve from one window to the next."
    window = next(iter(marked.values()))["window"]
    return (
        f"Arrows mark where in a stretch the mean error of the forecasts over {window} steps differs most "
        "from that over the steps before (if by a factor of 2 or more): known in hindsight, and to no method."
    )


def _stretch_numbers(summary: Summary, choice: Choice, drawn: Sequence[str]) -> Numbers:
    header = ["stretch", "from", "to", "change of errors"]
    for name in drawn:
        header += [f"{name}: coverage", f"{name}: mean width"]
    rows = []
    by_method = {name: summary.ok(name) for name in drawn}
    for seed in summary.seeds:
        stretch = next((s for s in _stretches(summary, drawn[0]) if s.number == seed), None)
        if stretch is None:
            continue
        shift = stretch.shift
        row = [str(seed), *stretch.words]
        row.append(f"x {number(shift['factor'])} at {shift['time']}" if shift else NONE)
        for name in drawn:
            trial = by_method[name].get(seed)
            metrics = trial.metrics if trial else {}
            row += [share(metrics.get("coverage")), number(metrics.get("mean_width"))]
        rows.append(tuple(row))
    return Numbers(tuple(header), tuple(rows))


def reach(stretches: Sequence[Stretch], key: str) -> tuple[float, float, bool]:
    """The range of the y-axis, and whether it is logarithmic; far ends of intervals leave the frame."""
    middle = [
        v for s in stretches for name in ("y", "prediction") for v in s.detail[key][name] if v is not None
    ] or [0.0, 1.0]
    ends = [v for s in stretches for name in ("lower", "upper") for v in s.detail[key][name] if v is not None]
    if min(middle) > 0 and max(middle) / min(middle) > _LOG_FROM:
        reach = [v for v in ends if min(middle) / 2 <= v <= max(middle) * 2]
        low, high = padded([math.log10(v) for v in [*middle, *reach]], 0.04)
        return 10**low, 10**high, True
    span = max(middle) - min(middle) or 1.0
    reach = [v for v in ends if min(middle) - span / 2 <= v <= max(middle) + span / 2]
    low, high = padded([*middle, *reach], 0.04)
    return low, high, False


def band_chart(
    name: str,
    parts_of: Sequence[tuple[Column, Stretch]],
    *,
    kind: str,
    y_ends: tuple[float, float, bool],
    y_label: str,
    description: str,
    width: int,
    height: int,
    shifts: bool,
) -> Chart:
    """One method's intervals over steps; gaps where a stretch is missing."""
    top, bottom = 30.0, height - 26.0
    y = Scale(y_ends[0], y_ends[1], bottom, top, log=y_ends[2])
    labels = y.labels(4)
    left = max(46.0, 9 + max((text_width(label, charts.FONT) for _, label in labels), default=0.0))
    right = width - 6.0
    steps = [int(step) for column, _ in parts_of for step in column["step"]]
    x = Scale(min(steps), max(max(steps), min(steps) + 1), left, right)
    short = 30 if width == WIDE else 16
    parts = [words(0, 13, shorten(name, short), "strong")]
    parts.append(words(width, 13, shorten(y_label, short), "tick", "end"))
    for value, label in labels:
        parts += [
            line(left, y(value), right, y(value), "grid"),
            words(left - 7, y(value) + 4, label, "tick", "end"),
        ]
    parts += _time_axis(parts_of, x, bottom, width)
    for column, stretch in parts_of:
        parts += _band(column, x, y, kind)
        if shifts and stretch.shift:
            parts.append(_shift_mark(stretch.shift, x, top))
    return Chart(f"{name}: intervals over time", description, width, height, "".join(parts))


def _band(column: Column, x: Scale, y: Scale, kind: str) -> list[str]:
    """Band, forecast and truth of one stretch."""
    upper: list[str] = []
    lower: list[str] = []
    centre: list[str] = []
    hits: list[str] = []
    misses: list[str] = []
    for i, step in enumerate(column["step"]):
        at = x(step)
        low = -math.inf if column["lower"][i] is None else column["lower"][i]
        high = math.inf if column["upper"][i] is None else column["upper"][i]
        upper.append(f"{at:.1f} {y(_finite(high, y)):.1f}")
        lower.append(f"{at:.1f} {y(_finite(low, y)):.1f}")
        if column["prediction"][i] is not None:
            centre.append(f"{'L' if centre else 'M'}{at:.1f} {y(_finite(column['prediction'][i], y)):.1f}")
        truth = column["y"][i]
        if truth is None:
            continue
        height = y(_finite(truth, y))
        if low <= truth <= high:
            hits.append(f"M{at:.1f} {height:.1f}h.01")
        else:
            misses.append(f"M{at - 2.5:.1f} {height - 2.5:.1f}l5 5m0-5l-5 5")
    css = "best" if kind == "best" else "plain"
    parts = [f'<path d="M{"L".join([*upper, *reversed(lower)])}Z" class="ribbon-{css}"/>']
    for marks, name in ((centre, f"track-{css}"), (hits, "truth-in"), (misses, "miss")):
        if marks:
            parts.append(f'<path d="{"".join(marks)}" class="{name}"/>')
    return parts


def _finite(value: float, y: Scale) -> float:
    """The value within the axis: a logarithmic one takes nothing from 0 down."""
    return min(max(value, y.low), y.high)


def _time_axis(parts_of: Sequence[tuple[Column, Stretch]], x: Scale, bottom: float, width: int) -> list[str]:
    """Lines where stretches begin, and times where there is room for them."""
    parts = [line(x.start, bottom, x.end, bottom, "axis")]
    places = [(column["step"][0], column["time"][0]) for column, _ in parts_of]
    if len(parts_of) == 1:
        column = parts_of[0][0]
        places = [(column["step"][i], column["time"][i]) for i in range(0, len(column["step"]), 30)]
    free = -math.inf
    for step, time in places:
        at = x(step)
        if len(parts_of) > 1:
            parts.append(line(at, 26, at, bottom, "axis"))
        label = str(time) if len(parts_of) == 1 else str(time).split(" ")[0]
        if label and at >= free and at + text_width(label, charts.FONT) <= width:
            parts.append(words(at, bottom + 17, label, "tick", "start"))
            free = at + text_width(label, charts.FONT) + 10
    return parts


def _shift_mark(shift: Mapping[str, Any], x: Scale, top: float) -> str:
    """A small arrow above the step: up for errors that grow."""
    at, grows = x(shift["step"]), shift["factor"] > 1
    tip = f"errors x {number(shift['factor'])} from {shift['time']}"
    shape = "l4 7h-8Z" if grows else "l4-7h-8Z"
    start = top - 9 if grows else top - 2
    return f'<path d="M{at:.1f} {start:.1f}{shape}" class="shift"><title>{esc(tip)}</title></path>'


def _rolling_chart(
    name: str,
    stretches: Sequence[Stretch],
    *,
    target: float,
    low: float,
    ends: tuple[int, int],
    kind: str,
    description: str,
) -> Chart:
    left, right, top, bottom = 40.0, charts.PANEL_WIDTH - 4.0, 32.0, 138.0
    y = Scale(low, 1.0, bottom, top)
    x = Scale(ends[0], max(ends[1], ends[0] + 1), left, right)
    parts = [words(0, 13, shorten(name, 30), "strong")]
    for value, label in y.labels(3):
        parts += [
            line(left, y(value), right, y(value), "grid"),
            words(left - 7, y(value) + 4, label, "tick", "end"),
        ]
    parts += _time_axis([(s.detail["series"], s) for s in stretches], x, bottom, charts.PANEL_WIDTH)
    parts.append(line(left, y(target), right, y(target), "nominal"))
    css = {"best": "best", "low": "low"}.get(kind, "plain")
    for stretch in stretches:
        rolling = stretch.detail["rolling"]
        path = ""
        for step, value in zip(rolling["step"], rolling["coverage"], strict=True):
            if value is not None:
                path += f"{'L' if path else 'M'}{x(step):.1f} {y(value):.1f}"
        if path:
            parts.append(f'<path d="{path}" class="track-{css}"/>')
        if stretch.shift:
            parts.append(_shift_mark(stretch.shift, x, top - 2))
    return Chart(f"{name}: rolling coverage", description, charts.PANEL_WIDTH, 164, "".join(parts))
