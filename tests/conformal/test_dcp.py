"""Distributional conformal prediction: exact levels, jumps, tails, both forms, every kind of model."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.linear_model import QuantileRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import DistributionalConformalRegressor
from assay.conformal.checks.cp2 import GrowingNoise
from assay.conformal.quantile_grid import distribution_function, quantile_function, with_tails
from assay.conformal.quantile_network import QuantileNetwork
from assay.core.errors import DataError, InfiniteSetWarning, MethodError

LEVELS = np.arange(101) / 100


@parametrize_with_checks([DistributionalConformalRegressor(QuantileRegressor(alpha=0), n_levels=3)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def uniform(n=1):
    """Quantiles of U(0, 1) at 0.01 .. 0.99: U is y itself."""
    return np.tile(LEVELS[1:-1], (n, 1))


def on_unit_interval(**more):
    return DistributionalConformalRegressor(support=(0.0, 1.0), **more)


def test_exact_scores_and_threshold():
    method = on_unit_interval(alpha=0.2).calibrate_pred(uniform(4), [0.05, 0.5, 0.93, 0.7])
    np.testing.assert_allclose(method.scores_, [0.45, 0.0, 0.43, 0.2], atol=1e-12)
    np.testing.assert_allclose(method.predict_interval_pred(uniform()), [[0.05, 0.95]], atol=1e-12)
    # ceil(0.6 * 5) = 3: q = 0.43
    np.testing.assert_allclose(method.predict_interval_pred(uniform(), 0.4), [[0.07, 0.93]], atol=1e-12)


def test_dist_split_takes_the_ranks_of_u_on_both_sides():
    u = np.arange(1, 20) / 20
    u[-1] = 0.99
    method = on_unit_interval(symmetric=False, alpha=0.2).calibrate_pred(uniform(19), u)
    # 20 * 0.1 = 2: the second smallest and the second largest U
    np.testing.assert_allclose(method.predict_interval_pred(uniform()), [[0.1, 0.9]], atol=1e-12)
    np.testing.assert_allclose(method.predict_interval_pred(uniform(), 0.1), [[0.05, 0.99]], atol=1e-12)


def test_function_and_quantile_are_inverse_also_beyond_the_ends():
    rng = np.random.default_rng(0)
    knots = with_tails(rng.normal(size=(1, 99)), (-5.0, 5.0))
    assert knots[0, 0] == -5
    assert knots[0, -1] == 5
    for p in [-0.3, 0.0, 0.004, 0.01, 0.123, 0.5, 0.99, 0.997, 1.0, 1.2]:
        below, up_to = distribution_function(knots, LEVELS, quantile_function(knots, LEVELS, p))
        np.testing.assert_allclose([below[0], up_to[0]], p, atol=1e-12)


def test_function_agrees_with_numpys_interpolation():
    rng = np.random.default_rng(1)
    knots = with_tails(rng.normal(size=(30, 99)), None)
    y = knots[:, 0] + rng.uniform(size=30) * (knots[:, -1] - knots[:, 0])
    expected = [np.interp(value, row, LEVELS) for row, value in zip(knots, y, strict=True)]
    for got in distribution_function(knots, LEVELS, y):
        np.testing.assert_allclose(got, expected, atol=1e-12)
    np.testing.assert_allclose(
        quantile_function(knots, LEVELS, 0.377), [np.interp(0.377, LEVELS, row) for row in knots]
    )


def test_where_quantiles_coincide_the_score_is_the_least_that_holds_y():
    # half of the mass sits at 0: P(Y < 0) = 0, P(Y <= 0) = 0.5, then even up to 1
    grid = np.maximum(uniform() * 2 - 1, 0.0)
    method = on_unit_interval(alpha=0.25).calibrate_pred(np.tile(grid, (3, 1)), [0.0, 0.5, 0.9])
    np.testing.assert_allclose(method.scores_, [0.0, 0.25, 0.45], atol=1e-12)
    np.testing.assert_allclose(method.predict_interval_pred(grid), [[0.0, 0.9]], atol=1e-12)
    method = on_unit_interval(alpha=0.5).calibrate_pred(grid, [0.0])
    np.testing.assert_allclose(method.predict_interval_pred(grid), [[0.0, 0.0]], atol=1e-12)


def test_targets_beyond_the_support_keep_their_order():
    method = on_unit_interval(alpha=0.25).calibrate_pred(uniform(3), [0.5, 1.2, -0.5])
    np.testing.assert_allclose(method.scores_, [0.0, 0.7, 1.0], atol=1e-12)
    np.testing.assert_allclose(method.predict_interval_pred(uniform()), [[-0.5, 1.5]], atol=1e-12)
    constant = DistributionalConformalRegressor(alpha=0.5).calibrate_pred(np.ones((1, 99)), [1.0])
    np.testing.assert_array_equal(constant.predict_interval_pred(np.full((1, 99), 3.0)), [[3.0, 3.0]])
    elsewhere = DistributionalConformalRegressor(alpha=0.5).calibrate_pred(np.ones((1, 99)), [2.0])
    np.testing.assert_array_equal(elsewhere.predict_interval_pred(np.ones((1, 99))), [[-np.inf, np.inf]])


@pytest.mark.parametrize("symmetric", [True, False])
def test_rule_and_score_are_one(symmetric):
    rng = np.random.default_rng(2)
    grid, y = np.sort(rng.normal(size=(99, 99)), axis=1), rng.normal(size=99) * 2
    method = DistributionalConformalRegressor(symmetric=symmetric).calibrate_pred(grid, y)
    lower, upper = method.predict_interval_pred(grid).T
    covered = (lower - 1e-9 <= y) & (y <= upper + 1e-9)
    if symmetric:
        assert covered.sum() == 90
    else:
        assert covered.sum() >= 90
        assert (y < lower - 1e-9).sum() <= 5
        assert (y > upper + 1e-9).sum() <= 5


class ExactQuantiles(GrowingNoise):
    """The truth of GrowingNoise as a model of 99 quantiles."""

    def predict(self, X):
        return self.scale(X)[:, None] * norm.ppf(LEVELS[1:-1])


def truth_as_quantiles():
    model = ExactQuantiles()
    return lambda X: model.predict(X)


def test_coverage_is_alike_at_every_noise_level_with_true_quantiles_and_true_draws():
    truth = GrowingNoise()
    X, y = truth.generate(2000, np.random.default_rng(1))
    X_test, y_test = truth.generate(4000, np.random.default_rng(2))
    group = np.minimum((X_test[:, 0] * 5).astype(int), 4)
    for model in (truth_as_quantiles(), truth):
        method = DistributionalConformalRegressor(model, n_samples=500, random_state=0)
        lower, upper = method.calibrate(X, np.ravel(y)).predict_interval(X_test).T
        covered = (lower <= np.ravel(y_test)) & (np.ravel(y_test) <= upper)
        bins = np.array([covered[group == k].mean() for k in range(5)])
        assert (np.abs(bins - 0.9) <= 0.04).all(), bins


def test_levels_nest_and_batches_agree():
    X, y = GrowingNoise().generate(80, np.random.default_rng(6))
    method = DistributionalConformalRegressor(GrowingNoise(), n_samples=50, random_state=0)
    method.calibrate(X, np.ravel(y))
    three = method.predict_interval(X, [0.05, 0.1, 0.4])
    assert three.shape == (3, 80, 2)
    assert (np.diff(three[:, :, 0], axis=0) >= 0).all()
    assert (np.diff(three[:, :, 1], axis=0) <= 0).all()
    parts = [method.predict_interval(X[i : i + 7], 0.1) for i in range(0, 80, 7)]
    np.testing.assert_array_equal(np.concatenate(parts), three[1])
    assert ((three[2, :, 0] < method.predict(X)) & (method.predict(X) < three[2, :, 1])).all()


def test_scikit_learn_quantile_models_and_networks_are_trained():
    pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    X = rng.uniform(size=(120, 2))
    y = X[:, 0] + 0.3 * rng.exponential(size=120)
    linear = DistributionalConformalRegressor(QuantileRegressor(alpha=0), n_levels=9, random_state=0)
    linear.fit(X, y)
    assert linear.estimator_.predict(X).shape == (120, 9)
    network = DistributionalConformalRegressor(QuantileNetwork(hidden=[8], max_epochs=3), random_state=0)
    network.fit(X[:60], y[:60], X[60:], y[60:])
    (trained,) = network.estimator_.models
    np.testing.assert_allclose(trained.quantiles_, LEVELS[1:-1])
    assert network.support_ == (y[:60].min(), y[:60].max())
    for method in (linear, network):
        lower, upper = method.predict_interval(X).T
        assert ((lower <= y) & (y <= upper)).mean() > 0.8


def test_bad_input():
    y = np.linspace(0.1, 0.9, 8)
    method = on_unit_interval().calibrate_pred(uniform(8), y)
    with pytest.warns(InfiniteSetWarning, match=r"8 calibration rows.*at least 9"):
        np.testing.assert_array_equal(method.predict_interval_pred(uniform()), [[-np.inf, np.inf]])
    with pytest.raises(DataError, match="99 predicted quantiles"):
        on_unit_interval().calibrate_pred(uniform(8)[:, :5], y)
    with pytest.raises(DataError, match="y_pred has 8 rows, y has 3"):
        on_unit_interval().calibrate_pred(uniform(8), y[:3])
    broken = uniform(8)
    broken[3, 2] = np.nan
    with pytest.raises(DataError, match="NaN"):
        on_unit_interval().calibrate_pred(broken, y)
    with pytest.raises(MethodError, match="low < high"):
        DistributionalConformalRegressor(support=(1, 0)).calibrate_pred(uniform(8), y)
    with pytest.raises(MethodError, match="n_levels"):
        DistributionalConformalRegressor(n_levels=1).calibrate_pred(uniform(8), y)
    with pytest.raises(MethodError, match="99"):
        DistributionalConformalRegressor().calibrate(np.zeros((8, 1)), y)
