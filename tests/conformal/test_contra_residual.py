"""ResCONTRA: flow regions around any predictor."""

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

pytest.importorskip("torch", reason="needs the extra torch")

from assay.conformal.contra import FlowConformalRegressor
from assay.conformal.res_contra import ResidualFlowConformalRegressor
from assay.core.errors import DataError, MethodError

SMALL = {"n_layers": 2, "hidden": (16,), "max_epochs": 10, "random_state": 0}


def rows(n, seed):
    """Steps in x, which a tree finds and a small flow does not, with bent noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, 2))
    noise = rng.normal(size=n)
    return X, np.column_stack(
        [5 * np.sign(X[:, 0]) + noise, 5 * np.sign(X[:, 1]) + noise**2 + 0.2 * rng.normal(size=n)]
    )


def test_zero_predictor_is_contra():
    (X, Y), (Xc, Yc), (Xt, _) = rows(200, 0), rows(100, 1), rows(50, 2)
    zero = DummyRegressor(strategy="constant", constant=[0.0, 0.0])
    residual = ResidualFlowConformalRegressor(zero, **SMALL).fit(X, Y, Xc, Yc)
    plain = FlowConformalRegressor(**SMALL).fit(X, Y, Xc, Yc)
    np.testing.assert_array_equal(residual.scores_, plain.scores_)
    np.testing.assert_array_equal(residual.predict_region(Xt).volume(), plain.predict_region(Xt).volume())


def test_region_is_the_prediction_plus_the_region_of_residuals():
    forest = RandomForestRegressor(20, min_samples_leaf=5, random_state=0)
    method = ResidualFlowConformalRegressor(forest, **{**SMALL, "max_epochs": 60, "lr": 1e-2})
    method.fit(*rows(800, 0), *rows(500, 1))
    X, Y = rows(400, 2)
    region = method.predict_region(X)
    assert 0.85 < region.contains(Y).mean() < 0.95
    np.testing.assert_array_equal(method.predict(X), method.flow_.estimator_.predict(X))
    of_residuals = np.linalg.norm(method.flow_.flow_.inverse(Y - method.predict(X), X)[0], axis=1)
    np.testing.assert_array_equal(region.contains(Y), of_residuals <= region.radius)
    covariance = np.cov((rows(500, 1)[1] - method.predict(rows(500, 1)[0])).T)
    assert np.median(region.volume()) < np.pi * 4.6 * np.sqrt(np.linalg.det(covariance))
    draws = method.sample(X[:5], 400, 0)
    assert draws.shape == (5, 400, 2)
    assert np.abs(draws.mean(axis=1) - method.predict(X[:5])).max() < 2


def test_predictor_of_one_output_and_of_missing_values():
    X, Y = rows(300, 0)
    boosting = HistGradientBoostingRegressor(max_iter=5)
    method = ResidualFlowConformalRegressor(boosting, cv=3, **SMALL).fit(X, Y)
    assert method.predict(X[:4]).shape == (4, 2)
    one = ResidualFlowConformalRegressor(boosting, cv=3, **SMALL).fit(X, Y[:, 0])
    assert one.predict(X[:4]).shape == (4,)
    assert one.predict_region(X[:4]).hull().shape == (4, 2)


def test_same_seed_same_regions():
    (X, Y), (Xt, _) = rows(200, 0), rows(20, 1)
    first, second = (
        ResidualFlowConformalRegressor(RandomForestRegressor(5), **SMALL)
        .fit(X, Y)
        .predict_region(Xt)
        .volume()
        for _ in range(2)
    )
    np.testing.assert_array_equal(first, second)


def test_what_cannot_be_fitted():
    X, Y = rows(40, 0)
    with pytest.raises(MethodError, match="cv=1: give a number of folds"):
        ResidualFlowConformalRegressor(cv=1, **SMALL).fit(X, Y)
    with pytest.raises(MethodError, match="has no trained flow"):
        ResidualFlowConformalRegressor(**SMALL).calibrate(X, Y)
    with pytest.raises(DataError, match="all 40 calibration rows"):
        ResidualFlowConformalRegressor(**SMALL).fit(X, Y, X, Y)
