"""The record of the peers is whole, and README's table is its rendering."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def recorded():
    return json.loads((ROOT / "benchmarks" / "peers.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def generate():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_record_says_when_where_and_with_what(recorded):
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", recorded["date"])
    assert recorded["command"] == "make peers"
    assert re.search(r"^peers:", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recorded["machine"]["cores"] >= 1
    assert recorded["machine"]["memory_gib"] >= 1
    assert set(recorded["versions"]) >= {"assay", "numpy", "scikit-learn", "torch"}


def test_every_peer_is_measured_or_said_to_be_absent(recorded):
    measured = {
        row["contender"] for rows in recorded["results"].values() for row in rows if row["ratio"] is not None
    }
    for peer in recorded["peers"]:
        assert bool(peer["trouble"]) != (peer["name"] in measured), peer
    assert not measured & set(recorded["nothing_alike"])


def test_each_row_has_a_ratio_or_a_reason_and_an_answer(recorded):
    for name, (ours, *others) in recorded["results"].items():
        assert ours["contender"] == "assay"
        assert ours["ratio"] == 1
        assert others, name
        for row in others:
            if row["ratio"] is None:
                assert row["note"], (name, row)
            else:
                assert row["agreement"], (name, row)
                assert row["ratio"] == pytest.approx(row["seconds"] / ours["seconds"])
                if row["agreement"] not in ("equal", "the same sets"):
                    # another answer within rounding says so itself, any other is explained
                    assert row["note"] or re.search(r"differs by up to \S+e-|mean size", row["agreement"])


def test_readme_shows_the_record(recorded, generate):
    shown = re.search(r"<!-- begin peers\b[^>]*-->\n(.*?)<!-- end peers -->", README, re.DOTALL)[1].strip()
    assert shown == generate.peers_table(recorded)
    assert recorded["date"] in shown
    assert shown.count("\n| ") - 2 == sum(len(rows) - 1 for rows in recorded["results"].values())


def test_ratios_of_nothing_are_not_shown(generate):
    ours = {"extra_mib": 0.2}
    assert generate._memory({"extra_mib": 5.0}, ours) == "5 MiB, ours under 1"
    assert generate._memory(ours, ours) == "both under 1 MiB"
    assert generate._memory({"extra_mib": 5.0}, {"extra_mib": 2.0}) == "2.5 (5 MiB)"
    assert generate._memory({"extra_mib": 506.0}, {"extra_mib": 9.0}) == "56 (506 MiB)"
    assert generate._memory({"extra_mib": None}, ours) == "–"
