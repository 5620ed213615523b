"""Times of a stream that are far ahead: refused, or named once they have made a series late."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from assay.cli.monitor_options import Ahead
from assay.core.errors import DataError
from assay.data.stream_rows import Rows

#: rows of a series that came late one after the other, and were its last: fewer are a matter of course
_LATE_NOTICED = 3


def far_ahead(rows: Rows, newest: int | None, ahead: Ahead) -> dict[int, str]:
    """Places of rows behind a gap in time that is too long, with the reason.

    The times of a batch are taken in order, from the newest known before; in the first batch from their
    median, so that neither end can hide behind a time that is wrong.

    Raises
    ------
    DataError
        The limit is of another kind than the times.
    """
    if not len(rows):
        return {}
    if ahead.kind != rows.kind:
        kinds = {"number": "whole numbers: give one without a unit", "date": "dates: give a unit, such as 7d"}
        raise DataError(f"--max-ahead is {ahead.text}, and times are {kinds[rows.kind]}")
    ordered = sorted(set(rows.times))
    clock = ordered[(len(ordered) - 1) // 2] if newest is None else newest
    for time in ordered:
        if time - clock > ahead.count:
            break
        clock = max(clock, time)
    return {
        i: f"the time {rows.stamps[i]} is more than {ahead.text} after the newest before it; "
        "if it is right, give a longer --max-ahead or none"
        for i, time in enumerate(rows.times)
        if time - clock > ahead.count
    }


class LateSeries:
    """Series whose last rows all came late."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, int]] = {}

    def note(self, rows: Rows, late: NDArray[np.bool_], taken: NDArray[np.bool_]) -> None:
        """Take which rows of a batch came late, and which came in time or again."""
        if not late.any() and not self._found:
            return
        order = np.argsort(np.array(rows.times, np.int64), kind="stable")
        for i in order.tolist():
            name = rows.ids[i]
            if late[i]:
                count, newest = self._found.get(name, (0, rows.times[i]))
                self._found[name] = count + 1, max(newest, rows.times[i])
            elif taken[i]:
                self._found.pop(name, None)

    def __iter__(self) -> Iterator[tuple[str, int, int]]:
        """Series, how many rows, and the newest time of them."""
        return ((name, *found) for name, found in self._found.items() if found[0] >= _LATE_NOTICED)
