"""Split conformal prediction on the last residuals alone."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from assay.conformal.residual_base import ResidualIntervals
from assay.conformal.residual_history import SortedRecent
from assay.core.checks import FloatArray
from assay.core.errors import MethodError
from assay.core.levels import conformal_rank, lower_rank


class TrailingWindow(ResidualIntervals):
    """The conformal rank rule on the last residuals.

    "absolute": ``[-q, q]``, q the ``ceil((1 - alpha)(n + 1))``-th smallest of the n last ``|residual|``.
    "signed": the ``floor(alpha / 2 (n + 1))``-th smallest residual and the
    ``ceil((1 - alpha / 2)(n + 1))``-th.
    An end is infinite while the residuals are too few.

    Parameters
    ----------
    window : int
        How many residuals count. Default 100: the shortest round number with some to spare at 90 %.
    sides : "absolute" or "signed"

    Examples
    --------
    >>> TrailingWindow(window=9).fit(range(20)).predict_interval(0.0, alpha=0.1)
    array([-19.,  19.])
    """

    def __init__(self, window: int = 100, sides: str = "absolute") -> None:
        self.window = window
        self.sides = sides

    def _capacity(self, n: int) -> int:
        if isinstance(self.window, bool) or not isinstance(self.window, (int, np.integer)) or self.window < 1:
            raise MethodError(f"window must be an integer of at least 1, got {self.window!r}")
        return int(self.window)

    def _learn(self, learned: Mapping[str, float] | None) -> None:
        if self.sides not in ("absolute", "signed"):
            raise MethodError(f"sides must be 'absolute' or 'signed', got {self.sides!r}")
        self._sorted = SortedRecent(self.history_.capacity, self._score(self.history_.values))

    def _score(self, residuals: FloatArray) -> FloatArray:
        return np.abs(residuals) if self.sides == "absolute" else residuals

    def _follow(self) -> None:
        self._sorted.append(float(self._score(self.history_.values[-1:])[0]))

    def _offsets(self, level: Fraction) -> FloatArray:
        if self.sides == "signed":
            return ranked_sides(self._sorted.values, level)
        q = ranked(self._sorted.values, conformal_rank(len(self._sorted.values), level))
        return np.array([-q, q])


def ranked(ordered: FloatArray, rank: int) -> float:
    """The value of a rank from 1 among sorted values; -inf at 0, +inf beyond the last."""
    if rank < 1:
        return -np.inf
    return float(ordered[rank - 1]) if rank <= len(ordered) else np.inf


def ranked_sides(ordered: FloatArray, level: Fraction) -> FloatArray:
    """(2,) conformal ranks at half the level on either side of sorted residuals."""
    n, half = len(ordered), level / 2
    return np.array([ranked(ordered, lower_rank(n, half)), ranked(ordered, conformal_rank(n, half))])
