"""Mondrian conformal prediction: one threshold for each group of rows, or for each label."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.conformal.group_sets import GroupSetClassifier
from assay.conformal.label_calibrators import (
    ClassCalibrator,
    GroupCalibrator,
    LabelCalibrator,
    MarginalCalibrator,
)
from assay.conformal.label_scores import LabelScore, get_score
from assay.conformal.set_base import MAX_MEMORY, CalibrationRows, FloatArray
from assay.core.errors import DataError, MethodError
from assay.core.probabilities import distinct_labels, encode_labels


class MondrianConformal(GroupSetClassifier):
    """Label sets that cover the rows of every group with probability at least 1 - alpha.

    Each group g has its own threshold q_g, the ``ceil((1 - alpha)(n_g + 1))``-th smallest score of the
    true labels of its n_g calibration rows; the set of a row of group g is ``{y : S(x, y) <= q_g}``. A
    group with fewer than 1 / alpha - 1 calibration rows gets all labels, and a warning counts those groups.

    Equal coverage is bought with unequal sizes: a group in which the model is less sure gets larger sets.
    :class:`~assay.conformal.equalized_size.EqualizedSetSize` makes the opposite bargain.

    Parameters
    ----------
    estimator : classifier, default LogisticRegression(max_iter=1000)
        Cloned and trained by ``fit``; used as it is by ``calibrate``. There it may also be a torch
        module or a function of X that gives (n, K) probabilities.
    label_score : str or LabelScore, default "lac"
        "lac", "margin", "aps", "raps", "saps", "topk", or an object of
        :mod:`assay.conformal.label_scores`.
    group : {"groups", "y"}, default "groups"
        Which groups: those given with the rows, or each row's label (class-conditional sets; groups that
        are given are then not looked at). Without groups all rows are one, with a warning.
    unseen : {"all", "marginal", "refuse"}, default "all"
        What a row of a group without calibration rows gets: all labels, the threshold of all groups
        together (no promise for that group), or an error. With ``group="y"`` it is about classes: one
        without rows is in every set, has the threshold of all classes together, or is an error. In
        either case a warning counts them.
    alpha : level, default 0.1
        Miscoverage in each group.
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
    Vovk (2012), Conditional validity of inductive conformal predictors. Romano, Barber, Sabatti, Candès
    (2020), With malice toward none: assessing uncertainty via equalized coverage.
    """

    without_groups = "all rows are one group, and the sets are those of one threshold"

    def __init__(
        self,
        estimator: Any = None,
        *,
        label_score: str | LabelScore = "lac",
        group: str = "groups",
        unseen: str = "all",
        alpha: Any = 0.1,
        randomised: bool = False,
        allow_empty: bool = True,
        calibration_size: float | int = 0.5,
        max_memory: int = MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.label_score = label_score
        self.group = group
        self.unseen = unseen
        self.alpha = alpha
        self.randomised = randomised
        self.allow_empty = allow_empty
        self.calibration_size = calibration_size
        self.max_memory = max_memory
        self.random_state = random_state

    def _score(self) -> LabelScore:
        return get_score(self.label_score)

    def _calibrator(
        self, score: LabelScore, scores: FloatArray, rows: CalibrationRows, seed: int
    ) -> LabelCalibrator:
        unseen = self._checked_unseen()
        if self.group not in ("groups", "y"):
            raise MethodError(f"group must be 'groups' or 'y', got {self.group!r}")
        if self.group == "y":
            n_classes = rows.proba.n_classes
            absent = np.flatnonzero(np.bincount(rows.codes, minlength=n_classes) == 0)
            if unseen == "refuse" and len(absent):
                raise DataError(
                    f"{len(absent)} of {n_classes} classes have no calibration rows, the first is in "
                    f"column {absent[0]}; unseen='all' puts them into every set, unseen='marginal' gives "
                    "them the threshold of all classes together"
                )
            return ClassCalibrator(scores, rows.codes, n_classes, unseen)
        if rows.groups is None:
            self._warn_without_groups()
            return MarginalCalibrator(scores)
        names = distinct_labels(rows.groups)
        return GroupCalibrator(scores, encode_labels(rows.groups, names), names, unseen)

    def _looks_at_groups(self) -> bool:
        return self.group != "y"
