"""NexCP: split conformal prediction with weights that fade with age."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from assay.conformal.residual_base import ResidualIntervals
from assay.conformal.residual_history import SortedRecent
from assay.core.checks import FloatArray
from assay.core.errors import MethodError

_TOLERANCE = 1e-12
#: what is forgotten by default weighs less than this together
_FORGOTTEN = 1e-12


class NexCP(ResidualIntervals):
    """The weighted conformal quantile of ``|residual|``, the i-th of n weighing ``rho^(n + 1 - i)``.

    The next point weighs 1: ``q`` is the smallest score whose accumulated weight reaches
    ``(1 - alpha) (sum w + 1)``, +inf if none does, and the interval ``[-q, q]`` around the forecast.

    Parameters
    ----------
    rho : float in (0, 1]
        Default 0.99, from the paper. 1 is split conformal prediction on all residuals so far. The
        interval is infinite wherever ``sum w / (sum w + 1) < 1 - alpha``: always, for ``rho`` below
        ``1 - alpha``.
    history : int, optional
        How many residuals are remembered. Default as many as matter: those left out weigh less than
        1e-12 together (3,208 at 0.99); all for ``rho = 1``.

    Notes
    -----
    Coverage is at least ``1 - alpha - sum w_i d_i / (sum w + 1)``, d_i the total variation distance
    between the residuals as they are and with the i-th and the next exchanged.

    References
    ----------
    Barber, Candes, Ramdas, Tibshirani: Conformal prediction beyond exchangeability. Annals of
    Statistics 2023.

    Examples
    --------
    >>> NexCP(rho=0.5).fit([1.0, 2.0, 3.0]).predict_interval(0.0, alpha=0.8)
    array([-2.,  2.])
    """

    def __init__(self, rho: float = 0.99, history: int | None = None) -> None:
        self.rho = rho
        self.history = history

    def _capacity(self, n: int) -> int | None:
        if not 0 < self.rho <= 1:
            raise MethodError(f"rho must lie in (0, 1], got {self.rho!r}")
        if self.history is not None:
            if self.history < 1:
                raise MethodError(f"history must be an integer of at least 1, got {self.history!r}")
            return int(self.history)
        if self.rho == 1:
            return None
        return max(1, math.ceil(math.log(_FORGOTTEN * (1 - self.rho), self.rho)))

    def _learn(self, learned: Mapping[str, float] | None) -> None:
        self._sorted = SortedRecent(self.history_.capacity, np.abs(self.history_.values))

    def _follow(self) -> None:
        self._sorted.append(abs(float(self.history_.values[-1])))

    def _offsets(self, level: Fraction) -> FloatArray:
        n = len(self._sorted.values)
        if n == 0:
            return np.array([-np.inf, np.inf])
        powers = np.power(float(self.rho), np.arange(1, n + 1))
        mass = np.cumsum(powers[self._sorted.ages])
        mass /= mass[-1] + 1
        at = int(np.searchsorted(mass, float(1 - level) - _TOLERANCE))
        q = float(self._sorted.values[at]) if at < n else np.inf
        return np.array([-q, q])
