"""Clustered class-conditional conformal prediction."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.conformal.label_calibrators import (
    ClusterCalibrator,
    LabelCalibrator,
    cluster_classes,
    plan_clusters,
)
from assay.conformal.label_scores import LabelScore, get_score
from assay.conformal.set_base import MAX_MEMORY, Codes, FloatArray, SetClassifier
from assay.core.levels import parse_levels, smallest_n
from assay.core.probabilities import Probabilities
from assay.core.seeds import derive_seed


class ClusteredClassifier(SetClassifier):
    """Label sets with one threshold for each cluster of classes whose scores are alike.

    Part of the calibration rows tells which classes have similar distributions of true-label scores
    (k-means on their quantiles .5, .6, .7, .8, .9); the other part gives each cluster its threshold.
    Between marginal and class-conditional: useful when there are many classes with few rows each.
    Classes with too few rows for clustering get the marginal threshold. How many rows go to
    clustering and how many clusters there are follows the authors' rule from the class counts and
    alpha: ``n_min = max(min_c n_c, smallest n for alpha)``, K' the classes with at least n_min rows,
    ``n_clu = floor(n_min K' / (75 + K'))``, ``floor(n_clu / 2)`` clusters, fraction ``n_clu / n_min``.
    With fewer than two clusters, or not more common classes than clusters, there is one threshold
    for all.

    Parameters
    ----------
    estimator : classifier, default LogisticRegression(max_iter=1000)
        Cloned and trained by ``fit``; used as it is by ``calibrate``. There it may also be a torch
        module or a function of X that gives (n, K) probabilities.
    label_score : str or LabelScore, default "lac"
        "lac", "margin", "aps", "raps", "saps", "topk", or an object of
        :mod:`assay.conformal.label_scores`.
    alpha : level, default 0.1
        Miscoverage; of a sequence the first level decides about the clusters.
    n_clusters : int, optional
        Number of clusters, instead of the authors' rule.
    clustering_size : float, default 0.5
        Fraction of the calibration rows, each drawn by itself, that is used for clustering; counts
        only where ``n_clusters`` is given.
    randomised : bool, default False
        Whether a score that takes u gets one; see APS.
    allow_empty : bool, default True
        False adds the most probable label to sets that would be empty; coverage can only rise.
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration and clustering.
    max_memory : int, default 64 MiB
        Bytes of working memory, beside input and output; the answer does not depend on it.
    random_state : int or None, default None
        Draws the calibration rows in ``fit``, the clustering part, k-means' starts, and u.

    Attributes
    ----------
    clusters_ : (K,) cluster of each class; -1 for classes with the marginal threshold

    References
    ----------
    Ding, Angelopoulos, Bates, Jordan, Tibshirani (2023), Class-conditional conformal prediction with
    many classes.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        label_score: str | LabelScore = "lac",
        alpha: Any = 0.1,
        n_clusters: int | None = None,
        clustering_size: float = 0.5,
        randomised: bool = False,
        allow_empty: bool = True,
        calibration_size: float | int = 0.5,
        max_memory: int = MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.label_score = label_score
        self.alpha = alpha
        self.n_clusters = n_clusters
        self.clustering_size = clustering_size
        self.randomised = randomised
        self.allow_empty = allow_empty
        self.calibration_size = calibration_size
        self.max_memory = max_memory
        self.random_state = random_state

    @property
    def clusters_(self) -> Codes:
        """(K,) cluster of each class; -1 for classes with the marginal threshold."""
        calibrator: ClusterCalibrator = self.calibrator_
        return calibrator.clusters

    def _score(self) -> LabelScore:
        return get_score(self.label_score)

    def _make_calibrator(
        self, scores: FloatArray, proba: Probabilities, codes: Codes, seed: int
    ) -> LabelCalibrator:
        k = proba.n_classes
        plan = plan_clusters(
            np.bincount(codes, minlength=k), self.alpha, self.n_clusters, self.clustering_size
        )
        if plan.n_clusters <= 1:
            return ClusterCalibrator(scores, codes, np.full(k, -1, dtype=np.intp))
        part = self._part_uniforms(proba, codes, seed, "clustering") < plan.fraction
        least = smallest_n(parse_levels(self.alpha)[0][0])
        clusters = cluster_classes(
            scores[part], codes[part], k, plan.n_clusters, least or 1, derive_seed(seed, "k-means")
        )
        return ClusterCalibrator(scores[~part], codes[~part], clusters, int(part.sum()))
