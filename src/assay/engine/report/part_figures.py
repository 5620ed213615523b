"""Coverage within parts of the test rows: by size of the answer and by class."""

from __future__ import annotations

import math
from collections.abc import Mapping

from assay.engine.choice import Choice
from assay.engine.report import charts
from assay.engine.report.figures import MAX_GROUPS, MAX_TABLE_GROUPS, Figure, Numbers, finished
from assay.engine.stats import Summary
from assay.engine.wording import NONE, number, share

#: detail -> (title, caption)
PARTS = {
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


def by_part(summary: Summary, choice: Choice, key: str) -> Figure | None:
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
        f"{PARTS[key][1]} Mean over seeds, line from the lowest to the highest seed; the dashed line is the "
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
