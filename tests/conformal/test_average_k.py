"""Average-k sets: how many labels there are in all, ties by chance, and k by bisection."""

import numpy as np
import pytest
from groups_sample import hard_and_easy
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import AverageK
from assay.core.errors import InfiniteSetWarning, MethodError


@parametrize_with_checks([AverageK()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("k", [0.01, 0.5, 1, 1.37, 2, 2.999, 3.5, 4])
@pytest.mark.parametrize("n", [1, 7, 100])
def test_distinct_probabilities_give_exactly_as_many_labels(k, n):
    p, y, _ = hard_and_easy(n, 0)
    assert len(np.unique(p)) == p.size
    sets = AverageK(k=k).calibrate_proba(p, y, classes=range(4)).predict_set_proba(p)
    assert sets.sum() == int(np.ceil(k * n - 1e-9))
    assert p[sets].min(initial=1) > p[~sets].max(initial=0)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3])
def test_k_is_the_smallest_that_covers_the_calibration_rows(alpha):
    p, y, _ = hard_and_easy(500, 1)
    m = AverageK(alpha=alpha).calibrate_proba(p, y)
    held = m.calibrator_
    labels = round(m.k_ * 500)
    assert held.covered(labels) >= (1 - alpha) * 500 > held.covered(labels - 1)
    every = [held.covered(count) for count in range(1, 2001)]
    assert (np.diff(every) >= 0).all()
    assert next(i for i, value in enumerate(every, 1) if value >= (1 - alpha) * 500 - 1e-9) == labels
    assert m.predict_set_proba(p)[np.arange(500), y].mean() == pytest.approx(1 - alpha, abs=0.0011)


def test_equal_probabilities_are_in_by_chance_and_as_often_as_needed():
    rng = np.random.default_rng(1)
    rows = np.column_stack([np.full(2000, 0.25), np.full(2000, 0.25), rng.random(2000) * 0.5])
    rows = np.column_stack([rows, 0.5 - rows[:, 2]])
    m = AverageK(k=2, random_state=0).calibrate_proba(rows, np.arange(2000) % 4)
    q, share = m.calibrator_.cut(4000)
    assert q == 0.25
    sets = m.predict_set_proba(rows)
    both = sets[:, :2]
    assert (both[:, 0] == both[:, 1]).all()
    assert abs(both.mean() - share) < 3 * np.sqrt(share * (1 - share) / 2000) + 1e-9
    np.testing.assert_array_equal(m.predict_set_proba(rows[700:703]), sets[700:703])
    other = AverageK(k=2, random_state=1).calibrate_proba(rows, np.arange(2000) % 4)
    assert 0 < share < 1
    assert (other.predict_set_proba(rows) != sets).any()


def test_hard_rows_get_more_labels():
    p, y, g = hard_and_easy(4000, 2)
    m = AverageK().calibrate_proba(p[:2000], y[:2000])
    sets = m.predict_set_proba(p[2000:])
    assert abs(sets[np.arange(2000), y[2000:]].mean() - 0.9) < 0.02
    sizes = sets.sum(axis=1)
    assert sizes[g[2000:] == "hard"].mean() > sizes[g[2000:] == "easy"].mean() + 0.3
    assert abs(sizes.mean() - m.k_) < 0.05


def test_levels_and_bounds():
    p, y, _ = hard_and_easy(300, 3)
    m = AverageK(alpha=[0.2, 0.1]).calibrate_proba(p, y)
    assert m.k_[0] < m.k_[1]
    sets = m.predict_set_proba(p)
    assert (sets[0] <= sets[1]).all()
    with pytest.warns(InfiniteSetWarning, match="alpha 0: no number of rows gives"):
        assert m.predict_set_proba(p, alpha=0).all()
    for k in (0, -1, 4.01, float("nan")):
        with pytest.raises(MethodError, match=r"k must lie in \(0, 4\]"):
            AverageK(k=k).calibrate_proba(p, y)
    with pytest.raises(MethodError, match="takes no groups"):
        AverageK().calibrate_proba(p, y, groups=y)
    filled = AverageK(k=0.1, allow_empty=False).calibrate_proba(p, y).predict_set_proba(p)
    assert (filled.sum(axis=1) >= 1).all()
    assert filled[np.arange(300), p.argmax(axis=1)].all()
