"""What the region methods around a point prediction share: training, shape, calibration, levels."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression
from sklearn.multioutput import MultiOutputRegressor
from sklearn.utils import get_tags
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from assay.conformal.cross_fit import fit_without, fold_numbers
from assay.conformal.density_models import check_outputs
from assay.conformal.interval_base import split_rows
from assay.conformal.leakage import refuse_training_rows
from assay.conformal.regions import Region
from assay.core.checks import FloatArray, calibration_given, refuse_infinite, refuse_nan, row_count
from assay.core.errors import DataError, MethodError
from assay.core.levels import conformal_rank, parse_levels, warn_infinite
from assay.core.models import predict_values, untrained
from assay.core.state import all_or_nothing

#: folds whose left-out residuals give a region its shape
FOLDS = 5
# an output without errors: its spread as a part of the largest one
_LEAST_SPREAD = 1e-9


class SplitRegionRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Base of regressors of several outputs with ``predict_region``.

    Three parts of rows have a hand in it: a model of the outputs is trained on the first; residuals
    of rows that the model has not seen, and that calibrate nothing, give the region its shape; the
    rest give the conformal threshold. ``fit`` takes the shape's residuals from a cross-validation of
    the training rows: a flexible model's own residuals there would be far too small.

    A subclass implements ``_score`` and ``_region``; one whose regions have a shape also
    ``_set_shape``, with ``_has_shape = True``.
    """

    estimator: Any
    alpha: Any
    calibration_size: Any
    random_state: Any
    #: (n_calib,) scores, or (n_calib, q) where each output is calibrated by itself
    scores_: FloatArray
    #: whether ``_set_shape`` is to be called
    _has_shape = False

    def _set_shape(self, residuals: FloatArray, X: Any) -> None:
        """Take the region's shape from (m, q) residuals of rows that calibrate nothing."""
        raise NotImplementedError

    def _score(self, residuals: FloatArray, X: Any) -> FloatArray:
        """(n,) or (n, q) scores of calibration residuals (n, q), none NaN."""
        raise NotImplementedError

    def _region(self, center: FloatArray, X: Any, level: Fraction) -> Region:
        """Regions of rows with these predictions (n, q)."""
        raise NotImplementedError

    def _regions(self, center: FloatArray, X: Any, levels: Sequence[Fraction]) -> list[Region]:
        """One region a level."""
        return [self._region(center, X, level) for level in levels]

    def _check_parameters(self) -> None:
        parse_levels(self.alpha)

    def fit(self, X: Any, y: Any, X_calib: Any = None, y_calib: Any = None) -> Self:
        """Train a clone of the model, and calibrate it on rows it has not seen.

        Parameters
        ----------
        X : (n, d) table
        y : (n, q) numbers; (n,) is one output
        X_calib, y_calib : table and numbers, optional
            Calibration rows. Without them ``calibration_size`` of the given rows, drawn with
            ``random_state``, are set aside.

        Raises
        ------
        DataError
            NaN or infinite targets, lengths or numbers of outputs that differ, too few rows, or
            calibration rows that are all training rows.
        """
        Y = self._target(X, y, "y")
        self._check_parameters()
        if not calibration_given(X_calib, y_calib):
            X, X_calib, Y, Y_calib = split_rows(X, Y, self.calibration_size, self.random_state)
        else:
            Y_calib = self._target(X_calib, y_calib, "y_calib")
            _same_outputs(Y_calib, Y.shape[1], "y_calib")
            refuse_training_rows(X, Y, X_calib, Y_calib)
        with all_or_nothing(self):
            self.n_outputs_ = Y.shape[1]
            model = LinearRegression() if self.estimator is None else self.estimator
            model = for_outputs(untrained(model, "model"), self.n_outputs_)
            target = Y if self.n_outputs_ > 1 else Y[:, 0]
            if self._has_shape:
                fold = fold_numbers(FOLDS, X, Y, self.random_state)
                _, left_out = fit_without(model, X, target, fold)
                self._set_shape((target - left_out).reshape(Y.shape), X)
            self.estimator_ = model.fit(X, target)
            self._calibrate(X_calib, Y_calib)
        return self

    def calibrate(self, X: Any, y: Any, X_shape: Any = None, y_shape: Any = None) -> Self:
        """Calibrate the model given to the constructor, which is already trained.

        After ``fit`` the model and the shape of ``fit`` are calibrated anew. The rows must not have
        been used in training: the guarantee rests on that.

        Parameters
        ----------
        X : (n, d) table
        y : (n, q) numbers
        X_shape, y_shape : table and numbers, optional
            Further rows, in neither training nor calibration, whose residuals give the region its
            shape; needed where there was no ``fit`` and the method has a shape.
        """
        Y = self._target(X, y, "y")
        self._check_parameters()
        if hasattr(self, "n_outputs_"):
            _same_outputs(Y, self.n_outputs_, "y")
        with all_or_nothing(self):
            if not hasattr(self, "estimator_"):
                if self.estimator is None:
                    raise MethodError("calibrate needs a trained estimator; give one or call fit")
                self.estimator_ = self.estimator
            self.n_outputs_ = Y.shape[1]
            if X_shape is not None:
                Y_shape = self._target(X_shape, y_shape, "y_shape")
                _same_outputs(Y_shape, self.n_outputs_, "y_shape")
                if self._has_shape:
                    self._set_shape(Y_shape - self._centers(X_shape), X_shape)
            self._calibrate(X, Y)
        return self

    def _calibrate(self, X: Any, Y: FloatArray) -> None:
        self._set_scores(Y - self._centers(X), X)

    def _set_scores(self, residuals: FloatArray, X: Any) -> None:
        if self._has_shape and not hasattr(self, "shape_rows_"):
            raise MethodError(
                f"{type(self).__name__} has no shape yet: call fit, or give rows that neither train nor "
                "calibrate (X_shape and y_shape of calibrate, residuals of calibrate_pred)"
            )
        if len(residuals) == 0:
            raise DataError("0 calibration rows given: at least 1 is needed")
        scores = self._score(residuals, X)
        refuse_nan(scores, "scores")
        self.scores_ = scores
        self._sorted = np.sort(scores, axis=0)

    def _centers(self, X: Any) -> FloatArray:
        """(n, q) finite predictions."""
        out = predict_values(self.estimator_, X, columns=self.n_outputs_).reshape(-1, self.n_outputs_)
        refuse_infinite(out, "the model's prediction")
        return out

    def _threshold(self, level: Fraction) -> FloatArray:
        """() or (q,) conformal quantile of the scores, +inf with a warning where they are too few."""
        n = len(self._sorted)
        rank = conformal_rank(n, level)
        if rank > n:
            warn_infinite(n, level, "region", stacklevel=6)
            return np.full(self._sorted.shape[1:], np.inf)
        return np.asarray(self._sorted[rank - 1])

    def _target(self, X: Any, y: Any, name: str) -> FloatArray:
        if y is None:
            raise DataError(f"requires y to be passed, but the target {name} is None")
        check_consistent_length(X, y)
        return check_outputs(y, name)

    def _check_has_model(self) -> None:
        check_is_fitted(self, "scores_")
        if not hasattr(self, "estimator_"):
            raise MethodError(
                f"this {type(self).__name__} was calibrated from bare predictions and has no model; "
                "use predict_region_pred, or fit or calibrate it with a model"
            )

    def predict(self, X: Any) -> FloatArray:
        """(n, q) point predictions of the underlying model; (n,) for one output."""
        self._check_has_model()
        return predict_values(self.estimator_, X, columns=self.n_outputs_)

    def predict_region(self, X: Any, alpha: Any = None) -> Any:
        """The region of each row.

        Parameters
        ----------
        X : (n, d) table
        alpha : level or sequence of levels, optional
            Miscoverage; the constructor's ``alpha`` if not given.

        Returns
        -------
        Region, or a list of regions for a sequence of levels.
            The whole space, with a warning, where calibration rows are too few. Regions at a smaller
            level contain those at a larger one.
        """
        self._check_has_model()
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        regions = self._regions(self._centers(X), X, levels)
        return regions[0] if is_scalar else regions

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
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


class BareRegionRegressor(SplitRegionRegressor):
    """Base of region methods that need nothing but predictions: scores and shape look at no X."""

    def __init__(
        self,
        estimator: Any = None,
        *,
        alpha: Any = 0.1,
        calibration_size: float | int = 0.5,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.calibration_size = calibration_size
        self.random_state = random_state

    def calibrate_pred(self, y_pred: Any, y: Any, residuals: Any = None) -> Self:
        """Calibrate from bare predictions; no model is needed.

        Parameters
        ----------
        y_pred, y : (n, q) numbers, predictions and targets of the calibration rows
        residuals : (m, q) numbers, optional
            ``y - y_pred`` of further rows, in neither training nor calibration, that give the region
            its shape; needed where there was no ``fit`` and the method has a shape.
        """
        self._check_parameters()
        Y = check_outputs(y)
        prediction = check_outputs(y_pred, "y_pred", length=len(Y))
        _same_outputs(prediction, Y.shape[1], "y_pred")
        if residuals is None and hasattr(self, "n_outputs_"):
            _same_outputs(Y, self.n_outputs_, "y")
        with all_or_nothing(self):
            self.n_outputs_ = Y.shape[1]
            if residuals is not None and self._has_shape:
                others = check_outputs(residuals, "residuals")
                _same_outputs(others, self.n_outputs_, "residuals")
                self._set_shape(others, None)
            self._set_scores(Y - prediction, None)
        return self

    def predict_region_pred(self, y_pred: Any, alpha: Any = None) -> Any:
        """The region around each bare prediction (n, q); a list of regions for a sequence of levels."""
        check_is_fitted(self, "scores_")
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        centers = check_outputs(y_pred, "y_pred") if row_count(y_pred) else np.empty((0, self.n_outputs_))
        _same_outputs(centers, self.n_outputs_, "y_pred")
        regions = self._regions(centers, None, levels)
        return regions[0] if is_scalar else regions


def _same_outputs(values: FloatArray, q: int, name: str) -> None:
    if values.shape[1] != q:
        raise DataError(f"{name} has {values.shape[1]} outputs, {q} are expected")


def for_outputs(model: Any, q: int) -> Any:
    """The model itself where it takes several outputs, otherwise one of it an output."""
    takes_several = hasattr(model, "__sklearn_tags__") and get_tags(model).target_tags.multi_output
    return model if q == 1 or takes_several else MultiOutputRegressor(model)


def spread_of(residuals: FloatArray) -> FloatArray:
    """(q,) root mean square of each output's residuals, never 0.

    An output without any residual gets a billionth of the largest spread (1 where there is none).
    """
    largest = np.abs(residuals).max(axis=0, initial=0.0)
    # divided by the largest: squares neither overflow nor vanish
    scaled = residuals / np.where(largest > 0, largest, 1.0)
    spread = largest * np.sqrt((scaled**2).mean(axis=0))
    top = float(spread.max())
    return np.asarray(np.maximum(spread, _LEAST_SPREAD * top) if top > 0 else np.ones_like(spread))
