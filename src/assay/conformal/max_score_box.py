"""Boxes whose sides are in proportion to each output's typical error, calibrated together."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from assay.conformal.boxes import Box
from assay.conformal.region_base import BareRegionRegressor, spread_of
from assay.conformal.region_shapes import last_within
from assay.core.checks import FloatArray


class MaxScoreBoxRegressor(BareRegionRegressor):
    """Boxes of constant size from the largest scaled residual.

    With the score ``S = max_j |y_j - f_j(x)| / s_j`` the region is the box of half-widths ``Q s_j``
    around the prediction, Q the ``ceil((1 - alpha)(n + 1))``-th smallest of n calibration scores.
    s_j is the root mean square of output j's residuals on rows that neither trained the model nor
    calibrate; ``fit`` takes them from five-fold cross-validation of the training rows. For
    exchangeable rows the box covers with probability at least 1 - alpha, whatever s is.

    Parameters
    ----------
    estimator : regressor, default LinearRegression()
        Cloned and trained by ``fit``, one clone an output where it takes one output only; used as it
        is by ``calibrate``. There it may also be a torch module or a function of X.
    alpha : level, default 0.1
        Miscoverage.
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    random_state : int or None, default None

    Attributes
    ----------
    estimator_ : the trained model
    scale_ : (q,) s, in the units of the outputs; an output without any error gets a billionth of the
        largest one
    scores_ : (n_calib,) scores S
    shape_rows_ : int, residuals behind s

    References
    ----------
    Diquigiovanni, Fontana, Vantini (2022), Conformal prediction bands for multivariate functional data.
    """

    _has_shape = True

    def _set_shape(self, residuals: FloatArray, X: Any) -> None:
        self.scale_ = spread_of(residuals)
        self.shape_rows_ = len(residuals)

    def _score(self, residuals: FloatArray, X: Any) -> FloatArray:
        with np.errstate(over="ignore"):
            return np.asarray((np.abs(residuals) / self.scale_).max(axis=1))

    def _region(self, center: FloatArray, X: Any, level: Fraction) -> Box:
        threshold = self._threshold(level)
        half = last_within(threshold * self.scale_, lambda h: h / self.scale_, threshold)
        return Box.around(center, half, half)
