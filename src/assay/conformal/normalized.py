"""Split conformal prediction with a model of the spread."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from assay.conformal.interval_base import SplitIntervalRegressor, split_rows
from assay.core.checks import FloatArray, check_target, check_vector, refuse_nan
from assay.core.errors import AssayWarning, MethodError
from assay.core.levels import parse_levels
from assay.core.models import predict_values
from assay.core.seeds import seed_of

# share of the typical spread below which a predicted spread is not believed
_FLOOR_TRAINED = 0.05
_FLOOR_BARE = 1e-6
#: what is added to every spread, in mean absolute residuals, of which cross-validation chooses
BETAS = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
_FOLDS = 3


class NormalizedConformalRegressor(SplitIntervalRegressor):
    """Prediction intervals whose width follows a model of the spread.

    With ``S_i = |y_i - f(x_i)| / (s(x_i) + beta)`` the interval is
    ``[f(x) - q (s(x) + beta), f(x) + q (s(x) + beta)]``, q the ``ceil((1 - alpha)(n + 1))``-th
    smallest score. s is a model of ``|y - f(x)|`` (mean absolute deviation) trained on rows
    that f has not seen; a spread below the floor is raised to it, counted and warned of.

    Parameters
    ----------
    estimator : regressor, default LinearRegression()
        Model of the centre. Cloned and trained by ``fit``; used as it is by ``calibrate``.
    scale_estimator : regressor, optional
        Model of the spread, by default another clone of ``estimator``. For ``calibrate`` a trained
        one (or a torch module, or a function of X) is needed.
    alpha : level, default 0.1
        Miscoverage.
    beta : float or "cv", default 0
        Added to every spread, in the unit of y: large values lead to constant width. "cv": of 0, 0.1, 0.25,
        0.5, 1 and 2 times the mean absolute residual the one with the best interval score at ``alpha`` (the
        first, of several) in a 3-fold cross-validation of the spread model on its training rows; 0 where
        ``fit`` trains none. Without it a spread that is guessed far too small widens all intervals; the
        score (width, and 2 / alpha times what is missed) does not buy narrow intervals with noisy rows.
    floor : float, optional
        Smallest spread, in the unit of y. By default 5 % of the mean absolute residual of the
        rows on which ``fit`` trained the spread model; where there are none (``calibrate`` before
        any ``fit``, bare predictions) one millionth of the median positive spread of the
        calibration rows, for which the coverage guarantee is exact only while no row is floored.
    scale_size : float or int, default 1/3
        Part of the training rows kept from the centre model to train the spread model.
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    random_state : int or None, default None

    Attributes
    ----------
    estimator_, scale_estimator_ : the trained models
    scores_ : (n_calib,) scores
    floor_ : float, the floor in use
    beta_ : float, what is added to every spread
    n_floored_ : int, calibration rows whose spread was raised to the floor

    References
    ----------
    Papadopoulos, Gammerman, Vovk (2008), Normalized nonconformity measures for regression.
    Lei, G'Sell, Rinaldo, Tibshirani, Wasserman (2018), Distribution-free predictive inference, sec. 5.2.
    """

    def __init__(
        self,
        estimator: Any = None,
        scale_estimator: Any = None,
        *,
        alpha: Any = 0.1,
        beta: float | str = 0.0,
        floor: float | None = None,
        scale_size: float | int = 1 / 3,
        calibration_size: float | int = 0.5,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.scale_estimator = scale_estimator
        self.alpha = alpha
        self.beta = beta
        self.floor = floor
        self.scale_size = scale_size
        self.calibration_size = calibration_size
        self.random_state = random_state

    def _train(self, X: Any, y: FloatArray) -> None:
        self._check_parameters()
        centre = LinearRegression() if self.estimator is None else clone(self.estimator)
        scale = clone(centre if self.scale_estimator is None else self.scale_estimator)
        X, X_scale, y, y_scale = split_rows(X, y, self.scale_size, self.random_state)
        self.estimator_ = centre.fit(X, y)
        deviation = np.abs(y_scale - predict_values(self.estimator_, X_scale))
        self.scale_estimator_ = scale.fit(X_scale, deviation)
        self._trained_floor = _FLOOR_TRAINED * float(deviation.mean())
        self.beta_ = self._best_beta(scale, X_scale, deviation) if self.beta == "cv" else float(self.beta)

    def _use_fitted(self) -> None:
        self._check_parameters()
        if self.scale_estimator is None:
            raise MethodError("calibrate needs a trained scale_estimator beside the trained estimator")
        self.estimator_ = self.estimator
        self.scale_estimator_ = self.scale_estimator
        self.beta_ = self._given_beta()

    def _given_beta(self) -> float:
        """Where no spread model is trained here."""
        return 0.0 if self.beta == "cv" else float(self.beta)

    def _best_beta(self, scale: Any, X: Any, deviation: FloatArray) -> float:
        """The candidate with the best interval score on rows that the spread model has not seen."""
        n, level = len(deviation), parse_levels(self.alpha)[0][0]
        if n < 2 * _FOLDS:
            return 0.0
        spread = np.empty(n)
        for train, held in KFold(_FOLDS, shuffle=True, random_state=seed_of(self.random_state)).split(spread):
            model = clone(scale).fit(_safe_indexing(X, train), deviation[train])
            spread[held] = predict_values(model, _safe_indexing(X, held))
        spread = np.maximum(spread, self._trained_floor)
        scores = []
        for multiple in BETAS:
            added = spread + multiple * deviation.mean()
            half = np.quantile(deviation / added, float(1 - level)) * added
            beyond = np.maximum(deviation - half, 0).mean()
            scores.append(half.mean() + (beyond / float(level) if level else 0.0))
        return BETAS[int(np.argmin(scores))] * float(deviation.mean())

    def _check_parameters(self) -> None:
        if self.beta != "cv" and (isinstance(self.beta, str) or not 0 <= self.beta < np.inf):
            raise MethodError(f"beta must be 'cv' or a finite number not below 0, got {self.beta!r}")
        if self.floor is not None and not 0 < self.floor < np.inf:
            raise MethodError(f"floor must be a finite number above 0, got {self.floor!r}")

    def _calibrate(self, X: Any, y: FloatArray) -> None:
        scale = predict_values(self.scale_estimator_, X)
        self._set_scores(predict_values(self.estimator_, X), y, scale)

    def _intervals(self, X: Any, levels: Sequence[Fraction]) -> FloatArray:
        scale = predict_values(self.scale_estimator_, X)
        return self._around(predict_values(self.estimator_, X), scale, levels)

    def calibrate_pred(self, y_pred: Any, y: Any, scale: Any) -> Self:
        """Calibrate from bare predictions and spreads; no model is needed.

        Parameters
        ----------
        y_pred, y, scale : (n,) predictions, targets and predicted spreads of the calibration rows
        """
        self._check_parameters()
        y = check_target(y)
        prediction = check_vector(y_pred, "y_pred", length=len(y))
        spread = check_target(scale, name="scale", length=len(y))
        self.beta_ = self._given_beta()
        self._set_scores(prediction, y, spread)
        return self

    def predict_interval_pred(self, y_pred: Any, scale: Any, alpha: Any = None) -> FloatArray:
        """(n, 2) intervals around bare predictions with bare spreads; (L, n, 2) for several levels."""
        check_is_fitted(self)
        prediction = check_target(y_pred, name="y_pred")
        spread = check_target(scale, name="scale", length=len(prediction))
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        out = self._around(prediction, spread, levels)
        return out[0] if is_scalar else out

    def _set_scores(self, prediction: FloatArray, y: FloatArray, scale: FloatArray) -> None:
        self.floor_ = self._choose_floor(scale)
        spread, self.n_floored_ = self._spread(scale)
        scores = y - prediction
        np.abs(scores, out=scores)
        scores /= spread
        refuse_nan(scores, "scores")
        self.scores_ = scores
        self.thresholds_ = {}

    def _choose_floor(self, scale: FloatArray) -> float:
        if self.floor is not None:
            return float(self.floor)
        trained = getattr(self, "_trained_floor", 0.0)
        if trained > 0:
            return float(trained)
        positive = scale if scale.min(initial=np.inf) > 0 else scale[scale > 0]
        # no positive spread anywhere: any floor gives the same intervals, those of constant width
        return _FLOOR_BARE * float(np.median(positive)) if len(positive) else 1.0

    def _spread(self, scale: FloatArray) -> tuple[FloatArray, int]:
        """s + beta with s at least the floor, and how many rows had to be raised."""
        floored = 0
        if scale.min(initial=np.inf) < self.floor_:
            floored = int(np.count_nonzero(scale < self.floor_))
            warnings.warn(
                f"{floored} of {len(scale)} predicted spreads are below {self.floor_:g} and raised to it; "
                "a spread model that stays positive, or beta > 0, would make them meaningful",
                AssayWarning,
                stacklevel=5,
            )
            scale = np.maximum(scale, self.floor_)
        return scale + self.beta_ if self.beta_ else scale, floored

    def _side_scores(self, side: int, out: FloatArray) -> None:
        out[:] = self.scores_

    def _around(self, prediction: FloatArray, scale: FloatArray, levels: Sequence[Fraction]) -> FloatArray:
        out = np.empty((len(levels), 2, len(prediction)))
        spread, _ = self._spread(scale)
        for ends, level in zip(out, levels, strict=True):
            threshold = self._threshold(level, scratch=ends)
            half = np.multiply(threshold, spread, out=ends[1])
            np.subtract(prediction, half, out=ends[0])
            np.add(prediction, half, out=ends[1])
        return out.swapaxes(1, 2)
