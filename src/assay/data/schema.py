"""What the feature columns of a fitted method look like, and new rows brought to that."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from assay.core.errors import DataError
from assay.data.build import LARGEST
from assay.data.columns import kind_of, tidy
from assay.data.files import DECIMAL_COMMA, MISSING_CELLS
from assay.data.prepare import as_text

#: values that a text or category column may have and still be listed
_MOST_VALUES = 10_000
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False, "1.0": True, "0.0": False}
_TIME = r"[0-2]\d:[0-5]\d(:[0-5]\d(\.\d+)?)?"
_WORDS = {"number": "numbers", "bool": "true or false", "date": "dates", "category": "text", "text": "text"}


class Notices:
    """What was done to new rows, counted over all batches of them."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}
        self._examples: dict[tuple[str, str], dict[str, None]] = {}

    def add(self, column: str, what: str, rows: int, examples: Sequence[Any] = ()) -> None:
        """Count rows of a column; the first few examples are kept."""
        key = (column, what)
        self._counts[key] = self._counts.get(key, 0) + rows
        shown = self._examples.setdefault(key, {})
        for example in examples:
            if len(shown) < 3:
                shown[repr(str(example))] = None

    def lines(self) -> tuple[str, ...]:
        """One line a column and finding."""
        return tuple(self._line(column, what) for column, what in self._counts)

    def _line(self, column: str, what: str) -> str:
        count, shown = self._counts[column, what], self._examples[column, what]
        rows = f"{count:,} row{'s' if count != 1 else ''} " if count else ""
        return f"{column}: {rows}{what}" + (f", such as {', '.join(shown)}" if shown else "")


@dataclass(frozen=True)
class Column:
    """A feature column: its name and kind, and what the training rows had in it.

    ``values`` are all of them for a text or category column with few enough; ``low`` and ``high`` bound
    those of a number; ``missing`` says whether any was missing.
    """

    name: str
    kind: str
    missing: bool = False
    values: tuple[str, ...] | None = None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Schema:
    """The feature columns of a fitted method, in order."""

    columns: tuple[Column, ...]

    @classmethod
    def of(cls, frame: pd.DataFrame) -> Self:
        """The schema of the feature columns of a table."""
        return cls(tuple(_column(frame[name]) for name in frame.columns))

    @classmethod
    def from_list(cls, columns: Sequence[Mapping[str, Any]]) -> Self:
        """The schema that :meth:`to_list` wrote.

        Raises
        ------
        ValueError, TypeError
            It is not what that writes.
        """
        made = cls(
            tuple(
                Column(**{**c, "values": None if c["values"] is None else tuple(c["values"])})
                for c in columns
            )
        )
        for column in made.columns:
            ends = (column.low, column.high)
            if column.kind not in _KINDS or not isinstance(column.name, str):
                raise ValueError(f"no column: {column.name!r} of the kind {column.kind!r}")
            if column.kind == "number" and not all(type(end) in (int, float) for end in ends):
                raise ValueError(f"the column {column.name!r} of numbers has no bounds")
            if not all(isinstance(value, str) for value in column.values or ()):
                raise ValueError(f"the column {column.name!r} has values that are no text")
        if len(set(made.names)) < len(made.names):
            raise ValueError("a column is there twice")
        return made

    def to_list(self) -> list[dict[str, Any]]:
        """JSON-able, one mapping a column."""
        return [asdict(column) for column in self.columns]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(column.name for column in self.columns)

    def conform(
        self, frame: pd.DataFrame, notices: Notices, *, first_row: int = 0, known: Sequence[str] = ()
    ) -> pd.DataFrame:
        """These columns of a frame, in this order and of these kinds.

        Parameters
        ----------
        frame : DataFrame
            May have further columns, which are left out with a notice unless they are ``known``.
        notices : Notices
            Told of values never seen in training, missing ones where there were none, and numbers
            beyond those of the training rows.
        first_row : int
            Number of the first row, for messages.

        Raises
        ------
        DataError
            Columns that are missing or there twice, or values that are not of the column's kind: with
            names, the first row and the count.
        """
        frame = frame.set_axis([str(name) for name in frame.columns], axis="columns")
        present = list(frame.columns)
        counts, own, others = Counter(present), set(self.names), set(known)
        twice = sorted(name for name in own if counts[name] > 1)
        if twice:
            raise DataError(f"duplicated column name: {', '.join(map(repr, twice))}; rename one of them")
        absent = [name for name in self.names if name not in counts]
        if absent:
            raise DataError(_absent(absent, [name for name in present if name not in own]))
        extra = [name for name in counts if name not in own and name not in others]
        for name in extra:
            notices.add(name, "column not used: it was no feature in training", 0)
        return pd.DataFrame(
            {c.name: _conformed(frame[c.name], c, notices, first_row) for c in self.columns},
            index=frame.index,
        )


def _column(values: pd.Series[Any]) -> Column:
    kind = kind_of(values)
    name, missing = str(values.name), bool(values.isna().any())
    if kind == "number":
        numbers = values.to_numpy(dtype=np.float64)
        low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
        return Column(name, kind, missing, None, low, high)
    if kind in ("category", "text"):
        found = sorted(set(as_text(values[values.notna()])))
        values_kept = tuple(found) if len(found) <= _MOST_VALUES else None
        return Column(name, kind, missing=missing, values=values_kept)
    return Column(name, kind, missing=missing)


def _absent(absent: Sequence[str], others: Sequence[str]) -> str:
    listed = ", ".join(map(repr, absent[:5])) + (f" and {len(absent) - 5} more" if len(absent) > 5 else "")
    lowered = {name.lower(): name for name in others}
    near = [
        f"{lowered[match[0]]!r} for {name!r}"
        for name in absent[:5]
        if (match := difflib.get_close_matches(name.lower(), lowered, 1))
    ]
    hint = f"; is it {', '.join(near)}?" if near else ""
    return f"{len(absent)} column{'s are' if len(absent) > 1 else ' is'} missing: {listed}{hint}"


def _conformed(values: pd.Series[Any], column: Column, notices: Notices, first_row: int) -> pd.Series[Any]:
    """The column as one of its kind, with the frame's index."""
    index = values.index
    tidied, _ = tidy(values.reset_index(drop=True), column.name)
    brought = _KINDS[column.kind](tidied, column, first_row, notices)
    missing = int(brought.isna().sum())
    if missing and not column.missing:
        notices.add(column.name, "without a value, which no training row was", missing)
    if column.kind == "number":
        numbers = brought.to_numpy(dtype=np.float64)
        with np.errstate(invalid="ignore"):
            beyond = (numbers < column.low) | (numbers > column.high)
        if beyond.any():
            what = f"beyond the training rows' {column.low:g} to {column.high:g}"
            notices.add(column.name, what, int(beyond.sum()), [f"{v:g}" for v in numbers[beyond][:3]])
    elif column.values is not None:
        text = pd.Series(as_text(brought))
        strange = ~text.isin(column.values).to_numpy() & brought.notna().to_numpy()
        if strange.any():
            shared = "treated as a rare one" if len(column.values) > 1 else "treated as unknown"
            what = f"with a value that was not in the training rows, {shared}"
            notices.add(column.name, what, int(strange.sum()), list(dict.fromkeys(text[strange]))[:3])
    return brought.set_axis(index)


def _as_number(values: pd.Series[Any], column: Column, first_row: int, notices: Notices) -> pd.Series[Any]:
    kind = kind_of(values)
    if kind == "date":
        raise _other_kind(values, column, "dates", first_row, values.notna().to_numpy())
    if kind in ("number", "bool"):
        numbers = values.to_numpy(dtype=np.float64)
    else:
        numbers, bad = _numbers_in(values, column, notices)
        if bad.any():
            raise _other_kind(values, column, "text", first_row, bad)
    with np.errstate(invalid="ignore"):
        numbers = np.where(np.abs(numbers) > LARGEST, np.nan, numbers)
    return pd.Series(numbers + 0.0, name=column.name)  # -0.0 is 0.0, for rows are known by their bits


def _numbers_in(
    values: pd.Series[Any], column: Column, notices: Notices
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Numbers that cells of text spell, and which cells spell none; the same as in the reader of files."""
    text = values.astype(object).where(values.notna(), None)
    text = text.map(lambda cell: str(cell).strip(), na_action="ignore")
    text = text.where(~text.isin(MISSING_CELLS), None)
    present = text.dropna()
    if column.low is not None and column.low >= 0 and column.high is not None and column.high <= 1:
        # true or false with missing ones are numbers in training
        spelt = present.str.lower().map({"true": "1", "false": "0"})
        text, present = text.where(~text.index.isin(spelt.dropna().index), spelt), spelt.fillna(present)
    if present.str.fullmatch(_TIME).any():
        clock = present.str.fullmatch(_TIME)
        seconds = pd.to_timedelta(present[clock].map(_with_seconds)).dt.total_seconds()
        notices.add(column.name, "with a time of day, read as seconds", int(clock.sum()))
        text = text.where(~text.index.isin(seconds.index), seconds.map(repr))
    else:
        commas = present.str.contains(",", regex=False)
        if commas.any() and present.str.fullmatch(DECIMAL_COMMA).all():
            what = "with a decimal comma, read as a point"
            notices.add(column.name, what, int(commas.sum()), list(present[commas][:3]))
            text = text.str.replace(",", ".")
    cells = [cell.removeprefix("+") if isinstance(cell, str) else None for cell in text]
    for kind in (pa.float64(), pa.int64()):  # the second reads hexadecimal ones
        try:
            found = pa.array(cells, pa.string()).cast(kind).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            continue
        return found.astype(np.float64), np.zeros(len(cells), dtype=bool)
    return np.empty(0), np.array([cell is not None and not _is_number(cell) for cell in cells])


def _is_number(cell: str) -> bool:
    try:
        pa.scalar(cell, pa.string()).cast(pa.float64())
    except pa.ArrowInvalid:
        return False
    return True


def _with_seconds(clock: str) -> str:
    return clock if clock.count(":") == 2 else f"{clock}:00"


def _as_bool(values: pd.Series[Any], column: Column, first_row: int, notices: Notices) -> pd.Series[Any]:
    kind = kind_of(values)
    if kind == "bool":
        return values
    if kind == "number":
        numbers = values.to_numpy(dtype=np.float64)
        bad = ~np.isin(numbers, (0.0, 1.0)) & ~np.isnan(numbers)
    else:
        text = values.map(lambda cell: str(cell).strip().lower(), na_action="ignore")
        text = text.where(~text.isin([cell.lower() for cell in MISSING_CELLS]), None)
        numbers = text.map(_BOOLEANS).to_numpy(dtype=np.float64)
        bad = np.isnan(numbers) & text.notna().to_numpy()
    if bad.any():
        raise _other_kind(values, column, _WORDS[kind], first_row, bad)
    if np.isnan(numbers).any():  # with missing ones in training it would be a column of numbers
        raise _other_kind(values, column, "missing values", first_row, np.isnan(numbers))
    return pd.Series(numbers.astype(bool), name=column.name)


def _as_date(values: pd.Series[Any], column: Column, first_row: int, notices: Notices) -> pd.Series[Any]:
    if kind_of(values) == "date" or values.isna().all():
        return pd.Series(values.to_numpy().astype("datetime64[us]"), name=column.name)
    if kind_of(values) not in ("text", "category"):
        raise _other_kind(values, column, _WORDS[kind_of(values)], first_row, values.notna().to_numpy())
    text = values.astype(object).where(values.notna(), None)
    text = text.where(~text.isin(MISSING_CELLS), None)
    dates = pd.to_datetime(text, format="ISO8601", utc=True, errors="coerce")
    bad = (dates.isna() & text.notna()).to_numpy()
    if bad.any():
        raise _other_kind(values, column, "text", first_row, bad)
    return pd.Series(dates.dt.tz_localize(None).to_numpy().astype("datetime64[us]"), name=column.name)


def _as_label(values: pd.Series[Any], column: Column, first_row: int, notices: Notices) -> pd.Series[Any]:
    if kind_of(values) == "date":
        raise _other_kind(values, column, "dates", first_row, values.notna().to_numpy())
    if kind_of(values) == "number":  # codes such as 7 that a file with a missing one makes 7.0
        numbers = values.to_numpy(dtype=np.float64)
        whole = ~np.isfinite(numbers) | (numbers == np.floor(numbers))
        if values.dtype.kind == "f" and whole.all():
            known = frozenset(column.values or ())
            return pd.Series([None if np.isnan(v) else _code(v, known) for v in numbers], dtype=object)
    return values.astype(object).where(values.notna(), None)


def _code(value: float, known: Collection[str]) -> str:
    whole = str(int(value)) if np.isfinite(value) else str(value)
    return str(value) if whole not in known and str(value) in known else whole


_KINDS: dict[str, Callable[[pd.Series[Any], Column, int, Notices], pd.Series[Any]]] = {
    "number": _as_number,
    "bool": _as_bool,
    "date": _as_date,
    "category": _as_label,
    "text": _as_label,
}


def _other_kind(values: pd.Series[Any], column: Column, found: str, first_row: int, bad: Any) -> DataError:
    row = int(np.argmax(bad))
    return DataError(
        f"the column {column.name!r} was {_WORDS[column.kind]} in training and holds {found} in "
        f"{int(np.sum(bad)):,} of {len(values):,} rows, first in row {first_row + row} ({values.iloc[row]!r})"
    )
