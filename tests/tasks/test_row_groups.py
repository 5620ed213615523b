"""Groups of rows in the label-set task: who is told of them, what is measured, what is refused."""

import json
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from assay.core.errors import DataError, TaskError
from assay.data.read import as_table
from assay.tasks.groups import by_group, row_groups
from assay.tasks.label_set import LabelSetTask

TENTH = Fraction(1, 10)
TASK = LabelSetTask()


def frame(n=800):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "x": rng.normal(size=n),
            "sex": np.where(rng.random(n) < 0.3, "f", "m"),
            "y": rng.choice(["low", "middle", "high"], size=n),
        }
    )


class Told:
    """All labels for one group, the first for all others; it keeps what it was told."""

    def fit(self, X, y, X_calib=None, y_calib=None, groups=None, groups_calib=None):
        self.classes_ = np.unique(np.concatenate([y, y_calib]))
        self.told = {"fit": groups, "calib": groups_calib}
        return self

    def predict_set(self, X, groups=None):
        self.told["test"] = groups
        out = np.zeros((len(X), 3), dtype=bool)
        out[:, 0] = True
        if groups is not None:
            out[groups == "f"] = True
        return out


class CalibratesApart:
    def fit(self, X, y, groups=None):
        self.classes_ = np.unique(y)
        self.told = [groups]
        return self

    def calibrate(self, X, y, groups=None):
        self.told.append(groups)
        return self

    def predict_set(self, X, groups=None):
        self.told.append(groups)
        return np.ones((len(X), 3), dtype=bool)


class OnAllRows:
    def fit(self, X, y, groups=None):
        self.classes_ = np.unique(y)
        self.told = [groups]
        return self

    def predict_set(self, X, groups=None):
        self.told.append(groups)
        return np.ones((len(X), 3), dtype=bool)


class NotTold:
    """Its predict_set has groups, but its fit does not: it works on all rows alike."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_set(self, X, groups=None):
        assert groups is None
        return np.ones((len(X), 3), dtype=bool)


def test_methods_whose_fit_names_groups_are_told_of_them():
    table = as_table(frame(), "y", group="sex")
    split = TASK.split(table, 0)
    sex = table.frame["sex"].to_numpy()
    assert split.groups_test.tolist() == sex[split.test_rows].tolist()
    assert len(split.groups_train) == len(split.y_train)
    method = Told()
    outcome = TASK.evaluate(method, split, TENTH)
    for key, expected in (
        ("fit", split.groups_train),
        ("calib", split.groups_calib),
        ("test", split.groups_test),
    ):
        np.testing.assert_array_equal(method.told[key], expected)
    n = len(split.y_test)
    f = split.groups_test == "f"
    first = split.y_test == split.classes[0]
    assert outcome.metrics["size_gap"] == pytest.approx(2.0)
    assert outcome.metrics["worst_group_coverage"] == pytest.approx(first[~f].mean())
    assert outcome.metrics["coverage_gap"] == pytest.approx(1 - first[~f].mean())
    assert outcome.detail["by_group"] == [
        {"label": "f", "n": int(f.sum()), "coverage": 1.0, "mean_size": 3.0, "share_singleton": 0.0},
        {
            "label": "m",
            "n": n - int(f.sum()),
            "coverage": pytest.approx(first[~f].mean()),
            "mean_size": 1.0,
            "share_singleton": 1.0,
        },
    ]
    json.dumps(outcome.detail, allow_nan=False)


def test_the_other_forms_of_fit():
    split = TASK.split(as_table(frame(), "y", group="sex"), 0)
    apart, together = CalibratesApart(), OnAllRows()
    TASK.evaluate(apart, split, TENTH)
    for told, expected in zip(
        apart.told, (split.groups_train, split.groups_calib, split.groups_test), strict=True
    ):
        np.testing.assert_array_equal(told, expected)
    TASK.evaluate(together, split, TENTH)
    np.testing.assert_array_equal(together.told[0], np.concatenate([split.groups_train, split.groups_calib]))
    found = TASK.evaluate(NotTold(), split, TENTH)
    assert found.metrics["coverage_gap"] == 0  # measured all the same


def test_without_a_group_column_nothing_is_told_or_measured():
    split = TASK.split(as_table(frame(), "y"), 0)
    assert split.groups_train is None
    method = Told()
    outcome = TASK.evaluate(method, split, TENTH)
    assert method.told == {"fit": None, "calib": None, "test": None}
    assert "size_gap" not in outcome.metrics
    assert "by_group" not in outcome.detail


def test_the_group_is_a_feature_unless_it_is_dropped():
    kept = as_table(frame(), "y", group="sex")
    hidden = as_table(frame(), "y", group="sex", drop=["sex"])
    assert kept.features == ("x", "sex")
    assert hidden.features == ("x",)
    assert hidden.group == "sex"
    assert kept.fingerprint != hidden.fingerprint
    assert "methods also see it as a feature" in TASK.notes(kept)[0]
    assert "the model does not see it" in TASK.notes(hidden)[0]
    assert TASK.split(hidden, 0).X_train.shape[1] == 1
    np.testing.assert_array_equal(TASK.split(hidden, 0).groups_test, TASK.split(kept, 0).groups_test)
    alone = frame()[["sex", "y"]]
    with pytest.raises(DataError, match="at least one feature column is needed"):
        as_table(alone, "y", group="sex", drop=["sex"])
    with pytest.raises(DataError, match="'sex', which is dropped"):
        as_table(alone.assign(same=1), "y", group="sex", drop=["sex"])


def test_groups_of_every_kind_have_names():
    data = frame(80)
    numbers = data.assign(sex=np.resize([1.0, 2.0, np.nan], 80))
    assert set(row_groups(as_table(numbers, "y", group="sex"))) == {"1", "2", "(missing)"}
    yes = data.assign(sex=np.resize([True, False], 80))
    assert set(row_groups(as_table(yes, "y", group="sex"))) == {"True", "False"}
    assert row_groups(as_table(data, "y")) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.zeros(800, int), "'sex' is 0 in all 800 rows: one group only"),
        (np.arange(800) % 41, r"has 41 distinct values, such as 0; at most 40 .* ranges of the values"),
        (pd.to_datetime("2020-01-01") + pd.to_timedelta(np.arange(800) % 3, "D"), "has 3 distinct values"),
    ],
)
def test_columns_that_name_no_groups(values, message):
    with pytest.raises(TaskError, match=message):
        TASK.check(as_table(frame().assign(sex=values), "y", group="sex"), TENTH)


def test_groups_with_few_rows_are_listed_but_do_not_decide():
    groups = np.repeat(["big", "large", "few"], [60, 40, 19])
    covered = np.repeat([True, True, False], [60, 40, 19])
    covered[:6] = False
    sizes = np.repeat([2, 1, 9], [60, 40, 19])
    metrics, found = by_group(groups, covered, sizes)
    assert metrics == {
        "coverage_gap": pytest.approx(0.1), "size_gap": 1.0, "worst_group_coverage": pytest.approx(0.9),
    }  # fmt: skip
    assert [group["label"] for group in found] == ["big", "few", "large"]
    metrics, _ = by_group(groups[50:], covered[50:], sizes[50:])
    assert all(np.isnan(value) for value in metrics.values())
