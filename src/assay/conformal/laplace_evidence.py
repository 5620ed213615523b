"""Laplace evidence of a network's weights, one prior precision a layer. Arrays only, no torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular
from scipy.optimize import minimize

from assay.core.checks import FloatArray
from assay.core.errors import DataError

_PRECISIONS, _NOISES = (-18.0, 18.0), (-27.0, 27.0)
_LEAST_RESIDUAL = 1e-12
_EPS = float(np.finfo(np.float64).eps)


class Evidence:
    """Log evidence of prior precisions d (one a layer) and noise variance s2, at given weights.

    ``-sum r^2 / (2 s2) - n/2 log(2 pi s2) - sum d_l |theta_l|^2 / 2 + sum P_l log(d_l) / 2
    - log det(J'J / s2 + D) / 2`` with D the d of each weight's layer. With no more weights than rows
    the determinant is that of a (P, P) matrix, else of the (n, n) matrix
    ``I + sum J_l J_l' / (d_l s2)``: the same number, O(min(n, P)^3) an evaluation.

    Parameters
    ----------
    jacobian : (n, P) finite array
    residuals : (n,)
    theta : (P,)
    sizes : sequence of L int, weights of each layer, in the order of theta; None is a single layer
    """

    def __init__(
        self,
        jacobian: FloatArray,
        residuals: FloatArray,
        theta: FloatArray,
        sizes: Sequence[int] | None = None,
    ) -> None:
        self.n, p = jacobian.shape
        self.sizes = np.array([p] if sizes is None else sizes, dtype=np.intp)
        if self.sizes.sum() != p or (self.sizes < 1).any():
            raise DataError(f"the layers have {self.sizes.tolist()} weights, the Jacobian {p} columns")
        ends = np.cumsum(self.sizes)
        self._layers = [slice(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]
        self._of = np.repeat(np.arange(len(self.sizes)), self.sizes)
        self._lengths = np.array([float(theta[layer] @ theta[layer]) for layer in self._layers])
        # a network that meets every target would have no noise
        self._rest = max(float(residuals @ residuals), _LEAST_RESIDUAL * self.n)
        self._is_primal = p <= self.n
        if self._is_primal:
            self._gram = jacobian.T @ jacobian
        else:
            self._grams = np.stack([jacobian[:, layer] @ jacobian[:, layer].T for layer in self._layers])

    def value_and_gradient(self, log_values: FloatArray) -> tuple[float, FloatArray]:
        """Log evidence at ``(log d_1, ..., log d_L, log s2)``, and its (L + 1,) derivatives there."""
        d, noise = np.exp(log_values[:-1]), float(np.exp(log_values[-1]))
        log_det, used = self._primal(d, noise) if self._is_primal else self._dual(d, noise)
        value = -0.5 * (
            self._rest / noise + self.n * np.log(2 * np.pi * noise) + float(d @ self._lengths) + log_det
        )
        by_noise = self._rest / noise - self.n + used.sum()
        return value, 0.5 * np.append(used - d * self._lengths, by_noise)

    def _primal(self, d: FloatArray, noise: float) -> tuple[float, FloatArray]:
        """(log det(J'J / s2 + D) - log det D, weights of each layer that the data determine)."""
        scale = (1 / np.sqrt(d * noise))[self._of]
        log_det, half = _whiten(self._gram * scale * scale[:, None])
        free = np.einsum("ij,ij->j", half, half)
        return log_det, np.array([(1 - free[layer]).sum() for layer in self._layers])

    def _dual(self, d: FloatArray, noise: float) -> tuple[float, FloatArray]:
        weights = 1 / (d * noise)
        log_det, half = _whiten(np.tensordot(weights, self._grams, axes=1))
        return log_det, weights * np.einsum("lij,ij->l", self._grams, half.T @ half)


def _whiten(matrix: FloatArray) -> tuple[float, FloatArray]:
    """(log det(I + A), L^-1 with LL' = I + A) of a positive semidefinite A, which is overwritten."""
    n = len(matrix)
    largest = float(matrix.diagonal().max())
    matrix[np.diag_indices(n)] += 1
    try:
        factor = cholesky(matrix, lower=True, check_finite=False)
    except LinAlgError:
        # far from any maximum: I is below the rounding of A
        matrix[np.diag_indices(n)] += 10 * n * _EPS * largest
        factor = cholesky(matrix, lower=True, check_finite=False)
    half = solve_triangular(factor, np.eye(n), lower=True, check_finite=False)
    return 2 * float(np.log(factor.diagonal()).sum()), np.asarray(half)


def maximise_evidence(
    jacobian: FloatArray,
    residuals: FloatArray,
    theta: FloatArray,
    sizes: Sequence[int] | None = None,
    start: tuple[FloatArray, float] | None = None,
) -> tuple[FloatArray, float]:
    """Prior precisions and noise variance of largest :class:`Evidence`, given the weights.

    The penalty of a weight in the training loss ``sum r^2 + sum penalty theta^2`` is the precision
    of its layer times the noise variance.

    Parameters
    ----------
    jacobian, residuals, theta, sizes : as in Evidence
    start : ((L,) precisions, noise variance) to search from, default all 1

    Returns
    -------
    ((L,) precisions, noise variance)
    """
    evidence = Evidence(jacobian, residuals, theta, sizes)
    layers = len(evidence.sizes)
    precisions, noise = (np.ones(layers), 1.0) if start is None else start

    def loss(log_values: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = evidence.value_and_gradient(log_values)
        return -value, -gradient

    found = minimize(
        loss,
        np.log(np.append(precisions, noise)),
        jac=True,
        method="L-BFGS-B",
        bounds=[_PRECISIONS] * layers + [_NOISES],
    )
    values = np.exp(found.x)
    return values[:-1], float(values[-1])
