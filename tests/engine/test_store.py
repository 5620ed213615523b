"""What the store keeps, and what it refuses."""

import contextlib
import json
import math
import os
import sqlite3
import threading
from dataclasses import replace

import pytest

from assay.core.errors import StoreError
from assay.engine.plan import Limits, RunInfo, TrialResult
from assay.engine.store import SCHEMA, Store, default_store_path

ROW = TrialResult(
    "i1", "split", 3, "ok", {"coverage": 0.9, "gap": math.nan, "width": math.inf, "low": -math.inf}, 1.5,
    detail={"n_train": 20, "examples": {"y": [1.0, None]}}, notices=("a", "b"),
)  # fmt: skip


def info(id="abc123", started="2026-01-01T00:00:00+00:00", names=("a", "b"), seeds=(0, 1)):
    methods = tuple(
        {"name": name, "card": None, "params": {}, "skip": None, "target": name} for name in names
    )
    return RunInfo(
        id=id, dataset="d", source="d.csv", fingerprint="f", target="y", task="interval", why_task="",
        alpha="0.1", n_rows=10, n_features=2, notes=("one",),
        methods=methods, model="m", seeds=seeds, limits={"seconds": None, "memory": 5}, command="",
        versions={"python": "3.11"}, started=started,
    )  # fmt: skip


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "runs.db") as opened:
        yield opened


def test_rows_come_back_with_nan_and_infinity(store):
    assert store.get("i1") is None
    store.put(ROW, Limits(2.5, 10**10))
    with Store(store.path) as other:
        row, limits = other.find("i1")
    assert limits == Limits(2.5, 10**10)
    assert math.isnan(row.metrics["gap"])
    assert {**row.metrics, "gap": 0} == {**ROW.metrics, "gap": 0}
    assert replace(row, metrics={}) == replace(ROW, metrics={})


def test_ok_is_never_replaced_and_anything_else_is(store):
    failed = replace(ROW, status="failed", metrics={}, error="x")
    timed_out = replace(failed, status="timed out")
    assert store.put(failed).status == "failed"
    assert store.put(timed_out, Limits(3.0)).status == "timed out"
    assert store.find("i1")[1] == Limits(3.0)
    assert store.put(replace(ROW, seconds=1.0)).seconds == 1.0
    assert store.put(replace(ROW, seconds=2.0)).seconds == 1.0
    assert store.put(failed).status == "ok"


def test_runs_come_back_by_id_beginning_and_last(store):
    with pytest.raises(StoreError, match="no runs yet"):
        store.run("last")
    older, newer = info("abc1"), info("abc2", "2026-01-02T00:00:00+00:00")
    store.put_run(older, ["i1", "i2", "i1", "i2"])
    store.put_run(newer, ["i1", "i2", "i3", "i4"])
    assert store.runs() == [older, newer]
    assert store.run("last")[0] == newer
    assert store.run("abc1")[0] == older
    with pytest.raises(StoreError, match="2 runs begin with 'abc'; there are, the latest last: abc1, abc2"):
        store.run("abc")
    with pytest.raises(StoreError, match="no run 'zzz'; there are, the latest last: abc1, abc2"):
        store.run("zzz")
    store.put_run(replace(newer, seconds=9.0), ["i1", "i2", "i3", "i4"])
    assert [run.seconds for run in store.runs()] == [0.0, 9.0]


def test_a_store_of_schema_1_is_read_and_brought_up(tmp_path):
    path = tmp_path / "runs.db"
    roles = {"targets": ("a", "b"), "time": "t", "group": "g", "options": {"horizon": 3}}
    newer = replace(info("new", "2026-01-02T00:00:00+00:00"), **roles)
    with Store(path) as store:
        store.put(ROW, Limits(2.5, 7))
        store.put_run(newer, ["i1", "i2", "i3", "i4"])
        store.put_run(replace(info("old"), **roles), ["i1", "i2", "i3", "i4"])
        (text,) = store._db.execute("SELECT info FROM runs WHERE id = 'old'").fetchone()
    old = {key: value for key, value in json.loads(text).items() if key not in roles}
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE runs SET info = ? WHERE id = 'old'", (json.dumps(old),))
        for table, column in (("trials", "hash"), ("runs", "hash"), ("runs", "number")):
            db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
        db.execute("PRAGMA user_version = 1")
        db.commit()
    for _ in range(2):
        with Store(path) as store:
            assert store.runs() == [replace(info("old"), targets=("y",)), newer]
            row, limits = store.find("i1")
            assert (row.seconds, row.notices, limits) == (ROW.seconds, ROW.notices, Limits(2.5, 7))


def test_a_run_has_the_rows_there_are_under_its_own_names(store):
    store.put(ROW)
    store.put(replace(ROW, identity="i4", method="other"))
    store.put_run(info(names=("mine", "yours")), ["i1", "i2", "i3", "i4"])
    assert [(row.identity, row.method) for row in store.run("last")[1]] == [("i1", "mine"), ("i4", "yours")]


def test_a_newer_store_is_refused_and_left_as_it_is(tmp_path):
    path = tmp_path / "runs.db"
    Store(path).close()
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {SCHEMA + 1}")
    db.close()
    before = path.read_bytes()
    with pytest.raises(StoreError, match=f"newer assay .schema {SCHEMA + 1}, this one knows {SCHEMA}"):
        Store(path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["runs.db"]


def test_files_that_are_no_store_are_refused_and_left_as_they_are(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("a,b\n" * 1000)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE mine (x)")
    db.close()
    before = other.read_bytes()
    with pytest.raises(StoreError, match="not a database of results"):
        Store(text)
    with pytest.raises(StoreError, match="a database of another program"):
        Store(other)
    assert other.read_bytes() == before
    assert text.read_text() == "a,b\n" * 1000
    with pytest.raises(StoreError, match=r"the folder .*nowhere does not exist"):
        Store(tmp_path / "nowhere" / "runs.db")
    with pytest.raises(StoreError, match="is a folder"):
        Store(tmp_path)


def test_damage_inside_is_told_with_a_way_out(store):
    store.put(ROW)
    store.put_run(info(), ["i1", "i1"])
    store.put_run(info("def456"), ["i1", "i1"])
    with contextlib.closing(sqlite3.connect(store.path)) as db:
        db.execute("UPDATE trials SET metrics = '{'")
        db.execute("UPDATE runs SET info = '{}' WHERE id = 'def456'")
        db.commit()
    for read in (lambda: store.get("i1"), lambda: store.run("abc"), lambda: store.run("def"), store.runs):
        with pytest.raises(StoreError, match=r"runs.db: it is damaged \(.*; move it away"):
            read()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_no_permission(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="no permission"):
        Store(tmp_path / "runs.db")


def test_a_store_held_by_another_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr("assay.engine.store._BUSY_SECONDS", 0.1)
    with Store(tmp_path / "runs.db") as store:
        other = sqlite3.connect(store.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match=r"another process has held it for more than 0.1 s"):
            store.put(ROW)
        other.execute("ROLLBACK")
        other.close()
        store.put(ROW)
        assert store.get("i1") == replace(ROW, metrics=store.get("i1").metrics)


def test_many_write_at_once_into_a_new_file(tmp_path):
    errors = []

    def work(who):
        try:
            with Store(tmp_path / "runs.db") as store:
                for i in range(10):
                    store.put(replace(ROW, identity=f"shared {i}", method=who))
                    store.put(replace(ROW, identity=f"{who} {i}"))
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    db = sqlite3.connect(tmp_path / "runs.db")
    assert db.execute("SELECT count(*), count(DISTINCT identity) FROM trials").fetchone() == (70, 70)
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    db.close()


def test_where_the_command_line_keeps_its_store(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("ASSAY_STORE", raising=False)
    assert default_store_path() == tmp_path / "data" / "assay" / "runs.db"
    Store(default_store_path()).close()
    monkeypatch.setenv("ASSAY_STORE", str(tmp_path / "named.db"))
    assert default_store_path() == tmp_path / "named.db"


def test_metrics_are_stored_as_text_that_python_reads(store):
    store.put(ROW)
    db = sqlite3.connect(store.path)
    (text,) = db.execute("SELECT metrics FROM trials").fetchone()
    db.close()
    assert json.loads(text)["width"] == math.inf
