"""LAC: exact small cases, agreement with MAPIE."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import LACClassifier


@parametrize_with_checks([LACClassifier()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def two_class(scores):
    scores = np.asarray(scores)
    return np.stack([1 - scores, scores], axis=1)


def test_ten_scores_at_one_fifth():
    # scores 0.05, 0.1 .. 0.5: k = 9, q = 0.45
    m = LACClassifier(alpha=0.2).calibrate_proba(two_class(np.arange(1, 11) / 20), np.zeros(10, int))
    sets = m.predict_set_proba([[0.55, 0.45], [0.5499, 0.4501], [0.2, 0.8]])
    assert sets.tolist() == [[True, False], [False, False], [False, True]]


def test_equal_scores_keep_every_label_that_is_as_good():
    m = LACClassifier(alpha=0.1).calibrate_proba(np.tile([0.4, 0.4, 0.2], (30, 1)), np.zeros(30, int))
    assert m.predict_set_proba([[0.4, 0.4, 0.2], [0.41, 0.39, 0.2]]).tolist() == [
        [True, True, False],
        [True, False, False],
    ]


def test_float32_boundary_is_the_score_of_calibration():
    # 1 - p rounds; the row whose score is the threshold itself must be inside
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = rng.dirichlet(np.ones(3), size=19).astype(np.float32)
        y = rng.integers(3, size=19)
        m = LACClassifier(alpha=0.1).calibrate_proba(p, y)
        inside = m.predict_set_proba(p)[np.arange(19), y]
        assert inside.sum() == 18


def test_agreement_with_mapie():
    mapie = pytest.importorskip("mapie.classification")
    from sklearn.datasets import make_classification
    from sklearn.naive_bayes import GaussianNB

    X, y = make_classification(900, n_classes=4, n_informative=5, random_state=1)
    model = GaussianNB().fit(X[:300], y[:300])
    for n, alpha in [(99, 0.1), (157, 0.2), (300, 0.05)]:
        cal = slice(300, 300 + n)
        theirs = mapie.SplitConformalClassifier(model, confidence_level=1 - alpha, prefit=True)
        theirs.conformalize(X[cal], y[cal])
        expected = theirs.predict_set(X[600:])[1][:, :, 0]
        ours = LACClassifier(model, alpha=alpha).calibrate(X[cal], y[cal]).predict_set(X[600:])
        np.testing.assert_array_equal(ours, expected)
