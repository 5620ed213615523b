"""Coverage and set size by group of rows, side by side: neither is shown without the other."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assay.engine.choice import Choice
from assay.engine.report.charts import FONT, PANEL_WIDTH, spaced
from assay.engine.report.figures import MAX_GROUPS, MAX_TABLE_GROUPS, Figure, Numbers, finished, kind_of
from assay.engine.report.svg import Chart, Scale, line, marker, padded, text_width, words
from assay.engine.report.text import esc, groups_of
from assay.engine.stats import Summary
from assay.engine.wording import NONE, number, plural, share, shorten

_ROW_HEIGHT = 20
_TOP = 44


@dataclass(frozen=True)
class _Spread:
    """A number of one group: mean over seeds weighted by rows, lowest and highest seed."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class _Group:
    coverage: _Spread
    size: _Spread
    rows: int


def by_row_group(summary: Summary, choice: Choice) -> Figure | None:
    """One panel a method: its coverage and its mean set size in each group, on common axes."""
    pooled = {found.name: _pool(summary, found.name) for found in finished(summary)}
    pooled = {name: groups for name, groups in pooled.items() if groups}
    if not pooled:
        return None
    rows_of: dict[str, int] = {}
    for groups in pooled.values():
        for label, group in groups.items():
            rows_of[label] = max(rows_of.get(label, 0), group.rows)
    labels = sorted(rows_of, key=lambda label: -rows_of[label])
    drawn = labels[:MAX_GROUPS]
    every = [groups[label] for groups in pooled.values() for label in drawn if label in groups]
    coverage = _coverage_range(every, summary.target)
    spread = [v for g in every for v in (g.size.low, g.size.high)]
    # no narrower than a fifth of the largest size: a small difference is to look small
    low, high = padded(spread, 0.06, 0.2 * max(spread))
    panels = tuple(
        _panel(
            name,
            {label: groups[label] for label in drawn if label in groups},
            kind_of(choice, name),
            summary.target,
            coverage,
            (max(low, 0.0), high),
        )
        for name, groups in pooled.items()
    )
    some = f" Drawn: the {MAX_GROUPS} largest of {len(labels)} groups." if len(labels) > MAX_GROUPS else ""
    caption = (
        f"Each method in {groups_of(summary.info)}: coverage on the left, with the level asked for "
        "dashed, and mean set size on the right; mean over seeds, line from the lowest to the highest seed. "
        "Read the two together: a method can cover all groups alike and give one of them larger sets, or "
        "give all groups sets of one size and cover them unequally. Orange: covered below the level on "
        f"every seed.{some}"
    )
    listed = labels[:MAX_TABLE_GROUPS]
    rows = tuple((label, *(_text(groups.get(label)) for groups in pooled.values())) for label in listed)
    return Figure(panels, caption, Numbers(("group: coverage, mean size, test rows", *pooled), rows))


def _pool(summary: Summary, method: str) -> dict[str, _Group]:
    gathered: dict[str, list[tuple[float, float, int]]] = {}
    for result in summary.ok(method).values():
        for group in result.detail.get("by_group") or ():
            if group["n"]:
                seen = (float(group["coverage"]), float(group["mean_size"]), int(group["n"]))
                gathered.setdefault(str(group["label"]), []).append(seen)
    return {
        label: _Group(
            _spread([(coverage, n) for coverage, _, n in seen]),
            _spread([(size, n) for _, size, n in seen]),
            sum(n for *_, n in seen),
        )
        for label, seen in gathered.items()
    }


def _spread(seen: Sequence[tuple[float, int]]) -> _Spread:
    values = [value for value, _ in seen]
    mean = sum(value * n for value, n in seen) / sum(n for _, n in seen)
    return _Spread(mean, min(values), max(values))


def _coverage_range(groups: Sequence[_Group], target: float) -> tuple[float, float]:
    # a seed with few rows in a group reaches far down; it may leave the frame
    lowest = min([*(max(g.coverage.low, g.coverage.mean - 0.15) for g in groups), target - 0.04])
    highest = max([*(g.coverage.high for g in groups), target + 0.04])
    return max(0.0, math.floor(lowest * 50) / 50), min(1.0, math.ceil(highest * 50) / 50)


def _panel(
    name: str,
    groups: Mapping[str, _Group],
    kind: str,
    target: float,
    coverage: tuple[float, float],
    sizes: tuple[float, float],
) -> Chart:
    names = {label: shorten(label, 12) for label in groups}
    left = min(84.0, max(text_width(text, FONT) for text in names.values()) + 8)
    middle = left + (PANEL_WIDTH - left) / 2
    x = Scale(*coverage, left + 6, middle - 16)
    z = Scale(*sizes, middle + 16, PANEL_WIDTH - 8)
    base = _TOP + _ROW_HEIGHT * len(groups)
    css = {"best": "t-best", "low": "t-low"}.get(kind, "strong")
    parts = [
        words(0, 13, shorten(name, 30), f"strong {css}"),
        words(x.start, _TOP - 10, "coverage", "tick"),
        words(z.start, _TOP - 10, "mean size", "tick"),
    ]
    for scale in (x, z):
        for at, label in spaced(scale, 2):
            parts += [
                line(at, _TOP - 4, at, base, "grid"),
                words(at, base + 15, label, "tick", "middle"),
            ]
    parts.append(line(x(target), _TOP - 4, x(target), base, "nominal"))
    for i, (label, group) in enumerate(groups.items()):
        y = _TOP + _ROW_HEIGHT * (i + 0.5) - 4
        own = "low" if group.coverage.high < target else "best" if kind == "best" else "plain"
        tip = esc(f"{label}: {plural(group.rows, 'test row')}")
        parts.append(
            f'<text x="0" y="{y + 4:.1f}" class="name">{esc(names[label])}<title>{tip}</title></text>'
        )
        for scale, of, text in (
            (x, group.coverage, f"{label}: coverage {share(group.coverage.mean)}"),
            (z, group.size, f"{label}: mean size {number(group.size.mean)}"),
        ):
            if of.high > of.low:
                parts.append(line(scale(of.low), y, scale(of.high), y, f"e-{own}"))
            parts.append(marker(scale(of.mean), y, "circle", f"m-{own}", text, 4.5))
    spoken = "; ".join(
        f"{label}: coverage {share(g.coverage.mean)}, mean size {number(g.size.mean)}"
        for label, g in groups.items()
    )
    description = f"Level {target:g}. {spoken}."
    title = f"{name}: coverage and size by group"
    return Chart(title, description, PANEL_WIDTH, int(base + 22), "".join(parts))


def _text(group: _Group | None) -> str:
    if group is None:
        return NONE
    return f"{share(group.coverage.mean)}, {number(group.size.mean)}, {group.rows:,}"
