"""ACP-GN for several outputs: a box a row, one full conformal interval an output."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from assay.conformal.boxes import Box
from assay.conformal.cross_fit import MAX_MEMORY, check_max_memory, row_blocks
from assay.conformal.density_models import check_outputs
from assay.conformal.full_conformal import (
    SCORES,
    SOLVERS,
    Coefficients,
    check_choice,
    full_conformal_interval,
)
from assay.conformal.gauss_newton import GaussNewtonConformal
from assay.conformal.network_regressor import check_reg
from assay.conformal.tangent_base import warn_if_not_converged
from assay.conformal.tangent_leverage import TangentLeverage, gradient_ratio
from assay.conformal.tangent_network import TangentNetwork, check_rows_given
from assay.core.checks import FloatArray
from assay.core.errors import DataError, MethodError
from assay.core.levels import lower_rank, parse_levels, warn_infinite
from assay.core.models import import_torch
from assay.core.seeds import derive_seed, seed_of
from assay.core.state import all_or_nothing
from assay.networks.selection import Selection

_LEAST_FREEDOM = 1e-4
_FITTED = ("outputs_", "residuals_", "network_", "leverage_", "gradient_ratio_", "_own", "_row_shape")


class GaussNewtonBoxes(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Boxes around a network with K outputs, every row training and calibrating.

    As :class:`~assay.conformal.gauss_newton.GaussNewtonConformal` with K x K blocks of hat values H:
    with the candidate ``y = f(x) + t`` the residuals are ``R_i = r_i - H(i, x) B t`` and ``R = B t``,
    ``B = (I + H(x, x))^-1``; "deleted" multiplies them by ``(I - G)^-1`` and "studentized" by
    ``(I - G)^-1/2``, G the block of the refit, its eigenvalues at most 1 - 1e-4. Output k gets the
    set of ``t_k`` with the other outputs held at the prediction, at level alpha / K: together a box
    that covers all outputs with about 1 - alpha, more where outputs depend on each other.

    Without a trained module each output gets a network of its own: with no weight in common the
    blocks are diagonal, and the box is one ACP-GN interval an output at level alpha / K.

    Parameters
    ----------
    module : torch.nn.Module or NetworkRegressor, default NetworkRegressor()
        A module, (n, ...) to (n, K), is taken as trained on the rows that ``fit`` gets by minimising
        ``sum |y - f|^2 + reg |theta|^2``. It is copied, never changed. Of a NetworkRegressor one clone
        an output is trained, with this ``reg`` and ``random_state``.
    reg : float, or "marglik" or "cv" for networks trained here, default 0.1
        Penalty: for a module the one that it was trained with; see GaussNewtonConformal.
    residual : "studentized", "deleted" or "standard", default "studentized"
    solver : "exact" or "two_sided", default "exact"
    params : "all", "last_layer" or callable, default "all"
    alpha : level, default 0.1
        Miscoverage of the box.
    batch_size : int, default 256
    max_memory : int, default 256 MiB
        Bound in bytes of the working set of a prediction; it does not change the answer.
    random_state : int, RandomState or None, default None
        Of the networks that are trained here.

    Attributes
    ----------
    network_, leverage_, gradient_ratio_ : as in GaussNewtonConformal, of a trained module
    outputs_ : list of K GaussNewtonConformal, of networks trained here
    residuals_ : (n, K) y - f

    References
    ----------
    Tailor, Correia, Nalisnick, Louizos (2025), Approximating full conformal prediction for neural
    network regression with Gauss-Newton influence.
    """

    def __init__(
        self,
        module: Any = None,
        reg: Any = 0.1,
        residual: str = "studentized",
        solver: str = "exact",
        params: Selection = "all",
        *,
        alpha: Any = 0.1,
        batch_size: int = 256,
        max_memory: int = MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.module = module
        self.reg = reg
        self.residual = residual
        self.solver = solver
        self.params = params
        self.alpha = alpha
        self.batch_size = batch_size
        self.max_memory = max_memory
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Compute the blocks of hat values of the rows that the module was trained on, or train networks.

        Parameters
        ----------
        X : (n, d) table, or (n, ...) rows as the module takes them
        y : (n, K) numbers

        Raises
        ------
        DataError
            NaN or infinite values, lengths that differ.
        MethodError
            reg not a number above 0, an unknown choice, outputs that are not K, or a module whose rows
            depend on each other.
        """
        if y is None:
            raise DataError("requires y to be passed, but the target y is None")
        check_consistent_length(X, y)
        targets = check_outputs(y)
        parse_levels(self.alpha)
        check_choice("residual", self.residual, SCORES)
        check_choice("solver", self.solver, SOLVERS)
        check_reg(self.reg)
        check_max_memory(self.max_memory)
        trained = self.module is not None and isinstance(
            self.module, import_torch("a network under Gauss-Newton intervals").nn.Module
        )
        if trained and isinstance(self.reg, str):
            raise MethodError(f"reg must be the number that the module was trained with, got {self.reg!r}")
        with all_or_nothing(self):
            for name in _FITTED:
                self.__dict__.pop(name, None)
            if trained:
                self._take_module(X, targets)
            else:
                self._train_networks(X, targets)
        return self

    def _train_networks(self, X: Any, targets: FloatArray) -> None:
        seed = None if self.random_state is None else seed_of(self.random_state)
        self.outputs_ = [
            GaussNewtonConformal(
                self.module,
                self.reg,
                self.residual,
                self.solver,
                self.params,
                batch_size=self.batch_size,
                max_memory=self.max_memory,
                random_state=None if seed is None else derive_seed(seed, "output", k),
            ).fit(X, targets[:, k])
            for k in range(targets.shape[1])
        ]
        self.residuals_ = np.column_stack([output.residuals_ for output in self.outputs_])

    def _take_module(self, X: Any, targets: FloatArray) -> None:
        n, k = targets.shape
        table = check_rows_given(X, None)
        self._row_shape = table.shape[1:]
        self.network_ = TangentNetwork(self.module, self.params, self.batch_size, n_outputs=k)
        self.network_.check_rows(table)
        values, jacobian = self._tangent(table)
        self.residuals_ = targets - values
        flat = jacobian.reshape(n * k, -1)
        self.leverage_ = TangentLeverage(flat, float(self.reg))
        self._own = self.leverage_.own_blocks(jacobian)
        self.gradient_ratio_ = gradient_ratio(
            flat, self.residuals_.ravel(), self.network_.theta, self.leverage_.reg
        )
        warn_if_not_converged(self.gradient_ratio_, self.leverage_.reg, "calibrate on other rows")

    def _tangent(self, table: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(n, K) outputs and (n, K, P) derivatives."""
        values, jacobian = self.network_.values_and_jacobian(table)
        k = self.network_.n_outputs
        return values.reshape(-1, k), jacobian.reshape(len(values), k, -1)

    def predict(self, X: Any) -> FloatArray:
        """(n, K) predictions of the network."""
        check_is_fitted(self)
        if self._trained_here:
            return np.column_stack([output.predict(X) for output in self.outputs_])
        table = check_rows_given(X, self._row_shape)
        return self.network_.values(table).reshape(-1, self.network_.n_outputs)

    @property
    def _trained_here(self) -> bool:
        return hasattr(self, "outputs_")

    def predict_region(self, X: Any, alpha: Any = None) -> Any:
        """The boxes of :meth:`predict_box` as a region; a list of regions for a sequence of levels."""
        ends = self.predict_box(X, alpha)
        if ends.ndim == 3:
            return Box(ends[..., 0], ends[..., 1])
        return [Box(level[..., 0], level[..., 1]) for level in ends]

    def predict_box(self, X: Any, alpha: Any = None) -> FloatArray:
        """Lower and upper end of each output of each row.

        Parameters
        ----------
        X : (m, d) table
        alpha : level or sequence of L levels, optional
            Miscoverage of the box; the constructor's if not given.

        Returns
        -------
        (m, K, 2) float64 array, or (L, m, K, 2) for a sequence of levels.
            Infinite where n is below K / alpha - 1 ("two_sided": 2 K / alpha - 1), with a warning.
        """
        check_is_fitted(self)
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        n, k = self.residuals_.shape
        own = self._trained_here
        table = self.outputs_[0].estimator_.rows(X) if own else check_rows_given(X, self._row_shape)
        out = np.full((len(levels), len(table), k, 2), [-np.inf, np.inf])
        finite = []
        for i, level in enumerate(levels):
            rank_level = level / k / (2 if self.solver == "two_sided" else 1)
            if lower_rank(n, rank_level) < 1:
                warn_infinite(n, rank_level, "interval", stacklevel=3)
            else:
                finite.append(i)
        if not finite:
            return out[0] if is_scalar else out
        asked = [levels[i] / k for i in finite]
        if own:
            for j, output in enumerate(self.outputs_):
                out[finite, :, j] = output.predict_interval(X, asked)
            return out[0] if is_scalar else out
        for rows, centre, outputs in self._blocks(table):
            for j, coefficients in enumerate(outputs):
                ends = full_conformal_interval(*coefficients, asked, self.solver, max_memory=self.max_memory)
                out[finite, rows, j] = ends + centre[:, j, None]
        return out[0] if is_scalar else out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _blocks(self, table: FloatArray) -> Iterator[tuple[slice, FloatArray, list[Coefficients]]]:
        """(rows, predictions (m, K), for each output its residuals as functions of t_k)."""
        n, k = self.residuals_.shape
        bytes_a_row = 8 * (4 * k * len(self.network_.theta) + n * (10 * k * k + 12))
        for rows in row_blocks(len(table), bytes_a_row, self.max_memory):
            values, jacobian = self._tangent(table[rows])
            yield rows, values, self._coefficients(jacobian)

    def _coefficients(self, jacobian: FloatArray) -> list[Coefficients]:
        m, k, p = jacobian.shape
        n = len(self.residuals_)
        _, weights = self.leverage_.cross(jacobian.reshape(m * k, p))
        # H(i, x): training output l, new output j
        across = weights.reshape(m, k, n, k).transpose(0, 2, 3, 1)
        b_star: FloatArray = np.asarray(
            np.linalg.inv(np.eye(k) + self.leverage_.own_blocks(jacobian)), dtype=np.float64
        )
        b = -across @ b_star[:, None]
        a = np.broadcast_to(self.residuals_, (m, n, k))
        if self.residual != "standard":
            power = -1.0 if self.residual == "deleted" else -0.5
            # I - G, and for the new row B itself
            scale = _power(np.eye(k) - self._own - b @ across.swapaxes(2, 3), power)
            a, b = np.einsum("mnkl,nl->mnk", scale, self.residuals_), scale @ b
            b_star = _power(b_star, power) @ b_star
        zero = np.zeros(m)
        return [(a[..., j], b[..., j, j], zero, b_star[:, j, j]) for j in range(k)]


def _power(blocks: FloatArray, power: float) -> FloatArray:
    """Power of symmetric blocks (..., K, K) whose eigenvalues are raised to 1e-4 first."""
    values, vectors = np.linalg.eigh((blocks + blocks.swapaxes(-1, -2)) / 2)
    values = np.maximum(values, _LEAST_FREEDOM) ** power
    return np.asarray((vectors * values[..., None, :]) @ vectors.swapaxes(-1, -2))
