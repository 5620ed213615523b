"""Adaptive prediction sets."""

from __future__ import annotations

from typing import Any

from assay.conformal.label_scores import APSScore, LabelScore
from assay.conformal.set_base import MAX_MEMORY, SetClassifier


class APSClassifier(SetClassifier):
    """Label sets that grow with the difficulty of the row: the most probable labels up to a total.

    The score of the label of rank r is ``c_r``, the sum of the r largest probabilities of the row,
    or ``c_{r-1} + u p_(r)`` when randomised, u in (0, 1) one number a row. With q the
    ``ceil((1 - alpha)(n + 1))``-th smallest score of the true labels of n calibration rows, the set
    is all labels with score at most q, in calibration and prediction by the same rule. Ties go to
    the lower class.

    Parameters
    ----------
    estimator : classifier, default LogisticRegression(max_iter=1000)
        Cloned and trained by ``fit``; used as it is by ``calibrate``. There it may also be a torch
        module or a function of X that gives (n, K) probabilities.
    alpha : level, default 0.1
        Miscoverage.
    randomised : bool, default False
        True is the score of the paper, and the choice of a comparison (its sets are smaller, often by
        half). u is computed from the row's probabilities and the seed, so that the same row has the
        same set in any batch and with any order of the classes; rows with equal probabilities share
        it. The default ``c_r`` needs no seed; the top label then scores its whole probability, and
        it is the surest rows whose sets are empty.
    allow_empty : bool, default True
        False adds the most probable label to sets that would be empty; coverage can only rise.
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    max_memory : int, default 64 MiB
        Bytes of working memory, beside input and output; the answer does not depend on it.
    random_state : int or None, default None
        Draws the calibration rows in ``fit``, and u.

    References
    ----------
    Romano, Sesia, Candès (2020), Classification with valid and adaptive coverage.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        alpha: Any = 0.1,
        randomised: bool = False,
        allow_empty: bool = True,
        calibration_size: float | int = 0.5,
        max_memory: int = MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.randomised = randomised
        self.allow_empty = allow_empty
        self.calibration_size = calibration_size
        self.max_memory = max_memory
        self.random_state = random_state

    def _score(self) -> LabelScore:
        return APSScore()
