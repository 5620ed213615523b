"""The store under faults of disks, clocks and neighbours: the right row, none, or a clear error."""

import contextlib
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from test_store import ROW, info

from assay.core.archive import write_archive
from assay.core.errors import StoreError
from assay.engine.store import Store

ROWS = [replace(ROW, identity=f"i{k}", metrics={"coverage": 0.9 + k / 1000}, seed=k) for k in range(12)]


def filled(path):
    with Store(path) as store:
        for row in ROWS:
            store.put(row)
        store.put_run(info(names=("a", "b", "c"), seeds=(0, 1, 2, 3)), [row.identity for row in ROWS])
    return path.read_bytes()


def flips(count):
    def check(tmp_path):
        path = tmp_path / "runs.db"
        whole = filled(path)
        draw, refused, gone = random.Random(0), 0, 0
        for _ in range(count):
            broken = bytearray(whole)
            broken[draw.randrange(len(whole))] ^= 1 << draw.randrange(8)
            for rest in tmp_path.glob("runs.db-*"):
                rest.unlink()
            path.write_bytes(broken)
            try:
                with Store(path) as store:
                    for row in ROWS:
                        found = store.get(row.identity)
                        assert found in (row, None)
                        gone += found is None
                    run, rows = store.run("last")
                    assert run == info(names=("a", "b", "c"), seeds=(0, 1, 2, 3))
                    assert all(replace(row, method="split") in ROWS for row in rows)
            except StoreError:
                refused += 1
        assert refused > count / 20
        return refused, gone

    return check


def test_flipped_bits_are_never_a_wrong_row(tmp_path):
    flips(300)(tmp_path)


@pytest.mark.slow
def test_flipped_bits_are_never_a_wrong_row_in_full(tmp_path):
    flips(20_000)(tmp_path)


def test_a_store_whose_tables_have_names_that_are_no_text_is_refused(tmp_path):
    path = tmp_path / "runs.db"
    content = filled(path)
    for rest in tmp_path.glob("runs.db-*"):
        rest.unlink()
    path.write_bytes(content.replace(b"CREATE TABLE trials", b"CR\xd2ATE TABLE trials"))
    with pytest.raises(StoreError, match="it is damaged"), Store(path):
        pass


def test_a_number_changed_in_the_file_is_reported(tmp_path):
    path = tmp_path / "runs.db"
    filled(path)
    for table, change in (("trials", "seconds = 2"), ("runs", "started = '2025'")):
        with contextlib.closing(sqlite3.connect(path)) as db:
            db.execute(f"UPDATE {table} SET {change}")
            db.commit()
    with Store(path) as store:
        for ask in (
            lambda: store.get("i1"),
            store.runs,
            lambda: store.run("last"),
            lambda: store.put(ROWS[1]),
        ):
            with pytest.raises(StoreError, match=r"damaged.*is not what was written.*move it away"):
                ask()


def test_cut_stores_are_refused_or_whole(tmp_path):
    path = tmp_path / "runs.db"
    whole = filled(path)
    for length in range(0, len(whole), 997):
        path.write_bytes(whole[:length])
        with contextlib.suppress(StoreError), Store(path) as store:
            for row in ROWS:
                assert store.get(row.identity) in (row, None)


def test_a_clock_that_goes_backwards_changes_no_order(tmp_path):
    with Store(tmp_path / "runs.db") as store:
        for id, year in (("first", 2026), ("second", 2020), ("third", 2023)):
            store.put_run(info(id, f"{year}-01-01T00:00:00+00:00"), ["i1"])
        store.put_run(replace(info("second", "2019-01-01T00:00:00+00:00"), seconds=2.0), ["i1"])
        assert [run.id for run in store.runs()] == ["first", "second", "third"]
        assert store.run("last")[0].id == "third"


def test_a_comparison_goes_on_when_the_clock_goes_backwards(tmp_path, monkeypatch):
    import time

    from test_run import question

    from assay.engine.run import run_question

    moments = iter(range(10**9, 0, -10_000))
    monkeypatch.setattr(time, "time", lambda: float(next(moments)))
    with Store(tmp_path / "runs.db") as store:
        info, rows = run_question(question("Mean", seeds=(0, 1)), in_process=True, store=store)
    assert [row.status for row in rows] == ["ok", "ok"]
    assert all(row.seconds >= 0 for row in rows)
    assert info.seconds >= 0


def as_nobody(work):
    """The text that ``work`` gives in a process for which permissions count; the tests may run as root."""
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            os.write(theirs, work().encode())
        finally:
            os._exit(0)
    os.close(theirs)
    os.waitpid(child, 0)
    with os.fdopen(ours) as answer:
        return answer.read()


@pytest.mark.skipif(os.name == "nt", reason="permissions")
def test_a_store_that_may_only_be_read_says_so():
    def work():
        try:
            with Store(folder / "runs.db") as store:
                store.put(ROW)
        except StoreError as error:
            return str(error)
        return "written"

    folder = Path(tempfile.mkdtemp())
    try:
        filled(folder / "runs.db")
        (folder / "runs.db").chmod(0o444)
        folder.chmod(0o555)
        assert "no permission to write there" in as_nobody(work)
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_store_locked_by_another_process_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("assay.engine.store._BUSY_SECONDS", 0.2)
    filled(tmp_path / "runs.db")
    code = (
        "import sqlite3, sys, time\n"
        "db = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "db.execute('BEGIN EXCLUSIVE'); print('held', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path / "runs.db")], stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout.readline() == "held\n"
        with Store(tmp_path / "runs.db") as store:
            assert store.get("i3") == ROWS[3]  # reading goes on
            with pytest.raises(StoreError, match=r"another process has held it for more than 0.2 s"):
                store.put(replace(ROW, identity="new"))
            other.kill()
            other.wait()
            store.put(replace(ROW, identity="new"))  # the lock went with its process
            assert store.get("new").identity == "new"
    finally:
        other.kill()
        other.wait()
        other.stdout.close()


@contextlib.contextmanager
def small_disk(folder, size):
    """A file system of ``size`` bytes where one may be mounted; elsewhere no file may become larger."""
    mounted = False
    if hasattr(os, "geteuid") and os.geteuid() == 0 and shutil.which("mount"):
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    former = resource.getrlimit(resource.RLIMIT_FSIZE)
    if not mounted:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, former[1]))
    try:
        yield
    finally:
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)
        else:
            resource.setrlimit(resource.RLIMIT_FSIZE, former)


@pytest.mark.skipif(os.name == "nt", reason="file systems")
def test_a_full_disk_is_told_and_what_was_written_stays(tmp_path):
    import numpy as np
    import pandas as pd

    from assay.data.batches import AnswerWriter

    with small_disk(tmp_path, 300_000):
        kept = []

        def fill(store):
            for k in range(1000):
                store.put(replace(ROW, identity=f"k{k}", error="x" * 3000))
                kept.append(f"k{k}")

        with Store(tmp_path / "runs.db") as store:
            with pytest.raises(StoreError, match=r"cannot write the store .*(full|I/O error)"):
                fill(store)
            assert store.get(kept[-1]).status == "ok"
        assert len(kept) > 10
        reader = tmp_path / "runs.db"
        with contextlib.closing(sqlite3.connect(f"file:{reader}?mode=ro", uri=True)) as db:
            assert db.execute("SELECT count(*) FROM trials").fetchone() == (len(kept),)
        for rest in tmp_path.glob("runs.db*"):
            rest.unlink()
        with pytest.raises(StoreError, match=r"cannot write .*(space|large)"):
            write_archive(tmp_path / "m.assay", {"part": bytes(400_000)})
        frame = pd.DataFrame({"a": np.random.default_rng(0).random(60_000)})
        for ending in ("csv", "jsonl", "parquet"):
            with (
                pytest.raises(StoreError, match=r"cannot write .*(space|large)"),
                AnswerWriter(tmp_path / f"o.{ending}") as writer,
            ):
                writer.write(frame)
        assert list(tmp_path.iterdir()) == []
