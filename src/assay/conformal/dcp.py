"""Distributional conformal prediction, and its two-sided form dist-split."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from assay.conformal.quantile_grid import QuantileGridRegressor, distribution_function, quantile_function
from assay.core.checks import FloatArray


class DistributionalConformalRegressor(QuantileGridRegressor):
    """Intervals between two quantiles of a modelled distribution, their levels calibrated.

    With ``U = F(y | x)`` the score is ``|U - 1/2|`` and the interval
    ``[F^-1(1/2 - q | x), F^-1(1/2 + q | x)]``, q the ``ceil((1 - alpha)(n + 1))``-th smallest of n scores.
    F comes from K predicted quantiles, sorted and linear in between, with tails that end at
    ``support``; beyond it F runs on linearly below 0 and above 1, so that targets outside keep an
    order and intervals stay finite. Where quantiles coincide F jumps, and the score is the least q
    whose interval holds y.

    Parameters
    ----------
    estimator : model of the distribution, or None
        None is ``QuantileNetwork()``. A conditional density model (``sample``; such as
        MixtureDensityNetwork) gives quantiles of its draws. Any other regressor with a quantile loss
        is trained once a level: 99 fits by default, fewer with a smaller ``n_levels``. For
        ``calibrate``: a trained density model, or quantile models with a column a level.
    symmetric : bool, default True
        False is dist-split: the ranks of U itself at alpha / 2 on both sides.
    n_levels : int, default 99
        K, quantiles at k / (K + 1).
    n_samples : int, default 1000
        Draws a row that a density model's quantiles come from.
    support : (low, high) or None, default None
        Where the tails end. None: at the range of the training targets after ``fit``; without
        training, as far beyond the outermost quantiles as these lie apart.
    alpha : level, default 0.1
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    random_state : int, RandomState, Generator or None, default None

    Attributes
    ----------
    estimator_ : the trained model; ``estimator_.predict(X)`` is (n, K)
    scores_ : (n_calib,) scores; (n_calib, 2) 1/2 - U and U - 1/2 if calibrated with
        ``symmetric=False``
    levels_ : (K + 2,) levels of the grid with both tails

    References
    ----------
    Chernozhukov, Wuthrich, Zhu (2021), Distributional conformal prediction.
    Izbicki, Shimizu, Stern (2020), Flexible distribution-free conditional predictive bands using density
    estimators (dist-split).
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        symmetric: bool = True,
        n_levels: int = 99,
        n_samples: int = 1000,
        support: Any = None,
        alpha: Any = 0.1,
        calibration_size: float | int = 0.5,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.symmetric = symmetric
        self.n_levels = n_levels
        self.n_samples = n_samples
        self.support = support
        self.alpha = alpha
        self.calibration_size = calibration_size
        self.random_state = random_state

    def _set_scores(self, knots: FloatArray, y: FloatArray) -> None:
        below, up_to = distribution_function(knots, self.levels_, y)
        sides = np.column_stack([0.5 - up_to, below - 0.5])
        self.scores_ = np.maximum(sides.max(axis=1), 0.0) if self.symmetric else sides
        self.thresholds_ = {}

    def _side_scores(self, side: int, out: FloatArray) -> None:
        out[:] = self.scores_ if side == 0 else self.scores_[:, (side + 1) // 2]

    def _around(self, knots: FloatArray, levels: Sequence[Fraction]) -> FloatArray:
        out = np.empty((len(levels), len(knots), 2))
        for ends, level in zip(out, levels, strict=True):
            if self.scores_.ndim == 1:
                below = above = self._threshold(level)
            else:
                below, above = self._threshold(level / 2, -1), self._threshold(level / 2, 1)
            ends[:, 0] = quantile_function(knots, self.levels_, 0.5 - below)
            ends[:, 1] = quantile_function(knots, self.levels_, 0.5 + above)
        return out
