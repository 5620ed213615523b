"""What the interval methods share: the contract, levels, and the split into training and calibration."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import DataConversionWarning
from sklearn.model_selection import train_test_split
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from assay.conformal.leakage import refuse_training_rows
from assay.core.checks import (
    FloatArray,
    as_vector,
    calibration_given,
    check_target,
    refuse_nan,
    row_count,
    sums_to_finite,
)
from assay.core.errors import DataError, MethodError
from assay.core.levels import conformal_rank, parse_levels, warn_infinite
from assay.core.models import predict_values
from assay.core.state import all_or_nothing

#: rows at a time where several passes are made: they stay in the processor's cache
BLOCK = 1 << 14


class IntervalRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Base of regressors with ``predict_interval``.

    A subclass stores ``alpha`` in its constructor and implements ``fit`` and
    :meth:`_interval`, or :meth:`_intervals` where levels share work. ``predict`` is the
    centre model's prediction.
    """

    estimator: Any
    alpha: Any
    scores_: FloatArray
    #: thresholds selected so far, by side and level; emptied by whoever sets new scores
    thresholds_: dict[tuple[int, Fraction], float]

    def _interval(self, X: Any, level: Fraction) -> FloatArray:
        """(n, 2) interval of the rows at one level; X has at least one row."""
        raise NotImplementedError

    def _intervals(self, X: Any, levels: Sequence[Fraction]) -> FloatArray:
        """(L, n, 2) intervals of the rows at L levels; X has at least one row."""
        return stack_levels([self._interval(X, level) for level in levels])

    def predict(self, X: Any) -> FloatArray:
        """(n,) point predictions of the underlying model."""
        self._check_has_model()
        return predict_values(self.estimator_, X)

    def predict_interval(self, X: Any, alpha: Any = None) -> FloatArray:
        """Lower and upper ends of the prediction interval of each row.

        Parameters
        ----------
        X : (n, d) table
        alpha : level or sequence of L levels, optional
            Miscoverage; the constructor's ``alpha`` if not given.

        Returns
        -------
        (n, 2) float64 array, or (L, n, 2) for a sequence of levels.
            An infinite end where calibration rows are too few, with a warning;
            an empty interval has its lower end above its upper end.
        """
        self._check_has_model()
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        out = np.empty((len(levels), 0, 2)) if row_count(X) == 0 else self._intervals(X, levels)
        return out[0] if is_scalar else out

    def _check_has_model(self) -> None:
        """Refuse rows where only bare predictions were calibrated, so that no model is there."""
        check_is_fitted(self)
        if not hasattr(self, "estimator_"):
            raise MethodError(
                f"this {type(self).__name__} was calibrated from bare predictions and has no model; "
                "use predict_interval_pred, or fit or calibrate it with a model"
            )

    def _side_scores(self, side: int, out: FloatArray) -> None:
        """Write the (n,) calibration scores, none NaN, of a side into ``out``: 0 both, -1 below, 1 above."""
        raise NotImplementedError

    def _threshold(self, level: Fraction, side: int = 0, scratch: FloatArray | None = None) -> float:
        """Conformal quantile of a side's scores: selected once, so that rows may come one at a time.

        ``scratch`` is memory that may be overwritten: an answer not yet written saves allocating.
        """
        n = len(self.scores_)
        rank = conformal_rank(n, level)
        if rank > n:
            warn_infinite(n, level, "interval", stacklevel=6)
            return float("inf")
        if (side, level) not in self.thresholds_:
            room = scratch is not None and scratch.flags.c_contiguous and scratch.size >= n
            scores = scratch.reshape(-1)[:n] if scratch is not None and room else np.empty(n)
            self._side_scores(side, scores)
            scores.partition(rank - 1)
            self.thresholds_[side, level] = float(scores[rank - 1])
        return self.thresholds_[side, level]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is not None and hasattr(self.estimator, "__sklearn_tags__"):
            inner = get_tags(self.estimator).input_tags
            tags.input_tags.sparse = inner.sparse
            tags.input_tags.allow_nan = inner.allow_nan
        else:
            tags.input_tags.sparse = self.estimator is None
        return tags

    @property
    def n_features_in_(self) -> int:
        """Number of features seen in fit, where the underlying model knows it."""
        self._check_has_model()
        return int(self.estimator_.n_features_in_)


class SplitIntervalRegressor(IntervalRegressor):
    """Base of interval methods that train on one part of the data and calibrate on another.

    A subclass implements ``_train(X, y)``, ``_calibrate(X, y)`` and ``_interval(X, level)``.
    """

    calibration_size: Any
    random_state: Any

    def _train(self, X: Any, y: FloatArray) -> None:
        """Fit ``estimator_`` (and what else the method trains)."""
        raise NotImplementedError

    def _use_fitted(self) -> None:
        """Take over the model(s) given by the user, already trained."""
        self.estimator_ = self.estimator

    def _calibrate(self, X: Any, y: FloatArray) -> None:
        """Compute calibration scores with the trained model(s)."""
        raise NotImplementedError

    def fit(self, X: Any, y: Any, X_calib: Any = None, y_calib: Any = None) -> Self:
        """Train a clone of the model and calibrate it on rows it has not seen.

        Parameters
        ----------
        X : (n, d) table
        y : (n,) numbers
        X_calib, y_calib : table and numbers, optional
            Calibration rows. Without them ``calibration_size`` of the given
            rows, drawn with ``random_state``, are set aside.

        Raises
        ------
        DataError
            NaN or infinite targets, lengths that differ, fewer than two rows, or calibration rows that
            are all training rows.
        """
        y = training_target(X, y)
        parse_levels(self.alpha)
        if not calibration_given(X_calib, y_calib):
            X, X_calib, y, y_calib = split_rows(X, y, self.calibration_size, self.random_state)
        else:
            check_consistent_length(X_calib, y_calib)
            y_calib = check_target(y_calib, name="y_calib")
            refuse_training_rows(X, y, X_calib, y_calib)
        with all_or_nothing(self):
            self._train(X, y)
            self._calibrate(X_calib, y_calib)
        return self

    def calibrate(self, X: Any, y: Any) -> Self:
        """Calibrate the model given to the constructor, which is already trained.

        After ``fit`` the trained model of ``fit`` is calibrated anew. The rows must not
        have been used in training: the guarantee rests on that.

        Parameters
        ----------
        X : (n, d) table
        y : (n,) numbers
        """
        check_consistent_length(X, y)
        y = check_target(y)
        parse_levels(self.alpha)
        with all_or_nothing(self):
            if not hasattr(self, "estimator_"):
                self._use_fitted()
            self._calibrate(X, y)
        return self


def stack_levels(intervals: Sequence[FloatArray]) -> FloatArray:
    """(L, n, 2) of L intervals (n, 2); a single level is not copied."""
    return intervals[0][None] if len(intervals) == 1 else np.stack(intervals)


def bare_residuals(y: Any, y_pred: Any) -> FloatArray:
    """(n,) y - y_pred of finite targets and predictions without NaN."""
    target = as_vector(y, "y")
    prediction = as_vector(y_pred, "y_pred", length=len(target))
    with np.errstate(invalid="ignore"):
        residuals = target - prediction
    # the sum of the residuals clears both; only where it does not, each is looked at for the message
    if not sums_to_finite(residuals):
        check_target(target)
        refuse_nan(prediction, "y_pred")
    return residuals


def training_target(X: Any, y: Any) -> FloatArray:
    """(n,) finite float64 target with as many rows as X; a column (n, 1) is taken with a notice."""
    check_given(X, y, stacklevel=4)
    return check_target(y)


def check_given(X: Any, y: Any, stacklevel: int) -> None:
    """Refuse a missing y and one of another length than X; say that a column (n, 1) is taken as (n,)."""
    if y is None:
        raise DataError("requires y to be passed, but the target y is None")
    check_consistent_length(X, y)
    if getattr(y, "ndim", 1) == 2 and y.shape[1] == 1:
        warnings.warn(
            "A column-vector y was passed when a 1d array was expected; it is taken as (n,)",
            DataConversionWarning,
            stacklevel=stacklevel,
        )


def split_rows(
    X: Any, y: NDArray[Any], calibration_size: float | int, random_state: Any, stratify: Any = None
) -> tuple[Any, Any, NDArray[Any], NDArray[Any]]:
    """(X_train, X_calib, y_train, y_calib), drawn by ``random_state``."""
    X = indexable(X)[0]
    n = row_count(X)
    if n < 2:
        raise DataError(f"{n} sample(s) given: at least 2 are needed, one to train and one to calibrate")
    train, calibration = train_test_split(
        np.arange(n), test_size=calibration_size, random_state=random_state, stratify=stratify
    )
    return (
        _safe_indexing(X, train),
        _safe_indexing(X, calibration),
        y[train],
        y[calibration],
    )
