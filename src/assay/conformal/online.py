"""Prediction intervals around the forecasts of a stream, from any tracker of scores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone

from assay.conformal.tracker_base import OnlineTracker
from assay.conformal.two_sides import interval_ends, side_count, side_scores, side_tracker
from assay.core.checks import FloatArray, to_float, to_numpy
from assay.core.errors import DataError

State = dict[str, NDArray[Any]]

#: long enough that trackers take the code that they have for long runs
_LONG_RUN = 100


class OnlineConformalRegressor(BaseEstimator):  # type: ignore[misc]
    """Intervals ``[forecast - below, forecast + above]`` whose widths follow a stream of outcomes.

    ``score="signed"`` runs two one-sided trackers at alpha / 2, one on ``y - forecast`` for the upper
    end and one on ``forecast - y`` for the lower. ``score="absolute"`` runs one at alpha on
    ``|y - forecast|``. What is promised is the tracker's guarantee for the share of outcomes beyond
    each end.

    Thresholds may be negative. Ends that come out in the wrong order are exchanged, an absolute
    threshold below 0 counts as 0, and a threshold of -inf gives an interval of no width: in what is
    returned only, never in the state.

    Parameters
    ----------
    tracker : OnlineTracker
        Cloned, with the level and the horizon below; for example ``ErrorQuantifiedTracker()``.
    score : "signed" or "absolute", default "signed"
    alpha : level in (0, 1), optional
        Miscoverage of the intervals; the tracker's alpha if not given.
    horizon : int, optional
        h, where forecasts are made h steps ahead: the interval for step t uses outcomes up to t - h.
        The tracker's if not given.

    Attributes
    ----------
    tracker_ : the tracker at work; with signed scores its series are (above, below) of each stream

    Examples
    --------
    >>> import numpy as np
    >>> from assay.conformal.online import OnlineConformalRegressor
    >>> from assay.conformal.eci import ErrorQuantifiedTracker
    >>> stream = OnlineConformalRegressor(ErrorQuantifiedTracker(lr=1.0), alpha=0.1)
    >>> for forecast, y in [(10.0, 11.0), (10.5, 9.0)]:
    ...     interval = stream.predict_interval(forecast)
    ...     _ = stream.update(y)
    """

    def __init__(
        self, tracker: Any, *, score: str = "signed", alpha: Any = None, horizon: int | None = None
    ) -> None:
        self.tracker = tracker
        self.score = score
        self.alpha = alpha
        self.horizon = horizon

    # --- public ------------------------------------------------------------------------------------

    @property
    def n_series_(self) -> int:
        """Number of streams; 1 before the first call."""
        return self.tracker_.n_series_ // self._sides() if hasattr(self, "tracker_") else 1

    def start(self, n_series: int | None = None) -> Self:
        """Forget everything and begin with n streams that have seen nothing (None: one, as numbers)."""
        tracker = self._fresh_tracker()
        tracker.start((1 if n_series is None else n_series) * self._sides())
        self.tracker_ = tracker
        self.single_ = n_series is None
        self.forecast_ = np.full(self.n_series_, np.nan)
        return self

    def predict_interval(self, forecast: Any) -> FloatArray:
        """Interval for the next outcome: (2,) for a number, (n_series, 2) for one forecast a series.

        The forecast is kept for ``update``.

        Raises
        ------
        DataError
            A forecast is NaN or infinite, or the number of series differs from before.
        """
        forecasts = _finite(_numbers(forecast, "forecast", 0), "forecast")
        self._begin(forecasts, "forecast")
        self.forecast_ = np.atleast_1d(forecasts).copy()
        thresholds = np.atleast_1d(self.tracker_.threshold_)[:, None]
        ends = interval_ends(self.forecast_[:, None], thresholds, self._sides())[:, 0]
        return ends[0] if forecasts.ndim == 0 else ends

    def update(self, y: Any, forecast: Any = None) -> Self:
        """Learn the outcome: a number, or one a series; NaN leaves its series as it was.

        ``forecast`` is that of this outcome where it is not the last one given to ``predict_interval``.
        """
        outcomes = _numbers(y, "y", 0)
        if forecast is not None:
            forecasts = _numbers(forecast, "forecast", 0)
            self._begin(forecasts, "forecast")
            self.forecast_ = np.atleast_1d(forecasts).copy()
        self._begin(outcomes, "y")
        rows = np.atleast_1d(outcomes)
        lost = np.isnan(self.forecast_) & ~np.isnan(rows)
        if lost.any():
            raise DataError(
                f"{int(lost.sum())} of {len(rows)} outcomes have no forecast, first series "
                f"{int(lost.argmax())}; call predict_interval(forecast) before update(y)"
            )
        self.tracker_.run(side_scores(rows[:, None], self.forecast_[:, None], self._sides()))
        return self

    def run(self, y: Any, forecasts: Any) -> FloatArray:
        """Intervals of a whole stream, each made before its outcome is learned.

        Parameters
        ----------
        y, forecasts : (T,) or (n_series, T) arrays
            NaN in y: no outcome, nothing is learned.

        Returns
        -------
        (T, 2) or (n_series, T, 2) array
        """
        outcomes, centres = _numbers(y, "y", 1), _finite(_numbers(forecasts, "forecasts", 1), "forecasts")
        if outcomes.shape != centres.shape:
            raise DataError(f"y has shape {outcomes.shape} and forecasts {centres.shape}; give one a step")
        self._begin(centres.sum(axis=-1), "forecasts")
        rows, middle = np.atleast_2d(outcomes), np.atleast_2d(centres)
        thresholds = self.tracker_.run(side_scores(rows, middle, self._sides()))
        if rows.shape[1]:
            self.forecast_ = middle[:, -1].copy()
        ends = interval_ends(middle, thresholds, self._sides())
        return ends[0] if outcomes.ndim == 1 else ends

    def get_state(self) -> State:
        """A copy of everything learned: arrays with n_series on the leading axis.

        The tracker's arrays have the sides on the second axis: (n_series, sides, ...).
        """
        if not hasattr(self, "tracker_"):
            self.start()
        own = self.tracker_.get_state()
        sides = self._sides()
        n = self.n_series_  # spelled out: -1 cannot be told for an array without elements
        split = {name: array.reshape(n, sides, *array.shape[1:]) for name, array in own.items()}
        return {"forecast": self.forecast_.copy(), **split}

    def set_state(self, state: Mapping[str, Any]) -> Self:
        """Go on from what :meth:`get_state` of one with the same parameters gave."""
        given = {name: np.asarray(array) for name, array in state.items()}
        forecast = given.pop("forecast", None)
        sides = self._sides()
        for name, array in given.items():
            if array.ndim < 2 or array.shape[1] != sides:
                raise DataError(
                    f"state {name!r} has shape {array.shape}; score={self.score!r} needs {sides} on axis 1"
                )
        if forecast is None or forecast.ndim != 1 or any(len(a) != len(forecast) for a in given.values()):
            raise DataError("the state has no 'forecast' of shape (n_series,), as get_state gives it")
        count = len(forecast) * sides
        merged = {name: array.reshape(count, *array.shape[2:]) for name, array in given.items()}
        self.tracker_ = self._fresh_tracker().set_state(merged)
        self.single_ = len(forecast) == 1 and getattr(self, "single_", True)
        self.forecast_ = forecast.astype(np.float64)
        return self

    def warm_up(self) -> None:
        """Compile, or read from disk, what a run needs, so that none of it is counted as time of a step."""
        clone(self).run(np.zeros(_LONG_RUN), np.zeros(_LONG_RUN))

    # --- inside ------------------------------------------------------------------------------------

    def _sides(self) -> int:
        return side_count(self.score)

    def _fresh_tracker(self) -> OnlineTracker:
        return side_tracker(self.tracker, self._sides(), self.alpha, self.horizon)

    def _begin(self, given: FloatArray, name: str) -> None:
        """Start at the first call; refuse another number of series later."""
        if not hasattr(self, "tracker_"):
            self.start(len(given) if given.ndim else None)
        count = len(np.atleast_1d(given))
        if count != self.n_series_:
            raise DataError(f"{name} is of {count} series, but {self.n_series_} are followed")


def _numbers(values: Any, name: str, extra: int) -> FloatArray:
    """float64 of ``extra`` axes, or one more for the series in front; (1, 1) answers are not guessed."""
    array = to_float(to_numpy(values), name)
    if array.ndim not in (extra, extra + 1):
        shape = "a number, or one number a series" if extra == 0 else "(T,) or (n_series, T)"
        raise DataError(f"{name} has shape {array.shape}; give {shape}")
    return array


def _finite(array: FloatArray, name: str) -> FloatArray:
    bad = ~np.isfinite(array)
    if bad.any():
        where = ", ".join(str(int(i)) for i in np.argwhere(bad)[0])
        raise DataError(
            f"{name} is NaN or infinite {int(bad.sum())} times of {array.size}"
            + (f", first at [{where}]" if array.ndim else "")
            + "; an interval needs a forecast"
        )
    return array


__all__ = ["OnlineConformalRegressor"]
