"""Conformal histogram regression: known histograms by brute force, nesting, exact mass, coverage."""

import numpy as np
import pytest
from scipy.stats import expon, norm
from sklearn.linear_model import QuantileRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import ConformalHistogramRegressor, DistributionalConformalRegressor
from assay.conformal.checks.cp2 import GrowingNoise
from assay.conformal.histogram_intervals import drop_edges, nested_intervals
from assay.core.errors import InfiniteSetWarning, MethodError

LEVELS = np.arange(101) / 100


@parametrize_with_checks([ConformalHistogramRegressor(QuantileRegressor(alpha=0), n_levels=3, n_bins=20)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def cumulative_of(*histograms):
    mass = np.array(histograms, dtype=float)
    return np.hstack([np.zeros((len(mass), 1)), np.cumsum(mass, axis=1)])


def shortest(histogram, mass, within, containing=None):
    """All windows tried: fewest bins, then largest mass, then leftmost."""
    found = []
    for a in range(within[0], within[1] + 1):
        for b in range(a, within[1] + 1):
            if containing is not None and not (a <= containing[0] and b >= containing[1]):
                continue
            held = sum(histogram[a : b + 1])
            if held >= mass:
                found.append((b - a, -held, a, b))
    return min(found)[2:]


def by_brute_force(histogram, masses, start):
    out = {start: shortest(histogram, masses[start], (0, len(histogram) - 1))}
    for t in range(start - 1, -1, -1):
        out[t] = shortest(histogram, masses[t], out[t + 1])
    for t in range(start + 1, len(masses)):
        out[t] = shortest(histogram, masses[t], (0, len(histogram) - 1), out[t - 1])
    return np.array([out[t] for t in range(len(masses))])


def test_a_histogram_by_hand():
    # start at 1/2: bins 1..2 hold 5/8; below, bin 1 alone; above, bin 0 joins before bin 3
    low, high = nested_intervals(
        cumulative_of([2 / 8, 3 / 8, 2 / 8, 1 / 8]), np.array([1 / 4, 1 / 2, 3 / 4, 7 / 8, 1.0]), 1
    )
    np.testing.assert_array_equal(low, [[1, 0, 0, 0, 0]])
    np.testing.assert_array_equal(high, [[1, 1, 2, 2, 3]])


@pytest.mark.parametrize("start", [0, 3, 6, 7])
@pytest.mark.parametrize("bins", [1, 2, 7, 12])
def test_nested_intervals_are_those_of_brute_force(bins, start):
    rng = np.random.default_rng(bins)
    # sixty-fourths: sums are exact, ties common, empty bins included
    counts = np.array([rng.multinomial(64, rng.dirichlet(np.full(bins, 0.5))) for _ in range(25)])
    histograms, masses = counts / 64, np.arange(1, 9) / 8
    low, high = nested_intervals(cumulative_of(*histograms), masses, start)
    for row, histogram in enumerate(histograms):
        expected = by_brute_force(histogram.tolist(), masses, start)
        np.testing.assert_array_equal(np.column_stack([low[row], high[row]]), expected)


def test_dropped_edges_leave_nested_intervals_of_exact_mass():
    rng = np.random.default_rng(0)
    histograms = rng.multinomial(64, rng.dirichlet(np.ones(10), size=6)) / 64
    cumulative, masses = cumulative_of(*histograms), np.arange(1, 21) / 21
    low, high = nested_intervals(cumulative, masses, 15)
    total = np.zeros((6, 20))
    draws = 500
    for u in (np.arange(draws) + 0.5) / draws:
        first, last = drop_edges(cumulative, masses, low, high, np.full(6, u))
        empty = first > last
        held = np.take_along_axis(cumulative, last + 1, 1) - np.take_along_axis(cumulative, first, 1)
        total += np.where(empty, 0.0, held)
        # each contains the one before, unless that is empty
        inside = (first[:, 1:] <= first[:, :-1]) & (last[:, 1:] >= last[:, :-1])
        assert (inside | empty[:, :-1]).all()
        assert not (empty[:, 1:] & ~empty[:, :-1]).any()
    np.testing.assert_allclose(total / draws, np.tile(masses, (6, 1)), atol=3e-3)


def exponential(n=1):
    """Quantiles of the unit exponential; its shortest intervals all start at 0."""
    return np.tile(expon.ppf(LEVELS[1:-1]), (n, 1))


def plain(**more):
    return ConformalHistogramRegressor(**{"support": (0.0, 8.0), "randomize": False, **more})


def test_intervals_of_an_exponential_leave_the_tail_out():
    y = expon.ppf((np.arange(99) + 0.5) / 99)
    method = plain(alpha=0.1).calibrate_pred(exponential(99), y)
    lower, upper = method.predict_interval_pred(exponential())[0]
    assert lower == 0.0
    # the 90th y is the 0.904-quantile; the grid of masses takes it for 0.91
    assert upper == pytest.approx(expon.ppf(0.91), abs=0.01)
    # DCP on the same grid needs both tails
    dcp = DistributionalConformalRegressor(support=(0.0, 8.0)).calibrate_pred(exponential(99), y)
    assert np.ptp(dcp.predict_interval_pred(exponential())[0]) > 1.15 * (upper - lower)


def test_scores_are_least_masses():
    # four even bins of 1/4: the score of the first three bins is their place in the leftmost order
    grid = np.tile(LEVELS[1:-1], (4, 1))
    method = ConformalHistogramRegressor(
        n_bins=4, n_masses=4, start=0.25, support=(0.0, 1.0), randomize=False, alpha=0.4
    ).calibrate_pred(grid, [0.1, 0.3, 0.6, 0.8])
    np.testing.assert_allclose(method.scores_, [0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(method.predict_interval_pred(grid[:1]), [[0.0, 0.75]])
    far = ConformalHistogramRegressor(support=(0.0, 1.0), alpha=0.25).calibrate_pred(
        grid[:3], [0.5, 1.3, -0.2]
    )
    np.testing.assert_allclose(far.scores_[1:], [1.3, 1.2])
    np.testing.assert_allclose(far.predict_interval_pred(grid[:1]), [[-0.3, 1.3]])


@pytest.mark.parametrize("randomize", [True, False])
def test_rule_and_score_are_one(randomize):
    rng = np.random.default_rng(2)
    grid, y = np.sort(rng.normal(size=(200, 99)), axis=1), rng.normal(size=200) * 1.3
    method = ConformalHistogramRegressor(randomize=randomize, n_bins=150, random_state=0)
    method.calibrate_pred(grid, y)
    for alpha in (0.02, 0.1, 0.5):
        threshold = np.sort(method.scores_)[int(np.ceil(round((1 - alpha) * 201, 9))) - 1]
        lower, upper = method.predict_interval_pred(grid, alpha).T
        np.testing.assert_array_equal(
            (lower - 1e-12 <= y) & (y <= upper + 1e-12), method.scores_ <= threshold
        )


def truth_as_quantiles():
    return lambda X: GrowingNoise().scale(X)[:, None] * norm.ppf(LEVELS[1:-1])


def test_coverage_is_alike_at_every_noise_level_with_true_quantiles_and_true_draws():
    truth = GrowingNoise()
    X, y = truth.generate(1000, np.random.default_rng(1))
    X_test, y_test = truth.generate(2000, np.random.default_rng(2))
    group = np.minimum((X_test[:, 0] * 5).astype(int), 4)
    for model in (truth_as_quantiles(), truth):
        method = ConformalHistogramRegressor(model, n_bins=100, n_samples=500, random_state=0)
        lower, upper = method.calibrate(X, np.ravel(y)).predict_interval(X_test).T
        covered = (lower <= np.ravel(y_test)) & (np.ravel(y_test) <= upper)
        bins = np.array([covered[group == k].mean() for k in range(5)])
        assert (np.abs(bins - 0.9) <= 0.05).all(), bins


def test_levels_nest_and_a_row_is_the_same_in_any_batch():
    X, y = GrowingNoise().generate(80, np.random.default_rng(6))
    method = ConformalHistogramRegressor(GrowingNoise(), n_bins=60, n_samples=50, random_state=0)
    method.calibrate(X, np.ravel(y))
    three = method.predict_interval(X, [0.05, 0.1, 0.4])
    assert three.shape == (3, 80, 2)
    assert (np.diff(three[:, :, 0], axis=0) >= 0).all()
    assert (np.diff(three[:, :, 1], axis=0) <= 0).all()
    parts = [method.predict_interval(X[i : i + 7], 0.1) for i in range(0, 80, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), three[1])
    # the edge bin follows the row's content and the seed, not its place
    order = np.random.default_rng(0).permutation(80)
    np.testing.assert_array_equal(method.predict_interval(X[order], 0.1), three[1][order])
    grid = np.sort(np.random.default_rng(1).normal(size=(80, 99)), axis=1)
    a, b = (
        ConformalHistogramRegressor(n_bins=60, random_state=seed).calibrate_pred(grid, np.ravel(y)).scores_
        for seed in (0, 1)
    )
    assert not np.array_equal(a, b)


def test_bad_input():
    y = np.linspace(0.1, 0.9, 8)
    method = plain().calibrate_pred(exponential(8), y)
    with pytest.warns(InfiniteSetWarning, match=r"8 calibration rows.*at least 9"):
        np.testing.assert_array_equal(method.predict_interval_pred(exponential()), [[-np.inf, np.inf]])
    with pytest.raises(MethodError, match="n_bins"):
        plain(n_bins=0).calibrate_pred(exponential(8), y)
    with pytest.raises(MethodError, match="start"):
        plain(start=90).calibrate_pred(exponential(8), y)
    # constant quantiles: a histogram of no width
    flat = ConformalHistogramRegressor(alpha=0.5).calibrate_pred(np.ones((3, 99)), np.ones(3))
    np.testing.assert_array_equal(flat.predict_interval_pred(np.full((1, 99), 2.0)), [[2.0, 2.0]])
