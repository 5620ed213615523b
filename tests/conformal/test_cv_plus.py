"""CV+: exact small cases, brute force, MAPIE."""

import pickle
import tracemalloc

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.dummy import DummyRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold, PredefinedSplit
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import CrossValidationPlusRegressor
from assay.core.errors import DataError, InfiniteSetWarning, MethodError
from assay.core.levels import conformal_rank


@parametrize_with_checks([CrossValidationPlusRegressor(LinearRegression(), cv=3)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def table(n, seed=0, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, 0] - X[:, 1] + rng.normal(size=n)


def brute_force(method, X, alpha):
    mu = np.stack([method.models_[f].predict(X) for f in method.fold_])
    R = method.scores_[:, None]
    k = conformal_rank(len(R), alpha)
    lower = np.sort(mu - R, axis=0)[len(R) - k]
    upper = np.sort(mu + R, axis=0)[k - 1]
    ends = np.stack([lower, upper], axis=1)
    crossed = lower > upper
    ends[crossed] = ends[crossed].mean(axis=1, keepdims=True)
    return ends


def test_two_folds_of_the_mean():
    X, y = np.zeros((4, 1)), [1, 3, 5, 9]
    method = CrossValidationPlusRegressor(DummyRegressor(), cv=PredefinedSplit([0, 0, 1, 1])).fit(X, y)
    np.testing.assert_array_equal(method.scores_, [6, 4, 3, 7])
    # lower list (-5, -1, 1, 3), upper list (5, 9, 11, 13)
    for alpha, ends in [(0.2, [-5, 13]), (0.4, [-1, 11]), (0.6, [1, 9]), (0.8, [3, 5])]:
        np.testing.assert_array_equal(method.predict_interval(X[:1], alpha), [ends])


def test_equals_brute_force_to_the_last_bit():
    X, y = table(400)
    X_test = table(90, seed=1)[0]
    method = CrossValidationPlusRegressor(DecisionTreeRegressor(random_state=0), cv=7, random_state=0).fit(
        X, y
    )
    for alpha in (0.01, 0.1, 0.5, 0.93):
        np.testing.assert_array_equal(
            method.predict_interval(X_test, alpha), brute_force(method, X_test, alpha)
        )


@pytest.mark.parametrize("max_memory", [1024, 2**28])
def test_memory_bound_and_batches_do_not_matter(max_memory):
    X, y = table(300)
    X_test = table(40, seed=2)[0]
    method = CrossValidationPlusRegressor(max_memory=max_memory, random_state=0).fit(X, y)
    whole = method.predict_interval(X_test, [0.1, 0.3])
    np.testing.assert_allclose(whole[0], brute_force(method, X_test, 0.1), rtol=0, atol=1e-12)
    parts = np.concatenate(
        [method.predict_interval(X_test[i : i + 1], [0.1, 0.3]) for i in range(40)], axis=1
    )
    np.testing.assert_allclose(parts, whole, rtol=1e-12)


def test_memory_does_not_grow_as_the_product_of_rows():
    rng = np.random.default_rng(0)
    n = 20_000
    method = CrossValidationPlusRegressor().calibrate_pred(np.zeros(n), rng.normal(size=n), np.arange(n) % 10)
    mu = rng.normal(size=(n, 10)) * 0.1
    tracemalloc.start()
    method.predict_interval_pred(mu)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 120 * 2**20  # the matrix alone would be 3 GiB


@pytest.mark.parametrize(("n", "alpha"), [(19, 0.1), (20, 0.05), (99, 0.1), (203, 0.1), (203, 0.2)])
def test_agrees_with_mapie_on_the_same_folds(n, alpha):
    ours, theirs, _ = beside_mapie(n, alpha)
    np.testing.assert_allclose(ours, theirs, rtol=1e-10)


def test_mapie_takes_a_rank_too_low_where_its_level_is_rounded():
    # floor(.05 * 60) is 3; MAPIE computes with 1 - .95, which is a little more than .05, and takes the 2nd
    ours, theirs, lower = beside_mapie(59, 0.05)
    np.testing.assert_allclose(ours[:, 0], lower[2], rtol=1e-10)
    np.testing.assert_allclose(theirs[:, 0], lower[1], rtol=1e-10)
    np.testing.assert_allclose(ours[:, 1], theirs[:, 1], rtol=1e-10)


def beside_mapie(n, alpha):
    """Our intervals, MAPIE's from the same folds, and the sorted candidates of the lower end."""
    mapie = pytest.importorskip("mapie.regression")
    X, y = table(n)
    X_test = table(50, seed=3)[0]
    folds = KFold(5, shuffle=True, random_state=3)
    peer = mapie.CrossConformalRegressor(
        LinearRegression(), confidence_level=1 - alpha, method="plus", cv=folds
    )
    peer.fit_conformalize(X, y)
    method = CrossValidationPlusRegressor(cv=folds, alpha=alpha).fit(X, y)
    mu = np.stack([method.models_[f].predict(X_test) for f in method.fold_])
    lower = np.sort(mu - method.scores_[:, None], axis=0)
    return method.predict_interval(X_test), peer.predict_interval(X_test)[1][:, :, 0], lower


def test_bare_predictions_give_the_same_interval():
    X, y = table(120)
    X_test = table(20, seed=4)[0]
    fitted = CrossValidationPlusRegressor(cv=4, random_state=0).fit(X, y)
    left_out = np.array([fitted.models_[f].predict(X[i : i + 1])[0] for i, f in enumerate(fitted.fold_)])
    bare = CrossValidationPlusRegressor().calibrate_pred(left_out, y, fitted.fold_)
    mu = np.column_stack([m.predict(X_test) for m in fitted.models_])
    np.testing.assert_allclose(bare.predict_interval_pred(mu), fitted.predict_interval(X_test), rtol=1e-12)
    with pytest.raises(MethodError, match="bare predictions"):
        bare.predict_interval(X_test)
    with pytest.raises(DataError, match=r"shape \(n, 4\)"):
        bare.predict_interval_pred(mu[:, :3])
    bare.method = "base"
    assert bare.predict_interval_pred(np.zeros(3)).shape == (3, 2)


@pytest.mark.parametrize("fold", [[0, 0, 2], [-1, 0, 1], [0.0, 1.0, 1.0], [[0], [1], [1]]])
def test_refused_folds(fold):
    with pytest.raises(DataError, match="fold"):
        CrossValidationPlusRegressor().calibrate_pred([1, 2, 3], [1, 2, 3], fold)


@pytest.mark.parametrize(
    ("params", "words"),
    [({"cv": 1}, "at least 2"), ({"cv": -3}, "at least 2"), ({"method": "double"}, "method must be"),
     ({"max_memory": 0}, "max_memory"), ({"alpha": 1.5}, "alpha must"),
     ({"cv": PredefinedSplit([-1, 0, 1] * 10)}, "left out exactly once")],
)  # fmt: skip
def test_refused_parameters(params, words):
    X, y = table(30)
    with pytest.raises(ValueError, match=words):
        CrossValidationPlusRegressor(**params).fit(X, y)


def test_minmax_contains_plus_and_base_has_constant_width():
    X, y = table(150)
    X_test = table(30, seed=5)[0]
    ends = {
        kind: CrossValidationPlusRegressor(method=kind, random_state=0).fit(X, y).predict_interval(X_test)
        for kind in ("plus", "base", "minmax")
    }
    assert (ends["minmax"][:, 0] <= ends["plus"][:, 0]).all()
    assert (ends["minmax"][:, 1] >= ends["plus"][:, 1]).all()
    assert np.ptp(ends["base"][:, 1] - ends["base"][:, 0]) < 1e-12


def test_too_few_rows_are_infinite_with_a_warning():
    X, y = table(8)
    method = CrossValidationPlusRegressor(cv=4, random_state=0).fit(X, y)
    with pytest.warns(InfiniteSetWarning, match="at least 9"):
        assert np.isinf(method.predict_interval(X[:2])).all()


def test_zero_rows_one_row_frames_and_copies():
    X, y = table(60)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    method = CrossValidationPlusRegressor(random_state=0).fit(frame, pd.Series(y))
    assert method.predict_interval(frame[:0], [0.1, 0.2]).shape == (2, 0, 2)
    one = method.predict_interval(frame[:1])
    assert one.shape == (1, 2)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(method)).predict_interval(frame[:1]), one)
    np.testing.assert_array_equal(clone(method).fit(frame, y).predict_interval(frame[:1]), one)
    np.testing.assert_array_equal(method.fit(frame, y).predict_interval(frame[:1]), one)


class FailsOnThird(LinearRegression):
    count = 0

    def fit(self, X, y):
        type(self).count += 1
        if type(self).count % 3 == 0:
            raise RuntimeError("third fit")
        return super().fit(X, y)


def test_a_failed_fit_leaves_nothing():
    X, y = table(30)
    FailsOnThird.count = 0
    method = CrossValidationPlusRegressor(FailsOnThird(), cv=5)
    with pytest.raises(RuntimeError, match="third fit"):
        method.fit(X, y)
    with pytest.raises(NotFittedError):
        method.predict_interval(X)


def test_covers_on_fresh_rows():
    covered = []
    for seed in range(8):
        X, y = table(100, seed=seed)
        X_test, y_test = table(1000, seed=100 + seed)
        ends = CrossValidationPlusRegressor(random_state=seed).fit(X, y).predict_interval(X_test)
        covered.append(np.mean((ends[:, 0] <= y_test) & (y_test <= ends[:, 1])))
    assert 0.87 < np.mean(covered) < 0.94
