"""Pictures of label sets under attack: how large certified sets are as the radius grows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from assay.engine.choice import Choice
from assay.engine.report.charts import PANEL_WIDTH, spaced
from assay.engine.report.figures import Figure, Numbers, finished, kind_of
from assay.engine.report.svg import Chart, Scale, line, marker, words
from assay.engine.stats import Summary
from assay.engine.wording import number, shorten

_HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 190, 40.0, PANEL_WIDTH - 8.0, 30.0, 148.0
#: columns of the table
_LISTED = 9


def certified_sizes(summary: Summary, choice: Choice) -> Figure | None:
    """Mean size of the sets against the radius they are certified for, one panel a method."""
    curves = {}
    for found in finished(summary):
        seen = [r.detail["size_by_radius"] for r in summary.ok(found.name).values() if _has_curve(r.detail)]
        if seen:
            radii = [radius for radius, _ in seen[0]]
            sizes = np.mean([[size for _, size in one] for one in seen], axis=0)
            curves[found.name] = (radii, sizes.tolist())
    if not curves:
        return None
    top = max(max(sizes) for _, sizes in curves.values())
    asked = float(next(r.detail["radius"] for m in curves for r in summary.ok(m).values()))
    panels, rows = [], []
    radii = next(iter(curves.values()))[0]
    stride = max(1, (len(radii) - 1) // (_LISTED - 1))
    for name, (at, sizes) in curves.items():
        panels.append(radius_chart(name, at, sizes, top=top, asked=asked, kind=kind_of(choice, name)))
        rows.append((name, *(number(size) for size in sizes[::stride])))
    caption = (
        "Mean number of labels in the sets of rows that nobody moved, against the radius the sets are "
        "certified for; mean over seeds. Dashed: the radius asked for. Methods without a certificate at that "
        "radius are not drawn."
    )
    header = ("method: labels at radius", *(number(radius) for radius in radii[::stride]))
    return Figure(tuple(panels), caption, Numbers(header, tuple(rows)))


def _has_curve(detail: object) -> bool:
    return isinstance(detail, dict) and bool(detail.get("size_by_radius"))


def radius_chart(
    name: str, radii: Sequence[float], sizes: Sequence[float], *, top: float, asked: float, kind: str
) -> Chart:
    """Mean size of the sets against the radius they are certified for."""
    x, y = Scale(0.0, max(radii), _LEFT, _RIGHT), Scale(0.0, top or 1.0, _BOTTOM, _TOP)
    css = {"best": "t-best", "low": "t-low"}.get(kind, "strong")
    parts = [
        words(0, 13, shorten(name, 24), f"strong {css}"),
        words(PANEL_WIDTH, 13, "labels", "tick", "end"),
    ]
    for value, label in y.labels(5):
        parts += [
            line(_LEFT, y(value), _RIGHT, y(value), "grid"),
            words(_LEFT - 7, y(value) + 4, label, "tick", "end"),
        ]
    parts += [words(at, _BOTTOM + 16, label, "tick", "middle") for at, label in spaced(x, 4)]
    parts.append(words((_LEFT + _RIGHT) / 2, _BOTTOM + 34, "certified radius", "tick", "middle"))
    parts.append(line(x(asked), _TOP, x(asked), _BOTTOM, "nominal"))
    points = [f"{x(radius):.1f} {y(size):.1f}" for radius, size in zip(radii, sizes, strict=True)]
    parts.append(f'<path d="M{"L".join(points)}" class="track-{kind}"/>')
    parts += [
        marker(x(r), y(s), "circle", f"m-{kind}", f"radius {number(r)}: {number(s)} labels", size=2.5)
        for r, s in zip(radii, sizes, strict=True)
    ]
    spoken = "; ".join(f"{number(r)}: {number(s)}" for r, s in zip(radii, sizes, strict=True))
    description = f"Mean size by certified radius. {spoken}."
    return Chart(f"{name}: size by certified radius", description, PANEL_WIDTH, _HEIGHT, "".join(parts))
