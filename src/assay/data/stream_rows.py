"""Lines of CSV or JSON become rows of a stream: series, time, forecast, outcome; or a reason why not."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import DataError
from assay.data.files import MISSING_CELLS

#: what the four columns are called unless the user says otherwise
ROLES = ("series_id", "time", "forecast", "actual")

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(microseconds=1)
_MISSING = frozenset(MISSING_CELLS)
_SHOWN = 40


@dataclass(frozen=True)
class BadRow:
    """A row that cannot be used: its line (or row, in Parquet) counted from 1, and the reason."""

    line: int
    reason: str


@dataclass
class Rows:
    """Rows that can be used, column by column; times are whole numbers, dates in microseconds since 1970."""

    lines: Sequence[int] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    #: times as they came
    stamps: Sequence[Any] = field(default_factory=list)
    forecasts: list[float] = field(default_factory=list)
    actuals: list[float] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)
    #: "number" or "date"; empty where there is no row
    kind: str = ""

    def __len__(self) -> int:
        return len(self.ids)

    def without(self, refused: Mapping[int, str]) -> Rows:
        """Rows less those at some places, which are refused for a reason each."""
        kept = [i for i in range(len(self)) if i not in refused]
        bad = [*self.bad, *(BadRow(self.lines[i], reason) for i, reason in refused.items())]
        return Rows(
            [self.lines[i] for i in kept],
            [self.ids[i] for i in kept],
            [self.times[i] for i in kept],
            [self.stamps[i] for i in kept],
            [self.forecasts[i] for i in kept],
            [self.actuals[i] for i in kept],
            sorted(bad, key=lambda row: row.line),
            self.kind,
        )

    def time_array(self) -> NDArray[Any]:
        """Times as an array of whole numbers or of dates."""
        keys = np.array(self.times, np.int64)
        return keys.view("datetime64[us]") if self.kind == "date" else keys


class RowReader:
    """Turns the values of four columns into rows; remembers whether times are numbers or dates."""

    def __init__(self, kind: str = "") -> None:
        self.kind = kind
        self._known: dict[Any, tuple[int, str]] = {}

    def read(self, lines: Sequence[int], values: Sequence[Sequence[Any]], bad: Sequence[BadRow]) -> Rows:
        """Rows from (series, time, forecast, actual) a line; text, numbers or None each."""
        problems = list(bad)
        good = []
        self._known.clear()
        for line, (name, stamp, forecast, actual) in zip(lines, values, strict=True):
            try:
                series = _series(name)
                time, kind = self._time(stamp)
                centre, outcome = _number(forecast, "forecast"), _number(actual, "actual")
                self._decide(kind, stamp)
            except ValueError as error:
                problems.append(BadRow(line, str(error)))
            else:
                good.append((line, series, time, stamp, centre, outcome))
        problems.sort(key=lambda row: row.line)
        if not good:
            return Rows(bad=problems)
        at, ids, times, stamps, centres, outcomes = map(list, zip(*good, strict=True))
        return Rows(at, ids, times, stamps, centres, outcomes, problems, self.kind)

    def read_plain(self, first: int, columns: Sequence[Sequence[str]]) -> Rows | None:
        """Rows from the columns of a batch in which there is nothing to refuse or to skip; else None."""
        names, stamps, forecasts, actuals = columns
        ids = list(map(str.strip, names))
        centres, outcomes = _plain_numbers(forecasts), _plain_numbers(actuals)
        if centres is None or outcomes is None or not all(ids):
            return None
        try:
            known = {stamp: _time(stamp) for stamp in set(stamps)}
        except ValueError:
            return None
        kinds = {kind for _, kind in known.values()}
        if len(kinds) != 1 or (self.kind and kinds != {self.kind}):
            return None
        (self.kind,) = kinds
        times = [known[stamp][0] for stamp in stamps]
        return Rows(range(first, first + len(ids)), ids, times, stamps, centres, outcomes, [], self.kind)

    def _time(self, stamp: Any) -> tuple[int, str]:
        known = self._known.get(stamp) if isinstance(stamp, str) else None
        if known is None:
            known = _time(stamp)
            if isinstance(stamp, str):
                self._known[stamp] = known
        return known

    def _decide(self, kind: str, stamp: Any) -> None:
        """The first row that can be used decides what times are."""
        if kind != self.kind:
            if self.kind:
                raise ValueError(f"time {_show(stamp)} is a {kind}, those before were {self.kind}s")
            self.kind = kind


def _plain_numbers(cells: Sequence[str]) -> list[float] | None:
    """Numbers of cells that hold one or nothing; None where some cell asks for a closer look."""
    try:
        try:
            numbers = list(map(float, cells))
        except ValueError:
            numbers = [float(cell) if cell else math.nan for cell in cells]
    except ValueError:
        return None
    return None if math.inf in numbers or -math.inf in numbers or "_" in "".join(cells) else numbers


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."


def _series(name: Any) -> str:
    if isinstance(name, str):
        text = name.strip()
        if text and not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ValueError(f"the series {_show(name)} holds half of a character")
        if text:
            return text
    elif isinstance(name, (int, np.integer)) and not isinstance(name, bool):
        return str(name)
    raise ValueError(f"the series {_show(name)} is neither text nor a whole number")


def _time(stamp: Any) -> tuple[int, str]:
    """A whole number and what it counts; dates without a zone are taken as UTC."""
    if isinstance(stamp, str):
        text = stamp.strip()
        digits = text[1:] if text[:1] in ("-", "+") else text
        if digits.isdecimal() and digits.isascii():
            stamp = int(text)
        else:
            try:
                return _date(datetime.fromisoformat(text)), "date"
            except ValueError:
                raise ValueError(f"time {_show(stamp)} is neither a whole number nor an ISO date") from None
    if isinstance(stamp, datetime):
        return _date(stamp), "date"
    if isinstance(stamp, float) and stamp.is_integer():
        stamp = int(stamp)
    if isinstance(stamp, (int, np.integer)) and not isinstance(stamp, bool):
        if not -(2**63) < stamp < 2**63:
            raise ValueError(f"time {_show(stamp)} does not fit 64 bits")
        return int(stamp), "number"
    raise ValueError(f"time {_show(stamp)} is neither a whole number nor a date")


def _date(moment: datetime) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // _TICK


def _number(value: Any, what: str) -> float:
    if value is None:
        return math.nan
    if isinstance(value, str):
        text = value.strip()
        if text in _MISSING:
            return math.nan
        try:
            number = float(text)
        except ValueError:
            raise ValueError(f"{what} {_show(value)} is not a number") from None
        if "_" in text:
            raise ValueError(f"{what} {_show(value)} is not a number")
    elif isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
    else:
        raise ValueError(f"{what} {_show(value)} is not a number")
    if math.isinf(number):
        raise ValueError(f"{what} {_show(value)} is infinite")
    return number


# ---------------------------------------------------------------- text


class CsvLines:
    """Lines of CSV under a header; a line is a row, quoted fields may hold separators but no line ends."""

    def __init__(self, header: str, columns: Sequence[str], where: str) -> None:
        self.header = header
        self.separator = max((",", ";", "\t", "|"), key=header.count)
        try:
            names = [name.strip() for name in self._split(header)]
        except csv.Error:
            raise DataError(f"{where}: the quotes of the header are not closed") from None
        missing = [column for column in columns if column not in names]
        twice = [column for column in columns if names.count(column) > 1]
        if missing or twice:
            what = "has no column" if missing else "has more than one column"
            raise DataError(
                f"{where}: the header {what} {', '.join(map(repr, missing or twice))}; it has "
                f"{_show(names)}; "
                "--columns says which are which"
            )
        self._at = [names.index(column) for column in columns]
        self._width = len(names)

    def _split(self, line: str) -> list[str]:
        if '"' not in line:
            return line.split(self.separator)
        return next(csv.reader([line], delimiter=self.separator, strict=True))

    def columns(self, text: str) -> list[Sequence[str]] | None:
        """The four columns of many lines without quotes and of one width; else None."""
        if '"' in text or "\r" in text:
            return None
        if {line.count(self.separator) for line in text.split("\n")} != {self._width - 1}:
            return None
        cells = text.replace("\n", self.separator).split(self.separator)
        return [cells[i :: self._width] for i in self._at]

    def values(self, line: str, _number: int) -> list[str] | None:
        """The four values of a line; None for the header once more."""
        try:
            cells = self._split(line)
        except csv.Error:
            raise ValueError("the quotes of the line are not closed") from None
        if len(cells) != self._width:
            raise ValueError(f"the line has {len(cells)} fields, the header {self._width}")
        if line == self.header:
            return None
        return [cells[i] for i in self._at]


class JsonLines:
    """Lines that hold a JSON object each; ``say`` takes a line for the user."""

    def __init__(self, columns: Sequence[str], say: Callable[[str], None] = lambda _line: None) -> None:
        self._columns, self._say = tuple(columns), say
        #: forecast or outcome, as long as no line had it and nothing was said
        self._missing = set(self._columns[2:])

    def values(self, line: str, number: int) -> list[Any] | None:
        """The four values of a line; a forecast or outcome that is not there is None."""
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            raise ValueError(f"the line is not JSON: {_show(line)}") from None
        if not isinstance(found, dict):
            raise ValueError(f"the line is no JSON object: {_show(line)}")
        missing = [name for name in self._columns[:2] if name not in found]
        if missing:
            raise ValueError(f"the object has no {' and no '.join(map(repr, missing))}")
        if self._missing:
            self._missing.difference_update(found)
            self._look_for_misspelt(found, number)
        return [found.get(name) for name in self._columns]

    def _look_for_misspelt(self, found: Mapping[str, Any], number: int) -> None:
        """Say once that a column is not there where another could be meant."""
        others = [name for name in found if name not in self._columns]
        for missing in sorted(self._missing) if others else ():
            role = ROLES[self._columns.index(missing)]
            near = get_close_matches(missing, others, 1) or others
            self._missing.discard(missing)
            self._say(
                f"line {number} has no {missing!r}, but {', '.join(map(_show, near))}, which is left alone; "
                f"if it is the {role}: --columns {role}={near[0]}"
            )
