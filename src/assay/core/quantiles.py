"""Conformal quantiles and p-values. Never an interpolated quantile; ties by ``<=``."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.checks import check_scores, check_target, refuse_nan, to_float, to_numpy
from assay.core.errors import DataError
from assay.core.levels import conformal_rank, lower_rank, parse_alpha, parse_levels, warn_infinite

FloatArray = NDArray[np.float64]

# Accumulated weights are compared with 1 - alpha up to rounding of the sum.
_WEIGHT_TOLERANCE = 1e-12


def conformal_quantile(
    scores: ArrayLike,
    alpha: Any,
    weights: ArrayLike | None = None,
    test_weight: float = 1.0,
    *,
    what: str = "set",
    overwrite: bool = False,
    stacklevel: int = 3,
) -> Any:
    """Threshold of split conformal prediction: the k-th smallest of n scores.

    Parameters
    ----------
    scores : (n,) array
        Nonconformity scores; larger is stranger. +inf is legal, NaN is refused.
    alpha : level or sequence of levels
        Miscoverage. A sequence of L levels gives an (L,) array.
    weights : (n,) array, optional
        Non-negative weights; the quantile is then
        ``min{s : sum_{S_i <= s} w_i / (sum w + test_weight) >= 1 - alpha}``.
    test_weight : float
        Weight of the test point, used only with ``weights``.
    what : str
        Word for the warning ("interval", "set").
    overwrite : bool
        True selects within ``scores`` itself, which is left in another order: no copy.

    Returns
    -------
    float, or (L,) float64 array
        +inf, with an :class:`~assay.core.errors.InfiniteSetWarning`, where
        the scores are too few.

    Raises
    ------
    DataError
        NaN scores, or no scores at all with positive weights missing.
    """
    levels, is_scalar = parse_levels(alpha)
    values = check_scores(scores)
    if weights is not None:
        out = np.array([weighted_quantile(values, 1 - level, weights, test_weight) for level in levels])
        return float(out[0]) if is_scalar else out
    n = len(values)
    ranks = [conformal_rank(n, level) for level in levels]
    out = np.full(len(levels), np.inf)
    inside = sorted({rank for rank in ranks if 1 <= rank <= n})
    if inside:
        part = values if overwrite else values.copy()
        part.partition([rank - 1 for rank in inside])
    for i, rank in enumerate(ranks):
        if rank <= n:
            # rank 0 cannot happen: alpha < 1 gives k >= 1
            out[i] = part[rank - 1]
        else:
            warn_infinite(n, levels[i], what, stacklevel=stacklevel + 1)
    return float(out[0]) if is_scalar else out


def lower_quantile(values: ArrayLike, alpha: Any) -> float:
    """The floor(alpha (n + 1))-th smallest value; -inf where that rank is 0."""
    array = check_scores(values)
    rank = lower_rank(len(array), alpha)
    return -np.inf if rank < 1 else float(np.partition(array, rank - 1)[rank - 1])


def weighted_quantile(
    values: ArrayLike, level: float | Fraction, weights: ArrayLike, test_weight: float = 0.0
) -> float:
    """Smallest value whose accumulated normalised weight reaches ``level``; +inf if none does.

    ``values`` and ``weights`` have shape (n,); the total weight is ``sum(weights) + test_weight``,
    the test weight sitting at +inf.
    """
    v = check_scores(values)
    w = check_target(weights, length=len(v), name="weights")
    negative = w < 0
    if negative.any():
        raise DataError(
            f"weights are negative in {int(negative.sum())} of {len(w)} rows, first at row "
            f"{int(negative.argmax())}; a weight says how often a row counts"
        )
    if not (np.isfinite(test_weight) and test_weight >= 0):
        raise DataError(f"test_weight must be a finite number not below 0, got {test_weight!r}")
    largest = max(float(w.max(initial=0.0)), float(test_weight))
    if largest == 0:
        raise DataError("the weights add up to zero; at least one must be positive")
    order = np.argsort(v, kind="stable")
    # divided by the largest, the sum of huge weights does not overflow; the total is the same sum as
    # the last one accumulated, so that all values together have mass one exactly
    mass = np.cumsum(w[order] / largest)
    mass /= (mass[-1] if len(mass) else 0.0) + test_weight / largest
    at = int(np.searchsorted(mass, float(level) - _WEIGHT_TOLERANCE))
    return float(v[order[at]]) if at < len(v) else float("inf")


def conformal_pvalue(scores: ArrayLike, test_scores: ArrayLike) -> FloatArray:
    """p = (1 + #{S_i >= s}) / (n + 1) for each test score; s is in the set iff p > alpha.

    ``scores`` has shape (n,), ``test_scores`` any shape; the answer has the shape of ``test_scores``.
    """
    calibration = np.sort(check_scores(scores))
    s = to_float(to_numpy(test_scores), "test_scores")
    refuse_nan(np.atleast_1d(s), "test_scores")
    n = len(calibration)
    at_least = n - np.searchsorted(calibration, s, side="left")
    return np.asarray((1 + at_least) / (n + 1), dtype=np.float64)


__all__ = [
    "conformal_pvalue",
    "conformal_quantile",
    "conformal_rank",
    "lower_quantile",
    "lower_rank",
    "parse_alpha",
    "weighted_quantile",
]
