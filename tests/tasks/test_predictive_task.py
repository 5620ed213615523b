"""The predictive task: what it refuses, what it measures, shifted rows, methods of every kind."""

import json
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator
from sklearn.naive_bayes import GaussianNB

from assay.core.distributions import CategoricalDistribution, GaussianDistribution, MixtureDistribution
from assay.core.errors import DataError, MethodError, TaskError
from assay.data.read import as_table
from assay.data.shifted import with_shifted
from assay.tasks import calibration, get_task
from assay.tasks.predictive import PredictiveTask, align_classes

TENTH = Fraction(1, 10)
LABELS, NUMBERS = PredictiveTask("classification"), PredictiveTask("regression")


def label_table(n=800):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return as_table((X, np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0, "yes", "no")))


def number_table(n=2000):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 2))
    return as_table((X, 3 * X[:, 0] + 2.0 * rng.normal(size=n)))


class Truth(BaseEstimator):
    """Knows the mean and the sd of the noise, up to a factor."""

    def __init__(self, factor=1.0, kind="gauss"):
        self.factor, self.kind = factor, kind

    def fit(self, X, y):
        self.slope_ = (X[:, 0] @ y) / (X[:, 0] @ X[:, 0])
        return self

    def predict_dist(self, X):
        mean = self.slope_ * X[:, 0]
        if self.kind == "gauss":
            return GaussianDistribution(mean, (2.0 * self.factor) ** 2)
        return MixtureDistribution(np.stack([mean, mean]), (2.0 * self.factor) ** 2)


class Fixed(BaseEstimator):
    """The same distribution for every row."""

    def __init__(self, proba=(0.5, 0.5), classes=("no", "yes")):
        self.proba, self.classes = proba, classes

    def fit(self, X, y):
        return self

    def predict_dist(self, X):
        return CategoricalDistribution(np.tile(self.proba, (len(X), 1)), list(self.classes))


def test_the_target_decides_the_likelihood():
    task = get_task("predictive")
    assert task.decided(label_table()) == {"likelihood": "classification"}
    assert task.decided(number_table()) == {"likelihood": "regression"}
    assert NUMBERS.decided(number_table()) == {}
    with pytest.raises(TaskError, match="likelihood must be one of classification, regression"):
        get_task("predictive", likelihood="counts")
    assert "crps" not in {metric.name for metric in LABELS.metrics}
    assert "brier" not in {metric.name for metric in NUMBERS.metrics}


@pytest.mark.parametrize(
    ("task", "y", "error", "words"),
    [
        (LABELS, ["a"] * 80, DataError, "one class only"),
        (LABELS, ["a", "b"] * 10, TaskError, "too few"),
        (NUMBERS, ["a", "b"] * 40, TaskError, "a distribution of numbers needs numbers"),
        (NUMBERS, [1.0, np.inf] * 40, DataError, "infinite in 40 of 80 rows"),
        (NUMBERS, [2.0] * 80, DataError, "constant"),
        (NUMBERS, np.arange(12.0), TaskError, "too few"),
    ],
)
def test_refused_targets(task, y, error, words):
    table = as_table(pd.DataFrame({"x": np.arange(len(y)) % 7, "y": y}), "y")
    with pytest.raises(error, match=words):
        task.check(table, TENTH)


def test_the_truth_scores_best_and_is_calibrated():
    split = NUMBERS.split(number_table(), 0)
    found = {factor: NUMBERS.evaluate(Truth(factor), split, TENTH).metrics for factor in (0.6, 1.0, 1.7)}
    for name in ("nlpd", "crps", "calibration_error"):
        assert found[1.0][name] < min(found[0.6][name], found[1.7][name])
    assert found[1.0]["coverage"] == pytest.approx(0.9, abs=0.04)
    assert found[0.6]["coverage"] < 0.75
    assert found[1.0]["nlpd"] == pytest.approx(0.5 * np.log(2 * np.pi * np.e * 4), abs=0.1)
    assert found[1.0]["rmse"] == found[1.7]["rmse"]
    assert found[1.7]["sharpness"] == pytest.approx(3.4)
    assert found[1.0]["predict_ms_per_row"] > 0


def test_the_same_distribution_in_other_words_has_the_same_numbers():
    split = NUMBERS.split(number_table(), 1)
    one, two = (NUMBERS.evaluate(Truth(1.2, kind), split, TENTH).metrics for kind in ("gauss", "mixture"))
    for name in ("nlpd", "crps", "rmse", "calibration_error", "sharpness", "coverage"):
        assert two[name] == pytest.approx(one[name], rel=1e-9)


def test_details_are_json_and_complete():
    outcome = NUMBERS.evaluate(Truth(), NUMBERS.split(number_table(), 0), TENTH)
    assert sum(outcome.detail["pit_histogram"]) == outcome.detail["n_test"] == 500
    assert outcome.detail["n_train"] == 1500
    assert len(outcome.detail["pit_curve"]) == 19
    json.dumps(outcome.detail, allow_nan=False)
    outcome = LABELS.evaluate(GaussianNB(), LABELS.split(label_table(), 0), TENTH)
    assert sum(part["n"] for part in outcome.detail["reliability"]) == 200
    json.dumps(outcome.detail, allow_nan=False)


def test_a_plain_classifier_takes_part():
    assert LABELS.accepts(GaussianNB) is None
    assert "predict_dist" in NUMBERS.accepts(GaussianNB)
    split = LABELS.split(label_table(), 0)
    metrics = LABELS.evaluate(GaussianNB(), split, TENTH).metrics
    fair = LABELS.evaluate(Fixed(), split, TENTH).metrics
    assert metrics["nlpd"] < fair["nlpd"] == pytest.approx(np.log(2))
    assert fair["brier"] == pytest.approx(0.5)
    assert fair["sharpness"] == pytest.approx(np.log(2))
    assert metrics["accuracy"] > 0.7


def test_probabilities_of_zero_are_floored_and_said():
    split = LABELS.split(label_table(), 0)
    outcome = LABELS.evaluate(Fixed((1.0, 0.0)), split, TENTH)
    missed = int((split.y_test == "yes").sum())
    assert outcome.metrics["nlpd"] == pytest.approx(-np.log(1e-12) * missed / 200)
    assert outcome.notices == (
        f"{missed} of 200 test rows have a probability under 1e-12, which counts as that in the NLPD",
    )


def test_classes_are_put_in_order():
    split = LABELS.split(label_table(), 0)
    direct = LABELS.evaluate(Fixed((0.3, 0.7), ("no", "yes")), split, TENTH).metrics
    turned = LABELS.evaluate(Fixed((0.7, 0.3), ("yes", "no")), split, TENTH).metrics
    assert {**turned, "predict_ms_per_row": 0, "fit_seconds": 0} == {
        **direct,
        "predict_ms_per_row": 0,
        "fit_seconds": 0,
    }
    dist, notices = align_classes(CategoricalDistribution([[1.0]], ["no"]), split.classes)
    assert dist.proba.tolist() == [[1.0, 0.0]]
    assert "1 of 2 classes are unknown" in notices[0]
    with pytest.raises(MethodError, match="names 1 labels not in the data, such as 'maybe'"):
        align_classes(CategoricalDistribution([[0.5, 0.5]], ["no", "maybe"]), split.classes)


class Wrong(Fixed):
    def predict_dist(self, X):
        return GaussianDistribution(np.zeros(len(X)), 1.0)


class Short(Fixed):
    def predict_dist(self, X):
        return super().predict_dist(X[1:])


def test_what_is_no_answer():
    split = LABELS.split(label_table(), 0)
    with pytest.raises(MethodError, match="gave a GaussianDistribution; a CategoricalDistribution"):
        LABELS.evaluate(Wrong(), split, TENTH)
    with pytest.raises(MethodError, match="gave 199 distributions for 200 rows"):
        LABELS.evaluate(Short(), split, TENTH)


def test_shuffled_features_are_shifted_rows():
    rng = np.random.default_rng(0)
    a = rng.normal(size=400)
    table = as_table(pd.DataFrame({"a": a, "b": a, "y": rng.normal(size=400)}).assign(b=a + 0.01), "y")
    task = PredictiveTask("regression", shifted="permute")
    split = task.split(table, 0)
    assert sorted(split.X_shifted[:, 0]) == pytest.approx(sorted(split.X_test[:, 0]))
    assert abs(np.corrcoef(split.X_shifted[:, :2].T)[0, 1]) < 0.5
    assert task.evaluate(Truth(), split, TENTH).metrics["ood_auroc"] == 0.5
    assert "ood_auroc" in task.columns


class FarIsUnsure(Truth):
    def predict_dist(self, X):
        return GaussianDistribution(np.zeros(len(X)), 1 + np.abs(X[:, 0]))


def test_shifted_rows_of_the_user(tmp_path):
    table = number_table(400)
    far = pd.DataFrame({name: np.full(20, 50.0) for name in reversed(table.features)}).assign(other=1)
    far.to_csv(tmp_path / "far.csv", index=False)
    task = PredictiveTask("regression", shifted="far.csv")
    with pytest.raises(TaskError, match="holds no shifted rows"):
        task.split(table, 0)
    both = with_shifted(table, tmp_path / "far.csv")
    assert both.fingerprint not in (table.fingerprint, with_shifted(table, far.iloc[:19]).fingerprint)
    assert with_shifted(table, far.astype(float)).fingerprint == with_shifted(table, far.copy()).fingerprint
    split = task.split(both, 0)
    assert split.X_shifted.shape == (20, 2)
    assert (split.X_shifted > 20).all()
    assert task.evaluate(FarIsUnsure(), split, TENTH).metrics["ood_auroc"] == 1.0


def test_shifted_rows_that_do_not_fit():
    table = number_table(400)
    name = table.features[0]
    frame = table.X.iloc[:20].copy()
    with pytest.raises(DataError, match="lack 1 of 2 feature columns"):
        with_shifted(table, frame.drop(columns=name))
    with pytest.raises(DataError, match="are 3 rows; at least 8"):
        with_shifted(table, frame.iloc[:3])
    with pytest.raises(DataError, match="is text, in the table it is number"):
        with_shifted(table, frame.assign(**{name: "far"}))
    with pytest.raises(DataError, match="has infinite values"):
        with_shifted(table, frame.assign(**{name: np.inf}))


def test_calibration_error_of_hand_made_bins():
    proba = np.array([[0.9, 0.1]] * 10 + [[0.6, 0.4]] * 10)
    true = np.array([0] * 9 + [1] + [0] * 3 + [1] * 7)
    bins = calibration.reliability(proba, true, bins=2)
    assert [part["n"] for part in bins] == [10, 10]
    assert calibration.expected_calibration_error(bins) == pytest.approx((0.3 + 0.0) / 2)


def test_sets_of_high_probability():
    proba = np.array([[0.5, 0.4, 0.1]] * 3)
    inside = calibration.in_high_probability_set(proba, np.array([0, 1, 2]), TENTH)
    assert inside.tolist() == [True, True, False]
    assert calibration.in_high_probability_set(proba, np.array([0, 1, 2]), Fraction(1, 20)).all()


def test_separation_is_the_area_under_the_curve():
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(0)
    inside, outside = rng.integers(5, size=30).astype(float), rng.integers(2, 7, size=20).astype(float)
    expected = roc_auc_score(np.r_[np.zeros(30), np.ones(20)], np.r_[inside, outside])
    assert calibration.separation(inside, outside) == pytest.approx(expected)
