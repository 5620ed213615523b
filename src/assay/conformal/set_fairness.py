"""Label sets by group of rows: coverage, size, and the gaps between the groups, always side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.core.checks import to_numpy
from assay.core.errors import DataError
from assay.core.probabilities import (
    Probabilities,
    check_labels,
    classes_of_columns,
    distinct_labels,
    encode_labels,
    known_labels,
)

if TYPE_CHECKING:
    import pandas as pd

#: index of the last two rows of the report
ALL, GAP = "(all)", "(gap)"


def set_fairness_report(
    sets: Any, y: Any, groups: Any, *, proba: Any = None, classes: Sequence[Any] | None = None
) -> pd.DataFrame:
    """What label sets give to each group of rows.

    Parameters
    ----------
    sets : (n, K) bool
        Label sets, as ``predict_set`` gives them.
    y : (n,) labels
    groups : (n,) group of each row
    proba : (n, K) probabilities, optional
        For the accuracy of the most probable label.
    classes : K labels in the order of the columns, optional
        As in ``calibrate_proba``: needed where the labels do not tell.

    Returns
    -------
    DataFrame
        One row a group in the order of their names, then "(all)" and "(gap)", the largest value minus the
        smallest. Columns: rows; coverage; mean_size; share_singleton, of sets with exactly one label; with
        ``proba`` top1_accuracy. The gap in coverage and the gap in size are always both there: equal
        coverage may be bought with unequal sizes, and equal sizes with unequal coverage.

    Raises
    ------
    DataError
        Sets that are no (n, K) truth values, lengths that differ, missing labels or groups, labels that
        are none of the classes, or no rows.
    """
    import pandas as pd

    inside = to_numpy(sets)
    if inside.ndim != 2:
        raise DataError(f"sets has shape {inside.shape}; give one row a sample, one column a class: (n, K)")
    if inside.dtype.kind not in "biuf" or not ((inside == 0) | (inside == 1)).all():
        raise DataError(f"sets holds values that are neither true nor false (dtype {inside.dtype})")
    inside = inside.astype(bool)
    n, n_classes = inside.shape
    if n == 0:
        raise DataError("there are 0 rows; give at least one of each group")
    labels = check_labels(y, length=n)
    codes = known_labels(labels, classes_of_columns(labels, n_classes, classes))
    given = check_labels(groups, length=n, name="groups")
    names = distinct_labels(given)
    group = encode_labels(given, names)
    sizes = inside.sum(axis=1)
    by_row = {
        "coverage": inside[np.arange(n), codes].astype(np.float64),
        "mean_size": sizes.astype(np.float64),
        "share_singleton": (sizes == 1).astype(np.float64),
    }
    if proba is not None:
        checked = Probabilities(proba, n_classes=n_classes)
        if len(checked) != n:
            raise DataError(f"proba has {len(checked)} rows, {n} are expected")
        checked.check()
        by_row["top1_accuracy"] = (checked.values.argmax(axis=1) == codes).astype(np.float64)
    counts = np.bincount(group)
    columns: dict[str, Any] = {"rows": [*counts.tolist(), n, int(counts.max() - counts.min())]}
    for name, values in by_row.items():
        means = np.bincount(group, weights=values) / counts
        columns[name] = [*means, values.mean(), means.max() - means.min()]
    return pd.DataFrame(columns, index=pd.Index([*names.tolist(), ALL, GAP], dtype=object, name="group"))
