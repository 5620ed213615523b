"""Scores are proper and equal to their definitions."""

import numpy as np
import pytest
from scipy import integrate

from assay.core.distributions import (
    CategoricalDistribution,
    GaussianDistribution,
    MixtureDistribution,
    NumericDistribution,
)
from assay.core.scoring import brier, crps, crps_is_exact

RNG = np.random.default_rng(1)


def by_integration(dist, y):
    """The CRPS of a single row by its definition."""

    def below(t):
        return dist.cdf([t])[0] ** 2

    def above(t):
        return (1 - dist.cdf([t])[0]) ** 2

    return integrate.quad(below, -60, y, limit=400)[0] + integrate.quad(above, y, 60, limit=400)[0]


@pytest.mark.parametrize("y", [-3.0, 0.2, 7.0])
def test_crps_of_a_gaussian(y):
    dist = GaussianDistribution([0.5], [2.0])
    assert crps(dist, [y])[0] == pytest.approx(by_integration(dist, y), rel=1e-6)


@pytest.mark.parametrize("m", [1, 3, 200])
def test_crps_of_a_mixture(m):
    """3 components go over pairs, 200 by the trapezoid rule."""
    dist = MixtureDistribution(
        RNG.normal(size=(m, 1)) * 2, RNG.uniform(0.5, 2, size=(m, 1)), RNG.dirichlet(np.ones(m))
    )
    assert crps(dist, [1.0])[0] == pytest.approx(by_integration(dist, 1.0), rel=1e-6)


def test_both_ways_to_the_spread_of_a_mixture_agree():
    means, variances = RNG.normal(size=(150, 3)), RNG.uniform(0.5, 1, size=(150, 3))
    many = crps(MixtureDistribution(means, variances), np.zeros(3))
    # one component far away makes the range too long for the trapezoid rule
    weights = np.r_[np.full(150, 1 / 150), 0.0]
    far = MixtureDistribution(
        np.vstack([means, np.full(3, 1e6)]), np.vstack([variances, np.ones(3)]), weights
    )
    np.testing.assert_allclose(crps(far, np.zeros(3)), many, rtol=1e-10)


class Laplace(NumericDistribution):
    """A distribution of another kind, standard for each row."""

    def __len__(self):
        return 3

    mean = property(lambda self: np.zeros(3))
    variance = property(lambda self: np.full(3, 2.0))

    def log_prob(self, y):
        return -np.abs(y) - np.log(2)

    def cdf(self, y):
        return np.where(y < 0, 0.5 * np.exp(y), 1 - 0.5 * np.exp(-np.abs(y)))

    def take(self, rows):
        return self

    def _quantiles(self, levels):
        raise NotImplementedError

    def _draw(self, u):
        return -np.sign(u[:, :, 0] - 0.5) * np.log(1 - 2 * np.abs(u[:, :, 0] - 0.5))


def test_crps_from_draws_is_near_the_closed_form():
    y = np.array([-1.0, 0.0, 2.0])
    exact = np.abs(y) + np.exp(-np.abs(y)) - 0.75  # of a standard Laplace distribution
    assert not crps_is_exact(Laplace())
    np.testing.assert_allclose(crps(Laplace(), y), exact, atol=0.06)
    np.testing.assert_array_equal(crps(Laplace(), y), crps(Laplace(), y))


def test_the_true_distribution_has_the_least_expected_score():
    y = RNG.normal(1.0, 2.0, size=40_000)
    n = len(y)
    truth = GaussianDistribution(np.ones(n), 4.0)
    for mean, variance in ((1.3, 4.0), (1.0, 5.0), (1.0, 3.0)):
        other = GaussianDistribution(np.full(n, mean), variance)
        assert truth.log_prob(y).mean() > other.log_prob(y).mean()
        assert crps(truth, y).mean() < crps(other, y).mean()
    two = MixtureDistribution(np.tile([[-2.0], [2.0]], n), 1.0)
    drawn = two.sample(1, 0)[:, 0]
    moments = GaussianDistribution(two.mean, two.variance)
    assert two.log_prob(drawn).mean() > moments.log_prob(drawn).mean()
    assert crps(two, drawn).mean() < crps(moments, drawn).mean()


def test_true_probabilities_have_the_least_expected_score():
    """In expectation over the labels, computed exactly."""
    truth = np.array([0.6, 0.3, 0.1])
    labels = np.arange(3)

    def expected(p):
        dist = CategoricalDistribution(np.tile(p, (3, 1)))
        return truth @ -dist.log_prob(labels), truth @ brier(dist, labels)

    best = expected(truth)
    for p in ([0.7, 0.2, 0.1], [0.5, 0.4, 0.1], [1 / 3, 1 / 3, 1 / 3], [0.98, 0.01, 0.01]):
        worse = expected(np.array(p))
        assert worse[0] > best[0]
        assert worse[1] > best[1]


def test_brier_of_sure_and_of_wrong():
    dist = CategoricalDistribution([[1.0, 0.0], [1.0, 0.0], [0.5, 0.5]], ["a", "b"])
    np.testing.assert_allclose(brier(dist, ["a", "b", "a"]), [0, 2, 0.5])
