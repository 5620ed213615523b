"""A majority over sets that were calibrated apart: how many must hold a label, and what poison can change.

Each of k_c calibration parts gives a set; a label belongs to the majority set if more than ``threshold``
of them hold it. The sets share the test point, so their memberships are not independent: given the rank u
of the point's score, part j holds the label with probability ``F_j(u)``, the distribution function of
the beta law of the part's threshold, and the miscoverage is the integral over u of the probability that at
most ``threshold`` parts hold it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

from assay.core.errors import MethodError
from assay.core.levels import lower_rank

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

RANKS = ("published", "tight")
MAJORITIES = ("binomial", "exact")
_PANELS, _NODES = 400, 8
_GUARD = 1e-9


def conformity_rank(n: int, alpha: Fraction, rank: str) -> int:
    """Rank of a part's threshold among its n scores, from the worst one; 0: too few rows, every label.

    "tight" is the split-conformal rank ``floor((n + 1) alpha)``; "published" is one less, but at least 1.
    """
    tight = lower_rank(n, alpha)
    return tight if rank == "tight" or tight == 0 else max(tight - 1, 1)


def binomial_threshold(n_parts: int, alpha: Fraction) -> int:
    """The paper's: the largest t with ``P(Bin(n_parts, 1 - alpha) <= t) <= alpha``, in exact arithmetic."""
    total, t = Fraction(0), -1
    while t + 1 < n_parts:
        i = t + 1
        total += comb(n_parts, i) * (1 - alpha) ** i * alpha ** (n_parts - i)
        if total > alpha:
            break
        t = i
    return t


def miscoverage(sizes: Sequence[int], ranks: Sequence[int]) -> FloatArray:
    """(k + 1,) exact miscoverage of the majority over k parts for the thresholds 0, 1, ..., k.

    For scores without ties; ties can only lower it. ``ranks`` as of :func:`conformity_rank`.
    """
    u, weight = _nodes()
    counts = _poisson_binomial(_held(sizes, ranks, u))
    return np.asarray(counts.cumsum(axis=1).T @ weight)


def exact_threshold(sizes: Sequence[int], ranks: Sequence[int], alpha: Fraction) -> int:
    """The largest threshold whose miscoverage is at most alpha; -1 lets every label in."""
    return _largest(miscoverage(sizes, ranks), alpha)


def _largest(missed: FloatArray, alpha: Fraction) -> int:
    """The largest t below k with missed[t] <= alpha."""
    return int(np.count_nonzero(missed[:-1] <= float(alpha) + _GUARD)) - 1


@dataclass(frozen=True)
class MajorityRule:
    """How many parts must hold a label, and the same after poisoning.

    Attributes
    ----------
    n_parts : int
    threshold : int
        A label is in the set if more than so many parts hold it.
    highest, lowest : (n_parts + 1,)
        The highest and lowest threshold after 0, 1, ... poisoned rows. The paper's rule knows the number
        of parts alone and never changes; the exact one depends on their sizes, which poison can change.
    """

    n_parts: int
    threshold: int
    highest: IntArray
    lowest: IntArray

    @classmethod
    def make(
        cls, majority: str, sizes: Sequence[int], alpha: Fraction, rank: str, *, poisoned: bool = False
    ) -> MajorityRule:
        """The rule for parts of those sizes; the bounds of the exact one are computed if ``poisoned``."""
        if majority not in MAJORITIES or rank not in RANKS:
            raise MethodError(
                f"majority must be one of {', '.join(MAJORITIES)} and rank one of {', '.join(RANKS)}, "
                f"got {majority!r} and {rank!r}"
            )
        k = len(sizes)
        if majority == "binomial":
            t = binomial_threshold(k, alpha)
            return cls(k, t, np.full(k + 1, t), np.full(k + 1, t))
        t = exact_threshold(sizes, [conformity_rank(n, alpha, rank) for n in sizes], alpha)
        if not poisoned:
            return cls(k, t, np.full(k + 1, t), np.full(k + 1, t))
        return cls(k, t, *_exact_bounds(sizes, alpha, rank, t))

    def coverage_radius(self, certain: IntArray) -> IntArray:
        """The most poisoned rows after which a label that ``certain`` parts hold is still in; -1 for none."""
        needed = self.highest + np.arange(self.n_parts + 1) + 1
        return _last_true(certain[..., None] >= _running_max(needed))

    def size_radius(self, possible: IntArray) -> IntArray:
        """The most poisoned rows after which a label that ``possible`` parts may hold is still out; or -1."""
        allowed = self.lowest - np.arange(self.n_parts + 1)
        return _last_true(possible[..., None] <= -_running_max(-allowed))


def _running_max(values: IntArray) -> IntArray:
    return np.asarray(np.maximum.accumulate(values))


def _last_true(holds: NDArray[np.bool_]) -> IntArray:
    """How many leading conditions hold, less one."""
    return np.asarray(np.count_nonzero(holds, axis=-1) - 1)


def _held(sizes: Sequence[int], ranks: Sequence[int], u: FloatArray) -> FloatArray:
    """(k, m) probability that each part holds the label at each of m ranks u."""
    parts = list(zip(sizes, ranks, strict=True))
    known = {(size, rank): _law(size, rank, u) for size, rank in set(parts)}
    return np.array([known[part] for part in parts])


def _law(size: int, rank: int, u: FloatArray) -> FloatArray:
    """P(threshold <= u) where the threshold is the rank-th smallest of ``size`` uniforms; 1 for rank 0."""
    return np.ones_like(u) if rank == 0 else np.asarray(betainc(rank, size - rank + 1, u))


def _nodes() -> tuple[FloatArray, FloatArray]:
    """Composite Gauss-Legendre nodes and weights on [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(_NODES)
    width = 1 / _PANELS
    left = np.arange(_PANELS)[:, None] * width
    return (left + (x + 1) / 2 * width).ravel(), np.tile(w / 2 * width, _PANELS)


def _add_trial(counts: FloatArray, p: FloatArray) -> FloatArray:
    """Distribution of a count (m, k) after one more trial with probability p (m,)."""
    out = np.zeros((len(counts), counts.shape[1] + 1))
    out[:, :-1] = counts * (1 - p)[:, None]
    out[:, 1:] += counts * p[:, None]
    return out


def _poisson_binomial(p: FloatArray) -> FloatArray:
    """(m, k + 1) distribution of the number of successes of k trials at m points."""
    counts = np.ones((p.shape[1], 1))
    for row in p:
        counts = _add_trial(counts, row)
    return counts


def _exact_bounds(
    sizes: Sequence[int], alpha: Fraction, rank: str, threshold: int
) -> tuple[IntArray, IntArray]:
    """(highest, lowest) threshold of the exact rule after 0 .. k rows were added, taken away or changed.

    Highest: at each u the r parts least likely to hold the label hold it for certain. Lowest: the r
    parts most likely to hold it do so only with the lowest probability of any part whose size changed by at
    most r. Both are as bad as, or worse than, anything that r rows can do.
    """
    u, weight = _nodes()
    k = len(sizes)
    p = np.sort(_held(sizes, [conformity_rank(n, alpha, rank) for n in sizes], u), axis=0)
    highest, lowest = np.full(k + 1, k), np.full(k + 1, -1)
    highest[0] = lowest[0] = threshold
    top, bottom = [np.ones((len(u), 1))], [np.ones((len(u), 1))]
    for part in range(k):
        top.append(_add_trial(top[-1], p[k - 1 - part]))
        bottom.append(_add_trial(bottom[-1], p[part]))
    spread = np.ones_like(u)
    for r in range(1, k):
        # P(r + count of the others <= t) for t = r, r + 1, ...; below r it is 0
        others = top[k - r].cumsum(axis=1).T @ weight
        highest[r] = r - 1 + int(np.count_nonzero(others <= float(alpha) + _GUARD))
        for n in {max(n + d, 0) for n in set(sizes) for d in (-r, r)} | (set(sizes) if r == 1 else set()):
            spread = np.minimum(spread, _law(n, conformity_rank(n, alpha, rank), u))
        counts = bottom[k - r]
        for _ in range(r):
            counts = _add_trial(counts, spread)
        lowest[r] = _largest(counts.cumsum(axis=1).T @ weight, alpha)
        if lowest[r] < r and highest[r] + r >= k:
            break
    return np.minimum(highest, k), lowest
