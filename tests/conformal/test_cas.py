"""CAS: its bounds by hand, what they lie between, and bad input."""

import numpy as np
import pytest
from scipy.stats import norm

from assay.conformal.cas import CAS
from assay.conformal.rscp import RSCP
from assay.core.errors import DataError, MethodError

N, K, M, BINS = 40, 3, 2000, 50


def samples(seed, n=N, k=K, m=M):
    rng = np.random.default_rng(seed)
    level = rng.uniform(0.05, 0.35, size=(n, k, 1))
    level[:, 0] += 0.6
    return np.clip(level + rng.normal(0, 0.1, size=(n, k, m)), 0, 1), np.zeros(n, dtype=int)


def bounds_by_hand(row, radius, error):
    """(lower mean, upper mean) of one row's samples."""
    grid = np.arange(BINS + 1) / BINS
    share = np.array([np.mean(row <= b) for b in grid])
    low = norm.cdf(norm.ppf(np.maximum(share[:-1] - error, 0)) - radius / 0.25)
    high = norm.cdf(norm.ppf(np.minimum(share[1:] + error, 1)) + radius / 0.25)
    return 1 - low.mean(), 1 - high.mean()


@pytest.mark.parametrize("side", ["test", "calibration"])
@pytest.mark.parametrize(("correction", "eta"), [("dkw", 0.001), (None, 0.0)])
@pytest.mark.parametrize("radius", [0.0, 0.1])
def test_the_rule_by_hand(side, correction, eta, radius):
    (S, y), (T, _) = samples(0), samples(1)
    error = np.sqrt(np.log((N + K) / eta) / (2 * M)) if eta else 0.0
    rank = int(np.floor((N + 1) * (0.1 - eta))) - 1
    if side == "test":
        calibrated = S[:, 0].mean(axis=1) - error
        of_rows = np.array([[bounds_by_hand(T[i, k], radius, error)[0] for k in range(K)] for i in range(N)])
    else:
        calibrated = np.array([bounds_by_hand(row, radius, error)[1] for row in S[:, 0]])
        of_rows = T.mean(axis=2) + error
    expected = of_rows >= np.sort(calibrated)[rank]
    rule = CAS(radius=radius, side=side, n_bins=BINS, correction=correction)
    np.testing.assert_array_equal(rule.calibrate(S, y).predict_set(T), expected)
    assert 0 < expected.mean() < 1


def test_without_radius_and_error_the_bounds_hold_the_mean_within_a_step():
    (S, y), (T, _) = samples(2, m=400), samples(3, m=400)
    method = CAS(correction=None, n_bins=BINS).calibrate(S, y)
    tally = method.tally(len(T), np.zeros(1))
    tally.add(T)
    upper, lower = (f(tally.cumulative(), 0.0) for f in (method.upper_means, method.lower_means))
    mean = T.mean(axis=2)
    assert (lower <= mean + 1e-12).all()
    assert (mean <= upper + 1e-12).all()
    np.testing.assert_allclose(upper - lower, 1 / BINS, atol=0.05)
    # tighter than a bound from the mean alone, but for a step of the grid
    radius = 0.1
    from_mean = norm.cdf(norm.ppf(mean) + radius / 0.25)
    assert (method.upper_means(tally.cumulative(), radius) <= from_mean + 1 / BINS).all()


def test_sets_grow_with_the_radius_and_lie_in_those_of_rscp_without_correction():
    (S, y), (T, _) = samples(4), samples(5)
    radii = [0, 0.05, 0.1, 0.3]
    sets = CAS(correction=None, n_bins=1000).calibrate(S, y).certified_sets(T, radii)
    assert (sets[:-1] <= sets[1:]).all()
    rscp = RSCP().calibrate(S, y).certified_sets(T, radii)
    assert sets.sum() <= rscp.sum() * 1.02


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"side": "both"}, "side"),
        ({"n_bins": 0}, "n_bins"),
        ({"n_bins": 1.5}, "n_bins"),
        ({"correction": "hoeffding"}, "correction"),
        ({"confidence": 0}, "confidence"),
        ({"alpha": 0.001}, "0.001 pays"),
    ],
)
def test_impossible_parameters(arguments, words):
    S, y = samples(0, m=20)
    with pytest.raises(MethodError, match=words):
        CAS(**arguments).calibrate(S, y)


def test_scores_must_lie_in_the_unit_interval():
    S, y = samples(0, m=20)
    with pytest.raises(DataError, match=r"\[0, 1\]"):
        CAS().calibrate(S * 2, y)
