"""Split conformal prediction: exact small cases."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import SplitConformalRegressor
from assay.core.errors import InfiniteSetWarning


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
