"""Whether members of an ensemble are alike as distributions, although they differ row by row."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from assay.bayes.ensemble_members import MemberReader
from assay.core.checks import FloatArray
from assay.core.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

#: a Kolmogorov-Smirnov statistic above this is a visible difference
FLAG = 0.1


def distributional_equivalence(member_proba: Iterable[Any], y: Any, *, classes: Any = None) -> pd.DataFrame:
    """How far each two members differ in the distribution of the probability of the true class.

    The statistic is an effect size and no test: members are measured on the same rows, so that the p-value
    of a two-sample test would mean nothing.

    Parameters
    ----------
    member_proba : (m, n, K) array, or iterable of (n, K)
        Class probabilities of two or more members on the same held-out rows. n numbers a member are kept.
    y : (n,) labels
    classes : (K,) labels of the columns, optional

    Returns
    -------
    DataFrame
        A row a pair, the largest statistic first: ``first``, ``second`` (positions), ``ks`` (largest distance
        of the two distribution functions), ``disagreement`` (mean |p_first - p_second| of the true class, row
        by row), ``accuracy_first``, ``accuracy_second``, ``flagged`` (``ks`` above 0.1).
        ``attrs["largest_ks"]`` and ``attrs["accuracy_spread"]`` are over all members.

    Raises
    ------
    DataError
        Fewer than two members, or predictions that cannot be used.
    """
    import pandas as pd

    reader = MemberReader(y, numbers=False)
    columns: list[FloatArray] = []
    accuracies: list[float] = []
    for number, member in enumerate(member_proba):
        read = reader.read(member, classes, number)
        true, hits = np.empty(reader.n_rows), 0
        for rows, block in read.blocks():
            truth = reader.truth[rows]
            true[rows] = block[np.arange(len(block)), truth]
            hits += int((block.argmax(axis=1) == truth).sum())
        columns.append(true)
        accuracies.append(hits / reader.n_rows)
    if len(columns) < 2:
        raise DataError(f"{len(columns)} members cannot be compared; give at least 2")
    ordered = [np.sort(column) for column in columns]
    pairs = []
    for i in range(len(columns)):
        for j in range(i + 1, len(columns)):
            ks = ks_statistic(ordered[i], ordered[j])
            apart = float(np.abs(columns[i] - columns[j]).mean())
            pairs.append((i, j, ks, apart, accuracies[i], accuracies[j], ks > FLAG))
    names = ["first", "second", "ks", "disagreement", "accuracy_first", "accuracy_second", "flagged"]
    table = pd.DataFrame(pairs, columns=names)
    table = table.sort_values("ks", ascending=False, ignore_index=True)
    table.attrs["largest_ks"] = float(table["ks"].max())
    table.attrs["accuracy_spread"] = max(accuracies) - min(accuracies)
    return table


def ks_statistic(first: FloatArray, second: FloatArray) -> float:
    """Largest distance of the distribution functions of two sorted samples."""
    both = np.concatenate([first, second])
    below = np.searchsorted(first, both, side="right") / len(first)
    return float(np.abs(below - np.searchsorted(second, both, side="right") / len(second)).max())
