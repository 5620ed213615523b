"""Trackers that move their threshold by a step after each score, and the loop around the step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from assay.conformal.tracker_base import OnlineTracker, State
from assay.conformal.tracker_compiled import advance, compiled, has_numba
from assay.core.checks import FloatArray

#: columns that every such tracker has; its own begin after them
THRESHOLD, SEEN, HIGH, LOW = range(4)
OWN = 4
_SHARED = ("threshold", "seen", "window_high", "window_low")


class StepTracker(OnlineTracker):
    """A tracker whose step sees the score, the threshold that was in force, and the range of scores before.

    The step is given ``spread``, the range (max - min) of the last ``window`` scores before the one that is
    learned, and 1.0 for the first score of all; ``k`` counts the scores learned before.
    """

    #: names of the tracker's own columns
    columns: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def _parameters(self) -> Any:
        """The step's numbers, a NamedTuple of floats; checks them."""

    def _window(self) -> int:
        """How many scores the range is of; 0 where the step does not use it."""
        return 0

    def _fresh(self, n_series: int) -> State:
        self._parameters()
        values = np.zeros((OWN + len(self.columns), n_series))
        values[HIGH], values[LOW] = -np.inf, np.inf
        return {
            "values": values,
            "window": np.full((n_series, self._window()), np.nan),
            "pending": np.full((n_series, self._delay(), 2), np.nan),
        }

    def _run(self, state: State, scores: FloatArray, out: FloatArray) -> None:
        p = self._parameters()
        drive = compiled(build_driver, type(p)) if has_numba() else drive_arrays
        drive(p, state["values"], state["window"], state["pending"], scores, out)

    def _thresholds(self, state: State) -> FloatArray:
        return np.asarray(state["values"][THRESHOLD])

    def _pack(self, state: State) -> State:
        names = (*_SHARED, *self.columns)
        return {
            **dict(zip(names, state["values"], strict=True)),
            "window": state["window"],
            "pending": state["pending"],
        }

    def _unpack(self, packed: State) -> State:
        values = np.stack([packed[name] for name in (*_SHARED, *self.columns)])
        return {"values": values, "window": packed["window"], "pending": packed["pending"]}


def drive_arrays(
    p: Any, c: FloatArray, window: FloatArray, pending: FloatArray, scores: FloatArray, out: FloatArray
) -> None:
    """All series together, one step after the other.

    Parameters
    ----------
    p : NamedTuple of floats
    c : (m, n) columns
    window : (n, W) the last W scores, a ring
    pending : (n, h - 1, 2) scores and thresholds whose time has not come, a ring
    scores, out : (n, T)
    """
    for t in range(scores.shape[1]):
        out[:, t] = c[THRESHOLD]
        rows = np.flatnonzero(~np.isnan(scores[:, t]))
        if len(rows) == scores.shape[0]:
            _learn_all(p, c, window, pending, scores[:, t])
        elif len(rows):
            some = c[:, rows], window[rows], pending[rows]
            _learn_all(p, *some, scores[rows, t])
            c[:, rows], window[rows], pending[rows] = some


def _learn_all(p: Any, c: FloatArray, window: FloatArray, pending: FloatArray, s: FloatArray) -> None:
    delay = pending.shape[1]
    seen = c[SEEN].astype(np.int64)
    q = c[THRESHOLD].copy()
    c[SEEN] += 1
    if not delay:
        _learn_now(p, c, window, s, q, seen)
        return
    at, slot = np.arange(len(s)), seen % delay
    due_s, due_q = pending[at, slot, 0], pending[at, slot, 1]
    pending[at, slot, 0], pending[at, slot, 1] = s, q
    rows = np.flatnonzero(seen >= delay)
    if len(rows):
        some, ring = c[:, rows], window[rows]
        _learn_now(p, some, ring, due_s[rows], due_q[rows], seen[rows] - delay)
        c[:, rows], window[rows] = some, ring


def _learn_now(p: Any, c: FloatArray, window: FloatArray, s: FloatArray, q: FloatArray, k: Any) -> None:
    with np.errstate(all="ignore"):
        spread = np.where(k == 0, 1.0, c[HIGH] - c[LOW])
        advance(p, c, s, q, spread, k)
    size = window.shape[1]
    if not size:
        return
    at, slot = np.arange(len(s)), k % size
    gone = window[at, slot]
    window[at, slot] = s
    lost = np.flatnonzero((gone == c[HIGH]) | (gone == c[LOW]))  # before the ring is full, gone is NaN
    np.maximum(c[HIGH], s, out=c[HIGH])
    np.minimum(c[LOW], s, out=c[LOW])
    if len(lost):
        c[HIGH, lost], c[LOW, lost] = window[lost].max(axis=1), window[lost].min(axis=1)


def build_driver(digest: str) -> Callable[..., None]:
    """The same as :func:`drive_arrays`, one series after the other, for Numba."""

    def drive(p: Any, c: Any, window: Any, pending: Any, scores: Any, out: Any) -> None:
        _ = digest  # makes it part of the key of compiled code
        size, delay = window.shape[1], pending.shape[1]
        for i in range(scores.shape[0]):
            row = c[:, i]
            for t in range(scores.shape[1]):
                s = scores[i, t]
                q = row[THRESHOLD]
                out[i, t] = q
                if np.isnan(s):
                    continue
                k = int(row[SEEN])
                row[SEEN] = k + 1.0
                if delay:
                    due = k % delay
                    due_s, due_q = pending[i, due, 0], pending[i, due, 1]
                    pending[i, due, 0], pending[i, due, 1] = s, q
                    if k < delay:
                        continue
                    s, q, k = due_s, due_q, k - delay
                high, low = row[HIGH], row[LOW]
                spread = 1.0 if k == 0 else high - low
                advance(p, row, s, q, spread, k)
                if size:
                    slot = k % size
                    gone = window[i, slot]
                    window[i, slot] = s
                    if gone == high or gone == low:
                        high, low = s, s
                        for j in range(size):
                            high, low = max(high, window[i, j]), min(low, window[i, j])
                    else:
                        high, low = max(high, s), min(low, s)
                    row[HIGH], row[LOW] = high, low

    return drive
