"""A threshold from trackers with several learning rates, weighted by how they did so far.

The weights are those of DtACI on the pinball loss of the scores, with its own adaptive step size: with k
experts, memory I and loss l_i of each,

    w_i <- w_i exp(-eta l_i),  eta = sqrt((log(2 k I) + 1) / (I m)),  w <- (1 - sigma) w / sum w + sigma / k

where m is the mean of ``sum w_i l_i^2`` (over all scores so far, then with memory I) and sigma = 1 / (2 I).
The loss may be in any unit, and nothing of the scores to come is used. The threshold is the mean weighted by
``max(w_i - 2 sigma / k, 0)``: an expert that has little more than its share of sigma may be absurd (a rate
a thousand times too large), and its threshold with it. An infinite loss takes all weight but that share, and
where all are infinite nothing is learned. Where counted thresholds are +inf and -inf, the mean is +inf.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from assay.conformal.tracker_base import State, positive
from assay.conformal.tracker_compiled import compiled_as
from assay.core.checks import FloatArray
from assay.core.errors import MethodError

#: I of DtACI, its default
MEMORY = 500
#: a larger loss, such as that of an infinite threshold, cannot be squared and counts as infinite
_LARGEST = 1e150


def learning_rates(lr: Any, automatic: tuple[float, ...]) -> tuple[float, ...]:
    """One rate for a number; the grid for "auto"; the rates of a sequence."""
    if isinstance(lr, str):
        if lr != "auto":
            raise MethodError(f"lr must be a number above 0, several of them, or 'auto', got {lr!r}")
        return automatic
    if isinstance(lr, Iterable) and getattr(lr, "ndim", None) != 0:
        rates = tuple(positive(rate, "lr") for rate in lr)
        if not rates:
            raise MethodError("lr is an empty sequence; give at least one learning rate")
        return rates
    return (positive(lr, "lr"),)


def fresh_mixture(n_series: int, n_rates: int) -> State:
    """Arrays of n series whose experts weigh the same; one expert needs no weights."""
    if n_rates == 1:
        return {}
    return {"rate_weights": np.full((n_series, n_rates), 1 / n_rates), "rate_loss": np.zeros(n_series)}


def loss_gain(n_rates: int) -> float:
    """The factor in eta that does not depend on the losses."""
    return (math.log(2 * n_rates * MEMORY) + 1) / MEMORY


def _mean_one(weights: Any, thresholds: Any) -> Any:
    n_rates = len(thresholds)
    total, mass = 0.0, 0.0
    for j in range(n_rates):
        part = max(weights[j] - 1 / MEMORY / n_rates, 0.0)
        total += part * thresholds[j] if part > 0 else 0.0
        mass += part
    return np.inf if np.isnan(total) else total / mass


@compiled_as(_mean_one)
def mean_threshold(weights: FloatArray, thresholds: FloatArray) -> FloatArray:
    """(n,) mean of (R, n) thresholds by the weights (n, R) beyond what every expert has."""
    n_rates = len(thresholds)
    total, mass = np.zeros(len(weights)), np.zeros(len(weights))
    for j in range(n_rates):
        part = np.maximum(weights[:, j] - 1 / MEMORY / n_rates, 0.0)
        total, mass = total + _share(part, thresholds[j]), mass + part
    return np.where(np.isnan(total), np.inf, total / mass)


@np.errstate(invalid="ignore")
def _share(part: FloatArray, threshold: FloatArray) -> FloatArray:
    return np.where(part > 0, part * threshold, 0.0)


def _reweigh_one(
    level: Any, gain: Any, weights: Any, loss: Any, i: Any, s: Any, thresholds: Any, k: Any
) -> None:
    n_rates = len(thresholds)
    least, squared = np.inf, 0.0
    for j in range(n_rates):
        q = thresholds[j]
        one = (s - q) * (1 - level) if s > q else (q - s) * level
        least = min(least, one)
        if one < _LARGEST:
            squared += weights[i, j] * (one * one)
    if not least < _LARGEST:
        return
    mean = loss[i] + (squared - loss[i]) / min(k + 1, MEMORY)
    loss[i] = mean
    eta = np.sqrt(gain / mean) if mean > 0 else 0.0
    total = 0.0
    for j in range(n_rates):
        q = thresholds[j]
        one = (s - q) * (1 - level) if s > q else (q - s) * level
        weights[i, j] *= np.exp(-eta * (one - least)) if one < _LARGEST else 0.0
        total += weights[i, j]
    sigma = 0.5 / MEMORY
    for j in range(n_rates):
        weights[i, j] = (1 - sigma) * weights[i, j] / total + sigma / n_rates


@compiled_as(_reweigh_one)
def reweigh(
    level: float,
    gain: float,
    weights: FloatArray,
    loss: FloatArray,
    i: Any,
    s: FloatArray,
    thresholds: FloatArray,
    k: Any,
) -> None:
    """Learn which experts were right about scores s (n,) at the places i, of which k came before.

    ``weights`` is (n, R), ``loss`` (n,) the mean squared loss, ``thresholds`` (R, n) those that were in
    force. Compiled code has one place, one score and (R,) thresholds.
    """
    losses = np.where(s > thresholds, (s - thresholds) * (1 - level), (thresholds - s) * level)
    least = losses.min(axis=0)
    told = least < _LARGEST
    i, losses, least, k = i[told], losses[:, told], least[told], k[told]
    bounded = losses < _LARGEST
    losses = np.where(bounded, losses, 0.0)
    w = weights[i].T
    squared = np.zeros(len(i))
    for j in range(len(losses)):
        squared = squared + w[j] * (losses[j] * losses[j])
    mean = loss[i] + (squared - loss[i]) / np.minimum(k + 1, MEMORY)
    loss[i] = mean
    with np.errstate(all="ignore"):
        eta = np.where(mean > 0, np.sqrt(gain / mean), 0.0)
        w = w * np.where(bounded, np.exp(-eta * (losses - least)), 0.0)
    total = np.zeros(len(i))
    for j in range(len(losses)):
        total = total + w[j]
    sigma = 0.5 / MEMORY
    weights[i] = ((1 - sigma) * w / total + sigma / len(losses)).T
