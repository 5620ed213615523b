"""Class-conditional (label Mondrian) conformal prediction."""

from __future__ import annotations

from typing import Any

from assay.conformal.label_calibrators import ClassCalibrator, LabelCalibrator
from assay.conformal.label_scores import LabelScore, get_score
from assay.conformal.set_base import MAX_MEMORY, Codes, FloatArray, SetClassifier
from assay.core.probabilities import Probabilities


class ClassConditionalClassifier(SetClassifier):
    """Label sets that cover the rows of every class with probability at least 1 - alpha.

    Each class has its own threshold q_y, the ``ceil((1 - alpha)(n_y + 1))``-th smallest score of the
    true labels of its n_y calibration rows; the set is ``{y : S(x, y) <= q_y}``. A class with fewer
    than 1 / alpha - 1 rows is in every set, and a warning counts those classes.

    Parameters
    ----------
    estimator : classifier, default LogisticRegression(max_iter=1000)
        Cloned and trained by ``fit``; used as it is by ``calibrate``. There it may also be a torch
        module or a function of X that gives (n, K) probabilities.
    label_score : str or LabelScore, default "lac"
        "lac", "margin", "aps", "raps", "saps", "topk", or an object of
        :mod:`assay.conformal.label_scores`.
    alpha : level, default 0.1
        Miscoverage in each class.
    randomised : bool, default False
        Whether a score that takes u gets one; see APS.
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
    Vovk (2012), Conditional validity of inductive conformal predictors.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        label_score: str | LabelScore = "lac",
        alpha: Any = 0.1,
        randomised: bool = False,
        allow_empty: bool = True,
        calibration_size: float | int = 0.5,
        max_memory: int = MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.label_score = label_score
        self.alpha = alpha
        self.randomised = randomised
        self.allow_empty = allow_empty
        self.calibration_size = calibration_size
        self.max_memory = max_memory
        self.random_state = random_state

    def _score(self) -> LabelScore:
        return get_score(self.label_score)

    def _make_calibrator(
        self, scores: FloatArray, proba: Probabilities, codes: Codes, seed: int
    ) -> LabelCalibrator:
        return ClassCalibrator(scores, codes, proba.n_classes)
