"""``assay compare --task predictive`` for labels, numbers and shifted rows, with methods of no network."""

import numpy as np
import pandas as pd
import pytest

import assay
from assay.cli.main import run


@pytest.fixture
def compare(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_STORE", str(tmp_path / "runs.db"))

    def ask(*arguments):
        status = run(["compare", *arguments, "--task", "predictive", "--quiet", "--in-process"])
        said = capsys.readouterr()
        return status, " ".join((said.out + said.err).split())

    return ask


def rows(n=240):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=n), "kind": rng.choice(["a", "b"], n)})
    frame["price"] = 3 * frame["x"] + rng.normal(size=n)
    return frame


def test_labels_with_a_plain_class_and_shifted_rows(compare, tmp_path):
    frame = rows()
    frame["left"] = np.where(frame.pop("price") > 0, "yes", "no")
    frame.to_csv("churn.csv", index=False)
    frame.assign(x=frame["x"] + 9).drop(columns="left").to_csv("later.csv", index=False)
    arguments = ("--methods", "sklearn-model,sklearn.naive_bayes:GaussianNB", "--seeds", "2")
    status, said = compare("churn.csv", "--target", "left", *arguments, "--shifted", "later.csv")
    assert status == 0, said
    assert "Which of 2 methods gives the best predictive distributions for left in churn" in said
    assert "AUROC, shifted" in said
    assert "240 shifted rows" in said
    assert "The best predictive distributions come from" in said
    assert "NLPD against time to predict" in (tmp_path / "assay-report-churn.html").read_text()


def test_numbers_and_what_is_for_labels_only(compare):
    rows().to_csv("flats.csv", index=False)
    status, said = compare(
        "flats.csv", "--target", "price", "--methods", "sklearn-model,temperature", "--seeds", "1"
    )
    assert status == 0, said
    assert "RMSE" in said
    assert "Skipped: temperature: it is for classification only" in said
    result = assay.compare(rows(), "price", task="predictive", seeds=1, methods=["sklearn-model"])
    assert result.info.options == {"likelihood": "regression"}
    assert result.best().method == "sklearn-model"


def test_questions_that_cannot_be_asked(compare):
    rows().to_csv("flats.csv", index=False)
    status, said = compare("flats.csv", "--target", "price", "--shifted", "nowhere.csv")
    assert status == 2
    assert "nowhere.csv: no such file" in said
    with pytest.raises(assay.TaskError, match="takes no shifted; tasks that do: predictive"):
        assay.compare(rows(), "price", shifted="permute")
