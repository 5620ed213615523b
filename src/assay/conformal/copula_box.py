"""Boxes from the empirical copula of the errors: each side at the same share of its output's errors."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from assay.conformal.boxes import Box
from assay.conformal.region_base import BareRegionRegressor, spread_of
from assay.core.checks import FloatArray

_EPS = 4 * float(np.finfo(np.float64).eps)


class CopulaBoxRegressor(BareRegionRegressor):
    """Boxes of constant size whose sides exceed one and the same share of each output's errors.

    ``G_j`` ranks an absolute residual of output j among the m of rows that neither trained the model
    nor calibrate (``fit`` takes them from five-fold cross-validation of the training rows): the number
    of smaller ones, linear between two neighbours, and beyond the largest growing by 1 for each root
    mean square of them. The score is the largest rank, ``S = max_j G_j(|y_j - f_j(x)|)``, and the
    region the box with half-widths ``G_j^-1(Q)``, Q the ``ceil((1 - alpha)(n + 1))``-th smallest of n
    calibration scores.

    The calibration rows with ``S <= u`` are the empirical copula C of the errors at (u, ..., u): Q is
    the level at which C reaches 1 - alpha (with the conformal correction). Because margins and copula
    come from different rows the box covers with probability at least 1 - alpha for exchangeable rows,
    in finite samples; with both from the same rows it would hold in the limit only.

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
    scores_ : (n_calib,) scores S, ranks from 0 to m, above m beyond the largest residuals
    shape_rows_ : int, m

    References
    ----------
    Messoudi, Destercke, Rousseau (2021), Copula-based conformal prediction for multi-target regression.
    Sun, Yu (2024), Copula conformal prediction for multi-step time series prediction.
    """

    _has_shape = True

    def _set_shape(self, residuals: FloatArray, X: Any) -> None:
        self._margins = []
        for column in np.abs(residuals).T:
            values, counts = np.unique(column, return_counts=True)
            ranks = np.cumsum(counts).astype(np.float64)
            if values[0] > 0:
                values, ranks = np.append(0.0, values), np.append(0.0, ranks)
            self._margins.append((values, ranks))
        self._units = spread_of(residuals)
        self.shape_rows_ = len(residuals)

    def _score(self, residuals: FloatArray, X: Any) -> FloatArray:
        out = np.zeros(len(residuals))
        for column, (values, ranks), unit in zip(
            np.abs(residuals).T, self._margins, self._units, strict=True
        ):
            beyond = np.maximum(column - values[-1], 0.0) / unit
            np.maximum(out, np.interp(column, values, ranks) + beyond, out=out)
        return out

    def _region(self, center: FloatArray, X: Any, level: Fraction) -> Box:
        # a rounding more: no residual with this very score is lost
        rank = float(self._threshold(level)) * (1 + _EPS)
        half = np.array(
            [
                np.interp(rank, ranks, values) + max(rank - ranks[-1], 0.0) * unit
                for (values, ranks), unit in zip(self._margins, self._units, strict=True)
            ]
        )
        return Box.around(center, half, half)
