"""EnbPI: intervals from the quantiles of the last residuals, its sides chosen for the shortest width."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from assay.conformal.residual_base import ResidualIntervals, empirical_quantiles, sorted_quantiles
from assay.conformal.residual_history import SortedRecent
from assay.conformal.shortest_interval import beta_levels, shortest_of
from assay.core.checks import FloatArray
from assay.core.errors import MethodError


class EnbPI(ResidualIntervals):
    """The shortest interval between empirical quantiles at beta and 1 - alpha + beta of the last residuals.

    The quantile at level g of n residuals is their ``ceil(g n)``-th smallest. With the residuals and
    predictions of :class:`~assay.conformal.bootstrap_residuals.BootstrapResiduals` this is the method
    of the paper; any forecaster's residuals on rows that it was not trained on do as well.

    Parameters
    ----------
    past_window : int
        How many residuals count. Default 100, from the authors' code; 300 for their electricity data.
    n_beta : int
        Number of beta tried from 0 to alpha. Default 5, from the authors' code.
    fixed_beta : float, optional
        One beta and no search.
    legacy_percent : bool
        As the public code does: levels are rounded up to whole per cent and quantiles interpolated.

    References
    ----------
    Xu, Xie: Conformal prediction interval for dynamic time-series. ICML 2021.

    Examples
    --------
    >>> EnbPI(past_window=4).fit([5.0, 1.0, 2.0, 3.0, 4.0]).predict_interval(10.0, alpha=0.5)
    array([11., 12.])
    """

    def __init__(
        self,
        past_window: int = 100,
        n_beta: int = 5,
        fixed_beta: float | None = None,
        legacy_percent: bool = False,
    ) -> None:
        self.past_window = past_window
        self.n_beta = n_beta
        self.fixed_beta = fixed_beta
        self.legacy_percent = legacy_percent

    def _capacity(self, n: int) -> int:
        return whole_window(self.past_window, "past_window")

    def _learn(self, learned: Mapping[str, float] | None) -> None:
        self._sorted = SortedRecent(self.history_.capacity, self.history_.values)

    def _follow(self) -> None:
        self._sorted.append(float(self.history_.values[-1]))

    def _offsets(self, level: Fraction) -> FloatArray:
        levels = beta_levels(level, self.n_beta, self.fixed_beta)
        ordered = self._sorted.values
        if len(ordered) == 0:
            return shortest_of(empirical_quantiles(ordered, levels))
        if self.legacy_percent:
            return shortest_of(np.percentile(ordered, np.ceil(100 * levels - 1e-9)))
        return shortest_of(sorted_quantiles(ordered, levels))


def whole_window(value: int, name: str) -> int:
    """A number of residuals: an integer of at least 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise MethodError(f"{name} must be an integer of at least 1, got {value!r}")
    return int(value)
