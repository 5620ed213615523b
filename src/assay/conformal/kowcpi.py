"""KOWCPI: intervals from past residuals, weighted by how alike the residuals before them were."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from sklearn.utils.validation import check_is_fitted

from assay.conformal.kernel_weights import (
    KERNELS,
    aicc_bandwidth,
    effective_size,
    kernel_values,
    rnw_multiplier,
    rnw_probabilities,
)
from assay.conformal.residual_base import ResidualIntervals, empirical_quantiles
from assay.conformal.residual_history import SortedRecent, WindowDistances
from assay.conformal.shortest_interval import beta_levels, shortest_of
from assay.core.checks import FloatArray
from assay.core.errors import AssayWarning, DataError, MethodError

#: bandwidths tried, as multiples of the median distance of the last window to the earlier ones
_GRID = (0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 1.5, 2.0, 3.0)
#: the criterion compares all pairs: of longer histories the newest windows are taken
#: smaller distances have squares that are rounded to few digits, or to 0
_LEAST = 1e-140
_MOST_WINDOWS = 5000
_WIDEN, _FLAT = 1.25, 10.0
_TOLERANCE = 1e-12

__all__ = ["KernelWeightedResidualInterval", "rnw_multiplier"]


class _Weights(NamedTuple):
    """Weights by lag, lag 1 first, and what is told of them."""

    weights: FloatArray
    ess: float
    multiplier: float
    uniform: bool


class KernelWeightedResidualInterval(ResidualIntervals):
    """Kernel-based optimally weighted conformal prediction intervals for time series.

    The last ``window`` residuals x are compared with every earlier window X_i, which residual Y_i
    followed. With ``K_i = K(|X_i - x| / h)`` and ``g_i = (X_i1 - x_1) K_i`` of the newest residual in
    each window, the p_i of empirical likelihood (``sum p_i g_i = 0``) give the weights
    ``W_i = p_i K_i / sum p K`` of a conditional distribution of the next residual; the interval
    is the shortest between its quantiles at beta and 1 - alpha + beta, around the forecast.

    Parameters
    ----------
    window : int
        Residuals in a window, w. Default 5, as in the paper's simulations. Long windows need long
        histories: in ten dimensions few windows are near each other (see ``min_ess``).
    bandwidth : "aicc" or float
        h in units of y. "aicc" (the paper's) takes, once and on the first history, the best of 9
        values by the corrected AIC of the kernel regression; more than 5,000 windows are not compared.
        Where ``history`` is longer than what was fitted, it is chosen anew whenever the history has
        doubled, until it is full.
    kernel : "epanechnikov" or "gaussian"
        Default the first, which the theory asks for: compact.
    n_beta : int
        Number of beta tried from 0 to alpha. Default 5, from the authors' code.
    fixed_beta : float, optional
        One beta and no search.
    history : int, optional
        How many residuals are remembered, T; default as many as were fitted. The oldest leave.
    reweight : bool
        False leaves out the p_i: plain Nadaraya-Watson weights.
    min_ess : float, optional
        Raise h at a step until the effective number of windows ``1 / sum W^2`` is at least this. Not
        in the paper (None), where too few windows carry the weight of long windows and coverage
        drops; about 150 brought it back at every window length tried.
    time_decay : float in (0, 1], optional
        Multiply each weight by this to the power of its age. None in the paper.

    Attributes
    ----------
    bandwidth_ : float
    weights_ : (n,) float64 array
        Weight of each past window at the next step, the oldest first.
    ess_ : float
        ``1 / sum weights_^2``.
    lambda_ : float
        Multiplier of the reweighting; 0 where it changes nothing.
    uniform_ : bool
        Whether no window lay within the bandwidth, so that all weigh the same.

    Notes
    -----
    Each step takes O(n) for n windows, whatever their length. Where fewer windows than 1 / alpha
    are there, or the last residuals reach over a gap in time, the quantiles are those of all
    residuals remembered.

    Asymptotic conditional coverage for strongly mixing residuals with a smooth conditional
    distribution; no guarantee in finite samples.

    References
    ----------
    Lee, Xu, Xie: Kernel-based Optimally Weighted Conformal Time-Series Prediction. ICLR 2025.

    Examples
    --------
    >>> import numpy as np
    >>> residuals = np.random.default_rng(0).normal(size=500)
    >>> method = KernelWeightedResidualInterval(window=3).fit(residuals)
    >>> lower, upper = method.predict_interval(20.0, alpha=0.1)
    >>> method = method.update(0.3)
    """

    def __init__(
        self,
        window: int = 5,
        bandwidth: Any = "aicc",
        kernel: str = "epanechnikov",
        n_beta: int = 5,
        fixed_beta: float | None = None,
        history: int | None = None,
        reweight: bool = True,
        min_ess: float | None = None,
        time_decay: float | None = None,
    ) -> None:
        self.window = window
        self.bandwidth = bandwidth
        self.kernel = kernel
        self.n_beta = n_beta
        self.fixed_beta = fixed_beta
        self.history = history
        self.reweight = reweight
        self.min_ess = min_ess
        self.time_decay = time_decay

    #: squares of a few differences must be numbers
    largest_residual = 1e150

    def _capacity(self, n: int) -> int:
        return n if self.history is None else int(self.history)

    def _check(self) -> None:
        if not (isinstance(self.window, (int, np.integer)) and self.window >= 1):
            raise MethodError(f"window must be an integer of at least 1, got {self.window!r}")
        if self.kernel not in KERNELS:
            raise MethodError(f"kernel must be one of {', '.join(KERNELS)}, got {self.kernel!r}")
        if self.bandwidth != "aicc" and not (
            isinstance(self.bandwidth, (int, float)) and _LEAST <= self.bandwidth <= 1 / _LEAST
        ):
            raise MethodError(
                f"bandwidth must be 'aicc' or a number from {_LEAST:g} to {1 / _LEAST:g}, "
                f"got {self.bandwidth!r}"
            )
        if self.time_decay is not None and not 0 < self.time_decay <= 1:
            raise MethodError(f"time_decay must lie in (0, 1], got {self.time_decay!r}")
        if self.min_ess is not None and not self.min_ess > 0:
            raise MethodError(f"min_ess must be positive, got {self.min_ess!r}")
        most = (self.history_.capacity or 0) - self.window
        if self.min_ess is not None and most < self.min_ess:
            raise DataError(
                f"min_ess is {self.min_ess:g}, and the history holds {most} windows of {self.window}: give "
                "more residuals, or history"
            )
        if len(self.history_) <= self.window + 1:
            raise DataError(
                f"{len(self.history_)} residuals remembered with windows of {self.window}: "
                f"more than {self.window + 1} are needed"
            )

    def _learn(self, learned: Mapping[str, float] | None) -> None:
        self._check()
        width = int(self.window)
        room = self.history_.capacity
        assert room is not None
        self._sorted = SortedRecent(room - width, self.history_.values[width:])
        self._distances = WindowDistances(self.history_, width, room - width)
        self._now: _Weights | None = None
        self._warned = False
        if learned is not None:
            self.bandwidth_, self._choose_at = learned["bandwidth"], int(learned["choose_at"])
            return
        self.bandwidth_ = self._choose() if self.bandwidth == "aicc" else float(self.bandwidth)
        self._choose_at = self._next_choice()

    def _choose(self) -> float:
        windows, targets, last = self.history_.windows(int(self.window))
        windows, targets = windows[-_MOST_WINDOWS:], targets[-_MOST_WINDOWS:]
        distances = np.sqrt(np.square(windows - last).sum(axis=1))
        apart = distances[distances > 0]
        if not (windows != last).any():
            # all windows are equal: any bandwidth weighs them alike
            return 1.0
        middle = float(np.median(apart)) if len(apart) else 0.0
        if middle < _LEAST:
            raise DataError(
                f"windows of {self.window} residuals are less than {_LEAST:g} apart, too little to be "
                "squared: give y and forecasts in a smaller unit"
            )
        return aicc_bandwidth(windows, targets, [middle * m for m in _GRID], self.kernel)

    def _learned(self) -> dict[str, float]:
        return {"bandwidth": self.bandwidth_, "choose_at": self._choose_at}

    def _next_choice(self) -> int:
        """The length of the history at which the bandwidth is chosen again; 0 for never."""
        held, most = len(self.history_), self.history_.capacity or 0
        return min(2 * held, most) if self.bandwidth == "aicc" and held < most else 0

    def _follow(self) -> None:
        self._distances.step()
        self._sorted.append(float(self.history_.values[-1]))
        self._now = None
        if len(self.history_) == self._choose_at:
            self.bandwidth_ = self._choose()
            self._choose_at = self._next_choice()

    def _state(self) -> _Weights:
        if self._now is None:
            squared = self._distances.squared
            self._now = self._weigh(squared, self.bandwidth_)
            if self.min_ess is not None and self._now.ess < self.min_ess:
                self._now = self._widen(squared, self.min_ess)
        return self._now

    def _widen(self, squared: FloatArray, least: float) -> _Weights:
        """Weights of the first bandwidth, each a quarter wider, that are worth ``least`` windows.

        Where the last residual lies at the edge of all, the condition on the p_i itself puts the
        weight on a few windows, whatever the kernel: there it is left out.
        """
        flat = _FLAT * math.sqrt(float(squared[np.isfinite(squared)].max(initial=0.0)))
        bandwidth = self.bandwidth_
        now = self._weigh(squared, bandwidth, reweight=False)
        while (now.ess < least or now.uniform) and bandwidth <= flat:
            bandwidth *= _WIDEN
            now = self._weigh(squared, bandwidth, reweight=False)
        if not self.reweight or self._weigh(squared, flat).ess < least:
            return now
        plain = now
        while (now := self._weigh(squared, bandwidth)).ess < least and bandwidth <= flat:
            bandwidth *= _WIDEN
        return now if now.ess >= least else plain

    def _weigh(self, squared: FloatArray, bandwidth: float, reweight: bool = True) -> _Weights:
        n = len(squared)
        K = kernel_values(squared, bandwidth, self.kernel)
        lam = 0.0
        if self.reweight and reweight:
            values = self.history_.values
            first = values[len(values) - 1 - n : len(values) - 1][::-1]
            g = (first - values[-1]) * K
            lam = rnw_multiplier(g)
            if lam != 0:
                K *= rnw_probabilities(g, lam)
        if self.time_decay is not None:
            K *= np.power(self.time_decay, np.arange(n))
        mass = float(K.sum())
        weights = np.full(n, 1 / n) if mass <= 0 else K / mass
        return _Weights(weights, effective_size(weights), lam, mass <= 0)

    def _offsets(self, level: Fraction) -> FloatArray:
        levels = beta_levels(level, self.n_beta, self.fixed_beta)
        n = len(self._sorted.values)
        if not self._distances.last_is_whole or n * level < 1:
            return shortest_of(empirical_quantiles(self.history_.values, levels))
        now = self._state()
        if not self._warned and now.ess * level < 2:
            self._warn(now.ess, n, level)
        mass = np.cumsum(now.weights[self._sorted.ages])
        mass /= mass[-1]
        at = np.searchsorted(mass, levels - _TOLERANCE)
        return shortest_of(self._sorted.values[np.minimum(at, n - 1)])

    def _warn(self, ess: float, n: int, level: Fraction) -> None:
        self._warned = True
        need = math.ceil(2 / level)
        warnings.warn(
            f"{n} windows of {self.window} residuals weigh as much as {ess:.1f} equal ones, which leaves "
            f"{ess * float(level) / 2:.2f} in each tail at alpha {float(level):g}: intervals will be too "
            f"short. A smaller window, a longer history or min_ess of at least {need} helps; said once a fit",
            AssayWarning,
            stacklevel=4,
        )

    @property
    def weights_(self) -> FloatArray:
        """(n,) weight of each past window at the next step, the oldest first."""
        return self._current().weights[::-1]

    @property
    def ess_(self) -> float:
        """Effective number of windows."""
        return self._current().ess

    @property
    def lambda_(self) -> float:
        """Multiplier of the reweighting."""
        return self._current().multiplier

    @property
    def uniform_(self) -> bool:
        """Whether no window lay within the bandwidth."""
        return self._current().uniform

    def _current(self) -> _Weights:
        check_is_fitted(self)
        return self._state()
