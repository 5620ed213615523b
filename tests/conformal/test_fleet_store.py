"""A fleet's folder survives a kill at every call of the system, and refuses what was not written."""

import os
import shutil

import numpy as np
import pytest

from assay.conformal import DurableFleet, Fleet
from assay.conformal.eci import ErrorQuantifiedTracker
from assay.core import checkpoints, durable
from assay.core.errors import DataError, StoreError

_BATCHES = 8
_SERIES = 3


def fresh(**options):
    return Fleet(ErrorQuantifiedTracker(lr=0.3, window=4), **{"alpha": 0.1, "alarm_after": 2, **options})


def opened(path, batches=3, **options):
    return DurableFleet(fresh(), path, checkpoint_batches=batches, **options)


def batch(t):
    rng = np.random.default_rng(t)
    ids = [f"s{i}" for i in range(min(t + 1, _SERIES))] * 2
    n = len(ids)
    times = np.repeat([2 * t, 2 * t + 1], n // 2)
    y = np.where(rng.random(n) < 0.2, np.nan, rng.normal(size=n))
    return ids, times, rng.normal(size=n), y


def feed(state, start=0, stop=_BATCHES):
    for t in range(start, stop):
        state.update(*batch(t), note={"next": t + 1})


def arrays(fleet):
    return fleet.get_state()


def assert_same(one, two):
    assert set(one) == set(two)
    for name in one:
        assert one[name].dtype == two[name].dtype
        assert one[name].tobytes() == two[name].tobytes(), name


@pytest.fixture(scope="module")
def uninterrupted():
    """The state after each number of batches."""
    fleet = fresh()
    states = [arrays(fleet)]
    for t in range(_BATCHES):
        fleet.update(*batch(t))
        states.append(arrays(fleet))
    return states


def test_a_folder_goes_on_where_it_was(tmp_path, uninterrupted):
    for t in range(_BATCHES):
        with opened(tmp_path / "s") as state:
            assert state.number == t
            assert state.note == ({"next": t} if t else {})
            feed(state, t, t + 1)
    with opened(tmp_path / "s") as state:
        assert_same(arrays(state.fleet), uninterrupted[-1])
        assert state.opened.replayed == 0
    kept = sorted(name for name in os.listdir(tmp_path / "s") if name != "lock")
    assert kept == [f"{kind}-{n:012d}" for kind in ("checkpoint", "journal") for n in (7, 8)]


class Killed(BaseException):
    """The process is gone."""


class Machine:
    """The calls that change the disk, of which the ``dies``-th is the last; a write is half done then."""

    def __init__(self, dies):
        self.left = dies

    def step(self):
        if self.left <= 0:
            raise Killed  # whatever the process still tries, nothing happens
        self.left -= 1
        return self.left == 0

    def __getattr__(self, name):
        real = getattr(os, name)
        if name not in {"write", "fsync", "replace", "ftruncate"}:
            return real

        def call(*given):
            if self.step():
                if name == "write":
                    real(given[0], bytes(given[1][: len(given[1]) // 2]))
                raise Killed
            return real(*given)

        return call


def test_a_kill_at_any_call_loses_no_acknowledged_batch_and_doubles_none(
    tmp_path, monkeypatch, uninterrupted
):
    dies, finished = 0, False
    while not finished:
        dies += 1
        path = tmp_path / f"s{dies}"
        acknowledged = 0
        with monkeypatch.context() as patched:
            machine = Machine(dies)
            patched.setattr(durable, "os", machine)
            patched.setattr(checkpoints, "os", machine)
            state = None
            try:
                state = opened(path, 2)
                for t in range(5):
                    state.update(*batch(t), note={"next": t + 1})
                    acknowledged = t + 1
                finished = True
            except Killed:
                pass
        if state is not None:
            # the files of a dead process are closed, and nothing else
            state._folder.close()
        with opened(path) as state:
            assert state.number in (acknowledged, acknowledged + 1), dies
            assert state.note == ({"next": state.number} if state.number else {})
            assert_same(arrays(state.fleet), uninterrupted[state.number])
            feed(state, state.number, 5)
            assert_same(arrays(state.fleet), uninterrupted[5])
        shutil.rmtree(path)
    assert dies > 60


def journal_and_checkpoint(path):
    """A folder whose newest checkpoint has changes behind it."""
    state = opened(path)
    feed(state, 0, 5)
    state._folder.close()
    newest = sorted(os.listdir(path))
    assert [name for name in newest if name.startswith("checkpoint")][-1] == "checkpoint-000000000003"
    return path / "checkpoint-000000000003", path / "journal-000000000003"


def test_a_flipped_bit_anywhere_is_refused_and_restored(tmp_path, uninterrupted):
    whole = tmp_path / "whole"
    for file in journal_and_checkpoint(whole):
        content = file.read_bytes()
        for at in range(0, len(content), 41):
            path = tmp_path / "broken"
            shutil.copytree(whole, path)
            broken = bytearray(content)
            broken[at] ^= 1 << (at % 8)
            (path / file.name).write_bytes(broken)
            before = {name: (path / name).read_bytes() for name in os.listdir(path)}
            with pytest.raises(StoreError, match=r"whole, and with its journal .*--restore"):
                opened(path)
            assert before == {name: (path / name).read_bytes() for name in os.listdir(path)}
            with opened(path, restore=True) as state:
                # a damaged checkpoint costs nothing: the journals lead to the last batch all the same
                reached = state.number
                assert state.opened.lost
                assert reached == 5 if file.name.startswith("checkpoint") else reached in (3, 4)
                assert_same(arrays(state.fleet), uninterrupted[reached])
                feed(state, reached)
            with opened(path) as state:
                assert_same(arrays(state.fleet), uninterrupted[-1])
            shutil.rmtree(path)


def test_missing_files_are_damage(tmp_path, uninterrupted):
    for name in ("checkpoint-000000000003", "journal-000000000003"):
        path = tmp_path / name
        journal_and_checkpoint(path)
        (path / name).unlink()
        with pytest.raises(StoreError, match="--restore"):
            opened(path)
        with opened(path, restore=True) as state:
            assert state.number == (5 if name.startswith("checkpoint") else 3)
            assert_same(arrays(state.fleet), uninterrupted[state.number])


def test_nothing_whole_says_so(tmp_path):
    path = tmp_path / "s"
    journal_and_checkpoint(path)
    for name in os.listdir(path):
        if name.startswith("checkpoint"):
            (path / name).write_bytes(b"x" * 100)
    with pytest.raises(StoreError, match="No checkpoint is whole"):
        opened(path)
    with pytest.raises(StoreError, match=r"no checkpoint in .* is whole"):
        opened(path, restore=True)


def test_restoring_what_is_whole_changes_nothing(tmp_path, uninterrupted):
    with opened(tmp_path / "s") as state:
        feed(state)
    with opened(tmp_path / "s", restore=True) as state:
        assert not state.opened.lost
        assert state.number == _BATCHES
        assert_same(arrays(state.fleet), uninterrupted[-1])
        state.update(*batch(_BATCHES))
    with opened(tmp_path / "s") as state:
        assert state.number == _BATCHES + 1


def test_the_state_of_another_fleet_is_refused_with_what_differs(tmp_path):
    with opened(tmp_path / "s") as state:
        feed(state)
    other = Fleet(ErrorQuantifiedTracker(lr=0.1, window=4), alpha=0.1, alarm_after=2, score="absolute")
    with pytest.raises(
        DataError, match=r"score is signed in the state and absolute here.*tracker lr is 0\.3"
    ):
        DurableFleet(other, tmp_path / "s")
    with opened(tmp_path / "s") as state:  # and left as it was
        assert state.number == _BATCHES


def test_a_batch_that_cannot_be_kept_ends_the_object(tmp_path, monkeypatch, uninterrupted):
    state = opened(tmp_path / "s")
    feed(state, 0, 2)

    def full(_descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(durable.os, "fsync", full)
        with pytest.raises(StoreError, match="No space left"):
            feed(state, 2, 3)
    with pytest.raises(StoreError, match="open the state again"):
        feed(state, 2, 3)
    state.close()
    with opened(tmp_path / "s") as state:
        assert state.number == 2
        feed(state, 2)
        assert_same(arrays(state.fleet), uninterrupted[-1])


def test_bad_input_is_refused_before_anything_and_the_object_goes_on(tmp_path, uninterrupted):
    with opened(tmp_path / "s") as state:
        feed(state, 0, 2)
        with pytest.raises(DataError, match="not numbers"):
            state.update(["s0"], [99], ["x"], [1.0])
        with pytest.raises(DataError, match="those before were numbers"):
            state.update(["s0"], np.array(["2024-01-01"], "datetime64[D]"), [0.0], [1.0])
        feed(state, 2)
        assert_same(arrays(state.fleet), uninterrupted[-1])


def test_dates_and_rows_of_unknown_series_are_applied_again(tmp_path):
    def rows(day):
        times = np.full(3, f"2024-01-{day:02d}", "datetime64[us]")
        return ["a", "b", "nobody"], times, [0.0, 1.0, np.nan], [1.0, np.nan, 1.0]

    reference = fresh()
    state = opened(tmp_path / "s")
    for day in (1, 2):
        reference.update(*rows(day))
        state.update(*rows(day))
    state._folder.close()
    with opened(tmp_path / "s") as state:
        assert state.opened.replayed == 2
        assert_same(arrays(state.fleet), arrays(reference))


def test_only_a_fresh_fleet_takes_a_state(tmp_path):
    fleet = fresh()
    fleet.update(["a"], [1], [0.0], [1.0])
    with pytest.raises(StoreError, match="give a fresh one"):
        DurableFleet(fleet, tmp_path / "s")
