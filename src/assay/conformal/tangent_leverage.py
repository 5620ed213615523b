"""Hat values of a network's linearisation: a ridge regression on its Jacobian. Arrays only, no torch."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from assay.core.checks import FloatArray
from assay.core.errors import AssayWarning, MethodError

#: penalties that "cv" chooses from
GRID = tuple(10.0**k for k in range(-4, 5))
_JITTERS = 8
_FIRST_JITTER = 1e-10


class TangentLeverage:
    """Hat values ``h_ab = J_a (J'J + R)^-1 J_b'`` for n training rows J (n, P), R the penalty.

    Factors the (P, P) matrix where P <= n, else the (n, n) matrix ``JJ' + reg I``: O(n P min(n, P)).
    Where the factor does not exist in float64, reg is raised until it does, with a warning.

    Parameters
    ----------
    jacobian : (n, P) finite array, one row a training row
    reg : float or (P,) array above 0
        Penalty of all weights, or of each.

    Attributes
    ----------
    own : (n,) hat value of each training row
    reg : float or (P,) array, the penalty in use
    """

    def __init__(self, jacobian: FloatArray, reg: float | FloatArray) -> None:
        n, p = jacobian.shape
        self.is_primal = p <= n
        #: (P,) units of the weights in which all have the same penalty; None where they have it already
        self._scale: FloatArray | None = None
        if isinstance(reg, np.ndarray):
            common = float(np.exp(np.log(reg).mean()))
            self._scale = np.sqrt(common / reg)
            jacobian = self._scaled(jacobian)
        else:
            common = float(reg)
        gram = jacobian.T @ jacobian if self.is_primal else jacobian @ jacobian.T
        self._factor, self._common = _cholesky(gram, common)
        self.reg: float | FloatArray = self._common
        if self._scale is not None:
            self.reg = self._common / self._scale**2
        if self.is_primal:
            self._rows = solve_triangular(self._factor, jacobian.T, lower=True, check_finite=False)
            self.own = np.einsum("ij,ij->j", self._rows, self._rows)
        else:
            self._rows = jacobian
            inverse = solve_triangular(self._factor, np.eye(n), lower=True, check_finite=False)
            self.own = 1 - self._common * np.einsum("ij,ij->j", inverse, inverse)

    @property
    def n_rows(self) -> int:
        """Number of training rows."""
        return len(self.own)

    def _scaled(self, jacobian: FloatArray) -> FloatArray:
        return jacobian if self._scale is None else jacobian * self._scale

    def cross(self, jacobian: FloatArray) -> tuple[FloatArray, FloatArray]:
        """((m,) own hat values, (m, n) weights of the training rows) of other rows J (m, P)."""
        jacobian = self._scaled(jacobian)
        if self.is_primal:
            inner = solve_triangular(self._factor, jacobian.T, lower=True, check_finite=False)
            return np.einsum("ij,ij->j", inner, inner), inner.T @ self._rows
        kernel = self._rows @ jacobian.T
        inner = solve_triangular(self._factor, kernel, lower=True, check_finite=False)
        rest = np.einsum("ij,ij->i", jacobian, jacobian) - np.einsum("ij,ij->j", inner, inner)
        weights = solve_triangular(self._factor, inner, lower=True, trans=1, check_finite=False)
        return np.maximum(rest, 0) / self._common, weights.T

    def own_of(self, jacobian: FloatArray) -> FloatArray:
        """(m,) own hat values of other rows J (m, P)."""
        if not self.is_primal:
            return self.cross(jacobian)[0]
        jacobian = self._scaled(jacobian)
        inner = solve_triangular(self._factor, jacobian.T, lower=True, check_finite=False)
        return np.asarray(np.einsum("ij,ij->j", inner, inner))

    def own_blocks(self, jacobian: FloatArray) -> FloatArray:
        """(m, K, K) hat values between the K outputs of each row, J (m, K, P)."""
        m, k, p = jacobian.shape
        jacobian = self._scaled(jacobian)
        flat = jacobian.reshape(m * k, p)
        if not self.is_primal:
            kernel = self._rows @ flat.T
            inner = solve_triangular(self._factor, kernel, lower=True, check_finite=False).reshape(-1, m, k)
            rest = np.einsum("mkp,mlp->mkl", jacobian, jacobian) - np.einsum("pmk,pml->mkl", inner, inner)
            return np.asarray(rest / self._common)
        inner = solve_triangular(self._factor, flat.T, lower=True, check_finite=False).reshape(p, m, k)
        return np.asarray(np.einsum("pmk,pml->mkl", inner, inner))

    def solve(self, vector: FloatArray) -> FloatArray:
        """``(J'J + R)^-1 v`` for v (P,)."""
        vector = self._scaled(vector)
        if self.is_primal:
            return self._scaled(self._solve(vector))
        inner = self._solve(self._rows @ vector)
        return self._scaled((vector - self._rows.T @ inner) / self._common)

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


def gradient_ratio(
    jacobian: FloatArray, residuals: FloatArray, theta: FloatArray, reg: float | FloatArray
) -> float:
    """``|J'r - reg theta| / |J'r|``: 0 at a minimum of ``sum r^2 + reg |theta|^2``, about 1 far from it.

    J is (n, P), residuals (n,), theta (P,), reg a number or (P,). 0 where both vanish.
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
