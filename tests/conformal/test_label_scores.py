"""Label scores: the running example, closed forms, and one rule for score and set, to the last bit."""

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from assay.conformal.label_scores import (
    APSScore,
    LACScore,
    MarginScore,
    RAPSScore,
    SAPSScore,
    TopKScore,
    get_score,
    label_ranks,
    least_probability,
)
from assay.core.errors import MethodError

EXAMPLE = np.array([[0.5, 0.3, 0.15, 0.05]])
ALL = [LACScore(), MarginScore(), APSScore(), RAPSScore(), RAPSScore(lam=0.0), SAPSScore(), TopKScore()]


@pytest.mark.parametrize(
    ("score", "u", "expected"),
    [
        (LACScore(), None, [0.5, 0.7, 0.85, 0.95]),
        (MarginScore(), None, [-0.2, 0.2, 0.35, 0.45]),
        (APSScore(), None, [0.5, 0.8, 0.95, 1]),
        (APSScore(), 0.4, [0.2, 0.62, 0.86, 0.97]),
        (RAPSScore(lam=0.1, k_reg=1), None, [0.5, 0.9, 1.15, 1.3]),
        (RAPSScore(lam=0.1, k_reg=1), 0.4, [0.2, 0.72, 1.06, 1.27]),
        (RAPSScore(lam=0.1, k_reg=2), None, [0.5, 0.8, 1.05, 1.2]),
        (RAPSScore(lam=0.1, k_reg=2), 0.4, [0.2, 0.62, 0.96, 1.17]),
        (SAPSScore(weight=0.2), None, [0.5, 0.7, 0.9, 1.1]),
        (SAPSScore(weight=0.2), 0.4, [0.2, 0.58, 0.78, 0.98]),
        (TopKScore(), None, [1, 2, 3, 4]),
        (TopKScore(), 0.4, [0.4, 1.4, 2.4, 3.4]),
    ],
)
def test_running_example(score, u, expected):
    uniforms = None if u is None else np.array([u])
    np.testing.assert_allclose(score.all(EXAMPLE, uniforms)[0], expected, rtol=1e-14)
    shuffled = [2, 0, 3, 1]
    np.testing.assert_allclose(
        score.all(EXAMPLE[:, shuffled], uniforms)[0], np.array(expected)[shuffled], rtol=1e-14
    )


def test_closed_forms():
    uniform = np.full((1, 5), 0.2)
    assert len(set(LACScore().all(uniform)[0])) == 1
    np.testing.assert_allclose(APSScore().all(uniform)[0], np.arange(1, 6) / 5)
    one_hot = np.eye(3)[[1]]
    assert APSScore().all(one_hot)[0, 1] == 1
    assert APSScore().all(one_hot, np.array([0.3]))[0, 1] == 0.3
    p = np.random.default_rng(0).dirichlet(np.ones(6), size=50)
    u = np.random.default_rng(1).random(50)
    np.testing.assert_array_equal(RAPSScore(lam=0.0).all(p, u), APSScore().all(p, u))
    for score in ALL:
        np.testing.assert_array_equal(score.all(p), score.all(p, np.ones(50)))
    # SAPS knows the top probability and the order only
    q = p.copy()
    top = q.max(axis=1)
    q[q < top[:, None]] **= 3
    np.testing.assert_array_equal(SAPSScore().all(p, u), SAPSScore().all(q, u))


def test_a_label_that_adds_nothing_stays_apart_from_the_one_before():
    scores = APSScore().all(np.array([[0.0, 1.0, 0.0], [1.0 - 1e-16, 1e-18, 1e-19]]))
    assert (scores[0] > 1).tolist() == [True, False, True]
    assert scores[0, 0] < scores[0, 2]
    np.testing.assert_allclose(scores, 1, atol=1e-11)
    assert APSScore().sets(np.array([[0.0, 1.0, 0.0]]), np.ones((1, 1, 1)))[0].tolist() == [
        [False, True, False]
    ]


def normalised(counts):
    counts = counts + (counts.sum(axis=1, keepdims=True) == 0)
    return counts / counts.sum(axis=1, keepdims=True)


def tied_probabilities():
    """Rows of small integers over their sum, so that ties and zeros are frequent."""
    shape = st.tuples(st.integers(1, 6), st.integers(1, 7))
    elements = st.one_of(st.integers(0, 3), st.integers(0, 1000))
    return hnp.arrays(np.int64, shape, elements=elements).map(normalised)


@settings(max_examples=150, deadline=None)
@given(
    proba=tied_probabilities(),
    single=st.booleans(),
    randomised=st.booleans(),
    index=st.integers(0, len(ALL) - 1),
    pick=st.integers(0, 10**6),
)
def test_score_and_set_are_one_rule_to_the_bit(proba, single, randomised, index, pick):
    p = np.ascontiguousarray(proba, dtype=np.float32 if single else np.float64)
    n, k = p.shape
    score = ALL[index]
    u = np.random.default_rng(pick).random(n) if randomised else None
    scores = score.all(p, u)
    labels = np.arange(n) % k
    np.testing.assert_array_equal(score.of(p, labels, u), scores[np.arange(n), labels])
    at = scores.flat[pick % scores.size]
    for q in (at, np.nextafter(at, -np.inf), np.nextafter(at, np.inf), np.inf, -np.inf, 0.0, 1.0):
        np.testing.assert_array_equal(score.sets(p, np.full((1, 1, 1), q), u)[0], scores <= q)
    by_row = np.random.default_rng(pick).choice(scores.ravel(), size=(2, n, 1))
    np.testing.assert_array_equal(score.sets(p, by_row, u), scores <= by_row)
    by_label = np.random.default_rng(pick).choice(scores.ravel(), size=(2, 1, k))
    np.testing.assert_array_equal(score.sets(p, by_label, u), scores <= by_label)


@settings(max_examples=80, deadline=None)
@given(proba=tied_probabilities(), index=st.integers(0, len(ALL) - 1), seed=st.integers(0, 1000))
def test_a_more_probable_label_never_scores_worse(proba, index, seed):
    u = np.random.default_rng(seed).random(len(proba))
    scores = ALL[index].all(proba, u)
    order = np.argsort(-proba, axis=1, kind="stable")
    ranked = np.take_along_axis(scores, order, axis=1)
    assert (np.diff(ranked, axis=1) >= 0).all()


def test_ranks_give_ties_to_the_lower_class():
    p = np.array([[0.2, 0.3, 0.2, 0.3]] * 4)
    assert label_ranks(p, np.arange(4)).tolist() == [3, 1, 4, 2]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_least_probability_is_where_the_rule_begins_to_hold(dtype):
    rng = np.random.default_rng(0)
    q = np.concatenate([rng.random(200), [0.0, 1.0, 0.5, 1 - 2.0**-53, 2.0**-60, 1e-300, -1e-5]])
    least = least_probability(q, dtype)
    assert (1.0 - least.astype(np.float64) <= q).all()
    below = np.nextafter(least, dtype(-1))
    assert (1.0 - below[least > 0].astype(np.float64) > q[least > 0]).all()
    assert least_probability(np.array([np.inf]), dtype)[0] == 0
    assert least_probability(np.array([-np.inf]), dtype)[0] == np.inf


def test_names_and_refused_arguments():
    assert get_score("raps") == RAPSScore()
    assert get_score(SAPSScore(0.5)) == SAPSScore(0.5)
    with pytest.raises(MethodError, match="no score 'apz'"):
        get_score("apz")
    for wrong in (lambda: RAPSScore(lam=-1.0), lambda: RAPSScore(k_reg=-1), lambda: SAPSScore(np.nan)):
        with pytest.raises(MethodError, match="must be"):
            wrong()
