"""Several heads as one classifier: their mean probability, or the mean of their scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.conformal.head_base import HeadSetClassifier, as_heads, rules_of, score_vectors, true_vectors
from assay.conformal.label_scores import LabelScore
from assay.conformal.set_base import MAX_MEMORY, Codes, FloatArray
from assay.core.errors import MethodError


class HeadEnsemble(HeadSetClassifier):
    """Split-conformal label sets of several heads that are averaged: the baseline of every method of
    several heads, because averaging them costs nothing.

    With ``combine="probability"`` a label's score is that of the mean probabilities of the heads; with
    ``"score"`` it is the mean of the heads' own scores. For LAC both are the same.

    Parameters
    ----------
    estimator : classifier or list of classifiers, default LogisticRegression(max_iter=1000)
        A list: each is a head. One with ``predict_proba_heads`` (n, K, d): d heads. Any other: ``fit``
        trains three copies, each on a random half of the columns (for other numbers give
        ``SubspaceHeads(...)``); ``calibrate`` takes it as one head. The same seed gives the same heads
        in every method of several heads.
    scores : str or LabelScore, default "lac"
        One score: "lac", "margin", "aps", "raps", "saps", "topk", or an object of
        :mod:`assay.conformal.label_scores`.
    combine : {"probability", "score"}, default "probability"
    alpha : level, default 0.1
        Miscoverage.
    randomised : bool, default False
        Whether a score that takes u gets one: one number a row, shared by labels and heads.
    allow_empty : bool, default True
        False adds the most probable label to sets that would be empty; coverage can only rise.
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    max_memory : int, default 64 MiB
        Bytes of working memory, beside input and output; the answer does not depend on it.
    random_state : int or None, default None
        Draws the calibration rows and the heads' columns in ``fit``, and u.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        scores: Any = "lac",
        combine: str = "probability",
        alpha: Any = 0.1,
        randomised: bool = False,
        allow_empty: bool = True,
        calibration_size: float | int = 0.5,
        max_memory: int = MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.scores = scores
        self.combine = combine
        self.alpha = alpha
        self.randomised = randomised
        self.allow_empty = allow_empty
        self.calibration_size = calibration_size
        self.max_memory = max_memory
        self.random_state = random_state

    def _score(self) -> LabelScore:
        rules = rules_of(self.scores)
        if len(rules) > 1:
            raise MethodError(f"an ensemble has one score, got {len(rules)}")
        if self.combine == "probability":
            return MeanProbabilityScore(rules[0])
        if self.combine == "score":
            return MeanScore(rules[0])
        raise MethodError(f"combine must be 'probability' or 'score', got {self.combine!r}")


@dataclass(frozen=True)
class MeanProbabilityScore(LabelScore):
    """A score of the mean of (d, n, K) probabilities."""

    rule: LabelScore
    takes_u = True

    def all(self, proba: NDArray[Any], u: FloatArray | None = None) -> FloatArray:
        return self.rule.all(_mean(proba), u)

    def of(self, proba: NDArray[Any], labels: Codes, u: FloatArray | None = None) -> FloatArray:
        return self.rule.of(_mean(proba), labels, u)

    def prepare(self, thresholds: FloatArray, dtype: Any) -> NDArray[Any]:
        return self.rule.prepare(thresholds, np.float64)

    def mark(
        self, proba: NDArray[Any], prepared: NDArray[Any], u: FloatArray | None, out: NDArray[np.bool_]
    ) -> None:
        self.rule.mark(_mean(proba), prepared, u, out)


def _mean(proba: NDArray[Any]) -> FloatArray:
    return np.asarray(as_heads(proba).mean(axis=0, dtype=np.float64))


@dataclass(frozen=True)
class MeanScore(LabelScore):
    """The mean over heads of a score of (d, n, K) probabilities."""

    rule: LabelScore
    takes_u = True

    def all(self, proba: NDArray[Any], u: FloatArray | None = None) -> FloatArray:
        return np.asarray(score_vectors((self.rule,), proba, u).mean(axis=2))

    def of(self, proba: NDArray[Any], labels: Codes, u: FloatArray | None = None) -> FloatArray:
        return np.asarray(true_vectors((self.rule,), proba, labels, u).mean(axis=1))
