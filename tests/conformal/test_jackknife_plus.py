"""Jackknife+: exact small cases, refits, the shortcut of linear models."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import JackknifePlusRegressor
from assay.core.errors import InfiniteSetWarning


@parametrize_with_checks([JackknifePlusRegressor(Ridge())])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


class SlowRidge(Ridge):
    """A subclass has no shortcut: it is refitted n times."""


class SlowLinear(LinearRegression):
    """A subclass has no shortcut: it is refitted n times."""


def table(n, seed=0, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, 0] - 2 * X[:, 1] + 5 + rng.normal(size=n)


MEAN_CASES = [
    ("plus", 0.2, [-13 / 3, 9]), ("plus", 0.4, [1, 9]),
    ("base", 0.2, [-8 / 3, 32 / 3]), ("minmax", 0.2, [-13 / 3, 35 / 3]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "alpha", "ends"), MEAN_CASES)
@pytest.mark.parametrize("model", [DummyRegressor(), Ridge(), LinearRegression()])
def test_mean_of_four_numbers(kind, alpha, ends, model):
    X = np.zeros((4, 1))
    method = JackknifePlusRegressor(model, method=kind).fit(X, [1, 2, 4, 9])
    np.testing.assert_allclose(method.scores_, [4, 8 / 3, 0, 20 / 3], atol=1e-12)
    np.testing.assert_allclose(method.predict_interval(X[:2], alpha), [ends, ends], atol=1e-12)


@pytest.mark.parametrize("kind", ["plus", "base", "minmax"])
@pytest.mark.parametrize(
    ("fast", "slow"),
    [(Ridge(2.5), SlowRidge(2.5)), (Ridge(0.3, fit_intercept=False), SlowRidge(0.3, fit_intercept=False)),
     (LinearRegression(), SlowLinear()),
     (LinearRegression(fit_intercept=False), SlowLinear(fit_intercept=False))],
)  # fmt: skip
def test_shortcut_equals_refitting(kind, fast, slow):
    X, y = table(80)
    X_test = np.concatenate([table(25, seed=1)[0], [[40.0, 0, 0], [0, -900.0, 7]]])
    one_fit = JackknifePlusRegressor(fast, method=kind).fit(X, y)
    refits = JackknifePlusRegressor(slow, method=kind).fit(X, y)
    assert not hasattr(one_fit, "models_")
    assert len(refits.models_) == 80
    np.testing.assert_allclose(one_fit.scores_, refits.scores_, rtol=1e-9)
    levels = [0.02, 0.1, 0.4, 0.9]
    np.testing.assert_allclose(
        one_fit.predict_interval(X_test, levels),
        refits.predict_interval(X_test, levels),
        rtol=1e-8,
        atol=1e-8,
    )


def test_shortcut_with_constant_and_repeated_columns():
    X, y = table(60)
    X = np.column_stack([X, X[:, 0], np.ones(60)])
    fast, slow = (
        JackknifePlusRegressor(LinearRegression()).fit(X, y),
        JackknifePlusRegressor(SlowLinear()).fit(X, y),
    )
    assert not hasattr(fast, "models_")
    np.testing.assert_allclose(fast.predict_interval(X[:9]), slow.predict_interval(X[:9]), rtol=1e-7)


def test_a_row_that_decides_its_own_prediction_is_refitted():
    X, y = table(30)
    X = np.column_stack([X, np.arange(30) == 4])
    assert hasattr(JackknifePlusRegressor(LinearRegression()).fit(X, y), "models_")
    assert hasattr(JackknifePlusRegressor(LinearRegression()).fit(X[:4], y[:4]), "models_")


@pytest.mark.parametrize("max_memory", [1024, 2**28])
@pytest.mark.parametrize("model", [Ridge(), make_pipeline(StandardScaler(), Ridge())])
def test_memory_bound_and_batches_do_not_matter(max_memory, model):
    X, y = table(60)
    X_test = table(20, seed=2)[0]
    for kind in ("plus", "minmax"):
        whole = JackknifePlusRegressor(model, method=kind).fit(X, y).predict_interval(X_test)
        bounded = JackknifePlusRegressor(model, method=kind, max_memory=max_memory).fit(X, y)
        np.testing.assert_allclose(bounded.predict_interval(X_test), whole, rtol=1e-10)
        rows = [bounded.predict_interval(X_test[i : i + 1]) for i in range(20)]
        np.testing.assert_allclose(np.concatenate(rows), whole, rtol=1e-10)


def test_agrees_with_mapie():
    mapie = pytest.importorskip("mapie.regression")
    X, y = table(59)
    X_test = table(40, seed=3)[0]
    peer = mapie.CrossConformalRegressor(Ridge(), confidence_level=0.9, method="plus", cv=59)
    peer.fit_conformalize(X, y)
    theirs = peer.predict_interval(X_test)[1][:, :, 0]
    ours = JackknifePlusRegressor(Ridge()).fit(X, y).predict_interval(X_test)
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_bare_leave_one_out_predictions():
    X, y = table(40)
    X_test = table(10, seed=4)[0]
    fitted = JackknifePlusRegressor(SlowRidge()).fit(X, y)
    left_out = np.array([m.predict(X[i : i + 1])[0] for i, m in enumerate(fitted.models_)])
    bare = JackknifePlusRegressor().calibrate_pred(left_out, y)
    mu = np.column_stack([m.predict(X_test) for m in fitted.models_])
    np.testing.assert_allclose(bare.predict_interval_pred(mu), fitted.predict_interval(X_test), rtol=1e-12)


def test_new_fit_and_bare_residuals_forget_the_former_fit():
    X, y = table(40)
    method = JackknifePlusRegressor(Ridge()).fit(X, y)
    method.set_params(estimator=SlowRidge()).fit(X, y)
    assert not hasattr(method, "leverage_")
    method.calibrate_pred(y, y + 1)
    assert not hasattr(method, "models_")
    assert not hasattr(method, "estimator_")


def test_too_few_rows_zero_rows_frames_and_copies():
    X, y = table(8)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    method = JackknifePlusRegressor(Ridge()).fit(frame, y)
    with pytest.warns(InfiniteSetWarning, match="at least 9"):
        assert np.isinf(method.predict_interval(frame[:1])).all()
    assert method.predict_interval(frame[:0]).shape == (0, 2)
    one = method.predict_interval(frame[:1], 0.3)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(method)).predict_interval(frame[:1], 0.3), one)
    np.testing.assert_array_equal(clone(method).fit(frame, y).predict_interval(frame[:1], 0.3), one)


def test_sparse_tables_are_refitted():
    X, y = table(20)
    sparse = JackknifePlusRegressor(Ridge(solver="auto")).fit(csr_array(X), y)
    assert len(sparse.models_) == 20
    assert sparse.predict_interval(csr_array(X[:3])).shape == (3, 2)


def test_large_offset_keeps_the_residuals():
    y = 1e9 + np.arange(1.0, 21)
    ends = (
        JackknifePlusRegressor(LinearRegression())
        .fit(np.zeros((20, 1)), y)
        .predict_interval(np.zeros((1, 1)))
    )
    small = JackknifePlusRegressor().fit(np.zeros((20, 1)), y - 1e9).predict_interval(np.zeros((1, 1)))
    np.testing.assert_allclose(ends - 1e9, small, atol=1e-6)


def test_fifty_thousand_rows_need_few_candidates():
    X, y = table(20_000, d=5)
    ends = JackknifePlusRegressor(LinearRegression(), max_memory=2**25).fit(X, y).predict_interval(X[:5000])
    half = np.sort(np.abs(y - LinearRegression().fit(X, y).predict(X)))[18_000]
    np.testing.assert_allclose((ends[:, 1] - ends[:, 0]) / 2, half, rtol=2e-3)
