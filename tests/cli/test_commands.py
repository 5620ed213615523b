"""Each command on small real data, as a user calls it; the user's own methods among them."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from sklearn.datasets import load_diabetes

from assay.cli.main import run

OWN = '''
import os, time
import numpy as np

class Largest:
    """The largest residual of the median."""
    def __init__(self, alpha=0.1):
        self.alpha = alpha
    def fit(self, X, y, X_calib=None, y_calib=None):
        self.centre_ = np.median(y)
        self.radius_ = np.max(np.abs(y_calib - self.centre_))
        return self
    def predict_interval(self, X, alpha=None):
        return np.tile([self.centre_ - self.radius_, self.centre_ + self.radius_], (len(X), 1))

class LargestBox(Largest):
    """A box of the largest residuals of the medians, for several targets."""
    def fit(self, X, y, X_calib=None, y_calib=None):
        self.centre_ = np.median(y, axis=0)
        self.radius_ = np.abs(y_calib - self.centre_).max(axis=0)
        return self
    def predict_region(self, X):
        return Box(self.centre_, self.radius_, len(X))

class Box:
    def __init__(self, centre, radius, n):
        self.centre, self.radius, self.n = centre, radius, n
    def contains(self, Y):
        return (np.abs(Y - self.centre) <= self.radius).all(axis=1)
    def volume(self):
        return np.full(self.n, np.prod(2 * self.radius))
    def take(self, rows):
        return Box(self.centre, self.radius, len(rows))
    def bounding_box(self):
        box = np.stack([self.centre - self.radius, self.centre + self.radius], axis=-1)
        return np.tile(box, (self.n, 1, 1))

class Raises(Largest):
    def fit(self, X, y, X_calib=None, y_calib=None):
        raise ValueError("no luck today")

class Sleeps(Largest):
    def fit(self, X, y, X_calib=None, y_calib=None):
        open("sleeping", "w").close()
        time.sleep(600)
'''


def assay(folder, *arguments, **options):
    return subprocess.run(
        [sys.executable, "-m", "assay", *arguments],
        cwd=folder, capture_output=True, text=True, timeout=120, check=False, **options,
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A user's folder: a table with a text column, a file of methods."""
    path = tmp_path_factory.mktemp("user")
    frame = load_diabetes(as_frame=True).frame.assign(site="a")
    frame.loc[::3, "site"] = "b"
    frame.to_csv(path / "study.csv", index=False)
    (path / "own.py").write_text(OWN, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def compared(folder):
    """One comparison: a method that works, one of the user's, one that raises."""
    return assay(
        folder, "compare", "study.csv", "--target", "target", "--methods", "split,own:Largest,own:Raises",
        "--model", "sklearn.linear_model:Ridge", "--seeds", "3", "--store", "runs.db", "--json", "out.json",
        "--drop", "s1,s2",
    )  # fmt: skip


def test_compare_answers_and_says_what_failed(compared, folder):
    assert compared.returncode == 1, compared.stderr
    lines = compared.stdout.splitlines()
    table = {line.split()[0]: line for line in lines if line.endswith(("3/3", "0/3"))}
    assert set(table) == {"split", "Largest", "Raises"}
    assert table["Raises"].endswith("0/3")
    assert "no luck today" in compared.stdout
    assert "Rule: " in compared.stdout
    assert "report: assay-report-study.html" in lines
    assert lines[-1].endswith("kept in runs.db")
    assert "Traceback" not in compared.stdout + compared.stderr
    assert "9 features" in " ".join(lines)
    assert (folder / "assay-report-study.html").stat().st_size > 10_000


def test_progress_in_a_log_is_one_line_a_trial(compared):
    lines = compared.stderr.splitlines()
    assert lines[0] == "9 trials"
    assert sum(": ok (" in line for line in lines) == 6
    assert sum("failed: " in line and "no luck today" in line for line in lines) == 3
    assert any(line.startswith("[9/9] ") for line in lines)
    assert len(lines) == 10


def test_json_holds_trials_summary_and_choice(compared, folder):
    content = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    assert {row["status"] for row in content["trials"]} == {"ok", "failed"}
    assert {row["method"] for row in content["summary"]} >= {"split", "Largest"}
    assert content["best"]["method"] == "split"
    assert content["run"]["command"].startswith("assay compare study.csv --target target")


def test_the_same_command_runs_nothing_twice(compared, folder):
    again = assay(
        folder, "compare", "study.csv", "--target", "target", "--methods", "split,own:Largest",
        "--model", "sklearn.linear_model:Ridge", "--seeds", "3", "--store", "runs.db", "--drop", "s1,s2",
    )  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert again.stderr.splitlines() == ["6 trials, 6 of them kept from before"]
    old, new = ([line for line in out.splitlines() if line.startswith("split ")] for out in
                (compared.stdout, again.stdout))  # fmt: skip
    assert old[0].split("  ")[:4] == new[0].split("  ")[:4]


def test_runs_and_report(compared, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert run(["runs", "--store", "runs.db"]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "study" in line]
    assert rows
    first = rows[-1].split()[0]
    assert run(["report", first[:8], "--store", "runs.db", "--report", "old.html"]) == 1
    out = capsys.readouterr().out
    assert "no luck today" in out
    assert "report: old.html" in out
    assert (folder / "old.html").stat().st_size > 10_000
    assert run(["report", "zzzz", "--store", "runs.db"]) == 2
    assert "zzzz" in capsys.readouterr().err


def test_quiet_says_nothing_but_the_answer(folder):
    done = assay(
        folder, "compare", "wine", "--model", "sklearn.naive_bayes:GaussianNB", "--seeds", "1",
        "--methods", "lac", "--quiet", "--store", "wine.db", "--report", "wine.html",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    assert "wine.html" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["study.csv"], "target"),
        (["study.csv", "--target", "tarpit"], "target"),
        (["study.csv", "--target", "target", "--methods", "splitt"], "nearest: split"),
        (["study.csv", "--target", "target", "--methods", "own:Lagrest"], "did you mean Largest"),
        (["study.csv", "--target", "target", "--alpha", "2"], "alpha"),
        (["study.csv", "--target", "site", "--task", "interval"], "site"),
        (["study.csv", "--target", "target", "--alpha", "0.0001"], "9999"),
    ],
)
def test_questions_that_cannot_be_answered(folder, arguments, message, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert run(["compare", *arguments, "--store", "bad.db", "--in-process"]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err.replace(",", "")
    assert err.count("\n") == 1


def test_interrupt_reports_what_is_done(folder):
    process = subprocess.Popen(
        [sys.executable, "-m", "assay", "compare", "study.csv", "--target", "target", "--seeds", "2",
         "--methods", "own:Largest,own:Sleeps", "--store", "stop.db", "--report", "stop.html"],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (folder / "sleeping").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "1/2" in next(line for line in out.splitlines() if line.startswith("Largest"))
    assert "goes on from here" in err
    assert "Traceback" not in out + err
    assert (folder / "stop.html").exists()


def test_several_targets_give_regions(folder):
    done = assay(
        folder, "compare", "study.csv", "--target", "target,bmi", "--methods", "own:LargestBox",
        "--seeds", "2", "--store", "regions.db", "--report", "regions.html", "--json", "regions.json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "region: 2 targets" in done.stdout
    assert "median volume" in done.stdout
    run_facts = json.loads((folder / "regions.json").read_text())["run"]
    assert run_facts["targets"] == ["target", "bmi"]
    assert run_facts["n_features"] == 10
    assert "In the plane of the targets" in (folder / "regions.html").read_text("utf-8")


def test_roles_that_no_task_takes(folder):
    for arguments, message in (
        (["--target", "target,bmu"], "no target column 'bmu'; did you mean 'bmi'?"),
        (["--target", "target", "--horizon", "3"], "takes no horizon"),
        (["--target", "target,bmi", "--task", "interval"], "takes one target; 2 are given"),
        (["--target", "target", "--time", "age", "--task", "interval"], "no use for the time column 'age'"),
    ):
        done = assay(folder, "compare", "study.csv", *arguments)
        assert done.returncode == 2
        assert message in " ".join(done.stderr.split())
