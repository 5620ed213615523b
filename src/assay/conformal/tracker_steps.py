"""Trackers that move their threshold by a step after each score, and the loop around the step."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from assay.conformal.tracker_base import OnlineTracker, State, column_slices
from assay.conformal.tracker_compiled import advance, compiled, has_numba
from assay.conformal.tracker_rates import (
    fresh_mixture,
    learning_rates,
    loss_gain,
    mean_threshold,
    reweigh,
)
from assay.core.checks import FloatArray

#: rows of what the rates of a series share
SEEN, HIGH, LOW = range(3)
#: the column that every such tracker has; its own begin after it
THRESHOLD = 0
OWN = 1
_SHARED = ("seen", "window_high", "window_low")


class Arrays(NamedTuple):
    """The state of n series with R rates.

    ``shared`` is (3, n); ``values`` (R, m, n) columns of each rate; ``window`` (n, W) the last W scores, a
    ring; ``pending`` (n, h - 1, 1 + R) scores whose time has not come with the thresholds that were in force,
    a ring; ``weights`` (n, R) and ``loss`` (n,) of the rates, empty where there is one.
    """

    shared: FloatArray
    values: FloatArray
    window: FloatArray
    pending: FloatArray
    weights: FloatArray
    loss: FloatArray

    def take(self, rows: Any) -> Arrays:
        """A copy of some series."""
        first = self.shared[:, rows], self.values[:, :, rows], self.window[rows], self.pending[rows]
        return Arrays(*first, self.weights[rows], self.loss[rows])

    def put(self, rows: Any, some: Arrays) -> None:
        """Write back what :meth:`take` gave."""
        self.shared[:, rows], self.values[:, :, rows] = some.shared, some.values
        self.window[rows], self.pending[rows] = some.window, some.pending
        self.weights[rows], self.loss[rows] = some.weights, some.loss


class StepTracker(OnlineTracker):
    """A tracker whose step sees the score, the threshold that was in force, and the range of scores before.

    The step is given ``spread``, the range (max - min) of the last ``window`` scores before the one that is
    learned, and 1.0 for the first score of all; ``k`` counts the scores learned before.
    """

    #: grid of lr="auto"
    rates: ClassVar[tuple[float, ...]] = (1.0, 0.5, 0.1, 0.05)

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
        shared = np.zeros((len(_SHARED), n_series))
        shared[HIGH], shared[LOW] = -np.inf, np.inf
        values = np.zeros((len(rates), OWN + sum(self._columns().values()), n_series))
        for c in values:
            self._begin(c)
        return {
            "shared": shared,
            "values": values,
            "window": np.full((n_series, self._window()), np.nan),
            "pending": np.full((n_series, delay, 1 + len(rates)), np.nan),
            **fresh_mixture(n_series, len(rates)),
        }

    def _run(self, state: State, scores: FloatArray, out: FloatArray) -> None:
        steps = tuple(self._parameters(rate) for rate in self._rates())
        drive = compiled(build_driver, steps[0].__class__) if has_numba() else drive_arrays
        none = np.empty((scores.shape[0], 0))
        arrays = Arrays(
            state["shared"],
            state["values"],
            state["window"],
            state["pending"],
            state.get("rate_weights", none),
            state.get("rate_loss", none.sum(axis=1)),
        )
        drive(steps, self._level(), loss_gain(len(steps)), arrays, scores, out)

    def _thresholds(self, state: State) -> FloatArray:
        now = state["values"][:, THRESHOLD]
        return np.asarray(now[0] if len(now) == 1 else mean_threshold(state["rate_weights"], now))

    def _blocks(self) -> dict[str, slice]:
        """Where each column, or group of columns, of a rate stands."""
        return column_slices({"threshold": 1, **self._columns()})

    def _pack(self, state: State) -> State:
        """(n_series, rates, width) columns, without the axes that are 1 for this tracker."""
        out = {name: state["values"][:, rows].transpose(2, 0, 1) for name, rows in self._blocks().items()}
        out = {name: a[..., 0] if a.shape[2] == 1 else a for name, a in out.items()}
        if len(state["values"]) == 1:
            out = {name: a[:, 0] for name, a in out.items()}
        out |= dict(zip(_SHARED, state["shared"], strict=True))
        return out | {name: a for name, a in state.items() if name not in ("shared", "values")}

    def _unpack(self, packed: State) -> State:
        columns = [packed[name] for name in self._blocks()]
        if "rate_weights" not in packed:
            columns = [a[:, None] for a in columns]
        columns = [a[..., None] if a.ndim == 2 else a for a in columns]
        own = {*_SHARED, *self._blocks()}
        return {
            "shared": np.stack([packed[name] for name in _SHARED]),
            "values": np.ascontiguousarray(np.concatenate(columns, axis=2).transpose(1, 2, 0)),
            **{name: np.ascontiguousarray(a) for name, a in packed.items() if name not in own},
        }


def drive_arrays(
    steps: Any, level: float, gain: float, state: Arrays, scores: FloatArray, out: FloatArray
) -> None:
    """All series together, one step after the other.

    Parameters
    ----------
    steps : tuple of NamedTuples of floats, one a rate
    level, gain : float
        Of the losses that weigh the rates.
    state : Arrays
    scores, out : (n, T)
    """
    for t in range(scores.shape[1]):
        now = state.values[:, THRESHOLD]
        out[:, t] = now[0] if len(steps) == 1 else mean_threshold(state.weights, now)
        rows = np.flatnonzero(~np.isnan(scores[:, t]))
        if len(rows) == scores.shape[0]:
            _learn_all(steps, level, gain, state, scores[:, t])
        elif len(rows):
            some = state.take(rows)
            _learn_all(steps, level, gain, some, scores[rows, t])
            state.put(rows, some)


def _learn_all(steps: Any, level: float, gain: float, state: Arrays, s: FloatArray) -> None:
    delay = state.pending.shape[1]
    seen = state.shared[SEEN].astype(np.int64)
    q = state.values[:, THRESHOLD].copy()
    state.shared[SEEN] += 1
    if not delay:
        _learn_now(steps, level, gain, state, s, q, seen)
        return
    at, slot = np.arange(len(s)), seen % delay
    due = state.pending[at, slot]
    state.pending[at, slot, 0], state.pending[at, slot, 1:] = s, q.T
    rows = np.flatnonzero(seen >= delay)
    if len(rows):
        some = state.take(rows)
        _learn_now(steps, level, gain, some, due[rows, 0], due[rows, 1:].T, seen[rows] - delay)
        state.put(rows, some)


def _learn_now(
    steps: Any, level: float, gain: float, state: Arrays, s: FloatArray, q: FloatArray, k: Any
) -> None:
    high, low, window = state.shared[HIGH], state.shared[LOW], state.window
    at = np.arange(len(s))
    with np.errstate(all="ignore"):
        spread = np.where(k == 0, 1.0, high - low)
        for p, c, before in zip(steps, state.values, q, strict=True):
            advance(p, c, s, before, spread, k)
    if len(steps) > 1:
        reweigh(level, gain, state.weights, state.loss, at, s, q, k)
    size = window.shape[1]
    if not size:
        return
    slot = k % size
    gone = window[at, slot]
    window[at, slot] = s
    lost = np.flatnonzero((gone == high) | (gone == low))  # before the ring is full, gone is NaN
    np.maximum(high, s, out=high)
    np.minimum(low, s, out=low)
    if len(lost):
        high[lost], low[lost] = window[lost].max(axis=1), window[lost].min(axis=1)


def build_driver(digest: str) -> Callable[..., None]:
    """The same as :func:`drive_arrays`, one series after the other, for Numba."""

    def drive(steps: Any, level: Any, gain: Any, state: Any, scores: Any, out: Any) -> None:
        _ = digest  # makes it part of the key of compiled code
        n_rates, size, delay = len(steps), state.window.shape[1], state.pending.shape[1]
        q = np.empty(n_rates)
        for i in range(scores.shape[0]):
            own, c, window = state.shared[:, i], state.values[:, :, i], state.window[i]
            for t in range(scores.shape[1]):
                s = scores[i, t]
                for j in range(n_rates):
                    q[j] = c[j, THRESHOLD]
                out[i, t] = q[0] if n_rates == 1 else mean_threshold(state.weights[i], q)
                if np.isnan(s):
                    continue
                k = int(own[SEEN])
                own[SEEN] = k + 1.0
                if delay:
                    due = state.pending[i, k % delay]
                    s, due[0] = due[0], s
                    for j in range(n_rates):
                        q[j], due[j + 1] = due[j + 1], q[j]
                    if k < delay:
                        continue
                    k -= delay
                high, low = own[HIGH], own[LOW]
                spread = 1.0 if k == 0 else high - low
                for j in range(n_rates):
                    advance(steps[j], c[j], s, q[j], spread, k)
                if n_rates > 1:
                    reweigh(level, gain, state.weights, state.loss, i, s, q, k)
                if size:
                    slot = k % size
                    gone = window[slot]
                    window[slot] = s
                    if gone in (high, low):
                        high, low = s, s
                        for j in range(size):
                            high, low = max(high, window[j]), min(low, window[j])
                    else:
                        high, low = max(high, s), min(low, s)
                    own[HIGH], own[LOW] = high, low

    return drive
