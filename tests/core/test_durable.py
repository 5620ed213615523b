"""Records, journals and checkpoints: whole or refused, whatever is cut, flipped or killed."""

import errno
import os

import numpy as np
import pytest

from assay.core import durable
from assay.core.checkpoints import StateFolder
from assay.core.durable import Damaged, Journal, read_checkpoint, write_checkpoint
from assay.core.errors import StoreError

_ARRAYS = {
    "a": np.arange(6.0).reshape(2, 3),
    "b": np.array([], np.int64),
    "c": np.array([1, 2, 3], np.uint8),
    "d": np.zeros((0, 4)),
    "e": np.array([True, False]),
}


def test_a_checkpoint_comes_back_as_it_was(tmp_path):
    write_checkpoint(tmp_path / "x", 7, {"note": "ü"}, _ARRAYS)
    record = read_checkpoint(tmp_path / "x")
    assert (record.number, record.about) == (7, {"note": "ü"})
    assert set(record.arrays) == set(_ARRAYS)
    for name, array in _ARRAYS.items():
        np.testing.assert_array_equal(record.arrays[name], array)
        assert record.arrays[name].dtype == array.dtype
        assert record.arrays[name].shape == array.shape
    assert os.listdir(tmp_path) == ["x"]


def test_every_flipped_bit_and_every_cut_of_a_checkpoint_is_refused(tmp_path):
    path = tmp_path / "x"
    write_checkpoint(path, 7, {"note": "n"}, _ARRAYS)
    whole = path.read_bytes()
    for at in range(len(whole)):
        for bit in (1, 128):
            broken = bytearray(whole)
            broken[at] ^= bit
            path.write_bytes(broken)
            with pytest.raises(StoreError):
                read_checkpoint(path)
        path.write_bytes(whole[:at])
        with pytest.raises(StoreError, match="cut short"):
            read_checkpoint(path)
    path.write_bytes(whole + b"x")
    with pytest.raises(StoreError, match="longer"):
        read_checkpoint(path)


def filled(path, count=3):
    Journal.create(path, 4)
    journal = Journal(path)
    assert list(journal.records(4)) == []
    journal.open()
    for number in range(5, 5 + count):
        journal.append(number, {"n": number}, {"x": np.full(3, float(number))})
    journal.close()
    return path


def numbers(path):
    journal = Journal(path)
    found = [record.number for record in journal.records(4)]
    journal.open()
    journal.close()
    return found


def test_a_journal_cut_anywhere_in_its_last_record_goes_on_before_it(tmp_path):
    path = filled(tmp_path / "j")
    whole = path.read_bytes()
    last = len(filled(tmp_path / "k", 2).read_bytes())
    for length in range(last, len(whole)):
        path.write_bytes(whole[:length])
        assert numbers(path) == [5, 6]
        assert path.stat().st_size == last
    path.write_bytes(whole)
    assert numbers(path) == [5, 6, 7]


def test_every_flipped_bit_of_a_journal_is_refused(tmp_path):
    path = filled(tmp_path / "j")
    whole = path.read_bytes()
    for at in range(len(whole)):
        broken = bytearray(whole)
        broken[at] ^= 4
        path.write_bytes(broken)
        with pytest.raises(Damaged):
            numbers(path)


def test_records_out_of_order_are_refused(tmp_path):
    path = filled(tmp_path / "j")
    other = filled(tmp_path / "k", 1)
    head = len(filled(tmp_path / "l", 0).read_bytes())
    path.write_bytes(path.read_bytes() + other.read_bytes()[head:])
    with pytest.raises(Damaged, match="record 5 stands after 7"):
        numbers(path)
    with pytest.raises(Damaged, match="not that of a journal after 3"):
        list(Journal(other).records(3))


def test_a_full_disk_leaves_the_journal_as_it_was(tmp_path, monkeypatch):
    path = filled(tmp_path / "j")
    before = path.read_bytes()
    journal = Journal(path)
    assert len(list(journal.records(4))) == 3
    journal.open()
    real = os.write

    def half(descriptor, data):
        if len(data) > 20:
            return real(descriptor, bytes(data[: len(data) // 2]))
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(durable.os, "write", half)
        with pytest.raises(StoreError, match="No space left"):
            journal.append(8, {}, {"x": np.zeros(50)})
    assert path.read_bytes() == before
    with pytest.raises(StoreError, match="no more records after: No space"):
        journal.append(8, {}, {})
    journal.close()


def test_a_folder_is_held_by_one_at_a_time(tmp_path):
    first, second = StateFolder(tmp_path / "s"), StateFolder(tmp_path / "s")
    first.acquire()
    with pytest.raises(StoreError, match="in use by another process"):
        second.acquire()
    first.close()
    second.acquire()
    second.close()


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="is a file"):
        StateFolder(tmp_path / "file").acquire()
    with pytest.raises(StoreError, match="No such file"):
        StateFolder(tmp_path / "no" / "folder").acquire()
