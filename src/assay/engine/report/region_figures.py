"""Pictures of prediction regions: in the plane of two targets, and how their volumes are spread."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from assay.engine.choice import Choice
from assay.engine.report.charts import FONT, PANEL_WIDTH
from assay.engine.report.figures import Figure, Numbers, finished, kind_of, shape_of
from assay.engine.report.svg import Chart, Scale, line, marker, padded, rect, text_width, words
from assay.engine.report.text import esc
from assay.engine.stats import MethodSummary, Summary
from assay.engine.wording import number, plural, shorten

#: methods whose regions are drawn
MAX_DRAWN = 3
_QUANTILES = ("5 %", "25 %", "median", "75 %", "95 %")


def planes(summary: Summary, choice: Choice) -> Figure | None:
    """Regions of a few test rows over the data, one panel a method; for two targets."""
    drawn = _drawn(summary, choice)
    targets = summary.info.targets
    if not drawn or len(targets) != 2:
        return None
    panels, rows = [], []
    for found, seed, plane in drawn:
        regions = plane["regions"]
        inside = sum(bool(region["inside"]) for region in regions)
        panels.append(
            plane_chart(
                found.name,
                plane,
                targets,
                description=(
                    f"Seed {seed}: regions of {plural(len(regions), 'test row')} in the plane of "
                    f"{targets[0]} and {targets[1]}; {inside} of them hold the row's targets."
                ),
            )
        )
        rows += [
            (
                found.name,
                str(region["row"]),
                *map(number, region["y"]),
                "inside" if region["inside"] else "outside",
                "no end" if region["infinite"] else "",
            )
            for region in regions
        ]
    methods = len(finished(summary))
    some = f" Drawn: {len(drawn)} of {methods} methods." if len(drawn) < methods else ""
    caption = (
        "Regions of a few test rows of the first seed, the same rows for every method, chosen by a linear "
        "prediction and not by the outcome. A line leads from the middle of each region to the row's true "
        "targets: a dot inside, a cross outside (its region is orange). Light dots are test rows; what lies "
        f"beyond the frame is cut off. Rows count from 0 in the table as it was read.{some}"
    )
    header = ("method", "row", *targets, "", "region")
    return Figure(tuple(panels), caption, Numbers(header, tuple(rows)))


def _drawn(summary: Summary, choice: Choice) -> list[tuple[MethodSummary, int, Mapping[str, Any]]]:
    """Reference and recommended method first, then the smallest; with the plane of their first seed."""
    size = summary.task.size_metric
    order = sorted(
        finished(summary),
        key=lambda found: (
            found.name != summary.reference,
            found.name != choice.method,
            choice.verdict(found.name).low,
            found.estimates[size].mean,
        ),
    )
    out = []
    for found in order:
        for result in summary.ok(found.name).values():
            plane = result.detail.get("plane")
            if plane and any(region["outlines"] is not None for region in plane["regions"]):
                out.append((found, result.seed, plane))
                break
    return out[:MAX_DRAWN]


def plane_chart(name: str, plane: Mapping[str, Any], targets: Sequence[str], *, description: str) -> Chart:
    """A few regions in the plane of two targets; ``plane`` has frame, background and regions."""
    top, bottom, right = 26.0, 262.0, PANEL_WIDTH - 4.0
    (x_low, x_high), (y_low, y_high) = plane["frame"]
    y = Scale(y_low, y_high, bottom, top)
    labels = y.labels(4)
    left = max(36.0, 9 + max((text_width(label, FONT) for _, label in labels), default=0.0))
    x = Scale(x_low, x_high, left, right)
    parts = []
    for value, label in labels:
        parts += [
            line(left, y(value), right, y(value), "grid"),
            words(left - 7, y(value) + 4, label, "tick", "end"),
        ]
    for value, label in x.labels(4):
        parts += [
            line(x(value), top, x(value), bottom, "grid"),
            words(x(value), bottom + 16, label, "tick", "middle"),
        ]
    regions = plane["regions"]
    missed = sum(not region["inside"] for region in regions)
    # an inner svg cuts off what lies beyond the frame; its own coordinates stay those of the chart
    width, height = right - left, bottom - top
    box = f"{left:.1f} {top:.1f} {width:.1f} {height:.1f}"
    parts.append(
        f'<svg x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height:.1f}" viewBox="{box}" '
        f'aria-hidden="true">'
        f"{_dots(plane['background'], x, y)}{''.join(_region(region, x, y) for region in regions)}</svg>"
    )
    parts += [
        words(0, 13, shorten(name, 24), "strong"),
        words(PANEL_WIDTH, 13, f"{missed} of {len(regions)} outside", "tick", "end"),
        words(left, bottom + 34, f"↑ {shorten(targets[1], 14)}", "tick", "start"),
        words(right, bottom + 34, f"{shorten(targets[0], 14)} →", "tick", "end"),
    ]
    return Chart(f"{name}: example regions", description, PANEL_WIDTH, int(bottom + 40), "".join(parts))


def _dots(points: Sequence[Sequence[float]], x: Scale, y: Scale) -> str:
    path = "".join(f"M{_at(x, px):.1f} {_at(y, py):.1f}h.01" for px, py in points)
    return f'<path d="{path}" class="dots"/>' if path else ""


def _at(scale: Scale, value: float) -> float:
    """Pixel of a value, also beyond the axis, though not farther than is of use."""
    part = (value - scale.low) / (scale.high - scale.low)
    return scale.start + min(max(part, -20.0), 20.0) * (scale.end - scale.start)


def _region(region: Mapping[str, Any], x: Scale, y: Scale) -> str:
    """Outline, the true value, and a line between them."""
    outlines = [[(_at(x, px), _at(y, py)) for px, py in outline] for outline in region["outlines"] or ()]
    path = "".join(f"M{'L'.join(f'{px:.1f} {py:.1f}' for px, py in outline)}Z" for outline in outlines)
    inside = region["inside"]
    tip = f"row {region['row']}: {'inside' if inside else 'outside'}"
    parts = []
    if path:
        css = "region" if inside else "region-missed"
        parts.append(f'<path d="{path}" class="{css}" fill-rule="evenodd"><title>{esc(tip)}</title></path>')
    at = (_at(x, region["y"][0]), _at(y, region["y"][1]))
    if outlines and not region["infinite"]:
        # of several pieces the nearest one is meant
        middles = [np.mean(outline, axis=0) for outline in outlines]
        middle = min(middles, key=lambda m: math.hypot(m[0] - at[0], m[1] - at[1]))
        parts.append(line(float(middle[0]), float(middle[1]), *at, "tie"))
    mark = f"M{at[0]:.1f} {at[1]:.1f}h.01"
    cross = f"M{at[0] - 4:.1f} {at[1] - 4:.1f}l8 8m0-8l-8 8"
    parts.append(f'<path d="{mark if inside else cross}" class="{"held" if inside else "miss"}"/>')
    return "".join(parts)


def volumes(summary: Summary, choice: Choice) -> Figure | None:
    """How the volumes of each method are spread over the test rows."""
    found = {m.name: _quantiles(summary, m.name) for m in finished(summary)}
    spread = {name: quantiles for name, quantiles in found.items() if quantiles}
    if not spread:
        return None
    spoken = "; ".join(f"{name}: median {number(q[2])}, from {number(q[0])} to {number(q[4])}"
                       for name, q in spread.items())  # fmt: skip
    chart = _spread(summary, choice, spread, description=f"5 % and 95 % quantiles of the volume. {spoken}.")
    caption = (
        "Volumes over the test rows: the middle half (bar), 5 % to 95 % (line) and the median, each the "
        "middle value over seeds, on a logarithmic axis. Regions that adapt have a wide spread; those of one "
        "size have none."
    )
    rows = tuple((name, *map(number, quantiles)) for name, quantiles in spread.items())
    return Figure((chart,), caption, Numbers(("method", *_QUANTILES), rows))


def _quantiles(summary: Summary, method: str) -> list[float]:
    """The quantiles of the volume, of each the median over seeds; infinite where it is for half of them."""
    every = [
        [math.inf if value is None else float(value) for value in result.detail["volumes"]]
        for result in summary.ok(method).values()
        if result.detail.get("volumes")
    ]
    return [float(value) for value in np.quantile(every, 0.5, axis=0, method="higher")] if every else []


def _spread(
    summary: Summary, choice: Choice, spread: Mapping[str, Sequence[float]], *, description: str
) -> Chart:
    row_height, top = 24, 26
    names = {name: shorten(name, 16) for name in spread}
    left = min(116.0, max(text_width(text, FONT) for text in names.values()) + 8)
    right = PANEL_WIDTH - 12.0
    known = [v for quantiles in spread.values() for v in quantiles if 0 < v < math.inf] or [1.0]
    low, high = padded([math.log10(v) for v in known], 0.05, 0.4)
    x = Scale(10**low, 10**high, left + 6, right, log=True)
    base = top + row_height * len(spread)
    parts = [words(0, 12, "volume", "strong")]
    for value, label in x.labels(3):
        parts += [
            line(x(value), top, x(value), base, "grid"),
            words(x(value), base + 15, label, "tick", "middle"),
        ]
    for i, (name, quantiles) in enumerate(spread.items()):
        y = top + row_height * (i + 0.5)
        kind = kind_of(choice, name)
        css = {"best": "t-best", "low": "t-low"}.get(kind, "name")
        parts.append(
            f'<text x="0" y="{y + 4:.1f}" class="{css}">{esc(names[name])}<title>{esc(name)}</title></text>'
        )
        half = f"middle half {number(quantiles[1])} to {number(quantiles[3])}"
        tip = f"{name}: median {number(quantiles[2])}, {half}"
        places = [x(max(v, x.low)) for v in quantiles]
        parts.append(line(places[0], y, places[4], y, f"e-{kind}"))
        parts.append(rect(places[1], y - 4, max(places[3] - places[1], 1.0), 8, f"h-{kind}"))
        shape = "triangle" if math.isinf(quantiles[2]) else shape_of(summary, choice, name)
        parts.append(marker(places[2], y, shape, f"m-{kind}", tip, 4.5))
        if math.isinf(quantiles[4]) and not math.isinf(quantiles[2]):
            parts.append(words(right + 2, y + 4, "∞", "tick", "start"))
    return Chart("Spread of the volumes", description, PANEL_WIDTH, int(base + 22), "".join(parts))
