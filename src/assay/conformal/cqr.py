"""Conformalized quantile regression."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from assay.conformal.interval_base import SplitIntervalRegressor
from assay.conformal.quantile_models import as_quantile_estimator, fit_quantiles, fitted_quantiles
from assay.core.checks import FloatArray, check_target, refuse_infinite, refuse_nan, to_float, to_numpy
from assay.core.errors import DataError, MethodError
from assay.core.levels import parse_levels

_VARIANTS = ("plain", "m", "r")
# a distance between quantiles below this is taken as this (the unit of y)
_FLOOR = 1e-8
# rows at a time: buffers stay in the processor's cache
_BLOCK = 1 << 15


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
        clone in all where ``predict`` takes ``quantiles``. A tuple of two (three for "m") is
        trained as it is. Any other regressor is replaced by HistGradientBoostingRegressor with an
        AssayWarning; None is that too. For ``calibrate``: a tuple of trained models, or one whose
        prediction has a column a quantile (a torch module, a function of X).
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
    scores_ : (n_calib, 2) scores below and above, positive outside the quantiles

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
        y = check_target(y)
        quantiles = self._check_quantiles(y_pred)
        if len(quantiles) != len(y):
            raise DataError(f"y_pred has {len(quantiles)} rows, y has {len(y)}")
        self._set_scores(quantiles, y)
        return self

    def predict_interval_pred(self, y_pred: Any, alpha: Any = None) -> FloatArray:
        """(n, 2) intervals from bare predicted quantiles; (L, n, 2) for a sequence of levels."""
        check_is_fitted(self)
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        quantiles = self._check_quantiles(y_pred)
        refuse_infinite(quantiles, "y_pred")
        out = self._around(quantiles, levels)
        return out[0] if is_scalar else out

    def _check_quantiles(self, values: Any) -> FloatArray:
        columns = len(self._quantile_levels())
        quantiles = to_float(to_numpy(values), "y_pred")
        if quantiles.ndim != 2 or quantiles.shape[1] != columns:
            raise DataError(
                f"y_pred has shape {quantiles.shape}; give the {columns} predicted quantiles of each row, "
                f"shape (n, {columns})"
            )
        refuse_nan(quantiles, "y_pred")
        return quantiles

    def _set_scores(self, quantiles: FloatArray, y: FloatArray) -> None:
        scores = np.empty((2, len(y)))
        for start in range(0, len(y), _BLOCK):
            rows = slice(start, start + _BLOCK)
            lo, hi, below, above = self._ends(quantiles[rows])
            np.subtract(lo, y[rows], out=scores[0, rows])
            np.subtract(y[rows], hi, out=scores[1, rows])
            if below is not None and above is not None:
                scores[0, rows] /= below
                scores[1, rows] /= above
        self.scores_ = scores.T
        self.thresholds_ = {}

    def _ends(
        self, quantiles: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray | None, FloatArray | None]:
        """Lower and upper quantile in order, and by what a score is divided on each side."""
        if self.variant == "m":
            lo, median, hi = np.sort(quantiles, axis=1).T
            return lo, hi, np.maximum(median - lo, _FLOOR), np.maximum(hi - median, _FLOOR)
        lo = np.minimum(quantiles[:, 0], quantiles[:, 1])
        hi = np.maximum(quantiles[:, 0], quantiles[:, 1])
        if self.variant == "plain":
            return lo, hi, None, None
        width = np.maximum(hi - lo, _FLOOR)
        return lo, hi, width, width

    def _side_scores(self, side: int) -> FloatArray:
        if side:
            return np.array(self.scores_[:, (side + 1) // 2])
        return np.maximum(self.scores_[:, 0], self.scores_[:, 1])

    def _around(self, quantiles: FloatArray, levels: Sequence[Fraction]) -> FloatArray:
        out = np.empty((len(levels), len(quantiles), 2))
        thresholds = [
            (self._threshold(level),) * 2
            if self.symmetric
            else (self._threshold(level / 2, -1), self._threshold(level / 2, 1))
            for level in levels
        ]
        for start in range(0, len(quantiles), _BLOCK):
            rows = slice(start, start + _BLOCK)
            lo, hi, below, above = self._ends(quantiles[rows])
            for ends, (q_below, q_above) in zip(out, thresholds, strict=True):
                np.subtract(lo, q_below if below is None else q_below * below, out=ends[rows, 0])
                np.add(hi, q_above if above is None else q_above * above, out=ends[rows, 1])
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is None or isinstance(self.estimator, BaseEstimator):
            inner = get_tags(as_quantile_estimator(self.estimator)[0]).input_tags
            tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
        return tags
