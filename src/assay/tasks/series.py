"""One or many series of a table on a common axis of steps, in order of time, checked in words."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.core.checks import FloatArray
from assay.core.errors import DataError, TaskError
from assay.data.columns import kind_of, spelling_advice

#: series share an axis of times where all their times are at most this many times those of the longest
_SHARED_AXIS = 1.25
#: missing steps are put in where at least this share of the steps is regular ...
_REGULAR_SHARE = 0.9
#: ... and at most this share of all steps is missing
_MOST_MISSING = 0.1
_SHOWN = 3
#: whole numbers of eight digits in this range may be dates, such as 20240131
_DATE_NUMBERS = (19000101, 21001231)


@dataclass(frozen=True)
class Panel:
    """Series on the rows, steps on the columns.

    Attributes
    ----------
    y : (n_series, T) float64
        Targets; NaN where none is known, where a step is missing, and before or after a series.
    time : (n_series, T) datetime64[us] or float64
        When; NaT or NaN where a series has no such step.
    rows : (n_series, T) intp
        Positions in ``frame``; -1 where a step has no row.
    series : names of the series; one empty name for a table that is one series.
    frame : columns that are neither target nor time nor group, in the table's order of rows.
    target, dates : the target's name; whether ``time`` holds dates.
    step : seconds (dates) or units of a regular step, NaN if the steps are not regular.
    notes : what was done to the order of rows and to the times.
    """

    y: FloatArray
    time: NDArray[Any]
    rows: NDArray[np.intp]
    series: tuple[str, ...]
    frame: pd.DataFrame
    target: str
    dates: bool
    step: float
    notes: tuple[str, ...] = field(default=())

    @property
    def n_series(self) -> int:
        return len(self.y)

    @property
    def n_steps(self) -> int:
        return int(self.y.shape[1])


def make_panel(frame: pd.DataFrame, target: str, time: str | None = None, group: str | None = None) -> Panel:
    """The series of a table.

    Parameters
    ----------
    frame : table, one row a series and step, in any order if ``time`` is given
    target : column of numbers; missing ones are kept
    time : column of dates or numbers; None takes the rows in their order
    group : column that names the series; None for a single one

    Raises
    ------
    DataError
        Times that are missing, infinite, no times at all, or twice in one series.
    """
    notes: list[str] = []
    names, code = _series(frame, group)
    if time is None:
        when: NDArray[Any] = _positions(code).astype(np.float64)
        dates = False
        notes.append("no column of times is given: rows count as equal steps, in the order of the table")
    else:
        when, dates = _times(frame[time], time, notes)
    order = np.lexsort((when, code))
    ordered_code, ordered_when = code[order], when[order]
    if time is not None:
        _refuse_repeats(frame, time, group, order, ordered_code, ordered_when, dates)
        if not _in_order(code, when):
            notes.append(f"the rows were not in order of {time!r}: sorted")
    step, words = _step(ordered_when, ordered_code, dates)
    axis, place = _axis(ordered_when, ordered_code, len(names), dates, step, notes, words)
    T = int(place.max()) + 1 if axis is None else len(axis)
    rows = np.full((len(names), T), -1, dtype=np.intp)
    rows[ordered_code, place] = order
    y = np.full((len(names), T), np.nan)
    y[ordered_code, place] = frame[target].to_numpy(dtype=np.float64)[order]
    if axis is None:
        moments = np.full((len(names), T), np.datetime64("NaT", "us") if dates else np.nan)
        moments[ordered_code, place] = ordered_when
    else:
        moments = np.broadcast_to(axis, (len(names), T))
    features = frame.drop(columns=[name for name in (target, time, group) if name is not None])
    return Panel(y, moments, rows, names, features, target, dates, step, tuple(notes))


def _series(frame: pd.DataFrame, group: str | None) -> tuple[tuple[str, ...], NDArray[np.intp]]:
    if group is None:
        return ("",), np.zeros(len(frame), dtype=np.intp)
    gone = frame[group].isna().to_numpy()
    if gone.any():
        raise DataError(
            f"the column {group!r}, which names the series, is missing in {int(gone.sum()):,} of "
            f"{len(frame):,} rows, first at row {int(gone.argmax())}"
        )
    code, values = pd.factorize(frame[group])
    return tuple(map(str, values)), np.asarray(code, dtype=np.intp)


def _positions(code: NDArray[np.intp]) -> NDArray[np.intp]:
    """The place of each row within its series."""
    return np.asarray(pd.Series(code).groupby(code).cumcount().to_numpy(), dtype=np.intp)


def _times(column: pd.Series[Any], name: str, notes: list[str]) -> tuple[NDArray[Any], bool]:
    """Times as datetime64[us] or float64, and whether they are dates."""
    kind, n = kind_of(column), len(column)
    gone = column.isna().to_numpy()
    if gone.any():
        raise DataError(
            f"the time {name!r} is missing in {int(gone.sum()):,} of {n:,} rows, first at row "
            f"{int(gone.argmax())}; fill it in or leave those rows out"
        )
    if kind == "date":
        return column.to_numpy().astype("datetime64[us]"), True
    if kind != "number":
        advice = (
            spelling_advice(column) or "give dates as YYYY-MM-DD HH:MM, or whole numbers that count steps"
        )
        raise DataError(f"the time {name!r} is {kind}, such as {str(column.iloc[0])!r}: {advice}")
    values = column.to_numpy(dtype=np.float64)
    if np.isinf(values).any():
        raise DataError(
            f"the time {name!r} is infinite in {int(np.isinf(values).sum())} of {n:,} rows, first at row "
            f"{int(np.isinf(values).argmax())}"
        )
    low, high = _DATE_NUMBERS
    if values.min() >= low and values.max() <= high and (values == np.floor(values)).all():
        dates = pd.to_datetime(
            pd.Series(values.astype(np.int64).astype(str)), format="%Y%m%d", errors="coerce"
        )
        if dates.notna().all():
            notes.append(f"{name} holds numbers such as {int(values[0])}: read as dates")
            return dates.to_numpy().astype("datetime64[us]"), True
    return values, False


def _refuse_repeats(
    frame: pd.DataFrame,
    time: str,
    group: str | None,
    order: NDArray[np.intp],
    code: NDArray[np.intp],
    when: NDArray[Any],
    dates: bool,
) -> None:
    """Raise a DataError that names the first rows with equal times, and what would tell them apart."""
    same = (code[1:] == code[:-1]) & (when[1:] == when[:-1])
    if not same.any():
        return
    at = int(same.argmax())
    pair = sorted((int(order[at]), int(order[at + 1])))
    where = "" if group is None else f" of the series {frame[group].iloc[pair[0]]!r}"
    text = (
        f"the time {time!r} repeats an earlier one{where} in {int(same.sum()):,} of {len(frame):,} rows, "
        f"first {show_time(when[at])} in rows {pair[0]} and {pair[1]}"
    )
    given = [name for name in (time, group) if name is not None]
    telling = [
        name
        for name in frame.columns
        if name not in given
        and (kind_of(frame[name]) in {"text", "category"} or frame[name].dtype.kind in "iu")
        and frame[name].nunique() * 2 <= len(frame)
        and not frame.duplicated([*given, name]).any()
    ]
    if telling:
        names = ", ".join(map(repr, telling[:_SHOWN]))
        raise DataError(f"{text}. Are they several series? Name the column that tells them apart: {names}")
    if dates and _spring_and_autumn(when[1:][same]):
        raise DataError(
            f"{text}. The hour is repeated when clocks are put back: give times with their offset from UTC"
        )
    raise DataError(f"{text}; leave one of each out, or name the column that tells the series apart")


def _spring_and_autumn(repeated: NDArray[Any]) -> bool:
    """Whether all repeated times lie in an hour at night in autumn, at most a day of them a year."""
    stamps = pd.DatetimeIndex(repeated)
    days = stamps.normalize().unique()
    return bool((stamps.hour <= 3).all() and len(days) == len(set(days.year)))


def _in_order(code: NDArray[np.intp], when: NDArray[Any]) -> bool:
    """Whether the rows of each series are already sorted."""
    order = np.argsort(code, kind="stable")
    c, w = code[order], when[order]
    return bool(((c[1:] != c[:-1]) | (w[1:] > w[:-1])).all())


def _step(when: NDArray[Any], code: NDArray[np.intp], dates: bool) -> tuple[float, str]:
    """(the regular step or NaN, words about steps of other lengths).

    Regular: at least ``_REGULAR_SHARE`` of the steps are equal and the others multiples of them, or
    calendar months.
    """
    gap = np.diff(when)[code[1:] == code[:-1]]
    if not len(gap):
        return float("nan"), ""
    size = gap / np.timedelta64(1, "s") if dates else gap.astype(np.float64)
    values, counts = np.unique(size, return_counts=True)
    common = float(values[counts.argmax()])
    share = counts.max() / len(size)
    if share == 1.0:
        return common, ""
    months = dates and common >= 28 * 86_400 and _same_day(when)
    if months:
        return common, ""
    multiple = np.abs(size / common - np.round(size / common)) < 1e-6
    unit = _show_step(common, dates)
    other = int((size != common).sum())
    words = (
        f"{other:,} of {len(size):,} steps are not {unit} (shortest {_show_step(float(values[0]), dates)}, "
        f"longest {_show_step(float(values[-1]), dates)})"
    )
    regular = share >= _REGULAR_SHARE and bool(multiple.all())
    return (common if regular else float("nan")), words


def _same_day(when: NDArray[Any]) -> bool:
    """Whether the dates are first (or last, or equal) days of their months."""
    stamps = pd.DatetimeIndex(when)
    return bool((stamps.day == stamps.day[0]).all() or stamps.is_month_end.all())


def _axis(
    when: NDArray[Any],
    code: NDArray[np.intp],
    n_series: int,
    dates: bool,
    step: float,
    notes: list[str],
    words: str,
) -> tuple[NDArray[Any] | None, NDArray[np.intp]]:
    """(the common times or None, the column of each row)."""
    lengths = np.bincount(code, minlength=n_series)
    place = np.asarray(np.arange(len(code)) - np.repeat(np.cumsum(lengths) - lengths, lengths), dtype=np.intp)
    axis = np.unique(when)
    if len(axis) > _SHARED_AXIS * lengths.max():
        notes.append(
            f"the {n_series:,} series do not share their times: each is taken as steps that end together"
        )
        if words:
            notes.append(f"{words}: steps are rows of the table, whatever the time between them")
        return None, place + (lengths.max() - lengths)[code]
    if words and np.isfinite(step):
        unit = np.timedelta64(round(step * 1e6), "us") if dates else step
        count = int(np.round((axis[-1] - axis[0]) / unit)) + 1
        missing = count - len(axis)
        if 0 < missing <= _MOST_MISSING * count:
            notes.append(f"{missing:,} of {count:,} steps of {_show_step(step, dates)} have no row: put in")
            axis = axis[0] + np.arange(count) * unit
            return axis, np.asarray(np.round((when - axis[0]) / unit), dtype=np.intp)
    if words and len(axis) > 2 and (np.diff(axis) != axis[1] - axis[0]).any():
        notes.append(f"{words}: steps are rows of the table, whatever the time between them")
    return axis, np.asarray(np.searchsorted(axis, when), dtype=np.intp)


def check_horizon(horizon: Any) -> int:
    """The horizon as a whole number of steps from 1, or a TaskError."""
    whole = isinstance(horizon, (int, np.integer)) and not isinstance(horizon, bool)
    if not whole or horizon < 1:
        raise TaskError(f"horizon is {horizon!r}; give a whole number of steps from 1")
    return int(horizon)


def show_time(moment: Any) -> str:
    """A time for reading: dates without needless zeros, numbers as they are."""
    if isinstance(moment, np.datetime64):
        if np.isnat(moment):
            return ""
        text = pd.Timestamp(moment).isoformat(sep=" ")
        return text.removesuffix(" 00:00:00").removesuffix(":00") if len(text) == 19 else text
    return "" if np.isnan(moment) else f"{moment:.10g}"


def _show_step(size: float, dates: bool) -> str:
    if not dates:
        return f"{size:g}"
    for seconds, word in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if size >= seconds and size % seconds == 0:
            count = int(size // seconds)
            return f"{count:,} {word}{'' if count == 1 else 's'}"
    return f"{size:g} seconds"
