"""Dynamically tuned adaptive conformal inference (DtACI): ACI at several rates, weighted by their loss."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from assay.conformal.tracker_base import positive, whole_number
from assay.conformal.tracker_compiled import step_for
from assay.conformal.tracker_ranks import GAMMAS, LEVELS, TIE, RankTracker, expert_steps
from assay.core.checks import FloatArray
from assay.core.errors import MethodError

_OWN = LEVELS + 3


class _Numbers(NamedTuple):
    experts: int
    clip: bool
    alpha: float
    eta: float
    sigma: float
    gammas: tuple[float, ...]


class DynamicallyTunedTracker(RankTracker):
    """The level is the weighted mean of those of ACI at several step sizes; the threshold is its rank.

    With the p-value beta_t of a score and ``l_i = alpha (beta_t - a_i) - min(0, beta_t - a_i)``,

        w_i <- w_i exp(-eta l_i),  w <- (1 - sigma) w / sum w + sigma / k
        a_i <- a_i + gamma_i (alpha - 1{a_i >= beta_t})

    so that neither a rate nor a unit has to be chosen. With a horizon above 1 the experts are judged on
    what they would have said one step before the score. Infinite scores are legal.

    Parameters
    ----------
    alpha : level in (0, 1), default 0.1
        Miscoverage.
    gammas : floats, default 0.001, 0.002, 0.004, ..., 0.128
        The experts' steps; the paper's.
    window : int or None, default 500
        How many of the last scores are ranked; None: all of them, and memory grows.
    memory : int, default 500
        I, the length of time over which the choice should be good: ``sigma = 1 / (2 I)``.
    eta : float, optional
        Rate of the weights; by default ``sqrt(3 / I) sqrt((log(2 k I) + 1) / ((1 - alpha)^2 alpha^3 +
        alpha^2 (1 - alpha)^3))``, 2.72 for the other defaults.
    sigma : float in [0, 1), optional
        In place of 1 / (2 I).
    horizon : int, default 1
        The threshold of a score is made without the horizon - 1 scores before it.

    Attributes
    ----------
    threshold_ : float, or (n_series,) array

    References
    ----------
    Gibbs, Candes (2024), Conformal inference for online prediction with arbitrary distribution shifts, JMLR.
    """

    def __init__(
        self,
        alpha: Any = 0.1,
        gammas: Iterable[float] = GAMMAS,
        window: int | None = 500,
        *,
        memory: int = 500,
        eta: float | None = None,
        sigma: float | None = None,
        horizon: int = 1,
    ) -> None:
        self.alpha = alpha
        self.gammas = gammas
        self.window = window
        self.memory = memory
        self.eta = eta
        self.sigma = sigma
        self.horizon = horizon

    def _parameters(self) -> _Numbers:
        gammas = expert_steps(self.gammas)
        a, memory, k = self._level(), whole_number(self.memory, "memory"), len(gammas)
        spread = (1 - a) ** 2 * a**3 + a**2 * (1 - a) ** 3
        eta = math.sqrt(3 / memory) * math.sqrt((math.log(2 * k * memory) + 1) / spread)
        sigma = 0.5 / memory if self.sigma is None else float(self.sigma)
        if not 0 <= sigma < 1:
            raise MethodError(f"sigma must lie in [0, 1), got {self.sigma!r}")
        return _Numbers(1, False, a, eta if self.eta is None else positive(self.eta, "eta"), sigma, gammas)

    def _columns(self) -> dict[str, int]:
        k = len(tuple(self.gammas))
        return {"expert_levels": k, "expert_weights": k}

    def _begin(self, p: _Numbers, c: FloatArray) -> None:
        k = len(p.gammas)
        c[LEVELS], c[LEVELS + 2] = p.alpha, 1.0
        c[_OWN : _OWN + k], c[_OWN + k : _OWN + 2 * k] = p.alpha, 1 / k


@step_for(_Numbers)
def _step(p: Any, c: Any, s: Any, q: Any, pvalue: Any, n: Any) -> None:
    k = len(p.gammas)
    total = 0.0 * pvalue
    for i in range(k):
        level, weight = _OWN + i, _OWN + k + i
        gap = pvalue - c[level]
        c[weight] = c[weight] * np.exp(-p.eta * (p.alpha * gap - np.minimum(0.0, gap)))
        c[level] = c[level] + p.gammas[i] * (p.alpha - (gap <= TIE) * 1.0)
        total = total + c[weight]
    mean = 0.0 * pvalue
    for i in range(k):
        level, weight = _OWN + i, _OWN + k + i
        c[weight] = (1.0 - p.sigma) * c[weight] / total + p.sigma / k
        mean = mean + c[weight] * c[level]
    c[LEVELS] = mean
