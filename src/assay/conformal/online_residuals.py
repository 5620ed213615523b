"""Methods on past residuals in the online contract: forecasts and outcomes, one series or many."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone

from assay.conformal.residual_base import ResidualIntervals
from assay.conformal.trailing_window import ranked_sides
from assay.core.checks import FloatArray, to_float, to_numpy
from assay.core.errors import DataError, MethodError
from assay.core.levels import parse_alpha

_PREFIX = "method_"


class OnlineResidualRegressor(BaseEstimator):  # type: ignore[misc]
    """Intervals around the forecasts of a stream from the residuals of the steps before.

    The first ``calibration`` residuals of a series are collected; then a copy of ``method`` is fitted on
    them and follows the series. Until then the ends are conformal ranks at alpha / 2 on either
    side of the residuals so far: infinite while they are too few.

    Several series go on the leading axis of whatever is given and returned; the first call decides.
    A NaN outcome leaves its series as it was.

    Parameters
    ----------
    method : method on residuals
        ``KernelWeightedResidualInterval``, ``SPCI``, ``EnbPI``, ``NexCP`` or ``TrailingWindow``, unfitted.
    alpha : level
        Miscoverage. Default 0.1.
    calibration : int
        Residuals to fit on. Default 100.
    horizon : int
        h: an interval is made without the h - 1 residuals before it, counted in outcomes that were seen.

    Attributes
    ----------
    methods_ : list
        The fitted method of each series, None where residuals are still too few.

    Examples
    --------
    >>> import numpy as np
    >>> from assay.conformal.enbpi import EnbPI
    >>> y = np.random.default_rng(0).normal(size=500)
    >>> OnlineResidualRegressor(EnbPI()).run(y, np.zeros(500)).shape
    (500, 2)
    """

    _forecast: FloatArray | None

    def __init__(
        self, method: Any = None, alpha: Any = 0.1, calibration: int = 100, horizon: int = 1
    ) -> None:
        self.method = method
        self.alpha = alpha
        self.calibration = calibration
        self.horizon = horizon

    # --- the contract ------------------------------------------------------------------------------

    def predict_interval(self, forecast: Any) -> FloatArray:
        """Interval around the next forecast: (2,) for a number, (n_series, 2) for (n_series,).

        Raises
        ------
        DataError
            A NaN or infinite forecast, or another number of series than before.
        """
        level = self._level()
        centre = to_float(to_numpy(forecast), "forecast")
        if centre.ndim > 1:
            raise DataError(f"forecast has shape {centre.shape}; give a number, or one number a series")
        rows = np.atleast_1d(centre)
        _refuse_bad(rows[:, None], "forecast")
        self._start(None if centre.ndim == 0 else len(rows), "forecast")
        offsets = np.stack([series.offsets(level) for series in self._series])
        self._forecast = rows.copy()
        ends = rows[:, None] + offsets
        return np.asarray(ends[0] if centre.ndim == 0 else ends)

    @property
    def n_series_(self) -> int:
        """Number of series; 1 before the first call."""
        return len(getattr(self, "_series", [None]))

    def start(self, n_series: int | None = None) -> Self:
        """Forget everything and begin with n series that have seen nothing (None: one, as numbers)."""
        self._level()
        for name in ("_series", "_single", "_forecast"):
            if hasattr(self, name):
                delattr(self, name)
        self._start(n_series, "n_series")
        return self

    def update(self, y: Any, forecast: Any = None) -> Self:
        """Take in the outcome of the last forecast: a number, or (n_series,); NaN changes nothing.

        ``forecast`` is that of this outcome where it is not the last one given to ``predict_interval``.

        Raises
        ------
        DataError
            An infinite outcome, or another number of series than before.
        MethodError
            No forecast was given before.
        """
        if forecast is not None:
            self.predict_interval(forecast)
        outcome = np.atleast_1d(to_float(to_numpy(y), "y"))
        centre = getattr(self, "_forecast", None)
        if centre is None:
            raise MethodError("update needs the forecast that y belongs to: call predict_interval before it")
        if outcome.shape != centre.shape:
            raise DataError(f"y has shape {outcome.shape}, the forecasts had {centre.shape}")
        _refuse_infinite(outcome[:, None], "y")
        for series, residual in zip(self._series, self._residuals(outcome, centre), strict=True):
            if not np.isnan(residual):
                for ready in series.arrived(residual[None]):
                    series.take(float(ready))
        return self

    def run(self, y: Any, forecasts: Any) -> FloatArray:
        """Go through many steps: the same as predict_interval and update one after the other.

        Parameters
        ----------
        y, forecasts : (T,) or (n_series, T) arrays
            An outcome may be NaN, a forecast may not.

        Returns
        -------
        (T, 2) or (n_series, T, 2) float64 array
        """
        level = self._level()
        outcomes = to_float(to_numpy(y), "y")
        centres = to_float(to_numpy(forecasts), "forecasts")
        if outcomes.shape != centres.shape or outcomes.ndim not in (1, 2):
            raise DataError(
                f"y has shape {outcomes.shape} and forecasts {centres.shape}; give (T,) or (n_series, T) "
                "for both"
            )
        one = outcomes.ndim == 1
        outcomes, centres = np.atleast_2d(outcomes), np.atleast_2d(centres)
        _refuse_infinite(outcomes, "y")
        _refuse_bad(centres, "forecasts")
        all_residuals = self._residuals(outcomes, centres)
        self._start(None if one else len(outcomes), "y")
        out = np.empty((*outcomes.shape, 2))
        if outcomes.shape[1]:
            for series, row, residuals in zip(self._series, out, all_residuals, strict=True):
                row[:] = series.run(residuals, level)
            self._forecast = centres[:, -1].copy()
        out += centres[..., None]
        return out[0] if one else out

    def fit(self, y: Any, forecasts: Any) -> Self:
        """Forget everything and go through past outcomes and their forecasts, as :meth:`run` does."""
        self.start(None if np.ndim(y) == 1 else len(y))
        self.run(y, forecasts)
        return self

    def fit_residuals(self, residuals: Any) -> Self:
        """Forget everything and fit one series on all these past residuals, such as out-of-bag ones."""
        self._level()
        fitted = self._fresh()
        method = fitted.template.fit(residuals)
        fitted.method = method
        self._series, self._single, self._forecast = [fitted], True, None
        return self

    @property
    def methods_(self) -> list[ResidualIntervals | None]:
        """The fitted method of each series."""
        return [series.method for series in getattr(self, "_series", [])]

    # --- state -------------------------------------------------------------------------------------

    def get_state(self) -> dict[str, Any]:
        """Arrays with n_series on the leading axis; rows shorter than others are padded with NaN or 0."""
        if not hasattr(self, "_series"):
            self._start(None, "state")
        forecast = self._forecast if self._forecast is not None else np.full(len(self._series), np.nan)
        out = {
            "single": np.full(len(self._series), self._single),
            "forecast": forecast.copy(),
            "collected": _padded([np.array(series.collected) for series in self._series]),
            "n_collected": np.array([len(series.collected) for series in self._series]),
            "waiting": _padded([np.array(series.waiting) for series in self._series]),
            "n_waiting": np.array([len(series.waiting) for series in self._series]),
            "fitted": np.array([series.method is not None for series in self._series]),
        }
        states = [series.method.get_state() if series.method else {} for series in self._series]
        names = {name: np.asarray(value) for state in states for name, value in state.items()}
        out["n_remembered"] = np.array([len(state.get("residuals", ())) for state in states])
        for name, like in names.items():
            empty = np.empty(0, like.dtype) if like.ndim else like.dtype.type(0)
            rows = [np.asarray(state.get(name, empty)) for state in states]
            out[_PREFIX + name] = _padded(rows) if like.ndim else np.array(rows)
        return out

    def set_state(self, state: Mapping[str, Any]) -> Self:
        """Go on from what :meth:`get_state` of an object with the same arguments gave."""
        needed = {"single", "forecast", "collected", "n_collected", "waiting", "n_waiting", "fitted"}
        if missing := sorted(needed - set(state)):
            raise MethodError(f"the state lacks {missing}")
        self._level()
        all_series = []
        for i, fitted in enumerate(state["fitted"]):
            series = self._fresh()
            series.collected = [float(r) for r in state["collected"][i][: int(state["n_collected"][i])]]
            series.waiting = [float(r) for r in state["waiting"][i][: int(state["n_waiting"][i])]]
            if fitted:
                held = int(state["n_remembered"][i])
                own = {
                    name.removeprefix(_PREFIX): value[i][:held] if np.ndim(value) > 1 else value[i]
                    for name, value in state.items()
                    if name.startswith(_PREFIX)
                }
                series.method = series.template.set_state(own)
            all_series.append(series)
        forecast = np.array(state["forecast"], dtype=np.float64)
        self._series, self._single = all_series, bool(state["single"][0])
        self._forecast = None if np.isnan(forecast).any() else forecast
        return self

    # --- inside ------------------------------------------------------------------------------------

    def _level(self) -> Fraction:
        for value, name in ((self.calibration, "calibration"), (self.horizon, "horizon")):
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise MethodError(f"{name} must be an integer of at least 1, got {value!r}")
        if not isinstance(self.method, ResidualIntervals):
            raise MethodError(
                f"method must be an unfitted method on residuals, such as EnbPI(), got {self.method!r}"
            )
        return parse_alpha(self.alpha)

    def _residuals(self, y: FloatArray, forecasts: FloatArray) -> FloatArray:
        """Outcomes less forecasts, none of them more than the method can compute with."""
        with np.errstate(over="ignore"):
            residuals = y - forecasts
        self.method._refuse_extreme(residuals, "y - forecast")
        return residuals

    def _fresh(self) -> _Series:
        return _Series(clone(self.method), int(self.calibration), int(self.horizon) - 1)

    def _start(self, n_series: int | None, name: str) -> None:
        """Begin with n series (None: one, given as numbers), or check that it is as many as before."""
        if not hasattr(self, "_series"):
            self._level()
            self._single = n_series is None
            self._series = [self._fresh() for _ in range(1 if n_series is None else n_series)]
            self._forecast = None
        elif (1 if n_series is None else n_series) != len(self._series):
            raise DataError(f"{name} is of {n_series or 1} series, there were {len(self._series)} before")


class _Series:
    """One series: what is collected until the method can be fitted, and what is not known yet."""

    def __init__(self, template: ResidualIntervals, calibration: int, delay: int) -> None:
        self.template, self.calibration, self.delay = template, calibration, delay
        self.method: ResidualIntervals | None = None
        self.collected: list[float] = []
        self.waiting: list[float] = []

    def arrived(self, residuals: FloatArray) -> FloatArray:
        """Residuals that may be used now that these have been seen: all but the last ``delay``."""
        line = np.concatenate([self.waiting, residuals])
        ready = max(0, len(line) - self.delay)
        self.waiting = [float(r) for r in line[ready:]]
        return np.asarray(line[:ready], dtype=np.float64)

    def offsets(self, level: Fraction) -> FloatArray:
        """(2,) offsets of the next interval."""
        if self.method is not None:
            return np.asarray(self.method._offsets(level))
        return ranked_sides(np.sort(self.collected), level)

    def take(self, residual: float) -> None:
        """Learn one residual."""
        if self.method is not None:
            self.method._take(residual)
            return
        self.collected.append(residual)
        if len(self.collected) == self.calibration:
            self.method = self.template.fit(self.collected)
            self.collected = []

    def run(self, residuals: FloatArray, level: Fraction) -> FloatArray:
        """(T, 2) offsets before each of T residuals, learned in order where they are not NaN."""
        seen = ~np.isnan(residuals)
        # how many residuals could be used before each step
        known = np.concatenate([[0], np.cumsum(seen)[:-1]]) + len(self.waiting) - self.delay
        ready = self.arrived(residuals[seen])
        out = np.empty((len(ready) + 1, 2))
        at = 0
        while self.method is None and at < len(ready):
            out[at] = self.offsets(level)
            self.take(float(ready[at]))
            at += 1
        if self.method is not None:
            out[at:-1] = self.method._stream(ready[at:], (level,))[0]
        known = np.maximum(known, 0)
        if known.max(initial=0) == len(ready):
            out[-1] = self.offsets(level)
        return np.asarray(out[known])


def _padded(rows: list[Any]) -> Any:
    """(n, longest) array of 1-D arrays, the rest NaN, or 0 of integers."""
    longest = max((len(row) for row in rows), default=0)
    dtype = next((row.dtype for row in rows if len(row)), np.dtype(np.float64))
    out = np.full((len(rows), longest), np.nan if dtype.kind == "f" else 0, dtype=dtype)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out


def _refuse_infinite(rows: FloatArray, name: str) -> None:
    bad = np.isinf(rows)
    if bad.any():
        series, step = (int(i) for i in np.argwhere(bad)[0])
        raise DataError(f"{name} is infinite {int(bad.sum())} times, first in series {series} at step {step}")


def _refuse_bad(rows: FloatArray, name: str) -> None:
    bad = ~np.isfinite(rows)
    if bad.any():
        series, step = (int(i) for i in np.argwhere(bad)[0])
        raise DataError(
            f"{name} is NaN or infinite {int(bad.sum())} times, first in series {series} at step {step}"
        )
