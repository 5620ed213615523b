"""RCP1: the rank by hand, the level for each noise, the guarantee under the worst attack, and bad input."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from assay.conformal.binary_certificate import BinaryCertificate
from assay.conformal.rcp1 import RCP1
from assay.core.errors import InfiniteSetWarning, MethodError

ALPHA = Fraction(1, 10)


def test_the_rank_by_hand():
    scores = np.random.default_rng(0).permutation(np.arange(199.0))[:, None]
    rule = RCP1(radius=0.25).calibrate(scores, n_classes=2)
    p = norm.cdf(norm.ppf(0.9) + 1)
    assert rule.raised_coverage(ALPHA, 0.25) == pytest.approx(p, abs=1e-12)
    rank = int(200 * (1 - p))
    assert rank == 2
    asked = np.array([[[0.0], [1.0]], [[2.0], [50.0]]])
    np.testing.assert_array_equal(rule.predict_set(asked), asked[:, :, 0] >= rank - 1)
    # without attack the ranks are those of split conformal sets: floor(200 / 10), also for several levels
    found = rule.certified_sets(np.array([[[18.0], [19.0]]]), [0.0, 0.25])
    np.testing.assert_array_equal(found[0], [[False, True]])
    assert found[1].all()
    still = RCP1(radius=0.0, alpha=[0.1, "1/3"]).calibrate(scores[:8], n_classes=2)
    with pytest.warns(InfiniteSetWarning, match="at least 9"):
        sets = still.predict_set(np.array([[[-1.0], [np.sort(scores[:8, 0])[2]]]]))
    assert sets[0].all()
    np.testing.assert_array_equal(sets[1], [[False, True]])


@pytest.mark.parametrize(
    ("certificate", "radius"),
    [
        (BinaryCertificate("gaussian", scale=0.5), 0.3),
        (BinaryCertificate("laplace", scale=0.5), 0.3),
        (BinaryCertificate("uniform", scale=0.5), 0.1),
        (BinaryCertificate("sparse", scale=(0.1, 0.6)), (1, 0)),
    ],
)
def test_enough_is_left_under_attack_and_no_more(certificate, radius):
    p = RCP1(certificate=certificate).raised_coverage(ALPHA, radius)
    left = certificate.lower([p, p - 1e-6], radius)
    assert left[0] >= 0.9 - 1e-12
    assert left[1] < 0.9
    # the bound of Jensen's inequality needs a convex certificate
    at = np.linspace(0, 1, 201)
    assert (np.diff(certificate.lower(at, radius), 2) >= -1e-12).all()


def test_coverage_under_the_worst_attack_of_a_linear_score():
    """Score w x + noise: moving every row against w by r is the worst, and coverage stays 1 - alpha."""
    rng = np.random.default_rng(0)
    r, sigma, n, test, covered = 0.3, 0.5, 400, 4000, []
    for _ in range(40):
        calib = 0.2 * rng.standard_normal(n) + sigma * rng.standard_normal(n)
        moved = 0.2 * rng.standard_normal(test) - r + sigma * rng.standard_normal(test)
        rule = RCP1(radius=r, certificate=BinaryCertificate("gaussian", scale=sigma))
        rule.calibrate(calib[:, None], n_classes=2)
        sets = rule.predict_set(np.repeat(moved[:, None, None], 2, axis=1))
        covered.append(sets[:, 0].mean())
    error = np.std(covered, ddof=1) / 40**0.5
    assert 0.9 - 3 * error <= np.mean(covered) <= 0.93


def test_too_few_rows_are_counted():
    p = norm.cdf(norm.ppf(0.9) + 1)
    need = int(np.ceil(1 / (1 - p))) - 1
    scores = np.arange(float(need))[:, None]
    asked = np.full((1, 2, 1), -1.0)
    assert not RCP1(radius=0.25).calibrate(scores, n_classes=2).predict_set(asked).any()
    with pytest.warns(InfiniteSetWarning, match=f"at least {need}"):
        assert RCP1(radius=0.25).calibrate(scores[1:], n_classes=2).predict_set(asked).all()


def test_more_than_one_sample_is_refused():
    with pytest.raises(MethodError, match="n_samples=1"):
        RCP1().calibrate(np.zeros((20, 2)), n_classes=2)
