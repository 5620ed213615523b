"""Keys of a fleet's rows: ids of series, times as whole numbers, and the order in which rows are applied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.checks import to_numpy
from assay.core.errors import DataError

Ints = NDArray[np.int64]

#: a time before all times
NEVER = np.iinfo(np.int64).min
#: dates are counted in microseconds since 1970
_DATE_UNIT = "datetime64[us]"


class SeriesIds:
    """Ids of series as text, numbered in the order of their first coming."""

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._names = list(ids)
        self._places = dict(zip(self._names, range(len(self._names)), strict=True))
        # a fleet is often fed the same series in the same order, and a look is dearer than a comparison
        self._asked: list[str] = []
        self._found: Ints = np.empty(0, np.int64)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, place: int) -> str:
        return self._names[place]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def find(self, ids: list[str]) -> Ints:
        """(n,) places; -1 for an id that has not come yet."""
        if ids != self._asked:
            found = np.fromiter(map(self._places.get, ids, repeat(-1)), np.int64, len(ids))
            if (found < 0).any():
                return found
            self._asked, self._found = list(ids), found
        return self._found.copy()

    def add(self, ids: Iterable[str]) -> None:
        """Number the ids that are new."""
        for name in ids:
            if name not in self._places:
                self._places[name] = len(self._names)
                self._names.append(name)

    def pack(self) -> dict[str, NDArray[Any]]:
        """Two arrays: the text of all ids in UTF-8, and the bytes of each."""
        encoded = [name.encode("utf-8", "surrogatepass") for name in self._names]
        return {
            "id_bytes": np.array([len(name) for name in encoded], np.int64),
            "id_text": np.frombuffer(b"".join(encoded), np.uint8),
        }

    @classmethod
    def unpack(cls, id_bytes: Ints, id_text: NDArray[np.uint8]) -> SeriesIds:
        """Inverse of :meth:`pack`."""
        text, ends = id_text.tobytes(), np.cumsum(id_bytes).tolist()
        if (ends[-1] if ends else 0) != len(text):
            raise DataError("the ids of the state do not have the lengths that it names")
        starts = [0, *ends][: len(ends)]
        ids = cls(text[a:b].decode("utf-8", "surrogatepass") for a, b in zip(starts, ends, strict=True))
        if len(ids._places) != len(ends):
            raise DataError(f"the state names {len(ends)} ids, of which {len(ids._places)} are different")
        return ids


def id_list(ids: Any) -> list[str]:
    """Ids as a list of text; whole numbers are written out.

    Raises
    ------
    DataError
        An id is neither text nor a whole number.
    """
    values = ids if type(ids) is list else to_numpy(ids).tolist()
    if not isinstance(values, list):
        raise DataError(f"ids must be a sequence, one id a row, got {ids!r}")
    if set(map(type, values)) <= {str}:
        return values
    bad = [v for v in values if isinstance(v, bool) or not isinstance(v, (str, int, np.integer))]
    if bad:
        raise DataError(
            f"{len(bad)} of {len(values)} ids are neither text nor whole numbers, first {bad[0]!r}"
        )
    return [str(value) for value in values]


def time_keys(times: Any) -> tuple[Ints, str]:
    """(n,) times as whole numbers, and their kind: "number", or "date" (microseconds since 1970).

    Raises
    ------
    DataError
        A time is missing, has a fraction, or is neither a number nor a date.
    """
    array = to_numpy(times)
    if array.ndim != 1:
        raise DataError(f"times have shape {array.shape}; give one a row, shape (n,)")
    if array.dtype.kind in "OU":
        try:
            array = array.astype(_DATE_UNIT) if array.dtype.kind == "U" else _objects(array)
        except (ValueError, TypeError, OverflowError) as error:
            raise DataError(f"times are neither whole numbers nor dates: {error}") from error
    if array.dtype.kind == "M":
        keys, kind = array.astype(_DATE_UNIT).view(np.int64), "date"
        bad = keys == NEVER
    elif array.dtype.kind in "iu":
        keys, kind = array.astype(np.int64), "number"
        bad = (keys == NEVER) | ((keys < 0) & (array > 0))
    elif array.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            keys, kind = array.astype(np.int64), "number"
            bad = ~((keys == array) & (np.abs(array) < 2**53))
    else:
        raise DataError(f"times of type {array.dtype} are neither whole numbers nor dates")
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"{int(bad.sum())} of {len(keys)} times are missing, not whole or too large, first row {row}: "
            f"{array[row]!r}; give whole numbers or dates"
        )
    return np.ascontiguousarray(keys), kind


def _objects(array: NDArray[Any]) -> NDArray[Any]:
    """Python's own numbers or dates; those with a time zone become UTC."""
    values = array.tolist()
    if all(isinstance(value, int) and not isinstance(value, bool) for value in values):
        return np.array(values, np.int64)
    plain = [
        value.astimezone(UTC).replace(tzinfo=None) if getattr(value, "tzinfo", None) else value
        for value in values
    ]
    return np.array(plain, _DATE_UNIT)


def rounds(series: Ints, times: Ints) -> Iterator[Ints]:
    """Rows in groups that name no series twice, each series in the order of its times.

    Rows of the same series and time keep the order in which they stand.
    """
    order = np.lexsort((times, series))
    sorted_series = series[order]
    first = np.r_[True, sorted_series[1:] != sorted_series[:-1]] if len(order) else np.empty(0, bool)
    starts = np.flatnonzero(first)
    counts = np.diff(np.r_[starts, len(order)])
    by_count = np.argsort(-counts, kind="stable")
    starts, counts = starts[by_count], counts[by_count]
    ascending = -counts
    for turn in range(int(counts[0]) if len(counts) else 0):
        still = int(np.searchsorted(ascending, -turn, side="left"))
        yield order[starts[:still] + turn]


def repeats_a_series(series: Ints, n_series: int) -> bool:
    """Whether some series has more than one row."""
    mark = np.empty(n_series, np.int64)
    rows = np.arange(len(series))
    mark[series] = rows
    return bool((mark[series] != rows).any())
