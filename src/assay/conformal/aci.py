"""Adaptive conformal inference (ACI): the level moves, the threshold is a rank among past scores."""

from __future__ import annotations

from typing import Any, NamedTuple

from assay.conformal.tracker_base import positive
from assay.conformal.tracker_compiled import step_for
from assay.conformal.tracker_ranks import LEVELS, RankTracker
from assay.core.checks import FloatArray


class _Numbers(NamedTuple):
    experts: int
    clip: bool
    alpha: float
    gamma: float


class AdaptiveTracker(RankTracker):
    """The level goes down after a miss and up after a hit; the threshold is the rank rule at it.

    ``alpha_{t+1} = alpha_t + gamma (alpha - err_t)``, ``alpha_1 = alpha``. The level is never confined to
    [0, 1]: at or below 0 the threshold is +inf, at or above 1 it is -inf. For every sequence
    ``|share of misses - alpha| <= (max(alpha, 1 - alpha) + gamma) / (gamma T)``.

    A miss is the same as a p-value ``(1 + #{S_i >= s_t}) / (n + 1)`` at or below the level. Infinite
    scores are legal.

    Parameters
    ----------
    alpha : level in (0, 1), default 0.1
        Miscoverage.
    gamma : float, default 0.005
        Step of the level; the paper's.
    window : int or None, default 500
        How many of the last scores are ranked; None: all of them, and memory grows.
    clip : bool, default False
        True replaces +inf by the largest score kept and -inf by the smallest; the bound above is lost.
    horizon : int, default 1
        The threshold of a score is made without the horizon - 1 scores before it.

    Attributes
    ----------
    threshold_ : float, or (n_series,) array

    References
    ----------
    Gibbs, Candes (2021), Adaptive conformal inference under distribution shift, NeurIPS.
    """

    def __init__(
        self,
        alpha: Any = 0.1,
        gamma: float = 0.005,
        window: int | None = 500,
        *,
        clip: bool = False,
        horizon: int = 1,
    ) -> None:
        self.alpha = alpha
        self.gamma = gamma
        self.window = window
        self.clip = clip
        self.horizon = horizon

    def _parameters(self) -> _Numbers:
        return _Numbers(1, bool(self.clip), self._level(), positive(self.gamma, "gamma"))

    def _begin(self, p: _Numbers, c: FloatArray) -> None:
        c[LEVELS], c[LEVELS + 2] = p.alpha, 1.0


@step_for(_Numbers)
def _step(p: Any, c: Any, s: Any, q: Any, pvalue: Any, n: Any) -> None:
    c[LEVELS] = c[LEVELS] + p.gamma * (p.alpha - (s > q) * 1.0)
