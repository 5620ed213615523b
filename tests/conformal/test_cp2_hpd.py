"""CP2-HPD: exact thresholds, ranks, logs, and coverage with the true model."""

import copy
import pickle

import numpy as np
import pytest
from scipy.stats import norm

from assay.conformal import ConditionalHPD
from assay.conformal.adjustments import Adjustment
from assay.conformal.checks.cp2 import GrowingNoise
from assay.core.errors import InfiniteSetWarning, MethodError


class Normal(GrowingNoise):
    """One Gaussian, which knows its own density level."""

    def hdr_log_threshold(self, X, alpha):
        return norm.logpdf(norm.ppf(1 - float(alpha) / 2)) - np.log(self.scale(X))


def test_exact_threshold_of_a_gaussian():
    X = np.array([[0.0], [0.5], [1.0]])
    c = np.exp(Normal().hdr_log_threshold(X, 0.1))
    np.testing.assert_allclose(c, 0.103136 / Normal().scale(X), rtol=1e-5)


def data(seed, n, truth):
    return truth.generate(n, np.random.default_rng(seed))


def test_monte_carlo_threshold_comes_near_the_exact_one():
    truth, known = GrowingNoise(), Normal()
    X, y = data(0, 50, truth)
    estimated = ConditionalHPD(truth, n_samples=20_000, random_state=0).calibrate(X, y)
    exact = ConditionalHPD(known, random_state=0).calibrate(X, y)
    np.testing.assert_allclose(estimated.conformity_scores(), exact.conformity_scores(), atol=0.06)


def test_exact_model_gives_a_factor_of_minus_one():
    truth = Normal()
    X, y = data(0, 20_000, truth)
    method = ConditionalHPD(truth, random_state=0).calibrate(X, y)
    log_minus_q = -np.sort(method.conformity_scores())[18_000]
    assert -np.exp(log_minus_q) == pytest.approx(-1, abs=0.03)


@pytest.mark.parametrize("adjustment", ["linear", "difference"])
def test_coverage_is_alike_at_every_noise_level(adjustment):
    truth = GrowingNoise()
    X, y = data(1, 2000, truth)
    X_test, y_test = data(2, 4000, truth)
    method = ConditionalHPD(truth, adjustment, random_state=0).calibrate(X, y)
    covered = method.predict_set(X_test).contains(y_test)
    group = np.minimum((X_test[:, 0] * 5).astype(int), 4)
    bins = np.array([covered[group == k].mean() for k in range(5)])
    assert (np.abs(bins - 0.9) <= 0.04).all(), bins


def test_one_density_level_for_all_is_not():
    truth = GrowingNoise()
    X, y = data(1, 2000, truth)
    X_test, y_test = data(2, 4000, truth)
    covered = ConditionalHPD(truth, "identity").calibrate(X, y).predict_set(X_test).contains(y_test)
    group = np.minimum((X_test[:, 0] * 5).astype(int), 4)
    assert abs(covered.mean() - 0.9) < 0.03
    assert covered[group == 0].mean() > 0.97
    assert covered[group == 4].mean() < 0.85


@pytest.mark.parametrize("adjustment", ["linear", "difference", "identity"])
def test_set_and_score_are_one_rule(adjustment):
    truth = GrowingNoise()
    X, y = data(3, 199, truth)
    method = ConditionalHPD(truth, adjustment, n_samples=100, random_state=0).calibrate(X, y)
    scores = method.conformity_scores()
    inside = method.predict_set(X).contains(y)
    np.testing.assert_array_equal(inside, scores <= np.sort(scores)[179])


def test_own_adjustment():
    # the linear map written out: f(tau, v) = tau v with tau = c, read off at phi = -1
    def times(tau, v):
        return tau * v

    own = Adjustment(times, lambda tau, v: v / tau, phi=-1.0, solve=lambda t: -t)
    truth = GrowingNoise()
    X, y = data(3, 199, truth)
    X_test, y_test = data(4, 500, truth)
    sets = [
        ConditionalHPD(truth, adjustment, n_samples=100, random_state=0).calibrate(X, y).predict_set(X_test)
        for adjustment in (own, "linear", "difference")
    ]
    np.testing.assert_allclose(sets[0].log_threshold, sets[1].log_threshold, rtol=1e-9, atol=1e-9)
    assert np.abs(sets[0].log_threshold - sets[2].log_threshold).max() > 0.01
    np.testing.assert_array_equal(sets[0].contains(y_test), sets[1].contains(y_test))


def test_linear_map_keeps_its_order_where_densities_underflow():
    # 60 outputs: densities near exp(+-200); the ratio lives on as a difference of logs
    truth = GrowingNoise(60)
    X, y = data(4, 300, truth)
    y[:5] *= 40
    method = ConditionalHPD(truth, n_samples=50, random_state=0).calibrate(X, y)
    scores = method.conformity_scores()
    assert np.isfinite(scores).all()
    assert set(np.argsort(scores)[-5:]) == set(range(5))


def test_taken_literally_the_map_would_reverse_the_order():
    # a likelier target must never score as stranger: that is what tau < 0 would do
    truth = Normal()
    X = np.full((3, 1), 0.5)
    y = np.array([[0.0], [0.3], [0.9]])
    for adjustment in ("linear", "difference"):
        scores = ConditionalHPD(truth, adjustment).calibrate(X, y).conformity_scores()
        assert (np.diff(scores) > 0).all()


def test_nine_rows_suffice_and_eight_do_not():
    truth = Normal()
    X, y = data(5, 9, truth)
    method = ConditionalHPD(truth).calibrate(X, y)
    assert np.isfinite(method.predict_interval(X)).all()
    method = ConditionalHPD(truth).calibrate(X[:8], y[:8])
    with pytest.warns(InfiniteSetWarning, match="8 calibration rows"):
        interval = method.predict_interval(X)
    np.testing.assert_array_equal(interval, np.tile([-np.inf, np.inf], (9, 1)))


def test_levels_batches_copies_and_changed_laws():
    truth = GrowingNoise()
    X, y = data(6, 80, truth)
    method = ConditionalHPD(truth, n_samples=100, random_state=0).calibrate(X, y)
    both = method.predict_interval(X, [0.1, 0.4])
    assert both.shape == (2, 80, 2)
    np.testing.assert_array_equal(both[1], method.predict_interval(X, 0.4))
    np.testing.assert_allclose(
        np.concatenate([method.predict_interval(X[i : i + 9]) for i in range(0, 80, 9)]), both[0]
    )
    tight = ConditionalHPD(truth, n_samples=100, max_memory=10_000, random_state=0).calibrate(X, y)
    np.testing.assert_allclose(tight.predict_interval(X), both[0])
    for other in (pickle.loads(pickle.dumps(method)), copy.deepcopy(method)):
        np.testing.assert_array_equal(other.predict_interval(X), both[0])
    assert method.predict_interval(X[:0]).shape == (0, 2)
    method.set_params(n_samples=200)
    with pytest.raises(MethodError, match="n_samples 100 -> 200"):
        method.predict_set(X)


def test_model_without_density_is_refused():
    class Sampler:
        def sample(self, X, n_samples, random_state):
            return np.zeros((len(X), n_samples))

    with pytest.raises(MethodError, match="no log_prob"):
        ConditionalHPD(Sampler()).calibrate(np.zeros((9, 1)), np.zeros(9))
