"""Least ambiguous set-valued classifier."""

from __future__ import annotations

from typing import Any

from assay.conformal.label_scores import LabelScore, LACScore
from assay.conformal.set_base import MAX_MEMORY, SetClassifier


class LACClassifier(SetClassifier):
    """Label sets of all labels whose probability reaches one threshold.

    The score of a label is ``1 - p_y``; with q the ``ceil((1 - alpha)(n + 1))``-th smallest score of
    the true labels of n calibration rows, the set is ``{y : 1 - p_y <= q}``. It covers with
    probability at least 1 - alpha, and no other sets of that marginal coverage are smaller on average
    when the probabilities are the true ones. Sets may be empty where no label is probable enough.

    Parameters
    ----------
    estimator : classifier, default LogisticRegression(max_iter=1000)
        Cloned and trained by ``fit``; used as it is by ``calibrate``. There it may also be a torch
        module or a function of X that gives (n, K) probabilities.
    alpha : level, default 0.1
        Miscoverage.
    allow_empty : bool, default True
        False adds the most probable label to sets that would be empty; coverage can only rise.
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    max_memory : int, default 64 MiB
        Bytes of working memory, beside input and output; the answer does not depend on it.
    random_state : int or None, default None
        Draws the calibration rows in ``fit``.

    References
    ----------
    Sadinle, Lei, Wasserman (2019), Least ambiguous set-valued classifiers with bounded error levels.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        alpha: Any = 0.1,
        allow_empty: bool = True,
        calibration_size: float | int = 0.5,
        max_memory: int = MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.allow_empty = allow_empty
        self.calibration_size = calibration_size
        self.max_memory = max_memory
        self.random_state = random_state

    def _score(self) -> LabelScore:
        return LACScore()
