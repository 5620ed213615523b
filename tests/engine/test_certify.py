"""The radius table of a user's own classifier, from Python and from the command line."""

import json

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from sklearn.naive_bayes import GaussianNB

import assay
from assay.cli.certify import certify as command
from assay.core.errors import DataError, MethodError, TaskError
from assay.engine.certify import certify

pytestmark = pytest.mark.filterwarnings("ignore::assay.core.errors.AssayWarning")


@pytest.fixture(scope="module")
def table():
    """Numbers with gaps, text and a boolean, and a label that depends on them."""
    rng = np.random.default_rng(0)
    n = 600
    frame = pd.DataFrame(
        {
            "size": rng.normal(size=n),
            "kind": rng.choice(["red", "green", "blue"], n),
            "flag": rng.random(n) < 0.5,
        }
    )
    frame["y"] = np.where(frame["size"] + (frame["kind"] == "red") > 0.3, "yes", "no")
    frame.loc[::17, "size"] = np.nan
    return frame


@pytest.fixture(scope="module")
def found(table):
    return certify(table, "y", model=GaussianNB(), partitions=15, calibration_partitions=5)


def test_what_is_said(found, table):
    assert found.n_train + found.n_calib + found.n_test == len(table)
    assert found.n_train == pytest.approx(300, abs=5)
    assert (found.partitions, found.calibration_partitions, found.model) == (15, 5, "GaussianNB")
    assert found.coverage > 0.8
    radii = found.table()
    assert radii["poisoned"].tolist()[:2] == [0, 1]
    assert (radii.iloc[0].filter(like="same") == 1).all()
    assert radii.iloc[0]["train_labels"] == pytest.approx(found.mean_size)
    for column in radii.columns[1:]:
        steps = np.diff(radii[column])
        assert (steps >= 0).all() if column.endswith("labels") else (steps <= 0).all(), column
    grid = found.grid([0, 1], [0, 1, 2])
    assert grid.shape == (2, 3)
    assert grid.iloc[0, 0] == 1
    rows = found.rows()
    assert (table["y"].to_numpy()[rows["row"]] == rows["y"]).all()
    assert (rows["train_same"] == rows[["train_none_lost", "train_none_gained"]].min(axis=1)).all()


def test_the_same_rows_give_the_same_answer(found, table):
    again = certify(table, "y", model=GaussianNB(), partitions=15, calibration_partitions=5)
    pd.testing.assert_frame_equal(again.rows(), found.rows())
    other = assay.certify(table, "y", model=GaussianNB(), partitions=15, calibration_partitions=5, seed=1)
    assert not np.array_equal(other.test_rows, found.test_rows)


def test_numbers_of_parts_are_chosen_and_said(table):
    chosen = certify(table, "y", majority="binomial")
    assert (chosen.partitions, chosen.calibration_partitions) == (37, 5)
    assert any("37 parts of " in note and "training rows" in note for note in chosen.notes)
    one = certify(table, "y", partitions=1, calibration_partitions=1)
    assert sum("nothing is certified" in note for note in one.notes) == 2
    assert (one.table([0, 1])["both_same"] == [1, 0]).all()


def test_refusals(table):
    with pytest.raises(MethodError, match="is a regressor"):
        certify(table, "y", model="sklearn.linear_model:Ridge")
    with pytest.raises(DataError, match="nothing"):
        certify(table, "nothing")
    with pytest.raises((TaskError, DataError), match="rows"):
        certify(table.head(20), "y")
    with pytest.raises(MethodError, match="majority must be one of"):
        certify(table, "y", majority="most")


def test_the_command(table, tmp_path):
    data = tmp_path / "data.csv"
    table.to_csv(data, index=False)
    arguments = [
        str(data),
        "--target",
        "y",
        "--model",
        "sklearn.naive_bayes:GaussianNB",
        "--partitions",
        "15",
    ]
    files = ["--rows", str(tmp_path / "rows.csv"), "--json", str(tmp_path / "all.json")]
    result = CliRunner().invoke(command, [*arguments, *files], standalone_mode=False, catch_exceptions=False)
    assert result.return_value == 0
    for words in (
        "GaussianNB, trained on 15 parts of",
        "poisoned training rows",
        "same, as many of both",
    ):
        assert words in result.output
    rows = pd.read_csv(tmp_path / "rows.csv")
    assert len(rows) == pytest.approx(150, abs=5)
    written = json.loads((tmp_path / "all.json").read_text())
    assert written["partitions"] == 15
    assert len(written["rows"]) == len(rows)
    assert written["alpha"] == "0.1"
