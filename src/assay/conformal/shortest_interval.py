"""The shortest interval of a conditional distribution: how the miscoverage is shared between the sides."""

from __future__ import annotations

import operator
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from assay.core.checks import FloatArray
from assay.core.errors import MethodError
from assay.core.levels import parse_alpha


def shortest_interval(
    quantile_fn: Callable[[FloatArray], FloatArray],
    alpha: Any,
    n_beta: int = 5,
    fixed_beta: float | None = None,
) -> FloatArray:
    """[Q(beta), Q(1 - alpha + beta)] with the beta that makes it shortest.

    Parameters
    ----------
    quantile_fn : callable
        (m,) levels in [0, 1] -> (m,) quantiles; called once.
    alpha : level
        Miscoverage.
    n_beta : int
        Number of beta tried, evenly spaced over [0, alpha] with both ends. Default 5, from the
        code of EnbPI, SPCI and KOWCPI.
    fixed_beta : float in [0, alpha], optional
        This beta and no search; ``alpha / 2`` gives equal sides.

    Returns
    -------
    (2,) float64 array
        The first of the shortest where several are.

    Raises
    ------
    MethodError
        ``n_beta`` below 2, or ``fixed_beta`` outside [0, alpha].
    """
    levels = beta_levels(alpha if isinstance(alpha, Fraction) else parse_alpha(alpha), n_beta, fixed_beta)
    return shortest_of(np.asarray(quantile_fn(levels), dtype=np.float64))


def shortest_of(quantiles: FloatArray) -> FloatArray:
    """(2,) ends of the first shortest pair; ``quantiles`` (2 m,) has m lower ends, then their upper ends."""
    pairs = quantiles.reshape(2, -1)
    return np.array(pairs[:, int((pairs[1] - pairs[0]).argmin())])


@lru_cache(maxsize=64)
def beta_levels(alpha: Fraction, n_beta: int, fixed_beta: float | None) -> FloatArray:
    """(2 m,) levels of the m lower ends, then of their upper ends; exact until they are floats."""
    if fixed_beta is not None:
        beta = Fraction(str(fixed_beta))
        if not 0 <= beta <= alpha:
            raise MethodError(f"fixed_beta must lie in [0, alpha = {float(alpha):g}], got {fixed_beta!r}")
        betas = [beta]
    else:
        if operator.index(n_beta) < 2:
            raise MethodError(f"n_beta is {n_beta}; at least 2 are needed, the two ends of [0, alpha]")
        betas = [alpha * j / (n_beta - 1) for j in range(n_beta)]
    out = np.array([float(b) for b in betas] + [float(1 - alpha + b) for b in betas])
    out.flags.writeable = False
    return out
