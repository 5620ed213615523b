"""Least squares with a ridge: how much each training row weighs in each prediction."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from scipy.linalg import svd
from sklearn.linear_model import LinearRegression, Ridge

from assay.core.checks import FloatArray

_EPS = float(np.finfo(np.float64).eps)
_DIRECT_SOLVERS = {"auto", "svd", "cholesky"}
# without a penalty a row leaves the space of the training rows if this part of it does; less is rounding
_OUTSIDE = 1e-10


def linear_settings(estimator: Any) -> tuple[float, bool] | None:
    """(ridge penalty, whether an intercept is fitted) of a least-squares estimator solved exactly.

    None for every other estimator: subclasses, iterative solvers, coefficients bound to be positive.
    """
    if type(estimator) is LinearRegression and not estimator.positive:
        return 0.0, bool(estimator.fit_intercept)
    if type(estimator) is Ridge and not estimator.positive and estimator.solver in _DIRECT_SOLVERS:
        penalty = estimator.alpha
        if isinstance(penalty, Real) and float(penalty) >= 0:
            return float(penalty), bool(estimator.fit_intercept)
    return None


class Leverage:
    """Rows in coordinates whose inner products are hat values.

    ``rows[i] @ coordinates(x)`` is the weight ``h(x, i)`` of the target ``y_i`` in the prediction at x:
    ``x (X'X + penalty I)^-1 x_i``, both centred and ``+ 1/n`` with an intercept.
    """

    def __init__(self, X: FloatArray, penalty: float, fit_intercept: bool) -> None:
        n = len(X)
        self.fit_intercept = fit_intercept
        self.mean = X.mean(axis=0) if fit_intercept else np.zeros(X.shape[1])
        left, sizes, right = svd(X - self.mean, full_matrices=False, check_finite=False)
        keep = sizes > max(X.shape) * _EPS * sizes.max(initial=0.0)
        scale = np.sqrt(sizes[keep] ** 2 + penalty)
        self.basis = right[keep].T / scale
        self.penalty = penalty
        #: orthonormal directions in which the training rows differ; None where that is all directions
        self._inside = right[keep] if keep.sum() < X.shape[1] else None
        self._size = float(np.sqrt((sizes**2).sum() / n))
        self.rows = left[:, keep] * (sizes[keep] / scale)
        self._constant = 1 / np.sqrt(n)
        if fit_intercept:
            self.rows = np.column_stack([self.rows, np.full(n, self._constant)])
        #: (n,) weight of each training row in its own prediction
        self.own = np.einsum("ij,ij->i", self.rows, self.rows)

    def coordinates(self, X: FloatArray) -> FloatArray:
        """(m, r) coordinates of other rows."""
        inner = (X - self.mean) @ self.basis
        return np.column_stack([inner, np.full(len(X), self._constant)]) if self.fit_intercept else inner

    def outside(self, X: FloatArray) -> FloatArray:
        """(m,) what a row's own weight ``h(x, x)`` has beyond the squared length of its coordinates.

        That is the share of directions in which no training row differs from the others: squared length
        over penalty, infinite without a penalty. It has no part in ``h(x, i)``.
        """
        if self._inside is None:
            return np.zeros(len(X))
        centred = X - self.mean
        away = np.linalg.norm(centred - (centred @ self._inside.T) @ self._inside, axis=1)
        if self.penalty > 0:
            return np.asarray(away**2 / self.penalty)
        size = np.maximum(np.linalg.norm(centred, axis=1), self._size)
        return np.where(away > _OUTSIDE * size, np.inf, 0.0)
