"""Comparisons with groups of rows, and from probabilities alone."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import assay
from assay.core.errors import DataError, TaskError
from assay.data.read import as_table
from assay.engine.report.back_matter import python_call
from assay.tasks.label_set import LabelSetTask


def probabilities(n=900, seed=0):
    rng = np.random.default_rng(seed)
    groups = np.where(rng.random(n) < 0.5, "easy", "hard")
    y = rng.integers(4, size=n)
    logits = rng.normal(size=(n, 4))
    logits[np.arange(n), y] += np.where(groups == "easy", 3.5, 1.0)
    p = np.exp(logits)
    return p / p.sum(axis=1, keepdims=True), y, groups


@pytest.fixture(scope="module")
def grouped():
    return assay.compare(probabilities(), proba=True, seeds=3, in_process=True)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = 600
    group = np.where(rng.random(n) < 0.5, "<i>one</i>", "two")
    x = rng.normal(size=(n, 2))
    noise = np.where(group == "two", 2.0, 0.3)
    y = np.digitize(x[:, 0] + noise * rng.normal(size=n), [-0.5, 0.5])
    return pd.DataFrame({"x0": x[:, 0], "x1": x[:, 1], "g": group, "y": np.array(["a", "b", "c"])[y]})


def test_probabilities_need_no_model(grouped):
    names = {spec["name"] for spec in grouped.info.methods}
    assert {"lac", "mondrian", "equalized-size", "aps", "class-conditional"} <= names
    assert not grouped.failed
    assert grouped.info.model == "none: the probabilities are given"
    assert grouped.info.options == {"proba": True}
    found = grouped.summary().set_index(["method", "metric"])["mean"]
    size = {name: found[name, "size_gap"] for name in ("lac", "mondrian", "equalized-size")}
    assert size["equalized-size"] < size["lac"] < size["mondrian"]
    assert found["mondrian", "coverage_gap"] < found["equalized-size", "coverage_gap"]
    assert abs(found["lac", "coverage"] - 0.9) < 0.03
    rows = grouped.statistics.method("lac").rows
    assert (rows.train, rows.calib, rows.test) == (0, 450, 450)
    assert "proba=True" in python_call(grouped.info)


def test_the_answer_shows_both_gaps_and_judges_no_fairness(grouped, tmp_path):
    head, *_ = grouped.rows()
    assert [name for name in head if name.endswith("gap")] == ["coverage gap", "size gap"]
    assert "Between the groups it has a coverage gap of" in grouped.verdict()
    page = grouped.to_html(tmp_path / "r.html").read_text()
    for text in (str(grouped), page):
        assert "Neither is enough alone" in text
        assert "fair" not in text.lower()
    assert "coverage and size by group" in page
    assert page.count("coverage and size by group") == len(grouped.info.methods)
    assert "0 to train" not in page


def test_without_groups_there_are_no_columns_of_groups(tmp_path):
    p, y, _ = probabilities(300)
    found = assay.compare((p, y), proba=True, seeds=1, methods=["lac", "mondrian"], in_process=True)
    assert not any(name.endswith(" gap") for name in found.rows()[0])
    skipped = {spec["name"]: spec["skip"] for spec in found.info.methods}
    assert skipped["lac"] is None
    assert "groups of rows" in skipped["mondrian"]
    assert "size_gap" not in set(found.summary()["metric"])
    unasked = assay.compare((p, y), proba=True, seeds=1, in_process=True)
    assert "mondrian" not in {spec["name"] for spec in unasked.info.methods}
    assert "coverage and size by group" not in found.to_html(tmp_path / "r.html").read_text()


class NeedsRows:
    def fit(self, X, y):
        return self

    def predict_set(self, X):
        return np.ones((len(X), 4), dtype=bool)


def test_averages_of_heads_are_no_methods_of_their_own_for_one_model(grouped):
    """With one matrix the mean of the heads is that head: it stands in the table once, unless it is named."""
    names = {spec["name"] for spec in grouped.info.methods}
    assert not names & {"ensemble-lac", "ensemble-aps", "ensemble-raps", "mean-score"}
    data = probabilities()
    named = assay.compare(data, proba=True, seeds=1, in_process=True, methods=["lac", "ensemble-lac"])
    assert named.summary().query("metric == 'mean_size'")["mean"].nunique() == 1


def test_methods_that_need_rows_cannot_take_part():
    with pytest.raises(
        TaskError, match="NeedsRows does not work from probabilities alone: it has no calibrate_pr"
    ):
        assay.compare(probabilities(100), proba=True, methods=[NeedsRows], in_process=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"target": "y"}, "target has no meaning where class probabilities are given"),
        ({"model": "sklearn.svm:SVC"}, "model has no meaning"),
        ({"group": "g"}, r"group has no meaning .* \(proba, y, groups\)"),
        ({"drop": ["x"]}, "drop has no meaning"),
        ({"time": "t"}, "time has no meaning"),
        ({"task": "interval"}, "the task 'interval' takes no proba; tasks that do: label-set"),
    ],
)
def test_arguments_without_a_meaning(arguments, message):
    with pytest.raises(TaskError, match=message):
        assay.compare(probabilities(100), proba=True, **arguments)


def test_too_few_rows_and_bad_rows():
    p, y, _ = probabilities(17)
    with pytest.raises(
        TaskError, match=r"17 rows .* gives 8 rows each; 9 are needed, at least 18 rows in all"
    ):
        assay.compare((p, y), proba=True)
    with pytest.raises(DataError, match="sums to 2"):
        assay.compare((2 * p, y), proba=True)
    with pytest.raises(TaskError, match="one group only"):
        assay.compare((*probabilities(100)[:2], np.zeros(100)), proba=True)
    rows = as_table((np.arange(60) % 7, np.resize([0, 1], 60)))
    with pytest.raises(DataError, match="holds no probabilities"):
        LabelSetTask(proba=True).check(rows, Fraction(1, 10))


def test_columns_in_any_order_of_classes():
    p, y, g = probabilities(800, 1)
    names = np.array(["d", "b", "a", "c"])
    by_name = assay.compare((p, names[y], g, names), proba=True, seeds=2, methods=["lac", "equalized-size"],
                            in_process=True)  # fmt: skip
    by_number = assay.compare(
        (p, y, g), proba=True, seeds=2, methods=["lac", "equalized-size"], in_process=True
    )
    for one, two in zip(by_name.results, by_number.results, strict=True):
        for metric in ("coverage", "mean_size", "size_gap", "worst_class_coverage"):
            assert one.metrics[metric] == two.metrics[metric]


def test_groups_of_a_table(table, tmp_path):
    from sklearn.linear_model import LogisticRegression

    found = assay.compare(
        table, "y", group="g", seeds=2, model=LogisticRegression(), in_process=True,
        methods=["lac", "mondrian", "equalized-size", "class-conditional"],
    )  # fmt: skip
    assert not found.failed
    assert any("methods also see it as a feature" in note for note in found.info.notes)
    assert {"coverage_gap", "size_gap", "worst_group_coverage"} <= set(found.summary()["metric"])
    page = found.to_html(tmp_path / "r.html").read_text()
    assert "<i>one" not in page
    assert "&lt;i&gt;one" in page
    again = found.statistics.method("mondrian").estimates["coverage_gap"]
    assert again.seeds == (0, 1)


def test_a_group_without_a_use_is_said(table):
    found = assay.compare(
        table.assign(y=np.arange(600.0) + np.sin(np.arange(600))), "y", group="g", seeds=1, methods=["split"],
        in_process=True,
    )  # fmt: skip
    assert any("does not look at groups: g is a column like any other" in note for note in found.info.notes)


def test_a_feature_that_renames_the_target_is_said(table):
    leak = table.assign(code=table["y"].map({"a": 3, "b": 1, "c": 2}))
    said = "code and the target 'y' tell the same under other names"
    assert any(said in note for note in as_table(leak, "y").notes)
    leak.loc[0, "code"] = 1 + leak.loc[0, "code"] % 3
    assert not any("under other names" in note for note in as_table(leak, "y").notes)
