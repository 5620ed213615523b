"""Conformal ellipsoids: exact cases, the banana, and shapes from rows that calibrate nothing."""

import numpy as np
import pytest
from region_rows import banana, correlated

from assay.conformal.bonferroni_box import BonferroniBoxRegressor
from assay.conformal.ellipsoid import EllipsoidRegressor
from assay.core.errors import DataError, InfiniteSetWarning

# four rows with second moments diag(4, 1)
FOUR_ONE = np.array([[2.0, 1.0], [2.0, -1.0], [-2.0, 1.0], [-2.0, -1.0]])


def test_volume_of_the_specification():
    R = np.array([[0.5, 0.0], [4.0, 0.0], [0.0, 0.1], [0.0, 2.0]])
    method = EllipsoidRegressor(alpha=0.2).calibrate_pred(0 * R, R, residuals=FOUR_ONE)
    np.testing.assert_allclose(method.covariance_, np.diag([4, 1]), rtol=2e-6)
    np.testing.assert_allclose(method.scores_, [0.25, 2, 0.1, 2], rtol=1e-6)
    assert method.predict_region_pred([[7.0, 7.0]]).volume()[0] == pytest.approx(25.1327, abs=1e-4)


def test_the_unit_covariance_gives_lengths():
    R = np.random.default_rng(0).normal(size=(30, 2))
    method = EllipsoidRegressor().calibrate_pred(0 * R, R, residuals=FOUR_ONE / [2, 1])
    np.testing.assert_allclose(method.scores_, np.linalg.norm(R, axis=1), rtol=1e-6)


def test_normal_noise_reaches_its_quantile():
    R = np.random.default_rng(0).normal(size=(40_000, 2)) @ [[1.0, 0.8], [0.0, 0.6]]
    method = EllipsoidRegressor().calibrate_pred(0 * R[20_000:], R[20_000:], residuals=R[:20_000])
    region = method.predict_region_pred(np.zeros((1, 2)))
    assert region.radius[0] == pytest.approx(2.146, abs=0.02)
    assert region.volume()[0] == pytest.approx(np.pi * 4.605 * 0.6, rel=0.03)


def test_banana():
    # the specification's 0.908 and 18.24 are those of linear regression
    (X, Y), (Xc, Yc), (Xt, Yt) = banana(4000, 0), banana(2000, 1), banana(4000, 2)
    region = EllipsoidRegressor(random_state=0).fit(X, Y, Xc, Yc).predict_region(Xt)
    assert region.contains(Yt).mean() == pytest.approx(0.908, abs=0.02)
    assert region.volume().mean() == pytest.approx(18.24, rel=0.1)
    box = BonferroniBoxRegressor().fit(X, Y, Xc, Yc).predict_region(Xt)
    assert region.volume().mean() < box.volume().mean()


def test_any_linear_map_of_the_outputs():
    rows = [correlated(n, seed, 3) for seed, n in enumerate((80, 40, 25))]
    A = np.array([[2.0, 0.5, 0.0], [-1.0, 3.0, 0.2], [0.0, 0.4, 0.01]])
    b = np.array([100.0, -5.0, 0.3])
    regions = []
    for change in (lambda Y: Y, lambda Y: Y @ A.T + b):
        (X, Y), (Xc, Yc), (Xt, Yt) = [(X, change(Y)) for X, Y in rows]
        region = EllipsoidRegressor(random_state=0).fit(X, Y, Xc, Yc).predict_region(Xt)
        regions.append((region.contains(Yt), region.log_volume()))
    np.testing.assert_array_equal(regions[0][0], regions[1][0])
    gain = np.log(abs(np.linalg.det(A)))
    # the ridge of 1e-6 is on the diagonal of correlations, which the map changes
    np.testing.assert_allclose(regions[1][1], regions[0][1] + gain, atol=0.01)


def test_singular_errors_keep_a_shape():
    R = np.random.default_rng(0).normal(size=(50, 1)) * [1.0, 2.0, -1.0]
    method = EllipsoidRegressor().calibrate_pred(0 * R, R, residuals=R[:20])
    region = method.predict_region_pred(np.zeros((1, 3)))
    assert 0 < region.volume()[0] < 1e-2
    assert region.contains([[0.1, 0.2, -0.1]])[0]


def test_levels_few_rows_and_columns():
    X, Y = correlated(60, 0)
    method = EllipsoidRegressor().fit(X, Y, *correlated(8, 1))
    with pytest.warns(InfiniteSetWarning, match="8 calibration rows at alpha 0.1: at least 9"):
        region = method.predict_region(X)
    assert np.isinf(region.volume()).all()
    assert region.contains(Y + 1e100).all()
    wide, narrow = method.predict_region(X, [0.2, 0.5])
    assert (wide.radius > narrow.radius).all()
    with pytest.raises(DataError, match="y_calib has 1 outputs, 2 are expected"):
        EllipsoidRegressor().fit(X, Y, X, Y[:, 0])
    with pytest.raises(DataError, match="residuals has 3 outputs, 2 are expected"):
        EllipsoidRegressor().calibrate_pred(Y, Y, residuals=np.ones((4, 3)))
    with pytest.raises(DataError, match="0 calibration rows"):
        method.calibrate(X[:0], Y[:0])


def test_rows_set_aside_are_drawn_by_the_seed():
    X, Y = correlated(60, 0)
    a, b, c = (EllipsoidRegressor(random_state=s).fit(X, Y).predict_region(X).volume() for s in (1, 1, 2))
    np.testing.assert_array_equal(a, b)
    assert (a != c).all()
    assert len(EllipsoidRegressor(calibration_size=15).fit(X, Y).scores_) == 15
