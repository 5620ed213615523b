"""Probabilistic conformal prediction: balls of one radius around the draws of a model."""

from __future__ import annotations

from typing import Any

from assay.conformal.adjustments import IDENTITY, Adjustment
from assay.conformal.ball_sets import BallSetRegressor
from assay.conformal.regions import DEFAULT_MAX_MEMORY


class PCP(BallSetRegressor):
    """Union of balls around draws of a conditional model, with one radius for all rows.

    With M draws Yhat_i from the model at x, the score is ``V = min_i |y - Yhat_i|`` and the set
    ``{y : min_i |y - Yhat_i| <= Q}``, Q the ``ceil((1 - alpha)(n + 1))``-th smallest of n scores.
    It covers with probability at least 1 - alpha for exchangeable rows. Several outputs are measured
    each in units of its standard deviation in the training rows of ``fit``.

    Parameters
    ----------
    model : conditional density model, default MixtureDensityNetwork()
        ``sample(X, n_samples, random_state) -> (n, n_samples, q)``; see
        :class:`assay.conformal.density_models.ConditionalSampler`. ``fit`` trains a clone,
        ``calibrate`` takes it as it is.
    n_samples : int, default 50
        M, draws a row. Wang et al. use 40, Plassier et al. 50 for one output and 1000 for several.
    alpha : level, default 0.1
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    max_memory : int, default 8 MiB
        Bytes of working memory for draws and distances.
    random_state : int, RandomState, Generator or None, default None
        One seed for all draws; kept at calibration, so that predictions repeat.

    Attributes
    ----------
    model_ : the trained model
    distances_ : (n_calib,) scores V
    scale_ : (q,) units of the outputs, after ``fit``
    seed_ : int, the seed of all draws

    References
    ----------
    Wang, Gao, Yin, Zhou, Blei (2023), Probabilistic conformal prediction using conditional random
    samples.
    """

    def __init__(
        self,
        model: Any = None,
        *,
        n_samples: int = 50,
        alpha: Any = 0.1,
        calibration_size: float | int = 0.5,
        max_memory: int = DEFAULT_MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.n_samples = n_samples
        self.alpha = alpha
        self.calibration_size = calibration_size
        self.max_memory = max_memory
        self.random_state = random_state

    def _adjustment(self) -> Adjustment:
        return IDENTITY

    def _n_reference(self) -> int:
        return 0
