"""Trackers whose threshold is a rank among the past scores: sorted scores, and the loop around them.

The scores are the last ``window`` ones, kept sorted and in order of arrival. With ``window=None`` they
are all that ever came: memory then grows by 8 bytes a score, and nothing else does.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

import numpy as np

from assay.conformal.tracker_base import OnlineTracker, State, column_slices, positive, whole_number
from assay.conformal.tracker_compiled import advance_levels, compiled, has_numba
from assay.core.checks import FloatArray
from assay.core.errors import MethodError

#: columns: the threshold, scores seen; then a level, a quantile and a weight for each expert
THRESHOLD, SEEN, LEVELS = range(3)
#: as in the rank rule of calibration: what rounding may take from alpha (n + 1)
_GUARD = 1e-9


#: steps of ACI that are aggregated unless others are given; those of DtACI's paper
GAMMAS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128)
#: a p-value is a fraction of n + 1 and a level a sum of steps: equal up to rounding is equal
TIE = 1e-12


def expert_steps(gammas: Iterable[float]) -> tuple[float, ...]:
    """Step sizes above 0, at least one."""
    steps = tuple(positive(gamma, "gammas") for gamma in gammas)
    if not steps:
        raise MethodError("gammas is empty; give at least one step size")
    return steps


class RankTracker(OnlineTracker):
    """A tracker of levels: each expert's quantile is the rank rule at its level among the past scores.

    With n scores the rank rule takes the ``n + 1 - floor(level (n + 1))``-th smallest, +inf where there
    are too few, +inf for a level at or below 0 and -inf for one at or above 1. The threshold is the
    weighted sum of the experts' quantiles. The step is given the p-value
    ``(1 + #{S_i >= s}) / (n + 1)`` of the score and n; it sets the levels and weights that come next.
    """

    infinite_scores: ClassVar[bool] = True
    window: int | None

    @abstractmethod
    def _parameters(self) -> Any:
        """The step's numbers: a NamedTuple with ``experts`` and ``clip`` among them."""

    def _columns(self) -> dict[str, int]:
        """The tracker's own columns: name -> how many."""
        return {}

    @abstractmethod
    def _begin(self, p: Any, c: FloatArray) -> None:
        """Set the levels and weights of series that have seen nothing; c is (m, n_series)."""

    def _capacity(self) -> int:
        return 0 if self.window is None else whole_number(self.window, "window")

    def _fresh(self, n_series: int) -> State:
        p = self._parameters()
        c = np.zeros((LEVELS + 3 * p.experts + sum(self._columns().values()), n_series))
        c[THRESHOLD] = np.inf
        quantiles = slice(LEVELS + p.experts, LEVELS + 2 * p.experts)
        c[quantiles] = np.inf
        self._begin(p, c)
        return {
            "values": c,
            "sorted": np.full((n_series, self._capacity()), np.inf),
            "window": np.full((n_series, self._capacity()), np.nan),
            "pending": np.full((n_series, self._delay(), 2), np.nan),
        }

    def _run(self, state: State, scores: FloatArray, out: FloatArray) -> None:
        if self.window is None:
            self._grow(state, scores)
        p = self._parameters()
        bounded = 0 if self.window is None else 1
        arrays = (state["values"], state["sorted"], state["window"], state["pending"], scores, out)
        if not has_numba():
            drive_arrays(p, bounded, *arrays)
        elif bounded or scores.shape[1] < _LONG:
            compiled(build_driver, p.__class__)(p, bounded, *arrays)
        else:
            self._run_long(p, state, scores, out)

    def _run_long(self, p: Any, state: State, scores: FloatArray, out: FloatArray) -> None:
        """All past scores and many new ones: counts in a tree in place of moving half of them at each."""
        drive = compiled(build_tree_driver, p.__class__)
        delay = state["pending"].shape[1]
        for i in range(len(scores)):
            row = scores[i][~np.isnan(scores[i])]
            n = max(int(state["values"][SEEN, i]) - delay, 0)
            known = state["sorted"][i, :n]
            values = np.sort(np.concatenate([known, state["pending"][i, :, 0], row]))
            values = values[~np.isnan(values)]
            series = slice(i, i + 1)
            drive(
                p, values, known, state["values"][:, series], state["pending"][series], scores[series],
                out[series],
            )  # fmt: skip
            learned = max(int(state["values"][SEEN, i]) - delay, 0)
            late = state["pending"][i, :, 0]
            state["sorted"][i, :learned] = _without(values, late[~np.isnan(late)])

    def _grow(self, state: State, scores: FloatArray) -> None:
        """Make room for these scores, at least doubling what there is."""
        need = int(state["values"][SEEN].max()) + scores.shape[1]
        have = state["sorted"].shape[1]
        if need > have:
            room = np.full((len(scores), max(need, 2 * have) - have), np.inf)
            state["sorted"] = np.concatenate([state["sorted"], room], axis=1)

    def _thresholds(self, state: State) -> FloatArray:
        return np.asarray(state["values"][THRESHOLD])

    def _blocks(self) -> dict[str, slice]:
        """Where each column, or group of columns, stands."""
        k = self._parameters().experts
        own = self._columns()
        return column_slices({"threshold": 1, "seen": 1, "levels": k, "quantiles": k, "weights": k, **own})

    def _pack(self, state: State) -> State:
        columns = {name: state["values"][rows].T for name, rows in self._blocks().items()}
        columns = {name: a[:, 0] if a.shape[1] == 1 else a for name, a in columns.items()}
        if self.window is None:
            # what was learned, without the room for more
            used = max(int(state["values"][SEEN].max()) - state["pending"].shape[1], 0)
            return columns | {"sorted": state["sorted"][:, :used], "pending": state["pending"]}
        return columns | {name: state[name] for name in ("sorted", "window", "pending")}

    def _unpack(self, packed: State) -> State:
        columns = [packed[name] for name in self._blocks()]
        values = np.concatenate([a[:, None] if a.ndim == 1 else a for a in columns], axis=1).T
        empty = np.full((len(packed["sorted"]), 0), np.nan)
        return {
            "values": np.ascontiguousarray(values),
            "sorted": packed["sorted"],
            "window": packed.get("window", empty),
            "pending": packed["pending"],
        }

    def _check_length(self, name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
        if self.window is None and name == "sorted" and len(shape) == 1:
            return
        super()._check_length(name, shape, expected)


#: with all past scores kept, runs of this many steps use a tree
_LONG = 64


def _without(values: FloatArray, some: FloatArray) -> FloatArray:
    """Sorted values less one occurrence of each of some."""
    if not len(some):
        return values
    at = np.searchsorted(values, np.sort(some))
    first = np.searchsorted(np.sort(some), np.sort(some))
    return np.delete(values, at + np.arange(len(some)) - first)


def drive_arrays(
    p: Any,
    bounded: int,
    c: FloatArray,
    ordered: FloatArray,
    window: FloatArray,
    pending: FloatArray,
    scores: FloatArray,
    out: FloatArray,
) -> None:
    """All series together, one step after the other.

    Parameters
    ----------
    p : NamedTuple
    bounded : 0 or 1
        Whether the oldest score leaves when there are more than ``ordered`` has room for.
    c : (m, n) columns
    ordered, window : (n, W) the scores sorted, and as a ring in order of arrival
    pending : (n, h - 1, 2) scores and thresholds whose time has not come, a ring
    scores, out : (n, T)
    """
    delay = pending.shape[1]
    for t in range(scores.shape[1]):
        out[:, t] = c[THRESHOLD]
        rows = np.flatnonzero(~np.isnan(scores[:, t]))
        s, q = scores[rows, t], c[THRESHOLD, rows]
        seen = c[SEEN, rows].astype(np.int64)
        c[SEEN, rows] += 1
        if delay:
            slot = seen % delay
            due = pending[rows, slot]
            pending[rows, slot, 0], pending[rows, slot, 1] = s, q
            ready = seen >= delay
            rows, s, q, seen = rows[ready], due[ready, 0], due[ready, 1], seen[ready] - delay
        if len(rows):
            some, part = c[:, rows], ordered[rows]
            n = np.minimum(seen, part.shape[1])
            below = (part < s[:, None]).sum(axis=1)  # what is not filled is +inf
            below = np.minimum(below, n)
            with np.errstate(all="ignore"):
                advance_levels(p, some, s, q, (1.0 + n - below) / (n + 1.0), n)
            if bounded:
                size = part.shape[1]
                slot = seen % size
                full = seen >= size
                gone = window[rows, slot]
                window[rows, slot] = s
                _remove(part, np.where(full, gone, np.inf), full)
            _insert(part, s, seen if not bounded else np.minimum(seen, part.shape[1] - 1))
            ordered[rows] = part
            n = np.minimum(seen + 1, part.shape[1]) if bounded else seen + 1
            _threshold_arrays(p, some, part, n)
            c[:, rows] = some


def _remove(part: FloatArray, gone: FloatArray, full: Any) -> None:
    """Take one value out of each full row; the last place becomes free."""
    at = np.where(full, (part < gone[:, None]).sum(axis=1), part.shape[1])
    places = np.arange(part.shape[1])
    later = np.concatenate([part[:, 1:], np.full((len(part), 1), np.inf)], axis=1)
    part[:] = np.where(places >= at[:, None], later, part)


def _insert(part: FloatArray, s: FloatArray, n: Any) -> None:
    """Put one value into each row of n sorted ones."""
    at = np.minimum((part < s[:, None]).sum(axis=1), n)[:, None]
    places = np.arange(part.shape[1])
    earlier = np.concatenate([part[:, :1], part[:, :-1]], axis=1)
    part[:] = np.where(places < at, part, np.where(places == at, s[:, None], earlier))


def _threshold_arrays(p: Any, c: FloatArray, part: FloatArray, n: Any) -> None:
    k, rows, total = p.experts, np.arange(len(part)), np.zeros(len(part))
    for j in range(k):
        level = c[LEVELS + j]
        down = np.minimum(np.floor(np.clip(level, 0.0, 1.0) * (n + 1.0) + _GUARD), n).astype(np.int64)
        rank = np.where(level <= 0, n + 1, np.where(level >= 1, 0, n + 1 - down))
        if p.clip:
            rank = np.clip(rank, 1, n)
        inside = part[rows, np.clip(rank, 1, n) - 1]
        q = np.where(rank > n, np.inf, np.where(rank < 1, -np.inf, inside))
        c[LEVELS + k + j] = q
        with np.errstate(invalid="ignore"):
            total = total + c[LEVELS + 2 * k + j] * q
    c[THRESHOLD] = total


def build_driver(digest: str) -> Callable[..., None]:
    """The same as :func:`drive_arrays`, one series after the other, for Numba."""

    def drive(
        p: Any, bounded: Any, c: Any, ordered: Any, window: Any, pending: Any, scores: Any, out: Any
    ) -> None:
        _ = digest  # makes it part of the key of compiled code
        size, delay, experts = ordered.shape[1], pending.shape[1], p.experts
        for i in range(scores.shape[0]):
            row, part = c[:, i], ordered[i]
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
                n = min(k, size)
                below = np.searchsorted(part[:n], s)
                advance_levels(p, row, s, q, (1.0 + n - below) / (n + 1.0), n)
                hole = n
                if bounded:
                    slot = k % size
                    gone = window[i, slot]
                    window[i, slot] = s
                    if k >= size:
                        hole = np.searchsorted(part, gone)
                if hole < below:
                    below -= 1
                    for j in range(hole, below):
                        part[j] = part[j + 1]
                else:
                    for j in range(hole, below, -1):
                        part[j] = part[j - 1]
                part[below] = s
                n = max(n, min(k + 1, size))
                total = 0.0
                for j in range(experts):
                    level = row[LEVELS + j]
                    if level <= 0.0:
                        rank = n + 1
                    elif level >= 1.0:
                        rank = 0
                    else:
                        rank = n + 1 - min(int(np.floor(level * (n + 1.0) + _GUARD)), n)
                    if p.clip:
                        rank = min(max(rank, 1), n)
                    q = np.inf if rank > n else (-np.inf if rank < 1 else part[rank - 1])
                    row[LEVELS + experts + j] = q
                    total += row[LEVELS + 2 * experts + j] * q
                row[THRESHOLD] = total

    return drive


def build_tree_driver(digest: str) -> Callable[..., None]:
    """One series with all of its past: ranks from counts in a tree over the sorted values, O(log n) a step.

    The values of the scores to come give the tree its places only; what it counts has been learned.
    """

    def drive(p: Any, values: Any, known: Any, c: Any, pending: Any, scores: Any, out: Any) -> None:
        _ = digest  # makes it part of the key of compiled code
        total_places = len(values)
        delay, experts = pending.shape[1], p.experts
        top = 1
        while 2 * top <= total_places:
            top *= 2
        tree = np.zeros(total_places + 1, np.int64)
        for value in known:
            at = np.searchsorted(values, value) + 1
            while at <= total_places:
                tree[at] += 1
                at += at & -at
        row, n = c[:, 0], len(known)
        for t in range(scores.shape[1]):
            s = scores[0, t]
            q = row[THRESHOLD]
            out[0, t] = q
            if np.isnan(s):
                continue
            k = int(row[SEEN])
            row[SEEN] = k + 1.0
            if delay:
                due = k % delay
                due_s, due_q = pending[0, due, 0], pending[0, due, 1]
                pending[0, due, 0], pending[0, due, 1] = s, q
                if k < delay:
                    continue
                s, q = due_s, due_q
            place = np.searchsorted(values, s)
            below, at = 0, place
            while at > 0:
                below += tree[at]
                at -= at & -at
            advance_levels(p, row, s, q, (1.0 + n - below) / (n + 1.0), n)
            at = place + 1
            while at <= total_places:
                tree[at] += 1
                at += at & -at
            n += 1
            total = 0.0
            for j in range(experts):
                level = row[LEVELS + j]
                if level <= 0.0:
                    rank = n + 1
                elif level >= 1.0:
                    rank = 0
                else:
                    rank = n + 1 - min(int(np.floor(level * (n + 1.0) + _GUARD)), n)
                if p.clip:
                    rank = min(max(rank, 1), n)
                q = np.inf if rank > n else -np.inf
                if 1 <= rank <= n:
                    at, left, jump = 0, rank, top
                    while jump > 0:
                        if at + jump <= total_places and tree[at + jump] < left:
                            at += jump
                            left -= tree[at]
                        jump //= 2
                    q = values[at]
                row[LEVELS + experts + j] = q
                total += row[LEVELS + 2 * experts + j] * q
            row[THRESHOLD] = total

    return drive
