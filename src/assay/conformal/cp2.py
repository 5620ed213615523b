"""CP2-PCP: balls around the draws of a model, with a radius that follows each row's own spread."""

from __future__ import annotations

from typing import Any

from assay.conformal.adjustments import IDENTITY, Adjustment, resolve_adjustment
from assay.conformal.ball_sets import BallSetRegressor
from assay.conformal.regions import DEFAULT_MAX_MEMORY
from assay.core.errors import MethodError


class ConditionalPCP(BallSetRegressor):
    """Union of balls around draws of a conditional model, near conditional validity.

    For a row x draw Yhat_1..M and, apart from them, Ytilde_1..M' from the model. Then

    - ``V = min_i |y - Yhat_i|``;
    - tau is the ``ceil((1 - alpha) M')``-th smallest of ``D_j = min_i |Ytilde_j - Yhat_i|``: the radius
      at which the model itself would give the balls mass 1 - alpha;
    - the score is ``V / tau`` (linear) or ``V - tau`` (difference), Q its conformal quantile;
    - the set is ``{y : min_i |y - Yhat_i| <= tau Q}``, or ``tau + Q`` (empty where negative).

    Marginal coverage is at least 1 - alpha for exchangeable rows whatever the model is; coverage
    given x comes near 1 - alpha as the model comes near the truth. tau depends on alpha, so another
    level is computed anew from distances kept at calibration, and sets at two levels need not be
    nested. Memory: 8 n_calib M' bytes are kept.

    Parameters
    ----------
    model : conditional density model, default MixtureDensityNetwork()
        ``sample(X, n_samples, random_state) -> (n, n_samples, q)``; see
        :class:`assay.conformal.density_models.ConditionalSampler`. ``fit`` trains a clone,
        ``calibrate`` takes it as it is.
    adjustment : "linear", "difference", "identity" or Adjustment, default "linear"
        "identity" is PCP.
    n_samples : int, default 50
        M. The paper takes 50 for one output, 1000 for several.
    n_reference : int or None, default None
        M'; None takes ``n_samples`` (the paper does not say).
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
    distances_ : (n_calib,) V
    spreads_ : (n_calib, M') D, sorted
    seed_ : int, the seed of all draws

    References
    ----------
    Plassier, Fishkov, Guizani, Panov, Moulines (2025), Probabilistic conformal prediction with
    approximate conditional validity. ICLR.
    """

    def __init__(
        self,
        model: Any = None,
        adjustment: str | Adjustment = "linear",
        *,
        n_samples: int = 50,
        n_reference: int | None = None,
        alpha: Any = 0.1,
        calibration_size: float | int = 0.5,
        max_memory: int = DEFAULT_MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.adjustment = adjustment
        self.n_samples = n_samples
        self.n_reference = n_reference
        self.alpha = alpha
        self.calibration_size = calibration_size
        self.max_memory = max_memory
        self.random_state = random_state

    def _adjustment(self) -> Adjustment:
        return resolve_adjustment(self.adjustment)

    def _n_reference(self) -> int:
        if self._adjustment() == IDENTITY:
            return 0
        count = int(self.n_samples if self.n_reference is None else self.n_reference)
        if count < 1:
            raise MethodError(f"n_reference must be at least 1, got {self.n_reference!r}")
        return count
