"""What all trackers share: one score at a time, many series together, bounded state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from assay.core.checks import FloatArray, to_float, to_numpy
from assay.core.errors import DataError, MethodError
from assay.core.levels import parse_alpha

State = dict[str, NDArray[Any]]


class OnlineTracker(BaseEstimator, ABC):  # type: ignore[misc]
    """A threshold that follows the scores of a stream, for one series or for many.

    A score s_t is covered when ``s_t <= threshold_`` as it stood before s_t was seen. Scores are
    numbers for one series, or have one entry a series on the leading axis; the first call decides.
    A NaN leaves its series exactly as it was. Infinite scores are refused unless the class says
    otherwise.

    Parameters
    ----------
    alpha : level in (0, 1)
        Long-run share of scores above the threshold.
    horizon : int
        h: the threshold for a score is made without the h - 1 scores before it. The delay is counted
        in scores that were seen, so a missing one can only make it longer.
    """

    alpha: Any
    horizon: int
    #: whether +-inf is a score that can be learned from
    infinite_scores: ClassVar[bool] = False

    # --- what a tracker defines -------------------------------------------------------------------

    @abstractmethod
    def _fresh(self, n_series: int) -> State:
        """Arrays of n series that have seen nothing, after checking the parameters."""

    @abstractmethod
    def _run(self, state: State, scores: FloatArray, out: FloatArray) -> None:
        """Learn scores (n_series, T) in order; out (n_series, T) gets the thresholds before each."""

    @abstractmethod
    def _thresholds(self, state: State) -> FloatArray:
        """(n_series,) thresholds now in force."""

    def _pack(self, state: State) -> State:
        """The state with the series on the leading axis of each array; may be views."""
        return state

    def _unpack(self, packed: State) -> State:
        """Inverse of :meth:`_pack`; may be views."""
        return packed

    # --- public ------------------------------------------------------------------------------------

    @property
    def threshold_(self) -> Any:
        """The threshold in force for the next score: a float for one series, else (n_series,)."""
        if not hasattr(self, "state_"):
            return float(self._thresholds(self._fresh(1))[0])
        now = self._thresholds(self.state_)
        return float(now[0]) if self.single_ else now.copy()

    @property
    def n_series_(self) -> int:
        """Number of series; 1 before the first score."""
        return len(self._thresholds(self.state_)) if hasattr(self, "state_") else 1

    def start(self, n_series: int | None = None) -> Self:
        """Forget everything and begin with n series that have seen nothing (None: one, as numbers)."""
        count = 1 if n_series is None else n_series
        if isinstance(count, bool) or not isinstance(count, (int, np.integer)) or count < 1:
            raise MethodError(f"n_series must be a whole number of at least 1, got {n_series!r}")
        self.state_ = self._fresh(int(count))
        self.single_ = n_series is None
        return self

    def update(self, score: Any) -> Self:
        """Learn one score of each series: a number, or (n_series,); NaN leaves its series untouched.

        Raises
        ------
        DataError
            The number of series differs from before, or a score is infinite where that is not legal.
        """
        scores = to_float(to_numpy(score), "score")
        if scores.ndim > 1:
            raise DataError(f"score has shape {scores.shape}; give a number, or one number a series")
        self._learn(scores[..., None], "score")
        return self

    def run(self, scores: Any) -> FloatArray:
        """Learn many scores in order; the same as one update after another.

        Parameters
        ----------
        scores : (T,) or (n_series, T) array

        Returns
        -------
        array of the shape of ``scores``
            The thresholds that were in force before each of them.

        Raises
        ------
        DataError
            As for :meth:`update`; nothing is learned then.
        """
        values = to_float(to_numpy(scores), "scores")
        if values.ndim not in (1, 2):
            raise DataError(f"scores have shape {values.shape}; give (T,) or (n_series, T)")
        return self._learn(values, "scores")

    def get_state(self) -> State:
        """A copy of everything the tracker has learned: arrays with n_series on the leading axis."""
        if not hasattr(self, "state_"):
            self.start()
        return {name: array.copy() for name, array in self._pack(self.state_).items()}

    def set_state(self, state: Mapping[str, Any]) -> Self:
        """Go on from what :meth:`get_state` of a tracker with the same parameters gave.

        Raises
        ------
        DataError
            Arrays are missing, not known, or of another shape or type than these parameters need.
        """
        given = {name: np.asarray(array) for name, array in state.items()}
        expected = self._pack(self._fresh(1))
        if set(given) != set(expected):
            raise DataError(
                f"a state of {type(self).__name__} has the arrays {sorted(expected)}, got {sorted(given)}"
            )
        lengths = {array.shape[0] if array.ndim else 0 for array in given.values()}
        if len(lengths) != 1 or 0 in lengths:
            raise DataError(f"the arrays of a state must have one length, n_series; got {sorted(lengths)}")
        for name, array in given.items():
            if array.dtype != expected[name].dtype:
                raise DataError(f"state {name!r} has type {array.dtype}, not {expected[name].dtype}")
            self._check_length(name, array.shape[1:], expected[name].shape[1:])
        n_series = lengths.pop()
        self.single_ = n_series == 1 and getattr(self, "single_", True)
        self.state_ = self._unpack({name: array.copy() for name, array in given.items()})
        return self

    # --- inside ------------------------------------------------------------------------------------

    def _check_length(self, name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
        """Refuse an array of a state whose shape, after the series, is not what the parameters need."""
        if shape != expected:
            raise DataError(
                f"state {name!r} has shape (n_series, {', '.join(map(str, shape))}); the parameters need "
                f"(n_series, {', '.join(map(str, expected))})"
            )

    def _learn(self, scores: FloatArray, name: str) -> FloatArray:
        """Thresholds before each score of (T,) or (n_series, T), in the same shape."""
        rows = scores[None] if scores.ndim == 1 else scores
        self._check_scores(rows, name)
        if not hasattr(self, "state_"):
            self.start(None if scores.ndim == 1 else len(rows))
        if len(rows) != self.n_series_:
            raise DataError(f"{name} is of {len(rows)} series, but the tracker follows {self.n_series_}")
        out = np.empty(rows.shape)
        self._run(self.state_, np.ascontiguousarray(rows), out)
        return out[0] if scores.ndim == 1 else out

    def _check_scores(self, rows: FloatArray, name: str) -> None:
        """Refuse (n_series, T) scores that cannot be learned from."""
        if not len(rows):
            raise DataError(f"{name} is of no series")
        if self.infinite_scores or not (bad := np.isinf(rows)).any():
            return
        series, step = (int(i) for i in np.argwhere(bad)[0])
        raise DataError(
            f"{name} is infinite {int(bad.sum())} times of {bad.size}, first in series {series} at step "
            f"{step}; {type(self).__name__} learns how far scores are apart: give NaN where there is none"
        )

    def _level(self) -> float:
        level = float(parse_alpha(self.alpha))
        if level == 0:
            raise MethodError("alpha must lie in (0, 1) for a stream: no threshold is above every score")
        return level

    def _delay(self) -> int:
        return whole_number(self.horizon, "horizon") - 1


def whole_number(value: Any, name: str, least: int = 1) -> int:
    """An int that is not below ``least``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise MethodError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def positive(value: Any, name: str) -> float:
    """A finite float above 0."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if isinstance(value, (bool, str)) or not 0 < number < float("inf"):
        raise MethodError(f"{name} must be a finite number above 0, got {value!r}")
    return number


def one_of(value: Any, name: str, choices: tuple[str, ...]) -> str:
    """One of the named choices."""
    if value not in choices:
        raise MethodError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
    return str(value)


def column_slices(widths: Mapping[str, int]) -> dict[str, slice]:
    """Where columns stand that follow each other, from how many belong to each name."""
    ends = np.cumsum(list(widths.values()))
    return {
        name: slice(int(end) - width, int(end))
        for (name, width), end in zip(widths.items(), ends, strict=True)
    }
