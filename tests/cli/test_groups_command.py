"""``assay compare`` with groups of rows and with probabilities from a file."""

import numpy as np
import pandas as pd
import pytest

from assay.cli.main import run


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ASSAY_STORE", str(tmp_path / "runs.db"))
    return tmp_path


@pytest.fixture
def compare(here, capsys):
    """Runs the command; (exit status, what it printed, in one line)."""

    def ask(*arguments):
        status = run(["compare", *arguments, "--seeds", "1", "--quiet", "--in-process"])
        said = capsys.readouterr()
        return status, " ".join((said.out + said.err).split())

    return ask


def test_a_table_with_groups(here, compare):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=400), "sex": rng.choice(["f", "m"], 400)})
    frame["y"] = np.where(frame["x"] + rng.normal(size=400) > 0, "yes", "no")
    frame.to_csv(here / "people.csv", index=False)
    status, said = compare(
        "people.csv", "--target", "y", "--group", "sex", "--methods", "lac,mondrian,equalized-size"
    )
    assert status == 0, said
    assert "coverage gap size gap" in said
    assert "groups by sex (" in said
    page = (here / "assay-report-people.html").read_text()
    assert "By sex" in page
    assert "coverage and size by group" in page
    _, said = compare("people.csv", "--target", "y", "--group", "sex", "--drop", "sex", "--methods", "lac")
    assert "the model does not see it" in said


def test_probabilities_from_a_file(here, compare):
    rng = np.random.default_rng(0)
    proba = rng.dirichlet([1, 1, 1], size=200)
    y = (proba.cumsum(axis=1) < rng.random((200, 1))).sum(axis=1)
    np.savez(here / "probs.npz", proba=proba, y=y, groups=rng.integers(2, size=200))
    status, said = compare("--proba", "probs.npz", "--methods", "lac,mondrian")
    assert status == 0, said
    assert "probabilities of 3 classes" in said
    assert "no model is trained" in said
    assert (here / "assay-report-probs.html").exists()
    np.savez(here / "bad.npz", proba=proba * 2, y=y)
    status, said = compare("--proba", "bad.npz")
    assert status == 2
    assert "sums to 2 instead of 1 (within 0.0001 for float64), first at row 0" in said


def test_one_source_is_needed(compare):
    for arguments in ((), ("people.csv", "--proba", "probs.npz")):
        status, said = compare(*arguments)
        assert status == 2
        assert "give one FILE" in said
