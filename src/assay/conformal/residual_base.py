"""What methods share that make intervals from past residuals: the contract, history, state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from assay.conformal.residual_history import ResidualHistory
from assay.core.checks import FloatArray, check_target, refuse_infinite, refuse_nan, to_float, to_numpy
from assay.core.errors import DataError, MethodError
from assay.core.levels import parse_levels
from assay.core.state import all_or_nothing


class ResidualIntervals(BaseEstimator):  # type: ignore[misc]
    """Base of methods that turn past residuals ``y - forecast`` into an interval around a forecast.

    A subclass says how much it remembers (:meth:`_capacity`), learns from the first history
    (:meth:`_learn`), follows each further residual (:meth:`_follow`) and gives the (2,) offsets of
    the next interval at one level (:meth:`_offsets`).
    """

    history_: ResidualHistory
    #: one beyond it is refused: widths and sums of a few must be numbers
    largest_residual: ClassVar[float] = 1e300

    def _capacity(self, n: int) -> int | None:
        """How many residuals to remember when fitted on n; None for all."""
        raise NotImplementedError

    def _learn(self, learned: Mapping[str, float] | None) -> None:
        """Set up from ``history_``; ``learned`` is what :meth:`_learned` gave before, None to learn anew."""

    def _learned(self) -> dict[str, float]:
        """Numbers that were learned in the past and cannot be learned again from the history."""
        return {}

    def _follow(self) -> None:
        """React to the residual that ``history_`` has just taken in."""

    def _offsets(self, level: Fraction) -> FloatArray:
        """(2,) offsets of the next interval from its forecast."""
        raise NotImplementedError

    def _stream(self, residuals: FloatArray, levels: Sequence[Fraction]) -> FloatArray:
        """(L, T, 2) offsets in force before each residual, each taken in afterwards."""
        out = np.empty((len(levels), len(residuals), 2))
        for t, residual in enumerate(residuals):
            for i, level in enumerate(levels):
                out[i, t] = self._offsets(level)
            self._take(float(residual))
        return out

    def _take(self, residual: float) -> None:
        self.history_.append(residual, self._segment)
        self._follow()

    def _begin(
        self,
        residuals: FloatArray,
        segments: NDArray[np.int64],
        learned: Mapping[str, float] | None = None,
        capacity: int | None = -1,
    ) -> None:
        capacity = self._capacity(len(residuals)) if capacity == -1 else capacity
        self.history_ = ResidualHistory(capacity)
        kept = len(residuals) if capacity is None else min(capacity, len(residuals))
        for value, segment in zip(
            residuals[len(residuals) - kept :], segments[len(segments) - kept :], strict=True
        ):
            self.history_.append(float(value), int(segment))
        self.history_.seen = len(residuals)
        self._segment = int(segments[-1]) if len(segments) else 0
        self._learn(learned)

    def _refuse_extreme(self, residuals: FloatArray, name: str) -> None:
        """Refuse finite residuals that the arithmetic of the method cannot hold."""
        bad = np.abs(residuals) > self.largest_residual
        if bad.any():
            raise DataError(
                f"{name}: {int(bad.sum())} of {bad.size} are beyond {self.largest_residual:g}, first "
                f"{float(residuals[bad][0]):g}; {type(self).__name__} cannot compute with them: give y and "
                "forecasts in a larger unit"
            )

    def fit(self, residuals: Any, segments: Any = None) -> Self:
        """Learn from past residuals.

        Parameters
        ----------
        residuals : (T,) array
            ``y - forecast`` in the order of time, the newest last, in units of y; of rows that the
            forecaster was not trained on, or out of bag.
        segments : (T,) array, optional
            A label of the unbroken stretch of time that each belongs to; wherever it changes there
            is a gap, and no window reaches over one.

        Raises
        ------
        DataError
            NaN or infinite residuals, too few of them, labels of another length.
        """
        values = check_target(residuals, name="residuals")
        self._refuse_extreme(values, "residuals")
        with all_or_nothing(self):
            self._begin(values, _segment_numbers(segments, len(values)))
        return self

    def predict_interval(self, y_pred: Any, alpha: Any = 0.1) -> FloatArray:
        """Interval around the next forecast.

        Parameters
        ----------
        y_pred : number, or (m,) array
            The forecast, or several that could be made.
        alpha : level or sequence of L levels
            Miscoverage. Default 0.1.

        Returns
        -------
        (2,) lower and upper end; (m, 2) for m forecasts, with a leading axis for several levels.
        """
        check_is_fitted(self)
        levels, is_scalar = parse_levels(alpha)
        centre = to_float(to_numpy(y_pred), "y_pred")
        refuse_nan(np.atleast_1d(centre), "y_pred")
        offsets = np.stack([self._offsets(level) for level in levels])
        shape = (len(levels),) + (1,) * centre.ndim + (2,)
        out = centre[..., None] + offsets.reshape(shape)
        return np.asarray(out[0] if is_scalar else out)

    def update(self, residual: Any, new_segment: bool = False) -> Self:
        """Take in the residual of the step that has just been observed.

        Parameters
        ----------
        residual : number
        new_segment : bool
            Whether time was left out before it: windows do not reach over that gap.

        Raises
        ------
        DataError
            A NaN or infinite residual: leave that step out, and start a new segment after it.
        """
        check_is_fitted(self)
        value = to_float(to_numpy(residual), "residual").reshape(-1)
        if value.size != 1:
            raise DataError(f"update takes one residual, got {value.size}")
        refuse_nan(value, "residual")
        refuse_infinite(value, "residual")
        self._refuse_extreme(value, "residual")
        self._segment += bool(new_segment)
        self._take(float(value[0]))
        return self

    def run(self, residuals: Any, n_calib: int, alpha: Any = 0.1) -> FloatArray:
        """Fit on the first residuals and give the offsets in force at each of the others.

        Parameters
        ----------
        residuals : (T,) array
            In the order of time.
        n_calib : int
            How many of them to fit on.
        alpha : level or sequence of L levels

        Returns
        -------
        (T - n_calib, 2) offsets from the forecast, or (L, T - n_calib, 2).
        """
        values = check_target(residuals, name="residuals")
        self._refuse_extreme(values, "residuals")
        if not 0 <= n_calib <= len(values):
            raise DataError(f"n_calib is {n_calib}, there are {len(values)} residuals")
        levels, is_scalar = parse_levels(alpha)
        self.fit(values[:n_calib])
        out = self._stream(values[n_calib:], levels)
        return out[0] if is_scalar else out

    def get_state(self) -> dict[str, Any]:
        """What a fitted object needs to go on: arrays and numbers."""
        check_is_fitted(self)
        return {
            "residuals": self.history_.values.copy(),
            "segments": self.history_.segments.copy(),
            "seen": np.int64(self.history_.seen),
            "segment": np.int64(self._segment),
            "capacity": np.int64(0 if self.history_.capacity is None else self.history_.capacity),
            **{name: np.float64(value) for name, value in self._learned().items()},
        }

    def set_state(self, state: Mapping[str, Any]) -> Self:
        """Go on from what :meth:`get_state` gave, with the same constructor arguments."""
        fixed = {"residuals", "segments", "seen", "segment", "capacity"}
        if not fixed <= set(state):
            raise MethodError(f"the state lacks {sorted(fixed - set(state))}")
        values = check_target(state["residuals"], name="the state's residuals")
        learned = {name: float(value) for name, value in state.items() if name not in fixed}
        with all_or_nothing(self):
            segments = np.asarray(state["segments"], dtype=np.int64)
            self._begin(values, segments, learned, int(state["capacity"]) or None)
            self.history_.seen = int(state["seen"])
            self._segment = int(state["segment"])
        return self


def _segment_numbers(segments: Any, n: int) -> NDArray[np.int64]:
    """(n,) numbers that rise by one wherever the label changes."""
    out = np.zeros(n, dtype=np.int64)
    if segments is not None:
        labels = to_numpy(segments)
        if labels.shape != (n,):
            raise DataError(f"segments has shape {labels.shape}, there are {n} residuals")
        out[1:] = np.cumsum(labels[1:] != labels[:-1])
    return out


def empirical_quantiles(values: FloatArray, levels: FloatArray) -> FloatArray:
    """Smallest value that at least the share ``level`` does not exceed; +-inf at the ends without values."""
    n = len(values)
    if n == 0:
        half = len(levels) // 2
        return np.concatenate([np.full(half, -np.inf), np.full(len(levels) - half, np.inf)])
    return sorted_quantiles(np.sort(values), levels)


def sorted_quantiles(ordered: FloatArray, levels: FloatArray) -> FloatArray:
    """:func:`empirical_quantiles` of values that are sorted already."""
    n = len(ordered)
    ranks = np.ceil(levels * n - 1e-9).astype(np.intp)
    return ordered[np.clip(ranks - 1, 0, n - 1)]
