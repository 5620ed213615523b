"""Normalised split conformal prediction: laws of scale, floors, crepes."""

import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import NormalizedConformalRegressor, SplitConformalRegressor
from assay.core.errors import AssayWarning, DataError, InfiniteSetWarning, MethodError
from assay.core.levels import conformal_rank

FLOORED = "ignore:.*predicted spreads are below:assay.core.errors.AssayWarning"


@pytest.mark.filterwarnings(FLOORED)
@parametrize_with_checks([NormalizedConformalRegressor(LinearRegression())])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def bare(n=60, seed=0):
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.2, 3, n)
    prediction = rng.normal(size=n)
    return prediction, prediction + scale * rng.normal(size=n), scale


def test_constant_spread_is_split_conformal():
    prediction, y, _ = bare()
    ours = NormalizedConformalRegressor().calibrate_pred(prediction, y, np.ones(60))
    split = SplitConformalRegressor().calibrate_pred(prediction, y)
    np.testing.assert_array_equal(
        ours.predict_interval_pred(prediction, np.ones(60), [0.1, 0.3]),
        split.predict_interval_pred(prediction, [0.1, 0.3]),
    )


def test_exact_small_case():
    # scores 1, 2, .5, 3 / alpha .2 asks for the 4th
    method = NormalizedConformalRegressor(alpha=0.2)
    method.calibrate_pred([0, 0, 0, 0], [1, -4, 2, 1.5], [1, 2, 4, 0.5])
    np.testing.assert_array_equal(method.scores_, [1, 2, 0.5, 3])
    np.testing.assert_allclose(method.predict_interval_pred([10, 0], [2, 0.1]), [[4, 16], [-0.3, 0.3]])


@pytest.mark.filterwarnings(FLOORED)
@pytest.mark.parametrize("beta", [0.0, 0.7])
@pytest.mark.parametrize("c", [1e-6, 8.0])
def test_unit_of_the_spread_does_not_matter(beta, c):
    prediction, y, scale = bare()
    scale[:5] = -1
    for floor in (None, 0.3):
        one = NormalizedConformalRegressor(beta=beta, floor=floor)
        other = NormalizedConformalRegressor(beta=c * beta, floor=None if floor is None else c * floor)
        a = one.calibrate_pred(prediction, y, scale).predict_interval_pred(prediction, scale)
        b = other.calibrate_pred(prediction, y, c * scale).predict_interval_pred(prediction, c * scale)
        assert one.n_floored_ == other.n_floored_ >= 5
        np.testing.assert_allclose(a, b, rtol=1e-9)


def poor_spreads(n, seed):
    """Noise of one size, and few rows from which to learn it: single spreads are guessed far too small."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 5))
    return X, X[:, 0] + rng.normal(size=n)


@pytest.mark.filterwarnings(FLOORED)
def test_beta_is_found_where_spreads_are_poor_and_left_where_they_are_good():
    X, y = poor_spreads(900, 0)
    models = LinearRegression(), DecisionTreeRegressor(min_samples_leaf=3, random_state=0)
    plain = NormalizedConformalRegressor(*models, random_state=0).fit(X, y)
    found = NormalizedConformalRegressor(*models, beta="cv", random_state=0).fit(X, y)
    assert plain.beta_ == 0
    assert found.beta_ > 0
    X_new, y_new = poor_spreads(2000, 1)
    widths = {m: np.diff(m.predict_interval(X_new)).mean() for m in (plain, found)}
    assert widths[found] < 0.7 * widths[plain]
    inside = found.predict_interval(X_new)
    assert 0.86 < ((inside[:, 0] <= y_new) & (y_new <= inside[:, 1])).mean() < 0.94

    class Exact:  # knows the spread
        def __sklearn_clone__(self):
            return self

        def fit(self, X, y):
            return self

        def get_params(self, deep=True):
            return {}

        def predict(self, X):
            return np.exp(X[:, 1])

    rng = np.random.default_rng(2)
    X = rng.normal(size=(4000, 5))
    y = X[:, 0] + np.exp(X[:, 1]) * rng.uniform(-1, 1, size=4000)
    known = NormalizedConformalRegressor(LinearRegression(), Exact(), beta="cv", random_state=0).fit(X, y)
    assert known.beta_ < 0.1  # at most a tenth of the mean residual, 0.8: the centre errs a little too


def test_beta_without_a_trained_spread_model_is_nought():
    prediction, y, scale = bare()
    ours = NormalizedConformalRegressor(beta="cv").calibrate_pred(prediction, y, scale)
    plain = NormalizedConformalRegressor().calibrate_pred(prediction, y, scale)
    assert ours.beta_ == 0
    np.testing.assert_array_equal(
        ours.predict_interval_pred(prediction, scale), plain.predict_interval_pred(prediction, scale)
    )
    few = np.arange(12.0)[:, None]  # three rows for the spread model
    assert NormalizedConformalRegressor(beta="cv", random_state=0).fit(few, few[:, 0] ** 2).beta_ == 0


def test_large_beta_leads_to_constant_width():
    prediction, y, scale = bare()
    ends = NormalizedConformalRegressor(beta=1e9).calibrate_pred(prediction, y, scale)
    width = np.ptp(ends.predict_interval_pred(prediction, scale), axis=1)
    np.testing.assert_allclose(width, width[0], rtol=1e-6)


def test_agrees_with_crepes_except_for_its_rounded_rank():
    crepes = pytest.importorskip("crepes")
    for n, alpha in [(19, 0.1), (9, 0.1), (59, 0.05), (99, 0.1), (100, 0.2), (150, 0.3)]:
        prediction, y, scale = bare(n)
        ours = NormalizedConformalRegressor(alpha=alpha).calibrate_pred(prediction, y, scale)
        peer = crepes.ConformalRegressor().fit(y - prediction, sigmas=scale)
        # crepes truncates (1 - confidence)(n + 1), where 1 - .9 is a little less than .1
        truncated = int((1 - (1 - alpha)) * (n + 1))
        if truncated == n + 1 - conformal_rank(n, alpha):
            theirs = peer.predict_int(prediction, sigmas=scale, confidence=1 - alpha)
            np.testing.assert_allclose(ours.predict_interval_pred(prediction, scale), theirs, rtol=1e-12)
        elif truncated == 0:
            with pytest.warns(UserWarning, match="too small"):
                theirs = peer.predict_int(prediction, sigmas=scale, confidence=1 - alpha)
            assert np.isinf(theirs).all()
            assert np.isfinite(ours.predict_interval_pred(prediction, scale)).all()
        else:
            theirs = peer.predict_int(prediction, sigmas=scale, confidence=1 - alpha)
            assert (
                np.ptp(theirs, axis=1) > np.ptp(ours.predict_interval_pred(prediction, scale), axis=1)
            ).all()


def noisy(n=600, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    return X, X[:, 1] + (0.1 + 2 * X[:, 0]) * rng.normal(size=n)


@pytest.mark.filterwarnings(FLOORED)
def test_width_follows_the_noise_and_coverage_holds():
    covered = []
    for seed in range(5):
        X, y = noisy(seed=seed)
        X_test, y_test = noisy(2000, 50 + seed)
        ends = NormalizedConformalRegressor(LinearRegression(), random_state=seed).fit(X, y)
        ends = ends.predict_interval(X_test)
        covered.append(np.mean((ends[:, 0] <= y_test) & (y_test <= ends[:, 1])))
        width = np.ptp(ends, axis=1)
        assert width[X_test[:, 0] > 0.8].mean() > 2 * width[X_test[:, 0] < 0.2].mean()
    assert 0.87 < np.mean(covered) < 0.93


def test_spread_is_learnt_from_rows_the_centre_has_not_seen():
    # a forest nearly repeats its own training rows: their residuals would be far too small
    X, y = noisy(900)
    forest = RandomForestRegressor(20, random_state=0)
    method = NormalizedConformalRegressor(forest, random_state=0).fit(X, y)
    spread = method.scale_estimator_.predict(noisy(500, 9)[0]).mean()
    X_test, y_test = noisy(500, 9)
    actual = np.abs(y_test - method.predict(X_test)).mean()
    assert 0.8 < spread / actual < 1.25


def test_negative_spread_is_floored_counted_warned_and_still_covers():
    rng = np.random.default_rng(0)
    y, y_test = rng.normal(size=2000), rng.normal(size=2000)
    scale, scale_test = rng.normal(0.3, 1, 2000), rng.normal(0.3, 1, 2000)
    method = NormalizedConformalRegressor(floor=0.25)
    count = int((scale < 0.25).sum())
    with pytest.warns(AssayWarning, match=f"{count} of 2000 predicted spreads"):
        method.calibrate_pred(np.zeros(2000), y, scale)
    assert method.n_floored_ == count
    with pytest.warns(AssayWarning, match="of 2000 predicted spreads"):
        ends = method.predict_interval_pred(np.zeros(2000), scale_test)
    assert 0.88 < np.mean((ends[:, 0] <= y_test) & (y_test <= ends[:, 1])) < 0.92


def test_trained_models():
    X, y = noisy()
    centre = LinearRegression().fit(X[:200], y[:200])
    scale = LinearRegression().fit(X[200:300], np.abs(y[200:300] - centre.predict(X[200:300])))
    method = NormalizedConformalRegressor(centre, scale).calibrate(X[300:], y[300:])
    same = NormalizedConformalRegressor().calibrate_pred(
        centre.predict(X[300:]), y[300:], scale.predict(X[300:])
    )
    np.testing.assert_array_equal(
        method.predict_interval(X[:9]),
        same.predict_interval_pred(centre.predict(X[:9]), scale.predict(X[:9])),
    )
    with pytest.raises(MethodError, match="trained scale_estimator"):
        NormalizedConformalRegressor(centre).calibrate(X, y)


def test_all_spreads_zero_or_perfect_predictions():
    zeros = np.zeros(30)
    method = NormalizedConformalRegressor()
    with pytest.warns(AssayWarning, match="30 of 30"):
        method.calibrate_pred(zeros, np.arange(30.0), zeros)
    with pytest.warns(AssayWarning, match="1 of 1"):
        ends = method.predict_interval_pred([0.0], [0.0])
    np.testing.assert_allclose(ends, [[-27, 27]])
    X = np.arange(60.0)[:, None]
    perfect = NormalizedConformalRegressor(RandomForestRegressor(3, random_state=0), random_state=0)
    with pytest.warns(AssayWarning, match="30 of 30"):
        perfect.fit(X, np.full(60, 2.0))
    with pytest.warns(AssayWarning, match="2 of 2"):
        np.testing.assert_array_equal(perfect.predict_interval(X[:2]), [[2, 2], [2, 2]])


@pytest.mark.parametrize("params", [{"beta": -1}, {"beta": np.nan}, {"floor": 0}, {"floor": np.inf}])
def test_refused_parameters(params):
    with pytest.raises(MethodError, match="a finite number"):
        NormalizedConformalRegressor(**params).fit(*noisy(50))


def test_bad_input():
    prediction, y, scale = bare()
    with pytest.raises(DataError, match="scale has 59 rows, 60"):
        NormalizedConformalRegressor().calibrate_pred(prediction, y, scale[1:])
    scale[3] = np.nan
    with pytest.raises(DataError, match="scale is NaN in 1 of 60 rows, first at row 3"):
        NormalizedConformalRegressor().calibrate_pred(prediction, y, scale)
    method = NormalizedConformalRegressor(random_state=0)
    X, y = noisy(60)
    with pytest.raises(ValueError, match="features"):
        method.fit(X, y, X[:, :1], y)
    with pytest.raises(NotFittedError):
        method.predict_interval(X)


def test_too_few_rows_zero_rows_frames_and_copies():
    X, y = noisy()
    frame = pd.DataFrame(X, columns=["a", "b"])
    method = NormalizedConformalRegressor(random_state=0).fit(frame, pd.Series(y))
    assert method.predict_interval(frame[:0], [0.1, 0.2]).shape == (2, 0, 2)
    one = method.predict_interval(frame[:1])
    assert one.shape == (1, 2)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(method)).predict_interval(frame[:1]), one)
    np.testing.assert_array_equal(clone(method).fit(frame, y).predict_interval(frame[:1]), one)
    small = NormalizedConformalRegressor().calibrate_pred(np.zeros(5), np.arange(5), np.ones(5))
    with pytest.warns(InfiniteSetWarning, match="at least 9"):
        assert np.isinf(small.predict_interval_pred([0], [1])).all()
