"""Conformal PID control: a quantile tracker, the integral of its error, and a forecast of the score."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from assay.conformal.tracker_base import positive, whole_number
from assay.conformal.tracker_compiled import pick, step_for
from assay.conformal.tracker_steps import OWN, THRESHOLD, StepTracker

_BASE, _MISSES = OWN, OWN + 1
_RIGHT_ANGLE = math.pi / 2


class _Numbers(NamedTuple):
    alpha: float
    lr: float
    integral: float
    saturation: float


class PIDTracker(StepTracker):
    """A quantile tracker (P) with a correction that grows with the error accumulated so far (I).

        base_{t+1} = base_t + eta_t (1{s_t > q_t} - alpha)
        q_{t+1} = base_{t+1} + K_I tan(x_t log(t + 1) / (C_sat (t + 1)))

    from ``q_0 = base_0 = 0``, where ``x_t`` is the number of misses before step t less ``alpha t``, and the
    tangent is +-infinite beyond a right angle. ``eta_t`` is ``lr`` times the range of the last ``window``
    scores before s_t, and ``lr`` for the first.

    Parameters
    ----------
    alpha : level in (0, 1), default 0.1
        Miscoverage.
    lr : float, "auto" or several floats, default 0.1
        "auto" weighs trackers with 1, 0.5, 0.1 and 0.05 by how they did so far; what holds for one tracker
        is not promised for the mixture.
    integral_gain : float, default 10.0
        K_I, in the unit of the scores; published: 200 for stocks, 10 elsewhere. 0 leaves the
        correction out: gradient descent with the adaptive step.
    saturation : float, default 5.0
        C_sat; published: 1 for stocks, 5 elsewhere.
    window : int, default 100
        Scores that the range is of.
    horizon : int, default 1
        The threshold of a score is made without the horizon - 1 scores before it.

    Attributes
    ----------
    threshold_ : float, or (n_series,) array

    References
    ----------
    Angelopoulos, Candes, Tibshirani (2023), Conformal PID control for time series prediction, NeurIPS.
    """

    def __init__(
        self,
        alpha: Any = 0.1,
        lr: Any = 0.1,
        integral_gain: float = 10.0,
        saturation: float = 5.0,
        window: int = 100,
        *,
        horizon: int = 1,
    ) -> None:
        self.alpha = alpha
        self.lr = lr
        self.integral_gain = integral_gain
        self.saturation = saturation
        self.window = window
        self.horizon = horizon

    def _columns(self) -> dict[str, int]:
        return {"base": 1, "misses": 1}

    def _window(self) -> int:
        return whole_number(self.window, "window")

    def _parameters(self, lr: float) -> _Numbers:
        gain = 0.0 if self.integral_gain == 0 else positive(self.integral_gain, "integral_gain")
        return _Numbers(self._level(), lr, gain, positive(self.saturation, "saturation"))


@step_for(_Numbers)
def _step(p: Any, c: Any, s: Any, q: Any, spread: Any, k: Any) -> None:
    angle = (c[_MISSES] - p.alpha * k) * np.log(k + 1.0) / (p.saturation * (k + 1.0))
    inside = np.minimum(np.maximum(angle, -_RIGHT_ANGLE), _RIGHT_ANGLE)
    correction = pick(np.abs(angle) >= _RIGHT_ANGLE, np.copysign(np.inf, angle), np.tan(inside))
    correction = pick(p.integral > 0, p.integral * correction, 0.0)
    miss = (s > q) * 1.0
    c[_MISSES] = c[_MISSES] + miss
    c[_BASE] = c[_BASE] + p.lr * spread * (miss - p.alpha)
    c[THRESHOLD] = c[_BASE] + correction
