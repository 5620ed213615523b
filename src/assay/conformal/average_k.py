"""Average-k sets: the most probable labels over all rows together, k a row on average."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from assay.conformal.label_calibrators import LabelCalibrator
from assay.conformal.label_scores import LabelScore, LACScore
from assay.conformal.set_base import MAX_MEMORY, BoolArray, Codes, FloatArray, SetClassifier
from assay.core.errors import DataError, MethodError
from assay.core.levels import parse_levels, warn_infinite
from assay.core.probabilities import Probabilities
from assay.core.seeds import row_uniforms, unordered_row_keys

#: rows of probabilities are told apart on this grid, so that a row gets the same set alone and in a batch
_GRID = np.float32(2**16)
_GUARD = 1e-9


class AverageK(SetClassifier):
    """Label sets without a conformal promise: of all probabilities of the n calibration rows, the
    ``ceil(k n)`` largest are in, so that sets have k labels on average and hard rows have more.

    The threshold on the probability is the ``ceil(k n)``-th largest; of probabilities equal to it, as
    many as are missing are in, by chance. k is the smallest for which the sets of the calibration rows cover
    1 - alpha of them, found by bisection: their coverage never falls as k grows. Coverage of new rows is
    therefore about 1 - alpha, without the correction that split conformal prediction makes for the number
    of rows. It is the treatment without conformal prediction of the study on disparate impact.

    Parameters
    ----------
    estimator : classifier, default LogisticRegression(max_iter=1000)
        Cloned and trained by ``fit``; used as it is by ``calibrate``. There it may also be a torch
        module or a function of X that gives (n, K) probabilities.
    k : float, optional
        Labels a row on average, from above 0 to K, instead of the one that reaches 1 - alpha.
    alpha : level, default 0.1
        Miscoverage of the calibration rows; without effect where ``k`` is given.
    allow_empty : bool, default True
        False adds the most probable label to sets that would be empty; coverage can only rise.
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    max_memory : int, default 64 MiB
        Bytes of working memory, beside input, output and the calibration probabilities (8 bytes each),
        which are kept.
    random_state : int or None, default None
        Draws the calibration rows in ``fit``, and which of equal probabilities are in.

    Attributes
    ----------
    k_ : float or (L,) array
        Labels a row on average over the calibration rows, at the constructor's alpha.

    References
    ----------
    Cresswell, Kumar, Sui, Belbahri (2025), Conformal prediction sets can cause disparate impact.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        k: float | None = None,
        alpha: Any = 0.1,
        allow_empty: bool = True,
        calibration_size: float | int = 0.5,
        max_memory: int = MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.k = k
        self.alpha = alpha
        self.allow_empty = allow_empty
        self.calibration_size = calibration_size
        self.max_memory = max_memory
        self.random_state = random_state

    @property
    def k_(self) -> Any:
        """Labels a row on average, at the constructor's alpha."""
        levels, is_scalar = parse_levels(self.alpha)
        calibrator: AverageCalibrator = self.calibrator_
        found = np.array([calibrator.labels(level) / len(calibrator.true) for level in levels])
        return float(found[0]) if is_scalar else found

    def _score(self) -> LabelScore:
        return LACScore()

    def _make_calibrator(
        self, scores: FloatArray, proba: Probabilities, codes: Codes, seed: int
    ) -> LabelCalibrator:
        n, n_classes = len(codes), proba.n_classes
        if self.k is not None and not 0 < self.k <= n_classes:
            raise MethodError(f"k must lie in (0, {n_classes}], the number of classes, got {self.k!r}")
        every = np.empty(n * n_classes)
        true = np.empty(n)
        for part, block in proba.blocks(self._block_bytes()):
            every[part.start * n_classes : part.stop * n_classes] = block.ravel()
            true[part] = block[np.arange(len(block)), codes[part]]
        every.sort()
        true.sort()
        return AverageCalibrator(every, true, self.k)

    def _sets(self, proba: Probabilities, alpha: Any, groups: Any) -> BoolArray:
        if groups is not None:
            raise DataError("groups were given, but calibration was without groups")
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        out = np.empty((len(levels), len(proba), proba.n_classes), dtype=np.bool_)
        calibrator: AverageCalibrator = self.calibrator_
        cuts = [calibrator.cut(calibrator.labels(level)) for level in levels]
        for rows, block in proba.blocks(self._block_bytes()):
            keys = unordered_row_keys(np.rint(block * _GRID), self.seed_, "equal probabilities")
            u = row_uniforms(keys, 1)
            for level, (q, share) in enumerate(cuts):
                out[level, rows] = (block > q) | ((block == q) & (u < share))
                if not self.allow_empty:
                    empty = np.flatnonzero(~out[level, rows].any(axis=1))
                    out[level, rows.start + empty, np.argmax(block[empty], axis=1)] = True
        return out[0] if is_scalar else out


@dataclass(frozen=True, eq=False)
class AverageCalibrator:
    """All probabilities of the calibration rows and those of their true labels, ascending."""

    every: FloatArray
    true: FloatArray
    k: float | None

    def labels(self, level: Fraction) -> int:
        """Labels that the calibration rows' sets hold together."""
        if self.k is not None:
            return math.ceil(self.k * len(self.true) - _GUARD)
        if level == 0:
            warn_infinite(len(self.true), level, stacklevel=5)
            return len(self.every)
        least = float(1 - level) * len(self.true) - _GUARD
        low, high = 0, len(self.every)  # all labels cover every row
        while high - low > 1:
            middle = (low + high) // 2
            if self.covered(middle) >= least:
                high = middle
            else:
                low = middle
        return high

    def cut(self, labels: int) -> tuple[float, float]:
        """(threshold on the probability, share of the labels with just that probability that are in)."""
        n = len(self.every)
        q = float(self.every[n - labels])
        above = n - int(np.searchsorted(self.every, q, side="right"))
        equal = n - above - int(np.searchsorted(self.every, q, side="left"))
        return q, (labels - above) / equal

    def covered(self, labels: int) -> float:
        """Calibration rows whose true label is in, in expectation over the chance among equals."""
        q, share = self.cut(labels)
        above = len(self.true) - int(np.searchsorted(self.true, q, side="right"))
        equal = len(self.true) - above - int(np.searchsorted(self.true, q, side="left"))
        return above + share * equal

    def thresholds(self, levels: Sequence[Fraction], groups: Any = None) -> FloatArray:
        """(L, 1, 1) thresholds on ``1 - p``, of which the labels at the threshold are in by chance."""
        return 1 - np.array([self.cut(self.labels(level))[0] for level in levels])[:, None, None]
