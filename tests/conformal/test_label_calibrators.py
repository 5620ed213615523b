"""Thresholds: exact small cases, pools, clusters, and agreement with crepes."""

import warnings
from fractions import Fraction

import numpy as np
import pytest

from assay.conformal.label_calibrators import (
    ClassCalibrator,
    ClusterCalibrator,
    GroupCalibrator,
    MarginalCalibrator,
    cluster_classes,
    plan_clusters,
    pooled_thresholds,
)
from assay.core.errors import InfiniteSetWarning
from assay.core.levels import conformal_rank
from assay.core.quantiles import conformal_quantile

TENTH = Fraction(1, 10)


@pytest.mark.parametrize(
    ("n", "alpha", "q"), [(10, "0.2", 9), (9, "0.1", 9), (19, "0.1", 18), (9, "0.7", 3), (19, "0.95", 1)]
)
def test_marginal_small_cases(n, alpha, q):
    scores = np.random.default_rng(0).permutation(np.arange(1.0, n + 1))
    assert MarginalCalibrator(scores).thresholds([Fraction(alpha)]).item() == q


def test_eight_scores_are_too_few_for_a_tenth():
    with pytest.warns(InfiniteSetWarning, match="8 calibration rows .*at least 9"):
        assert MarginalCalibrator(np.arange(8.0)).thresholds([TENTH]).item() == np.inf


def test_pools_equal_the_quantile_of_each():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 9, 300).astype(float)
    codes = rng.integers(0, 7, 300)
    codes[codes == 3] = 2
    levels = [TENTH, Fraction(1, 3), Fraction(0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        out, short = pooled_thresholds(scores, codes, 8, levels)
        for i, level in enumerate(levels):
            for pool in range(8):
                assert out[i, pool] == conformal_quantile(scores[codes == pool], level)
    assert short[0].tolist() == [False, False, False, True, False, False, False, True]
    assert short[2].all()


def test_one_class_one_group_one_cluster_are_the_marginal_threshold():
    scores = np.random.default_rng(0).random(37)
    zeros = np.zeros(37, dtype=np.intp)
    q = MarginalCalibrator(scores).thresholds([TENTH]).item()
    assert ClassCalibrator(scores, zeros, 1).thresholds([TENTH]).item() == q
    assert (GroupCalibrator(scores, zeros, np.array(["a"])).thresholds([TENTH], zeros[:3]) == q).all()
    assert (ClusterCalibrator(scores, zeros, np.array([-1, -1])).thresholds([TENTH]) == q).all()
    assert ClusterCalibrator(scores, zeros, np.array([0])).thresholds([TENTH]).item() == q


def test_small_classes_are_counted():
    codes = np.repeat([0, 1, 2], [9, 8, 20])
    with pytest.warns(
        InfiniteSetWarning, match=r"2 of 4 classes have too few .* at alpha 0\.1 \(9 are needed\)"
    ):
        q = ClassCalibrator(np.arange(37.0), codes, 4).thresholds([TENTH])
    assert q[0, 0].tolist() == [8, np.inf, 35, np.inf]


def test_two_groups_of_ten_and_an_unseen_one():
    scores = np.arange(20.0)
    method = GroupCalibrator(scores, np.repeat([0, 1], 10), np.array([0, 1]))
    with pytest.warns(
        InfiniteSetWarning, match="1 of 2 rows are of a group without calibration rows, first at row 1"
    ):
        q = method.thresholds([TENTH], np.array([1, -1]))
    assert q.shape == (1, 2, 1)
    assert q.ravel().tolist() == [19, np.inf]


@pytest.mark.parametrize(
    ("n", "k", "alpha", "n_clusters", "fraction"), [(50, 100, 0.1, 14, 0.56), (20, 10, 0.1, 1, 0.1)]
)
def test_sizes_of_the_clustering_part(n, k, alpha, n_clusters, fraction):
    plan = plan_clusters(np.full(k, n), alpha)
    assert plan.n_clusters == n_clusters
    assert plan.fraction == pytest.approx(fraction)


def test_rare_classes_do_not_set_the_size():
    # n_min is the smallest n for alpha (19 at 0.05) where the rarest class has fewer
    counts = np.array([3] + [200] * 150)
    assert plan_clusters(counts, 0.05).n_clusters == (19 * 150 // 225) // 2
    assert plan_clusters(counts, 0).n_clusters == 0
    assert plan_clusters(counts, 0.1, 4, 0.3).fraction == 0.3


def test_clusters_find_two_kinds_of_classes_whatever_their_names():
    rng = np.random.default_rng(0)
    k, n = 12, 60
    hard = np.arange(k) % 2
    codes = np.repeat(np.arange(k), n)
    scores = rng.random(k * n) * 0.2 + 0.7 * hard[codes]
    clusters = cluster_classes(scores, codes, k, 2, least=9, seed=0)
    assert len(set(clusters[hard == 1])) == len(set(clusters[hard == 0])) == 1
    assert clusters[0] != clusters[1]
    names = rng.permutation(k)
    renamed = cluster_classes(scores, names[codes], k, 2, least=9, seed=0)
    np.testing.assert_array_equal(renamed[names], clusters)


def test_rare_classes_and_too_few_classes_are_not_clustered():
    codes = np.repeat([0, 1, 2, 3], [50, 50, 50, 5])
    scores = np.random.default_rng(0).random(155)
    assert cluster_classes(scores, codes, 5, 2, least=9, seed=0)[3:].tolist() == [-1, -1]
    assert (cluster_classes(scores, codes, 5, 3, least=9, seed=0) == -1).all()
    assert (cluster_classes(scores, codes, 5, 1, least=9, seed=0) == -1).all()


def test_identical_classes_share_one_cluster_without_a_warning():
    codes = np.repeat(np.arange(6), 20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert set(cluster_classes(np.tile(np.arange(20.0), 6), codes, 6, 3, least=9, seed=0)) == {0}


def test_agreement_with_crepes():
    crepes = pytest.importorskip("crepes")
    rng = np.random.default_rng(3)
    for n, alpha in [(57, 0.1), (83, 0.15), (40, 0.05), (20, 0.3)]:
        assert (n + 1) * alpha % 1 > 1e-6
        scores, test = rng.random(n), rng.random((60, 4))
        theirs = (
            crepes.ConformalClassifier().fit(scores).predict_set(test, confidence=1 - alpha, smoothing=False)
        )
        q = MarginalCalibrator(scores).thresholds([Fraction(str(alpha))]).item()
        np.testing.assert_array_equal(np.asarray(theirs) == 1, test <= q)


def test_crepes_keeps_one_rank_more_where_the_level_falls_on_a_score():
    crepes = pytest.importorskip("crepes")
    scores = np.arange(1.0, 60)
    assert conformal_rank(59, 0.1) == 54
    theirs = (
        crepes.ConformalClassifier()
        .fit(scores)
        .predict_set(np.array([[54.0, 55.0, 56.0]]), confidence=0.9, smoothing=False)
    )
    assert np.asarray(theirs).tolist() == [[1, 1, 0]]
    assert (scores[53:56] <= MarginalCalibrator(scores).thresholds([TENTH]).item()).tolist() == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize(("n", "pools"), [(6000, 3), (6000, 700), (40, 60)])
def test_thresholds_of_pools_are_ranks_of_their_sorted_scores(n, pools):
    """Large pools select, small ones sort: the same numbers."""
    rng = np.random.default_rng(n)
    scores, codes = np.round(rng.random(n), 2), rng.integers(0, pools, n)
    scores[rng.integers(0, n, n // 10)] = np.inf
    levels = [Fraction(1, 10), Fraction(1, 2), Fraction(0), Fraction(1, 1000)]
    found, short = pooled_thresholds(scores, codes, pools, levels)
    for pool in range(pools):
        own = np.sort(scores[codes == pool])
        for i, level in enumerate(levels):
            rank = conformal_rank(len(own), level)
            assert short[i, pool] == (rank > len(own))
            assert found[i, pool] == (np.inf if rank > len(own) else own[rank - 1])
