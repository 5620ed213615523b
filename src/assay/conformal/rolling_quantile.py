"""The rank rule on the last scores, at a level that stays: split conformal prediction in a moving window."""

from __future__ import annotations

from typing import Any, NamedTuple

from assay.conformal.tracker_compiled import step_for
from assay.conformal.tracker_ranks import LEVELS, RankTracker
from assay.core.checks import FloatArray


class _Numbers(NamedTuple):
    experts: int
    clip: bool
    alpha: float


class RollingQuantileTracker(RankTracker):
    """The threshold is the ``n + 1 - floor(alpha (n + 1))``-th smallest of the last n scores.

    Covers with probability at least 1 - alpha while the window and the next score are exchangeable; after
    a shift it is wrong until the window has passed it. +inf while there are too few scores. Infinite
    scores are legal.

    Parameters
    ----------
    alpha : level in (0, 1), default 0.1
        Miscoverage.
    window : int or None, default 500
        How many of the last scores are ranked; None: all of them, and memory grows.
    horizon : int, default 1
        The threshold of a score is made without the horizon - 1 scores before it.

    Attributes
    ----------
    threshold_ : float, or (n_series,) array

    References
    ----------
    Vovk, Gammerman, Shafer (2005), Algorithmic learning in a random world.
    """

    def __init__(self, alpha: Any = 0.1, window: int | None = 500, *, horizon: int = 1) -> None:
        self.alpha = alpha
        self.window = window
        self.horizon = horizon

    def _parameters(self) -> _Numbers:
        return _Numbers(1, False, self._level())

    def _begin(self, p: _Numbers, c: FloatArray) -> None:
        c[LEVELS], c[LEVELS + 2] = p.alpha, 1.0


@step_for(_Numbers)
def _step(p: Any, c: Any, s: Any, q: Any, pvalue: Any, n: Any) -> None:
    c[LEVELS] = c[LEVELS] + 0.0
