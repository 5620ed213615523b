"""Groups of rows: read from the table, and what is measured in each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.core.errors import TaskError
from assay.data.columns import kind_of
from assay.data.table import Table
from assay.tasks.base import Metric
from assay.tasks.measures import BoolArray

#: a column with more values than this does not name groups
MAX_GROUPS = 40
#: groups with fewer test rows than this do not enter gaps and worst cases
MIN_GROUP_ROWS = 20
MISSING = "(missing)"

_WHERE = f"of the groups with at least {MIN_GROUP_ROWS} test rows"
METRICS = (
    Metric(
        "coverage_gap",
        "coverage gap",
        "share",
        "lower",
        f"Coverage where it is highest minus coverage where it is lowest, {_WHERE}.",
        of_groups=True,
    ),
    Metric(
        "size_gap",
        "size gap",
        "labels",
        "lower",
        f"Mean size where it is largest minus mean size where it is smallest, {_WHERE}.",
        of_groups=True,
    ),
    Metric(
        "worst_group_coverage",
        "worst-group coverage",
        "share",
        "higher",
        f"Coverage {_WHERE} where it is lowest.",
        of_groups=True,
    ),
)


def row_groups(table: Table) -> NDArray[Any] | None:
    """(n,) names of the rows' groups as text, a missing one "(missing)"; None without a group column."""
    return None if table.group is None else names_in(table.frame[table.group])


def names_in(column: pd.Series[Any]) -> NDArray[Any]:
    """(n,) names of the groups in a column."""
    values = column.to_numpy(dtype=object)
    gone = column.isna().to_numpy()
    return np.array([MISSING if none else _name(value) for value, none in zip(values, gone, strict=True)])


def _name(value: Any) -> str:
    if isinstance(value, (float, np.floating)) and value == np.floor(value):
        return str(int(value))
    return str(value)


def check_groups(table: Table) -> None:
    """Raise TaskError where the group column does not name a few groups."""
    groups = row_groups(table)
    if groups is None:
        return
    name, distinct = table.group, len(np.unique(groups))
    if distinct == 1:
        raise TaskError(
            f"the group column {name!r} is {groups[0]} in all {len(groups):,} rows: one group only"
        )
    if distinct > MAX_GROUPS or kind_of(table.frame[str(name)]) == "date":
        raise TaskError(
            f"the group column {name!r} has {distinct:,} distinct values, such as {groups[0]}; at most "
            f"{MAX_GROUPS} groups can be told apart: give a column with a few, such as ranges of the values"
        )


def group_notes(table: Table) -> tuple[str, ...]:
    """How the group column is used, in a line."""
    groups = row_groups(table)
    if groups is None:
        return ()
    names, counts = np.unique(groups, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    listed = ", ".join(f"{names[i]} {counts[i]:,}" for i in order[:6])
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    use = (
        "methods also see it as a feature (drop it to hide it from the model)"
        if table.group_is_feature
        else "it is no feature: the model does not see it"
    )
    return (f"groups by {table.group} ({listed}{more} rows); {use}",)


def by_group(
    groups: NDArray[Any], covered: BoolArray, sizes: NDArray[np.intp]
) -> tuple[Mapping[str, float], list[dict[str, Any]]]:
    """(metrics, one mapping a group: label, n, coverage, mean_size, share_singleton), in order of names.

    NaN for all metrics where fewer than two groups have ``MIN_GROUP_ROWS`` rows.
    """
    found: list[dict[str, Any]] = []
    for name in np.unique(groups):
        mine = groups == name
        found.append(
            {
                "label": str(name),
                "n": int(mine.sum()),
                "coverage": float(covered[mine].mean()),
                "mean_size": float(sizes[mine].mean()),
                "share_singleton": float((sizes[mine] == 1).mean()),
            }
        )
    judged = [group for group in found if int(group["n"]) >= MIN_GROUP_ROWS]
    nan = float("nan")
    if len(judged) < 2:
        return {"coverage_gap": nan, "size_gap": nan, "worst_group_coverage": nan}, found
    coverage = [float(group["coverage"]) for group in judged]
    size = [float(group["mean_size"]) for group in judged]
    return {
        "coverage_gap": max(coverage) - min(coverage),
        "size_gap": max(size) - min(size),
        "worst_group_coverage": min(coverage),
    }, found
