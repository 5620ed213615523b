"""``assay compare`` with groups of rows and with probabilities from a file."""

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

from assay.cli.main import main


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_STORE", str(tmp_path / "runs.db"))
    return tmp_path


def run(*arguments):
    return CliRunner().invoke(main, ["compare", *arguments, "--seeds", "1", "--quiet", "--in-process"])


def test_a_table_with_groups(here):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=400), "sex": rng.choice(["f", "m"], 400)})
    frame["y"] = np.where(frame["x"] + rng.normal(size=400) > 0, "yes", "no")
    frame.to_csv(here / "people.csv", index=False)
    found = run("people.csv", "--target", "y", "--group", "sex", "--methods", "lac,mondrian,equalized-size")
    assert found.exit_code == 0, found.output
    assert "coverage gap  size gap" in found.output
    assert "groups by sex (" in found.output
    page = (here / "assay-report-people.html").read_text()
    assert "By sex" in page
    assert "coverage and size by group" in page
    hidden = run("people.csv", "--target", "y", "--group", "sex", "--drop", "sex", "--methods", "lac")
    assert "the model does not see it" in " ".join(hidden.output.split())


def test_probabilities_from_a_file(here):
    rng = np.random.default_rng(0)
    proba = rng.dirichlet([1, 1, 1], size=200)
    y = (proba.cumsum(axis=1) < rng.random((200, 1))).sum(axis=1)
    np.savez(here / "probs.npz", proba=proba, y=y, groups=rng.integers(2, size=200))
    found = run("--proba", "probs.npz", "--methods", "lac,mondrian")
    assert found.exit_code == 0, found.output
    assert "probabilities of 3 classes" in " ".join(found.output.split())
    assert "no model is trained" in found.output
    assert (here / "assay-report-probs.html").exists()
    np.savez(here / "bad.npz", proba=proba * 2, y=y)
    bad = run("--proba", "bad.npz")
    assert bad.exit_code == 2
    assert "sums to 2 instead of 1 (within 0.0001 for float64), first at row 0" in " ".join(
        bad.output.split()
    )


def test_one_source_is_needed(here):
    for arguments in ((), ("people.csv", "--proba", "probs.npz")):
        found = run(*arguments)
        assert found.exit_code == 2
        assert "give one FILE" in found.output
