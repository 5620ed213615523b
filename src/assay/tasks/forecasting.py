"""Forecasts made only from the past: what online methods put their intervals around.

It is here and not in ``core`` because forecasters read a task's :class:`~assay.tasks.series.Panel` (times,
covariates as numbers); the methods themselves take forecasts as plain numbers and know no forecaster.

A forecaster is fitted once for a stretch of time, on the steps before ``origin``, and then follows
the series: the forecast of step t uses steps up to t - horizon. With a horizon above 1 the steps
from origin - horizon + 1 on are not fitted on either: they were unknown when the first forecast was made.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from assay.core.checks import FloatArray
from assay.core.errors import DataError, MissingDependency, TaskError
from assay.core.models import predict_values
from assay.data.columns import kind_of
from assay.data.prepare import preparation
from assay.tasks.series import Panel

#: a linear model learns from at most this many rows, the latest of each series
_MAX_ROWS = 200_000
_ROWS_AT_ONCE = 100_000
_DAY = 86_400
#: other columns are taken at most so many deviations from their mean
_FARTHEST = 4.0
#: sums and differences of larger targets may be infinite
_LARGEST = 1e300
#: regular step in seconds -> lengths of the seasons in steps; other steps that divide a day: one day
_SEASONS = {3600: (24, 168), _DAY: (7,), 7 * _DAY: (52,)}
_MOST_STEPS_A_DAY = 1440
#: a season found in the values themselves: its autocorrelation, and how often it must have been seen
_SEASON_CORRELATION = 0.3
_SEASONS_SEEN = 3
_LONGEST_SEASON = 1000
#: history that a model of statsforecast is given at each step
_HISTORY = 1000


class Forecaster(ABC):
    """Forecasts of all series of a panel over a stretch of steps."""

    @abstractmethod
    def forecast(self, panel: Panel, origin: int, stop: int, horizon: int = 1) -> FloatArray:
        """(n_series, stop - origin) forecasts of steps origin .. stop - 1.

        That of step t depends on steps up to t - horizon alone, and on what was fitted on steps up to
        origin - horizon. NaN where a series has no value by then.
        """


class LagForecaster(Forecaster, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn regressor on lagged values: one model for all series.

    The model predicts how far the target will be from the last known value, in units of the
    series' own typical change over the horizon, from: the ``lags`` last values and those at the
    same place of the last two seasons (all relative to the last known one), the last value
    relative to the series' mean, the other columns of the table at the last known step, and the hour,
    weekday and month of the step to be predicted. So trees can follow a trend as well as a line can.

    Parameters
    ----------
    estimator : regressor, optional
        Unfitted; by default a ridge regression that chooses its own penalty.
    lags : int, default 8
        Number of last values.
    seasons : sequence of int, optional
        Lengths of seasons in steps; by default those of :func:`season_lengths`.
    """

    def __init__(self, estimator: Any = None, lags: int = 8, seasons: Sequence[int] | None = None) -> None:
        self.estimator = estimator
        self.lags = lags
        self.seasons = seasons

    def forecast(self, panel: Panel, origin: int, stop: int, horizon: int = 1) -> FloatArray:
        known = origin - horizon + 1
        _refuse_extreme(panel.y)
        frame = _Features(panel, known, horizon, self.lags, _chosen(self.seasons, panel, known))
        first = max(horizon, known - max(_MAX_ROWS // panel.n_series, 1))
        X, y = frame.training(first)
        if not len(y):
            raise TaskError(
                f"no step of the first {known:,} has both a target and a value {horizon} steps before; "
                "there is nothing to learn a forecast from"
            )
        model = clone(self.estimator) if self.estimator is not None else default_regressor()
        model.fit(X, y)
        out = np.empty((panel.n_series, stop - origin))
        block = max(_ROWS_AT_ONCE // panel.n_series, 1)
        for start in range(origin, stop, block):
            t = np.arange(start, min(start + block, stop))
            X, last, scale = frame.at(t)
            change = predict_values(model, X).reshape(last.shape)
            out[:, t - origin] = last + scale[:, None] * change
        return out


class SeasonalNaive(Forecaster, BaseEstimator):  # type: ignore[misc]
    """The value one season before, the latest that is known; the last known value where that is missing.

    Parameters
    ----------
    season : int, optional
        Length in steps; 1 repeats the last value. By default the first of :func:`season_lengths`, else 1.
    """

    def __init__(self, season: int | None = None) -> None:
        self.season = season

    def forecast(self, panel: Panel, origin: int, stop: int, horizon: int = 1) -> FloatArray:
        known = origin - horizon + 1
        found = season_lengths(panel, known)
        m = self.season if self.season is not None else (found[0] if found else 1)
        t = np.arange(origin, stop)
        before = _take(panel.y, t - m * math.ceil(horizon / m))
        return np.where(np.isnan(before), _take(_carried(panel.y), t - horizon), before)


class ColumnForecaster(Forecaster, BaseEstimator):  # type: ignore[misc]
    """Forecasts that the table already holds, each in the row of the step that it is for.

    That they were made ``horizon`` steps before is the user's promise.

    Parameters
    ----------
    column : str
    """

    def __init__(self, column: str) -> None:
        self.column = column

    def forecast(self, panel: Panel, origin: int, stop: int, horizon: int = 1) -> FloatArray:
        values = column_of_forecasts(panel, self.column)
        rows = panel.rows[:, origin:stop]
        return np.where(rows >= 0, values[rows], np.nan)


class _StatsForecaster(Forecaster, BaseEstimator):  # type: ignore[misc]
    """A model of the package statsforecast for each series, its parameters fitted once a stretch."""

    def __init__(self, season: int | None = None) -> None:
        self.season = season

    @abstractmethod
    def _model(self, models: Any, season: int) -> Any:
        """An unfitted model."""

    def forecast(self, panel: Panel, origin: int, stop: int, horizon: int = 1) -> FloatArray:
        try:
            from statsforecast import models
        except ImportError as error:
            raise MissingDependency(f"{type(self).__name__} needs: pip install 'assay[forecast]'") from error
        known = origin - horizon + 1
        found = season_lengths(panel, known)
        season = self.season if self.season is not None else (found[0] if found else 1)
        out = np.full((panel.n_series, stop - origin), np.nan)
        for i, y in enumerate(_carried(panel.y)):
            started = np.flatnonzero(~np.isnan(y[:known]))
            if not len(started):
                continue
            first = int(started[0])
            history = max(_HISTORY, 4 * season)
            seasonal = season if known - first >= 3 * season else 1
            model = self._model(models, seasonal).fit(y[max(first, known - history) : known])
            for t in range(origin, stop):
                end = t - horizon + 1
                past = y[max(first, end - history) : end]
                out[i, t - origin] = model.forward(past, h=horizon)["mean"][horizon - 1]
        return out


class AR(_StatsForecaster):
    """An autoregression of order 3 (statsforecast), as in the experiments of several online papers."""

    def _model(self, models: Any, season: int) -> Any:
        return models.ARIMA(order=(3, 0, 0))


class Theta(_StatsForecaster):
    """The theta method with season (statsforecast)."""

    def _model(self, models: Any, season: int) -> Any:
        return models.Theta(season_length=season, decomposition_type="additive")


class ETS(_StatsForecaster):
    """Exponential smoothing, its form chosen by AICc (statsforecast)."""

    def _model(self, models: Any, season: int) -> Any:
        return models.AutoETS(season_length=season)


def as_forecaster(model: Any) -> Forecaster:
    """The forecaster that a comparison's ``model`` stands for.

    None is :class:`LagForecaster`; an unfitted regressor is put inside one; a :class:`Forecaster`, or
    anything with ``forecast(panel, origin, stop, horizon)``, is taken as it is (a copy).
    """
    if model is None:
        return LagForecaster()
    if callable(getattr(model, "forecast", None)):
        found: Forecaster = clone(model) if hasattr(model, "get_params") else copy.deepcopy(model)
        return found
    return LagForecaster(model)


def column_of_forecasts(panel: Panel, column: str) -> FloatArray:
    """(n_rows,) numbers of a column of forecasts, or what is wrong with it."""
    if column not in panel.frame.columns:
        raise DataError(f"no column {column!r} of forecasts; there are: {', '.join(panel.frame.columns)}")
    if kind_of(panel.frame[column]) != "number":
        raise DataError(f"the column of forecasts {column!r} is no numbers")
    return panel.frame[column].to_numpy(dtype=np.float64)


def season_lengths(panel: Panel, known: int) -> tuple[int, ...]:
    """Lengths of seasons in steps, the shortest first, that fit twice into the first ``known`` steps.

    From the calendar where times are dates with a regular step; otherwise the lag at which the first
    ``known`` values repeat themselves most, if they do.
    """
    found = _calendar_seasons(panel)
    if not found:
        found = _repeats(panel, known)
    return tuple(m for m in found if 2 * m <= known)


def _calendar_seasons(panel: Panel) -> tuple[int, ...]:
    if not panel.dates or math.isnan(panel.step):
        return ()
    step = panel.step
    if step in _SEASONS:
        return _SEASONS[int(step)]
    if step >= 28 * _DAY:
        return tuple(m for m in (12, 4) if abs(step * m / _DAY - 366) < 12)
    if step < _DAY and _DAY % step == 0 and _DAY / step <= _MOST_STEPS_A_DAY:
        return (int(_DAY // step),)
    return ()


def _repeats(panel: Panel, known: int) -> tuple[int, ...]:
    """The lag of the highest autocorrelation of changes, over the five fullest series."""
    past = panel.y[:, :known]
    fullest = np.argsort(-np.isfinite(past).sum(axis=1), kind="stable")[:5]
    most = min(_LONGEST_SEASON, known // _SEASONS_SEEN)
    if most < 3:
        return ()
    total = np.zeros(most + 2)
    for y in past[fullest]:
        change = np.diff(_carried(y[None, :])[0])
        change = np.where(np.isnan(change), 0.0, change)
        change = np.ldexp(change, -int(np.frexp(np.abs(change).max(initial=0.0))[1]))  # squares are numbers
        sd = change.std()
        if sd == 0:
            continue
        size = 2 ** math.ceil(math.log2(2 * len(change)))
        power = np.abs(np.fft.rfft((change - change.mean()) / sd, size)) ** 2
        total += np.fft.irfft(power)[: most + 2] / len(change)
    correlation = total / len(fullest)
    # only lags beyond the first at which the values no longer look alike: noise has small peaks before
    below = np.flatnonzero(correlation[: most + 1] < 0)
    lag = np.arange(max(2, int(below[0])) if len(below) else most + 1, most + 1)
    peaks = lag[(correlation[lag] > correlation[lag - 1]) & (correlation[lag] >= correlation[lag + 1])]
    if not len(peaks) or correlation[peaks].max() < _SEASON_CORRELATION:
        return ()
    best = int(peaks[correlation[peaks].argmax()])
    # multiples of a season repeat too: the shortest divisor that is nearly as good
    good = [int(m) for m in peaks if best % m == 0 and correlation[m] >= 0.9 * correlation[best]]
    return (good[0],)


def _chosen(seasons: Sequence[int] | None, panel: Panel, known: int) -> tuple[int, ...]:
    return season_lengths(panel, known) if seasons is None else tuple(int(m) for m in seasons)


def default_regressor() -> Any:
    """Ridge regression on standardised numbers; the penalty is chosen by leave-one-out."""
    return make_pipeline(StandardScaler(), RidgeCV(alphas=np.logspace(-2, 5, 8)))


def _refuse_extreme(y: FloatArray) -> None:
    """Refuse targets of which sums and differences may be no numbers."""
    bad = np.abs(y) > _LARGEST
    if bad.any():
        raise DataError(
            f"{int(bad.sum()):,} of {bad.size:,} targets are beyond {_LARGEST:g}, first {y[bad][0]:g}; no "
            "forecast can be computed from them: give them in a larger unit"
        )


def _carried(y: FloatArray) -> FloatArray:
    """The last known value at each step; NaN before the first."""
    at = np.where(np.isnan(y), 0, np.arange(y.shape[1]))
    np.maximum.accumulate(at, axis=1, out=at)
    return np.take_along_axis(y, at, axis=1)


def _take(values: FloatArray, steps: NDArray[np.intp]) -> FloatArray:
    """Columns of a (n_series, T) array; NaN for steps before the first."""
    out = values[:, np.maximum(steps, 0)]
    out[:, steps < 0] = np.nan
    return out


class _Features:
    """What is known of step t at step t - horizon, for all series; steps before ``known`` set the scales."""

    def __init__(self, panel: Panel, known: int, horizon: int, lags: int, seasons: tuple[int, ...]) -> None:
        self._panel, self._known, self._horizon, self._lags = panel, known, horizon, max(int(lags), 1)
        self._seasons = seasons
        self._last = _carried(panel.y)
        past = panel.y[:, :known]
        t = np.arange(horizon, max(known, horizon))
        change = panel.y[:, t] - self._last[:, t - horizon]
        self._scale = _spread(change)
        self._mean = _mean(past)
        self._farthest = _FARTHEST * _root_mean_square(past - self._mean[:, None])
        self._covariates = self._prepare()

    def _prepare(self) -> FloatArray | None:
        """(n_rows, d) other columns as numbers; the preparation saw the rows before ``known`` alone."""
        frame, rows = self._panel.frame, self._panel.rows[:, : self._known]
        if frame.shape[1] == 0:
            return None
        past = np.sort(rows[rows >= 0])
        prepared = preparation(frame.iloc[past]).fit(frame.iloc[past])
        # a linear model must not follow a price a hundred deviations out
        return np.clip(np.asarray(prepared.transform(frame), dtype=np.float64), -_FARTHEST, _FARTHEST)

    def training(self, first: int) -> tuple[FloatArray, FloatArray]:
        """Rows of all series at steps first .. known - 1 whose target and last value are known."""
        parts_X, parts_y = [], []
        block = max(_ROWS_AT_ONCE // self._panel.n_series, 1)
        for start in range(first, self._known, block):
            t = np.arange(start, min(start + block, self._known))
            X, last, scale = self.at(t)
            y = (self._panel.y[:, t] - last) / scale[:, None]
            use = np.isfinite(y).reshape(-1)
            parts_X.append(X[use])
            parts_y.append(y.reshape(-1)[use])
        if not parts_y:
            return np.empty((0, 0)), np.empty(0)
        return np.concatenate(parts_X), np.concatenate(parts_y)

    def at(self, t: NDArray[np.intp]) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(n_series * len(t), d) features, (n_series, len(t)) last values, (n_series,) scales."""
        y, h = self._panel.y, self._horizon
        last = _take(self._last, t - h)
        scale = self._scale
        columns = []
        places = [t - h - j for j in range(1, self._lags)]
        for m in self._seasons:
            back = m * math.ceil(h / m)
            places += [t - back, t - back - m, t - h - back]
        for place in places:
            columns.append((_take(y, place) - last) / scale[:, None])
        # covariates that move with the target stop there, and what cancels in a sum must stop together
        level = np.clip(last - self._mean[:, None], -self._farthest[:, None], self._farthest[:, None])
        columns.append(level / scale[:, None])
        shape = last.shape
        stacked = [np.where(np.isnan(column), 0.0, column) for column in columns]
        stacked += [np.broadcast_to(column, shape) for column in self._calendar(t)]
        if self._covariates is not None:
            rows = np.where(t - h >= 0, self._panel.rows[:, np.maximum(t - h, 0)], -1)
            # prepared numbers have mean 0: what a step without a row is given
            values = np.where(rows[..., None] >= 0, self._covariates[rows], 0.0)
            stacked += list(np.moveaxis(values, -1, 0))
        X = np.stack(stacked, axis=-1).reshape(-1, len(stacked))
        return np.nan_to_num(X, nan=0.0), last, scale

    def _calendar(self, t: NDArray[np.intp]) -> list[FloatArray]:
        """Hour, weekday and month of the steps to be predicted, where the steps are that fine."""
        panel = self._panel
        if not panel.dates:
            return []
        moment = panel.time[:, t]
        day = moment.astype("datetime64[D]")
        parts: list[FloatArray] = []
        hour = (moment - day) / np.timedelta64(_DAY, "s")
        past = panel.time[:, : self._known]
        known = past[~np.isnat(past)]
        if len(known) and (known != known.astype("datetime64[D]")).any():
            parts += [np.sin(2 * np.pi * k * hour) if sine else np.cos(2 * np.pi * k * hour)
                      for k in (1, 2, 3) for sine in (True, False)]  # fmt: skip
        weekday = (day.astype(np.int64) + 3) % 7
        if len(np.unique((known.astype("datetime64[D]").astype(np.int64) + 3) % 7)) > 1:
            parts += [(weekday == k).astype(np.float64) for k in range(7)]
        year = (day - moment.astype("datetime64[Y]").astype("datetime64[D]")) / np.timedelta64(365, "D")
        parts += [np.sin(2 * np.pi * year), np.cos(2 * np.pi * year)]
        return [np.where(np.isnat(moment), 0.0, part) for part in parts]


def _spread(change: FloatArray) -> FloatArray:
    """(n_series,) root mean square of known changes; 1 where there are none or all are zero."""
    size = _root_mean_square(change)
    return np.where(size > 0, size, 1.0)


def _root_mean_square(values: FloatArray) -> FloatArray:
    """(n_series,) root mean square of known values; 0 where there are none.

    In units of a power of two, by which division is exact, so that no square overflows or vanishes.
    """
    known = np.isfinite(values)
    found = np.where(known, values, 0.0)
    _, exponent = np.frexp(np.abs(found).max(axis=1, initial=0.0))
    scaled = np.ldexp(found, -exponent[:, None])
    return np.asarray(np.ldexp(np.sqrt(_mean(np.where(known, scaled * scaled, np.nan))), exponent))


def _mean(values: FloatArray) -> FloatArray:
    """(n_series,) mean of known values; 0 where there are none."""
    known = np.isfinite(values)
    return np.asarray(np.where(known, values, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1))
