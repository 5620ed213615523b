"""APS: exact small cases, the paper's randomised score, how MAPIE deviates."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import APSClassifier
from assay.conformal.label_scores import APSScore


@parametrize_with_checks([APSClassifier(randomised=True, random_state=0)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_set_is_the_longest_prefix_within_the_threshold():
    # ten rows whose true label has the scores .5 and .8: k = 9 of 10 at alpha .2
    p = np.tile([0.5, 0.3, 0.15, 0.05], (10, 1))
    y = np.array([0] * 5 + [1] * 5)
    m = APSClassifier(alpha=0.2).calibrate_proba(p, y)
    assert m.predict_set_proba([[0.5, 0.3, 0.15, 0.05]]).tolist() == [[True, True, False, False]]
    assert m.predict_set_proba([[0.05, 0.15, 0.3, 0.5]]).tolist() == [[False, False, True, True]]
    # the top label alone is over the threshold: empty, unless that is not wanted
    confident = [[0.9, 0.1, 0.0, 0.0]]
    assert not m.predict_set_proba(confident).any()
    m.allow_empty = False
    assert m.predict_set_proba(confident).tolist() == [[True, False, False, False]]


def test_ties_go_to_the_lower_class():
    p = np.tile([0.25, 0.25, 0.25, 0.25], (19, 1))
    m = APSClassifier(alpha=0.1).calibrate_proba(p, np.ones(19, int), classes=range(4))
    assert m.predict_set_proba(p[:1]).tolist() == [[True, True, False, False]]


def test_randomised_coverage_is_exact_and_sets_are_nested_prefixes():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(6), size=41_000)
    y = (p.cumsum(axis=1) < rng.random((41_000, 1))).sum(axis=1).clip(max=5)
    m = APSClassifier(randomised=True, random_state=3).calibrate_proba(p[:1000], y[:1000])
    sets = m.predict_set_proba(p[1000:])
    assert abs(sets[np.arange(40_000), y[1000:]].mean() - 0.9) < 0.025
    smallest_inside = np.where(sets, p[1000:], 2).min(axis=1)
    largest_outside = np.where(sets, -1, p[1000:]).max(axis=1)
    assert (smallest_inside >= largest_outside).all()


def test_seed_and_row_content_decide_the_uniforms():
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), size=300)
    y = rng.integers(4, size=300)
    sets = [
        APSClassifier(randomised=True, random_state=seed).calibrate_proba(p, y).predict_set_proba(p)
        for seed in (0, 0, 1)
    ]
    np.testing.assert_array_equal(sets[0], sets[1])
    assert (sets[0] != sets[2]).any()
    single = p.astype(np.float32)
    m = APSClassifier(randomised=True, random_state=0).calibrate_proba(single, y)
    np.testing.assert_array_equal(m.predict_set_proba(single), m.predict_set_proba(single.astype(np.float64)))


def test_mapie_calibrates_the_randomised_score_and_then_adds_the_crossing_label():
    mapie = pytest.importorskip("mapie.classification")
    from mapie.conformity_scores import APSConformityScore
    from sklearn.datasets import make_classification
    from sklearn.naive_bayes import GaussianNB

    X, y = make_classification(700, n_classes=4, n_informative=5, random_state=1)
    model = GaussianNB(var_smoothing=0.5).fit(X[:200], y[:200])
    theirs = mapie.SplitConformalClassifier(
        model, confidence_level=0.9, prefit=True, conformity_score=APSConformityScore(), random_state=5
    )
    theirs.conformalize(X[200:400], y[200:400])
    expected = theirs.predict_set(X[400:])[1][:, :, 0]

    score = APSScore()
    u = 1 - np.random.RandomState(5).uniform(size=200)
    true_scores = score.of(model.predict_proba(X[200:400]), y[200:400], u)
    q = np.sort(true_scores)[181 - 1]
    p = model.predict_proba(X[400:])
    before = score.all(p) - p  # the sum without the label itself
    np.testing.assert_array_equal(expected, before < q - 1e-12)
    # a set by the score of calibration never has more labels
    same_rule = score.sets(p, np.full((1, 1, 1), q), np.random.default_rng(0).random(300))[0]
    assert (same_rule <= expected).all()
    assert same_rule.sum() < expected.sum()
