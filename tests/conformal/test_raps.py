"""RAPS: exact small cases and tuning."""

import warnings

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import APSClassifier, RAPSClassifier
from assay.conformal.raps import ADAPTIVE_GRID, SIZE_GRID
from assay.core.errors import MethodError


@parametrize_with_checks([RAPSClassifier(tune="size")])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def sample(n=1500, k=20, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.full(k, 0.2), size=n)
    y = (p.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1).clip(max=k - 1)
    return p, y


def test_without_penalty_it_is_aps():
    p, y = sample()
    for randomised in (False, True):
        options = {"randomised": randomised, "random_state": 1}
        raps = RAPSClassifier(lam=0, **options).calibrate_proba(p, y)
        aps = APSClassifier(**options).calibrate_proba(p, y)
        np.testing.assert_array_equal(raps.predict_set_proba(p), aps.predict_set_proba(p))


def test_a_heavy_penalty_gives_sets_of_the_same_size():
    p, y = sample()
    ranks = (p > p[np.arange(len(p)), y][:, None]).sum(axis=1) + 1
    sizes = RAPSClassifier(lam=100, k_reg=0).calibrate_proba(p, y).predict_set_proba(p).sum(axis=1)
    k = np.sort(ranks)[int(np.ceil(0.9 * 1501)) - 1]
    assert set(sizes) <= {k - 1, k}


@pytest.mark.parametrize(("tune", "grid"), [("size", SIZE_GRID), ("adaptive", ADAPTIVE_GRID)])
def test_tuning_uses_rows_of_its_own(tune, grid):
    p, y = sample()
    m = RAPSClassifier(tune=tune, random_state=0).calibrate_proba(p, y)
    assert len(m.calibrator_.scores) == 1200
    assert m.lam_ in grid
    ranks = np.sort((p > p[np.arange(len(p)), y][:, None]).sum(axis=1) + 1)
    assert ranks[1200] <= m.k_reg_ <= ranks[1450]
    rng = np.random.default_rng(0)
    order = rng.permutation(len(p))
    again = RAPSClassifier(tune=tune, random_state=0).calibrate_proba(p[order], y[order])
    assert (again.lam_, again.k_reg_) == (m.lam_, m.k_reg_)
    np.testing.assert_array_equal(again.predict_set_proba(p), m.predict_set_proba(p))
    covered = []
    for seed in range(20):
        p, y = sample(2500, seed=seed + 1)
        m = RAPSClassifier(tune=tune, randomised=True, random_state=0).calibrate_proba(p[:500], y[:500])
        covered.append(m.predict_set_proba(p[500:])[np.arange(2000), y[500:]].mean())
    assert abs(np.mean(covered) - 0.9) < 0.012


def test_tuning_for_size_chooses_the_smallest_sets_of_the_grid():
    p, y = sample(6000)
    m = RAPSClassifier(tune="size", tuning_size=0.5, random_state=0).calibrate_proba(p, y)
    mean = {}
    for lam in SIZE_GRID:
        fixed = RAPSClassifier(lam=lam, k_reg=m.k_reg_).calibrate_proba(p, y)
        mean[lam] = fixed.predict_set_proba(p).sum(axis=1).mean()
    assert mean[m.lam_] <= min(mean.values()) * 1.02


def test_equal_rows_are_divided_like_others():
    p, y = sample(2000, 5)
    p[:1500] = np.eye(5)[y[:1500]]
    m = RAPSClassifier(tune="size", random_state=0).calibrate_proba(p, y)
    sure = np.isclose(m.calibrator_.scores, 1.0).sum()
    assert 1600 * 0.72 < sure < 1600 * 0.8
    assert len(m.calibrator_.scores) == 1600


def test_nine_rows_of_three_classes_and_two_rows_to_tune():
    p, y = sample(9, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        RAPSClassifier().calibrate_proba(p, y, classes=range(3)).predict_set_proba(p)
        m = RAPSClassifier(tune="size", alpha=0.4, random_state=0).calibrate_proba(p, y, classes=range(3))
        assert m.predict_set_proba(p).shape == (9, 3)
    assert len(m.calibrator_.scores) == 7
    with pytest.raises(ValueError, match="tuning needs"):
        RAPSClassifier(tune="size").calibrate_proba(p[:1], y[:1], classes=range(3))


def test_refused_arguments():
    p, y = sample(50)
    for options, message in [
        ({"lam": -1}, "lam must"),
        ({"k_reg": -1}, "k_reg must"),
        ({"tune": "best"}, "tune must"),
        ({"tune": "size", "tuning_size": 1.0}, "tuning_size"),
    ]:
        with pytest.raises(MethodError, match=message):
            RAPSClassifier(**options).calibrate_proba(p, y, classes=range(20))
