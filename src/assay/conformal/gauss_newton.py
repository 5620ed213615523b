"""ACP-GN: full conformal intervals of a neural network by one Gauss-Newton step a candidate."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_consistent_length

from assay.conformal.cross_fit import MAX_MEMORY
from assay.conformal.full_conformal import (
    SCORES,
    SOLVERS,
    Coefficients,
    check_choice,
    full_conformal_interval,
    ridge_residual_coefficients,
)
from assay.conformal.interval_base import split_rows, training_target
from assay.conformal.tangent_base import TangentIntervalRegressor, warn_if_not_converged
from assay.core.checks import FloatArray, check_target, row_count
from assay.core.errors import MethodError
from assay.core.levels import lower_rank, parse_levels, warn_infinite
from assay.core.state import all_or_nothing
from assay.networks.selection import Selection

_REFINED_ON = 0.5


class GaussNewtonConformal(TangentIntervalRegressor):
    """Intervals around a network that train and calibrate on the same rows: one training, no refits.

    Adding (x, y) to the training rows moves the weights by one Gauss-Newton step, so that all
    residuals become linear in y, as in ridge regression on the network's Jacobian J. With hat values
    ``h_ab = J_a (J'J + reg I)^-1 J_b'`` and ``u = (y - f(x)) / (1 + h(x, x))`` they are
    ``R_i = r_i - u h(x, i)`` and ``R = u``; y belongs to the set where
    ``(1 + #{|R_i| >= |R|}) / (n + 1) > alpha``, and the answer is the set's convex hull. Residuals other
    than "standard" are scaled by their hat value in the refit.

    Coverage is approximate: exact for a model linear in its weights at its optimum, otherwise as good
    as the linearisation. ``refine=True`` is exact for exchangeable rows.

    Parameters
    ----------
    module : torch.nn.Module or NetworkRegressor, default NetworkRegressor()
        A module is taken as trained on the rows that ``fit`` gets (with ``refine``: on others) by
        minimising ``sum (y - f)^2 + reg |theta|^2``; a mean loss over N rows with SGD's
        ``weight_decay`` w is ``reg = N w / 2``. It is copied, never changed. A NetworkRegressor is
        cloned and trained, with this ``reg`` and ``random_state``.
    reg : float, "marglik" or "cv", default 0.1
        Penalty: for a module in units of y squared, for a network trained here of the standardised
        target. For a module "marglik" maximises the Laplace evidence at its weights over the noise
        and a prior precision for each layer (each parameter tensor), and "cv" the accuracy of left-out
        rows of its linearisation; for a NetworkRegressor see there.
    residual : "studentized", "deleted" or "standard", default "studentized" (Tailor et al. 2025)
        Whose absolute value is the score.
    solver : "exact" or "two_sided", default "exact"
        "two_sided" takes signed residuals at alpha / 2 a side: a little different, and it needs twice
        as many rows for a finite interval.
    params : "all", "last_layer" or callable, default "all"
        Weights that count, see :class:`~assay.conformal.tangent_network.TangentNetwork`.
    refine : bool, default False
        The network is trained on other rows (a NetworkRegressor on half of them), and its
        linearisation is refitted on the rest: exact full conformal prediction on that half.
    alpha : level, default 0.1
        Miscoverage.
    batch_size : int, default 256
        Rows whose Jacobians are computed at once.
    max_memory : int, default 256 MiB
        Bound in bytes of the working set of a prediction; it does not change the answer.
    random_state : int, RandomState or None, default None
        Of the network that is trained here, and of the half that ``refine`` draws.

    Attributes
    ----------
    network_ : TangentNetwork, the trained network
    leverage_ : TangentLeverage, hat values of the n rows
    residuals_ : (n,) y - f
    reg_ : float, the penalty in use, in units of y squared; with "marglik" one for each parameter that
        counts, by its name
    gradient_ratio_ : float, ``|J'r - reg theta| / |J'r|``; above 0.1 ``fit`` warns

    References
    ----------
    Tailor, Correia, Nalisnick, Louizos (2025), Approximating full conformal prediction for neural
    network regression with Gauss-Newton influence. Burnaev, Vovk (2014), Efficiency of conformalized
    ridge regression.
    """

    def __init__(
        self,
        module: Any = None,
        reg: float | str = 0.1,
        residual: str = "studentized",
        solver: str = "exact",
        params: Selection = "all",
        refine: bool = False,
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
        self.refine = refine
        self.alpha = alpha
        self.batch_size = batch_size
        self.max_memory = max_memory
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train the network unless it is trained, and compute the hat values of the rows.

        Parameters
        ----------
        X : (n, d) table of numbers, or (n, ...) rows as the module takes them
        y : (n,) numbers

        Raises
        ------
        MissingDependency
            torch is not installed.
        DataError
            NaN or infinite values, lengths that differ.
        MethodError
            reg not above 0, an unknown choice, or a module whose rows depend on each other.
        """
        y = training_target(X, y)
        parse_levels(self.alpha)
        check_choice("residual", self.residual, SCORES)
        check_choice("solver", self.solver, SOLVERS)
        self._check_arguments()
        trained = self._has_trained_module()
        if self.refine and trained and isinstance(self.reg, str):
            raise MethodError(
                f"reg={self.reg!r} would be chosen on the rows that refine calibrates on; give a number"
            )
        with all_or_nothing(self):
            if self.refine and not trained:
                X_train, X, y_train, y = split_rows(X, y, _REFINED_ON, self.random_state)
                self._set_network(X_train, y_train)
            else:
                self._set_network(X, y)
            residuals, jacobian = self._set_leverage(X, y)
            self._shift = np.zeros(0)
            if self.refine:
                # one Newton step of the linearised problem, whose gradient this is
                pull = jacobian.T @ residuals - self._penalty * self.network_.theta
                self._shift = self.leverage_.solve(pull)
                residuals = residuals - jacobian @ self._shift
            else:
                warn_if_not_converged(self.gradient_ratio_, self._penalty, "set refine=True")
            self.residuals_ = residuals
        return self

    def predict(self, X: Any) -> FloatArray:
        """(n,) predictions of the network; with ``refine`` of its refitted linearisation."""
        if not len(getattr(self, "_shift", ())):
            return super().predict(X)
        self._check_has_model()
        out = np.empty(row_count(X))
        for rows, values, jacobian in self._blocks(X, 0):
            out[rows] = values + jacobian @ self._shift
        return out

    def p_value(self, X: Any, y: Any) -> FloatArray:
        """(n,) conformal p-value of each row's label: y is in the row's set where it exceeds alpha.

        Parameters
        ----------
        X : (n, d) table
        y : (n,) numbers
        """
        self._check_has_model()
        check_consistent_length(X, y)
        target = check_target(y)
        out = np.empty(len(target))
        n = len(self.residuals_)
        for rows, centre, jacobian in self._blocks(X, n):
            centre, coefficients = self._coefficients(centre, jacobian)
            a, b, a_star, b_star = coefficients
            away = target[rows] - centre
            own = np.abs(a_star + b_star * away)
            out[rows] = (1 + (np.abs(a + b * away[:, None]) >= own[:, None]).sum(axis=1)) / (n + 1)
        return out

    def _coefficients(self, values: FloatArray, jacobian: FloatArray) -> tuple[FloatArray, Coefficients]:
        """Predictions, and residuals as functions of y minus the prediction: far targets keep digits."""
        centre = values + jacobian @ self._shift if len(self._shift) else values
        own, cross = self.leverage_.cross(jacobian)
        zero = np.zeros(len(centre))
        coefficients = ridge_residual_coefficients(
            self.residuals_, zero, own, cross, self.leverage_.own, self.residual
        )
        return centre, coefficients

    def _intervals(self, X: Any, levels: Sequence[Fraction]) -> FloatArray:
        n = len(self.residuals_)
        out = np.full((len(levels), row_count(X), 2), [-np.inf, np.inf])
        finite = []
        for i, level in enumerate(levels):
            rank_level = level / 2 if self.solver == "two_sided" else level
            if lower_rank(n, rank_level) < 1:
                warn_infinite(n, rank_level, "interval", stacklevel=4)
            else:
                finite.append(i)
        asked = [levels[i] for i in finite]
        for rows, centre, jacobian in self._blocks(X, n):
            if not finite:
                continue
            centre, coefficients = self._coefficients(centre, jacobian)
            ends = full_conformal_interval(*coefficients, asked, self.solver, max_memory=self.max_memory)
            out[finite, rows] = ends + centre[:, None]
        return out
