"""The residuals of a stream that a method remembers: in order, sorted, and as overlapping windows.

All three take one new residual in time proportional to what is remembered, whatever the window.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from assay.core.checks import FloatArray

IntArray = NDArray[np.int64]


class ResidualHistory:
    """The last ``capacity`` residuals with the number of the segment each belongs to.

    ``capacity`` None keeps all. Windows must not reach over the border of two segments.
    """

    def __init__(self, capacity: int | None) -> None:
        self.capacity = capacity
        self.seen = 0
        self._start = self._stop = 0
        size = 64 if capacity is None else 2 * capacity
        self._values = np.empty(size)
        self._segments = np.empty(size, dtype=np.int64)

    def __len__(self) -> int:
        return self._stop - self._start

    @property
    def values(self) -> FloatArray:
        """(n,) view of the residuals, the newest last."""
        return self._values[self._start : self._stop]

    @property
    def segments(self) -> IntArray:
        """(n,) view of their segments' numbers, which never fall."""
        return self._segments[self._start : self._stop]

    @property
    def one_segment(self) -> bool:
        """Whether no border lies within what is remembered."""
        return len(self) == 0 or bool(self._segments[self._start] == self._segments[self._stop - 1])

    def append(self, value: float, segment: int = 0) -> None:
        """Take in one residual; the oldest leaves where there is no room."""
        if self._stop == len(self._values):
            self._make_room()
        self._values[self._stop] = value
        self._segments[self._stop] = segment
        self._stop += 1
        self.seen += 1
        if self.capacity is not None and self._stop - self._start > self.capacity:
            self._start += 1

    def _make_room(self) -> None:
        kept = slice(self._start, self._stop) if self.capacity is None else slice(-self.capacity, None)
        values, segments = self._values[kept].copy(), self._segments[kept].copy()
        if self.capacity is None:
            self._values = np.empty(2 * len(self._values))
            self._segments = np.empty(len(self._values), dtype=np.int64)
        self._start, self._stop = 0, len(values)
        self._values[: self._stop] = values
        self._segments[: self._stop] = segments

    def windows(self, width: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """(n, width) windows newest first, the (n,) residual that followed each, the (width,) last one.

        Windows that reach over the border of two segments are left out; the oldest window stands first.
        """
        every = sliding_window_view(self.values, width)[:, ::-1]
        whole = self.segments[width:] == self.segments[:-width]
        return every[:-1][whole], self.values[width:][whole], every[-1]


class SortedRecent:
    """The last ``capacity`` values in order of size, equal ones in order of time."""

    def __init__(self, capacity: int | None, values: FloatArray) -> None:
        self.capacity = capacity
        self._recent = ResidualHistory(capacity)
        if capacity is not None:
            values = values[-capacity:] if capacity else values[:0]
        for value in values:
            self._recent.append(float(value))
        order = np.argsort(self._recent.values, kind="stable")
        self._n = len(order)
        room = max(16, 2 * self._n) if capacity is None else capacity
        self._sorted, self._times = np.empty(room), np.empty(room, dtype=np.int64)
        self._sorted[: self._n] = self._recent.values[order]
        self._times[: self._n] = order

    @property
    def values(self) -> FloatArray:
        """(n,) view of the values, the smallest first."""
        return self._sorted[: self._n]

    @property
    def ages(self) -> IntArray:
        """(n,) age of each: 0 is the newest."""
        return self._recent.seen - 1 - self._times[: self._n]

    def append(self, value: float) -> None:
        """Take in one value; where there is no room the oldest leaves."""
        sorted_, times = self._sorted, self._times
        new = int(sorted_[: self._n].searchsorted(value, side="right"))
        if self.capacity is not None and self._n == self.capacity:
            # among equal values the oldest stands first
            old = int(sorted_[: self._n].searchsorted(self._recent.values[0], side="left"))
            if new > old:
                new -= 1
                moved, to = slice(old + 1, new + 1), slice(old, new)
            else:
                moved, to = slice(new, old), slice(new + 1, old + 1)
        else:
            if self._n == len(sorted_):
                sorted_ = self._sorted = np.concatenate([sorted_, np.empty_like(sorted_)])
                times = self._times = np.concatenate([times, np.empty_like(times)])
            moved, to = slice(new, self._n), slice(new + 1, self._n + 1)
            self._n += 1
        sorted_[to] = sorted_[moved]
        times[to] = times[moved]
        sorted_[new], times[new] = value, self._recent.seen
        self._recent.append(value)


class WindowDistances:
    """Squared distances of the last window of a history to every earlier one, by lag.

    With ``e_s(l) = (r_s - r_{s-l})^2`` the squared distance at lag l is the sum of the last w terms e.
    A step adds one term and drops one for all lags. What is dropped is never subtracted, which would
    leave a rounding error as large as the largest residual that ever passed: the terms of the last
    rebuild stand as sums over their newest 1, 2, ... w, and a rebuild follows every w steps, so that a
    step costs O(n) on average.
    """

    def __init__(self, history: ResidualHistory, width: int, max_lags: int) -> None:
        self.history, self.width, self.max_lags = history, width, max_lags
        self._rebuild()

    def _term(self, back: int, lags: int) -> FloatArray:
        """(lags,) of e_s for s ``back`` steps ago; 0 where there was no residual so long before."""
        values = self.history.values
        at = len(values) - 1 - back
        there = max(min(lags, at), 0)
        term = np.zeros(lags)
        if there:
            part = term[:there]
            np.subtract(values[at - there : at][::-1], values[at], out=part)
            np.multiply(part, part, out=part)
        return term

    def _rebuild(self) -> None:
        lags = self.max_lags
        self._steps = 0
        self._new = np.zeros(lags)
        self._old = np.empty((self.width, lags))
        total = np.zeros(lags)
        for back in range(self.width):
            total += self._term(back, lags)
            self._old[self.width - 1 - back] = total

    def step(self) -> None:
        """Follow the history, which has just taken in one residual."""
        self._steps += 1
        if self._steps == self.width:
            self._rebuild()
        else:
            self._new += self._term(0, self.max_lags)

    @property
    def squared(self) -> FloatArray:
        """(n,) squared distances by lag, lag 1 first; +inf where the window or what followed it lies in
        two segments. n is the length of the history less the width, at most ``max_lags``."""
        n = min(len(self.history) - self.width, self.max_lags)
        if n <= 0:
            return np.empty(0)
        out: Any = self._old[self._steps, :n] + self._new[:n]
        if not self.history.one_segment:
            segments = self.history.segments
            stop = len(segments)
            last, first = segments[stop - n :], segments[stop - n - self.width : stop - self.width]
            out[(last != first)[::-1]] = np.inf
        return np.asarray(out)

    @property
    def last_is_whole(self) -> bool:
        """Whether the last window lies in one segment."""
        segments = self.history.segments
        return len(segments) >= self.width and bool(segments[-1] == segments[-self.width])
