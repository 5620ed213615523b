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
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from assay.conformal.tracker_base import State, positive
from assay.conformal.tracker_compiled import compiled, has_numba
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


def fresh_mixture(n_series: int, n_rates: int, delay: int) -> State:
    """Arrays of n series whose experts weigh the same."""
    return {
        "rate_weights": np.full((n_series, n_rates), 1 / n_rates),
        "rate_loss": np.zeros((n_series, 2)),
        "rate_pending": np.full((n_series, delay, n_rates + 1), np.nan),
    }


def mix(level: float, state: State, thresholds: FloatArray, scores: FloatArray, out: FloatArray) -> None:
    """Weigh (R, n, T) thresholds of the experts into out (n, T), learning scores (n, T) on the way."""
    drive = compiled(build_mixer, None) if has_numba() else mix_arrays
    n_rates = len(thresholds)
    gain = (math.log(2 * n_rates * MEMORY) + 1) / MEMORY
    drive(
        level, gain, state["rate_weights"], state["rate_loss"], state["rate_pending"], thresholds, scores, out
    )


def mixed(state: State, thresholds: FloatArray) -> FloatArray:
    """(n,) weighted thresholds of (R, n) experts."""
    return _mean(state["rate_weights"], thresholds)


def _mean(weights: FloatArray, thresholds: FloatArray) -> FloatArray:
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


def mix_arrays(
    level: float,
    gain: float,
    weights: FloatArray,
    loss: FloatArray,
    pending: FloatArray,
    thresholds: FloatArray,
    scores: FloatArray,
    out: FloatArray,
) -> None:
    """All series together.

    ``weights`` is (n, R); ``loss`` (n, 2) the mean squared loss and how many it is of; ``pending``
    (n, h - 1, R + 1) scores and thresholds whose time has not come.
    """
    delay = pending.shape[1]
    for t in range(scores.shape[1]):
        now, s = thresholds[:, :, t], scores[:, t].copy()
        out[:, t] = _mean(weights, now)
        rows = np.flatnonzero(~np.isnan(s))
        seen = loss[rows, 1].astype(np.int64)
        loss[rows, 1] += 1
        s, q = s[rows], now[:, rows]
        if delay:
            slot = seen % delay
            due = pending[rows, slot]
            pending[rows, slot, 0], pending[rows, slot, 1:] = s, q.T
            ready = seen >= delay
            rows, s, q, seen = rows[ready], due[ready, 0], due[ready, 1:].T, seen[ready] - delay
        if len(rows):
            _reweigh(level, gain, weights, loss, rows, s, q, seen)


def _reweigh(
    level: float,
    gain: float,
    weights: FloatArray,
    loss: FloatArray,
    rows: Any,
    s: FloatArray,
    q: FloatArray,
    k: Any,
) -> None:
    losses = np.where(s > q, (s - q) * (1 - level), (q - s) * level)
    least = losses.min(axis=0)
    told = least < _LARGEST
    rows, losses, least, k = rows[told], losses[:, told], least[told], k[told]
    bounded = losses < _LARGEST
    losses = np.where(bounded, losses, 0.0)
    w = weights[rows].T
    squared = np.zeros(len(rows))
    for j in range(len(q)):
        squared = squared + w[j] * (losses[j] * losses[j])
    mean = loss[rows, 0] + (squared - loss[rows, 0]) / np.minimum(k + 1, MEMORY)
    loss[rows, 0] = mean
    with np.errstate(all="ignore"):
        eta = np.where(mean > 0, np.sqrt(gain / mean), 0.0)
        w = w * np.where(bounded, np.exp(-eta * (losses - least)), 0.0)
    total = np.zeros(len(rows))
    for j in range(len(q)):
        total = total + w[j]
    sigma = 0.5 / MEMORY
    weights[rows] = ((1 - sigma) * w / total + sigma / len(q)).T


def build_mixer(digest: str) -> Callable[..., None]:
    """The same as :func:`mix_arrays`, one series after the other, for Numba."""

    def drive(
        level: Any, gain: Any, weights: Any, loss: Any, pending: Any, thresholds: Any, scores: Any, out: Any
    ) -> None:
        _ = digest  # makes it part of the key of compiled code
        n_rates, delay = thresholds.shape[0], pending.shape[1]
        sigma = 0.5 / MEMORY
        q, losses = np.empty(n_rates), np.empty(n_rates)
        for i in range(scores.shape[0]):
            for t in range(scores.shape[1]):
                total, mass = 0.0, 0.0
                for j in range(n_rates):
                    q[j] = thresholds[j, i, t]
                    part = max(weights[i, j] - 1 / MEMORY / n_rates, 0.0)
                    total += part * q[j] if part > 0 else 0.0
                    mass += part
                out[i, t] = np.inf if np.isnan(total) else total / mass
                s = scores[i, t]
                if np.isnan(s):
                    continue
                k = int(loss[i, 1])
                loss[i, 1] = k + 1.0
                if delay:
                    slot = k % delay
                    s, pending[i, slot, 0] = pending[i, slot, 0], s
                    for j in range(n_rates):
                        q[j], pending[i, slot, j + 1] = pending[i, slot, j + 1], q[j]
                    if k < delay:
                        continue
                    k -= delay
                least, squared = np.inf, 0.0
                for j in range(n_rates):
                    losses[j] = (s - q[j]) * (1 - level) if s > q[j] else (q[j] - s) * level
                    least = min(least, losses[j])
                    if losses[j] < _LARGEST:
                        squared += weights[i, j] * (losses[j] * losses[j])
                if not least < _LARGEST:
                    continue
                mean = loss[i, 0] + (squared - loss[i, 0]) / min(k + 1, MEMORY)
                loss[i, 0] = mean
                eta = np.sqrt(gain / mean) if mean > 0 else 0.0
                total = 0.0
                for j in range(n_rates):
                    weights[i, j] *= np.exp(-eta * (losses[j] - least)) if losses[j] < _LARGEST else 0.0
                    total += weights[i, j]
                for j in range(n_rates):
                    weights[i, j] = (1 - sigma) * weights[i, j] / total + sigma / n_rates

    return drive
