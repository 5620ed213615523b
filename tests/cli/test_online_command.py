"""A comparison over time on the command line, and what it says of tables that are no series."""

import json
import shutil
import sys
from pathlib import Path

import pytest

from assay.cli.main import run

TOYS = Path(__file__).parents[1] / "tasks" / "series_toys.py"
sys.path.insert(0, str(TOYS.parent))
from series_toys import hourly, many  # noqa: E402


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A user's folder with two files of series and one of methods."""
    shutil.copy(TOYS, tmp_path / "mytoys.py")
    hourly(500).to_csv(tmp_path / "load.csv", index=False)
    many((150, 150)).to_csv(tmp_path / "shops.csv", index=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_STORE", str(tmp_path / "runs.db"))
    return tmp_path


def compare(*arguments, methods="mytoys:Gradient,mytoys:Constant"):
    return run(["compare", *arguments, "--methods", methods, "--in-process", "--quiet"])


def test_one_series(folder, capsys):
    status = compare("load.csv", "--target", "load", "--time", "when", "--json", "out.json")
    out = capsys.readouterr().out
    assert status == 0, out
    assert "Task: online: when orders the rows in time" in out
    assert "500 steps: 125 of history, then 5 stretches of 75, each after a burn-in of 50 steps" in " ".join(
        out.split()
    )
    assert "the steps to come?" in out
    content = json.loads(Path("out.json").read_text(encoding="utf-8"))
    assert {row["seed"] for row in content["trials"]} == {0, 1, 2, 3, 4}
    assert "rolling_100_gap" in {row["metric"] for row in content["summary"]}
    page = Path("assay-report-load.html").read_text(encoding="utf-8")
    assert all(
        words in page for words in ("Over time", "Rolling coverage", "Close up", "5 stretches of time")
    )


def test_many_series_a_horizon_ahead_by_a_model(folder, capsys):
    roles = ("--target", "value", "--time", "step", "--group", "name")
    status = compare(
        "shops.csv", *roles, "--horizon", "3", "--model", "assay.tasks.forecasting:SeasonalNaive",
        methods="mytoys:Gradient",
    )  # fmt: skip
    out = " ".join(capsys.readouterr().out.split())
    assert status == 0, out
    assert "2 series of 150 to 150 targets; 150 steps" in out
    assert "forecasts are made 3 steps before" in out


def test_a_method_that_would_look_ahead_fails_in_words(folder, capsys):
    status = compare("load.csv", "--target", "load", "--time", "when", "--horizon", "2")
    out = " ".join(capsys.readouterr().out.split())
    assert status == 1
    assert "Constant takes no horizon: with forecasts 2 steps ahead it would use targets" in out


def test_forecasts_of_the_table(folder, capsys):
    frame = hourly(500)
    frame.assign(plan=frame["load"].shift(1).bfill()).to_csv("plan.csv", index=False)
    roles = ("plan.csv", "--target", "load", "--time", "when")
    assert compare(*roles, "--forecast", "plan") == 0
    assert compare(*roles, "--forecast", "plans") == 2
    assert "no column 'plans' of forecasts" in capsys.readouterr().err


def test_rows_in_order_without_times(folder, capsys):
    assert compare("load.csv", "--target", "load", "--task", "online", "--drop", "when") == 0
    assert "rows count as equal steps" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("shops.csv", "--target", "value", "--time", "step"),
            "Name the column that tells them apart: 'name'",
        ),
        (("load.csv", "--target", "load", "--time", "when", "--seeds", "9"), "has 5 seeds, 0 to 4"),
        (("load.csv", "--target", "load", "--forecast", "wind"), "takes no forecast"),
        (("load.csv", "--target", "load", "--time", "wheen"), "did you mean 'when'?"),
    ],
)
def test_questions_that_cannot_be_asked(folder, capsys, arguments, message):
    assert compare(*arguments) == 2
    assert message in " ".join(capsys.readouterr().err.split())
