"""Class-conditional thresholds: every class is covered, small classes are always inside."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import ClassConditionalClassifier
from assay.conformal.label_scores import RAPSScore
from assay.core.errors import InfiniteSetWarning


@parametrize_with_checks([ClassConditionalClassifier()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def hard_and_easy(n, seed):
    """Class 2 is rarely given much probability."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=n)
    logits = rng.normal(size=(n, 3))
    logits[np.arange(n), y] += np.array([3.0, 3.0, 0.3])[y]
    p = np.exp(logits)
    return p / p.sum(axis=1, keepdims=True), y


@pytest.mark.parametrize("label_score", ["lac", "aps", "margin", "topk", RAPSScore(lam=0.05)])
def test_every_class_is_covered(label_score):
    covered = np.zeros((20, 3))
    for seed in range(20):
        p, y = hard_and_easy(2600, seed)
        m = ClassConditionalClassifier(label_score=label_score, randomised=True, random_state=0)
        sets = m.calibrate_proba(p[:600], y[:600]).predict_set_proba(p[600:])
        hit = sets[np.arange(2000), y[600:]]
        covered[seed] = [hit[y[600:] == c].mean() for c in range(3)]
    assert (covered.mean(axis=0) > 0.885).all()
    if label_score != "topk":
        assert (covered.mean(axis=0) < 0.93).all()


def test_thresholds_by_class():
    # class 0: nine scores .1 .. .9 (q = .9); class 1: eight (q = inf); class 2: none
    scores = np.concatenate([np.arange(1, 10), np.arange(1, 9)]) / 10
    y = np.repeat([0, 1], [9, 8])
    p = np.zeros((17, 3))
    p[np.arange(17), y] = 1 - scores
    p[np.arange(17), 1 - y] = scores
    m = ClassConditionalClassifier(alpha=0.1).calibrate_proba(p, y, classes=range(3))
    with pytest.warns(
        InfiniteSetWarning, match=r"2 of 3 classes have too few calibration rows .*9 are needed"
    ):
        sets = m.predict_set_proba([[0.1, 0.9, 0.0], [0.09, 0.0, 0.91]])
    assert sets.tolist() == [[True, True, True], [False, True, True]]
