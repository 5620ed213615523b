"""Jackknife+: intervals from models that each leave one row out."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

from assay.conformal.cross_fit import (
    MAX_MEMORY,
    CrossIntervalRegressor,
    fit_without,
    join_crossed,
    row_blocks,
)
from assay.conformal.interval_base import training_target
from assay.conformal.linear_leverage import Leverage, linear_settings
from assay.conformal.selection import kth_near_sorted
from assay.core.checks import FloatArray, row_count, to_float, to_numpy
from assay.core.errors import DataError
from assay.core.models import predict_values
from assay.core.state import all_or_nothing

# a row that alone determines its own prediction has no leave-one-out formula
_MIN_FREEDOM = 1e-8


class JackknifePlusRegressor(CrossIntervalRegressor):
    """Prediction intervals from n models that each leave one row out.

    ``mu_-i`` is the model trained without row i and ``R_i = |y_i - mu_-i(x_i)|``. The interval is
    from the ``floor(alpha (n + 1))``-th smallest ``mu_-i(x) - R_i`` to the
    ``ceil((1 - alpha)(n + 1))``-th smallest ``mu_-i(x) + R_i`` (both their middle where they cross).

    LinearRegression and Ridge are fitted once: with hat values h and residuals r, ``y_i - mu_-i(x_i)``
    is ``r_i / (1 - h_ii)`` and ``mu_-i(x)`` is ``f(x) - h(x, i) r_i / (1 - h_ii)``, exactly. Any other
    model is fitted n + 1 times.

    Parameters
    ----------
    estimator : regressor, default LinearRegression()
    alpha : level, default 0.1
        Miscoverage.
    method : {"plus", "base", "minmax"}, default "plus"
        "base" is the jackknife (the quantile of R around the model of all rows; no guarantee),
        "minmax" puts it around the outermost of the n models (covers 1 - alpha, wider).
    max_memory : int, default 256 MiB
        Bound in bytes of the working set of a prediction; it does not change the answer.

    Attributes
    ----------
    estimator_ : the model of all rows
    models_ : the n models; not there where one fit is enough
    scores_ : (n,) left-out residuals R

    References
    ----------
    Barber, Candes, Ramdas, Tibshirani (2021), Predictive inference with the jackknife+.
    """

    def __init__(
        self, estimator: Any = None, *, alpha: Any = 0.1, method: str = "plus", max_memory: int = MAX_MEMORY
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.method = method
        self.max_memory = max_memory

    def fit(self, X: Any, y: Any) -> Self:
        """Train the model of all rows and, unless it is linear, one without each row.

        Parameters
        ----------
        X : (n, d) table
        y : (n,) numbers

        Raises
        ------
        DataError
            NaN or infinite targets, lengths that differ, fewer than two rows.
        """
        y = training_target(X, y)
        self._check_parameters()
        if len(y) < 2:
            raise DataError(
                f"{len(y)} sample(s) given: at least 2 are needed, one to train and one to leave out"
            )
        base = LinearRegression() if self.estimator is None else self.estimator
        with all_or_nothing(self):
            self._forget()
            self.estimator_ = clone(base).fit(X, y)
            if not self._fit_linear(base, X, y):
                self.models_, predictions = fit_without(base, X, y, np.arange(len(y)))
                self._set_residuals(y - predictions, np.arange(len(y)))
        return self

    def _fit_linear(self, base: Any, X: Any, y: FloatArray) -> bool:
        """Leave-one-out residuals by hat values, where the model has them; whether it had."""
        settings = linear_settings(base)
        if settings is None or issparse(X):
            return False
        leverage = Leverage(to_float(to_numpy(X), "X"), *settings)
        freedom = 1 - leverage.own
        if freedom.min() < _MIN_FREEDOM:
            return False
        left_out = (y - predict_values(self.estimator_, X)) / freedom
        # rows in the order of R: those near a rank lie side by side
        order = np.argsort(np.abs(left_out), kind="stable")
        leverage.rows = np.ascontiguousarray(leverage.rows[order])
        self.leverage_ = leverage
        self._errors = left_out[order]
        self._set_residuals(left_out, np.arange(len(y)))
        return True

    def _intervals(self, X: Any, levels: Sequence[Fraction]) -> FloatArray:
        if self.method == "base" or not hasattr(self, "leverage_"):
            return super()._intervals(X, levels)
        centre = self.predict(X)
        if issparse(X):
            raise DataError("X is sparse here and was dense in fit; give a dense table")
        out = np.empty((len(levels), row_count(X), 2))
        ranks = self._ranks(levels)
        weights = self.leverage_.coordinates(to_float(to_numpy(X), "X"))
        if self.method == "minmax":
            low, high = self._shift_range(weights)
        for ends, level, rank in zip(out, levels, ranks, strict=True):
            if rank is None:
                ends[:] = [-np.inf, np.inf]
            elif self.method == "minmax":
                half = self._threshold(level)
                ends[:, 0] = centre + low - half
                ends[:, 1] = centre + high + half
            else:
                ends[:, 0] = centre - self._kth_linear(weights, rank, -1)
                ends[:, 1] = centre + self._kth_linear(weights, rank, 1)
                join_crossed(ends)
        return out

    def _kth_linear(self, weights: FloatArray, rank: int, sign: int) -> FloatArray:
        """The rank-th smallest of R_i - sign h(x, i) e_i, e_i the left-out error of row i."""
        errors, trained = self._errors, self.leverage_.rows
        size = np.abs(errors)
        # |h(x, i)| <= sqrt(h(x, x) h(i, i)); the margin covers the rounding of the products
        reach = np.sqrt(np.einsum("ij,ij->i", weights, weights) * self.leverage_.own.max())
        reach = reach * (1 + 1e-9) + 1e-12

        def candidates(rows: NDArray[np.intp], start: int, stop: int) -> FloatArray:
            hat: FloatArray = weights[rows] @ trained[start:stop].T
            hat *= -sign * errors[start:stop]
            hat += size[start:stop]
            return hat

        return kth_near_sorted(size, rank, 1 - reach, 1 + reach, candidates, self.max_memory)

    def _shift_range(self, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Smallest and largest of mu_-i(x) - f(x) over i."""
        pull = -self._errors[:, None] * self.leverage_.rows
        low, high = np.empty(len(weights)), np.empty(len(weights))
        for rows in row_blocks(len(weights), len(pull) * 8, self.max_memory):
            shift = weights[rows] @ pull.T
            low[rows], high[rows] = shift.min(axis=1), shift.max(axis=1)
        return low, high

    def calibrate_pred(self, y_pred: Any, y: Any) -> Self:
        """Take over leave-one-out predictions made elsewhere.

        Parameters
        ----------
        y_pred : (n,) prediction of each row by the model trained without it
        y : (n,) targets
        """
        self._calibrate_left_out(y_pred, y, None)
        return self

    def predict_interval_pred(self, y_pred: Any, alpha: Any = None) -> FloatArray:
        """(m, 2) intervals from the n models' predictions; (L, m, 2) for a sequence of levels.

        Parameters
        ----------
        y_pred : (m, n) predictions, column i by the model trained without row i; for
            ``method="base"`` (m,) predictions of the model of all rows
        alpha : level or sequence of levels, optional
        """
        return self._predict_left_out(y_pred, alpha)
