"""``assay fit``, ``predict``, ``check`` and ``show``, as a user types them."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from assay.cli.main import run


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_STORE", str(tmp_path / "runs.db"))
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"id": [f"r{i}" for i in range(600)], "x": rng.normal(size=600)})
    frame["town"] = rng.choice(["Ulm", "Bonn"], 600)
    frame["y"] = 2 * frame["x"] + rng.normal(size=600)
    frame[:400].to_csv("old.csv", index=False)
    frame[400:].to_csv("new.csv", index=False)
    return tmp_path


@pytest.fixture
def assay(here, capsys):
    """Runs a command line; (exit status, stdout, stderr)."""

    def ask(*arguments):
        status = run(arguments)
        said = capsys.readouterr()
        return status, said.out, said.err

    return ask


def test_from_fit_to_check(here, assay):
    status, out, err = assay("fit", "old.csv", "--target", "y", "--drop", "id", "-o", "y.assay")
    assert (status, err) == (0, "")
    assert "split for y (interval, alpha 0.1) fitted on old" in out
    assert "267 rows trained it, 133" in out
    status, out, err = assay("predict", "y.assay", "new.csv", "-o", "out.parquet", "--keep", "id")
    assert status == 0
    assert "200 rows: out.parquet" in out
    answers, new = pd.read_parquet("out.parquet"), pd.read_csv("new.csv")
    assert answers["id"].tolist() == new["id"].tolist()
    assert list(answers.columns) == ["id", "prediction", "lower", "upper"]
    covered = ((answers["lower"] <= new["y"]) & (new["y"] <= answers["upper"])).sum()
    status, out, err = assay("check", "y.assay", "new.csv", "--group", "town", "--json", "c.json")
    assert status == 0
    content = json.loads((here / "c.json").read_text())
    assert content["parts"][0]["covered"] == covered
    assert {part["name"] for part in content["parts"]} >= {"all rows", "town Ulm", "town Bonn"}
    status, out, err = assay("show", "y.assay")
    assert status == 0
    for words in ("split", "x (number), town (text)", "scikit-learn", "nothing beyond", "267 train"):
        assert words in " ".join(out.split())


def test_drift_is_status_1(here, assay):
    assay("fit", "old.csv", "--target", "y", "--drop", "id", "-o", "y.assay")
    pd.read_csv("new.csv").assign(y=lambda f: 4 * f["y"]).to_csv("drifted.csv", index=False)
    status, out, _ = assay("check", "y.assay", "drifted.csv")
    assert status == 1
    assert "below" in out


def test_answers_on_the_terminal_are_a_table(here, assay):
    assay("fit", "old.csv", "--target", "y", "--drop", "id", "-o", "y.assay")
    status, out, err = assay("predict", "y.assay", "new.csv", "--quiet")
    assert status == 0
    lines = out.splitlines()
    assert lines[0] == "prediction,lower,upper"
    assert len(lines) == 201
    assert "notice: id: column not used" in err


def test_the_winner_of_a_comparison(here, assay):
    methods = ["--methods", "split,cqr", "--seeds", "2", "--quiet", "--drop", "id", "--alpha", "0.2"]
    assay("compare", "old.csv", "--target", "y", *methods)
    status, out, err = assay("fit", "--from", "last", "--drop", "id", "-o", "y.assay")
    assert status == 0, err
    assert "alpha 0.2" in out
    assert err == ""
    status, _, err = assay("fit", "new.csv", "--from", "last", "--drop", "id", "-o", "z.assay")
    assert "not those of the comparison" in err
    status, _, err = assay("fit", "--from", "last", "--method", "cqr", "-o", "z.assay")
    assert status == 2
    assert "--from takes the winner" in err


def test_the_store_is_not_written_over(here, assay):
    given = ["--target", "y", "--methods", "split", "--seeds", "2", "--quiet", "--drop", "id"]
    assay("compare", "old.csv", *given, "--store", "kept.db")
    whole = (here / "kept.db").read_bytes()
    for out in ("kept.db", "./kept.db"):
        status, _, err = assay("fit", "--from", "last", "--store", "kept.db", "-o", out)
        assert status == 2
        assert "would be lost" in err
    assert (here / "kept.db").read_bytes() == whole
    status, out, _ = assay("report", "last", "--store", "kept.db")
    page = next(line.removeprefix("report: ") for line in out.splitlines() if line.startswith("report: "))
    status, _, err = assay("report", "last", "--store", "kept.db", "--json", page)
    assert status == 2
    assert "written twice" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "old.csv", "--target", "y", "-o", "none/y.assay"], "cannot write"),
        (["fit", "--target", "y", "-o", "y"], "give the FILE"),
        (["fit", "old.csv", "--target", "z", "-o", "y"], "no target column 'z'"),
        (["fit", "old.csv", "--target", "y", "--method", "splt", "-o", "y"], "nearest: split"),
        (["fit", "old.csv", "--target", "y", "--method", "lac", "-o", "y"], "task"),
        (["predict", "old.csv", "new.csv"], "is no saved method"),
        (["predict", "none.assay", "new.csv"], "No such file"),
        (["show", "new.csv"], "is no saved method"),
        (["check", "new.csv", "new.csv"], "is no saved method"),
    ],
)
def test_mistakes_are_one_line(here, assay, arguments, words):
    status, out, err = assay(*arguments)
    assert status == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert words in err


def test_columns_are_named_on_the_command_line_too(here, assay):
    assay("fit", "old.csv", "--target", "y", "--drop", "id", "-o", "y.assay")
    pd.read_csv("new.csv").rename(columns={"x": "X"}).to_csv("bad.csv", index=False)
    status, _, err = assay("predict", "y.assay", "bad.csv", "-o", "out.csv")
    assert status == 2
    assert "1 column is missing: 'x'; is it 'X' for 'x'?" in err
    assert not (here / "out.csv").exists()
    frame = pd.read_csv("new.csv").astype({"x": object})
    frame.loc[150, "x"] = "much"
    frame.to_csv("bad.csv", index=False)
    status, _, err = assay("predict", "y.assay", "bad.csv", "-o", "out.csv")
    assert status == 2
    assert "the column 'x' was numbers in training and holds text in 1 of 200 rows, first in row 150" in err
    assert sorted(p.name for p in here.glob("*out.csv*")) == []


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_killed_prediction_leaves_no_file_under_its_name(here, assay):
    assay("fit", "old.csv", "--target", "y", "--drop", "id", "-o", "y.assay")
    new = pd.read_csv("new.csv")
    pd.concat([new] * 2000).to_parquet("many.parquet")
    child = subprocess.Popen(
        [sys.executable, "-m", "assay", "predict", "y.assay", "many.parquet", "-o", "out.parquet"],
        stderr=subprocess.PIPE,
    )
    assert child.stderr.readline()  # the first batch is written
    child.send_signal(signal.SIGKILL)
    child.wait()
    assert not (here / "out.parquet").exists()
