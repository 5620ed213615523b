"""Thresholds for label scores: one for all, one a class, one a group of rows, one a cluster of classes.

A calibrator holds the scores of the true labels of the calibration rows. Its ``thresholds`` have
shape (L, 1, 1), (L, n, 1) for one a row, or (L, 1, K) for one a class; +inf lets every label in.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import AssayWarning, InfiniteSetWarning, MethodError
from assay.core.levels import conformal_rank, parse_levels, smallest_n
from assay.core.quantiles import conformal_quantile

FloatArray = NDArray[np.float64]
Codes = NDArray[np.intp]
#: what a row of a group (or a class) without calibration rows gets
Unseen = Literal["all", "marginal", "refuse"]

#: how far the line that asked for sets is above the function that calls a warning function
_USER = 6
#: mean size of a pool from which ranks are selected pool by pool
_SELECT = 1000
#: quantiles of the true-label scores that describe a class when classes are clustered
_EMBEDDING = (0.5, 0.6, 0.7, 0.8, 0.9)


class LabelCalibrator(Protocol):
    """What a label-set method needs of its calibrator."""

    def thresholds(self, levels: Sequence[Fraction], groups: Codes | None = None) -> FloatArray:
        """(L, 1, 1), (L, n, 1) or (L, 1, K) thresholds; ``groups`` are the rows' codes, -1 unseen."""


def pooled_thresholds(
    scores: FloatArray, codes: Codes, n_pools: int, levels: Sequence[Fraction]
) -> tuple[FloatArray, NDArray[np.bool_]]:
    """Split-conformal threshold of each pool of scores.

    Parameters
    ----------
    scores : (n,) scores
    codes : (n,) pool of each score, 0 .. n_pools - 1
    levels : L exact miscoverage levels

    Returns
    -------
    (L, n_pools) thresholds, and (L, n_pools) whether a pool has too few scores for a finite one.
    """
    counts = np.bincount(codes, minlength=n_pools)
    starts = np.cumsum(counts) - counts
    sizes, size_of = np.unique(counts, return_inverse=True)
    ranks = np.array([[conformal_rank(int(size), level) for size in sizes] for level in levels])[:, size_of]
    short = ranks > counts
    if len(scores) >= _SELECT * n_pools:
        # numbers of 16 bits are sorted by counting, and a rank is selected without sorting its pool
        small = codes.astype(np.uint16) if n_pools <= 1 << 16 else codes
        ranked = scores[np.argsort(small, kind="stable")]
        for pool in np.flatnonzero(~short.all(axis=0)):
            own = ranked[starts[pool] : starts[pool] + counts[pool]]
            own.partition(np.unique(ranks[~short[:, pool], pool] - 1))
    else:
        ranked = scores[np.lexsort((scores, codes))]
    out = np.full((len(levels), n_pools), np.inf)
    place = starts + ranks - 1
    out[~short] = ranked[place[~short]]
    return out, short


def _warn_short(short: NDArray[np.bool_], levels: Sequence[Fraction], what: str, effect: str) -> None:
    for row, level in zip(short, levels, strict=True):
        count = int(row.sum())
        if count:
            need = smallest_n(level)
            enough = "no number of them suffices" if need is None else f"{need} are needed"
            warnings.warn(
                f"{count} of {len(row)} {what} have too few calibration rows at alpha {float(level):g} "
                f"({enough}): {effect}",
                InfiniteSetWarning,
                stacklevel=_USER,
            )


@dataclass(frozen=True, eq=False)
class MarginalCalibrator:
    """One threshold for all rows and labels."""

    scores: FloatArray

    def thresholds(self, levels: Sequence[Fraction], groups: Codes | None = None) -> FloatArray:
        """(L, 1, 1) thresholds."""
        return np.asarray(conformal_quantile(self.scores, levels, stacklevel=_USER)).reshape(-1, 1, 1)


@dataclass(frozen=True, eq=False)
class ClassCalibrator:
    """One threshold a class, from the rows of that class; a class with too few rows is always in the set.

    With ``unseen="marginal"`` a class without any row has the threshold of all rows together.
    """

    scores: FloatArray
    codes: Codes
    n_classes: int
    unseen: Unseen = "all"

    def thresholds(self, levels: Sequence[Fraction], groups: Codes | None = None) -> FloatArray:
        """(L, 1, K) thresholds."""
        out, short = pooled_thresholds(self.scores, self.codes, self.n_classes, levels)
        absent = np.bincount(self.codes, minlength=self.n_classes) == 0
        if self.unseen == "marginal" and absent.any():
            out[:, absent] = np.asarray(conformal_quantile(self.scores, levels, stacklevel=_USER))[:, None]
            short[:, absent] = False
            warnings.warn(
                f"{int(absent.sum())} of {self.n_classes} classes have no calibration rows: they get the "
                "threshold of all classes together, and no promise of their own",
                AssayWarning,
                stacklevel=_USER - 1,
            )
        _warn_short(short, levels, "classes", "those classes are in every set")
        return out[:, None, :]


@dataclass(frozen=True, eq=False)
class GroupCalibrator:
    """One threshold a group of rows (Mondrian): each group is covered by itself.

    A row of a group without enough calibration rows gets all labels; so does one of an unseen group, or
    with ``unseen="marginal"`` the labels under the threshold of all groups together.
    """

    scores: FloatArray
    codes: Codes
    #: (G,) the groups in the order of their codes
    names: NDArray[Any]
    unseen: Unseen = "all"

    def thresholds(self, levels: Sequence[Fraction], groups: Codes | None = None) -> FloatArray:
        """(L, n, 1) thresholds of rows with the given codes."""
        if groups is None:
            raise TypeError("groups are needed")
        out, short = pooled_thresholds(self.scores, self.codes, len(self.names), levels)
        asked = np.unique(groups[groups >= 0])
        _warn_short(short[:, asked], levels, "groups", "rows of those groups get all labels")
        rest = np.full((len(levels), 1), np.inf)
        if warn_unseen(groups, self.unseen, stacklevel=_USER) and self.unseen == "marginal":
            rest = np.asarray(conformal_quantile(self.scores, levels, stacklevel=_USER)).reshape(-1, 1)
        return np.concatenate([out, rest], axis=1)[:, groups, None]


def warn_unseen(groups: Codes, unseen: Unseen, stacklevel: int = _USER - 1) -> int:
    """Number of rows of a group without calibration rows (code -1), after a warning that says so."""
    count = int((groups < 0).sum())
    if count:
        marginal = unseen == "marginal"
        effect = "they get the threshold of all groups together" if marginal else "they get all labels"
        warnings.warn(
            f"{count} of {len(groups)} rows are of a group without calibration rows, first at row "
            f"{int(np.argmax(groups < 0))}: {effect}",
            AssayWarning if marginal else InfiniteSetWarning,
            stacklevel=stacklevel,
        )
    return count


@dataclass(frozen=True, eq=False)
class ClusterCalibrator:
    """One threshold a cluster of classes with similar scores; classes in no cluster get the marginal one.

    ``scores`` and ``codes`` are of the calibration part; ``clusters`` (K,) holds the cluster of each
    class, -1 for none.
    """

    scores: FloatArray
    codes: Codes
    clusters: Codes
    #: number of rows that were used up by clustering
    n_clustering: int = 0

    def thresholds(self, levels: Sequence[Fraction], groups: Codes | None = None) -> FloatArray:
        """(L, 1, K) thresholds; (L, 1, 1) where there are no clusters."""
        n_clusters = int(self.clusters.max(initial=-1)) + 1
        if n_clusters == 0:
            return np.asarray(conformal_quantile(self.scores, levels, stacklevel=_USER)).reshape(-1, 1, 1)
        row_cluster = self.clusters[self.codes]
        inside = row_cluster >= 0
        out, short = pooled_thresholds(self.scores[inside], row_cluster[inside], n_clusters, levels)
        _warn_short(short, levels, "clusters of classes", "their classes are in every set")
        if (self.clusters < 0).any():
            rest = np.asarray(conformal_quantile(self.scores, levels, stacklevel=_USER)).reshape(-1, 1)
        else:
            rest = np.full((len(levels), 1), np.inf)
        return np.concatenate([out, rest], axis=1)[:, None, self.clusters]


@dataclass(frozen=True)
class ClusterPlan:
    """How many clusters of classes, and which fraction of the calibration rows is used to find them."""

    n_clusters: int
    fraction: float


def plan_clusters(
    class_counts: NDArray[Any],
    alpha: Any,
    n_clusters: int | None = None,
    fraction: float = 0.5,
) -> ClusterPlan:
    """The rule of Ding et al. for the size of the clustering part and the number of clusters.

    Parameters
    ----------
    class_counts : (K,) calibration rows a class
    alpha : level; of a sequence the first counts
    n_clusters, fraction : with ``n_clusters`` given, both replace the rule

    Raises
    ------
    MethodError
        ``n_clusters`` or ``fraction`` is out of range.
    """
    if n_clusters is not None:
        if n_clusters < 1 or not 0 < fraction < 1:
            raise MethodError(
                f"n_clusters must be at least 1 and clustering_size lie in (0, 1), "
                f"got {n_clusters!r} and {fraction!r}"
            )
        return ClusterPlan(n_clusters, fraction)
    least = smallest_n(parse_levels(alpha)[0][0])
    if least is None:
        return ClusterPlan(0, 0.0)
    n_min = max(int(class_counts.min()), least)
    k = int((class_counts >= n_min).sum())
    n_clustering = n_min * k // (75 + k)
    return ClusterPlan(n_clustering // 2, n_clustering / n_min)


def cluster_classes(
    scores: FloatArray, codes: Codes, n_classes: int, n_clusters: int, least: int, seed: int
) -> Codes:
    """(K,) cluster of each class by the distribution of its true-label scores; -1 for a rare class.

    Classes are described by five quantiles of their scores and clustered by k-means with weights
    ``sqrt(n_c)``. A class with fewer than ``least`` scores is rare. With fewer than
    ``n_clusters + 1`` other classes nothing is clustered: every class is -1.
    """
    from sklearn.cluster import KMeans

    clusters = np.full(n_classes, -1, dtype=np.intp)
    counts = np.bincount(codes, minlength=n_classes)
    common = np.flatnonzero(counts >= max(least, 1))
    if n_clusters <= 1 or len(common) < n_clusters + 1:
        return clusters
    ranked = scores[np.lexsort((scores, codes))]
    starts = np.cumsum(counts) - counts
    at = [starts[common] + np.ceil(q * counts[common] - 1e-9).astype(np.intp) - 1 for q in _EMBEDDING]
    embedding = ranked[np.stack(at, axis=1)]
    # k-means starts from random rows: sorted, so that the names of the classes do not matter
    order = np.lexsort((counts[common], *embedding.T[::-1]))
    n_distinct = len(np.unique(embedding, axis=0))
    model = KMeans(min(n_clusters, n_distinct), n_init=10, random_state=seed % 2**32)
    labels = model.fit_predict(embedding[order], sample_weight=np.sqrt(counts[common][order]))
    clusters[common[order]] = labels
    return clusters
