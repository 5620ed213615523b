"""`assay verify` on a small claim of its own, and how its verdict shows."""

import dataclasses

import pytest

from assay.cli.main import run
from assay.core.cards import get_card

CHECK = """
def measure(seed):
    if seed == BAD:
        raise ValueError("no luck today")
    return {"error": {"split": 1.0 + 0.01 * seed, "other": 2.0 + 0.03 * seed}}

BAD = None
"""

CLAIM = {
    "id": "smaller-error",
    "statement": "The error is smaller than the other's",
    "where": "Table 1",
    "paper": "1 against 2",
    "metric": "error",
    "method": "split",
    "versus": "other",
    "better": "lower",
    "seeds": 4,
    "check": "check_of_claim:measure",
}


@pytest.fixture
def claimed(monkeypatch, tmp_path):
    """A card with one claim that takes no time; gives a function to change the claim."""
    (tmp_path / "check_of_claim.py").write_text(CHECK, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "split.toml"

    def make(**changes):
        card = dataclasses.replace(get_card("split"), claims=({**CLAIM, **changes},), path=str(path))
        for module in ("assay.claims.claim", "assay.claims.ledger", "assay.cli.methods"):
            monkeypatch.setattr(f"{module}.get_card", lambda _id: card)
        return card

    return make


@pytest.mark.parametrize(
    ("changes", "verdict", "status"),
    [({}, "holds", 0), ({"better": "higher"}, "does not hold", 1), ({"margin": 1.02}, "undecided", 1)],
)
def test_verdict_and_status(claimed, changes, verdict, status, capsys):
    claimed(**changes)
    assert run(["verify", "split"]) == status
    out, err = capsys.readouterr()
    assert "The error is smaller than the other's (Table 1)" in out
    assert "1 against 2" in out
    assert f"\n1 {verdict}\n" in out
    assert err.splitlines()[-1] == f"split/smaller-error: {verdict}"
    assert "[4/4] " in err


def test_recorded_verdict_is_on_the_card(claimed, capsys, tmp_path):
    claimed()
    assert run(["methods", "split"]) == 0
    assert "not run yet: assay verify split --record" in capsys.readouterr().out
    assert run(["verify", "split", "--record", "--quiet"]) == 0
    assert not capsys.readouterr().err
    assert (tmp_path / "split.ledger.json").exists()
    assert run(["methods", "split"]) == 0
    out = capsys.readouterr().out
    assert "verdict         holds (" in out
    assert "4 seeds" in out


def test_a_repetition_that_fails_leaves_the_claim_undecided(claimed, capsys, monkeypatch):
    claimed()
    monkeypatch.setattr("check_of_claim.BAD", 2)
    assert run(["verify", "split", "--quiet"]) == 1
    out = capsys.readouterr().out
    assert "undecided" in out
    assert "no luck today" in " ".join(out.split())


def test_claims_that_cannot_be_run(claimed, capsys, monkeypatch):
    monkeypatch.delenv("ASSAY_DATA", raising=False)
    claimed(dataset="bike")
    assert run(["verify", "split", "--quiet"]) == 2
    assert "1 skipped" in capsys.readouterr().out
    assert run(["verify", "split", "--data", "no-such-folder"]) == 2
    assert "no-such-folder" in capsys.readouterr().err


def test_a_method_without_claims(capsys):
    assert run(["verify", "split"]) == 2
    assert "split makes no claim" in capsys.readouterr().err
