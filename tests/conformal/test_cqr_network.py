"""Conformalised quantile network: the rule of CQR around one network, and coverage."""

import numpy as np
import pytest

from assay.conformal import ConformalizedQuantileNetwork, ConformalizedQuantileRegressor
from assay.conformal.quantile_network import QuantileNetwork

pytest.importorskip("torch")


def rows(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, size=(n, 2))
    return X, X[:, 0] + (0.1 + X[:, 1]) * rng.normal(size=n)


def test_same_interval_as_cqr_around_the_trained_network():
    X, y = rows(300, 0)
    network = QuantileNetwork(hidden=[8], max_epochs=3)
    ours = ConformalizedQuantileNetwork(network, random_state=4).fit(X[:150], y[:150], X[150:], y[150:])
    (trained,) = ours.estimator_.models
    np.testing.assert_array_equal(trained.quantiles_, [0.05, 0.95])
    cqr = ConformalizedQuantileRegressor(trained).calibrate(X[150:], y[150:])
    np.testing.assert_array_equal(ours.predict_interval(X, [0.1, 0.3]), cqr.predict_interval(X, [0.1, 0.3]))
    assert network.random_state is None
    again = ConformalizedQuantileNetwork(network, random_state=4).fit(X[:150], y[:150], X[150:], y[150:])
    np.testing.assert_array_equal(again.predict_interval(X), ours.predict_interval(X))


def test_covers_and_widens_with_the_noise():
    X, y = rows(1500, 1)
    network = QuantileNetwork(hidden=[16], learning_rate=5e-3, max_epochs=30)
    method = ConformalizedQuantileNetwork(network, random_state=0).fit(X[:500], y[:500], X[500:], y[500:])
    new, target = rows(1500, 2)
    lower, upper = method.predict_interval(new).T
    covered = (lower <= target) & (target <= upper)
    assert abs(covered.mean() - 0.9) < 0.03
    quiet, noisy = new[:, 1] < 0.3, new[:, 1] > 0.7
    assert (upper - lower)[noisy].mean() > 2 * (upper - lower)[quiet].mean()
    assert abs(covered[noisy].mean() - covered[quiet].mean()) < 0.08


def test_default_is_the_network_of_the_literature():
    X, y = rows(40, 3)
    method = ConformalizedQuantileNetwork(variant="m", random_state=0)
    method._train(X, y)
    (trained,) = method.estimator_.models
    assert [weight.shape for weight, _ in trained.layers_] == [(2, 64), (64, 64), (64, 3)]
