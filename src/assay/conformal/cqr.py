"""Conformalized quantile regression."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from assay.conformal.interval_base import BLOCK, SplitIntervalRegressor
from assay.conformal.quantile_models import as_quantile_estimator, fit_quantiles, fitted_quantiles
from assay.core.checks import (
    FloatArray,
    as_vector,
    check_target,
    refuse_infinite,
    refuse_nan,
    to_float,
    to_numpy,
)
from assay.core.errors import DataError, MethodError
from assay.core.levels import parse_levels

_VARIANTS = ("plain", "m", "r")
# a distance between quantiles below this is taken as this (the unit of y)
_FLOOR = 1e-8


class ConformalizedQuantileRegressor(SplitIntervalRegressor):
    """Prediction intervals whose width follows the noise, from two models of conditional quantiles.

    The models give ``lo(x)`` and ``hi(x)`` at alpha / 2 and 1 - alpha / 2, put in order where they
    cross. With ``S_i = max(lo(x_i) - y_i, y_i - hi(x_i))`` the interval is ``[lo(x) - q, hi(x) + q]``,
    q the ``ceil((1 - alpha)(n + 1))``-th smallest score. q may be negative; an interval that shrinks
    past itself is empty (its lower end above its upper end).

    Parameters
    ----------
    estimator : regressor, tuple of regressors, or None
        ``fit`` trains one clone a quantile, telling it the level where it knows a quantile loss
        (HistGradientBoostingRegressor, GradientBoostingRegressor, QuantileRegressor, LightGBM,
        XGBoost, CatBoost, any with a ``quantile`` argument, a pipeline that ends in one) or one
        clone in all where ``predict`` or the constructor takes ``quantiles``. A tuple of two (three
        for "m") is trained as it is. Any other regressor is replaced by HistGradientBoostingRegressor
        with an AssayWarning; None is that too. For ``calibrate``: a tuple of trained models, or one
        whose prediction has a column a quantile (a torch module, a function of X).
    alpha : level, default 0.1
        Miscoverage. The quantile models are trained for it, for the first of several; other levels
        asked of ``predict_interval`` are calibrated around the same models, still valid.
    symmetric : bool, default True
        False calibrates each side by itself at alpha / 2.
    variant : {"plain", "m", "r"}, default "plain"
        "m" divides each side's score by the distance to a third model, of the median (Kivaranovic
        et al.); "r" divides by ``hi - lo`` (Sesia and Candes). Distances below 1e-8 count as 1e-8.
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    random_state : int or None, default None

    Attributes
    ----------
    estimator_ : the trained quantile models; ``estimator_.predict(X)`` is (n, 2), (n, 3) for "m"
    scores_ : (n_calib,) scores, positive outside the quantiles; (n_calib, 2) below and above
        if calibrated with ``symmetric=False``

    References
    ----------
    Romano, Patterson, Candes (2019), Conformalized quantile regression.
    Kivaranovic, Johnson, Leeb (2020), Adaptive, distribution-free prediction intervals for deep networks.
    Sesia, Candes (2020), A comparison of some conformal quantile regression methods.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        alpha: Any = 0.1,
        symmetric: bool = True,
        variant: str = "plain",
        calibration_size: float | int = 0.5,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.symmetric = symmetric
        self.variant = variant
        self.calibration_size = calibration_size
        self.random_state = random_state

    def _quantile_levels(self) -> list[float]:
        """Levels of the models: lower, (median,) upper."""
        if self.variant not in _VARIANTS:
            raise MethodError(f"variant must be one of {', '.join(_VARIANTS)}, got {self.variant!r}")
        # at alpha 0 every interval is infinite whatever the models say; 0 and 1 are no quantiles to train
        alpha = parse_levels(self.alpha)[0][0] or Fraction(1, 10)
        ends = [float(alpha / 2), float(1 - alpha / 2)]
        return [ends[0], 0.5, ends[1]] if self.variant == "m" else ends

    def _train(self, X: Any, y: FloatArray) -> None:
        levels = self._quantile_levels()
        self.estimator_ = fit_quantiles(self.estimator, levels, X, y, self.random_state)

    def _use_fitted(self) -> None:
        self.estimator_ = fitted_quantiles(self.estimator, self._quantile_levels())

    def predict(self, X: Any) -> FloatArray:
        """(n,) middle of the two quantiles; the median model for variant "m"."""
        self._check_has_model()
        quantiles = np.sort(self.estimator_.predict(X), axis=1)
        middle: FloatArray = quantiles[:, 1] if self.variant == "m" else quantiles.mean(axis=1)
        return middle

    def _calibrate(self, X: Any, y: FloatArray) -> None:
        self._set_scores(self.estimator_.predict(X), y)

    def _intervals(self, X: Any, levels: Sequence[Fraction]) -> FloatArray:
        return self._around(self.estimator_.predict(X), levels)

    def calibrate_pred(self, y_pred: Any, y: Any) -> Self:
        """Calibrate from bare predicted quantiles; no model is needed.

        Parameters
        ----------
        y_pred : (n, 2) predicted lower and upper quantile, (n, 3) with the median between for "m"
        y : (n,) targets
        """
        target = as_vector(y, "y")
        quantiles = self._as_quantiles(y_pred)
        if len(quantiles) != len(target):
            raise DataError(f"y_pred has {len(quantiles)} rows, y has {len(target)}")
        self._set_scores(quantiles, target)
        return self

    def predict_interval_pred(self, y_pred: Any, alpha: Any = None) -> FloatArray:
        """(n, 2) intervals from bare predicted quantiles; (L, n, 2) for a sequence of levels."""
        check_is_fitted(self)
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        out = self._around(self._as_quantiles(y_pred), levels)
        return out[0] if is_scalar else out

    def _as_quantiles(self, values: Any) -> FloatArray:
        columns = len(self._quantile_levels())
        quantiles = to_float(to_numpy(values), "y_pred")
        if quantiles.ndim != 2 or quantiles.shape[1] != columns:
            raise DataError(
                f"y_pred has shape {quantiles.shape}; give the {columns} predicted quantiles of each row, "
                f"shape (n, {columns})"
            )
        return quantiles

    def _set_scores(self, quantiles: FloatArray, y: FloatArray) -> None:
        symmetric = self.symmetric
        scores = np.empty(len(y)) if symmetric else np.empty((2, len(y)))
        buffer = np.empty((2, min(BLOCK, len(y))))
        total = 0.0
        with np.errstate(invalid="ignore"):
            for start in range(0, len(y), BLOCK):
                rows = slice(start, start + BLOCK)
                target = y[rows]
                ends = buffer[:, : len(target)]
                units = self._put_ends(quantiles[rows], ends)
                np.subtract(ends[0], target, out=ends[0])
                np.subtract(target, ends[1], out=ends[1])
                if units is not None:
                    ends /= units
                if symmetric:
                    total += np.maximum(ends[0], ends[1], out=scores[rows]).sum()
                else:
                    scores[:, rows] = ends
                    total += ends.sum()
        # their sum clears all; only where it does not, each is looked at for the message
        if not np.isfinite(total):
            check_target(y)
            refuse_nan(quantiles, "y_pred")
        self.scores_ = scores if symmetric else scores.T
        self.thresholds_ = {}

    def _put_ends(self, quantiles: FloatArray, out: FloatArray) -> FloatArray | None:
        """Write lower and upper quantile, in order, into ``out`` (2, n); by what their scores are divided."""
        if self.variant == "m":
            low, median, high = np.sort(quantiles, axis=1).T
            out[0], out[1] = low, high
            return np.maximum([median - low, high - median], _FLOOR)
        # comparing interleaved columns is several times slower than copying them apart first
        out[:] = quantiles.T
        if (out[0] > out[1]).any():
            low = np.minimum(out[0], out[1])
            np.maximum(out[0], out[1], out=out[1])
            out[0] = low
        return None if self.variant == "plain" else np.maximum(out[1] - out[0], _FLOOR)[None]

    def _side_scores(self, side: int, out: FloatArray) -> None:
        out[:] = self.scores_ if side == 0 else self.scores_[:, (side + 1) // 2]

    def _around(self, quantiles: FloatArray, levels: Sequence[Fraction]) -> FloatArray:
        n = len(quantiles)
        # one contiguous row an end: twice as fast to write as two interleaved columns
        out = np.empty((len(levels), 2, n))
        symmetric = self.scores_.ndim == 1
        shifts = np.empty((len(levels), 2, 1))
        for shift, level in zip(shifts, levels, strict=True):
            if symmetric:
                shift[:] = self._threshold(level, scratch=out)
            else:
                shift[0] = self._threshold(level / 2, -1, scratch=out)
                shift[1] = self._threshold(level / 2, 1, scratch=out)
        shifts[:, 0] *= -1
        buffer = np.empty((2, min(BLOCK, n)))
        total = 0.0
        with np.errstate(invalid="ignore"):
            for start in range(0, n, BLOCK):
                rows = slice(start, start + BLOCK)
                ends = buffer[:, : len(quantiles[rows])]
                units = self._put_ends(quantiles[rows], ends)
                total += ends.sum()
                for into, shift in zip(out, shifts, strict=True):
                    np.add(ends, shift if units is None else shift * units, out=into[:, rows])
        if not np.isfinite(total):
            refuse_nan(quantiles, "y_pred")
            refuse_infinite(quantiles, "y_pred")
        return out.swapaxes(1, 2)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is None or isinstance(self.estimator, BaseEstimator):
            inner = get_tags(as_quantile_estimator(self.estimator)[0]).input_tags
            tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
        return tags
