"""Aggregated adaptive conformal inference (AgACI): thresholds of ACI at several rates, aggregated."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from assay.conformal.tracker_compiled import pick, step_for
from assay.conformal.tracker_ranks import GAMMAS, LEVELS, TIE, RankTracker, expert_steps
from assay.core.checks import FloatArray


class _Numbers(NamedTuple):
    experts: int
    clip: bool
    alpha: float
    log_experts: float
    gammas: tuple[float, ...]


class AggregatedTracker(RankTracker):
    """The threshold is a weighted mean of those of ACI at several step sizes.

    The weights are those of the Bernstein online aggregation on the linearised pinball loss at 1 - alpha:
    with the mean f and expert thresholds f_k, ``l_k = (1{s < f} - (1 - alpha)) (f_k - f)`` and

        V_k <- V_k + l_k^2,  E_k = 2^(ceil(log2(max |l_k| + 0.001)) + 1)
        L_k <- L_k + (l_k (1 + eta_k l_k) + E_k 1{eta_k l_k > 1/2}) / 2
        eta_k = min(1 / E_k, sqrt(log K / V_k)),  w_k proportional to eta_k exp(-eta_k L_k)

    Each side of an interval is aggregated by itself where scores are signed. A level outside (0, 1) gives
    the largest or the smallest score kept, since infinite thresholds have no mean. With a horizon above 1
    the experts are judged on what they would have said one step before the score. No guarantee.

    Parameters
    ----------
    alpha : level in (0, 1), default 0.1
        Miscoverage.
    gammas : floats, default 0.001, 0.002, 0.004, ..., 0.128
        The experts' steps.
    window : int or None, default 500
        How many of the last scores are ranked; None: all of them, and memory grows.
    horizon : int, default 1
        The threshold of a score is made without the horizon - 1 scores before it.

    Attributes
    ----------
    threshold_ : float, or (n_series,) array

    References
    ----------
    Zaffran, Feron, Goude, Josse, Dieuleveut (2022), Adaptive conformal predictions for time series, ICML.
    Wintenberger (2017), Optimal learning with Bernstein online aggregation.
    """

    #: the experts' quantiles are averaged: the largest finite one stands for infinity
    infinite_scores = False

    def __init__(
        self,
        alpha: Any = 0.1,
        gammas: Iterable[float] = GAMMAS,
        window: int | None = 500,
        *,
        horizon: int = 1,
    ) -> None:
        self.alpha = alpha
        self.gammas = gammas
        self.window = window
        self.horizon = horizon

    def _parameters(self) -> _Numbers:
        gammas = expert_steps(self.gammas)
        return _Numbers(len(gammas), True, self._level(), math.log(len(gammas)), gammas)

    def _columns(self) -> dict[str, int]:
        k = len(tuple(self.gammas))
        return {"variances": k, "largest": k, "losses": k, "rates": k}

    def _begin(self, p: _Numbers, c: FloatArray) -> None:
        k = p.experts
        c[LEVELS : LEVELS + k], c[LEVELS + 2 * k : LEVELS + 3 * k] = p.alpha, 1 / k


@step_for(_Numbers)
def _step(p: Any, c: Any, s: Any, q: Any, pvalue: Any, n: Any) -> None:
    k = p.experts
    quantiles, weights, own = LEVELS + k, LEVELS + 2 * k, LEVELS + 3 * k
    mean = 0.0 * pvalue
    for i in range(k):
        mean = mean + c[weights + i] * c[quantiles + i]
    known = np.isfinite(mean)
    slope = (s < mean) * 1.0 - (1.0 - p.alpha)
    highest = 0.0 * pvalue - np.inf
    for i in range(k):
        variance, largest, loss, rate = own + i, own + k + i, own + 2 * k + i, own + 3 * k + i
        part = pick(known, slope * (c[quantiles + i] - mean), 0.0)
        c[variance] = c[variance] + part * part
        c[largest] = np.maximum(c[largest], np.abs(part))
        bound = 2.0 ** (np.ceil(np.log2(c[largest] + 1e-3)) + 1.0)
        over = (c[rate] * part > 0.5) * 1.0
        c[loss] = c[loss] + 0.5 * (part * (1.0 + c[rate] * part) + bound * over)
        # without losses the root is infinite, and with one expert 0 / 0: the bound decides
        root = pick(c[variance] > 0, np.sqrt(p.log_experts / c[variance]), np.inf)
        c[rate] = np.minimum(1.0 / bound, root)
        highest = np.maximum(highest, -c[rate] * c[loss])
        c[LEVELS + i] = c[LEVELS + i] + p.gammas[i] * (p.alpha - (pvalue - c[LEVELS + i] <= TIE) * 1.0)
    total = 0.0 * pvalue
    for i in range(k):
        loss, rate = own + 2 * k + i, own + 3 * k + i
        c[weights + i] = c[rate] * np.exp(-c[rate] * c[loss] - highest)
        total = total + c[weights + i]
    for i in range(k):
        c[weights + i] = pick(total > 0, c[weights + i] / total, 1.0 / k)
