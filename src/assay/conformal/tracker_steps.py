"""Trackers that move their threshold by a step after each score, and the loop around the step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from assay.conformal.tracker_base import OnlineTracker, State
from assay.conformal.tracker_compiled import advance, compiled, has_numba
from assay.conformal.tracker_rates import fresh_mixture, learning_rates, mix, mixed
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

    #: grid of lr="auto"
    rates: ClassVar[tuple[float, ...]] = (1.0, 0.5, 0.1, 0.05)
    #: pieces of a long run, so that the thresholds of several rates stay small
    _PIECE = 8192

    lr: Any

    @abstractmethod
    def _parameters(self, lr: float) -> Any:
        """The step's numbers, a NamedTuple of floats (or of tuples of them); checks them."""

    def _columns(self) -> dict[str, int]:
        """The tracker's own columns: name -> how many."""
        return {}

    def _window(self) -> int:
        """How many scores the range is of; 0 where the step does not use it."""
        return 0

    def _begin(self, c: FloatArray) -> None:
        """Set columns (m, n_series) that do not begin with 0."""

    def _rates(self) -> tuple[float, ...]:
        return learning_rates(self.lr, self.rates)

    def _relative(self) -> float:
        """1 where rates in the unit of the scores are chosen for the user: in units of the range then."""
        return float(isinstance(self.lr, str))

    def _fresh(self, n_series: int) -> State:
        rates, delay = self._rates(), self._delay()
        self._parameters(rates[0])
        values = np.zeros((len(rates), OWN + sum(self._columns().values()), n_series))
        values[:, HIGH], values[:, LOW] = -np.inf, np.inf
        for c in values:
            self._begin(c)
        return {
            "values": values,
            "window": np.full((len(rates), n_series, self._window()), np.nan),
            "pending": np.full((len(rates), n_series, delay, 2), np.nan),
            **(fresh_mixture(n_series, len(rates), delay) if len(rates) > 1 else {}),
        }

    def _run(self, state: State, scores: FloatArray, out: FloatArray) -> None:
        rates = self._rates()
        if len(rates) == 1:
            self._drive(state, 0, rates[0], scores, out)
            return
        level = self._level()
        for start in range(0, scores.shape[1], self._PIECE):
            piece = np.ascontiguousarray(scores[:, start : start + self._PIECE])
            thresholds = np.empty((len(rates), *piece.shape))
            for j, rate in enumerate(rates):
                self._drive(state, j, rate, piece, thresholds[j])
            mixture = np.empty(piece.shape)
            mix(level, state, thresholds, piece, mixture)
            out[:, start : start + self._PIECE] = mixture

    def _drive(self, state: State, j: int, rate: float, scores: FloatArray, out: FloatArray) -> None:
        p = self._parameters(rate)
        drive = compiled(build_driver, p.__class__) if has_numba() else drive_arrays
        drive(p, state["values"][j], state["window"][j], state["pending"][j], scores, out)

    def _thresholds(self, state: State) -> FloatArray:
        now = state["values"][:, THRESHOLD]
        return np.asarray(now[0] if len(now) == 1 else mixed(state, now))

    def _blocks(self) -> dict[str, slice]:
        """Where each column, or group of columns, stands."""
        widths = {**dict.fromkeys(_SHARED, 1), **self._columns()}
        ends = np.cumsum(list(widths.values()))
        return {
            name: slice(int(end) - width, int(end))
            for (name, width), end in zip(widths.items(), ends, strict=True)
        }

    def _pack(self, state: State) -> State:
        """(n_series, rates, width) columns, without the axes that are 1 for this tracker."""
        out = {name: state["values"][:, rows].transpose(2, 0, 1) for name, rows in self._blocks().items()}
        out = {name: a[..., 0] if a.shape[2] == 1 else a for name, a in out.items()}
        out |= {name: state[name].swapaxes(0, 1) for name in ("window", "pending")}
        if len(state["values"]) == 1:
            out = {name: a[:, 0] for name, a in out.items()}
        return out | {name: a for name, a in state.items() if name.startswith("rate_")}

    def _unpack(self, packed: State) -> State:
        own = {name: a for name, a in packed.items() if not name.startswith("rate_")}
        if "rate_weights" not in packed:
            own = {name: a[:, None] for name, a in own.items()}
        columns = [own[name] for name in self._blocks()]
        full = [a[..., None] if a.ndim == 2 else a for a in columns]
        return {
            "values": np.ascontiguousarray(np.concatenate(full, axis=2).transpose(1, 2, 0)),
            "window": np.ascontiguousarray(own["window"].swapaxes(0, 1)),
            "pending": np.ascontiguousarray(own["pending"].swapaxes(0, 1)),
            **{name: a for name, a in packed.items() if name.startswith("rate_")},
        }


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
                    if gone in (high, low):
                        high, low = s, s
                        for j in range(size):
                            high, low = max(high, window[i, j]), min(low, window[i, j])
                    else:
                        high, low = max(high, s), min(low, s)
                    row[HIGH], row[LOW] = high, low

    return drive
