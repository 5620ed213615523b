"""Pictures of label sets under poisoning: what is certified, and what attacks left as it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from assay.engine.choice import Choice
from assay.engine.report.charts import PANEL_WIDTH
from assay.engine.report.figures import Figure, Numbers, finished, kind_of
from assay.engine.report.svg import Chart, Scale, line, marker, words
from assay.engine.stats import Summary
from assay.engine.wording import number, share, shorten

_SIDES = {"train": "training", "calib": "calibration"}
_HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 190, 40.0, PANEL_WIDTH - 8.0, 30.0, 148.0


def certified_shares(summary: Summary, choice: Choice, side: str) -> Figure | None:
    """Share of sets that provably stay, by poisoned rows, and of those that attacks left alone."""
    curves = _curves(summary, side)
    if not curves:
        return None
    word = _SIDES[side]
    panels, rows = [], []
    for name, curve in curves.items():
        points = list(zip(curve["attacked"], curve["unchanged"], strict=True))
        spoken = "; ".join(
            f"{r} rows: {share(value)} certified"
            for r, value in zip(curve["radius"], curve["robust"], strict=True)
        )
        panels.append(
            steps_chart(
                name,
                curve["radius"],
                curve["robust"],
                points,
                top=1.0,
                kind=kind_of(choice, name),
                x_label=f"poisoned {word} rows",
                y_label="share of sets",
                description=spoken,
            )
        )
        rows += [
            (
                name,
                str(r),
                share(robust),
                share(kept),
                share(out),
                share(dict(points)[r]) if r in dict(points) else "",
            )
            for r, robust, kept, out in zip(
                curve["radius"], curve["robust"], curve["coverage"], curve["size"], strict=True
            )
        ]
    caption = (
        f"Steps: share of sets that provably stay the same whatever is done to so many {word} rows. Dots: "
        "share that all attacks with so many rows left the same; the truth for the worst attack lies "
        "between. Mean over seeds."
    )
    header = ("method", f"{word} rows", "none in or out", "none out", "none in", "unchanged by attacks")
    return Figure(tuple(panels), caption, Numbers(header, tuple(rows)))


def certified_sizes(summary: Summary, choice: Choice, side: str) -> Figure | None:
    """Mean of the most labels that a set can have, by poisoned rows."""
    curves = _curves(summary, side)
    if not curves:
        return None
    word = _SIDES[side]
    most = max(max(curve["largest"]) for curve in curves.values())
    panels, rows = [], []
    for name, curve in curves.items():
        values = [f"{r}: {number(v)}" for r, v in zip(curve["radius"], curve["largest"], strict=True)]
        panels.append(
            steps_chart(
                name,
                curve["radius"],
                curve["largest"],
                [],
                top=most,
                kind=kind_of(choice, name),
                x_label=f"poisoned {word} rows",
                y_label="labels",
                description="; ".join(values),
            )
        )
        rows.append((name, ", ".join(values)))
    caption = (
        f"The most labels that a set can have when so many {word} rows are poisoned, mean over the test rows "
        "and seeds. At 0 it is the mean size; where nothing is certified, a set can have every label."
    )
    return Figure(tuple(panels), caption, Numbers(("method", f"{word} rows: labels"), tuple(rows)))


def _curves(summary: Summary, side: str) -> dict[str, dict[str, list[float]]]:
    """Method -> curves, mean over seeds; a seed whose curve ends goes on at its end."""
    out = {}
    for found in finished(summary):
        seen = [r.detail["curves"][side] for r in summary.ok(found.name).values() if r.detail.get("curves")]
        if seen:
            out[found.name] = _mean(seen)
    # all panels end where nothing is certified for any method, or after the last attack
    last = max(
        (r for c in out.values() for r, v in zip(c["radius"], c["robust"], strict=True) if v >= 0.005),
        default=0,
    )
    last = max([last + 1, *(r for c in out.values() for r in c["attacked"])])
    return {name: _to(curve, int(last)) for name, curve in out.items()}


def _to(curve: dict[str, list[float]], last: int) -> dict[str, list[float]]:
    """The curve for 0 .. last rows; one that ends before goes on at its end."""
    ends = {
        key: [*values, *[values[-1]] * (last + 1 - len(values))][: last + 1]
        for key, values in curve.items()
        if key not in ("attacked", "unchanged")
    }
    return {**curve, **ends, "radius": list(range(last + 1))}


def _mean(curves: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    longest = max(curves, key=lambda curve: len(curve["radius"]))
    length = len(longest["radius"])
    mean: dict[str, list[float]] = {"radius": longest["radius"], "attacked": longest["attacked"]}
    for key in ("robust", "coverage", "size", "largest"):
        padded = [list(c[key]) + [c[key][-1]] * (length - len(c[key])) for c in curves]
        mean[key] = np.mean(padded, axis=0).tolist()
    mean["unchanged"] = np.mean([c["unchanged"] for c in curves], axis=0).tolist()
    return mean


def steps_chart(
    name: str,
    radii: Sequence[float],
    values: Sequence[float],
    points: Sequence[tuple[float, float]],
    *,
    top: float,
    kind: str,
    x_label: str,
    y_label: str,
    description: str,
) -> Chart:
    """A step for each number of poisoned rows, and points of attacks."""
    last = max(*radii, 1)
    x, y = Scale(0.0, last + 1.0, _LEFT, _RIGHT), Scale(0.0, top or 1.0, _BOTTOM, _TOP)
    parts = [words(0, 13, shorten(name, 24), "strong"), words(PANEL_WIDTH, 13, y_label, "tick", "end")]
    for value, label in y.labels(5):
        parts += [
            line(_LEFT, y(value), _RIGHT, y(value), "grid"),
            words(_LEFT - 7, y(value) + 4, label, "tick", "end"),
        ]
    stride = max(1, round(last / 8))
    for r in range(0, int(last) + 1, stride):
        parts.append(words(x(r + 0.5), _BOTTOM + 16, str(r), "tick", "middle"))
    parts.append(words((_LEFT + _RIGHT) / 2, _BOTTOM + 34, x_label, "tick", "middle"))
    # a step for each whole number of rows
    steps = [f"{x(r):.1f} {y(v):.1f}L{x(r + 1):.1f} {y(v):.1f}" for r, v in zip(radii, values, strict=True)]
    parts.append(f'<path d="M{"L".join(steps)}" class="track-{"best" if kind == "best" else "plain"}"/>')
    for at, value in points:
        tip = f"{number(at)} rows, all attacks: {share(value)} unchanged"
        parts.append(marker(x(at + 0.5), y(value), "circle", f"m-{kind}", tip, size=3.5))
    return Chart(f"{name}: {y_label} by {x_label}", description, PANEL_WIDTH, _HEIGHT, "".join(parts))
