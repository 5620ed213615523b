"""HPD-split: density level sets whose level is a share of each row's own mass."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from sklearn.utils import _safe_indexing

from assay.conformal.density_base import DensitySetRegressor
from assay.conformal.density_models import draw, log_density, log_density_of_draws
from assay.conformal.regions import DEFAULT_MAX_MEMORY, LevelSet, Region
from assay.core.checks import FloatArray, row_count
from assay.core.errors import DataError, MethodError
from assay.core.quantiles import conformal_quantile

_EPS = 8 * float(np.finfo(np.float64).eps)


class HPDSplitRegressor(DensitySetRegressor):
    """Highest-density sets of one and the same calibrated mass for every row.

    ``H(x, y)`` is the model's mass of values no likelier than y. A row's set is ``{y : H(x, y) >= h}``,
    h the ``floor(alpha (n + 1))``-th smallest H of n calibration rows: coverage is at least 1 - alpha
    for exchangeable rows whatever the model is, and near 1 - alpha at each x for a good one.

    H is estimated by the rank of ``log p(y | x)`` among those of m draws, linear between two
    neighbours (so that it is within 1 / m of the share of draws no likelier, without its ties); below
    the least likely draw the score grows with the fall of ``log p``. The score ``S = 1 - H`` does not
    depend on alpha: sets at several levels are nested.

    Parameters
    ----------
    model : conditional density model, default MixtureDensityNetwork()
        ``sample(X, n_samples, random_state)`` and ``log_prob(X, y)``; see
        :class:`assay.conformal.density_models.ConditionalSampler`. ``fit`` trains a clone,
        ``calibrate`` takes it as it is.
    n_samples : int, default 1000
        m, draws a row that estimate H: its standard error is at most 0.016.
    alpha : level, default 0.1
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    max_memory : int, default 8 MiB
        Bytes of working memory for draws.
    random_state : int, RandomState, Generator or None, default None

    Attributes
    ----------
    model_ : the trained model
    scores_ : (n_calib,) scores S, at most 1 - 1 / m where y is likelier than some draw
    seed_ : int, the seed of all draws

    References
    ----------
    Izbicki, Shimizu, Stern (2022), CD-split and HPD-split: efficient conformal regions in high
    dimensions.
    """

    scores_: FloatArray

    def __init__(
        self,
        model: Any = None,
        *,
        n_samples: int = 1000,
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

    def _law(self) -> dict[str, Any]:
        if int(self.n_samples) < 2:
            raise MethodError(f"n_samples must be at least 2, got {self.n_samples!r}")
        return {"n_samples": self.n_samples}

    def _row_bytes(self, outputs: int) -> int:
        return 8 * 5 * int(self.n_samples) * outputs

    def _ladders(
        self, model: Any, X: Any, seed: int, outputs: int, stage: str
    ) -> Iterator[tuple[slice, FloatArray]]:
        """(rows, their draws' log densities (rows, m), falling) for pieces of X."""
        for rows, piece in self._pieces(model, X, outputs):
            draws = draw(model, piece, int(self.n_samples), self._stream(model, seed, stage, "mass"), outputs)
            ladder = -np.sort(-log_density_of_draws(model, piece, draws), axis=1)
            ruled_out = ~np.isfinite(ladder)
            if ruled_out.any():
                raise DataError(
                    f"the model's log density is infinite at {int(ruled_out.sum())} of {ruled_out.size} of "
                    f"its own draws, first at row {rows.start + int(ruled_out.any(axis=1).argmax())}; "
                    "sample and log_prob must belong to one density"
                )
            yield rows, ladder

    def _calibration(self, model: Any, X: Any, y: FloatArray, seed: int) -> dict[str, Any]:
        scores = np.empty(len(y))
        for rows, ladder in self._ladders(model, X, seed, y.shape[1], "calibrate"):
            piece = _safe_indexing(X, np.arange(len(y))[rows])
            scores[rows] = _score(ladder, log_density(model, piece, y[rows]))
        return {"scores_": scores}

    def conformity_scores(self) -> FloatArray:
        """(n_calib,) conformal scores S = 1 - H of the calibration rows, the same at every level."""
        return np.array(self.scores_)

    def _threshold(self, level: Fraction) -> float:
        return float(conformal_quantile(self.scores_, level, what="set", stacklevel=5))

    def _sets(self, X: Any, levels: tuple[Fraction, ...], thresholds: list[float]) -> list[Region]:
        at = np.empty((len(levels), row_count(X)))
        for rows, ladder in self._ladders(self.model_, X, self.seed_, self.n_outputs_, "predict"):
            for i, threshold in enumerate(thresholds):
                at[i, rows] = _log_level(ladder, threshold)
        return [
            LevelSet(self.model_, X, row, self.n_outputs_, self.seed_, int(self.max_memory)) for row in at
        ]


def _score(ladder: FloatArray, log_p: FloatArray) -> FloatArray:
    """(n,) scores of log densities on ladders (n, m) of falling ones: rung i (from 0) has score i / m."""
    n, m = ladder.shape
    above = (ladder > log_p[:, None]).sum(axis=1)
    left = np.clip(above - 1, 0, m - 2)
    row = np.arange(n)
    upper, lower = ladder[row, left], ladder[row, left + 1]
    gap = upper - lower
    with np.errstate(invalid="ignore", divide="ignore"):
        between = (left + np.where(gap > 0, (upper - log_p) / gap, 0.0)) / m
    out = np.where(log_p < ladder[:, -1], (m - 1) / m + (ladder[:, -1] - log_p), between)
    return np.where(log_p > ladder[:, 0], ladder[:, 0] - log_p, out)


def _log_level(ladder: FloatArray, threshold: float) -> FloatArray:
    """(n,) log densities at which the score is the threshold, a rounding lower: the set is closed."""
    m = ladder.shape[1]
    if threshold == np.inf:
        return np.full(len(ladder), -np.inf)
    if threshold < 0:
        level = ladder[:, 0] - threshold
        slack = np.abs(ladder[:, 0]) + abs(threshold)
    elif threshold > (m - 1) / m:
        fall = threshold - (m - 1) / m
        level = ladder[:, -1] - fall
        slack = np.abs(ladder[:, -1]) + fall
    else:
        left = min(int(threshold * m), m - 2)
        upper, lower = ladder[:, left], ladder[:, left + 1]
        share = threshold * m - left
        level = upper - share * (upper - lower)
        slack = np.abs(upper) + np.abs(lower) + m * (upper - lower)
    return np.asarray(level - _EPS * np.maximum(slack, 1.0))
