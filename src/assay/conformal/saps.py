"""Sorted adaptive prediction sets."""

from __future__ import annotations

from typing import Any

from assay.conformal.label_scores import LabelScore, SAPSScore
from assay.conformal.set_base import MAX_MEMORY, SetClassifier


class SAPSClassifier(SetClassifier):
    """Label sets from the top probability and the ranks alone.

    The score of the top label is ``u p_(1)``, of the label of rank r >= 2
    ``p_(1) + (r - 2 + u) weight``, with u in (0, 1) one number a row when randomised and u = 1
    otherwise, in calibration and prediction alike. The other probabilities, whose size a network
    often gets wrong, count by their order only.

    Parameters
    ----------
    estimator : classifier, default LogisticRegression(max_iter=1000)
        Cloned and trained by ``fit``; used as it is by ``calibrate``. There it may also be a torch
        module or a function of X that gives (n, K) probabilities.
    alpha : level, default 0.1
        Miscoverage.
    weight : float, default 0.2
        What each further rank costs.
    randomised : bool, default False
        True is the score of the paper; u is computed from the row's probabilities and the seed, as
        in APS. The default needs no seed.
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
    Huang, Xi, Zhang, Yao, Qiu, Wei (2024), Conformal prediction for deep classifier via label ranking.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        alpha: Any = 0.1,
        weight: float = 0.2,
        randomised: bool = False,
        allow_empty: bool = True,
        calibration_size: float | int = 0.5,
        max_memory: int = MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.weight = weight
        self.randomised = randomised
        self.allow_empty = allow_empty
        self.calibration_size = calibration_size
        self.max_memory = max_memory
        self.random_state = random_state

    def _score(self) -> LabelScore:
        return SAPSScore(weight=self.weight)
