"""Distributions: agreement with scipy, one rule for density, cdf, quantile and draws, bad input."""

import numpy as np
import pytest
from scipy import integrate, stats

from assay.core.distributions import CategoricalDistribution, GaussianDistribution, MixtureDistribution
from assay.core.errors import DataError, MethodError
from assay.core.seeds import row_keys

RNG = np.random.default_rng(0)
MEAN, VARIANCE = RNG.normal(size=7) * 3, RNG.uniform(0.2, 4, size=7)
MEANS, VARIANCES = RNG.normal(size=(4, 7)) * 3, RNG.uniform(0.2, 4, size=(4, 7))
WEIGHTS = np.array([0.1, 0.2, 0.3, 0.4])
Y = RNG.normal(size=7) * 3


def mixture():
    return MixtureDistribution(MEANS, VARIANCES, WEIGHTS)


def scipy_mixture(i):
    return [stats.norm(m, np.sqrt(v)) for m, v in zip(MEANS[:, i], VARIANCES[:, i], strict=True)]


def test_gaussian_agrees_with_scipy():
    dist, other = GaussianDistribution(MEAN, VARIANCE), stats.norm(MEAN, np.sqrt(VARIANCE))
    np.testing.assert_allclose(dist.log_prob(Y), other.logpdf(Y), rtol=1e-13)
    np.testing.assert_allclose(dist.cdf(Y), other.cdf(Y), rtol=1e-13)
    np.testing.assert_allclose(dist.quantile(0.3), other.ppf(0.3), rtol=1e-13)
    p = [0.0, 0.05, 0.5, 1.0]
    np.testing.assert_allclose(dist.quantile(p), np.stack([other.ppf(q) for q in p]), rtol=1e-12)
    assert dist.quantile(p).shape == (4, 7)


def test_mixture_agrees_with_scipy():
    dist = mixture()
    for i in range(len(dist)):
        parts = scipy_mixture(i)
        density = sum(w * part.pdf(Y[i]) for w, part in zip(WEIGHTS, parts, strict=True))
        cdf = sum(w * part.cdf(Y[i]) for w, part in zip(WEIGHTS, parts, strict=True))
        assert dist.log_prob(Y)[i] == pytest.approx(np.log(density), rel=1e-12)
        assert dist.cdf(Y)[i] == pytest.approx(cdf, rel=1e-12)
        second = integrate.quad(
            lambda t, i=i: t * t * np.exp(dist.take([i]).log_prob([t])[0]), -40, 40, limit=200
        )[0]
        assert dist.variance[i] == pytest.approx(second - dist.mean[i] ** 2, rel=1e-7)


def test_one_component_is_a_gaussian():
    one, dist = MixtureDistribution(MEAN[None], VARIANCE[None]), GaussianDistribution(MEAN, VARIANCE)
    for name in ("log_prob", "cdf"):
        np.testing.assert_allclose(getattr(one, name)(Y), getattr(dist, name)(Y), rtol=1e-12)
    np.testing.assert_allclose(one.quantile([0.01, 0.9]), dist.quantile([0.01, 0.9]), rtol=1e-12)


@pytest.mark.parametrize("dist", [GaussianDistribution(MEAN, VARIANCE), mixture()], ids=["gauss", "mixture"])
def test_quantile_is_the_inverse_of_cdf(dist):
    levels = np.array([1e-6, 0.025, 0.5, 0.8, 1 - 1e-6])
    quantiles = dist.quantile(levels)
    assert (np.diff(quantiles, axis=0) > 0).all()
    for p, q in zip(levels, quantiles, strict=True):
        np.testing.assert_allclose(dist.cdf(q), p, rtol=1e-9)
    assert np.isneginf(dist.quantile(0)).all()
    assert np.isposinf(dist.quantile(1)).all()


@pytest.mark.parametrize("dist", [GaussianDistribution(MEAN, VARIANCE), mixture()], ids=["gauss", "mixture"])
def test_draws_follow_the_distribution(dist):
    draws = dist.sample(20_000, 3)
    assert draws.shape == (7, 20_000)
    error = dist.std / np.sqrt(20_000)
    assert (np.abs(draws.mean(axis=1) - dist.mean) < 5 * error).all()
    np.testing.assert_allclose(draws.var(axis=1), dist.variance, rtol=0.06)
    u = np.stack([dist.cdf(column) for column in draws[:, :2000].T], axis=1)
    assert min(stats.kstest(row, "uniform").pvalue for row in u) > 1e-4


def test_draws_by_key_do_not_depend_on_the_batch():
    dist, keys = mixture(), row_keys(np.arange(7.0)[:, None], 0)
    whole = dist.sample(5, keys=keys)
    np.testing.assert_array_equal(dist.take([4, 2]).sample(5, keys=keys[[4, 2]]), whole[[4, 2]])
    assert len(np.unique(whole)) == whole.size
    np.testing.assert_array_equal(dist.sample(5, 1), dist.sample(5, 1))


def test_categorical():
    proba = np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7]])
    dist = CategoricalDistribution(proba, ["b", "a", "c"])
    assert dist.mode.tolist() == ["b", "c"]
    np.testing.assert_allclose(dist.log_prob(["a", "c"]), np.log([0.5, 0.7]))
    assert np.isneginf(dist.log_prob(["c", "c"])[0])
    np.testing.assert_allclose(dist.entropy, [np.log(2), stats.entropy(proba[1])])
    draws = dist.sample(20_000, 0)
    share = [(draws[1] == label).mean() for label in ("b", "a", "c")]
    np.testing.assert_allclose(share, proba[1], atol=0.015)
    assert not (draws[0] == "c").any()
    assert CategoricalDistribution(proba).classes.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: GaussianDistribution([1.0, np.nan], 1.0), "mean is NaN in 1 of 2 rows, first at row 1"),
        (lambda: GaussianDistribution([1.0, 2.0], [1.0, 0.0]), "variance is not above 0 in 1 of 2 rows"),
        (lambda: MixtureDistribution([1.0, 2.0], 1.0), r"give \(m, n\)"),
        (lambda: MixtureDistribution(MEANS, VARIANCES, [0.5, 0.5, 0.5, 0.5]), "sum to one"),
        (lambda: MixtureDistribution(MEANS, VARIANCES[:, :3]), "variance has shape"),
        (lambda: CategoricalDistribution([[0.5, 0.6]]), "the row sums to 1.1"),
        (lambda: CategoricalDistribution([[0.5, 0.5]], ["a"]), "classes has 1 labels for 2 columns"),
        (lambda: CategoricalDistribution([[0.5, 0.5]], ["a", "b"]).log_prob(["z"]), "'z' at row 0"),
        (lambda: GaussianDistribution([1.0], 1.0).quantile(1.5), r"in \[0, 1\]"),
        (lambda: GaussianDistribution([1.0], 1.0).log_prob([1.0, 2.0]), "y has 2 rows, 1 are expected"),
    ],
)
def test_bad_input_is_refused(make, words):
    with pytest.raises(DataError, match=words):
        make()


def test_no_draws_are_refused():
    with pytest.raises(MethodError, match="n_samples"):
        GaussianDistribution([1.0], 1.0).sample(0)
