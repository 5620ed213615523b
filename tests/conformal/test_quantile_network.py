"""The quantile network: known quantiles, repeatability, and its place inside quantile methods."""

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import ConformalizedQuantileRegressor
from assay.conformal.quantile_network import QuantileNetwork
from assay.core.errors import MethodError

torch = pytest.importorskip("torch")


def rows(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, size=(n, 2))
    scale = 0.3 + np.abs(X[:, 0])
    return X, 5 + 10 * (X[:, 1] + scale * rng.normal(size=n)), scale


def small(**more):
    return QuantileNetwork(**{"hidden": [8], "max_epochs": 3, "random_state": 0, **more})


@parametrize_with_checks(
    [QuantileNetwork([0.5], hidden=[8], max_epochs=40, learning_rate=0.03, random_state=0)]
)
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_learns_the_quantiles_of_uneven_noise():
    X, y, _ = rows(2000, 0)
    levels = (0.1, 0.5, 0.9)
    model = QuantileNetwork(levels, hidden=(32,), learning_rate=5e-3, max_epochs=40, random_state=0).fit(X, y)
    new, _, scale = rows(400, 1)
    exact = 5 + 10 * (new[:, 1:] + scale[:, None] * norm.ppf(levels))
    assert np.abs(model.predict(new) - exact).mean() < 1.2
    below = (rows(400, 1)[1][:, None] <= model.predict(new)).mean(axis=0)
    np.testing.assert_allclose(below, levels, atol=0.06)


def test_loss_is_the_mean_pinball_loss_of_the_kept_weights():
    X, y, _ = rows(200, 2)
    model = small(quantiles=[0.7], patience=None, batch_size=200, dropout=0, max_epochs=1)
    model.set_params(learning_rate=1e-12).fit(X, y)
    z = (y - model.predict(X)) / y.std()
    assert model.loss_ == pytest.approx(np.maximum(0.7 * z, -0.3 * z).mean(), rel=1e-5)


def test_same_seed_same_network_and_no_global_state():
    X, y, _ = rows(100, 3)
    before = torch.get_rng_state()
    a, b, c = small().fit(X, y), small().fit(X, y), small(random_state=1).fit(X, y)
    assert torch.equal(before, torch.get_rng_state())
    np.testing.assert_array_equal(a.predict(X), b.predict(X))
    assert not np.array_equal(a.predict(X), c.predict(X))
    assert not np.array_equal(a.predict(X), small(dropout=0).fit(X, y).predict(X))
    np.testing.assert_array_equal(a.predict(X[5:6])[0], a.predict(X)[5])


def test_quantiles_never_cross_and_one_level_is_a_vector():
    X, y, _ = rows(100, 4)
    assert (np.diff(small(quantiles=np.arange(1, 20) / 20).fit(X, y).predict(X), axis=1) >= 0).all()
    assert small(quantiles=[0.5]).fit(X, y).predict(X).shape == (100,)
    assert small().fit(X, y).predict(X[:0]).shape == (0, 3)


def test_stops_early_and_keeps_the_best():
    X, y, _ = rows(200, 5)
    losses = []
    model = small(
        learning_rate=0.05, max_epochs=200, patience=5, progress=lambda *seen: losses.append(seen)
    ).fit(X, y)
    assert model.n_epochs_ == len(losses) < 200
    assert model.loss_ == min(loss for _, _, loss in losses)
    assert losses[0][:2] == (1, 200)


@pytest.mark.parametrize("wrap", [lambda net: net, lambda net: make_pipeline(StandardScaler(), net)])
def test_one_network_serves_all_quantiles_of_cqr(wrap):
    X, y, _ = rows(200, 6)
    method = ConformalizedQuantileRegressor(wrap(small()), alpha=0.2, variant="m").fit(X, y)
    (model,) = method.estimator_.models
    fitted = model[-1] if hasattr(model, "steps") else model
    np.testing.assert_array_equal(fitted.quantiles_, [0.1, 0.5, 0.9])
    assert method.predict_interval(X).shape == (200, 2)


@pytest.mark.parametrize(
    ("params", "match"),
    [
        ({"quantiles": [0.5, 1.0]}, r"in \(0, 1\)"),
        ({"quantiles": []}, r"in \(0, 1\)"),
        ({"quantiles": [0.5, 0.1]}, "increase"),
        ({"dropout": 1.0}, "dropout"),
        ({"hidden": [0]}, "at least 1"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"validation_fraction": 1.0}, "validation_fraction"),
    ],
)
def test_impossible_parameters(params, match):
    X, y, _ = rows(30, 7)
    with pytest.raises(MethodError, match=match):
        clone(small()).set_params(**params).fit(X, y)
