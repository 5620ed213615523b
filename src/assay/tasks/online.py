"""Intervals that keep up with time: forecasts of one or many series, judged over stretches of time."""

from __future__ import annotations

import copy
from fractions import Fraction
from time import perf_counter
from typing import Any, ClassVar, NoReturn, Self

import numpy as np

from assay.core.checks import FloatArray, to_numpy
from assay.core.errors import DataError, MethodError, TaskError
from assay.core.levels import smallest_n
from assay.data.table import Table
from assay.tasks import measures, running
from assay.tasks.base import Metric, Outcome, Task
from assay.tasks.forecasting import (
    ColumnForecaster,
    as_forecaster,
    column_of_forecasts,
    default_regressor,
)
from assay.tasks.numeric import check_numbers
from assay.tasks.series import Panel, check_horizon, make_panel, show_time
from assay.tasks.stretches import MIN_STEPS, STRETCHES, WINDOWS, Stretch, detail, parts, typical_change


class OnlineTask(Task):
    """Intervals around forecasts of a series, given step by step as the truth comes in.

    The steps are cut into a history (a quarter of them) and five stretches of equal length; the
    seed is the number of a stretch. A forecaster is fitted on what lies before the stretch and its
    burn-in (500 steps or a tenth of all, the same for every method); the method goes through the burn-in
    and then the stretch, where it is judged. Nothing that a method sees at a step was unknown then.

    A method offers ``run(y, forecasts) -> (T, 2)``, or ``predict_interval(forecast)`` and ``update(y)``;
    for many series ``run`` takes (n_series, T) and gives (n_series, T, 2). With a horizon h above 1
    its constructor takes ``horizon``: y at t - h is the last that an interval at t may use. ``warm_up()``,
    where a method has it, is called before its time is taken.
    """

    name: ClassVar[str] = "online"
    reference: ClassVar[str] = "ogd"
    size_metric: ClassVar[str] = "mean_width"
    coverage_metric: ClassVar[str | None] = "coverage"
    max_seeds: ClassVar[int | None] = STRETCHES
    over_time: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ("horizon", "forecast")
    metrics: tuple[Metric, ...] = (
        Metric(
            "coverage", "coverage", "share", "target", "Share of the steps whose target is in its interval."
        ),
        Metric(
            "mean_width",
            "mean width",
            "target",
            "lower",
            "Mean width, infinite if any interval is; many series: in units of their mean change a step.",
        ),
        Metric("median_width", "median width", "target", "lower", "Median width."),
        Metric("share_infinite", "infinite", "share", "lower", "Share of intervals with an infinite end."),
        Metric("share_empty", "empty", "share", "lower", "Share of intervals that contain nothing."),
        Metric(
            "interval_score",
            "interval score",
            "target",
            "lower",
            "Winkler score: mean of width plus 2 / alpha times the distance by which the target is outside.",
        ),
        Metric(
            "coverage_deviation",
            "deviation of coverage",
            "share",
            "lower",
            "Distance of a stretch's coverage from 1 - alpha, to either side.",
        ),
        Metric(
            "rolling_100_gap",
            "largest gap, 100 steps",
            "share",
            "lower",
            "Largest distance of the coverage from 1 - alpha over any 100 steps in a row (mean over series); "
            "undefined where a stretch is shorter.",
        ),
        Metric(
            "rolling_500_gap",
            "largest gap, 500 steps",
            "share",
            "lower",
            "The same over 500 steps in a row.",
        ),
        Metric(
            "worst_series_coverage",
            "worst series' coverage",
            "share",
            "higher",
            "Coverage of the series where it is lowest; only for many series.",
        ),
        Metric("fit_seconds", "burn-in", "s", "lower", "Seconds for the burn-in."),
        Metric("predict_seconds", "stretch", "s", "lower", "Seconds for the stretch."),
        Metric("step_seconds", "a step", "s", "lower", "Seconds for one step of one series."),
        Metric("peak_memory", "peak memory", "MiB", "lower", "Peak memory above the start of the trial."),
    )

    def __init__(self, horizon: int = 1, forecast: str | None = None) -> None:
        self.horizon = check_horizon(horizon)
        self.forecast = forecast
        self._model: Any = None if forecast is None else ColumnForecaster(forecast)
        self._panel: tuple[str, Panel] | None = None

    def with_model(self, model: Any) -> Self:
        """The task with the forecaster, or the regressor inside one, that a question names."""
        if model is not None:
            if self.forecast is not None:
                raise TaskError(f"forecasts are the column {self.forecast!r}, so a model has no use")
            self._model = model
        return self

    def check(self, table: Table, alpha: Fraction) -> None:
        """Refuse targets that are not numbers, times that do not order the rows, and series too short."""
        check_numbers(table.y, table.target, "an interval", "there is no task for labels over time")
        panel = self.panel(table)
        need = smallest_n(alpha)
        if need is None:
            raise TaskError(
                "alpha 0 asks for intervals that contain everything; take a level above 0, such as 0.1"
            )
        least = max(MIN_STEPS, 10 * need, 20 * self.horizon)
        if panel.n_steps < least:
            raise TaskError(
                f"{panel.n_steps} steps are too few at alpha {float(alpha):g} and horizon {self.horizon}: at "
                f"least {least} are needed, a tenth of them as burn-in before each of {STRETCHES} stretches"
            )
        if self.forecast is not None:
            column_of_forecasts(panel, self.forecast)

    def notes(self, table: Table) -> tuple[str, ...]:
        """What was done to the order of rows and the times, and how the steps are used."""
        panel = self.panel(table)
        history, size, burn_in = parts(panel.n_steps)
        known = np.isfinite(panel.y).sum(axis=1)
        series = (
            ""
            if panel.n_series == 1
            else (f"{panel.n_series:,} series of {known.min():,} to {known.max():,} targets; ")
        )
        scaled = (
            ()
            if panel.n_series == 1
            else (
                "widths and interval scores of many series are in units of each one's mean absolute change "
                "from step to step before the stretch",
            )
        )
        short = [w for w in WINDOWS if size < w]
        windows = " and ".join(map(str, short))
        undefined = (f"no rolling coverage over {windows} steps: a stretch has {size}",) if short else ()
        return (
            *panel.notes,
            *undefined,
            *scaled,
            f"{series}{panel.n_steps:,} steps: {history:,} of history, then {STRETCHES} stretches of "
            f"{size:,}, each after a burn-in of {burn_in:,} steps; forecasts are made {self.horizon} "
            f"step{'' if self.horizon == 1 else 's'} before",
        )

    def panel(self, table: Table) -> Panel:
        """The table's series, made once."""
        if self._panel is None or self._panel[0] != table.fingerprint:
            made = make_panel(table.frame, table.target, table.time, table.group)
            self._panel = table.fingerprint, made
        return self._panel[1]

    def split(self, table: Table, seed: int) -> Stretch:
        """Forecasts of the burn-in and the stretch of that number, the same for every method."""
        if not 0 <= seed < STRETCHES:
            raise TaskError(
                f"there are {STRETCHES} stretches of time, seeds 0 to {STRETCHES - 1}; got {seed}"
            )
        panel = self.panel(table)
        history, size, burn_in = parts(panel.n_steps)
        first = history + seed * size
        stop = first + size if seed < STRETCHES - 1 else panel.n_steps
        origin = first - burn_in
        forecasts = as_forecaster(self._model).forecast(panel, origin, stop, self.horizon)
        if forecasts.shape != (panel.n_series, stop - origin):
            raise MethodError(
                f"the forecaster gave shape {forecasts.shape}; {(panel.n_series, stop - origin)} is expected"
            )
        y = panel.y[:, origin:stop]
        finite = np.isfinite(forecasts)
        # a series takes part where methods could learn from half of its burn-in
        ready = (np.isfinite(y) & finite)[:, :burn_in].sum(axis=1) >= max(burn_in // 2, 1)
        taking = np.flatnonzero(ready & (np.isfinite(y) & finite)[:, burn_in:].any(axis=1))
        if not len(taking):
            raise DataError(
                f"no series has targets and forecasts in the burn-in and in stretch {seed} "
                f"(steps {first:,} to {stop - 1:,})"
            )
        notices = []
        running_on = np.isfinite(y)[:, burn_in:].any(axis=1)
        if out := int(running_on.sum()) - len(taking):
            notices.append(
                f"{out:,} series are left out of stretch {seed}: too little of their burn-in is known"
            )
        y, forecasts, finite = y[taking], forecasts[taking], finite[taking]
        if unforecast := int((np.isfinite(y) & ~finite).sum()):
            notices.append(f"{unforecast:,} steps of stretch {seed} have no forecast and are left out")
        # methods refuse NaN forecasts; where one is missing nothing is learnt or judged
        y = np.where(finite, y, np.nan)
        fill = np.where(finite.any(axis=1), np.nanmean(np.where(finite, forecasts, np.nan), axis=1), 0.0)
        forecasts = np.where(finite, forecasts, fill[:, None])
        drawn = int(np.argmax(np.isfinite(panel.y[taking]).sum(axis=1)))
        return Stretch(
            y=y,
            forecasts=forecasts,
            burn_in=burn_in,
            n_fit=origin - self.horizon + 1,
            first=first,
            horizon=self.horizon,
            seed=seed,
            series=tuple(panel.series[i] for i in taking),
            unit=np.ones(1) if panel.n_series == 1 else typical_change(panel.y[taking, :first]),
            drawn=drawn,
            when=tuple(show_time(moment) for moment in panel.time[taking[drawn], first:stop]),
            notices=tuple(notices),
        )

    def final_split(self, table: Table, seed: int) -> NoReturn:
        """Refused: a method of this task learns from every outcome, so there is no last fit to keep."""
        raise TaskError(
            "methods of the task 'online' are not fitted once and kept, they go on with every outcome: "
            "`assay monitor` runs them on series as they come and keeps their state"
        )

    def default_model(self) -> Any:
        """The regression inside :class:`~assay.tasks.forecasting.LagForecaster`: ridge on lagged values."""
        return default_regressor()

    def accepts(self, method: Any) -> str | None:
        """None if there is ``run``, or ``predict_interval`` and ``update``."""
        if callable(getattr(method, "run", None)):
            return None
        named = method.__name__ if isinstance(method, type) else type(method).__name__
        for attribute, call in (("predict_interval", "predict_interval(forecast)"), ("update", "update(y)")):
            if not callable(getattr(method, attribute, None)):
                return f"{named} has no run(y, forecasts), and no {call}"
        return None

    def evaluate(self, method: Any, split: Stretch, alpha: Fraction) -> Outcome:
        """Burn-in, then the stretch: coverage, widths and rolling coverage of the stretch."""
        if split.horizon > 1 and not running.takes(type(method).__init__, "horizon"):
            raise MethodError(
                f"{type(method).__name__} takes no horizon: with forecasts {split.horizon} steps ahead it "
                "would use targets that are not known yet"
            )
        notices = list(split.notices)
        if not running.has_alpha(method):
            notices.append("takes no alpha in its constructor: it ran at its own level")
        single = len(split.y) == 1
        B = split.burn_in
        y, forecasts = (split.y[0], split.forecasts[0]) if single else (split.y, split.forecasts)
        runner = method if callable(getattr(method, "run", None)) else _StepByStep(method)
        if callable(warm_up := getattr(method, "warm_up", None)):
            warm_up()
        start = perf_counter()
        runner.run(y[..., :B], forecasts[..., :B])
        middle = perf_counter()
        raw = runner.run(y[..., B:], forecasts[..., B:])
        end = perf_counter()
        n = split.y.shape[1] - B
        interval = _check(raw, (n, 2) if single else (len(split.y), n, 2)).reshape(-1, n, 2)
        truth = split.y[:, B:]
        judged = np.isfinite(truth)
        metrics = _measure(interval, truth, judged, split.unit, alpha)
        metrics |= {
            "fit_seconds": middle - start,
            "predict_seconds": end - middle,
            "step_seconds": (end - middle) / truth.size,
        }
        shown = detail(split, interval, judged, alpha)
        return Outcome(metrics, shown, tuple(notices))


class _StepByStep:
    """``run`` for a method that takes one step at a time; a copy of it for each series."""

    def __init__(self, method: Any) -> None:
        self._method = method
        self._copies: list[Any] = []

    def run(self, y: FloatArray, forecasts: FloatArray) -> FloatArray:
        if y.ndim == 1:
            return self._steps(self._method, y, forecasts)
        self._copies = self._copies or [copy.deepcopy(self._method) for _ in y]
        return np.stack([self._steps(*of) for of in zip(self._copies, y, forecasts, strict=True)])

    @staticmethod
    def _steps(method: Any, y: FloatArray, forecasts: FloatArray) -> FloatArray:
        out = np.empty((len(y), 2))
        for t in range(len(y)):
            out[t] = np.asarray(method.predict_interval(forecasts[t]), dtype=np.float64).reshape(2)
            method.update(y[t])
        return out


def _check(raw: Any, shape: tuple[int, ...]) -> FloatArray:
    """Float64 ends without NaN, or a MethodError with numbers."""
    if raw is None:
        raise MethodError("run gave nothing; intervals for each step are expected")
    array = to_numpy(raw)
    if array.shape != shape:
        raise MethodError(f"the intervals have shape {array.shape}; {shape} is expected")
    if array.dtype.kind not in "fiu":
        raise MethodError(f"the intervals are no numbers (dtype {array.dtype})")
    interval = array.astype(np.float64)
    bad = np.isnan(interval).any(axis=-1)
    if bad.any():
        first = np.unravel_index(int(bad.argmax()), bad.shape)
        raise MethodError(
            f"{int(bad.sum()):,} of {bad.size:,} intervals have a NaN end, first at step {first[-1]}"
        )
    return interval


def _measure(
    interval: FloatArray, y: FloatArray, judged: measures.BoolArray, unit: FloatArray, alpha: Fraction
) -> dict[str, float]:
    hits = judged & measures.covers(interval.reshape(-1, 2), y.reshape(-1)).reshape(y.shape)
    flat, truth = (interval / unit[:, None, None])[judged], (y / unit[:, None])[judged]
    coverage = float(hits[judged].mean())
    metrics = {
        "coverage": coverage,
        **measures.sizes(flat, truth, measures.interval_widths(flat), alpha),
        "coverage_deviation": abs(coverage - float(1 - alpha)),
        "rolling_100_gap": measures.rolling_gap(hits, judged, 100, alpha),
        "rolling_500_gap": measures.rolling_gap(hits, judged, 500, alpha),
    }
    if len(y) > 1:
        seen = judged.any(axis=1)
        metrics["worst_series_coverage"] = float((hits.sum(axis=1)[seen] / judged.sum(axis=1)[seen]).min())
    return metrics
