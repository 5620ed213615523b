"""Max-score boxes: sides in proportion to left-out residuals, one threshold."""

import numpy as np
import pytest
from region_rows import correlated, no_signal
from sklearn.ensemble import GradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold, cross_val_predict

from assay.conformal.bonferroni_box import BonferroniBoxRegressor
from assay.conformal.max_score_box import MaxScoreBoxRegressor
from assay.core.errors import MethodError


def test_by_hand():
    shape = np.array([[2.0, 1.0], [-2.0, -1.0]])
    R = np.array([[2.0, 0.0], [0.0, -3.0], [4.0, 1.0], [1.0, 0.5]])
    method = MaxScoreBoxRegressor(alpha=0.4).calibrate_pred(np.zeros_like(R), R, residuals=shape)
    np.testing.assert_array_equal(method.scale_, [2, 1])
    np.testing.assert_array_equal(method.scores_, [1, 3, 2, 0.5])
    # rank ceil(.6 * 5) = 3: threshold 2
    box = method.predict_region_pred([[10.0, 20.0]])
    np.testing.assert_array_equal(box.bounding_box(), [[[6, 14], [18, 22]]])
    assert box.volume()[0] == 32


def test_scale_comes_from_rows_that_the_model_has_not_seen():
    X, Y = correlated(150, 0)
    forest = RandomForestRegressor(20, random_state=0)
    method = MaxScoreBoxRegressor(forest, random_state=3).fit(X, Y, *correlated(50, 1))
    folds = KFold(5, shuffle=True, random_state=3)
    left_out = Y - cross_val_predict(forest, X, Y, cv=folds)
    np.testing.assert_allclose(method.scale_, np.sqrt((left_out**2).mean(axis=0)))
    own = np.sqrt(((Y - method.predict(X)) ** 2).mean(axis=0))
    assert (method.scale_ > 1.5 * own).all()
    assert method.shape_rows_ == 150


def test_models_of_one_output_are_one_an_output():
    X, Y = correlated(80, 0)
    boost = GradientBoostingRegressor(n_estimators=5, random_state=0)
    method = MaxScoreBoxRegressor(boost).fit(X, Y, *correlated(40, 1))
    for j in range(2):
        np.testing.assert_allclose(method.predict(X)[:, j], boost.fit(X, Y[:, j]).predict(X))
    assert method.n_features_in_ == 3


def test_smaller_than_bonferroni_where_outputs_err_together():
    rng = np.random.default_rng(0)
    common = rng.normal(size=(3000, 1))
    R = common + 0.05 * rng.normal(size=(3000, 4))
    half = R[:1000], R[1000:]
    together = MaxScoreBoxRegressor().calibrate_pred(0 * half[1], half[1], residuals=half[0])
    apart = BonferroniBoxRegressor().calibrate_pred(0 * half[1], half[1])
    ratio = (
        together.predict_region_pred(np.zeros((1, 4))).volume()
        / apart.predict_region_pred(np.zeros((1, 4))).volume()
    )
    assert ratio < 0.4


def test_without_a_shape_it_says_where_to_get_one():
    X, Y = correlated(40, 0)
    method = MaxScoreBoxRegressor(no_signal)
    with pytest.raises(MethodError, match="X_shape and y_shape"):
        method.calibrate(X, Y)
    with pytest.raises(MethodError, match="residuals of calibrate_pred"):
        method.calibrate_pred(Y, Y)
    assert not hasattr(method, "n_outputs_")
    box = method.calibrate(X, Y, *correlated(30, 1)).predict_region(X)
    same = MaxScoreBoxRegressor().calibrate_pred(0 * Y, Y, residuals=correlated(30, 1)[1])
    np.testing.assert_array_equal(box.upper, same.predict_region_pred(0 * Y).upper)
    with pytest.raises(MethodError, match="predict_region_pred"):
        same.predict_region(X)


def test_own_calibration_rows_are_inside_by_rank_to_the_last_bit():
    rng = np.random.default_rng(5)
    for _ in range(20):
        R = rng.normal(size=(19, 3)) * [1e-8, 1, 1e8]
        P = rng.normal(size=(19, 3)) * [1, 1e6, 1e-3]
        method = MaxScoreBoxRegressor(alpha=0.25).calibrate_pred(P, P + R, residuals=rng.normal(size=(9, 3)))
        assert method.predict_region_pred(P).contains(P + R).sum() == 15


def test_an_output_without_errors_leaves_the_others_alone():
    X, Y = correlated(200, 0)
    Y[:, 1] = 3.0
    method = MaxScoreBoxRegressor(LinearRegression()).fit(X[:100], Y[:100], X[100:], Y[100:])
    box = method.predict_region(X[100:])
    assert np.isfinite(box.volume()).all()
    assert box.contains(Y[100:]).mean() >= 0.9
    assert (box.upper[:, 1] - box.lower[:, 1]).max() < 1e-6
