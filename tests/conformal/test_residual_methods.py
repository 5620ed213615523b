"""What all methods on past residuals share."""

import pickle

import numpy as np
import pytest
from sklearn.base import clone

from assay.conformal.enbpi import EnbPI
from assay.conformal.kowcpi import KernelWeightedResidualInterval
from assay.conformal.nexcp import NexCP
from assay.conformal.spci import SPCI
from assay.conformal.trailing_window import TrailingWindow
from assay.core.errors import DataError

pytestmark = pytest.mark.filterwarnings("ignore:.*equal ones")
METHODS = [
    KernelWeightedResidualInterval(2),
    SPCI(window=5, n_trees=3, random_state=0),
    SPCI(window=5, n_trees=3, refit_every=7, history=50, random_state=0),
    EnbPI(past_window=30),
    NexCP(rho=0.97),
    NexCP(rho=1),
    TrailingWindow(window=40),
    TrailingWindow(window=40, sides="signed"),
]


@pytest.fixture(params=METHODS, ids=repr)
def method(request):
    return clone(request.param)


def series(n, seed=0):
    rng = np.random.default_rng(seed)
    return np.convolve(rng.normal(size=n + 4), [1, 0.7, 0.4, 0.2, 0.1], mode="valid")


def test_run_is_step_by_step_and_looks_at_no_future(method):
    x = series(110)
    whole = method.run(x, 80, 0.2)
    other = clone(method).run(np.concatenate([x[:95], 100 + series(5, seed=5)]), 80, 0.2)
    np.testing.assert_allclose(other[:16], whole[:16], rtol=1e-12)
    method.fit(x[:80])
    for t in range(80, 110):
        np.testing.assert_allclose(method.predict_interval(3.0, 0.2), 3 + whole[t - 80], rtol=1e-12)
        method.update(x[t])


def test_state_and_pickle_go_on(method):
    x = series(130)
    method.run(x[:103], 80, 0.2)
    moved = clone(method).set_state(method.get_state())
    unpickled = pickle.loads(pickle.dumps(method))
    for residual in x[103:]:
        ends = method.predict_interval(0.0, 0.2)
        np.testing.assert_allclose(moved.predict_interval(0.0, 0.2), ends, rtol=1e-12)
        np.testing.assert_array_equal(unpickled.predict_interval(0.0, 0.2), ends)
        for one in (method, moved, unpickled):
            one.update(residual)
    twice = clone(method).set_state(moved.get_state()).get_state()
    for name, value in moved.get_state().items():
        np.testing.assert_array_equal(twice[name], value)


def test_levels_are_nested_and_stacked(method):
    method.fit(series(200))
    both = method.predict_interval([0.0, 1.0], [0.4, 0.1])
    assert both.shape == (2, 2, 2)
    assert (np.diff(both[1]) >= np.diff(both[0])).all()
    np.testing.assert_array_equal(both[1, 1], method.predict_interval(1.0, 0.1))


def test_coverage_of_independent_residuals(method):
    if isinstance(method, KernelWeightedResidualInterval):
        method.set_params(min_ess=40)
    if isinstance(method, SPCI):
        method.set_params(refit_every=20, history=None)
    x = np.random.default_rng(1).normal(size=900)
    ends = method.run(x, 100, 0.2)
    covered = ((ends[:, 0] <= x[100:]) & (x[100:] <= ends[:, 1])).mean()
    assert 0.7 < covered < 0.87


def test_bad_residuals_leave_no_half_fit(method):
    with pytest.raises(DataError, match="residuals is NaN in 1 of 100"):
        method.fit(np.r_[series(99), np.nan])
    assert not hasattr(method, "history_")
    method.fit(series(100))
    before = method.predict_interval(0.0, 0.2)
    with pytest.raises(DataError):
        method.fit(np.r_[series(99), np.inf])
    with pytest.raises(DataError):
        method.update(np.nan)
    np.testing.assert_array_equal(method.predict_interval(0.0, 0.2), before)
    with pytest.raises(DataError, match="n_calib is 101"):
        method.run(series(100), 101)
    for alpha in (1, -0.1, 1.5, "x", np.nan):
        with pytest.raises(ValueError, match="alpha"):
            method.predict_interval(0.0, alpha)
    with pytest.raises(ValueError, match="y_pred is NaN"):
        method.predict_interval(np.nan)
