"""SCP-GN: split conformal prediction with residuals scaled by the network's hat values."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np

from assay.conformal.cross_fit import MAX_MEMORY
from assay.conformal.interval_base import SplitIntervalRegressor
from assay.conformal.tangent_base import TangentIntervalRegressor
from assay.core.checks import FloatArray
from assay.core.errors import MethodError
from assay.networks.selection import Selection


class GaussNewtonSplitConformal(TangentIntervalRegressor, SplitIntervalRegressor):
    """Split conformal intervals that widen where the network has seen few rows.

    With hat values ``h(x, x)`` of the training rows (see
    :class:`~assay.conformal.gauss_newton.GaussNewtonConformal`) the score is
    ``|y - f(x)| / sqrt(1 + h(x, x))`` and the interval ``f(x) -+ q sqrt(1 + h(x, x))``, q the
    ``ceil((1 - alpha)(n + 1))``-th smallest calibration score. The noise level of the linearised
    Laplace approximation is a factor of all scores alike and cancels.

    Parameters
    ----------
    module : torch.nn.Module or NetworkRegressor, default NetworkRegressor()
        As in GaussNewtonConformal. With a trained module ``fit`` needs both the rows that it was
        trained on and calibration rows.
    reg : float, "marglik" or "cv", default 0.1
    params : "all", "last_layer" or callable, default "all"
    alpha : level, default 0.1
        Miscoverage.
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    batch_size : int, default 256
    max_memory : int, default 256 MiB
    random_state : int, RandomState or None, default None

    Attributes
    ----------
    network_, leverage_, reg_, gradient_ratio_ : as in GaussNewtonConformal, of the training rows
    scores_ : (n_calib,) scores

    References
    ----------
    Tailor, Correia, Nalisnick, Louizos (2025), Approximating full conformal prediction for neural
    network regression with Gauss-Newton influence (the split counterpart).
    """

    def __init__(
        self,
        module: Any = None,
        reg: float | str = 0.1,
        params: Selection = "all",
        *,
        alpha: Any = 0.1,
        calibration_size: float | int = 0.5,
        batch_size: int = 256,
        max_memory: int = MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.module = module
        self.reg = reg
        self.params = params
        self.alpha = alpha
        self.calibration_size = calibration_size
        self.batch_size = batch_size
        self.max_memory = max_memory
        self.random_state = random_state

    def fit(self, X: Any, y: Any, X_calib: Any = None, y_calib: Any = None) -> Self:
        """Train the network unless it is trained, and calibrate on rows it has not seen.

        Parameters
        ----------
        X : (n, d) table, the training rows
        y : (n,) numbers
        X_calib, y_calib : table and numbers, optional
            Calibration rows. Without them ``calibration_size`` of the given rows are set aside.

        Raises
        ------
        MethodError
            A trained module without calibration rows: it has seen all that are given.
        DataError
            NaN or infinite values, lengths that differ, fewer than two rows.
        """
        if X_calib is None and self._has_trained_module():
            raise MethodError(
                "the module is trained already: give X_calib and y_calib, rows it was not trained on, "
                "beside its training rows"
            )
        return super().fit(X, y, X_calib, y_calib)

    def _train(self, X: Any, y: FloatArray) -> None:
        self._check_arguments()
        self._set_network(X, y)
        self._set_leverage(X, y)

    def _use_fitted(self) -> None:
        raise MethodError("call fit first: the scores are scaled by hat values of the training rows")

    def _calibrate(self, X: Any, y: FloatArray) -> None:
        centre, spread = self._scaled(X)
        self.scores_ = np.abs(y - centre) / spread
        self.thresholds_ = {}

    def _scaled(self, X: Any) -> tuple[FloatArray, FloatArray]:
        """(n,) predictions and (n,) sqrt(1 + h)."""
        n = len(self._rows(X))
        centre, spread = np.empty(n), np.empty(n)
        for rows, values, own in self._own_blocks(X):
            centre[rows], spread[rows] = values, np.sqrt(1 + own)
        return centre, spread

    def _side_scores(self, side: int, out: FloatArray) -> None:
        out[:] = self.scores_

    def _intervals(self, X: Any, levels: Sequence[Fraction]) -> FloatArray:
        centre, spread = self._scaled(X)
        half = np.array([self._threshold(level) for level in levels])[:, None] * spread
        return np.stack([centre - half, centre + half], axis=-1)
