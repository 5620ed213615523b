"""Ellipsoids whose shape and size follow the errors of the nearest rows."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from sklearn.utils.validation import check_array

from assay.conformal.cross_fit import row_blocks
from assay.conformal.ellipsoids import Ellipsoid, mahalanobis
from assay.conformal.region_base import SplitRegionRegressor, spread_of
from assay.conformal.regions import DEFAULT_MAX_MEMORY, Region
from assay.core.checks import FloatArray, to_numpy
from assay.core.errors import DataError, MethodError

# added to the diagonal of every covariance, in units of each output's mean square error
RIDGE = 1e-6


class LocalEllipsoidRegressor(SplitRegionRegressor):
    """Ellipsoids around a model's predictions, shaped by the errors of the k nearest rows.

    With the score ``S = sqrt(r' C(x)^-1 r)``, ``r = y - f(x)``, the region is ``{y : S <= Q}``, Q the
    ``ceil((1 - alpha)(n + 1))``-th smallest of n calibration scores. ``C(x) = w C_k(x) + (1 - w) C``:
    C_k is the mean of ``r r'`` over the k rows nearest to x, C over all of them, among rows that
    neither trained the model nor calibrate (``fit`` takes their residuals from five-fold
    cross-validation of the training rows). For exchangeable rows the region covers with probability
    at least 1 - alpha, whatever C(x) is.

    Parameters
    ----------
    estimator : regressor, default LinearRegression()
        Cloned and trained by ``fit``, one clone an output where it takes one output only; used as it
        is by ``calibrate``. There it may also be a torch module or a function of X.
    n_neighbors : float or int, default 0.05 (Messoudi et al. 2022)
        k, as a part of the rows or as a number. Nearness is Euclidean in standardised features.
    weight : float, default 0.95 (Messoudi et al. 2022)
        w, from 0 (the same shape for all rows) to 1.
    alpha : level, default 0.1
        Miscoverage.
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    max_memory : int, default 8 MiB
        Bytes of working memory for neighbours; it does not change the answer.
    random_state : int or None, default None

    Attributes
    ----------
    estimator_ : the trained model
    covariance_ : (q, q) matrix C
    n_neighbors_ : int, k
    scores_ : (n_calib,) scores S
    shape_rows_ : int, rows among which neighbours are looked for

    References
    ----------
    Messoudi, Destercke, Rousseau (2022), Ellipsoidal conformal inference for multi-target regression.
    """

    _has_shape = True

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_neighbors: float | int = 0.05,
        weight: float = 0.95,
        alpha: Any = 0.1,
        calibration_size: float | int = 0.5,
        max_memory: int = DEFAULT_MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors
        self.weight = weight
        self.alpha = alpha
        self.calibration_size = calibration_size
        self.max_memory = max_memory
        self.random_state = random_state

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if not 0 <= self.weight <= 1:
            raise MethodError(f"weight must lie between 0 and 1, got {self.weight!r}")
        k = self.n_neighbors
        whole = isinstance(k, (int, np.integer))
        if isinstance(k, bool) or not (k >= 1 if whole else 0 < k <= 1):
            raise MethodError(
                f"n_neighbors must be a number of rows (1, 2, ...) or a part of them (0.05), "
                f"got {self.n_neighbors!r}"
            )

    def _set_shape(self, residuals: FloatArray, X: Any) -> None:
        n, q = residuals.shape
        table = _numbers(X)
        self._mean = table.mean(axis=0)
        spread = table.std(axis=0)
        self._spread = np.where(spread > 0, spread, 1.0)
        self._tree = cKDTree((table - self._mean) / self._spread)
        self._scale = spread_of(residuals)
        standard = residuals / self._scale
        # the lower triangle of each r r'
        self._squares = np.stack([standard[:, i] * standard[:, j] for i, j in _triangle(q)], axis=1)
        self._whole = self._squares.mean(axis=0)
        self.covariance_ = _matrices(self._whole[None], q)[0] * np.outer(self._scale, self._scale)
        k = self.n_neighbors if isinstance(self.n_neighbors, (int, np.integer)) else self.n_neighbors * n
        self.n_neighbors_ = min(max(round(k), 1), n)
        self.shape_rows_ = n

    def _cholesky(self, X: Any) -> FloatArray:
        """(n, q, q) factors of C(x)."""
        table, q = _numbers(X), len(self._scale)
        if table.shape[1] != len(self._mean):
            raise DataError(f"X has {table.shape[1]} features, {len(self._mean)} are expected")
        points = (table - self._mean) / self._spread
        out = np.empty((len(points), q, q))
        k = self.n_neighbors_
        for rows in row_blocks(len(points), 8 * k * (3 + self._squares.shape[1]), int(self.max_memory)):
            near = self._tree.query(points[rows], k=k)[1].reshape(-1, k)
            local = self._squares[near].mean(axis=1)
            mixed = _matrices(self.weight * local + (1 - self.weight) * self._whole, q)
            mixed[:, np.arange(q), np.arange(q)] += RIDGE
            out[rows] = self._scale[:, None] * np.linalg.cholesky(mixed)
        return out

    def _score(self, residuals: FloatArray, X: Any) -> FloatArray:
        return mahalanobis(residuals, self._cholesky(X))

    def _regions(self, center: FloatArray, X: Any, levels: Sequence[Fraction]) -> list[Region]:
        cholesky = self._cholesky(X)
        return [Ellipsoid(center, cholesky, float(self._threshold(level))) for level in levels]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        tags.input_tags.allow_nan = False
        return tags


def _numbers(X: Any) -> FloatArray:
    table = check_array(to_numpy(X), dtype=np.float64, ensure_min_samples=0, input_name="X")
    return np.asarray(table)


def _triangle(q: int) -> list[tuple[int, int]]:
    return [(i, j) for i in range(q) for j in range(i + 1)]


def _matrices(entries: FloatArray, q: int) -> FloatArray:
    """(n, q, q) symmetric matrices of their lower triangles (n, q (q + 1) / 2)."""
    out = np.empty((len(entries), q, q))
    for column, (i, j) in enumerate(_triangle(q)):
        out[:, i, j] = out[:, j, i] = entries[:, column]
    return out
