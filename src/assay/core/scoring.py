"""Proper scores of predictive distributions: the true distribution has the least expected score."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.special import ndtr

from assay.core.checks import FloatArray, check_vector
from assay.core.distributions import (
    CategoricalDistribution,
    GaussianDistribution,
    MixtureDistribution,
    NumericDistribution,
)
from assay.core.probabilities import check_labels, known_labels

_ROOT_PI = float(np.sqrt(np.pi))
_ROOT_2PI = float(np.sqrt(2 * np.pi))
_CHUNK = 2**22
#: draws of the estimate where there is no closed form
CRPS_DRAWS = 1000
#: the step of the trapezoid rule in sd of the narrowest component: its error is then below rounding
_STEP = 0.5
#: sd from the outermost means at which a mixture's tails are cut
_TAIL = 9.0


def crps(dist: NumericDistribution, y: Any, random_state: int = 0) -> FloatArray:
    """(n,) continuous ranked probability scores, in the units of y: ``E|Y - y| - E|Y - Y'| / 2``.

    Exact for Gaussians and mixtures of Gaussians; for any other distribution the fair estimate from
    ``CRPS_DRAWS`` draws (see :func:`crps_is_exact`).
    """
    target = check_vector(y, "y", length=len(dist))
    if isinstance(dist, GaussianDistribution):
        z = (target - dist.mean) / dist.std
        return np.asarray(dist.std * (z * (2 * ndtr(z) - 1) + 2 * _density(z) - 1 / _ROOT_PI))
    if isinstance(dist, MixtureDistribution):
        means, variances, weights = dist.components
        distance = (weights * _mean_distance(target - means, np.sqrt(variances))).sum(axis=0)
        return np.asarray(distance - 0.5 * _spread_of_mixture(means, variances, weights))
    draws = np.sort(dist.sample(CRPS_DRAWS, random_state), axis=1)
    m = draws.shape[1]
    # sum over pairs |a - b| = 2 sum (2 i - m - 1) a_(i), over m (m - 1) ordered pairs
    rank = 2 * np.arange(1, m + 1) - m - 1
    return np.asarray(np.abs(draws - target[:, None]).mean(axis=1) - draws @ rank / (m * (m - 1)))


def crps_is_exact(dist: NumericDistribution) -> bool:
    """Whether :func:`crps` has a closed form for it."""
    return isinstance(dist, GaussianDistribution | MixtureDistribution)


def brier(dist: CategoricalDistribution, y: Any) -> FloatArray:
    """(n,) Brier scores: squared distance of the probabilities from the truth, in [0, 2]."""
    codes = known_labels(check_labels(y, length=len(dist)), dist.classes)
    rest = dist.proba.copy()
    rest[np.arange(len(rest)), codes] -= 1
    return np.asarray((rest**2).sum(axis=1))


def _density(z: FloatArray) -> FloatArray:
    return np.asarray(np.exp(-0.5 * z**2) / _ROOT_2PI)


def _mean_distance(mean: FloatArray, scale: FloatArray) -> FloatArray:
    """E|N(mean, scale^2)|."""
    z = mean / scale
    return np.asarray(mean * (2 * ndtr(z) - 1) + 2 * scale * _density(z))


def _spread_of_mixture(means: FloatArray, variances: FloatArray, weights: FloatArray) -> FloatArray:
    """(n,) E|Y - Y'| of two independent draws of each mixture.

    A double sum over the components, or where that is the longer way the trapezoid rule for
    ``2 * integral of F (1 - F)``, which is exact to rounding for a function this smooth.
    """
    m, n = means.shape
    scales = np.sqrt(variances)
    out = np.empty(n)
    for i in range(n):
        mu, s, w = means[:, i], scales[:, i], weights[:, i]
        low, high = float((mu - _TAIL * s).min()), float((mu + _TAIL * s).max())
        step = _STEP * float(s.min())
        if (high - low) / step >= m:
            out[i] = _pairs(mu, variances[:, i], w)
            continue
        grid = np.arange(low, high + step, step)
        F = w @ ndtr((grid - mu[:, None]) / s[:, None])
        out[i] = 2 * step * float((F * (1 - F)).sum())
    return out


def _pairs(mu: FloatArray, variance: FloatArray, w: FloatArray) -> float:
    m, total = len(mu), 0.0
    rows = max(1, _CHUNK // m)
    for start in range(0, m, rows):
        part = slice(start, start + rows)
        distance = _mean_distance(
            mu[part, None] - mu[None, :], np.sqrt(variance[part, None] + variance[None, :])
        )
        total += float(w[part] @ distance @ w)
    return total
