"""RSCP and RSCP+: the rules by hand, the limit without noise on the estimates, and bad input."""

import numpy as np
import pytest
from scipy.stats import norm

from assay.conformal.rscp import RSCP, RSCPPlus
from assay.core.errors import DataError, MethodError

M, N = 100, 50


def samples(seed, n=N, k=3):
    rng = np.random.default_rng(seed)
    level = rng.uniform(0.05, 0.3, size=(n, k, 1))
    level[:, 0] += 0.6
    return np.clip(level + rng.normal(0, 0.1, size=(n, k, M)), 0, 1), np.zeros(n, dtype=int)


@pytest.mark.parametrize("radius", [0.0, 0.05, 0.2])
def test_rscp_by_hand(radius):
    (S, y), (T, _) = samples(0), samples(1)
    q = np.sort(1 - S[:, 0].mean(axis=1))[int(np.ceil((N + 1) * 0.9)) - 1]
    lowest = norm.cdf(norm.ppf(1 - T.mean(axis=2)) - radius / 0.25)
    found = RSCP(radius=radius).calibrate(S, y).predict_set(T)
    np.testing.assert_array_equal(found, lowest <= q)


@pytest.mark.parametrize("radius", [0.0, 0.05, 0.2])
@pytest.mark.parametrize("bound", ["bernstein", "hoeffding"])
def test_rscp_plus_by_hand(radius, bound):
    (S, y), (T, _) = samples(2), samples(3)
    # alpha - 2 beta = 0.098 of 51 ranks
    q = np.sort(1 - S[:, 0].mean(axis=1))[N - int(np.floor((N + 1) * 0.098))]
    b = np.sqrt(np.log(1000) / (2 * M))
    spread = np.sqrt(2 * T.var(axis=2, ddof=1) * np.log(2000) / M) + 7 * np.log(2000) / (3 * (M - 1))
    mean = np.maximum(1 - T.mean(axis=2) - (spread if bound == "bernstein" else b), 0)
    lowest = norm.cdf(norm.ppf(mean) - radius / 0.25)
    found = RSCPPlus(radius=radius, bound=bound).calibrate(S, y).predict_set(T)
    np.testing.assert_array_equal(found, lowest <= min(q + b, 1))


@pytest.mark.parametrize(("bound", "edge"), [("hoeffding", 0.3598), ("bernstein", 0.4196)])
def test_sets_hold_all_labels_from_a_threshold_on(bound, edge):
    """Radius = noise scale, 150 samples, beta 0.001: labels of score 1 enter all at once, none before."""
    b = np.sqrt(np.log(1000) / 300)
    paid = b if bound == "hoeffding" else 7 * np.log(2000) / (3 * 149)
    assert norm.cdf(norm.ppf(1 - paid) - 1) - b == pytest.approx(edge, abs=1e-4)
    impossible = np.zeros((1, 2, 150))
    for threshold, kept in ((edge - 1e-3, False), (edge + 1e-3, True)):
        rule = RSCPPlus(radius=0.25, bound=bound).calibrate(np.full((300, 150), 1 - threshold), n_classes=2)
        assert (rule.predict_set(impossible) == kept).all()


def test_the_correction_only_adds_labels_and_so_does_the_radius():
    (S, y), (T, _) = samples(4), samples(5)
    radii = [0, 0.05, 0.1, 0.2, 0.5]
    plain = RSCP().calibrate(S, y).certified_sets(T, radii)
    paid = RSCPPlus().calibrate(S, y).certified_sets(T, radii)
    assert (plain <= paid).all()
    assert (plain[:-1] <= plain[1:]).all()
    assert (paid[:-1] <= paid[1:]).all()


def test_scores_beyond_one_have_no_bounded_mean():
    S, y = samples(0)
    for rule in (RSCP(), RSCPPlus()):
        with pytest.raises(DataError, match=r"\[0, 1\]"):
            rule.calibrate(S + 1, y)
        method = rule.calibrate(S, y)
        with pytest.raises(DataError, match=r"\[0, 1\]"):
            method.predict_set(S - 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [({"beta": 0}, "beta"), ({"beta": 0.05}, "0.1 pays"), ({"bound": "chernoff"}, "bound")],
)
def test_impossible_parameters(arguments, words):
    S, y = samples(0)
    with pytest.raises(MethodError, match=words):
        RSCPPlus(**arguments).calibrate(S, y)


def test_one_sample_has_no_variance():
    with pytest.raises(MethodError, match="at least 2 samples"):
        RSCPPlus().calibrate(np.full((20, 1), 0.5), n_classes=2)
