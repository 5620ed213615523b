"""What the interval methods around a network's linearisation share: network, penalty, hat values."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.base import clone

from assay.conformal.cross_fit import check_max_memory, row_blocks
from assay.conformal.interval_base import IntervalRegressor
from assay.conformal.laplace_evidence import maximise_evidence
from assay.conformal.network_regressor import NetworkRegressor, check_reg
from assay.conformal.tangent_leverage import TangentLeverage, choose_by_left_out, gradient_ratio
from assay.conformal.tangent_network import TangentNetwork, check_rows_given
from assay.core.checks import FloatArray, refuse_infinite, refuse_nan
from assay.core.errors import AssayWarning, MethodError
from assay.core.models import import_torch
from assay.networks.selection import Selection

_MOST_GRADIENT = 0.1


class TangentIntervalRegressor(IntervalRegressor):
    """Base of interval methods that use hat values of a network's Jacobian.

    A subclass has the constructor's arguments ``module``, ``reg``, ``params``, ``batch_size``,
    ``max_memory`` and ``random_state``.
    """

    module: Any
    reg: float | str
    params: Selection
    batch_size: int
    max_memory: int
    random_state: Any
    network_: TangentNetwork
    leverage_: TangentLeverage

    def _check_arguments(self) -> None:
        check_reg(self.reg)
        check_max_memory(self.max_memory)

    def _has_trained_module(self) -> bool:
        return self.module is not None and isinstance(
            self.module, import_torch("a network under Gauss-Newton intervals").nn.Module
        )

    def _set_network(self, X: Any, y: FloatArray) -> None:
        """Train the network on the rows, or take over the one that is trained."""
        if self._has_trained_module():
            table = check_rows_given(X, None)
            self._row_shape: tuple[int, ...] | None = table.shape[1:]
            self.estimator_ = self.module
            module = self.module
        else:
            base = NetworkRegressor() if self.module is None else self.module
            if not hasattr(base, "fit"):
                raise MethodError(
                    f"module must be a trained torch.nn.Module or an unfitted NetworkRegressor, got {base!r}"
                )
            network = clone(base)
            unknown = {"reg", "random_state"} - set(network.get_params(deep=False))
            if unknown:
                raise MethodError(
                    f"{type(network).__name__} takes no {' and no '.join(sorted(unknown))}; give a trained "
                    "torch.nn.Module or a NetworkRegressor"
                )
            network.set_params(reg=self.reg)
            if self.random_state is not None:
                network.set_params(random_state=self.random_state)
            self.estimator_ = network.fit(X, y)
            self._row_shape = None
            module, table = network.module_, network.rows(X)
        self.network_ = TangentNetwork(module, self.params, self.batch_size)
        self.network_.check_rows(table)

    def _set_leverage(self, X: Any, y: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Hat values of the rows; (their residuals (n,), their Jacobian (n, P))."""
        values, jacobian = self._tangent(self._rows(X))
        residuals = y - values
        theta = self.network_.theta
        penalty = self._choose_penalty(jacobian, residuals)
        self.leverage_ = TangentLeverage(jacobian, penalty)
        #: penalty of the weights that count, one number or (P,)
        self._penalty = self.leverage_.reg
        self.reg_: float | dict[str, float] = self._by_name(self._penalty)
        self.gradient_ratio_ = gradient_ratio(jacobian, residuals, theta, penalty)
        return residuals, jacobian

    def _choose_penalty(self, jacobian: FloatArray, residuals: FloatArray) -> float | FloatArray:
        """Penalty of the network, and ``_noise``: sd of the noise where the evidence gives it, else None."""
        network = self.network_
        self._noise: float | None = getattr(self.estimator_, "noise_", None)
        if hasattr(self.estimator_, "reg_"):
            # trained here, with the penalty that was chosen for it
            chosen = self.estimator_.reg_
            if not isinstance(chosen, dict):
                return float(chosen)
            return np.repeat([chosen[name] for name in network.names], network.sizes)
        if self.reg == "marglik":
            precisions, noise = maximise_evidence(jacobian, residuals, network.theta, network.sizes)
            self._noise = float(np.sqrt(noise))
            return np.repeat(precisions * noise, network.sizes)
        return choose_by_left_out(jacobian, residuals, network.theta) if self.reg == "cv" else float(self.reg)

    def _by_name(self, penalty: float | FloatArray) -> float | dict[str, float]:
        if not isinstance(penalty, np.ndarray):
            return penalty
        starts = np.cumsum([0, *self.network_.sizes[:-1]])
        return {name: float(penalty[at]) for name, at in zip(self.network_.names, starts, strict=True)}

    def _rows(self, X: Any) -> FloatArray:
        if hasattr(self.estimator_, "rows"):
            return np.asarray(self.estimator_.rows(X))
        return check_rows_given(X, self._row_shape)

    def _tangent(self, table: FloatArray) -> tuple[FloatArray, FloatArray]:
        values, jacobian = self.network_.values_and_jacobian(table)
        for array, name in ((values, "the network's output"), (jacobian, "the network's Jacobian")):
            refuse_nan(array, name)
            refuse_infinite(array, name)
        return values, jacobian

    def _blocks(self, X: Any, training_rows: int) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
        """(rows, outputs, Jacobian) of blocks of X; ``training_rows`` is how many each is held against."""
        table = self._rows(X)
        bytes_a_row = 8 * (4 * len(self.network_.theta) + 12 * training_rows)
        for rows in row_blocks(len(table), bytes_a_row, self.max_memory):
            yield rows, *self._tangent(table[rows])

    def predict(self, X: Any) -> FloatArray:
        """(n,) predictions of the network."""
        self._check_has_model()
        return self.network_.values(self._rows(X))

    def leverage(self, X: Any) -> FloatArray:
        """(n,) hat values ``h(x, x)``: how far each row is from the training rows for the network."""
        self._check_has_model()
        out = np.empty(len(self._rows(X)))
        for rows, _, own in self._own_blocks(X):
            out[rows] = own
        return out

    def _own_blocks(self, X: Any) -> Iterator[tuple[slice, FloatArray, FloatArray]]:
        """(rows, outputs, own hat values) of blocks of X."""
        against = 0 if self.leverage_.is_primal else self.leverage_.n_rows
        for rows, values, jacobian in self._blocks(X, against):
            yield rows, values, self.leverage_.own_of(jacobian)

    @property
    def n_features_in_(self) -> int:
        """Number of features seen in fit."""
        self._check_has_model()
        return int(self.estimator_.n_features_in_ if self._row_shape is None else self._row_shape[0])

    def __sklearn_tags__(self) -> Any:
        self_tags = super(IntervalRegressor, self).__sklearn_tags__()
        self_tags.input_tags.sparse = False
        return self_tags


def warn_if_not_converged(ratio: float, reg: float | FloatArray, remedy: str) -> None:
    """Warn, for ``fit``, of a network that is not at a minimum of its penalised loss."""
    if ratio > _MOST_GRADIENT:
        shown = f"{reg:g}" if isinstance(reg, float) else f"from {reg.min():g} to {reg.max():g} by layer"
        warnings.warn(
            f"the network is not at a minimum of sum r^2 + reg |theta|^2 with reg {shown}: the "
            f"gradient is {ratio:.2f} of its data part, more than {_MOST_GRADIENT}; "
            f"coverage may be off. Train longer, give the reg it was trained with, or {remedy}",
            AssayWarning,
            stacklevel=3,
        )
