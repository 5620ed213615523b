"""Ellipsoids of one shape and size around any model's predictions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from assay.conformal.ellipsoids import Ellipsoid, mahalanobis
from assay.conformal.region_base import BareRegionRegressor, spread_of
from assay.core.checks import FloatArray

# added to the diagonal of the correlation matrix
RIDGE = 1e-6


class EllipsoidRegressor(BareRegionRegressor):
    """Ellipsoids of constant shape and size: the covariance of residuals, scaled by calibration.

    With the score ``S = sqrt(r' C^-1 r)``, ``r = y - f(x)``, the region is ``{y : S <= Q}``, Q the
    ``ceil((1 - alpha)(n + 1))``-th smallest of n calibration scores; its volume is
    ``V_q Q^q sqrt(det C)``. C is the mean of ``r r'`` over residuals of rows that neither trained the
    model nor calibrate (``fit`` takes them from five-fold cross-validation of the training rows), with
    1e-6 added to the diagonal of its correlation form. For exchangeable rows the region covers with
    probability at least 1 - alpha, whatever C is.

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
    covariance_ : (q, q) matrix C
    scores_ : (n_calib,) scores S
    shape_rows_ : int, residuals behind C

    References
    ----------
    Johnstone, Cox (2021), Conformal uncertainty sets for robust optimization.
    """

    _has_shape = True

    def _set_shape(self, residuals: FloatArray, X: Any) -> None:
        scale = spread_of(residuals)
        standard = residuals / scale
        second = standard.T @ standard / len(residuals)
        second[np.diag_indices_from(second)] += RIDGE
        self._cholesky = scale[:, None] * np.linalg.cholesky(second)
        self.covariance_ = second * np.outer(scale, scale)
        self.shape_rows_ = len(residuals)

    def _score(self, residuals: FloatArray, X: Any) -> FloatArray:
        return mahalanobis(residuals, self._cholesky)

    def _region(self, center: FloatArray, X: Any, level: Fraction) -> Ellipsoid:
        return Ellipsoid(center, self._cholesky, float(self._threshold(level)))
