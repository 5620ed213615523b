"""The kinds of chart in the report; each takes plain numbers and gives a Chart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.engine.report.svg import (
    Box,
    Chart,
    Scale,
    distance,
    line,
    marker,
    padded,
    place_labels,
    rect,
    text_width,
    words,
)
from assay.engine.report.text import esc
from assay.engine.wording import number, share, shorten

PANEL_WIDTH = 300
FONT = 12


@dataclass(frozen=True)
class Point:
    """A method in the plane of size and coverage; ``kind`` is "best", "low" or "plain".

    ``row`` is its row in the table, which names it where there is no room for its name.
    """

    name: str
    x: float
    y: float
    x_ends: tuple[float, float] | None = None
    y_ends: tuple[float, float] | None = None
    seeds: tuple[tuple[float, float], ...] = ()
    kind: str = "plain"
    shape: str = "circle"
    row: int = 0


@dataclass(frozen=True)
class Row:
    """A method in a chart of one number a row."""

    name: str
    value: float
    ends: tuple[float, float] | None = None
    text: str = ""
    kind: str = "plain"
    shape: str = "circle"


@dataclass(frozen=True)
class Profile:
    """Coverage of one method by group: label, mean, lowest and highest over seeds, rows."""

    name: str
    groups: tuple[tuple[str, float, float, float, float], ...]
    kind: str = "plain"


def _finite(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None and math.isfinite(value)]


def scatter(
    points: Sequence[Point],
    *,
    target: float | None,
    band: tuple[float, float] | None,
    x_label: str,
    y_label: str,
    title: str,
    description: str,
    width: int = 820,
    height: int = 460,
) -> Chart:
    """Coverage (up) against size (right) with error bars, the nominal line and the expected band.

    Without a ``target`` the upward axis is a score of any size.
    """
    shown = [p for p in points if math.isfinite(p.y) and not math.isnan(p.x)]
    finite = [p for p in shown if math.isfinite(p.x)]
    far = [p for p in shown if math.isinf(p.x)]
    left, right, top, bottom = 52, width - 14, 14, height - 48
    edge = right - (54 if far else 0)
    x = _size_scale(finite, left + 10, edge - 10)
    y = _score_scale(shown, bottom - 8, top + 8)
    if target is not None:
        y = _coverage_scale(shown, target, band, bottom - 8, top + 8)
    parts = []
    if band:
        parts.append(rect(left, y(band[1]), right - left, y(band[0]) - y(band[1]), "band"))
    parts += _levels(y, left, right, 6)
    if finite:
        for at, label in spaced(x, 7 if width > 500 else 4):
            parts.append(line(at, bottom, at, bottom + 5, "axis"))
            parts.append(words(at, bottom + 19, label, "tick", "middle"))
    if far:
        parts += [
            line(edge, top, edge, bottom, "axis"),
            words((edge + right) / 2, bottom + 19, "∞", "tick", "middle"),
        ]
    parts.append(line(left, bottom, right, bottom, "axis"))
    if target is not None:
        parts.append(line(left, y(target), right, y(target), "nominal"))
    parts.append(words(right, bottom + 39, f"{x_label} →", "tick", "end"))
    parts.append(words(left, bottom + 39, f"↑ {y_label}", "tick", "start"))
    spots = [(x(p.x) if math.isfinite(p.x) else (edge + right) / 2, y(p.y), p) for p in shown]
    for px, py, p in spots:
        for sx, sy in p.seeds:
            if math.isfinite(sy) and math.isfinite(sx) and x.inside(sx) and y.inside(sy):
                parts.append(f'<circle cx="{x(sx):.1f}" cy="{y(sy):.1f}" r="2.2" class="s-{p.kind}"/>')
        parts += _error_bars(p, px, py, x, y)
    for px, py, p in spots:
        y_text = number(p.y) if target is None else share(p.y)
        tip = f"{p.name}: {x_label} {number(p.x)}, {y_label} {y_text}"
        shape = "triangle" if math.isinf(p.x) else p.shape
        parts.append(marker(px, py, shape, f"m-{p.kind}", tip, 6 if p.kind == "best" else 5))
    nominal = [] if target is None else [(left, y(target) - 1, right, y(target) + 1)]
    frame = (left + 2, top + 2, right - 2, bottom - 2)
    labels, note = _labels(spots, frame, [*nominal, *_bar_boxes(spots, x, y)])
    return Chart(title, description, width, height, "".join([*parts, *labels]), note)


def _size_scale(points: Sequence[Point], start: float, end: float) -> Scale:
    """Linear, logarithmic where sizes differ by more than four times."""
    values = _finite([v for p in points for v in (p.x, *(s[0] for s in p.seeds))]) or [0.0, 1.0]
    core = _finite([p.x for p in points]) or values
    span = max(core) - min(core) or abs(core[0]) * 0.2 or 1.0
    ends = [v for p in points if p.x_ends for v in p.x_ends]
    # one method's huge interval must not squeeze all others: bars may leave the frame
    values += [min(max(v, min(values) - span), max(values) + span) for v in ends]
    if min(core) > 0 and max(core) / min(core) > 4:
        positive = [v for v in values if v >= min(core) / 3]
        low, high = padded([math.log10(v) for v in positive], 0.06, 0.1)
        return Scale(10**low, 10**high, start, end, log=True)
    low, high = padded(values, 0.05, 0.02 * abs(max(core)))
    return Scale(0.0 if low < 0 <= min(values) else low, high, start, end)


def _coverage_scale(
    points: Sequence[Point], target: float, band: tuple[float, float] | None, start: float, end: float
) -> Scale:
    values = [target, *(band or ()), *(p.y for p in points)]
    values += _finite([s[1] for p in points for s in p.seeds])
    span = max(values) - min(values)
    ends = [v for p in points if p.y_ends for v in p.y_ends]
    values += [min(max(v, min(values) - span / 2, 0.0), max(values) + span / 2, 1.0) for v in ends]
    low, high = padded(values, 0.06, 0.03)
    return Scale(max(low, -0.01), min(high, 1.01), start, end)


def _score_scale(points: Sequence[Point], start: float, end: float) -> Scale:
    """The range of the means and seeds; bars may leave the frame."""
    values = _finite([v for p in points for v in (p.y, *(s[1] for s in p.seeds))]) or [0.0, 1.0]
    span = max(values) - min(values) or abs(values[0]) * 0.2 or 1.0
    ends = [v for p in points if p.y_ends for v in p.y_ends]
    values += [min(max(v, min(values) - span / 2), max(values) + span / 2) for v in ends]
    low, high = padded(values, 0.06, 1e-3)
    return Scale(low, high, start, end)


def _error_bars(p: Point, px: float, py: float, x: Scale, y: Scale) -> list[str]:
    """Both intervals; an end outside the axes stops at the frame, without a cap."""
    parts = []
    if p.y_ends:
        parts.append(line(px, y(p.y_ends[0]), px, y(p.y_ends[1]), f"e-{p.kind}"))
        parts += [line(px - 4, y(v), px + 4, y(v), f"e-{p.kind}") for v in p.y_ends if y.inside(v)]
    if p.x_ends and math.isfinite(p.x):
        parts.append(line(x(p.x_ends[0]), py, x(p.x_ends[1]), py, f"e-{p.kind}"))
        parts += [line(x(v), py - 4, x(v), py + 4, f"e-{p.kind}") for v in p.x_ends if x.inside(v)]
    return parts


def _bar_boxes(spots: Sequence[tuple[float, float, Point]], x: Scale, y: Scale) -> list[Box]:
    boxes = []
    for px, py, p in spots:
        if p.y_ends:
            boxes.append((px - 2, y(p.y_ends[1]), px + 2, y(p.y_ends[0])))
        if p.x_ends and math.isfinite(p.x):
            boxes.append((x(p.x_ends[0]), py - 2, x(p.x_ends[1]), py + 2))
    return boxes


def _labels(
    spots: Sequence[tuple[float, float, Point]], frame: Box, avoid: Sequence[Box]
) -> tuple[list[str], str]:
    """Names beside their points; numbers, and a note that says so, where the names do not all fit."""
    # the recommended method chooses its place first
    order = sorted(spots, key=lambda spot: spot[2].kind != "best")
    note = ""
    texts = [shorten(p.name, 16 if frame[2] < 500 else 26) for _, _, p in order]
    named = [(x, y, text) for (x, y, _), text in zip(order, texts, strict=True)]
    boxes = place_labels(named, frame, FONT, avoid)
    if any(box is None for box in boxes):
        note = "The numbers are the rows of the table above."
        texts = [str(p.row) for _, _, p in order]
        named = [(x, y, text) for (x, y, _), text in zip(order, texts, strict=True)]
        boxes = place_labels(named, frame, FONT, avoid)
    parts = []
    for (px, py, p), label, box in zip(order, texts, boxes, strict=True):
        if box is None:
            continue
        if distance(box, px, py) > 10:
            near = (min(max(px, box[0]), box[2]), min(max(py, box[1]), box[3]))
            parts.append(line(px, py, *near, "lead"))
        css = {"best": "label halo t-best", "low": "label halo t-low"}.get(p.kind, "label halo name")
        parts.append(words((box[0] + box[2]) / 2, box[3] - FONT * 0.36, label, css, "middle"))
    return parts, note


def spaced(x: Scale, wanted: int) -> list[tuple[float, str]]:
    """Pixels and texts of the ticks of a horizontal axis, without those that would touch the one before."""
    out: list[tuple[float, str]] = []
    free = -math.inf
    for value, label in x.labels(wanted):
        half = text_width(label, FONT) / 2
        if x(value) - half >= free:
            out.append((x(value), label))
            free = x(value) + half + 6
    return out


def _levels(y: Scale, left: float, right: float, wanted: int) -> list[str]:
    """Horizontal grid lines with their numbers at the left."""
    parts = []
    for value, label in y.labels(wanted):
        parts.append(line(left, y(value), right, y(value), "grid"))
        parts.append(words(left - 7, y(value) + 4, label, "tick", "end"))
    return parts


def dot_rows(
    rows: Sequence[Row],
    *,
    title: str,
    description: str,
    zero: float | None = None,
    band: tuple[float, float] | None = None,
    log: bool = False,
    hint: str = "",
) -> Chart:
    """One method a row: its number, the interval, the number in words; ``zero`` is a vertical line."""
    row_height, top = 24, 26
    height = top + row_height * len(rows) + 20
    names = [shorten(row.name, 14) for row in rows]
    left = min(100.0, max(text_width(name, FONT) for name in names) + 6)
    right = PANEL_WIDTH - max(30.0, max(text_width(row.text, FONT) for row in rows) + 8)
    known = [row for row in rows if math.isfinite(row.value)]
    values = [row.value for row in known]
    anchors = [v for v in (zero, *(band or ())) if v is not None]
    log = log and bool(values) and min(values) > 0
    x = _row_scale(known, anchors, left + 8, right - 8, log)
    base = top + row_height * len(rows)
    parts = [words(0, 12, title, "strong")]
    if band:
        parts.append(rect(x(band[0]), top, x(band[1]) - x(band[0]), base - top, "band"))
    for at, label in spaced(x, 3):
        parts.append(line(at, top, at, base, "grid"))
        parts.append(words(at, base + 15, label, "tick", "middle"))
    if zero is not None:
        parts.append(line(x(zero), top, x(zero), base, "nominal"))
    parts.append(words(PANEL_WIDTH, 12, hint, "tick", "end"))
    for i, (row, name) in enumerate(zip(rows, names, strict=True)):
        y = top + row_height * (i + 0.5)
        css = {"best": "t-best", "low": "t-low"}.get(row.kind, "name")
        tip = f"<title>{esc(row.name)}</title>"
        parts.append(f'<text x="0" y="{y + 4:.1f}" class="{css}">{esc(name)}{tip}</text>')
        parts.append(words(PANEL_WIDTH, y + 4, row.text, "tick", "end"))
        if not math.isnan(row.value) and not x.inside(row.value):
            side = (right - 8, "triangle") if row.value > x.high else (left + 8, "triangle-left")
            parts.append(marker(side[0], y, side[1], f"m-{row.kind}", f"{row.name}: {row.text}"))
        elif not math.isnan(row.value):
            if row.ends:
                parts.append(line(x(row.ends[0]), y, x(row.ends[1]), y, f"e-{row.kind}"))
            parts.append(marker(x(row.value), y, row.shape, f"m-{row.kind}", f"{row.name}: {row.text}", 4.5))
    return Chart(title, description, PANEL_WIDTH, height, "".join(parts))


def _row_scale(rows: Sequence[Row], anchors: Sequence[float], start: float, end: float, log: bool) -> Scale:
    values = [row.value for row in rows]
    if len(values) > 3 and not log:
        # one value far from all others is shown off the scale, so that the others can be told apart
        centre = anchors[0] if anchors else float(np.median(values))
        limit = 5 * float(np.median([abs(value - centre) for value in values]))
        values = [value for value in values if abs(value - centre) <= limit] or values
    values = [*values, *anchors] or [0.0, 1.0]
    if log:
        ends = [v for row in rows if row.ends for v in row.ends if v > min(values) / 3]
        low, high = padded([math.log10(v) for v in [*values, *ends]], 0.06, 0.3)
        return Scale(10**low, 10**high, start, end, log=True)
    span = max(values) - min(values) or abs(values[0]) or 1.0
    ends = [min(max(v, min(values) - span), max(values) + span) for row in rows for v in row.ends or ()]
    low, high = padded([*values, *ends], 0.06)
    return Scale(low, high, start, end)


def profile(of: Profile, *, target: float, low: float, description: str) -> Chart:
    """Coverage of one method over a few groups, with the range over seeds; the y-axis starts at ``low``."""
    left, right, top, bottom = 40.0, PANEL_WIDTH - 4.0, 28.0, 138.0
    y = Scale(low, 1.0, bottom, top)
    parts = [words(0, 13, shorten(of.name, 30), "strong"), *_levels(y, left, right, 3)]
    parts.append(line(left, y(target), right, y(target), "nominal"))
    step = (right - left) / max(1, len(of.groups))
    spots = []
    for i, (label, value, lowest, highest, rows) in enumerate(of.groups):
        x = left + step * (i + 0.5)
        kind = "low" if highest < target else of.kind
        if highest > lowest:
            parts.append(line(x, y(lowest), x, y(highest), f"e-{kind}"))
        spots.append((x, y(value), kind, f"{label}: coverage {share(value)}, {number(rows, 0)} rows"))
    path = " ".join(f"{'L' if i else 'M'}{x:.1f} {py:.1f}" for i, (x, py, _, _) in enumerate(spots))
    parts.append(f'<path d="{path}" class="path"/>')
    parts += [marker(x, py, "circle", f"m-{kind}", tip, 4.5) for x, py, kind, tip in spots]
    labels, deep = _labels_below(
        [(x, g[0]) for (x, *_), g in zip(spots, of.groups, strict=True)], bottom, step
    )
    title = f"{of.name}: coverage by group"
    return Chart(title, description, PANEL_WIDTH, int(bottom + deep), "".join([*parts, *labels]))


def _labels_below(at: Sequence[tuple[float, str]], y: float, step: float) -> tuple[list[str], float]:
    """Labels under an axis, slanted if they would touch; and how deep they reach."""
    longest = max((text_width(label, FONT) for _, label in at), default=0.0)
    if longest <= step - 3:
        return [words(x, y + 17, label, "tick", "middle") for x, label in at], 24.0
    short = [(x, label, shorten(label, 13)) for x, label in at]
    parts = [
        f'<text x="{x + 4:.1f}" y="{y + 14:.1f}" class="tick" text-anchor="end" '
        f'transform="rotate(-40 {x + 4:.1f} {y + 14:.1f})">{esc(text)}<title>{esc(label)}</title></text>'
        for x, label, text in short
    ]
    return parts, 20.0 + 0.66 * max(text_width(text, FONT) for _, _, text in short)


def strip(name: str, rows: Sequence[Mapping[str, Any]], *, description: str, y_label: str) -> Chart:
    """Example intervals over test rows sorted by prediction: bars, the prediction, targets in and out.

    Each row has y, prediction, lower, upper; None is an infinite end. One whose set is several intervals
    has these in ``pieces``, its lower and upper end are the outermost.
    """
    height, right, top, bottom = 210, PANEL_WIDTH - 4, 30, 190
    numbers = _finite([row["y"] for row in rows] + [row["prediction"] for row in rows])
    ends = _finite([row["lower"] for row in rows] + [row["upper"] for row in rows])
    middle = numbers or ends or [0.0, 1.0]
    span = max(middle) - min(middle) or 1.0
    reach = [v for v in ends if min(middle) - span <= v <= max(middle) + span]
    low, high = padded([*middle, *reach], 0.04)
    y = Scale(low, high, bottom, top)
    labels = y.labels(4)
    left = max(46.0, 9 + max((text_width(label, FONT) for _, label in labels), default=0))
    parts = [words(0, 13, shorten(name, 22), "strong")]
    for value, label in labels:
        parts += [
            line(left, y(value), right, y(value), "grid"),
            words(left - 7, y(value) + 4, label, "tick", "end"),
        ]
    parts.append(words(PANEL_WIDTH, height - 4, f"rows sorted by prediction; {y_label}", "tick", "end"))
    step = (right - left) / max(1, len(rows))
    bars: list[str] = []
    centre: list[str] = []
    hits: list[str] = []
    misses: list[str] = []
    for i, row in enumerate(rows):
        x = left + step * (i + 0.5)
        lower = -math.inf if row["lower"] is None else row["lower"]
        upper = math.inf if row["upper"] is None else row["upper"]
        pieces = row.get("pieces", [(lower, upper)])
        bars += [f"M{x:.1f} {y(low):.1f}V{y(high):.1f}" for low, high in pieces if low <= high]
        if row["prediction"] is not None:
            centre.append(f"{'L' if centre else 'M'}{x:.1f} {y(row['prediction']):.1f}")
        if row["y"] is None:
            continue
        at = y(row["y"])
        if any(low <= row["y"] <= high for low, high in pieces):
            hits.append(f"M{x:.1f} {at:.1f}h.01")
        else:
            misses.append(f"M{x - 3:.1f} {at - 3:.1f}l6 6m0-6l-6 6")
    for marks, css in ((bars, "bars"), (centre, "centre"), (hits, "hit"), (misses, "miss")):
        if marks:
            parts.append(f'<path d="{"".join(marks)}" class="{css}"/>')
    outside = f"{len(misses)} of {len(rows)} outside"
    parts.append(words(PANEL_WIDTH, 13, outside, "tick", "end"))
    return Chart(f"{name}: example intervals", description, PANEL_WIDTH, height, "".join(parts))


def set_matrix(
    name: str, examples: Sequence[Mapping[str, Any]], classes: Sequence[str], *, description: str
) -> Chart:
    """Example label sets: a row of cells an example, filled where the label is in the set, truth outlined."""
    left, top = 8 + max(text_width(str(e["row"]), FONT) for e in [{"row": "row"}, *examples]), 30.0
    column = min(26.0, (PANEL_WIDTH - left) / len(classes))
    tall = max(text_width(shorten(label, 10), FONT) for label in classes)
    slanted = tall > column - 2
    if slanted:
        column = min(26.0, (PANEL_WIDTH - left - 0.5 * tall) / len(classes))
    top += tall * 0.72 + 2 if slanted else 18
    step = 13
    parts = [words(0, 13, shorten(name, 22), "strong")]
    for j, label in enumerate(classes):
        x = left + column * (j + 0.5)
        tip = f"<title>{esc(label)}</title>"
        turn = f' transform="rotate(-50 {x:.1f} {top - 5:.1f})"' if slanted else ""
        anchor = "start" if slanted else "middle"
        parts.append(
            f'<text x="{x:.1f}" y="{top - 5:.1f}" class="tick" text-anchor="{anchor}"{turn}>'
            f"{esc(shorten(label, 10))}{tip}</text>"
        )
    parts.append(words(left - 7, top - 5, "row", "tick", "end"))
    missed = 0
    for i, example in enumerate(examples):
        y = top + step * i
        inside = {str(label) for label in example["set"]}
        truth = str(example["y"])
        missed += truth not in inside
        parts.append(words(left - 7, y + 10, str(example["row"]), "tick", "end"))
        for j, label in enumerate(classes):
            css = "cell" if label in inside else "cell-empty"
            parts.append(rect(left + column * j + 1, y + 1, column - 2, step - 2, css))
            if label == truth:
                outline = "truth" if label in inside else "truth-missed"
                parts.append(rect(left + column * j + 2, y + 2, column - 4, step - 4, outline))
    height = int(top + step * len(examples) + 6)
    parts.append(words(PANEL_WIDTH, 13, f"{missed} of {len(examples)} missed", "tick", "end"))
    return Chart(f"{name}: example label sets", description, PANEL_WIDTH, height, "".join(parts))


def histogram(name: str, counts: Sequence[tuple[int, float]], *, description: str, kind: str) -> Chart:
    """Share of test rows by the size of their set."""
    height, left, right, top, bottom = 140, 40, PANEL_WIDTH - 4, 30, 112
    total = sum(count for _, count in counts) or 1
    shares = [(size, count / total) for size, count in counts]
    y = Scale(0.0, max((value for _, value in shares), default=1.0) or 1.0, bottom, top)
    parts = [
        words(0, 13, shorten(name, 22), "strong"),
        words(PANEL_WIDTH, 13, "share by size of set", "tick", "end"),
    ]
    for value, label in y.labels(2):
        parts += [
            line(left, y(value), right, y(value), "grid"),
            words(left - 7, y(value) + 4, label, "tick", "end"),
        ]
    step = (right - left) / max(1, len(shares))
    stride = max(1, math.ceil(22 / step)) if shares else 1
    for i, (size, value) in enumerate(shares):
        x = left + step * i
        gap = min(3.0, step * 0.15)
        parts.append(rect(x + gap, y(value), step - 2 * gap, bottom - y(value), f"f-{kind}"))
        if i % stride == 0:
            parts.append(words(x + step / 2, bottom + 16, str(size), "tick", "middle"))
    return Chart(f"{name}: sizes of sets", description, PANEL_WIDTH, height, "".join(parts))
