"""HPD-split: the mass of a Gaussian exactly, ranks, nesting, coverage with true and distorted models."""

import numpy as np
import pytest
from scipy.stats import norm

from assay.conformal import ConditionalHPD, HPDSplitRegressor
from assay.conformal.checks.cp2 import GrowingNoise
from assay.conformal.hpd_split import _log_level, _score
from assay.core.errors import DataError, InfiniteSetWarning, MethodError


class Normal:
    """N(0, scale^2) at every row; its draws are the quantiles at (i - 1/2) / m."""

    samples_by_row = True

    def __init__(self, scale=1.0):
        self.scale = scale

    def sample(self, X, n_samples, random_state):
        quantiles = self.scale * norm.ppf((np.arange(n_samples) + 0.5) / n_samples)
        return np.tile(quantiles, (len(X), 1))

    def log_prob(self, X, y):
        return norm.logpdf(y, scale=self.scale)


def test_mass_of_a_gaussian_and_its_threshold():
    X, y = np.zeros((4, 1)), np.array([0.1, -0.5, 1.2, 2.0])
    method = HPDSplitRegressor(Normal(), n_samples=20_000, alpha=0.25).calibrate(X, y)
    np.testing.assert_allclose(1 - method.conformity_scores(), [0.9203, 0.6171, 0.2301, 0.0455], atol=2e-4)
    # floor(0.25 * 5) = 1: the smallest H, that of y = 2
    np.testing.assert_allclose(method.predict_interval(X[:1]), [[-2.0, 2.0]], atol=1e-8)


def test_score_is_within_a_draw_of_the_share_of_likelier_draws():
    rng = np.random.default_rng(0)
    ladder = -np.sort(-rng.normal(size=(200, 40)), axis=1)
    log_p = rng.normal(size=200)
    share = (ladder > log_p[:, None]).mean(axis=1)
    middle = (share > 0) & (share < 1)
    score = _score(ladder, log_p)
    assert middle.sum() > 150
    assert ((share - score)[middle] >= -1e-12).all()
    assert ((share - score)[middle] <= 1 / 40 + 1e-12).all()


@pytest.mark.parametrize("ladder", [[3.0, 1.0, 0.0], [2.0, 2.0, -1.0], [5.0, 0.0, 0.0]])
def test_score_and_level_are_inverse(ladder):
    ladder = np.array([ladder])
    log_p = np.linspace(-4, 7, 45)
    scores = np.array([_score(ladder, np.array([value]))[0] for value in log_p])
    assert (np.diff(scores) <= 0).all()
    for score, value in zip(scores, log_p, strict=True):
        assert _log_level(ladder, score)[0] <= value
    distinct = np.flatnonzero(np.diff(scores) < 0)
    for i in distinct:
        assert _log_level(ladder, scores[i + 1])[0] > _log_level(ladder, scores[i])[0]
    assert _score(ladder, np.array([-np.inf]))[0] == np.inf


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.3, 0.6])
def test_set_and_score_are_one_rule(alpha):
    X, y = GrowingNoise().generate(199, np.random.default_rng(3))
    method = HPDSplitRegressor(GrowingNoise(), n_samples=60, random_state=0).calibrate(X, y)
    scores = method.conformity_scores()
    k = int(np.ceil(round((1 - alpha) * 200, 9)))
    np.testing.assert_array_equal(method.predict_set(X, alpha).contains(y), scores <= np.sort(scores)[k - 1])


def test_a_scale_that_is_wrong_for_all_rows_is_mended():
    rng = np.random.default_rng(5)
    X, y = np.zeros((2000, 1)), rng.normal(size=2000)
    method = HPDSplitRegressor(Normal(scale=0.5), n_samples=1000).calibrate(X, y)
    interval = method.predict_interval(X[:1])[0]
    exact = np.sort(np.abs(y))[1800]
    np.testing.assert_allclose(interval, [-exact, exact], rtol=0.01)


def test_coverage_is_alike_at_every_noise_level_and_near_that_of_exact_levels():
    truth = GrowingNoise()
    X, y = truth.generate(2000, np.random.default_rng(1))
    X_test, y_test = truth.generate(4000, np.random.default_rng(2))
    method = HPDSplitRegressor(truth, n_samples=500, random_state=0).calibrate(X, y)
    covered = method.predict_set(X_test).contains(y_test)
    group = np.minimum((X_test[:, 0] * 5).astype(int), 4)
    bins = np.array([covered[group == k].mean() for k in range(5)])
    assert (np.abs(bins - 0.9) <= 0.04).all(), bins
    # CP2 scales the same levels; with the true model both are the same sets
    other = ConditionalHPD(truth, random_state=0).calibrate(X, y).predict_interval(X_test[:50])
    ours = method.predict_interval(X_test[:50])
    ratio = np.ptp(ours, axis=1) / np.ptp(other, axis=1)
    assert abs(np.median(ratio) - 1) < 0.06


def test_levels_nest_and_batches_agree():
    X, y = GrowingNoise().generate(80, np.random.default_rng(6))
    method = HPDSplitRegressor(GrowingNoise(), n_samples=100, random_state=0).calibrate(X, y)
    three = method.predict_interval(X, [0.05, 0.1, 0.4])
    assert three.shape == (3, 80, 2)
    assert (np.diff(three[:, :, 0], axis=0) >= -1e-9).all()
    assert (np.diff(three[:, :, 1], axis=0) <= 1e-9).all()
    np.testing.assert_allclose(
        np.concatenate([method.predict_interval(X[i : i + 7], 0.1) for i in range(0, 80, 7)]), three[1]
    )
    tight = HPDSplitRegressor(GrowingNoise(), n_samples=100, max_memory=9_000, random_state=0)
    np.testing.assert_allclose(tight.calibrate(X, y).predict_interval(X, 0.1), three[1])


def test_two_outputs():
    truth = GrowingNoise(2)
    X, y = truth.generate(300, np.random.default_rng(7))
    region = HPDSplitRegressor(truth, n_samples=200, random_state=0).calibrate(X, y).predict_set(X)
    assert abs(region.contains(y).mean() - 0.9) < 0.01
    assert (region.volume() > 0).all()


def test_bad_input():
    X, y = GrowingNoise().generate(20, np.random.default_rng(8))
    method = HPDSplitRegressor(GrowingNoise(), n_samples=50, random_state=0).calibrate(X[:8], y[:8])
    with pytest.warns(InfiniteSetWarning, match=r"8 calibration rows.*at least 9"):
        assert np.isinf(method.predict_interval(X)).all()
    method.set_params(n_samples=60)
    with pytest.raises(MethodError, match="n_samples 50 -> 60"):
        method.predict_set(X)
    with pytest.raises(MethodError, match="at least 2"):
        HPDSplitRegressor(GrowingNoise(), n_samples=1).calibrate(X, y)

    class Elsewhere(Normal):
        def log_prob(self, X, y):
            return np.full(len(y), -np.inf)

    with pytest.raises(DataError, match="its own draws"):
        HPDSplitRegressor(Elsewhere()).calibrate(X, np.zeros(20))
