"""Clustered thresholds: between marginal and class-conditional."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import ClassConditionalClassifier, ClusteredClassifier, LACClassifier
from assay.core.errors import MethodError


@parametrize_with_checks([ClusteredClassifier(n_clusters=3)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


K = 100


def many_classes(n, seed):
    """A hundred classes; the odd ones are harder."""
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=n)
    logits = rng.normal(size=(n, K))
    logits[np.arange(n), y] += np.where(y % 2, 2.0, 5.0)
    p = np.exp(logits)
    return (p / p.sum(axis=1, keepdims=True)).astype(np.float32), y


def test_few_classes_are_the_marginal_method_with_all_rows():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(10), size=200)
    y = np.repeat(np.arange(10), 20)
    m = ClusteredClassifier(random_state=0).calibrate_proba(p, y)
    assert (m.clusters_ == -1).all()
    marginal = LACClassifier().calibrate_proba(p, y)
    np.testing.assert_array_equal(m.predict_set_proba(p), marginal.predict_set_proba(p))


def test_clusters_separate_hard_from_easy_and_even_out_coverage():
    gaps = []
    for seed in range(4):
        p, y = many_classes(25_000, seed)
        calibration, test = slice(0, 5000), slice(5000, None)
        labels = np.arange(K)
        methods = [ClusteredClassifier(random_state=0), LACClassifier(), ClassConditionalClassifier()]
        row = []
        for m in methods:
            sets = m.calibrate_proba(p[calibration], y[calibration], classes=labels).predict_set_proba(
                p[test]
            )
            hit = sets[np.arange(20_000), y[test]]
            row.append(np.mean([abs(hit[y[test] == c].mean() - 0.9) for c in range(K)]))
        gaps.append(row)
        clusters = methods[0].clusters_
        assert len(set(clusters)) > 5
        assert not set(clusters[::2]) & set(clusters[1::2]) - {-1}
        # the clustering part is not used again: .5 to .6 of the rows
        assert 1500 < len(methods[0].calibrator_.scores) < 3300
    clustered, marginal, _ = np.mean(gaps, axis=0)
    assert clustered < 0.75 * marginal


def test_given_number_of_clusters():
    p, y = many_classes(5000, 0)
    m = ClusteredClassifier(n_clusters=2, clustering_size=0.3, random_state=0).calibrate_proba(p, y)
    assert set(m.clusters_) <= {-1, 0, 1}
    assert m.calibrator_.n_clustering == pytest.approx(1500, abs=120)
    common = m.clusters_ >= 0
    odd = np.arange(K) % 2 == 1
    assert len(set(m.clusters_[common & odd])) == 1
    with pytest.raises(MethodError, match="clustering_size"):
        ClusteredClassifier(n_clusters=2, clustering_size=1.0).calibrate_proba(p, y)
