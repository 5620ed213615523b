"""From a vector of scores to one number: what part of the score space holds true labels rather than false.

A partition is learnt from the score vectors of some rows, true labels and false ones apart, and then
gives every vector a number, small where true labels are. Any such number is a valid conformal score
for rows that had no part in learning it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from assay.core.errors import MethodError

FloatArray = NDArray[np.float64]
Codes = NDArray[np.intp]

#: gives ((b, K, d) vectors of all labels, (b,) true labels) of consecutive rows; may be called again
Blocks = Callable[[], Iterable[tuple[FloatArray, Codes]]]

#: two centres are equally near where their distances agree to this share
_TIE = 1e-12


class Partition(Protocol):
    """What a method needs of a partition."""

    def score(self, vectors: FloatArray) -> FloatArray:
        """(q,) numbers of (q, d) score vectors."""


@dataclass(frozen=True, eq=False)
class RankTransform:
    """Each coordinate as the share of learnt values that are at most as large.

    Makes scores of different kinds commensurate; any strictly increasing map of a coordinate, the
    same for learnt and new values, changes nothing.
    """

    #: (d, n) sorted values
    values: FloatArray

    @classmethod
    def fit(cls, vectors: FloatArray) -> RankTransform:
        """Learn from (n, d) vectors."""
        return cls(np.sort(vectors.T, axis=1))

    def __call__(self, vectors: FloatArray) -> FloatArray:
        """(q, d) vectors in [0, 1]."""
        out = np.empty(vectors.shape)
        for j, known in enumerate(self.values):
            out[:, j] = np.searchsorted(known, vectors[:, j], side="right")
        out /= self.values.shape[1]
        return out


@dataclass(frozen=True, eq=False)
class Cells:
    """Voronoi cells around the true labels' vectors, in the order of their purity.

    Cell i is where centre i is the nearest, the first of equally near ones. With T_i true and F_i
    false vectors in it, ``D_i = (F_i + T_i) / T_i``; cells are ranked by rising D, and the number of
    a vector is the rank of its cell, 0 .. m - 1. Equal vectors are one centre. Centres stand in the
    order of their distance from the best score (zero, or the smallest one where scores are negative),
    which also settles ties of D: nearer ones conform better.

    Attributes
    ----------
    centers : (m, d) distinct vectors of true labels
    purity : (m,) D, at least 1; small where true labels prevail
    order : (m,) numbers of the cells from the purest
    reach : further from its centre than this, a vector is in no cell and its number is m
    """

    centers: FloatArray
    purity: FloatArray
    order: Codes
    reach: float
    rank: FloatArray
    tree: Any

    @classmethod
    def fit(
        cls,
        true: FloatArray,
        all_labels: Iterable[FloatArray],
        distance_cap: float | None = None,
    ) -> Cells:
        """Learn from (n, d) vectors of true labels and blocks (b, d) of those of all labels.

        ``distance_cap`` sets ``reach``, in units of the largest distance of a centre from the nearest
        other one; None is no limit.
        """
        centers, copies = np.unique(true + 0.0, axis=0, return_counts=True)
        best = np.minimum(0.0, centers.min(axis=0))
        # np.unique sorts by the coordinates: a stable sort keeps that order among equal norms
        by_norm = np.argsort(np.linalg.norm(centers - best, axis=1), kind="stable")
        centers, copies = centers[by_norm], copies[by_norm]
        tree = cKDTree(centers)
        reach = np.inf
        if distance_cap is not None:
            gaps = tree.query(centers, k=2)[0][:, 1] if len(centers) > 1 else np.zeros(1)
            reach = float(distance_cap * gaps.max())
        inside = np.zeros(len(centers), dtype=np.intp)
        for vectors in all_labels:
            cell, distance = _nearest(tree, vectors)
            inside += np.bincount(cell[distance <= reach], minlength=len(centers))
        # a true vector is its own centre, at distance zero: false ones are the rest
        purity = inside / copies
        order = np.argsort(purity, kind="stable")
        rank = np.empty(len(order))
        rank[order] = np.arange(len(order))
        return cls(centers, purity, order, reach, rank, tree)

    def score(self, vectors: FloatArray) -> FloatArray:
        """(q,) rank of the cell of each vector, from 0; m beyond the reach of every centre."""
        cell, distance = _nearest(self.tree, vectors)
        return np.where(distance <= self.reach, self.rank[cell], float(len(self.order)))


def _nearest(tree: Any, vectors: FloatArray) -> tuple[Codes, FloatArray]:
    """(q,) nearest point of each vector, the first of equally near ones, and its distance."""
    if len(vectors) == 0:
        return np.empty(0, np.intp), np.empty(0)
    if tree.n == 1:
        distance, cell = tree.query(vectors)
        return np.asarray(cell, dtype=np.intp), np.asarray(distance)
    distances, cells = tree.query(vectors, k=2)
    cell, distance = cells[:, 0].astype(np.intp), distances[:, 0]
    tied = np.flatnonzero(distances[:, 1] <= distance * (1 + _TIE))
    if len(tied):
        points, back = np.unique(vectors[tied], axis=0, return_inverse=True)
        radius = np.empty(len(points))
        radius[back.reshape(-1)] = distance[tied] * (1 + 2 * _TIE)
        found = tree.query_ball_point(points, radius)
        cell[tied] = np.array([min(near) for near in found])[back.reshape(-1)]
    return cell, distance


@dataclass(frozen=True, eq=False)
class DensityRatio:
    """Distance to the k-th nearest true vector against that to the k-th nearest false one.

    The number of a vector is ``t / (t + f)``, a rising function of ``t / f`` in [0, 1]; 1/2 where both
    are zero. Where there are fewer than k vectors of a kind, all of them count.
    """

    true_tree: Any
    false_tree: Any
    k: int

    @classmethod
    def fit(cls, true: FloatArray, false: FloatArray, k: int) -> DensityRatio:
        """Learn from (n, d) vectors of true labels and (m, d) of false ones."""
        return cls(cKDTree(true), cKDTree(false) if len(false) else None, k)

    def score(self, vectors: FloatArray) -> FloatArray:
        """(q,) share of the distance to true vectors."""
        if len(vectors) == 0 or self.false_tree is None:
            return np.zeros(len(vectors))
        t, f = (
            tree.query(vectors, k=[min(self.k, tree.n)])[0][:, 0]
            for tree in (self.true_tree, self.false_tree)
        )
        total = t + f
        return np.asarray(np.divide(t, total, out=np.full(len(total), 0.5), where=total > 0))


class Maker(Protocol):
    """Learns a partition from the vectors of some rows."""

    def learn(self, true: FloatArray, blocks: Blocks) -> Partition:
        """From (n, d) vectors of true labels, and of all labels of the same rows."""


@dataclass(frozen=True)
class Voronoi:
    """Cells around true vectors; see :class:`Cells`.

    Parameters
    ----------
    distance_cap : float, optional
        A vector further from its centre than this many times the largest distance between a centre
        and the nearest other one belongs to no cell, and comes after all cells. Outer cells are
        unbounded otherwise: distant false labels are in them. Equal true vectors leave one cell, and
        any cap confines it to its centre. Not part of the method as published.
    """

    distance_cap: float | None = None

    def learn(self, true: FloatArray, blocks: Blocks) -> Cells:
        """The cells of (n, d) vectors of true labels; ``blocks`` give those of all labels."""
        if self.distance_cap is not None and not self.distance_cap > 0:
            raise MethodError(f"distance_cap must be positive or None, got {self.distance_cap!r}")
        every = (vectors.reshape(-1, vectors.shape[2]) for vectors, _ in blocks())
        return Cells.fit(true, every, self.distance_cap)


@dataclass(frozen=True)
class NeighbourRatio:
    """Distances to the k-th nearest true and false vectors; see :class:`DensityRatio`."""

    k: int = 10

    def learn(self, true: FloatArray, blocks: Blocks) -> DensityRatio:
        """The ratio from (n, d) vectors of true labels, and the false ones among ``blocks``."""
        if not (isinstance(self.k, (int, np.integer)) and self.k >= 1):
            raise MethodError(f"k must be an integer of at least 1, got {self.k!r}")
        false = []
        for vectors, labels in blocks():
            wrong = np.ones(vectors.shape[:2], dtype=np.bool_)
            wrong[np.arange(len(labels)), labels] = False
            false.append(vectors[wrong])
        return DensityRatio.fit(true, np.concatenate(false), int(self.k))


def get_maker(partition: Any, k: int) -> Maker:
    """ "voronoi", "knn_ratio" with ``k`` neighbours, or an object that learns one."""
    if partition == "voronoi":
        return Voronoi()
    if partition == "knn_ratio":
        return NeighbourRatio(k)
    if not callable(getattr(partition, "learn", None)):
        raise MethodError(
            f"partition must be 'voronoi', 'knn_ratio', or an object such as Voronoi(distance_cap=1.0), "
            f"got {partition!r}"
        )
    maker: Maker = partition
    return maker
