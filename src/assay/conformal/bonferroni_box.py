"""A box of one conformal interval an output, each at its share of the level."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from assay.conformal.boxes import Box
from assay.conformal.region_base import BareRegionRegressor
from assay.core.checks import FloatArray


class BonferroniBoxRegressor(BareRegionRegressor):
    """Boxes of constant size whose sides are split conformal intervals at level alpha / q.

    With calibration scores ``S_ij = |y_ij - f_j(x_i)|`` of q outputs the box is
    ``{y : |y_j - f_j(x)| <= q_j for all j}``, q_j the ``ceil((1 - alpha / q)(n + 1))``-th smallest of
    the scores of output j. For exchangeable rows it covers with probability at least 1 - alpha,
    by the union bound: more than that where outputs err together.

    Parameters
    ----------
    estimator : regressor, default LinearRegression()
        Cloned and trained by ``fit``, one clone an output where it takes one output only; used as it
        is by ``calibrate``. There it may also be a torch module or a function of X.
    alpha : level, default 0.1
        Miscoverage of the box.
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    random_state : int or None, default None

    Attributes
    ----------
    estimator_ : the trained model
    scores_ : (n_calib, q) absolute residuals of the calibration rows

    References
    ----------
    Dunn (1961), Multiple comparisons among means.
    """

    def _score(self, residuals: FloatArray, X: Any) -> FloatArray:
        return np.abs(residuals)

    def _region(self, center: FloatArray, X: Any, level: Fraction) -> Box:
        half = self._threshold(level / self.n_outputs_)
        return Box.around(center, half, half)
