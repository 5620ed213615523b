"""Online gradient descent with steps that become smaller."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from assay.conformal.tracker_base import positive
from assay.conformal.tracker_compiled import pick, step_for
from assay.conformal.tracker_steps import THRESHOLD, StepTracker
from assay.core.errors import MethodError


class _Numbers(NamedTuple):
    alpha: float
    lr: float
    relative: float
    power: float


class DecayingGradientTracker(StepTracker):
    """``q_{t+1} = q_t + lr t^(-1/2 - epsilon) (1{s_t > q_t} - alpha)``, t = 1, 2, ..., ``q_1 = 0``.

    Settles where scores come from one distribution; the further it is, the slower it follows a shift.

    Parameters
    ----------
    alpha : level in (0, 1), default 0.1
        Miscoverage.
    lr : float, "auto" or several floats, default 1.0
        First step, in the unit of the scores. "auto" weighs
        trackers with 30, 10, 3, 1, 0.3 times the range of the last 100 scores by how they did so
        far; what holds for one tracker is not promised for the mixture.
    epsilon : float in (0, 1/2), default 0.1
        The paper's.
    horizon : int, default 1
        The threshold of a score is made without the horizon - 1 scores before it.

    Attributes
    ----------
    threshold_ : float, or (n_series,) array

    References
    ----------
    Angelopoulos, Barber, Bates (2024), Online conformal prediction with decaying step sizes, ICML.
    """

    rates = (30.0, 10.0, 3.0, 1.0, 0.3)

    def __init__(self, alpha: Any = 0.1, lr: Any = 1.0, epsilon: float = 0.1, *, horizon: int = 1) -> None:
        self.alpha = alpha
        self.lr = lr
        self.epsilon = epsilon
        self.horizon = horizon

    def _window(self) -> int:
        return 100 if self._relative() else 0

    def _parameters(self, lr: float) -> _Numbers:
        epsilon = positive(self.epsilon, "epsilon")
        if epsilon >= 0.5:
            raise MethodError(f"epsilon must lie in (0, 1/2), got {self.epsilon!r}")
        return _Numbers(self._level(), lr, self._relative(), -0.5 - epsilon)


@step_for(_Numbers)
def _step(p: Any, c: Any, s: Any, q: Any, spread: Any, k: Any) -> None:
    unit = pick(p.relative > 0, pick(k == 0, np.abs(s), spread), 1.0)
    c[THRESHOLD] = c[THRESHOLD] + p.lr * unit * (k + 1.0) ** p.power * ((s > q) * 1.0 - p.alpha)
