"""Scale-free online gradient descent."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from assay.conformal.tracker_compiled import pick, step_for
from assay.conformal.tracker_steps import OWN, THRESHOLD, StepTracker


class _Numbers(NamedTuple):
    alpha: float
    lr: float
    relative: float


class ScaleFreeGradientTracker(StepTracker):
    """Gradient descent whose steps are divided by the length of all gradients so far.

    ``g_t = 1{s_t > q_t} - alpha``, ``q_{t+1} = q_t + lr g_t / sqrt(g_1^2 + ... + g_t^2)``, ``q_1 = 0``.

    Parameters
    ----------
    alpha : level in (0, 1), default 0.1
        Miscoverage.
    lr : float, "auto" or several floats, default 1.0
        In the unit of the scores; (largest score) / sqrt(3) is the paper's. "auto" weighs
        trackers with 10, 3, 1, 0.3, 0.1 times the range of the last 100 scores by how they did so
        far; what holds for one tracker is not promised for the mixture.
    horizon : int, default 1
        The threshold of a score is made without the horizon - 1 scores before it.

    Attributes
    ----------
    threshold_ : float, or (n_series,) array

    References
    ----------
    Bhatnagar, Wang, Xiong, Bai (2023), Improved online conformal prediction via strongly adaptive online
    learning, ICML.
    """

    rates = (10.0, 3.0, 1.0, 0.3, 0.1)

    def __init__(self, alpha: Any = 0.1, lr: Any = 1.0, *, horizon: int = 1) -> None:
        self.alpha = alpha
        self.lr = lr
        self.horizon = horizon

    def _columns(self) -> dict[str, int]:
        return {"squared_gradients": 1}

    def _window(self) -> int:
        return 100 if self._relative() else 0

    def _parameters(self, lr: float) -> _Numbers:
        return _Numbers(self._level(), lr, self._relative())


@step_for(_Numbers)
def _step(p: Any, c: Any, s: Any, q: Any, spread: Any, k: Any) -> None:
    unit = pick(p.relative > 0, pick(k == 0, np.abs(s), spread), 1.0)
    gradient = (s > q) * 1.0 - p.alpha
    c[OWN] = c[OWN] + gradient * gradient
    c[THRESHOLD] = c[THRESHOLD] + p.lr * unit * gradient / np.sqrt(c[OWN])
