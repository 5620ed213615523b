"""Online gradient descent on the pinball loss: the plainest tracker of a quantile."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from assay.conformal.tracker_base import State
from assay.conformal.tracker_compiled import compiled, has_numba, pick, step_for
from assay.conformal.tracker_steps import SEEN, THRESHOLD, StepTracker
from assay.core.checks import FloatArray


class _Numbers(NamedTuple):
    alpha: float
    lr: float
    relative: float


class OnlineGradientTracker(StepTracker):
    """The threshold goes up by ``lr (1 - alpha)`` after a miss and down by ``lr alpha`` after a hit.

    ``q_{t+1} = q_t + lr (1{s_t > q_t} - alpha)``, ``q_0 = 0``. For scores in [0, B] and any sequence,
    ``|share of misses - alpha| <= (B + lr) / (lr T)``.

    Parameters
    ----------
    alpha : level in (0, 1), default 0.1
        Miscoverage.
    lr : float, "auto" or several floats, default 0.1
        Step size, in the unit of the scores. "auto" weighs
        trackers with 1, 0.5, 0.1, 0.05 times the range of the last 100 scores by how they did so
        far; what holds for one tracker is not promised for the mixture.
    horizon : int, default 1
        The threshold of a score is made without the horizon - 1 scores before it.

    Attributes
    ----------
    threshold_ : float, or (n_series,) array

    References
    ----------
    Gibbs, Candes (2021), Adaptive conformal inference under distribution shift.
    Angelopoulos, Candes, Tibshirani (2023), Conformal PID control for time series prediction.
    """

    rates = (1.0, 0.5, 0.1, 0.05)

    def __init__(self, alpha: Any = 0.1, lr: Any = 0.1, *, horizon: int = 1) -> None:
        self.alpha = alpha
        self.lr = lr
        self.horizon = horizon

    def _window(self) -> int:
        return 100 if self._relative() else 0

    def _parameters(self, lr: float) -> _Numbers:
        return _Numbers(self._level(), lr, self._relative())

    def _run(self, state: State, scores: FloatArray, out: FloatArray) -> None:
        rates = self._rates()
        if not has_numba() or len(rates) > 1 or self._delay():
            super()._run(state, scores, out)
            return
        p = self._parameters(rates[0])
        up, down = p.lr * (1.0 - p.alpha), p.lr * -p.alpha
        now, seen = state["values"][0, THRESHOLD], state["shared"][SEEN]
        compiled(build_fixed_driver, None)(up, down, now, seen, scores, out)


def build_fixed_driver(digest: str) -> Callable[..., None]:
    """The step below where nothing but the score decides: numbers in registers, a third of the time."""

    def drive(up: Any, down: Any, threshold: Any, seen: Any, scores: Any, out: Any) -> None:
        _ = digest  # makes it part of the key of compiled code
        for i in range(scores.shape[0]):
            q, known = threshold[i], 0
            for t in range(scores.shape[1]):
                s = scores[i, t]
                out[i, t] = q
                known += not np.isnan(s)
                q += up if s > q else (down if s <= q else 0.0)  # neither holds for NaN
            threshold[i] = q
            seen[i] += known

    return drive


@step_for(_Numbers)
def _step(p: Any, c: Any, s: Any, q: Any, spread: Any, k: Any) -> None:
    unit = pick(p.relative > 0, pick(k == 0, np.abs(s), spread), 1.0)
    c[THRESHOLD] = c[THRESHOLD] + p.lr * unit * ((s > q) * 1.0 - p.alpha)
