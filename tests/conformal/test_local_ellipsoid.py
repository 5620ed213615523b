"""Local ellipsoids: neighbours by brute force, noise that differs between rows."""

import numpy as np
import pytest
from region_rows import correlated

from assay.conformal.ellipsoid import EllipsoidRegressor
from assay.conformal.local_ellipsoid import LocalEllipsoidRegressor
from assay.core.errors import MethodError


def nothing(X):
    return np.zeros((len(X), 2))


def test_covariances_by_brute_force():
    (S, R), (X, Y) = correlated(40, 0), correlated(30, 1)
    S[:, 1] *= 50
    X[:, 1] *= 50
    method = LocalEllipsoidRegressor(nothing, n_neighbors=0.1).calibrate(X, Y, S, R)
    region = method.predict_region(X)
    assert method.n_neighbors_ == 4
    scale = np.sqrt((R**2).mean(axis=0))
    standard = (S - S.mean(axis=0)) / S.std(axis=0)
    for i in range(len(X)):
        at = (X[i] - S.mean(axis=0)) / S.std(axis=0)
        near = np.argsort(((standard - at) ** 2).sum(axis=1))[:4]
        cov = 0.95 * R[near].T @ R[near] / 4 + 0.05 * R.T @ R / 40 + 1e-6 * np.diag(scale**2)
        np.testing.assert_allclose(region.cholesky[i] @ region.cholesky[i].T, cov, rtol=1e-9)
        assert method.scores_[i] == pytest.approx(np.sqrt(Y[i] @ np.linalg.solve(cov, Y[i])), rel=1e-9)


def test_weight_zero_is_one_shape_for_all():
    rows = correlated(60, 0), correlated(40, 1)
    X = correlated(10, 2)[0]
    local = LocalEllipsoidRegressor(weight=0, random_state=0).fit(*rows[0], *rows[1]).predict_region(X)
    whole = EllipsoidRegressor(random_state=0).fit(*rows[0], *rows[1]).predict_region(X)
    np.testing.assert_allclose(local.volume(), whole.volume(), rtol=1e-5)


def noisy(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 1))
    return X, rng.normal(size=(n, 2)) * (0.1 + X)


def test_size_follows_the_noise():
    (X, Y), (Xc, Yc), (Xt, Yt) = noisy(2000, 0), noisy(1000, 1), noisy(4000, 2)
    quiet = Xt[:, 0] < 0.2
    cover = {}
    for cls in (LocalEllipsoidRegressor, EllipsoidRegressor):
        region = cls(random_state=0).fit(X, Y, Xc, Yc).predict_region(Xt)
        inside = region.contains(Yt)
        assert inside.mean() == pytest.approx(0.9, abs=0.03)
        cover[cls] = inside[quiet].mean(), inside[~quiet].mean(), region.volume()
    assert cover[EllipsoidRegressor][0] > 0.99
    # a part of 0.05 of the covariance of all rows is much for the quietest ones
    assert cover[LocalEllipsoidRegressor][0] < 0.985
    assert cover[LocalEllipsoidRegressor][1] > cover[EllipsoidRegressor][1]
    assert cover[LocalEllipsoidRegressor][2].mean() < 0.85 * cover[EllipsoidRegressor][2].mean()


def test_memory_changes_nothing():
    rows = correlated(60, 0), correlated(40, 1)
    X = correlated(33, 2)[0]
    a, b = (
        LocalEllipsoidRegressor(max_memory=m, random_state=0).fit(*rows[0], *rows[1]).predict_region(X)
        for m in (1, 2**30)
    )
    np.testing.assert_array_equal(a.cholesky, b.cholesky)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors must be"),
        ({"n_neighbors": 1.5}, "n_neighbors must be"),
        ({"n_neighbors": True}, "n_neighbors must be"),
        ({"weight": 1.1}, "weight must lie between 0 and 1"),
    ],
)
def test_impossible_parameters(params, message):
    with pytest.raises(MethodError, match=message):
        LocalEllipsoidRegressor(**params).fit(*correlated(40, 0))


def test_more_neighbours_than_rows_is_all_of_them():
    method = LocalEllipsoidRegressor(nothing, n_neighbors=500).calibrate(
        *correlated(30, 1), *correlated(20, 0)
    )
    assert method.n_neighbors_ == 20
    with pytest.raises(ValueError, match="X has 2 features, 3 are expected"):
        method.predict_region(np.zeros((2, 2)))
