"""The states of one tracker for a growing set of series, of which a call touches some."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.conformal.tracker_base import OnlineTracker, State
from assay.core.checks import FloatArray
from assay.core.errors import DataError

Ints = NDArray[np.int64]

#: from this share of all series on, all are given to the tracker, with NaN for the others
_MANY = 1 / 8


class SeriesStates:
    """States of ``capacity`` series with ``sides`` trackers each; room grows by doubling.

    Series are named by their place. A tracker leaves a series as it was on NaN, so whether a call works on
    all series or on a copy of some makes no difference to any of them.
    """

    def __init__(self, tracker: OnlineTracker, sides: int) -> None:
        self.tracker, self.sides = tracker, sides
        self.capacity = 1
        self._core = tracker._fresh(sides)

    def reserve(self, n: int) -> None:
        """Make room for n series."""
        if n <= self.capacity:
            return
        capacity = max(n, 2 * self.capacity)
        fresh = self.tracker._pack(self.tracker._fresh((capacity - self.capacity) * self.sides))
        packed = self.tracker._pack(self._core)
        joined = {name: np.concatenate([packed[name], fresh[name]]) for name in packed}
        self._core, self.capacity = self.tracker._unpack(joined), capacity

    def run(self, series: Ints, scores: FloatArray) -> FloatArray:
        """Learn scores (k, sides, T) of k different series; the thresholds before each, (k, sides, T)."""
        k, sides, steps = scores.shape
        if k >= _MANY * self.capacity:
            every = np.full((self.capacity, sides, steps), np.nan)
            every[series] = scores
            out = np.empty((self.capacity * sides, steps))
            self.tracker._run(self._core, every.reshape(-1, steps), out)
            return out.reshape(-1, sides, steps)[series]
        places = self._places(series)
        packed, some = self._copy(places)
        out = np.empty((k * sides, steps))
        self.tracker._run(some, np.ascontiguousarray(scores).reshape(-1, steps), out)
        views = True
        for name, array in self.tracker._pack(some).items():
            packed[name][places] = array
            views &= not array.size or any(
                np.may_share_memory(packed[name], own) for own in self._core.values()
            )
        if not views:
            self._core = self.tracker._unpack(packed)
        return out.reshape(k, sides, steps)

    def thresholds(self, series: Ints, ahead: int = 0) -> FloatArray:
        """(k, sides) thresholds for the score after the next ``ahead`` ones, of which none is known yet.

        ``ahead`` is below the tracker's horizon, so that those scores have no say.
        """
        k = len(series)
        if not ahead and k >= _MANY * self.capacity:
            return self.tracker._thresholds(self._core).reshape(-1, self.sides)[series]
        _, some = self._copy(self._places(series))
        if ahead:
            unknown = np.zeros((k * self.sides, ahead))
            self.tracker._run(some, unknown, np.empty_like(unknown))
        return np.array(self.tracker._thresholds(some)).reshape(k, self.sides)

    def pack(self, n: int) -> State:
        """Arrays of the first n series, (n, sides, ...); views where the tracker gives views."""
        packed = self.tracker._pack(self._core)
        return {
            name: array[: n * self.sides].reshape(n, self.sides, *array.shape[1:])
            for name, array in packed.items()
        }

    def unpack(self, packed: Mapping[str, NDArray[Any]], n: int) -> None:
        """Go on from what :meth:`pack` gave; the arrays may become the states' own."""
        expected = self.tracker._pack(self.tracker._fresh(1))
        if set(packed) != set(expected):
            raise DataError(f"the tracker's state has the arrays {sorted(expected)}, got {sorted(packed)}")
        for name, array in packed.items():
            shape = (n, self.sides, *expected[name].shape[1:])
            if array.shape != shape or array.dtype != expected[name].dtype:
                raise DataError(
                    f"state {name!r} has shape {array.shape} and type {array.dtype}; "
                    f"{shape} {expected[name].dtype} is expected"
                )
        if not n:
            self.capacity, self._core = 1, self.tracker._fresh(self.sides)
            return
        flat = {name: a.reshape(n * self.sides, *a.shape[2:]) for name, a in packed.items()}
        self.capacity, self._core = n, self.tracker._unpack(flat)

    def _places(self, series: Ints) -> Ints:
        return np.asarray((series[:, None] * self.sides + np.arange(self.sides)).reshape(-1))

    def _copy(self, places: Ints) -> tuple[State, State]:
        """Arrays of all series, and a state of the series at these places alone."""
        packed = self.tracker._pack(self._core)
        return packed, self.tracker._unpack({name: array[places] for name, array in packed.items()})
