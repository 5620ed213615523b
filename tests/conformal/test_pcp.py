"""Probabilistic conformal prediction: exact cases."""

import numpy as np
import pytest

from assay.conformal import PCP, ConditionalPCP, SplitConformalRegressor
from assay.conformal.checks.cp2 import GrowingNoise
from assay.core.errors import InfiniteSetWarning, MethodError


class Mean:
    """One draw a row, at the prediction 2 x."""

    samples_by_row = True

    def sample(self, X, n_samples, random_state):
        return np.repeat(2 * np.asarray(X)[:, None, :1], n_samples, axis=1)


def test_one_draw_at_the_prediction_is_split_conformal():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = rng.normal(size=60)
    pcp = PCP(Mean(), n_samples=1, random_state=0).calibrate(X, y)
    split = SplitConformalRegressor(lambda X: 2 * X[:, 0]).calibrate(X, y)
    for alpha in (0.05, 0.1, 0.3):
        np.testing.assert_array_equal(pcp.predict_interval(X, alpha), split.predict_interval(X, alpha))


def test_identity_adjustment_is_pcp_to_the_bit():
    X, y = GrowingNoise().generate(300, np.random.default_rng(1))
    a = PCP(GrowingNoise(), random_state=4).calibrate(X, y).predict_set(X)
    b = ConditionalPCP(GrowingNoise(), "identity", random_state=4).calibrate(X, y).predict_set(X)
    np.testing.assert_array_equal(a.centers, b.centers)
    np.testing.assert_array_equal(a.radius, b.radius)


def test_rank_is_exact_and_too_few_rows_are_infinite():
    y = np.arange(1.0, 10)
    pcp = PCP(n_samples=1).calibrate_samples(np.zeros((9, 1)), y)
    assert pcp.predict_set_samples([[0.0]]).radius[0] == 9
    pcp = PCP(n_samples=1).calibrate_samples(np.zeros((8, 1)), y[:8])
    with pytest.warns(InfiniteSetWarning, match=r"8 calibration rows.*at least 9"):
        region = pcp.predict_set_samples([[0.0]])
    assert region.contains([1e300]).all()
    np.testing.assert_array_equal(region.hull(), [[-np.inf, np.inf]])
    assert region.volume()[0] == np.inf


def test_no_interpolation_and_no_squared_distance_with_two_outputs():
    centers = np.zeros((9, 1, 2))
    y = np.column_stack([3.0 * np.arange(1, 10), 4.0 * np.arange(1, 10)])
    pcp = PCP(n_samples=1, alpha=0.2).calibrate_samples(centers, y)
    assert pcp.predict_set_samples(centers[:1]).radius[0] == 40.0


def test_changed_number_of_draws_is_refused():
    X, y = GrowingNoise().generate(50, np.random.default_rng(1))
    pcp = PCP(GrowingNoise(), random_state=0).calibrate(X, y)
    pcp.set_params(n_samples=20)
    with pytest.raises(MethodError, match="n_samples 50 -> 20"):
        pcp.predict_set(X)


def test_several_outputs_are_measured_in_units_of_their_spread():
    class Draws:
        """Normal draws around 0 with the spread of the training targets."""

        samples_by_row = False

        def get_params(self, deep=True):
            return {}

        def fit(self, X, y):
            self.spread_ = y.std(axis=0)
            return self

        def sample(self, X, n_samples, random_state):
            rng = np.random.default_rng(random_state)
            return rng.normal(size=(len(X), n_samples, len(self.spread_))) * self.spread_

    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(200, 1)), rng.normal(size=(200, 2))
    volumes = []
    for unit in ([1.0, 1.0], [1000.0, 0.001]):
        method = PCP(Draws(), n_samples=20, random_state=0)
        method.fit(X[:150], Y[:150] * unit, X[150:], Y[150:] * unit)
        np.testing.assert_allclose(method.scale_, Y[:150].std(axis=0) * unit)
        volumes.append(method.predict_set(X[:5]).volume())
    np.testing.assert_allclose(*volumes, rtol=1e-9)
    # one output, and models trained elsewhere, are measured as they are
    assert (PCP(Draws(), random_state=0).fit(X, Y[:, :1] * 7, X, Y[:, :1]).scale_ == 1).all()
    elsewhere = PCP(Draws().fit(X, Y * 5), random_state=0).calibrate(X, Y * 5)
    assert (elsewhere.predict_set(X[:5]).scale == 1).all()
