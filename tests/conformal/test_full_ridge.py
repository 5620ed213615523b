"""Full conformal ridge: exact small cases and refitting on the augmented rows."""

import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import FullConformalRidge
from assay.conformal.full_ridge import _largest_covered
from assay.core.errors import AssayWarning, InfiniteSetWarning


@parametrize_with_checks([FullConformalRidge(Ridge())])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def table(n, seed=0, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, 0] - 2 * X[:, 1] + 5 + rng.normal(size=n)


@pytest.mark.parametrize("model", [Ridge(), LinearRegression(), Ridge(7.0)])
@pytest.mark.parametrize(("alpha", "ends"), [(0.4, [1, 8.5]), (0.2, [-5, 10])])
def test_mean_of_five_numbers(model, alpha, ends):
    X = np.zeros((5, 1))
    method = FullConformalRidge(model).fit(X, [1, 2, 3, 4, 10])
    np.testing.assert_allclose(method.predict_interval(X[:1], alpha), [ends], atol=1e-12)


def p_value(model, X, y, x, candidate):
    """Refit on the rows and the candidate, and count."""
    rows, targets = np.vstack([X, x]), np.append(y, candidate)
    residuals = np.abs(targets - clone(model).fit(rows, targets).predict(rows))
    return np.mean(residuals >= residuals[-1] - 1e-9)


@pytest.mark.parametrize("model", [Ridge(0.1), Ridge(20.0, fit_intercept=False), LinearRegression()])
@pytest.mark.parametrize("x", [[0.3, -0.2, 1.0], [50.0, 0, 0], [0, -8.0, 9.0], [0, 0, 1000.0]])
@pytest.mark.parametrize("alpha", [0.1, 0.4, 0.7])
def test_ends_are_where_refitting_changes_its_mind(model, x, alpha):
    X, y = table(40)
    ((lower, upper),) = FullConformalRidge(model).fit(X, y).predict_interval(np.array([x]), alpha)
    if np.isinf(lower) or np.isinf(upper):
        # far out a row's own set is unbounded; refitting agrees for candidates as far as one likes
        assert max(map(abs, x)) > 5
        for end in (lower, upper):
            assert np.isfinite(end) or p_value(model, X, y, x, np.sign(end) * 1e9) > alpha
        return
    width = upper - lower
    assert width > 0
    inner, outer = width * 1e-6, width * np.array([1e-6, 1e-3, 0.1, 0.5, 2.0, 20.0])
    assert p_value(model, X, y, x, lower + inner) > alpha
    assert p_value(model, X, y, x, upper - inner) > alpha
    for step in outer:
        assert p_value(model, X, y, x, lower - step) <= alpha
        assert p_value(model, X, y, x, upper + step) <= alpha


def test_far_row_whose_weights_exceed_one_is_finite_and_exact():
    # some |h(x, i)| > 1: change points found without regard to their sign would be wrong here
    X, y = table(100)
    x = np.array([[50.0, 0, 0]])
    method = FullConformalRidge(Ridge(0.1)).fit(X, y)
    assert np.abs(method.leverage_.coordinates(x) @ method.leverage_.rows.T).max() > 1
    ((lower, upper),) = method.predict_interval(x, 0.4)
    assert np.isfinite([lower, upper]).all()
    for inside, outside in [(lower + 1e-6, lower - 1e-6), (upper - 1e-6, upper + 1e-6)]:
        assert p_value(Ridge(0.1), X, y, x, inside) > 0.4
        assert p_value(Ridge(0.1), X, y, x, outside) <= 0.4


def test_a_grid_of_candidates_has_the_same_hull():
    X, y = table(19, d=2)
    x = np.array([[0.4, 2.0]])
    ((lower, upper),) = FullConformalRidge(Ridge(1.0)).fit(X, y).predict_interval(x, 0.2)
    grid = np.linspace(lower - 3, upper + 3, 1501)
    kept = grid[[p_value(Ridge(1.0), X, y, x, c) > 0.2 for c in grid]]
    step = grid[1] - grid[0]
    assert 0 <= kept.min() - lower <= step
    assert 0 <= upper - kept.max() <= step


def test_sweep_equals_counting_at_every_candidate_end():
    rng = np.random.default_rng(0)
    r = np.array([0.0, 1, -1, 2, -3, 0.5, 0, 4])
    h = rng.choice([-3.0, -1.0, -0.5, 0, 0.25, 1.0, 2.0], size=(200, 8))
    for need in (1, 2, 5, 8):
        got = _largest_covered(r, h, need)
        for row, u in zip(h, got, strict=True):

            def count(v, row=row):
                return int(np.sum((r - v * (row + 1)) * (r - v * (row - 1)) >= -1e-12))

            if np.isinf(u):
                assert count(1e9) >= need
            else:
                assert count(u) >= need
                assert all(count(u + s) < need for s in (1e-3, 0.1, 1.0, 10.0, 1e9))


def test_all_ways_agree_for_far_rows_and_little_memory():
    X, y = table(50)
    X_test = np.concatenate([table(20, seed=1)[0], [[100.0, 0, 0], [0, 0, -30.0]]])
    whole = FullConformalRidge().fit(X, y).predict_interval(X_test, [0.05, 0.3])
    small = FullConformalRidge(max_memory=1024).fit(X, y)
    np.testing.assert_allclose(small.predict_interval(X_test, [0.05, 0.3]), whole, rtol=1e-10)
    rows = [small.predict_interval(X_test[i : i + 1], [0.05, 0.3]) for i in range(len(X_test))]
    np.testing.assert_allclose(np.concatenate(rows, axis=1), whole, rtol=1e-10)


def rows_that_leave_the_training_rows():
    """(name, X, y, x) where x goes where no training row goes: the own weight is more than the rows tell."""
    X, y = table(12)
    constant = np.column_stack([X, np.full(12, 3.0)])
    twins = np.column_stack([X, X[:, 0]])
    rng = np.random.default_rng(1)
    wide = rng.normal(size=(6, 9))
    return [
        ("a constant column that changes", constant, y, np.array([0.3, -0.2, 1.0, 5.0])),
        ("twin columns that part", twins, y, np.array([0.3, -0.2, 1.0, -0.5])),
        ("fewer rows than columns", wide, wide[:, 0] + rng.normal(size=6), rng.normal(size=9)),
    ]


@pytest.mark.parametrize("case", rows_that_leave_the_training_rows(), ids=lambda case: case[0])
@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("alpha", [0.2, 0.4])
def test_rows_that_leave_the_training_rows_are_refitted_exactly_too(case, intercept, alpha):
    _, X, y, x = case
    model = Ridge(0.5, fit_intercept=intercept)
    ((lower, upper),) = FullConformalRidge(model).fit(X, y).predict_interval(x[None], alpha)
    assert np.isfinite([lower, upper]).all()
    step = 1e-6 * (upper - lower)
    for inside, outside in [(lower + step, lower - step), (upper - step, upper + step)]:
        assert p_value(model, X, y, x, inside) > alpha
        assert p_value(model, X, y, x, outside) <= alpha


@pytest.mark.parametrize("case", rows_that_leave_the_training_rows(), ids=lambda case: case[0])
def test_without_a_penalty_such_rows_are_met_by_every_candidate(case):
    _, X, y, x = case
    model = LinearRegression()
    assert p_value(model, X, y, x, 100.0) == 1
    method = FullConformalRidge(model).fit(X, y)
    with pytest.warns(AssayWarning, match="1 of 2 rows, first row 1, differ"):
        intervals = method.predict_interval(np.stack([X[0], x]), 0.4)
    assert np.isfinite(intervals[0]).all()
    assert intervals[1].tolist() == [-np.inf, np.inf]


def test_scale_and_shift_of_the_target():
    X, y = table(40)
    ends = FullConformalRidge().fit(X, y).predict_interval(X[:5])
    moved = FullConformalRidge().fit(X, 3 * y - 7).predict_interval(X[:5])
    np.testing.assert_allclose(moved, 3 * ends - 7, rtol=1e-9)


def test_heavy_penalty_is_nearly_the_ranks_around_the_mean():
    X, y = table(99)
    ends = FullConformalRidge(Ridge(1e12, fit_intercept=False)).fit(X, y).predict_interval(X[:3])
    rank = np.sort(np.abs(y))[89]
    np.testing.assert_allclose(ends, [[-rank, rank]] * 3, rtol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        RandomForestRegressor(),
        Ridge(positive=True),
        Ridge(solver="sag"),
        LinearRegression(positive=True),
        Ridge([1]),
    ],
)
def test_other_models_are_refused(model):
    X, y = table(20)
    with pytest.raises(ValueError, match="Ridge or LinearRegression"):
        FullConformalRidge(model).fit(X, y)


def test_sparse_is_refused():
    X, y = table(20)
    with pytest.raises(ValueError, match="X is sparse"):
        FullConformalRidge().fit(csr_array(X), y)


def test_too_few_rows_zero_rows_frames_and_copies():
    X, y = table(8)
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    method = FullConformalRidge().fit(frame, y)
    with pytest.warns(InfiniteSetWarning, match="at least 9"):
        assert np.isinf(method.predict_interval(frame[:1])).all()
    assert method.predict_interval(frame[:0], [0.1]).shape == (1, 0, 2)
    one = method.predict_interval(frame[:1], 0.3)
    assert one.shape == (1, 2)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(method)).predict_interval(frame[:1], 0.3), one)
    np.testing.assert_array_equal(clone(method).fit(frame, y).predict_interval(frame[:1], 0.3), one)


def test_covers_exactly_on_average():
    covered = []
    for seed in range(300):
        X, y = table(20, seed=seed)
        ((lower, upper),) = FullConformalRidge().fit(X[:19], y[:19]).predict_interval(X[19:], 0.2)
        covered.append(lower <= y[19] <= upper)
    assert 0.74 < np.mean(covered) < 0.87
