"""The coupling flow as a density model, by itself and under the methods that calibrate one."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import multivariate_normal

pytest.importorskip("torch", reason="needs the extra torch")

from assay.conformal.cp2 import ConditionalPCP
from assay.conformal.flow_density import FlowDensityRegressor
from assay.conformal.hpd_split import HPDSplitRegressor
from assay.conformal.pcp import PCP
from assay.core.errors import DataError


def rows(n, seed):
    """A Gaussian whose correlation is 0.6 and whose scale grows with the first feature."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, (n, 2))
    noise = rng.multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]], n)
    return X, 10 * X + (0.5 + X[:, :1]) * noise


def true_log_density(X, Y):
    z = (Y - 10 * X) / (0.5 + X[:, :1])
    return multivariate_normal([0, 0], [[1, 0.6], [0.6, 1]]).logpdf(z) - 2 * np.log(0.5 + X[:, 0])


@pytest.fixture(scope="module")
def model():
    return FlowDensityRegressor(4, (32,), lr=5e-3, max_epochs=40, random_state=0).fit(*rows(2000, 0))


def test_density_is_near_the_truth(model):
    X, Y = rows(1000, 1)
    assert true_log_density(X, Y).mean() - model.log_prob(X, Y).mean() < 0.12


def test_density_integrates_to_one(model):
    x = np.array([[0.3, 0.6]])
    side = np.linspace(-6, 6, 301)
    grid = np.stack(np.meshgrid(3 + side, 6 + side), axis=-1).reshape(1, -1, 2)
    mass = np.exp(model.log_prob_samples(x, grid)).sum() * (side[1] - side[0]) ** 2
    assert mass == pytest.approx(1, abs=5e-3)


def test_draws_follow_the_density_and_depend_on_row_and_seed_only(model):
    X, _ = rows(40, 2)
    draws = model.sample(X, 500, 3)
    assert draws.shape == (40, 500, 2)
    np.testing.assert_allclose(draws.mean(axis=1), model.predict(X), atol=0.5)
    correlation = np.corrcoef((draws - draws.mean(axis=1, keepdims=True)).reshape(-1, 2).T)[0, 1]
    assert 0.5 < correlation < 0.7
    order = np.random.default_rng(0).permutation(40)
    np.testing.assert_allclose(model.sample(X[order], 500, 3), draws[order], rtol=1e-9)
    np.testing.assert_allclose(
        np.concatenate([model.sample(X[i : i + 1], 500, 3) for i in range(40)]), draws, rtol=1e-9
    )
    assert not np.allclose(model.sample(X, 500, 4), draws)
    assert model.sample(X[:0], 7, 3).shape == (0, 7, 2)


@pytest.mark.filterwarnings("error:X does not have valid feature names")
def test_names_of_features_are_no_trouble():
    X, Y = rows(200, 2)
    frame = pd.DataFrame(X, columns=["first", "second"])
    named = FlowDensityRegressor(2, (8,), max_epochs=2, random_state=0).fit(frame, Y)
    bare = FlowDensityRegressor(2, (8,), max_epochs=2, random_state=0).fit(X, Y)
    assert np.array_equal(named.sample(frame[:5], 3, 0), bare.sample(X[:5], 3, 0))


def test_density_of_points_is_that_of_rows(model):
    X, Y = rows(30, 3)
    both = np.stack([Y, Y + 1], axis=1)
    np.testing.assert_allclose(model.log_prob_samples(X, both)[:, 0], model.log_prob(X, Y), rtol=1e-9)
    with pytest.raises(DataError, match=r"points have shape \(30, 2\), expected \(30, points, 2\)"):
        model.log_prob_samples(X, Y)


def test_far_features_change_little(model):
    X, Y = rows(5, 4)
    far, farther = X.copy(), X.copy()
    far[:, 0], farther[:, 0] = 1e3, 1e6
    np.testing.assert_allclose(model.log_prob(far, Y), model.log_prob(farther, Y))


@pytest.mark.parametrize("q", [1, 3, 5])
def test_any_number_of_outputs(q):
    rng = np.random.default_rng(q)
    X = rng.normal(size=(300, 2))
    Y = X[:, :1] + rng.normal(size=(300, q))
    model = FlowDensityRegressor(4, (16,), max_epochs=5, random_state=0).fit(X, Y)
    z = rng.normal(size=(300, q))
    np.testing.assert_allclose(model.inverse(model.forward(z, X), X)[0], z, atol=1e-10)
    moved = np.unique(np.concatenate([coupling.moved for coupling in model.flow_.couplings]))
    assert len(moved) == q


def test_same_seed_same_flow():
    X, Y = rows(100, 0)
    one, two, other = (
        FlowDensityRegressor(2, (8,), max_epochs=3, random_state=seed).fit(X, Y).log_prob(X, Y)
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(one, two)
    assert not np.allclose(one, other)


@pytest.mark.parametrize(
    "method",
    [
        ConditionalPCP(n_samples=100, random_state=0),
        PCP(n_samples=100, random_state=0),
        HPDSplitRegressor(random_state=0),
    ],
    ids=["cp2", "pcp", "hpd-split"],
)
def test_methods_that_calibrate_a_density_take_the_flow(model, method):
    method.set_params(model=model).calibrate(*rows(600, 5))
    X, Y = rows(400, 6)
    region = method.predict_region(X)
    assert 0.84 < region.contains(Y).mean() < 0.96
    volume = region.volume()
    assert (volume > 0).all()
    # the noise grows threefold, so the area of a set that follows it does up to ninefold
    growth = volume[X[:, 0] > 0.8].mean() / volume[X[:, 0] < 0.2].mean()
    assert growth > (3 if method.__class__ is not PCP else 1)


def test_cp2_trains_the_flow():
    flow = FlowDensityRegressor(2, (16,), max_epochs=20, lr=1e-2)
    method = ConditionalPCP(flow, n_samples=60, random_state=0).fit(*rows(600, 0))
    X, Y = rows(300, 1)
    assert 0.82 < method.predict_region(X).contains(Y).mean() < 0.97
    assert method.model_ is not flow
    assert method.model_.random_state is not None
