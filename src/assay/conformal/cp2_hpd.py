"""CP2-HPD: level sets of a conditional density, each row's level scaled by its own."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from assay.conformal.adjustments import DIFFERENCE, IDENTITY, LINEAR, Adjustment, resolve_adjustment
from assay.conformal.density_base import DensitySetRegressor
from assay.conformal.density_models import draw, log_density, log_density_of_draws
from assay.conformal.regions import DEFAULT_MAX_MEMORY, LevelSet, Region
from assay.core.checks import FloatArray, check_vector, row_count
from assay.core.errors import MethodError
from assay.core.levels import lower_rank, parse_levels
from assay.core.quantiles import conformal_quantile

_EPS = 4 * float(np.finfo(np.float64).eps)


class ConditionalHPD(DensitySetRegressor):
    """Highest-density sets of a conditional model, near conditional validity.

    c(x) is the density that 1 - alpha of the model's mass exceeds: exact where the model knows it
    (``hdr_log_threshold``; one Gaussian), else the ``floor(alpha m) + 1``-th smallest density of m
    draws. With raw score ``V = -p(y | x)``:

    - linear: score ``-p(y | x) / c(x)``, set ``{p(y | x) >= -Q c(x)}``, computed in logs as the
      equivalent ``log c(x) - log p(y | x)``;
    - difference: score ``c(x) - p(y | x)``, set ``{p(y | x) >= c(x) - Q}``;
    - identity: one density threshold for all rows.

    Marginal coverage is at least 1 - alpha for exchangeable rows whatever the model is. c(x) depends
    on alpha, so another level is computed anew from the calibration rows, which are kept, and sets
    at two levels need not be nested.

    Parameters
    ----------
    model : conditional density model, default MixtureDensityNetwork()
        ``sample(X, n_samples, random_state)`` and ``log_prob(X, y)``; see
        :class:`assay.conformal.density_models.ConditionalSampler`.
    adjustment : "linear", "difference", "identity" or Adjustment, default "linear"
        An own Adjustment acts on V = -p with tau from ``f(tau, phi) = -c``.
    n_samples : int, default 1000
        m, draws a row that estimate c(x); the paper's least number.
    alpha : level, default 0.1
    calibration_size : float or int, default 0.5
    max_memory : int, default 8 MiB
        Bytes of working memory for draws.
    random_state : int, RandomState, Generator or None, default None

    Attributes
    ----------
    model_ : the trained model
    log_densities_ : (n_calib,) log p(y | x) of the calibration rows
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
        n_samples: int = 1000,
        alpha: Any = 0.1,
        calibration_size: float | int = 0.5,
        max_memory: int = DEFAULT_MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.model = model
        self.adjustment = adjustment
        self.n_samples = n_samples
        self.alpha = alpha
        self.calibration_size = calibration_size
        self.max_memory = max_memory
        self.random_state = random_state

    def _law(self) -> dict[str, Any]:
        if int(self.n_samples) < 1:
            raise MethodError(f"n_samples must be at least 1, got {self.n_samples!r}")
        return {"n_samples": self.n_samples, "adjustment": resolve_adjustment(self.adjustment)}

    def _log_levels(self, X: Any, stage: str, level: Fraction) -> FloatArray:
        """(n,) log c(x) of the rows at one level."""
        model, n, m = self.model_, row_count(X), int(self.n_samples)
        if n == 0 or resolve_adjustment(self.adjustment) == IDENTITY:
            return np.zeros(n)
        closed = getattr(model, "hdr_log_threshold", None)
        exact = None if closed is None else closed(X, level)
        if exact is not None:
            return check_vector(exact, "the model's hdr_log_threshold", length=n)
        rank = lower_rank(m - 1, level)
        out = np.empty(n)
        for rows, piece in self._pieces(model, X, self.n_outputs_):
            draws = draw(model, piece, m, self._stream(model, self.seed_, stage, "density"), self.n_outputs_)
            out[rows] = np.partition(log_density_of_draws(model, piece, draws), rank, axis=1)[:, rank]
        return out

    def _calibration(self, model: Any, X: Any, y: FloatArray, seed: int) -> dict[str, Any]:
        return {
            "log_densities_": log_density(model, X, y),
            "_rows": _safe_indexing(X, np.arange(len(y))),
        }

    def _raw(self, log_p: FloatArray) -> FloatArray:
        """Raw scores of log densities: -log p for the linear map, -p otherwise."""
        return -log_p if self._in_logs() else -np.exp(log_p)

    def _in_logs(self) -> bool:
        return resolve_adjustment(self.adjustment) in (LINEAR, IDENTITY)

    def _map(self) -> Adjustment:
        """The adjustment in the scale of the raw scores: a ratio of densities is a difference of logs."""
        adjustment = resolve_adjustment(self.adjustment)
        return DIFFERENCE if adjustment == LINEAR else adjustment

    def conformity_scores(self, alpha: Any = None) -> FloatArray:
        """(n_calib,) conformal scores of the calibration rows at one level.

        For the linear adjustment these are logs, log c(x) - log p(y | x), which rank as the scores do.
        """
        check_is_fitted(self)
        (level,), _ = parse_levels(self._default_alpha() if alpha is None else alpha)
        log_c = self._log_levels(self._rows, "calibrate", level)
        return self._map().scores(self._map().tau(self._raw(log_c)), self._raw(self.log_densities_))

    def _row_bytes(self, outputs: int) -> int:
        return 8 * 5 * int(self.n_samples) * outputs

    def _threshold(self, level: Fraction) -> float:
        return float(conformal_quantile(self.conformity_scores(level), level, what="set", stacklevel=5))

    def _sets(self, X: Any, levels: tuple[Fraction, ...], thresholds: list[float]) -> list[Region]:
        sets: list[Region] = []
        for level, threshold in zip(levels, thresholds, strict=True):
            log_c = self._log_levels(X, "predict", level)
            bound = self._map().bound(self._map().tau(self._raw(log_c)), threshold)
            at = self._log_threshold(bound)
            sets.append(LevelSet(self.model_, X, at, self.n_outputs_, self.seed_, int(self.max_memory)))
        return sets

    def _log_threshold(self, bound: FloatArray) -> FloatArray:
        """(n,) log densities from the largest raw scores: -inf where every density is above."""
        if self._in_logs():
            return -bound
        with np.errstate(divide="ignore"):
            log_p = np.log(np.maximum(-bound, 0.0))
        # rounding of exp and log must not push the border out of the closed set
        return log_p - _EPS * np.maximum(1.0, np.abs(np.where(np.isfinite(log_p), log_p, 1.0)))
