"""Counts of feedback: those of the check, kept through a restart, refused for another method."""

from fractions import Fraction

import pytest

pytest.importorskip("fastapi")

from assay.core.errors import DataError, StoreError
from assay.engine.coverage import evidence, part_of
from assay.serve import feedback as module
from assay.serve.feedback import Feedback

TENTH, LEVEL = Fraction(1, 10), Fraction(1, 20)


def counts(folder=None, identity="a" * 64, **options):
    return Feedback(TENTH, LEVEL, 99, identity, folder, **options)


def test_the_report_is_that_of_the_check():
    found = counts()
    assert found.report()["coverage"] is None
    found.add(80, 100)
    found.add(85, 100)
    report, part = found.report(), part_of("all", "all rows", 200, 165, TENTH, LEVEL, 99)
    assert (report["rows"], report["covered"], report["batches"]) == (200, 165, 2)
    for name in ("coverage", "low", "high", "p", "verdict"):
        assert report[name] == getattr(part, name)
    assert report["evidence"] == evidence(165, 200, TENTH, 99)
    assert report["most_evidence"] == max(1.0, report["evidence"], evidence(80, 100, TENTH, 99))
    assert report["kept"] == "in memory"


def test_drift_once_found_stays_found():
    found = counts()
    found.add(30, 100)
    assert found.report()["drifted"]
    found.add(3000, 3000)
    assert found.report()["drifted"]


def test_a_restart_goes_on_with_the_same_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_CHECKPOINT", 3)
    whole, kept = counts(), counts(tmp_path / "state")
    for i in range(8):
        whole.add(8, 10 + i)
        kept.add(8, 10 + i)
        if i in (1, 5):  # between checkpoints, and without a goodbye
            kept.close()
            kept = counts(tmp_path / "state")
    assert kept.report() == {**whole.report(), "kept": "on disk"}
    with pytest.raises(StoreError, match="in use"):
        counts(tmp_path / "state")
    kept.close()


def test_a_state_of_another_method_is_refused(tmp_path):
    counts(tmp_path / "state").close()
    with pytest.raises(DataError, match="another saved method"):
        counts(tmp_path / "state", "b" * 64)
    counts(tmp_path / "state").close()  # and let go


def test_damage_is_refused_and_can_be_restored(tmp_path):
    kept = counts(tmp_path / "state")
    for _ in range(3):
        kept.add(9, 10)
    kept.close()
    journal = next((tmp_path / "state").glob("journal-*"))
    content = bytearray(journal.read_bytes())
    content[-3] ^= 1
    journal.write_bytes(bytes(content))
    with pytest.raises(StoreError, match="--restore"):
        counts(tmp_path / "state")
    kept = counts(tmp_path / "state", restore=True)
    assert kept.counts == (18, 20)
    assert kept.lost
    kept.close()


def test_what_cannot_be_written_is_not_counted(tmp_path, monkeypatch):
    kept = counts(tmp_path / "state")
    kept.add(9, 10)

    def full(*_):
        raise StoreError("the disk is full")

    monkeypatch.setattr(kept._folder, "append", full)
    with pytest.raises(StoreError):
        kept.add(9, 10)
    assert kept.counts == (9, 10)
    kept.close()
