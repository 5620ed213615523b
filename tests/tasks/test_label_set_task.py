"""The label-set task: labels of every type, what it refuses, what it measures."""

import json
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from assay.core.errors import DataError, MethodError, TaskError
from assay.data.read import as_table
from assay.tasks.label_set import LabelSetTask, align_sets, as_labels

TENTH = Fraction(1, 10)
TASK = LabelSetTask()


def table(y):
    return as_table(pd.DataFrame({"x": np.arange(len(y)) % 17, "y": y}), "y")


@pytest.fixture(scope="module")
def split():
    rng = np.random.default_rng(0)
    y = np.repeat(["low", "middle", "high"], [400, 240, 160])
    return TASK.split(as_table((rng.normal(size=(800, 2)), y)), 0)


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (["a"] * 80, DataError, r"one class only: a in all 80 rows"),
        ([*"a" * 40, *"b" * 38, "c", "d"], DataError, r"2 of 4 classes of 'y' have a single row: 'c', 'd'"),
        (np.arange(80) * 1.5, DataError, r"80 of 80 classes .*'0\.0'.*; for a number, --task interval"),
        ([np.inf] * 2 + [1.0, 2.0] * 39, DataError, r"infinite in 2 of 80 rows, first at row 0"),
        (pd.date_range("2020", periods=80), TaskError, r"'y' is dates"),
        (["a", "b"] * 10, TaskError, r"20 rows are too few at alpha 0\.1: .* at least 36 rows"),
        ([i // 3 for i in range(90)], TaskError, r"too small at alpha 0\.1: .* 0 of 90 rows .* 9 are needed"),
    ],
)  # fmt: skip
def test_refused_targets(y, error, message):
    with pytest.raises(error, match=message):
        TASK.check(table(y), TENTH)


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        ([1, 2, 3, 2] * 20, [1, 2, 3]),
        ([0.0, 1.0] * 40, [0, 1]),
        ([0.5, 1.5] * 40, ["0.5", "1.5"]),
        ([True, False] * 40, [False, True]),
        (["b", "a"] * 40, ["a", "b"]),
        (pd.Categorical(["b", "a"] * 40, categories=["b", "a", "never"]), ["a", "b"]),
        (pd.Series([1, "a"] * 40, dtype=object), ["1", "a"]),
    ],
)
def test_labels_of_every_type(y, classes):
    data = table(y)
    TASK.check(data, TENTH)
    split = TASK.split(data, 0)
    assert split.classes.tolist() == classes
    for part in (split.y_train, split.y_calib, split.y_test):
        assert part.dtype == split.classes.dtype
    assert set(split.y_train.tolist()) == set(classes)
    assert set(as_labels(data).tolist()) == set(classes)


class Everything:
    """All labels, in its own order of classes."""

    def __init__(self, order=("high", "low", "middle")):
        self.order = order

    def fit(self, X, y):
        assert set(y) <= {"high", "low", "middle"}
        self.classes_ = np.array(self.order)
        return self

    def predict_set(self, X):
        return np.ones((len(X), len(self.classes_)), dtype=bool)


def test_metrics_of_a_known_answer(split):
    class LowOnly(Everything):
        def predict_set(self, X):
            out = np.tile(self.classes_ == "low", (len(X), 1))
            out[:10] = False
            out[10:20] = True
            return out

    split_low_first = split
    outcome = TASK.evaluate(LowOnly(), split_low_first, TENTH)
    y = split.y_test
    low = np.isin(np.arange(200), np.arange(10, 20)) | ((y == "low") & (np.arange(200) >= 20))
    metrics = outcome.metrics
    assert metrics["coverage"] == pytest.approx(low.mean())
    assert metrics["mean_size"] == pytest.approx((180 + 30) / 200)
    assert metrics["share_empty"] == pytest.approx(0.05)
    assert metrics["share_singleton"] == pytest.approx(0.9)
    per_class = {label: low[y == label].mean() for label in ("low", "middle", "high")}
    worst = min(per_class, key=per_class.get)
    assert metrics["worst_class_coverage"] == pytest.approx(per_class[worst])
    assert outcome.detail["worst_class"] == {
        "label": worst, "n": int((y == worst).sum()), "coverage": pytest.approx(per_class[worst]),
    }  # fmt: skip
    assert metrics["class_coverage_gap"] == pytest.approx(np.mean([abs(c - 0.9) for c in per_class.values()]))
    small = np.ones(200, dtype=bool)
    small[10:20] = False
    assert metrics["size_stratified_gap"] == pytest.approx(max(abs(low[small].mean() - 0.9), 0.1))
    every = {metric.name for metric in TASK.metrics if not metric.of_groups}
    assert set(metrics) | {"peak_memory"} == every
    detail = outcome.detail
    json.dumps(detail, allow_nan=False)
    assert detail["size_histogram"] == [[0, 10], [1, 180], [3, 10]]
    assert sum(group["n"] for group in detail["by_size"]) == 200
    assert {group["label"]: group["n"] for group in detail["by_class"]} == {
        label: int((y == label).sum()) for label in per_class
    }
    assert len(detail["examples"]) == 30
    assert detail["examples"][0]["set"] == []
    assert detail["examples"][-1]["set"] == ["high", "low", "middle"]


def test_stratified_parts_of_the_split(split):
    labels, counts = np.unique(split.y_test, return_counts=True)
    assert dict(zip(labels, counts, strict=True)) == {"high": 40, "low": 100, "middle": 60}


@pytest.mark.parametrize("order", [("high", "low", "middle"), ("middle", "low", "high")])
def test_columns_follow_the_methods_own_classes(split, order):
    class Truth(Everything):
        def predict_set(self, X):
            return split.y_test[:, None] == self.classes_[None, :]

    metrics = TASK.evaluate(Truth(order), split, TENTH).metrics
    assert metrics["coverage"] == 1
    assert metrics["mean_size"] == 1


def test_a_method_that_never_saw_a_class(split):
    outcome = TASK.evaluate(Everything(("low", "high")), split, TENTH)
    assert "1 of 3 classes are unknown to it: never in a set" in outcome.notices
    assert outcome.metrics["worst_class_coverage"] == 0
    assert outcome.metrics["mean_size"] == 2


def test_sets_as_numbers_and_without_classes():
    classes = np.array([0, 1, 2])
    sets, unseen = align_sets([[1, 0, 1]], None, classes, 1)
    assert sets.tolist() == [[True, False, True]]
    assert unseen == 0
    sets, unseen = align_sets(np.array([[1.0]]), [2], classes, 1)
    assert sets.tolist() == [[False, False, True]]
    assert unseen == 2


@pytest.mark.parametrize(
    ("raw", "known", "message"),
    [
        (np.ones((4, 2)), None, r"gave shape \(4, 2\) for 4 rows; \(4, 3\) is expected"),
        (np.ones((3, 3)), None, r"gave shape \(3, 3\) for 4 rows"),
        (np.full((4, 3), 0.5), None, r"neither true nor false"),
        (np.full((4, 3), np.nan), None, r"neither true nor false"),
        (np.ones((4, 1)), [7], r"names 1 labels not in the data, such as 7"),
    ],
)
def test_bad_answers_are_errors_with_numbers(raw, known, message):
    with pytest.raises(MethodError, match=message):
        align_sets(raw, known, np.arange(3), 4)


def test_accepts_and_default_model(split):
    assert TASK.accepts(Everything) is None
    assert TASK.accepts(TASK.default_model()) == "HistGradientBoostingClassifier has no predict_set(X)"
    model = TASK.default_model().set_params(random_state=0).fit(split.X_train, split.y_train)
    assert model.predict_proba(split.X_test).shape == (200, 3)
