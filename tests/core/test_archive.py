"""Archives: whole or refused, and never half written."""

import os
import random
import zipfile

import pytest

from assay.core.archive import BrokenArchive, read_archive, write_archive
from assay.core.errors import StoreError
from assay.core.replacing import replacing

MEMBERS = {"about.json": b'{"a": 1}', "parts/0.npy": bytes(range(256)), "empty": b""}


def test_members_come_back(tmp_path):
    path = tmp_path / "a.assay"
    size = write_archive(path, MEMBERS)
    assert path.stat().st_size == size
    assert read_archive(path) == MEMBERS
    assert [p.name for p in tmp_path.iterdir()] == ["a.assay"]


def test_equal_contents_are_equal_files(tmp_path):
    for name in ("a", "b"):
        write_archive(tmp_path / name, MEMBERS)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_every_flipped_bit_is_found(tmp_path):
    path = tmp_path / "a"
    write_archive(path, MEMBERS)
    whole = path.read_bytes()
    for position in range(len(whole)):
        broken = bytearray(whole)
        broken[position] ^= 1 << random.Random(position).randrange(8)
        path.write_bytes(broken)
        with pytest.raises(BrokenArchive):
            read_archive(path)


@pytest.mark.parametrize("cut", [0, 1, 80, -1])
def test_cut_or_longer_files_are_refused(tmp_path, cut):
    path = tmp_path / "a"
    write_archive(path, MEMBERS)
    whole = path.read_bytes()
    path.write_bytes(whole[:cut] if cut >= 0 else whole + b"x")
    with pytest.raises(BrokenArchive):
        read_archive(path)


def _with_digest(path):
    """Give a hostile archive the digest that it needs."""
    import hashlib

    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = b"assay sha256 " + b"0" * 64
    raw = path.read_bytes()[:-64]
    path.write_bytes(raw + hashlib.sha256(raw).hexdigest().encode())


def test_bombs_and_doubles_are_refused(tmp_path):
    path = tmp_path / "a"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("bomb", b"\0" * 10**7)
    _with_digest(path)
    with pytest.raises(BrokenArchive, match="compressed"):
        read_archive(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", b"1")
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("x", b"2")
    _with_digest(path)
    with pytest.raises(BrokenArchive, match="twice"):
        read_archive(path)


def test_names_that_climb_are_never_written_anywhere(tmp_path):
    path = tmp_path / "inner" / "a"
    path.parent.mkdir()
    write_archive(path, {"../../evil": b"x", "/etc/evil": b"y"})
    assert read_archive(path) == {"../../evil": b"x", "/etc/evil": b"y"}
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["a", "inner"]


def test_a_failure_leaves_the_former_file(tmp_path):
    path = tmp_path / "a"
    write_archive(path, MEMBERS)
    before = path.read_bytes()
    with pytest.raises(ZeroDivisionError), replacing(path) as part:
        part.write_bytes(bytes([1 // 0]))
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_folders_that_are_not_there_are_named(tmp_path):
    with pytest.raises(StoreError, match="cannot write"):
        write_archive(tmp_path / "none" / "a", MEMBERS)
    with pytest.raises(StoreError, match="cannot read"):
        read_archive(tmp_path / "none")


def test_a_full_disk_is_an_error_with_its_reason(tmp_path, monkeypatch):
    def full(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="No space left"):
        write_archive(tmp_path / "a", MEMBERS)
    assert not list(tmp_path.iterdir())
