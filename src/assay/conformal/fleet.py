"""Intervals and alarms for thousands of series at once, each row known by its key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.conformal.drift_alarm import DriftAlarm
from assay.conformal.fleet_keys import NEVER, SeriesIds, id_list, repeats_a_series, rounds, time_keys
from assay.conformal.fleet_states import Ints, SeriesStates
from assay.conformal.two_sides import interval_ends, side_count, side_scores, side_tracker
from assay.core.checks import FloatArray, as_vector
from assay.core.errors import DataError

State = dict[str, NDArray[Any]]
Flags = NDArray[np.bool_]

#: what became of a row, in the order of the codes in ``FleetStep.status``
STATUS = ("learned", "issued", "repeated", "late", "no forecast", "not finite")
LEARNED, ISSUED, REPEATED, LATE, NO_FORECAST, NOT_FINITE = range(len(STATUS))
#: kinds of time by their code in the state; 0 before the first row
_TIME_KINDS = ("", "number", "date")
#: a residual beyond it is as good as infinite: ranges and sums of a few of them are no numbers
_FARTHEST = 1e300


@dataclass(frozen=True)
class Drift:
    """An alarm: whose, at which time (as a whole number), on what evidence, and the misses of its test."""

    series_id: str
    time: int
    evidence: float
    misses: int
    outcomes: int


@dataclass(frozen=True)
class FleetStep:
    """What became of the rows of a batch, in their order.

    Attributes
    ----------
    forecast : (n,) array
        The forecast that the interval is around: that of the row, or the one that was issued before.
    interval : (n, 2) array
        NaN where a row was refused or had come before.
    covered : (n,) int8 array
        1 inside, 0 missed, -1 no outcome.
    status : (n,) uint8 array
        Codes of :data:`STATUS`.
    alarm : (n,) bool array
        The row at which an alarm of its series was raised.
    drifts : tuple of Drift
    """

    forecast: FloatArray
    interval: FloatArray
    covered: NDArray[np.int8]
    status: NDArray[np.uint8]
    alarm: Flags
    drifts: tuple[Drift, ...]


class Fleet:
    """One tracker for each of many series, told apart by id; all are updated together.

    A row is a series, a time, a forecast and the outcome. Its key is (series, time). Series come when
    their first row comes. Within a series time only goes forward:

    - a row with an outcome is learned if its time is after the last one learned;
    - the same time again is a repetition, an earlier time is late: both are counted and change nothing;
    - a row without an outcome (NaN) gets its interval and changes nothing else. The outcome may follow in a
      row of the same key, with or without the forecast, as long as no later one has been learned. What
      counts is the forecast that was issued first.

    Rows of a batch may come in any order: each series is taken in the order of its times. Of each series
    the fleet keeps the times last learned and issued, and up to ``horizon`` forecasts that wait for their
    outcome; the oldest goes when one more comes.

    Parameters
    ----------
    tracker : OnlineTracker
        Cloned; for example ``ErrorQuantifiedTracker(lr=0.1)``.
    score : "signed" or "absolute", default "signed"
        Two one-sided trackers at alpha / 2 each, or one at alpha on the absolute residual.
    alpha : level in (0, 1), optional
        Miscoverage of the intervals; the tracker's alpha if not given.
    horizon : int, optional
        h, where forecasts are made h steps ahead; the tracker's if not given. The interval of a row does
        not use the h - 1 outcomes before it, whether they have come or not.
    alarm_level : level in (0, 1) or None, default 0.001
        Level of false alarms of drifted coverage; what is promised under which null hypothesis, and what
        ``alarm_scope`` ("series" or "fleet") and ``alarm_side`` ("above" or "both") do, is written at
        :class:`~assay.conformal.drift_alarm.DriftAlarm`.
    alarm_after : int, default 100
        Outcomes of a series before its test begins: a new tracker misses much until it has found its height.

    Attributes
    ----------
    series_ids : SeriesIds
        Ids by place, in the order of their first coming; places by id.

    Examples
    --------
    >>> from assay.conformal.eci import ErrorQuantifiedTracker
    >>> from assay.conformal.fleet import Fleet
    >>> fleet = Fleet(ErrorQuantifiedTracker(lr=1.0), alpha=0.1)
    >>> step = fleet.update(["a", "b"], [1, 1], [10.0, 20.0], [11.0, 19.0])
    >>> step.covered.tolist()
    [0, 0]
    >>> fleet.predict(["a"], [10.0]).shape
    (1, 2)
    """

    def __init__(
        self,
        tracker: Any,
        *,
        score: str = "signed",
        alpha: Any = None,
        horizon: int | None = None,
        alarm_level: Any = 0.001,
        alarm_scope: str = "series",
        alarm_side: str = "above",
        alarm_after: int = 100,
    ) -> None:
        self._sides = side_count(score)
        own = side_tracker(tracker, self._sides, alpha, horizon).start(self._sides)
        self.alpha = float(own.alpha) * self._sides
        self.horizon = int(own.horizon)
        self.alarm = DriftAlarm(
            self.alpha, alarm_level, alarm_scope, alarm_side, lanes=self.horizon, after=alarm_after
        )
        self._states = SeriesStates(own, self._sides)
        self.series_ids = SeriesIds()
        self._columns: State = self._fresh(1)
        self._counts = np.zeros(len(STATUS) + 1, np.int64)
        self._time_kind = ""

    # --- public ------------------------------------------------------------------------------------

    @property
    def config(self) -> dict[str, str]:
        """What a state belongs to: the tracker with its parameters, the score, the levels."""
        tracker = self._states.tracker
        parameters = {name: repr(value) for name, value in sorted(tracker.get_params(deep=False).items())}
        return {
            "tracker": f"{type(tracker).__module__}.{type(tracker).__qualname__}",
            "score": "signed" if self._sides == 2 else "absolute",
            "alpha": repr(self.alpha),
            **{f"tracker {name}": value for name, value in parameters.items() if name != "alpha"},
            "alarm_level": repr(self.alarm.level),
            "alarm_scope": self.alarm.scope,
            "alarm_after": repr(self.alarm.after),
            "alarm bets": repr([round(float(bet), 12) for bet in self.alarm.bets]),
        }

    @property
    def series(self) -> list[str]:
        """Ids of all series, in the order of their first coming."""
        return list(self.series_ids)

    @property
    def counts(self) -> dict[str, int]:
        """Rows by what became of them, and forecasts that were given up without an outcome."""
        return dict(zip((*STATUS, "given up"), self._counts.tolist(), strict=True))

    @property
    def time_kind(self) -> str:
        """ "number", or "date" (times are microseconds since 1970); empty before the first row."""
        return self._time_kind

    @property
    def newest(self) -> int | None:
        """The newest time of all series, as a whole number; None before the first row."""
        n = len(self.series_ids)
        found = max(int(self._columns[name][:n].max(initial=NEVER)) for name in ("last", "issued"))
        return None if found == NEVER else found

    def clock(self, series_id: str) -> tuple[int, int]:
        """The times, as whole numbers, of the last outcome that a series learned and of its last forecast.

        Raises
        ------
        DataError
            The series is not known.
        """
        place = int(self.series_ids.find([series_id])[0])
        if place < 0:
            raise DataError(f"no series {series_id!r} in this fleet of {len(self.series_ids)}")
        return int(self._columns["last"][place]), int(self._columns["issued"][place])

    def coverage(self) -> dict[str, tuple[int, int]]:
        """Misses and outcomes of each series."""
        n = len(self.series_ids)
        misses, seen = self._columns["misses"][:n].tolist(), self._columns["outcomes"][:n].tolist()
        return dict(zip(self.series_ids, zip(misses, seen, strict=True), strict=True))

    def predict(self, ids: Any, forecasts: Any) -> FloatArray:
        """Intervals (n, 2) for the next row of each series; nothing is kept.

        A series that is not known gets what a new one gets.

        Raises
        ------
        DataError
            Lengths differ, or a forecast is not finite.
        """
        names = id_list(ids)
        centre = as_vector(forecasts, "forecasts", length=len(names))
        if not np.isfinite(centre).all():
            raise DataError(f"{int((~np.isfinite(centre)).sum())} of {len(centre)} forecasts are not finite")
        series = self.series_ids.find(names)
        out = np.empty((len(names), 2))
        known = series >= 0
        fresh = SeriesStates(self._states.tracker, self._sides).thresholds(np.zeros(1, np.int64))
        thresholds = np.repeat(fresh, len(names), axis=0)
        thresholds[known] = self._ahead(series[known])
        out[:] = self._ends(centre, thresholds)
        return out

    def update(self, ids: Any, times: Any, forecasts: Any, actuals: Any) -> FleetStep:
        """Take rows (n,): give each its interval, and learn the outcomes that are there.

        Parameters
        ----------
        ids : (n,) text or whole numbers
        times : (n,) whole numbers, or dates
            One kind in the life of a fleet.
        forecasts : (n,) numbers
            NaN where the forecast of that key has been given before.
        actuals : (n,) numbers
            NaN where there is no outcome yet.

        Raises
        ------
        DataError
            Lengths differ, times are missing or of another kind than before, ids are not text or whole
            numbers; nothing is changed then. A row that cannot be used is no error: see its status.
        """
        names = id_list(ids)
        n = len(names)
        keys, kind = time_keys(times)
        forecast = as_vector(forecasts, "forecasts", length=n).copy()
        actual = as_vector(actuals, "actuals", length=n)
        if len(keys) != n:
            raise DataError(f"{n} ids, but {len(keys)} times")
        if n and self._time_kind not in ("", kind):
            raise DataError(f"times are {kind}s, but those before were {self._time_kind}s")
        batch = _Batch(keys, forecast, actual)
        batch.status[np.isinf(forecast) | np.isinf(actual)] = NOT_FINITE
        series = self._places(names, ~np.isnan(forecast) & (batch.status != NOT_FINITE))
        batch.status[(series < 0) & (batch.status != NOT_FINITE)] = NO_FORECAST
        usable = np.flatnonzero(batch.status == _OPEN)
        if n:
            self._time_kind = kind
        if len(usable) == n and not repeats_a_series(series, len(self.series_ids)):
            self._take(batch, series, np.arange(n))
        else:
            for turn in rounds(series[usable], keys[usable]):
                rows = usable[turn]
                self._take(batch, series[rows], rows)
        self._discover(batch, series, usable)
        self._counts[: len(STATUS)] += np.bincount(batch.status, minlength=len(STATUS))
        return batch.step()

    def get_state(self) -> State:
        """Everything the fleet knows, as plain arrays; those of series have them on the leading axis."""
        return {name: np.array(array) for name, array in self.state_views().items()}

    def state_views(self) -> State:
        """As :meth:`get_state`, without copies where there need be none; read it before the next update."""
        n = len(self.series_ids)
        return {
            "counts": self._counts,
            "time_kind": np.array([_TIME_KINDS.index(self._time_kind)], np.int64),
            **{name: array[:n] for name, array in self._columns.items()},
            **{f"tracker.{name}": array for name, array in self._states.pack(n).items()},
            **self.series_ids.pack(),
        }

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> Fleet:
        """Go on from what :meth:`get_state` of a fleet with the same parameters gave.

        Raises
        ------
        DataError
            Arrays are missing, not known, or of another shape or type.
        """
        return self.adopt_state({name: np.array(array) for name, array in state.items()})

    def adopt_state(self, state: Mapping[str, NDArray[Any]]) -> Fleet:
        """As :meth:`set_state`, but the arrays become the fleet's own."""
        fresh = self._fresh(1)
        own = {"counts", "time_kind", "id_bytes", "id_text", *fresh}
        tracked = {name.partition(".")[2]: a for name, a in state.items() if name.startswith("tracker.")}
        given = {name for name in state if not name.startswith("tracker.")}
        if given != own:
            raise DataError(f"a state of a fleet has the arrays {sorted(own)}, got {sorted(given)}")
        ids = SeriesIds.unpack(state["id_bytes"], state["id_text"])
        n = len(ids)
        columns = {}
        for name, like in fresh.items():
            array = state[name]
            if array.shape != (n, *like.shape[1:]) or array.dtype != like.dtype:
                raise DataError(f"state {name!r} has shape {array.shape} and type {array.dtype}")
            columns[name] = array if n else like
        states = SeriesStates(self._states.tracker, self._sides)
        states.unpack(tracked, n)
        self._states, self.series_ids, self._columns = states, ids, columns
        self._counts = state["counts"]
        self._time_kind = _TIME_KINDS[int(state["time_kind"][0])]
        return self

    # --- inside ------------------------------------------------------------------------------------

    def _fresh(self, n: int) -> State:
        return {
            "last": np.full(n, NEVER, np.int64),
            "issued": np.full(n, NEVER, np.int64),
            "outcomes": np.zeros(n, np.int64),
            "misses": np.zeros(n, np.int64),
            "alarms": np.zeros(n, np.int64),
            "waiting": np.full((n, self.horizon), NEVER, np.int64),
            "waiting_rows": np.full((n, self.horizon, 3), np.nan),
            **self.alarm.fresh(n),
        }

    def _places(self, names: list[str], welcome: Flags) -> Ints:
        """(n,) places of the series; rows that are welcome bring new ones."""
        series = self.series_ids.find(names)
        new = np.flatnonzero((series < 0) & welcome)
        if not len(new):
            return series
        self.series_ids.add([names[i] for i in new])
        n = len(self.series_ids)
        self._states.reserve(n)
        more = self._states.capacity - len(self._columns["last"])
        if more > 0:
            fresh = self._fresh(more)
            self._columns = {name: np.concatenate([a, fresh[name]]) for name, a in self._columns.items()}
        return self.series_ids.find(names)

    def _take(self, batch: _Batch, series: Ints, rows: Ints) -> None:
        """Apply rows of a batch that name no series twice."""
        columns = self._columns
        time, actual = batch.times[rows], batch.actual[rows]
        forecast = batch.forecast[rows]
        last, issued = columns["last"][series], columns["issued"][series]
        has, given = ~np.isnan(actual), ~np.isnan(forecast)
        waiting = columns["waiting"][series] == time[:, None]
        waits = waiting.any(axis=1)

        status = np.full(len(rows), NO_FORECAST, np.uint8)
        status[(has & (given | waits)) & (time > last)] = LEARNED
        status[~has & given & (time > issued)] = ISSUED
        status[np.where(has, time < last, (time <= issued) & ~waits & (time != last))] = LATE
        status[(time == last) | (~has & waits)] = REPEATED
        centre = forecast
        if waits.any():
            kept = columns["waiting_rows"][series, waiting.argmax(axis=1), 0]
            centre = np.where(waits, kept, forecast)
        with np.errstate(over="ignore"):
            status[(status == LEARNED) & (np.abs(actual - centre) > _FARTHEST)] = NOT_FINITE
        batch.status[rows] = status

        learn = status == LEARNED
        if learn.all():
            self._learn(batch, series, rows, waiting, waits)
        elif learn.any():
            at = np.flatnonzero(learn)
            self._learn(batch, series[at], rows[at], waiting[at], waits[at])
        issue = np.flatnonzero(status == ISSUED)
        if len(issue):
            self._issue(batch, series[issue], rows[issue])

    def _learn(self, batch: _Batch, series: Ints, rows: Ints, waiting: NDArray[Any], waits: Flags) -> None:
        columns = self._columns
        any_waits = bool(waits.any())
        if any_waits:
            at, slot = np.flatnonzero(waits), waiting.argmax(axis=1)[waits]
            kept = columns["waiting_rows"][series[at], slot]
            batch.forecast[rows[at]] = kept[:, 0]
        forecast, actual = batch.forecast[rows], batch.actual[rows]
        scores = side_scores(actual[:, None], forecast[:, None], self._sides)
        ends = self._ends(forecast, self._states.run(series, scores.reshape(-1, self._sides, 1))[:, :, 0])
        if any_waits:
            ends[at] = kept[:, 1:]
        missed = (actual < ends[:, 0]) | (actual > ends[:, 1])
        time = batch.times[rows]
        batch.interval[rows], batch.covered[rows] = ends, ~missed
        columns["last"][series] = time
        columns["issued"][series] = np.maximum(columns["issued"][series], time)
        columns["outcomes"][series] += 1
        columns["misses"][series] += missed
        pending = columns["waiting"][series]
        gone = (pending != NEVER) & (pending <= time[:, None])
        if gone.any():
            self._counts[-1] += int(gone.sum()) - int(waits.sum())
            columns["waiting"][series] = np.where(gone, NEVER, pending)
        if self.alarm.level is None:
            return
        warm = np.flatnonzero(columns["outcomes"][series] > self.alarm.after)
        if len(warm):
            loud = warm[self.alarm.learn(columns, series[warm], missed[warm])]
            if len(loud):
                self._raise(batch, series[loud], rows[loud])

    def _issue(self, batch: _Batch, series: Ints, rows: Ints) -> None:
        columns = self._columns
        thresholds = self._ahead(series)
        ends = self._ends(batch.forecast[rows], thresholds)
        batch.interval[rows] = ends
        pending = columns["waiting"][series]
        slot = pending.argmin(axis=1)  # a free place, else the oldest
        self._counts[-1] += int((pending[np.arange(len(rows)), slot] != NEVER).sum())
        columns["waiting"][series, slot] = batch.times[rows]
        columns["waiting_rows"][series, slot] = np.column_stack([batch.forecast[rows], ends])
        columns["issued"][series] = batch.times[rows]

    def _ahead(self, series: Ints) -> FloatArray:
        """(k, sides) thresholds for the row after those that wait for their outcome."""
        if self.horizon == 1 or not len(series):
            return self._states.thresholds(series)
        ahead = np.minimum((self._columns["waiting"][series] != NEVER).sum(axis=1), self.horizon - 1)
        out = np.empty((len(series), self._sides))
        for steps in np.unique(ahead).tolist():
            at = np.flatnonzero(ahead == steps)
            out[at] = self._states.thresholds(series[at], steps)
        return out

    def _ends(self, centre: FloatArray, thresholds: FloatArray) -> FloatArray:
        return interval_ends(centre[:, None], thresholds.reshape(-1, 1), self._sides)[:, 0]

    def _discover(self, batch: _Batch, series: Ints, usable: Ints) -> None:
        """Alarms over the whole fleet, at the end of a batch."""
        if self.alarm.scope != "fleet" or self.alarm.level is None:
            return
        found = self.alarm.discoveries(self._columns["evidence"][: len(self.series_ids)])
        if len(found):
            row = np.full(len(self.series_ids), -1, np.int64)
            learned = usable[batch.status[usable] == LEARNED]
            in_time = learned[np.argsort(batch.times[learned], kind="stable")]
            row[series[in_time]] = in_time
            self._raise(batch, found, row[found])

    def _raise(self, batch: _Batch, series: Ints, rows: Ints) -> None:
        """Note alarms of these series, raised at these rows (-1: at none of this batch)."""
        columns = self._columns
        batch.alarm[rows[rows >= 0]] = True
        for place in series.tolist():
            batch.drifts.append(
                Drift(
                    self.series_ids[place],
                    int(columns["last"][place]),
                    float(columns["evidence"][place]),
                    int(columns["tested_misses"][place]),
                    int(columns["tested"][place]),
                )
            )
        columns["alarms"][series] += 1
        self.alarm.restart(columns, series)


_OPEN = 255


class _Batch:
    """Rows on their way through the fleet."""

    def __init__(self, times: Ints, forecast: FloatArray, actual: FloatArray) -> None:
        n = len(times)
        self.times, self.forecast, self.actual = times, forecast, actual
        self.interval = np.full((n, 2), np.nan)
        self.covered = np.full(n, -1, np.int8)
        self.status = np.full(n, _OPEN, np.uint8)
        self.alarm = np.zeros(n, np.bool_)
        self.drifts: list[Drift] = []

    def step(self) -> FleetStep:
        """What became of them."""
        return FleetStep(
            self.forecast, self.interval, self.covered, self.status, self.alarm, tuple(self.drifts)
        )
