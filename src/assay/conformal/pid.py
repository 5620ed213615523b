"""Conformal PID control: a quantile tracker, the integral of its error, and a forecast of the score."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from assay.conformal.tracker_base import State, positive, whole_number
from assay.conformal.tracker_compiled import pick, step_for
from assay.conformal.tracker_steps import OWN, SEEN, THRESHOLD, StepTracker
from assay.core.checks import FloatArray
from assay.core.errors import MethodError, MissingDependency

_BASE, _MISSES = OWN, OWN + 1
_RIGHT_ANGLE = math.pi / 2


class _Numbers(NamedTuple):
    alpha: float
    lr: float
    integral: float
    saturation: float


class PIDTracker(StepTracker):
    """A quantile tracker (P), a correction that grows with the error so far (I), and a scorecaster (D).

        base_{t+1} = base_t + eta_t (1{s_t > q_t} - alpha)
        q_{t+1} = base_{t+1} + K_I tan(x_t log(t + 1) / (C_sat (t + 1))) + g_{t+1}

    from ``q_0 = base_0 = 0``, where ``x_t`` is the number of misses before step t less ``alpha t``, and the
    tangent is +-infinite beyond a right angle. ``eta_t`` is ``lr`` times the range of the last ``window``
    scores before s_t, and ``lr`` for the first. ``g_{t+1}`` is the scorecaster's forecast of the score to
    come, 0 without one and until ``window`` scores are known.

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
    scorecaster : None, "theta" or callable, default None
        "theta" is the paper's, the Theta method fitted anew at every step (extra ``forecast``), some 10 ms a
        score and series. A callable ``scorecaster(past, h) -> float`` is given (m,) scores, the newest
        last, and forecasts the h-th after them, h the horizon. It costs the compiled loop its speed.
    memory : int, default 500
        The scorecaster is given at most so many past scores; the paper's code has all.
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
        scorecaster: Any = None,
        memory: int = 500,
        horizon: int = 1,
    ) -> None:
        self.alpha = alpha
        self.lr = lr
        self.integral_gain = integral_gain
        self.saturation = saturation
        self.window = window
        self.scorecaster = scorecaster
        self.memory = memory
        self.horizon = horizon

    def _columns(self) -> dict[str, int]:
        return {"base": 1, "misses": 1}

    def _window(self) -> int:
        return whole_number(self.window, "window")

    def _parameters(self, lr: float) -> _Numbers:
        gain = 0.0 if self.integral_gain == 0 else positive(self.integral_gain, "integral_gain")
        return _Numbers(self._level(), lr, gain, positive(self.saturation, "saturation"))

    def _fresh(self, n_series: int) -> State:
        if self.scorecaster is None:
            return super()._fresh(n_series)
        self._cast()
        kept = max(whole_number(self.memory, "memory"), self._window()) + self._delay()
        return super()._fresh(n_series) | {"past": np.full((n_series, kept), np.nan)}

    def _cast(self) -> Callable[[FloatArray, int], float]:
        if self.scorecaster == "theta":
            if importlib.util.find_spec("statsforecast") is None:
                raise MissingDependency("scorecaster='theta' needs: pip install 'assay[forecast]'")
            return theta
        if not callable(self.scorecaster):
            raise MethodError(f"scorecaster must be None, 'theta' or callable, got {self.scorecaster!r}")
        return self.scorecaster  # type: ignore[no-any-return]

    def _run(self, state: State, scores: FloatArray, out: FloatArray) -> None:
        if self.scorecaster is None:
            super()._run(state, scores, out)
            return
        cast, delay, past = self._cast(), self._delay(), state["past"]
        for t in range(scores.shape[1]):
            now, before = np.ascontiguousarray(scores[:, t : t + 1]), np.empty((len(scores), 1))
            super()._run(state, now, before)
            out[:, t] = before[:, 0]
            for i in np.flatnonzero(~np.isnan(now[:, 0])):
                past[i, :-1], past[i, -1] = past[i, 1:].copy(), now[i, 0]
                learned = int(state["shared"][SEEN, i]) - delay
                # a step that has learned sets the threshold anew, without a forecast
                if learned >= max(self._window(), 1):
                    known = past[i, : past.shape[1] - delay]
                    g = float(cast(known[-min(learned, len(known)) :].copy(), delay + 1))
                    if not math.isfinite(g):
                        raise MethodError(f"the scorecaster forecast {g} for series {i}")
                    state["values"][:, THRESHOLD, i] += g

    def _pack(self, state: State) -> State:
        return super()._pack(state) | {name: state[name] for name in ("past",) if name in state}

    def _unpack(self, packed: State) -> State:
        past = {name: packed[name] for name in ("past",) if name in packed}
        own = {name: array for name, array in packed.items() if name not in past}
        return super()._unpack(own) | past


def theta(past: FloatArray, horizon: int) -> float:
    """Forecast of the Theta method, without a season, ``horizon`` steps after (m,) scores."""
    from statsforecast.models import Theta

    if past.min() == past.max():
        return float(past[-1])
    forecast = Theta(season_length=1).forecast(past, h=horizon)["mean"]
    return float(forecast[horizon - 1])


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
