"""Hat values of a network's linearisation: a ridge regression on its Jacobian. Arrays only, no torch."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.linalg import LinAlgError, cholesky, eigvalsh, solve_triangular
from scipy.optimize import minimize

from assay.core.checks import FloatArray
from assay.core.errors import AssayWarning, MethodError

#: penalties that "cv" chooses from
GRID = tuple(10.0**k for k in range(-4, 5))
_JITTERS = 8
_FIRST_JITTER = 1e-10


class TangentLeverage:
    """Hat values ``h_ab = J_a (J'J + reg I)^-1 J_b'`` for n training rows J (n, P).

    Factors the (P, P) matrix where P <= n, else the (n, n) matrix ``JJ' + reg I``: O(n P min(n, P)).
    Where the factor does not exist in float64, reg is raised until it does, with a warning.

    Parameters
    ----------
    jacobian : (n, P) finite array, one row a training row
    reg : float above 0

    Attributes
    ----------
    own : (n,) hat value of each training row
    reg : float, the penalty in use
    """

    def __init__(self, jacobian: FloatArray, reg: float) -> None:
        n, p = jacobian.shape
        self.is_primal = p <= n
        gram = jacobian.T @ jacobian if self.is_primal else jacobian @ jacobian.T
        self._factor, self.reg = _cholesky(gram, reg)
        if self.is_primal:
            self._rows = solve_triangular(self._factor, jacobian.T, lower=True, check_finite=False)
            self.own = np.einsum("ij,ij->j", self._rows, self._rows)
        else:
            self._rows = jacobian
            inverse = solve_triangular(self._factor, np.eye(n), lower=True, check_finite=False)
            self.own = 1 - self.reg * np.einsum("ij,ij->j", inverse, inverse)

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return len(self.own)

    def cross(self, jacobian: FloatArray) -> tuple[FloatArray, FloatArray]:
        """((m,) own hat values, (m, n) weights of the training rows) of other rows J (m, P)."""
        if self.is_primal:
            inner = solve_triangular(self._factor, jacobian.T, lower=True, check_finite=False)
            return np.einsum("ij,ij->j", inner, inner), inner.T @ self._rows
        kernel = self._rows @ jacobian.T
        inner = solve_triangular(self._factor, kernel, lower=True, check_finite=False)
        rest = np.einsum("ij,ij->i", jacobian, jacobian) - np.einsum("ij,ij->j", inner, inner)
        weights = solve_triangular(self._factor, inner, lower=True, trans=1, check_finite=False)
        return np.maximum(rest, 0) / self.reg, weights.T

    def own_of(self, jacobian: FloatArray) -> FloatArray:
        """(m,) own hat values of other rows J (m, P)."""
        if not self.is_primal:
            return self.cross(jacobian)[0]
        inner = solve_triangular(self._factor, jacobian.T, lower=True, check_finite=False)
        return np.asarray(np.einsum("ij,ij->j", inner, inner))

    def own_blocks(self, jacobian: FloatArray) -> FloatArray:
        """(m, K, K) hat values between the K outputs of each row, J (m, K, P)."""
        m, k, p = jacobian.shape
        flat = jacobian.reshape(m * k, p)
        if not self.is_primal:
            kernel = self._rows @ flat.T
            inner = solve_triangular(self._factor, kernel, lower=True, check_finite=False).reshape(-1, m, k)
            rest = np.einsum("mkp,mlp->mkl", jacobian, jacobian) - np.einsum("pmk,pml->mkl", inner, inner)
            return np.asarray(rest / self.reg)
        inner = solve_triangular(self._factor, flat.T, lower=True, check_finite=False).reshape(p, m, k)
        return np.asarray(np.einsum("pmk,pml->mkl", inner, inner))

    def solve(self, vector: FloatArray) -> FloatArray:
        """``(J'J + reg I)^-1 v`` for v (P,)."""
        if self.is_primal:
            return self._solve(vector)
        inner = self._solve(self._rows @ vector)
        return np.asarray((vector - self._rows.T @ inner) / self.reg)

    def _solve(self, vector: FloatArray) -> FloatArray:
        half = solve_triangular(self._factor, vector, lower=True, check_finite=False)
        return np.asarray(solve_triangular(self._factor, half, lower=True, trans=1, check_finite=False))


def _cholesky(gram: FloatArray, reg: float) -> tuple[FloatArray, float]:
    diagonal = np.arange(len(gram))
    size = float(gram.diagonal().max(initial=0.0))
    for step in range(_JITTERS + 1):
        raised = reg if step == 0 else reg + _FIRST_JITTER * size * 10.0 ** (step - 1)
        matrix = gram.copy()
        matrix[diagonal, diagonal] += raised
        try:
            factor = cholesky(matrix, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            continue
        if step:
            warnings.warn(
                f"J'J + reg I is singular in float64 at reg {reg:g}: reg is raised to {raised:g}",
                AssayWarning,
                stacklevel=5,
            )
        return np.asarray(factor), raised
    raise MethodError(f"J'J + reg I has no Cholesky factor at reg {reg:g}; give a larger reg")


def gradient_ratio(jacobian: FloatArray, residuals: FloatArray, theta: FloatArray, reg: float) -> float:
    """``|J'r - reg theta| / |J'r|``: 0 at a minimum of ``sum r^2 + reg |theta|^2``, about 1 far from it.

    J is (n, P), residuals (n,), theta (P,). 0 where both vanish.
    """
    pull = jacobian.T @ residuals
    rest, size = float(np.linalg.norm(pull - reg * theta)), float(np.linalg.norm(pull))
    if size == 0:
        return 0.0 if rest == 0 else float("inf")
    return rest / size


def choose_by_left_out(jacobian: FloatArray, residuals: FloatArray, theta: FloatArray) -> float:
    """Penalty of :data:`GRID` whose linearised refit predicts left-out rows best (squared error).

    The refit is a ridge regression of ``r + J theta`` on J; its left-out residuals are exact, from
    the hat values of one eigendecomposition.
    """
    left, sizes, _ = np.linalg.svd(jacobian, full_matrices=False)
    target = residuals + jacobian @ theta
    inner, square = left.T @ target, sizes**2
    errors = []
    for reg in GRID:
        shrink = square / (square + reg)
        left_out = (target - left @ (shrink * inner)) / np.maximum(1 - left**2 @ shrink, 1e-12)
        errors.append(float(left_out @ left_out))
    return GRID[int(np.argmin(errors))]


def maximise_evidence(
    jacobian: FloatArray, residuals: FloatArray, theta: FloatArray, start: tuple[float, float] = (1.0, 1.0)
) -> tuple[float, float]:
    """Prior precision and noise variance with the largest Laplace evidence, given the weights.

    ``-sum r^2 / (2 s2) - n/2 log s2 - d/2 |theta|^2 + P/2 log d - 1/2 log det(J'J / s2 + d I)`` over d
    and s2, one precision for all P weights. The penalty of the training loss is their product.

    Parameters
    ----------
    jacobian : (n, P)
    residuals : (n,)
    theta : (P,)
    start : (precision, noise variance) to search from

    Returns
    -------
    (precision, noise variance)
    """
    n, p = jacobian.shape
    gram = jacobian.T @ jacobian if p <= n else jacobian @ jacobian.T
    square = np.maximum(eigvalsh(gram, check_finite=False), 0)
    rest, size = float(residuals @ residuals), float(theta @ theta)
    rest = max(rest, 1e-12 * n)

    def loss(log_values: FloatArray) -> tuple[float, FloatArray]:
        precision, noise = np.exp(log_values)
        share = square / noise / (square / noise + precision)
        value = (
            rest / (2 * noise)
            + n / 2 * log_values[1]
            + precision * size / 2
            + 0.5 * np.log1p(square / (noise * precision)).sum()
        )
        used = float(share.sum())
        return float(value), 0.5 * np.array([precision * size - used, -rest / noise + n - used])

    bounds = [(-18.0, 18.0), (-27.0, 27.0)]
    found = minimize(loss, np.log(start), jac=True, method="L-BFGS-B", bounds=bounds)
    precision, noise = np.exp(found.x)
    return float(precision), float(noise)
