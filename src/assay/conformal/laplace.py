"""Intervals of the linearised Laplace approximation: Gaussian, uncalibrated, a baseline."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Self

import numpy as np
from scipy.special import ndtri

from assay.conformal.cross_fit import MAX_MEMORY
from assay.conformal.interval_base import training_target
from assay.conformal.tangent_base import TangentIntervalRegressor, warn_if_not_converged
from assay.core.checks import FloatArray
from assay.core.levels import parse_levels
from assay.core.state import all_or_nothing
from assay.networks.selection import Selection


class LinearizedLaplaceRegressor(TangentIntervalRegressor):
    """``f(x) -+ z s sqrt(1 + h(x, x))``: the Gaussian predictive interval of a network's linearisation.

    h are hat values (see :class:`~assay.conformal.gauss_newton.GaussNewtonConformal`), z the normal
    quantile at 1 - alpha / 2, and s^2 the mean squared training residual, or with ``reg="marglik"``
    the noise variance of largest evidence. Nothing is calibrated: coverage is right only as far as
    the noise is Gaussian of one size, the network at its optimum and s right. For a network with
    many weights s is too small.

    Parameters
    ----------
    module : torch.nn.Module or NetworkRegressor, default NetworkRegressor()
        As in GaussNewtonConformal.
    reg : float, "marglik" or "cv", default 0.1
    params : "all", "last_layer" or callable, default "all"
    alpha : level, default 0.1
        Miscoverage that is aimed at.
    batch_size : int, default 256
    max_memory : int, default 256 MiB
    random_state : int, RandomState or None, default None

    Attributes
    ----------
    network_, leverage_, reg_, gradient_ratio_ : as in GaussNewtonConformal
    noise_ : float, s, in units of y

    References
    ----------
    MacKay (1992), A practical Bayesian framework for backpropagation networks. Immer, Korzepa, Bauer
    (2021), Improving predictions of Bayesian neural nets via local linearization.
    """

    def __init__(
        self,
        module: Any = None,
        reg: float | str = 0.1,
        params: Selection = "all",
        *,
        alpha: Any = 0.1,
        batch_size: int = 256,
        max_memory: int = MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.module = module
        self.reg = reg
        self.params = params
        self.alpha = alpha
        self.batch_size = batch_size
        self.max_memory = max_memory
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train the network unless it is trained, and compute hat values and noise.

        Parameters
        ----------
        X : (n, d) table of numbers
        y : (n,) numbers

        Raises
        ------
        DataError
            NaN or infinite values, lengths that differ.
        MethodError
            reg not above 0, or a module whose rows depend on each other.
        """
        y = training_target(X, y)
        parse_levels(self.alpha)
        self._check_arguments()
        with all_or_nothing(self):
            self._set_network(X, y)
            residuals, _ = self._set_leverage(X, y)
            warn_if_not_converged(self.gradient_ratio_, self._penalty, "use a calibrated method")
            by_rows = float(np.sqrt(np.mean(residuals**2)))
            self.noise_ = by_rows if self._noise is None else self._noise
        return self

    def _interval(self, X: Any, level: Fraction) -> FloatArray:
        z = float(ndtri(1 - float(level) / 2))
        out = np.empty((len(self._rows(X)), 2))
        for rows, values, own in self._own_blocks(X):
            half = z * self.noise_ * np.sqrt(1 + own) if np.isfinite(z) else np.full(len(own), np.inf)
            out[rows] = np.column_stack([values - half, values + half])
        return out
