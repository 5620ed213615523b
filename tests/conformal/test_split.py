"""Split conformal prediction: exact small cases."""

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import SplitConformalRegressor
from assay.core.errors import InfiniteSetWarning, MethodError


@parametrize_with_checks([SplitConformalRegressor(LinearRegression())])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_prefit_zero_predictor_with_five_rows_is_infinite():
    method = SplitConformalRegressor(lambda X: np.zeros(len(X))).calibrate(np.zeros((5, 1)), [1, 2, 3, 4, 5])
    with pytest.warns(InfiniteSetWarning, match="at least 9"):
        np.testing.assert_array_equal(method.predict_interval(np.zeros((1, 1))), [[-np.inf, np.inf]])


def test_offset_of_a_milliard_keeps_the_residuals():
    y = 1e9 + np.arange(1, 21)
    method = SplitConformalRegressor().calibrate_pred(np.full(20, 1e9), y)
    assert method.predict_interval_pred([1e9])[0, 1] == 1e9 + 19


def test_asymmetric_needs_nineteen_rows_a_side():
    y = np.arange(18) - 20.0
    method = SplitConformalRegressor(symmetric=False).calibrate_pred(np.zeros(18), y)
    with pytest.warns(InfiniteSetWarning):
        assert np.isinf(method.predict_interval_pred([0.0])).all()
    method.calibrate_pred(np.zeros(20), np.arange(20) - 10.0)
    np.testing.assert_array_equal(method.predict_interval_pred([0.0]), [[-10.0, 9.0]])


def test_levels_stack_and_nest():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2))
    y = X[:, 0] + rng.normal(size=200)
    method = SplitConformalRegressor(random_state=0).fit(X, y)
    wide, narrow = method.predict_interval(X[:7], alpha=[0.05, 0.2])
    assert wide.shape == (7, 2)
    assert (wide[:, 0] <= narrow[:, 0]).all()
    assert (wide[:, 1] >= narrow[:, 1]).all()
    assert method.predict_interval(X[:0]).shape == (0, 2)


def test_given_calibration_rows_are_the_ones_used():
    X = np.arange(40.0)[:, None]
    y = 2 * X[:, 0]
    method = SplitConformalRegressor(LinearRegression()).fit(X, y, X, y + 3)
    np.testing.assert_allclose(method.scores_, 3)
    np.testing.assert_allclose(method.predict_interval(X[:2]), [[-3, 3], [-1, 5]])


def test_agrees_with_mapie_except_where_it_refuses():
    mapie = pytest.importorskip("mapie.regression")
    X = np.zeros((200, 1))
    y = np.random.default_rng(0).normal(size=200)
    model = LinearRegression().fit(X, y)
    for n, alpha in [(19, 0.1), (20, 0.05), (99, 0.3), (200, 0.1)]:
        peer = mapie.SplitConformalRegressor(model, confidence_level=1 - alpha, prefit=True)
        theirs = peer.conformalize(X[:n], y[:n]).predict_interval(X[:1])[1][:, :, 0]
        ours = SplitConformalRegressor(model, alpha=alpha).calibrate(X[:n], y[:n])
        np.testing.assert_allclose(ours.predict_interval(X[:1]), theirs, rtol=1e-12)
    # 19 rows at 95 % is rank 19 of 19: a valid request that MAPIE refuses by rounding
    peer = mapie.SplitConformalRegressor(model, confidence_level=0.95, prefit=True).conformalize(
        X[:19], y[:19]
    )
    with pytest.raises(ValueError, match="too low"):
        peer.predict_interval(X[:1])
    ours = SplitConformalRegressor(model, alpha=0.05).calibrate(X[:19], y[:19])
    half = np.abs(y[:19] - model.predict(X[:19])).max()
    np.testing.assert_allclose(np.ptp(ours.predict_interval(X[:1])) / 2, half)


def test_agrees_with_crepes_except_for_its_rounded_rank():
    crepes = pytest.importorskip("crepes")
    y = np.random.default_rng(0).normal(size=150)
    for n, alpha in [(20, 0.1), (60, 0.05), (100, 0.2), (150, 0.3)]:
        theirs = crepes.ConformalRegressor().fit(y[:n]).predict_int(np.zeros(1), confidence=1 - alpha)
        ours = SplitConformalRegressor(alpha=alpha).calibrate_pred(np.zeros(n), y[:n])
        np.testing.assert_array_equal(ours.predict_interval_pred([0.0]), theirs)
    # crepes truncates (1 - .9) * 10 = .99...: it gives up where the 9th of 9 is right
    with pytest.warns(UserWarning, match="too small"):
        assert np.isinf(crepes.ConformalRegressor().fit(y[:9]).predict_int(np.zeros(1), confidence=0.9)).all()
    ours = SplitConformalRegressor().calibrate_pred(np.zeros(9), y[:9])
    assert ours.predict_interval_pred([0.0])[0, 1] == np.abs(y[:9]).max()


def test_thresholds_are_selected_anew_after_each_calibration():
    method = SplitConformalRegressor().calibrate_pred(np.zeros(9), np.arange(9))
    assert method.predict_interval_pred([0.0])[0, 1] == 8
    method.calibrate_pred(np.zeros(9), np.arange(9) * 2)
    assert method.predict_interval_pred([0.0])[0, 1] == 16
    np.testing.assert_array_equal(method.scores_, np.arange(9) * 2)


def test_a_failed_fit_leaves_nothing_and_bare_predictions_have_no_model():
    X = np.arange(40.0)[:, None]
    method = SplitConformalRegressor(random_state=0)
    with pytest.raises(ValueError, match="features"):
        method.fit(X, X[:, 0], np.zeros((5, 2)), np.zeros(5))
    with pytest.raises(NotFittedError):
        method.predict_interval(X)
    with pytest.raises(NotFittedError):
        method.predict_interval_pred([0.0])
    method.calibrate_pred(np.zeros(9), np.arange(9))
    with pytest.raises(MethodError, match="bare predictions"):
        method.predict_interval(X)


def test_infinite_predictions_calibrate_and_are_refused_where_an_interval_is_asked_for():
    method = SplitConformalRegressor(alpha=0.5).calibrate_pred([0, np.inf, np.inf], [1, 1, 1])
    np.testing.assert_array_equal(method.predict_interval_pred([0]), [[-np.inf, np.inf]])
    with pytest.raises(ValueError, match="infinite in 2 of 3 rows, first at row 1"):
        method.predict_interval_pred([0, np.inf, -np.inf])
    with pytest.raises(ValueError, match="y_pred is NaN in 1 of 2 rows, first at row 1"):
        method.predict_interval_pred([np.inf, np.nan])
