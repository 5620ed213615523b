"""One-sided confidence bounds on what Monte-Carlo samples estimate; each fails with probability delta."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import betaincinv

from assay.core.checks import FloatArray
from assay.core.errors import MethodError


def clopper_pearson_lower(hits: Any, n_samples: int, delta: float) -> FloatArray:
    """Lower bound on a probability from ``hits`` of ``n_samples`` independent trials; 0 without a hit."""
    x = _hits(hits, n_samples)
    with np.errstate(invalid="ignore"):
        bound = betaincinv(np.maximum(x, 1), n_samples - x + 1, delta)
    return np.where(x == 0, 0.0, bound)


def clopper_pearson_upper(hits: Any, n_samples: int, delta: float) -> FloatArray:
    """Upper bound on a probability from ``hits`` of ``n_samples`` independent trials; 1 if all are hits."""
    x = _hits(hits, n_samples)
    bound = 1 - betaincinv(np.maximum(n_samples - x, 1), x + 1, delta)
    return np.where(x == n_samples, 1.0, bound)


def _hits(hits: Any, n_samples: int) -> FloatArray:
    x = np.asarray(hits, dtype=np.float64)
    if n_samples < 1 or (x < 0).any() or (x > n_samples).any():
        raise MethodError(f"hits must lie between 0 and n_samples = {n_samples}, got {hits!r}")
    return x


def hoeffding_error(n_samples: int, delta: float) -> float:
    """How far the mean of samples in [0, 1] lies from its expectation, to one side.

    The same number bounds an empirical distribution function at all points at once, to one side
    (Dvoretzky-Kiefer-Wolfowitz with Massart's constant; delta at most 1/2).
    """
    return float(np.sqrt(np.log(1 / delta) / (2 * n_samples)))


def bernstein_error(variance: Any, n_samples: int, delta: float) -> FloatArray:
    """The same from the unbiased sample variance (empirical Bernstein, Maurer and Pontil 2009)."""
    if n_samples < 2:
        raise MethodError(f"a sample variance needs at least 2 samples, got {n_samples}")
    log = np.log(2 / delta)
    spread = np.sqrt(2 * np.asarray(variance, dtype=np.float64) * log / n_samples)
    return np.asarray(spread + 7 * log / (3 * (n_samples - 1)))
