"""Nonconformity scores of class labels: stateless rules from probabilities to numbers, low = fits.

Every score answers three questions by one rule, equal to the last bit: the scores of all labels
(:meth:`LabelScore.all`), the score of one given label a row (:meth:`LabelScore.of`), and the labels
whose score is at most a threshold (:meth:`LabelScore.sets`). The fast ways to the second and third
therefore perform the same floating-point operations as the first.

Ranks: probabilities in descending order, ties to the lower class; ``p_(r)`` the r-th largest,
``c_r`` the sum of the r largest, added up in that order in float64. ``u`` in (0, 1) is one uniform
number a row, shared by its labels; without it the score is that of u = 1.

The arrays are taken to be checked probabilities (float32 or float64) of a block of rows that fits in
memory; :mod:`assay.conformal.set_base` cuts larger inputs into blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import MethodError

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Codes = NDArray[np.intp]

#: what a label adds to a cumulative score when its probability is too small to change the sum
_TIE = 2.0**-40


class LabelScore:
    """A rule that scores labels. Smaller probabilities never have smaller scores."""

    #: whether the rule uses u
    takes_u: ClassVar[bool] = False

    def all(self, proba: NDArray[Any], u: FloatArray | None = None) -> FloatArray:
        """(n, K) scores of all labels, from (n, K) probabilities and (n,) uniforms."""
        raise NotImplementedError

    def of(self, proba: NDArray[Any], labels: Codes, u: FloatArray | None = None) -> FloatArray:
        """(n,) scores of one label a row; ``labels`` are columns."""
        return np.take_along_axis(self.all(proba, u), labels[:, None], axis=1)[:, 0]

    def sets(self, proba: NDArray[Any], thresholds: FloatArray, u: FloatArray | None = None) -> BoolArray:
        """(L, n, K): the labels whose score is at most the threshold.

        ``thresholds`` has shape (L, 1, 1), (L, n, 1) for one a row or (L, 1, K) for one a label.
        """
        out = np.empty((len(thresholds), *proba.shape), dtype=np.bool_)
        self.mark(proba, self.prepare(thresholds, proba.dtype), u, out)
        return out

    def prepare(self, thresholds: FloatArray, dtype: Any) -> NDArray[Any]:
        """What :meth:`mark` needs of the thresholds, in their shape; done once for many blocks of a dtype."""
        return thresholds

    def mark(self, proba: NDArray[Any], prepared: NDArray[Any], u: FloatArray | None, out: BoolArray) -> None:
        """Write the sets of a block into ``out`` (L, n, K)."""
        scores = self.all(proba, u)
        for level, threshold in enumerate(prepared):
            np.less_equal(scores, threshold, out=out[level])


@dataclass(frozen=True)
class LACScore(LabelScore):
    """``1 - p_y`` (also called THR, HPS or hinge)."""

    def all(self, proba: NDArray[Any], u: FloatArray | None = None) -> FloatArray:
        return np.asarray(np.subtract(1.0, proba, dtype=np.float64))

    def of(self, proba: NDArray[Any], labels: Codes, u: FloatArray | None = None) -> FloatArray:
        return np.asarray(np.subtract(1.0, proba[np.arange(len(proba)), labels], dtype=np.float64))

    def prepare(self, thresholds: FloatArray, dtype: Any) -> NDArray[Any]:
        return least_probability(thresholds, dtype)

    def mark(self, proba: NDArray[Any], prepared: NDArray[Any], u: FloatArray | None, out: BoolArray) -> None:
        for level, least in enumerate(prepared):
            np.greater_equal(proba, least, out=out[level])


def least_probability(thresholds: FloatArray, dtype: Any) -> NDArray[Any]:
    """The smallest p >= 0 of a float type with ``1 - p <= threshold`` in float64; +inf if there is none.

    Rounding makes ``p >= 1 - threshold`` another rule than ``1 - p <= threshold``. The latter is
    monotone in p, so bisection over the floats in their order finds where it begins to hold.
    """
    distinct, back = np.unique(thresholds, return_inverse=True)
    bits: Any = np.int32 if np.dtype(dtype) == np.float32 else np.int64
    low = np.full(len(distinct), -1, dtype=bits)  # one below the bits of 0.0: does not hold
    high = np.full(len(distinct), np.array(np.inf, dtype).view(bits), dtype=bits)  # holds
    while (high - low > 1).any():
        middle = low + (high - low) // 2
        holds = np.subtract(1.0, np.maximum(middle, 0).view(dtype), dtype=np.float64) <= distinct
        open_ = high - low > 1
        high = np.where(open_ & holds, middle, high)
        low = np.where(open_ & ~holds, middle, low)
    return np.asarray(high.view(dtype)[back.reshape(thresholds.shape)])


@dataclass(frozen=True)
class MarginScore(LabelScore):
    """``max_{j != y} p_j - p_y``; negative for the top label only."""

    def all(self, proba: NDArray[Any], u: FloatArray | None = None) -> FloatArray:
        n, k = proba.shape
        if k == 1:
            return -proba.astype(np.float64)
        best = np.argmax(proba, axis=1)
        rows = np.arange(n)
        second, first = np.partition(proba, k - 2, axis=1)[:, k - 2 :].T
        scores: FloatArray = np.subtract(first[:, None], proba, dtype=np.float64)
        scores[rows, best] = np.subtract(second, first, dtype=np.float64)
        return scores


class RankScore(LabelScore):
    """A score that never falls with the rank: a set is the first labels of its row up to some rank."""

    takes_u: ClassVar[bool] = True

    def by_rank(self, ranked: NDArray[Any], u: FloatArray | None) -> FloatArray:
        """(n, K) scores of the labels in order of rank, from the probabilities in descending order."""
        raise NotImplementedError

    def all(self, proba: NDArray[Any], u: FloatArray | None = None) -> FloatArray:
        order = np.argsort(-proba, axis=1, kind="stable")
        scores = np.empty(proba.shape)
        np.put_along_axis(scores, order, self.by_rank(np.take_along_axis(proba, order, axis=1), u), axis=1)
        return scores

    def of(self, proba: NDArray[Any], labels: Codes, u: FloatArray | None = None) -> FloatArray:
        return np.take_along_axis(
            self.by_rank(_descending(proba), u), label_ranks(proba, labels)[:, None] - 1, axis=1
        )[:, 0]

    def mark(self, proba: NDArray[Any], prepared: NDArray[Any], u: FloatArray | None, out: BoolArray) -> None:
        if prepared.shape[2] > 1:
            super().mark(proba, prepared, u, out)
            return
        ranked = _descending(proba)
        scores = self.by_rank(ranked, u)
        for level, threshold in enumerate(prepared):
            _take_first(proba, ranked, np.count_nonzero(scores <= threshold, axis=1), out[level])


def _descending(proba: NDArray[Any]) -> NDArray[Any]:
    return np.sort(proba, axis=1)[:, ::-1]


def label_ranks(proba: NDArray[Any], labels: Codes) -> Codes:
    """(n,) rank, from 1, of one label a row."""
    own = proba[np.arange(len(proba)), labels][:, None]
    ranks = np.count_nonzero(proba > own, axis=1) + 1
    tied = np.flatnonzero(np.count_nonzero(proba == own, axis=1) > 1)
    if len(tied):
        before = np.cumsum(proba[tied] == own[tied], axis=1)
        ranks[tied] += before[np.arange(len(tied)), labels[tied]] - 1
    return np.asarray(ranks, dtype=np.intp)


def _take_first(proba: NDArray[Any], ranked: NDArray[Any], counts: Codes, out: BoolArray) -> None:
    """Mark the first ``counts`` labels of each row, without knowing their order."""
    n, k = proba.shape
    rows = np.arange(n)
    last = ranked[rows, np.maximum(counts - 1, 0)]
    after = ranked[rows, np.minimum(counts, k - 1)]
    torn = np.flatnonzero((last == after) & (counts > 0) & (counts < k))
    last[counts == 0] = np.inf
    np.greater_equal(proba, last[:, None], out=out)
    if len(torn):
        # equal probabilities on both sides of the end: the lower classes are inside
        values, edge = proba[torn], last[torn][:, None]
        above, level = values > edge, values == edge
        room = counts[torn] - np.count_nonzero(above, axis=1)
        out[torn] = above | (level & (np.cumsum(level, axis=1) <= room[:, None]))


@dataclass(frozen=True)
class APSScore(RankScore):
    """``c_{r-1} + u p_(r)``; ``c_r`` without u.

    Divided by the sum of the row, so that c_K is one whatever the rounding of the probabilities. A
    label whose probability is too small to change the sum (zero, above all) would have the score of
    the label before it; it gets 2**-40 more, so that a row [0, 1, 0] keeps its one label apart.
    """

    def by_rank(self, ranked: NDArray[Any], u: FloatArray | None) -> FloatArray:
        sums = ranked.astype(np.float64)
        np.cumsum(sums, axis=1, out=sums)
        total = sums[:, -1:].copy()
        # rows where even the last label changes the sum have no other that does not
        still = np.flatnonzero(sums[:, -1] == sums[:, -2]) if sums.shape[1] > 1 else np.empty(0, np.intp)
        shift = _TIE * np.cumsum(sums[still, 1:] == sums[still, :-1], axis=1)
        if u is None:
            scores = sums
        else:
            scores = u[:, None] * ranked
            scores[:, 1:] += sums[:, :-1]
        scores /= total
        if len(still):
            scores[still, 1:] += shift
        return scores


@dataclass(frozen=True)
class RAPSScore(APSScore):
    """The APS score plus ``lam * max(0, r - k_reg)``."""

    lam: float = 0.1
    k_reg: int = 1

    def __post_init__(self) -> None:
        if not (np.isfinite(self.lam) and self.lam >= 0):
            raise MethodError(f"lam must be a number >= 0, got {self.lam!r}")
        if self.k_reg < 0:
            raise MethodError(f"k_reg must be an integer >= 0, got {self.k_reg!r}")

    def by_rank(self, ranked: NDArray[Any], u: FloatArray | None) -> FloatArray:
        scores = super().by_rank(ranked, u)
        scores += self.lam * np.maximum(0, np.arange(1, ranked.shape[1] + 1) - self.k_reg)
        return scores


@dataclass(frozen=True)
class SAPSScore(RankScore):
    """``u p_(1)`` for the top label, ``p_(1) + (r - 2 + u) weight`` for the others."""

    weight: float = 0.2

    def __post_init__(self) -> None:
        if not (np.isfinite(self.weight) and self.weight >= 0):
            raise MethodError(f"weight must be a number >= 0, got {self.weight!r}")

    def by_rank(self, ranked: NDArray[Any], u: FloatArray | None) -> FloatArray:
        top = ranked[:, :1].astype(np.float64)
        share = np.ones((len(ranked), 1)) if u is None else u[:, None]
        scores = top + (np.arange(1, ranked.shape[1] + 1) - 2 + share) * self.weight
        scores[:, :1] = share * top
        return scores


@dataclass(frozen=True)
class TopKScore(RankScore):
    """The rank: ``r - 1 + u``."""

    def by_rank(self, ranked: NDArray[Any], u: FloatArray | None) -> FloatArray:
        share = np.ones((len(ranked), 1)) if u is None else u[:, None]
        return np.arange(ranked.shape[1]) + share


SCORES = {
    "lac": LACScore,
    "margin": MarginScore,
    "aps": APSScore,
    "raps": RAPSScore,
    "saps": SAPSScore,
    "topk": TopKScore,
}


def get_score(score: str | LabelScore) -> LabelScore:
    """A score by its name with its defaults, or the given object."""
    if isinstance(score, LabelScore):
        return score
    if score not in SCORES:
        raise MethodError(f"no score {score!r}; give one of {', '.join(SCORES)} or a LabelScore object")
    rule: LabelScore = SCORES[score]()
    return rule
