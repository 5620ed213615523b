"""Regularised adaptive prediction sets."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.conformal.label_scores import LabelScore, RAPSScore, TopKScore
from assay.conformal.set_base import MAX_MEMORY, BoolArray, Codes, SetClassifier
from assay.core.errors import DataError, MethodError
from assay.core.levels import conformal_rank, parse_levels
from assay.core.probabilities import Probabilities

#: weights tried by ``tune``, those of the authors' code
SIZE_GRID = (0.001, 0.01, 0.1, 0.2, 0.5)
ADAPTIVE_GRID = (0.0, 1e-5, 1e-4, 8e-4, 9e-4, 1e-3, 1.5e-3, 2e-3)
#: set sizes within which coverage should be even: at most this many labels, and more than the one before
SIZE_STRATA = (1, 3, 6, 10, 100, 1000)


class RAPSClassifier(SetClassifier):
    """APS with a penalty on long sets: the score of the label of rank r is
    ``c_r + lam * max(0, r - k_reg)``, or ``c_{r-1} + u p_(r) + lam * max(0, r - k_reg)`` when randomised.

    Parameters
    ----------
    estimator : classifier, default LogisticRegression(max_iter=1000)
        Cloned and trained by ``fit``; used as it is by ``calibrate``. There it may also be a torch
        module or a function of X that gives (n, K) probabilities.
    alpha : level, default 0.1
        Miscoverage.
    lam : float, default 0.1
        Penalty of each rank beyond ``k_reg``; 0 gives APS.
    k_reg : int, default 1
        Ranks without penalty.
    tune : {None, "size", "adaptive"}, default None
        Choose both on ``tuning_size`` of the calibration rows, which then serve for nothing else:
        ``k_reg`` is the conformal quantile of the true label's rank, ``lam`` the weight that makes
        those rows' sets smallest on average ("size"), or their coverage most even over sets of 0-1,
        2-3, 4-6, 7-10, 11-100 and more labels ("adaptive"). Both at the constructor's ``alpha``
        (of a sequence, at the first level).
    tuning_size : float, default 0.2
    randomised : bool, default False
        True is the score of the paper; u is computed from the row's probabilities and the seed, as
        in APS. The default needs no seed.
    allow_empty : bool, default True
        False adds the most probable label to sets that would be empty; coverage can only rise.
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration (and tuning).
    max_memory : int, default 64 MiB
        Bytes of working memory, beside input and output; the answer does not depend on it.
    random_state : int or None, default None
        Draws the calibration rows in ``fit``, the tuning rows, and u.

    Attributes
    ----------
    lam_, k_reg_ : the weight and the rank in use

    References
    ----------
    Angelopoulos, Bates, Malik, Jordan (2021), Uncertainty sets for image classifiers using conformal
    prediction.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        alpha: Any = 0.1,
        lam: float = 0.1,
        k_reg: int = 1,
        tune: str | None = None,
        tuning_size: float = 0.2,
        randomised: bool = False,
        allow_empty: bool = True,
        calibration_size: float | int = 0.5,
        max_memory: int = MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.lam = lam
        self.k_reg = k_reg
        self.tune = tune
        self.tuning_size = tuning_size
        self.randomised = randomised
        self.allow_empty = allow_empty
        self.calibration_size = calibration_size
        self.max_memory = max_memory
        self.random_state = random_state

    @property
    def lam_(self) -> float:
        """Weight of the penalty in use."""
        score: RAPSScore = self.score_
        return score.lam

    @property
    def k_reg_(self) -> int:
        """Ranks without penalty in use."""
        score: RAPSScore = self.score_
        return score.k_reg

    def _score(self) -> LabelScore:
        return RAPSScore(lam=self.lam, k_reg=self.k_reg)

    def _choose_score(
        self, proba: Probabilities, codes: Codes, seed: int
    ) -> tuple[LabelScore, BoolArray | None]:
        if self.tune is None:
            return self._score(), None
        if self.tune not in ("size", "adaptive"):
            raise MethodError(f"tune must be None, 'size' or 'adaptive', got {self.tune!r}")
        if not 0 < self.tuning_size < 1:
            raise MethodError(f"tuning_size must lie in (0, 1), got {self.tuning_size!r}")
        n = len(codes)
        if n < 2:
            raise DataError(f"{n} calibration row: tuning needs at least one beside those for calibration")
        n_tuning = min(max(1, round(self.tuning_size * n)), n - 1)
        keep = np.ones(n, dtype=np.bool_)
        order = np.argsort(self._part_uniforms(proba, codes, seed, "tuning"), kind="stable")
        keep[order[:n_tuning]] = False
        return self._tuned(proba.take(~keep), codes[~keep], seed), keep

    def _tuned(self, proba: Probabilities, codes: Codes, seed: int) -> RAPSScore:
        level = parse_levels(self.alpha)[0][0]
        rank = conformal_rank(len(codes), level)
        ranks = np.sort(self._true_label_ranks(proba, codes))
        k_reg = int(ranks[rank - 1]) if rank <= len(codes) else proba.n_classes
        grid = SIZE_GRID if self.tune == "size" else ADAPTIVE_GRID
        best = min(grid, key=lambda lam: self._loss(RAPSScore(lam=lam, k_reg=k_reg), proba, codes, seed))
        return RAPSScore(lam=best, k_reg=k_reg)

    def _true_label_ranks(self, proba: Probabilities, codes: Codes) -> NDArray[np.float64]:
        score = TopKScore()
        return np.concatenate(
            [score.of(block, codes[rows]) for rows, block in proba.blocks(self._block_bytes())]
        )

    def _loss(self, score: RAPSScore, proba: Probabilities, codes: Codes, seed: int) -> float:
        """Mean size, or the worst gap of coverage over strata of size, on the tuning rows themselves."""
        level = parse_levels(self.alpha)[0][0]
        scores = self._true_label_scores(score, proba, codes, seed)
        rank = conformal_rank(len(codes), level)
        q = np.sort(scores)[rank - 1] if rank <= len(codes) else np.inf
        sizes = np.empty(len(codes), dtype=np.intp)
        for rows, block in proba.blocks(self._block_bytes()):
            sets = score.sets(block, np.full((1, 1, 1), q), self._uniforms(score, block, seed))
            sizes[rows] = np.count_nonzero(sets[0], axis=1)
        if self.tune == "size":
            return float(sizes.mean())
        strata = np.searchsorted(SIZE_STRATA, sizes)
        covered = scores <= q
        return max(
            abs(float(covered[strata == stratum].mean()) - float(1 - level)) for stratum in np.unique(strata)
        )
