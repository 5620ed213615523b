"""Strongly adaptive online conformal prediction (SAOCP): experts that begin at every step."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from assay.conformal.tracker_base import positive
from assay.conformal.tracker_compiled import compiled_as, pick, step_for
from assay.conformal.tracker_steps import OWN, THRESHOLD, StepTracker

# an expert that begins at t lives 8 * 2^v steps, 2^v the power of two in t: at most 4 of each v are alive,
# and each begins as the one four before it ends. 2^32 steps are more than a stream has.
_ALIVE, _POWERS = 4, 32
_SLOTS = _ALIVE * _POWERS
_LARGEST = OWN
_QUANTILE, _GRADIENT, _GAIN, _BET, _WEIGHT, _PRIOR = (
    slice(OWN + 1 + i * _SLOTS, OWN + 1 + (i + 1) * _SLOTS) for i in range(6)
)
_AGE = slice(OWN + 1 + 6 * _SLOTS, OWN + 1 + 7 * _SLOTS)


class _Numbers(NamedTuple):
    alpha: float
    scale: float  # 0 for "auto"


class StronglyAdaptiveTracker(StepTracker):
    """The threshold is a weighted mean of scale-free gradient trackers, one begun at every step.

    An expert begins at the threshold in force, moves as :class:`ScaleFreeGradientTracker` with step
    ``D / sqrt(3)``, and lives ``8 * 2^v`` steps, ``2^v`` the largest power of two that divides its first
    step: experts of every age are at hand after a shift. With G_j its gain over the mixture in pinball
    loss, divided by ``D max(alpha, 1 - alpha)`` and cut at 0 below while its weight is not positive,

        weight = (sum of G_j) (1 + sum of weight_j G_j) / age

    and an expert counts by the positive part of its weight times its prior, which is proportional to
    ``1 / (first^2 (1 + floor(log2 first)))``; by the prior alone while no weight is positive.

    Parameters
    ----------
    alpha : level in (0, 1), default 0.1
        Miscoverage.
    scale : float or "auto", default "auto"
        D, a bound on the scores, in their unit. "auto" is the largest absolute score so far, which is
        ours: the paper takes it from data seen before.
    horizon : int, default 1
        The threshold of a score is made without the horizon - 1 scores before it; experts are judged on
        what they would have said one step before the score.

    Attributes
    ----------
    threshold_ : float, or (n_series,) array

    References
    ----------
    Bhatnagar, Wang, Xiong, Bai (2023), Improved online conformal prediction via strongly adaptive online
    learning, ICML.
    """

    def __init__(self, alpha: Any = 0.1, scale: Any = "auto", *, horizon: int = 1) -> None:
        self.alpha = alpha
        self.scale = scale
        self.horizon = horizon

    def _rates(self) -> tuple[float, ...]:
        return (1.0,)

    def _columns(self) -> dict[str, int]:
        blocks = ("quantiles", "squared_gradients", "gains", "bets", "weights", "priors", "ages")
        return {"largest": 1, **dict.fromkeys(blocks, _SLOTS)}

    def _parameters(self, lr: float) -> _Numbers:
        automatic = isinstance(self.scale, str) and self.scale == "auto"
        return _Numbers(self._level(), 0.0 if automatic else positive(self.scale, "scale"))


def _places_one() -> Any:
    return np.arange(_SLOTS)


@compiled_as(_places_one)
def places() -> Any:
    """The numbers of the slots, against which one slot a series can be compared."""
    return np.arange(_SLOTS)[:, None]


@step_for(_Numbers)
def _step(p: Any, c: Any, s: Any, q: Any, spread: Any, k: Any) -> None:
    # the mixture as it stood when this score became known; with horizon 1 it is q
    mixture = c[THRESHOLD] + 0.0
    c[_LARGEST] = np.maximum(c[_LARGEST], np.abs(s))
    scale = pick(p.scale > 0, p.scale, c[_LARGEST])
    unit = pick(scale > 0, scale, 1.0)
    # the first expert of all, which nothing came before
    first = (places() == 0) * ((k == 0) * 1.0)
    alive = np.minimum(c[_PRIOR] + first, 1.0)
    loss = pick(s > mixture, (s - mixture) * (1.0 - p.alpha), (mixture - s) * p.alpha)
    above = (s > c[_QUANTILE]) * 1.0
    losses = (s - c[_QUANTILE]) * (above - p.alpha)
    gain = (alive > 0.0) * (loss - losses) / (unit * max(p.alpha, 1.0 - p.alpha))
    gain = np.maximum(gain, 0.0 * gain - (c[_WEIGHT] > 0.0) * 1e300)
    gradient = above - p.alpha
    age = c[_AGE] + 1.0
    gains = c[_GAIN] + gain
    bets = c[_BET] + c[_WEIGHT] * gain
    squares = c[_GRADIENT] + gradient * gradient
    quantiles = c[_QUANTILE] + scale / np.sqrt(3.0) * gradient / np.sqrt(squares)
    weights = gains * (1.0 + bets) / age
    # the expert that begins with the next score takes the place of the one that ends
    start = k + 2
    power = start & -start
    slot = _ALIVE * np.log2(power * 1.0) + (start // (2 * power)) % _ALIVE
    new = (places() == slot) * 1.0
    old = 1.0 - new
    prior = 1.0 / ((start * 1.0) ** 2 * (1.0 + np.floor(np.log2(start * 1.0))))
    c[_PRIOR] = old * alive + new * prior
    c[_QUANTILE] = old * quantiles + new * mixture
    c[_GRADIENT] = old * squares
    c[_GAIN] = old * gains
    c[_BET] = old * bets
    c[_WEIGHT] = old * weights
    c[_AGE] = old * age
    positive_part = c[_PRIOR] * np.maximum(c[_WEIGHT], 0.0)
    quantile = c[_QUANTILE]
    # sums in one order, so that both readings give the same bits
    total = 0.0 * mixture
    for j in range(_SLOTS):
        total = total + positive_part[j]
    by_prior = (total <= 0.0) * 1.0
    share = (1.0 - by_prior) * positive_part + by_prior * c[_PRIOR]
    mass, moment = 0.0 * mixture, 0.0 * mixture
    for j in range(_SLOTS):
        mass = mass + share[j]
        moment = moment + share[j] * quantile[j]
    c[THRESHOLD] = moment / mass
