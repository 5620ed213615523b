"""Conformalized quantile regression: exact small cases, variants, what a model must offer, MAPIE."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import GradientBoostingRegressor, HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LinearRegression, QuantileRegressor, SGDRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import ConformalizedQuantileRegressor
from assay.core.errors import AssayWarning, DataError, InfiniteSetWarning, MethodError


@parametrize_with_checks([ConformalizedQuantileRegressor(QuantileRegressor(alpha=0))])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


UNIT = np.tile([0.0, 1.0], (4, 1))
Y = np.array([-0.2, 0.5, 0.9, 1.6])


def test_unit_interval_and_four_rows():
    method = ConformalizedQuantileRegressor(alpha=0.2).calibrate_pred(UNIT, Y)
    np.testing.assert_allclose(method.scores_, [0.2, -0.5, -0.1, 0.6])
    np.testing.assert_allclose(method.predict_interval_pred(UNIT[:1]), [[-0.6, 1.6]])
    # the rank 1 score is negative: the quantiles move inwards; [0, 1] shrinks past itself and is empty
    lower, upper = method.predict_interval_pred([[0.0, 1.0], [0.0, 0.5]], 0.8).T
    np.testing.assert_allclose(lower, [0.5, 0.5])
    np.testing.assert_allclose(upper, [0.5, 0.0])
    assert (lower > upper).tolist() == [False, True]


def test_asymmetric_ranks_at_half_the_level_on_each_side():
    method = ConformalizedQuantileRegressor(symmetric=False).calibrate_pred(UNIT, Y)
    # below: (.2, -.5, -.9, -1.6), above: (-1.2, -.5, -.1, .6); alpha .4 gives rank 4, .8 rank 3
    np.testing.assert_allclose(method.predict_interval_pred(UNIT[:1], 0.4), [[-0.2, 1.6]])
    np.testing.assert_allclose(method.predict_interval_pred(UNIT[:1], 0.8), [[0.5, 0.9]])
    with pytest.warns(InfiniteSetWarning):
        assert np.isinf(method.predict_interval_pred(UNIT[:1], 0.2)).all()


def test_crossed_quantiles_are_put_in_order_before_scoring():
    straight = ConformalizedQuantileRegressor(alpha=0.2).calibrate_pred(UNIT, Y)
    crossed = ConformalizedQuantileRegressor(alpha=0.2).calibrate_pred(UNIT[:, ::-1], Y)
    np.testing.assert_array_equal(straight.scores_, crossed.scores_)
    np.testing.assert_array_equal(
        straight.predict_interval_pred(UNIT), crossed.predict_interval_pred(UNIT[:, ::-1])
    )


def test_variant_r_divides_by_the_distance_of_the_quantiles():
    q = np.array([[0, 1], [0, 2], [0, 4], [0, 0.0]])
    y = np.array([1.5, 3, 5, 0.0])  # scores .5, .5, .25 and -0 of the floor
    method = ConformalizedQuantileRegressor(variant="r", alpha=0.2).calibrate_pred(q, y)
    np.testing.assert_allclose(method.scores_, [0.5, 0.5, 0.25, 0])
    np.testing.assert_allclose(method.predict_interval_pred([[0, 10], [3, 3]]), [[-5, 15], [3, 3]], atol=1e-7)


def test_variant_m_divides_by_the_distances_to_the_median():
    q = np.array([[0, 1, 3.0]] * 4)
    y = np.array([-1, 5, 1, 2.0])  # below: 1, above: 1, inside: -1 (the median), -.5
    method = ConformalizedQuantileRegressor(variant="m", alpha=0.2).calibrate_pred(q, y)
    np.testing.assert_allclose(method.scores_, [1, 1, -1, -0.5])
    np.testing.assert_allclose(method.predict_interval_pred([[0, 1, 3], [3, 0, 1]]), [[-1, 5], [-1, 5]])
    with pytest.raises(DataError, match=r"shape \(n, 3\)"):
        method.predict_interval_pred(UNIT)


def noisy(n=400, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 2))
    return X, X[:, 1] + (0.2 + 2 * X[:, 0]) * rng.normal(size=n)


class QuantileForest(RegressorMixin, BaseEstimator):
    """Stands for models whose predict takes the levels."""

    def fit(self, X, y):
        self.y_ = np.sort(y)
        self.n_features_in_ = X.shape[1]
        return self

    def predict(self, X, quantiles=(0.5,)):
        return np.tile(np.quantile(self.y_, quantiles), (len(X), 1))


class LGBMRegressor(RegressorMixin, BaseEstimator):
    """Stands for LightGBM, which is known by its module."""

    def __init__(self, objective="regression", alpha=0.9):
        self.objective = objective
        self.alpha = alpha

    def fit(self, X, y):
        assert self.objective == "quantile"
        self.constant_ = np.quantile(y, self.alpha)
        return self

    def predict(self, X):
        return np.full(len(X), self.constant_)


LGBMRegressor.__module__ = "lightgbm.sklearn"


@pytest.mark.parametrize("variant", ["plain", "m", "r"])
@pytest.mark.parametrize(
    "model",
    [None, HistGradientBoostingRegressor(max_iter=20), GradientBoostingRegressor(n_estimators=20),
     QuantileRegressor(alpha=0), make_pipeline(StandardScaler(), QuantileRegressor(alpha=0)),
     QuantileForest(), LGBMRegressor()],
    ids=lambda model: type(model).__name__,
)  # fmt: skip
def test_models_that_know_quantiles_are_used(model, variant):
    X, y = noisy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method = ConformalizedQuantileRegressor(model, variant=variant, random_state=0).fit(X, y)
        ends = method.predict_interval(X[:50])
    used = method.estimator_.models[0]
    assert isinstance(used, HistGradientBoostingRegressor if model is None else type(model))
    assert method.estimator_.predict(X).shape == (400, 3 if variant == "m" else 2)
    assert method.predict(X[:7]).shape == (7,)
    assert (ends[:, 0] < ends[:, 1]).mean() > 0.9


@pytest.mark.parametrize(
    "model", [RandomForestRegressor(), SGDRegressor(), make_pipeline(StandardScaler(), LinearRegression())]
)
def test_models_without_a_quantile_loss_are_replaced_once_and_said_so(model):
    X, y = noisy()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        method = ConformalizedQuantileRegressor(model, random_state=0).fit(X, y)
        method.predict_interval(X)
    assert [str(w.message).split()[1:4] for w in said] == [["has", "no", "quantile"]]
    assert issubclass(said[0].category, AssayWarning)
    last = method.estimator_.models[0]
    last = last.steps[-1][1] if hasattr(last, "steps") else last
    assert isinstance(last, HistGradientBoostingRegressor)
    assert last.quantile == 0.05


def test_trained_models_a_pair_or_one_with_two_columns():
    X, y = noisy()
    pair = tuple(QuantileRegressor(quantile=q, alpha=0).fit(X[:100], y[:100]) for q in (0.05, 0.95))
    first = ConformalizedQuantileRegressor(pair).calibrate(X[100:], y[100:])
    second = ConformalizedQuantileRegressor(lambda X: np.column_stack([m.predict(X) for m in pair]))
    second.calibrate(X[100:], y[100:])
    bare = ConformalizedQuantileRegressor().calibrate_pred(first.estimator_.predict(X[100:]), y[100:])
    ends = first.predict_interval(X[:9], [0.1, 0.3])
    np.testing.assert_array_equal(second.predict_interval(X[:9], [0.1, 0.3]), ends)
    np.testing.assert_array_equal(
        bare.predict_interval_pred(first.estimator_.predict(X[:9]), [0.1, 0.3]), ends
    )
    with pytest.raises(MethodError, match="bare predictions"):
        bare.predict_interval(X)
    with pytest.raises(MethodError, match="2 models given for 3"):
        ConformalizedQuantileRegressor(pair, variant="m").calibrate(X, y)
    with pytest.raises(MethodError, match="needs trained"):
        ConformalizedQuantileRegressor().calibrate(X, y)
    unfitted = tuple(QuantileRegressor(quantile=q, alpha=0) for q in (0.05, 0.95))
    given = ConformalizedQuantileRegressor(unfitted).fit(X[:100], y[:100], X[100:], y[100:])
    np.testing.assert_allclose(given.predict_interval(X[:9], [0.1, 0.3]), ends)


def test_torch_module_with_two_outputs():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(2, 2)
    module.train()
    X, y = noisy(50)
    method = ConformalizedQuantileRegressor(module).calibrate(X, y)
    assert method.predict_interval(X[:3]).shape == (3, 2)
    assert module.training


def test_agrees_with_mapie_on_the_same_models():
    mapie = pytest.importorskip("mapie.regression")
    X, y = noisy(500)
    lo, hi, mid = (QuantileRegressor(quantile=q, alpha=0).fit(X[:200], y[:200]) for q in (0.05, 0.95, 0.5))
    for n in (100, 101, 199, 300):
        X_cal, y_cal = X[200 : 200 + n], y[200 : 200 + n]
        peer = mapie.ConformalizedQuantileRegressor([lo, hi, mid], confidence_level=0.9, prefit=True)
        peer.conformalize(X_cal, y_cal)
        for symmetric in (True, False):
            theirs = peer.predict_interval(X[:20], symmetric_correction=symmetric)[1][:, :, 0]
            ours = ConformalizedQuantileRegressor((lo, hi), symmetric=symmetric).calibrate(X_cal, y_cal)
            np.testing.assert_allclose(ours.predict_interval(X[:20]), theirs, rtol=1e-10)


@pytest.mark.parametrize("alpha", [0.1, [0.05, 0.2], 0])
def test_levels_stack_and_nest(alpha):
    X, y = noisy()
    method = ConformalizedQuantileRegressor(QuantileRegressor(alpha=0), alpha=alpha, random_state=0).fit(X, y)
    wide, narrow = method.predict_interval(X[:30], [0.05, 0.3])
    assert (wide[:, 0] <= narrow[:, 0]).all()
    assert (narrow[:, 1] <= wide[:, 1]).all()
    if alpha == 0:
        with pytest.warns(InfiniteSetWarning):
            assert np.isinf(method.predict_interval(X[:2])).all()


def test_bad_input():
    method = ConformalizedQuantileRegressor()
    with pytest.raises(DataError, match=r"y_pred has shape \(4,\)"):
        method.calibrate_pred(Y, Y)
    with pytest.raises(DataError, match="3 rows, y has 4"):
        method.calibrate_pred(UNIT[:3], Y)
    with pytest.raises(DataError, match="y_pred is NaN in 1 of 4 rows, first at row 0"):
        method.calibrate_pred(np.where(UNIT == 0, [[np.nan, 0], [0, 0], [0, 0], [0, 0]], 1), Y)
    with pytest.raises(NotFittedError):
        method.predict_interval_pred(UNIT)
    with pytest.raises(MethodError, match="variant must be"):
        ConformalizedQuantileRegressor(variant="x").calibrate_pred(UNIT, Y)
    X, y = noisy(40)
    y_bad = np.where(np.arange(40) == 7, np.nan, y)
    with pytest.raises(DataError, match="first at row 7"):
        ConformalizedQuantileRegressor(QuantileRegressor()).fit(X, y, X, y_bad)


def test_a_calibration_that_fails_keeps_the_former_state_whole():
    X, y = noisy()
    method = ConformalizedQuantileRegressor(QuantileRegressor(alpha=0), random_state=0)
    with pytest.raises(ValueError, match="features"):
        method.fit(X, y, X[:, :1], y)
    with pytest.raises(NotFittedError):
        method.predict_interval(X)
    before = method.fit(X, y).predict_interval(X[:5])
    with pytest.raises(ValueError, match="features"):
        method.fit(X * 2, y, X[:, :1], y)
    np.testing.assert_array_equal(method.predict_interval(X[:5]), before)


def test_zero_rows_one_row_frames_and_copies():
    X, y = noisy()
    frame = pd.DataFrame(X, columns=["a", "b"])
    method = ConformalizedQuantileRegressor(random_state=0).fit(frame, pd.Series(y))
    assert method.predict_interval(frame[:0], [0.1, 0.2]).shape == (2, 0, 2)
    assert method.predict_interval_pred(np.empty((0, 2))).shape == (0, 2)
    one = method.predict_interval(frame[:1])
    assert one.shape == (1, 2)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(method)).predict_interval(frame[:1]), one)
    np.testing.assert_array_equal(clone(method).fit(frame, y).predict_interval(frame[:1]), one)


def test_width_follows_the_noise_and_coverage_holds():
    covered, ratio = [], []
    for seed in range(5):
        X, y = noisy(2000, seed)
        X_test, y_test = noisy(2000, 50 + seed)
        ends = ConformalizedQuantileRegressor(QuantileRegressor(alpha=0), random_state=seed).fit(X, y)
        ends = ends.predict_interval(X_test)
        covered.append(np.mean((ends[:, 0] <= y_test) & (y_test <= ends[:, 1])))
        width = ends[:, 1] - ends[:, 0]
        ratio.append(width[X_test[:, 0] > 0.8].mean() / width[X_test[:, 0] < 0.2].mean())
    assert 0.88 < np.mean(covered) < 0.92
    assert min(ratio) > 3
