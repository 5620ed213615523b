"""Out-of-bag residuals of a bootstrap ensemble."""

import numpy as np
import pytest
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal.bootstrap_residuals import BootstrapResiduals, leave_out_shares
from assay.core.errors import DataError, MethodError


@parametrize_with_checks([BootstrapResiduals(LinearRegression(), n_models=4)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_shares_by_hand():
    out = np.array([[True, False, False], [True, True, False]])
    np.testing.assert_array_equal(leave_out_shares(out), [[0.5, 0, 0.5], [0.5, 1, 0.5]])


def test_means_of_the_models_that_left_a_row_out():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 1)), rng.normal(size=40)
    method = BootstrapResiduals(DummyRegressor(), n_models=6, random_state=3).fit(X, y)
    constants = np.array([float(model.constant_[0, 0]) for model in method.models_])
    # each f_-i is a mean of some of the constants, and a prediction is the mean of the f_-i
    assert method.fitted_.min() >= constants.min()
    assert method.fitted_.max() <= constants.max()
    np.testing.assert_allclose(method.predict(X[:2]), method.fitted_.mean(), rtol=1e-12)
    np.testing.assert_allclose(method.residuals_, y - method.fitted_)
    assert method.model_weights_.sum() == pytest.approx(1)


def test_residuals_are_out_of_bag():
    """A model that remembers its rows has no error on them; out of bag it has."""
    from sklearn.neighbors import KNeighborsRegressor

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 2)), rng.normal(size=200)
    method = BootstrapResiduals(KNeighborsRegressor(1), n_models=25, random_state=0).fit(X, y)
    assert method.n_always_drawn_ == 0
    assert method.residuals_.std() > 0.9


def test_seed_decides():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 2)), rng.normal(size=60)
    a, b, c = (BootstrapResiduals(n_models=3, random_state=s).fit(X, y).residuals_ for s in (0, 0, 1))
    np.testing.assert_array_equal(a, b)
    assert not np.array_equal(a, c)


def test_bad_input():
    with pytest.raises(MethodError, match="n_models is 1"):
        BootstrapResiduals(n_models=1).fit(np.zeros((4, 1)), np.zeros(4))
    with pytest.raises(DataError, match="y is NaN in 1 of 3"):
        BootstrapResiduals().fit(np.zeros((3, 1)), [1, np.nan, 2])
