"""Averaged heads: the same sets as one classifier with the mean probabilities."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import APSClassifier, LACClassifier, RAPSClassifier
from assay.conformal.head_ensemble import HeadEnsemble
from assay.conformal.heads import SubspaceHeads
from assay.conformal.label_scores import RAPSScore
from assay.conformal.multiscore import MultiScoreConformal


@parametrize_with_checks([HeadEnsemble(SubspaceHeads(LogisticRegression(), n_heads=2, random_state=0))])
@pytest.mark.filterwarnings("ignore")
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def sample(n=500, k=6, d=3, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(k, 0.4), size=(n, d)).transpose(0, 2, 1)
    y = (p.mean(axis=2).cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=k - 1)
    return p, y


@pytest.mark.parametrize(
    ("score", "plain"), [("lac", LACClassifier), ("aps", APSClassifier), ("raps", RAPSClassifier)]
)
def test_mean_probabilities_are_one_classifier(score, plain):
    p, y = sample()
    got = HeadEnsemble(scores=score).calibrate_proba(p, y).predict_set_proba(p, alpha=[0.1, 0.3])
    expected = plain().calibrate_proba(p.mean(axis=2), y).predict_set_proba(p.mean(axis=2), alpha=[0.1, 0.3])
    np.testing.assert_array_equal(got, expected)


def test_one_randomised_head_is_the_plain_method():
    p, y = sample(d=1)
    got = HeadEnsemble(scores="aps", randomised=True, random_state=3).calibrate_proba(p, y)
    expected = APSClassifier(randomised=True, random_state=3).calibrate_proba(p[..., 0], y)
    np.testing.assert_array_equal(got.predict_set_proba(p), expected.predict_set_proba(p[..., 0]))


def test_mean_score_by_hand():
    p, y = sample()
    rule = RAPSScore(lam=0.1, k_reg=2)
    scores = np.mean([rule.all(np.ascontiguousarray(p[..., j])) for j in range(3)], axis=0)
    q = np.sort(scores[np.arange(500), y])[int(np.ceil(0.9 * 501)) - 1]
    got = HeadEnsemble(scores=rule, combine="score").calibrate_proba(p, y).predict_set_proba(p)
    np.testing.assert_array_equal(got, scores <= q)
    # with LAC both ways of averaging are the same
    sets = [
        HeadEnsemble(scores="lac", combine=way).calibrate_proba(p, y).predict_set_proba(p)
        for way in ("probability", "score")
    ]
    assert (sets[0] != sets[1]).mean() < 1e-3


def test_empty_sets_get_the_most_probable_label():
    p, y = sample()
    for combine in ("probability", "score"):
        options = {"scores": "lac", "combine": combine, "alpha": 0.9}
        bare = HeadEnsemble(**options).calibrate_proba(p, y).predict_set_proba(p)
        full = HeadEnsemble(allow_empty=False, **options).calibrate_proba(p, y).predict_set_proba(p)
        empty = ~bare.any(axis=1)
        assert empty.any()
        np.testing.assert_array_equal(full[~empty], bare[~empty])
        np.testing.assert_array_equal(full[empty].argmax(axis=1), p.mean(axis=2)[empty].argmax(axis=1))


@pytest.mark.filterwarnings("ignore::assay.core.errors.AssayWarning")
def test_one_seed_gives_the_same_heads_to_every_method():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 6))
    y = (X[:, :3].sum(axis=1) + rng.normal(size=200) > 0).astype(int)
    parts = [
        method.fit(X[:100], y[:100], X[100:], y[100:]).predict_proba_heads(X)
        for method in (HeadEnsemble(random_state=5), MultiScoreConformal(random_state=5))
    ]
    assert parts[0].shape == (200, 2, 3)
    np.testing.assert_array_equal(*parts)


def test_refused_arguments():
    p, y = sample(50)
    for options, message in (({"combine": "median"}, "combine"), ({"scores": ["lac", "aps"]}, "one score")):
        with pytest.raises(ValueError, match=message):
            HeadEnsemble(**options).calibrate_proba(p, y)
