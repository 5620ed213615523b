"""ResCONTRA: flow regions of the residuals of any predictor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sklearn.utils import get_tags

from assay.conformal.contra import FlowConformalRegressor
from assay.conformal.flow_residual import ResidualFlow


class ResidualFlowConformalRegressor(FlowConformalRegressor):
    """Connected regions with curved borders around the predictions of any regressor.

    As :class:`~assay.conformal.contra.FlowConformalRegressor` with ``y = f(x) + T(z; x)``: f is the
    given regressor, T a flow of its residuals on rows that it had not seen (by folds of the training
    rows). The region is ``f(x) + T(ball; x)``. Coverage is at least 1 - alpha for exchangeable rows
    whatever f and T are.

    Parameters
    ----------
    estimator : regressor, default LinearRegression()
        Any scikit-learn regressor; one that takes a single output is trained once an output.
    cv : int or splitter, default 5
        Folds of the residuals that train the flow (the paper's own split is not known).
    score : "latent_l2", "latent_linf" or "log_density", default "latent_l2"
        A latent ball, a latent cube, or level sets of the density.
    n_layers : int, default 6
        Couplings of the flow.
    hidden : sequence of int, default (64, 64)
        Widths of each coupling's network.
    max_epochs : int, default 200
        Of training the flow, which stops early.
    lr : float, default 2e-3
        Learning rate.
    alpha : level, default 0.1
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    random_state : int, RandomState, Generator or None, default None

    Attributes
    ----------
    flow_ : the law f(x) + T(z; x), with ``estimator_`` and ``flow_``
    scores_ : (n_calib,) calibration scores
    n_nan_ : int, calibration scores that were NaN and count as +inf
    n_outputs_ : int, q

    References
    ----------
    Fang, Tan, Huang (2025), CONTRA: Conformal prediction region via normalizing flow transformation.
    ICLR.
    """

    def __init__(
        self,
        estimator: Any = None,
        cv: Any = 5,
        score: str = "latent_l2",
        *,
        n_layers: int = 6,
        hidden: Sequence[int] = (64, 64),
        max_epochs: int = 200,
        lr: float = 2e-3,
        alpha: Any = 0.1,
        calibration_size: float | int = 0.5,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.cv = cv
        self.score = score
        self.n_layers = n_layers
        self.hidden = hidden
        self.max_epochs = max_epochs
        self.lr = lr
        self.alpha = alpha
        self.calibration_size = calibration_size
        self.random_state = random_state

    def _untrained(self, seed: int) -> Any:
        return ResidualFlow(self.estimator, self._own_flow(seed), cv=self.cv, random_state=seed)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is not None and hasattr(self.estimator, "__sklearn_tags__"):
            tags.input_tags.allow_nan = get_tags(self.estimator).input_tags.allow_nan
        return tags
