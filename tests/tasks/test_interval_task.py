"""The interval task: what it refuses, how it calls a method, what it measures."""

import json
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.base import BaseEstimator

from assay.conformal import SplitConformalRegressor
from assay.core.errors import DataError, MethodError, TaskError
from assay.data.read import as_table
from assay.tasks import get_task
from assay.tasks.interval import IntervalTask
from assay.tasks.numeric import check_contains, check_sizes

TENTH = Fraction(1, 10)
TASK = IntervalTask()


def table(y, n=80):
    return as_table(pd.DataFrame({"x": np.arange(n) % 17, "y": y}), "y")


@pytest.fixture(scope="module")
def split():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(800, 3))
    return TASK.split(as_table((x, x[:, 0] + rng.normal(size=800))), 0)


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (
            list("ab") * 40,
            TaskError,
            r"'y' is text \('a', 'b'\); an interval needs numbers; .*--task label-set",
        ),
        (
            [f"{i},{i % 10}00" for i in range(1, 81)],
            TaskError,
            r"take currency signs and thousands separators out",
        ),
        (np.arange(80) > 9, TaskError, r"'y' is true or false"),
        (pd.date_range("2020", periods=80), TaskError, r"'y' is dates .*an interval needs numbers$"),
        ([1.0, np.inf, -np.inf] + [2.0] * 77, DataError, r"infinite in 2 of 80 rows, first at row 1"),
        (np.full(80, 3.5), DataError, r"constant: 3\.5 in all 80 rows"),
    ],
)
def test_refused_targets(y, error, message):
    with pytest.raises(error, match=message):
        TASK.check(table(y), TENTH)


def test_check_passes_and_counts_rows():
    TASK.check(table(np.arange(80.0)), TENTH)
    with pytest.raises(TaskError, match=r"20 rows are too few at alpha 0\.1: .* at least 36 rows"):
        TASK.check(as_table(pd.DataFrame({"x": range(20), "y": np.arange(20.0) ** 2}), "y"), TENTH)


class Recorder(BaseEstimator):
    """Remembers its calls; intervals [-1, 1]."""

    def predict_interval(self, X):
        self.asked = len(X)
        return np.tile([-1.0, 1.0], (len(X), 1))


class TakesBoth(Recorder):
    def fit(self, X, y, X_calib=None, y_calib=None):
        self.seen = (len(X), len(y), len(X_calib), len(y_calib))
        return self


class Calibrates(Recorder):
    def fit(self, X, y):
        self.seen = (len(X), len(y))
        return self

    def calibrate(self, X, y):
        self.seen += (len(X), len(y))
        return self


class FitsAll(Recorder):
    def fit(self, X, y):
        self.seen = (len(X), len(y))
        return self


@pytest.mark.parametrize(
    ("method", "seen", "n_train", "n_calib"),
    [
        (TakesBoth(), (400, 400, 200, 200), 400, 200),
        (Calibrates(), (400, 400, 200, 200), 400, 200),
        (FitsAll(), (600, 600), 600, 0),
    ],
)
def test_rows_reach_a_method_by_what_it_offers(split, method, seen, n_train, n_calib):
    outcome = TASK.evaluate(method, split, TENTH)
    assert method.seen == seen
    assert method.asked == 200
    detail = outcome.detail
    assert (detail["n_train"], detail["n_calib"], detail["n_test"]) == (n_train, n_calib, 200)
    assert "takes no alpha" in outcome.notices[0]
    low, high = detail["expected_coverage"]
    assert low < 0.9 < high
    if n_calib == 0:  # all 600 training rows decide what is covered, not none
        law = stats.betabinom(200, 541, 60)
        assert (low, high) == pytest.approx((law.ppf(0.025) / 200, law.ppf(0.975) / 200))


def test_alpha_goes_to_the_prediction_where_the_constructor_has_none(split):
    class AtPrediction(FitsAll):
        def predict_interval(self, X, alpha=None):
            self.alpha_given = alpha
            return super().predict_interval(X)

    class AtConstruction(AtPrediction):
        def __init__(self, alpha=0.3):
            self.alpha = alpha

    at_prediction, at_construction = AtPrediction(), AtConstruction()
    assert TASK.evaluate(at_prediction, split, TENTH).notices == ()
    assert TASK.evaluate(at_construction, split, TENTH).notices == ()
    assert at_prediction.alpha_given == 0.1
    assert at_construction.alpha_given is None


def test_metrics_of_a_known_answer(split):
    class Known(FitsAll):
        def predict_interval(self, X):
            out = np.column_stack([split.y_test - 1, split.y_test + 1])
            out[:20] = [[5, 4]]  # empty
            out[20:30, 1] = np.inf
            out[30:50] += 3  # too high by 2 more than the half width
            return out

    outcome = TASK.evaluate(Known(), split, TENTH)
    metrics = outcome.metrics
    assert metrics["coverage"] == pytest.approx(160 / 200)
    assert metrics["mean_width"] == np.inf
    assert metrics["median_width"] == pytest.approx(2)
    assert metrics["share_infinite"] == pytest.approx(0.05)
    assert metrics["share_empty"] == pytest.approx(0.1)
    assert metrics["interval_score"] == np.inf
    assert metrics["fit_seconds"] >= 0
    names = {metric.name for metric in TASK.metrics}
    assert set(metrics) | {"peak_memory"} == names
    json.dumps(outcome.detail, allow_nan=False)


def test_winkler_score_reaches_the_metric(split):
    class Shifted(FitsAll):
        def predict_interval(self, X):
            return np.column_stack([split.y_test + 1, split.y_test + 3])

    assert TASK.evaluate(Shifted(), split, TENTH).metrics["interval_score"] == pytest.approx(2 + 20 * 1)


def test_detail_for_the_pictures(split):
    outcome = TASK.evaluate(
        SplitConformalRegressor(TASK.default_model().set_params(random_state=0), alpha=0.1), split, TENTH
    )
    detail = outcome.detail
    json.dumps(detail, allow_nan=False)
    examples = detail["examples"]
    assert {len(values) for values in examples.values()} == {150}
    assert examples["prediction"] == sorted(examples["prediction"])
    assert set(examples["row"]) <= set(split.test_rows.tolist())
    assert "by_width" not in detail
    assert np.isnan(outcome.metrics["width_quintile_gap"])
    assert detail["slab"]["features"]
    assert set(detail["slab"]["features"]) <= set(split.feature_names)
    assert detail["slab"]["coverage"] == outcome.metrics["worst_slab_coverage"]

    class Adaptive(FitsAll):
        def predict_interval(self, X):
            return np.column_stack([-np.abs(X[:, 0]), np.abs(X[:, 0]) + 1])

    by_width = TASK.evaluate(Adaptive(), split, TENTH).detail["by_width"]
    assert [group["n"] for group in by_width] == [40] * 5
    assert [group["mean_width"] for group in by_width] == sorted(group["mean_width"] for group in by_width)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda n: np.zeros(n), r"gave shape \(200,\) for 200 rows; \(200, 2\) is expected"),
        (lambda n: np.zeros((n, 3)), r"gave shape \(200, 3\)"),
        (lambda n: np.zeros((1, n, 2)), r"gave shape \(1, 200, 2\)"),
        (
            lambda n: np.where(np.arange(2 * n) == 9, np.nan, 0.0).reshape(n, 2),
            r"NaN in 1 of 200 rows, first at row 4",
        ),
        (lambda n: np.full((n, 2), "a"), r"values that are not numbers"),
        (lambda n: np.full((n, 2), "1.5"), r"values that are not numbers"),
        (lambda n: np.ones((n, 2), dtype=bool), r"values that are not numbers \(dtype bool\)"),
        (lambda n: np.full((n, 2), 1 + 2j), r"values that are not numbers \(dtype complex128\)"),
        (lambda n: np.ma.masked_array(np.ones((n, 2)), mask=np.eye(n, 2)), r"NaN in 2 of"),
        (lambda n: None, r"predict_interval returned nothing; 200 rows"),
    ],
)
def test_bad_answers_of_a_method_are_errors_with_numbers(split, answer, message):
    class Bad(FitsAll):
        def predict_interval(self, X):
            return answer(len(X))

    with pytest.raises(MethodError, match=message):
        TASK.evaluate(Bad(), split, TENTH)


def test_accepts_says_what_is_missing():
    assert TASK.accepts(SplitConformalRegressor) is None
    assert TASK.accepts(SplitConformalRegressor()) is None
    assert TASK.accepts(TASK.default_model()) == "HistGradientBoostingRegressor has no predict_interval(X)"
    assert TASK.accepts(Recorder) == "Recorder has no fit(X, y)"


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_split_conformal_covers_within_its_range(seed):
    data = as_table("diabetes")
    split = get_task("interval").split(data, seed)
    outcome = TASK.evaluate(SplitConformalRegressor(alpha=0.1), split, TENTH)
    low, high = outcome.detail["expected_coverage"]
    assert low <= outcome.metrics["coverage"] <= high


class TwoPieces(BaseEstimator):
    """Sets [-1, 0] and [2, 3] around twice the first feature; the interval is all of [-1, 3]."""

    def fit(self, X, y):
        return self

    def predict_interval(self, X):
        return X[:, :1] + [-1.0, 3.0]

    def predict_region(self, X):
        class Pieces:
            def contains(self, y):
                z = y - X[:, 0]
                return ((z >= -1) & (z <= 0)) | ((z >= 2) & (z <= 3))

            def volume(self):
                return np.full(len(X), 2.0)

        return Pieces()


def test_a_set_of_several_pieces_is_judged_itself(split):
    outcome = TASK.evaluate(TwoPieces(), split, TENTH)
    z = split.y_test - split.X_test[:, 0]
    inside = ((z >= -1) & (z <= 0)) | ((z >= 2) & (z <= 3))
    assert outcome.metrics["coverage"] == inside.mean() < ((z >= -1) & (z <= 3)).mean()
    assert outcome.metrics["mean_width"] == outcome.metrics["median_width"] == 2
    assert np.isnan(outcome.metrics["width_quintile_gap"])


def test_regions_of_the_wrong_shape_are_refused():
    class Broken:
        def __init__(self, covered):
            self.contains = lambda y: covered

    y = np.zeros(3)
    yes = np.ones(3, dtype=bool)
    with pytest.raises(MethodError, match=r"contains\(\) of shape \(2,\)"):
        check_contains(Broken(yes[:2]), y)
    with pytest.raises(MethodError, match=r"contains\(\) of shape \(3,\) \(float64\)"):
        check_contains(Broken(yes.astype(float)), y)
    assert check_contains(Broken(yes), y).all()
    with pytest.raises(MethodError, match=r"volume\(\) of shape \(2,\)"):
        check_sizes(np.ones(2), 3, "volume()")
    with pytest.raises(MethodError, match=r"negative or NaN in 1 of 3 rows, first at row 2"):
        check_sizes(np.array([1, 2, np.nan]), 3, "volume()")
    assert check_sizes([0, np.inf, 1], 3, "volume()").dtype == np.float64
    assert check_sizes([-1, 2, 1], 3, "log_volume()", negative=True)[0] == -1


def test_quantiles_get_more_trees_than_the_squared_loss():
    plain, quantile = TASK.default_model(), TASK.default_quantile_model()
    assert quantile.max_iter > plain.max_iter
    assert type(quantile) is type(plain)
