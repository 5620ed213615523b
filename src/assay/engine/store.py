"""The store of results: one SQLite file, durable at each finished trial, shared by processes.

Write-ahead logging lets others read while one writes. ``synchronous`` is FULL: a commit is on the
disk when ``put`` returns, which costs a few milliseconds a trial and survives a power cut as well
as ``kill -9``. Each row carries a hash of itself: SQLite would give out a flipped bit as if it were meant.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Self

from assay.core.errors import StoreError
from assay.engine.plan import Limits, RunInfo, TrialResult

SCHEMA = 2
_APPLICATION = 0x41535359  # "ASSY" in the file's header
_BUSY_SECONDS = 60.0

_TABLES = """
CREATE TABLE trials (
    identity TEXT PRIMARY KEY,
    method TEXT NOT NULL,
    seed INTEGER NOT NULL,
    status TEXT NOT NULL,
    metrics TEXT NOT NULL,
    seconds REAL NOT NULL,
    error TEXT NOT NULL,
    detail TEXT NOT NULL,
    notices TEXT NOT NULL,
    limit_seconds REAL,
    limit_memory INTEGER,
    hash TEXT
) WITHOUT ROWID;
CREATE TABLE runs (
    id TEXT PRIMARY KEY,
    started TEXT NOT NULL,
    info TEXT NOT NULL,
    identities TEXT NOT NULL,
    number INTEGER,
    hash TEXT
) WITHOUT ROWID;
"""
#: from a store of schema 1; its rows then have no number and no hash until they are given one
_CHANGES = (
    "ALTER TABLE trials ADD COLUMN hash TEXT",
    "ALTER TABLE runs ADD COLUMN number INTEGER",
    "ALTER TABLE runs ADD COLUMN hash TEXT",
)
_NO_LIMITS = Limits()
_COLUMNS = "identity, method, seed, status, metrics, seconds, error, detail, notices"
_ALL = f"{_COLUMNS}, limit_seconds, limit_memory"
_RUN = "id, started, info, identities, number"


def default_store_path() -> Path:
    """``$ASSAY_STORE``, else ``runs.db`` in assay's folder of the user's data; the folder is made."""
    named = os.environ.get("ASSAY_STORE")
    if named:
        return Path(named)
    home = os.environ.get("XDG_DATA_HOME")
    folder = (Path(home) if home else Path.home() / ".local" / "share") / "assay"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(f"cannot make the folder of the store, {folder}: {error.strerror}") from error
    return folder / "runs.db"


class Store:
    """Trials by identity, and runs as lists of identities.

    Parameters
    ----------
    path : str or Path
        The file; made if it is not there. Its folder must exist.

    Raises
    ------
    StoreError
        No such folder, no permission, not a store of assay, a store of a newer version (which is
        left as it is), or locked by another process for a minute.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise StoreError(f"{self.path}: the folder {self.path.parent} does not exist")
        if self.path.is_dir():
            raise StoreError(f"{self.path} is a folder; name a file in it, such as {self.path / 'runs.db'}")
        with self._errors("open"):
            self._db = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            with self._errors("open"):
                self._prepare()
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; the store cannot be used afterwards."""
        self._db.close()

    def get(self, identity: str) -> TrialResult | None:
        """The row of a trial, None if it has not been run."""
        found = self.find(identity)
        return None if found is None else found[0]

    def find(self, identity: str) -> tuple[TrialResult, Limits] | None:
        """The row of a trial and the limits under which it ran."""
        query = f"SELECT {_ALL}, hash FROM trials WHERE identity = ?"
        with self._errors("read"):
            row = _whole(self._db.execute(query, (identity,)).fetchone())
            return None if row is None else (_result(row[:9]), Limits(row[9], row[10]))

    def put(self, result: TrialResult, limits: Limits = _NO_LIMITS) -> TrialResult:
        """Keep a row, on disk when this returns; gives the row that the store holds afterwards.

        An ``ok`` row is never replaced: of two processes that ran the same trial at once the first
        is kept. Any other row gives way to the newer one.
        """
        values: tuple[Any, ...] = (
            result.identity,
            result.method,
            result.seed,
            result.status,
            json.dumps(dict(result.metrics)),
            float(result.seconds),
            result.error,
            json.dumps(dict(result.detail)),
            json.dumps(result.notices),
            None if limits.seconds is None else float(limits.seconds),
            limits.memory,
        )
        values += (_hash(values),)
        names = [*_ALL.split(", "), "hash"]
        marks = ", ".join("?" * len(names))
        changes = ", ".join(f"{name} = excluded.{name}" for name in names[1:])
        with self._errors("write"), self._transaction():
            self._db.execute(
                f"INSERT INTO trials ({', '.join(names)}) VALUES ({marks}) "
                f"ON CONFLICT (identity) DO UPDATE SET {changes} WHERE trials.status != 'ok'",
                values,
            )
            query = f"SELECT {_ALL}, hash FROM trials WHERE identity = ?"
            row = self._db.execute(query, (result.identity,)).fetchone()
        with self._errors("read"):
            return _result(_whole(row)[:9])

    def put_run(self, info: RunInfo, identities: Sequence[str]) -> None:
        """Keep a run, or replace it: identities of its trials, all seeds of the first method first.

        Runs are in the order in which they were first kept, whatever the clock said.
        """
        values = (info.id, info.started, json.dumps(asdict(info)), json.dumps(list(identities)))
        with self._errors("write"), self._transaction():
            query = "SELECT coalesce((SELECT number FROM runs WHERE id = ?), max(number) + 1, 1) FROM runs"
            (number,) = self._db.execute(query, (info.id,)).fetchone()
            row = (*values, number)
            command = f"INSERT OR REPLACE INTO runs ({_RUN}, hash) VALUES (?, ?, ?, ?, ?, ?)"
            self._db.execute(command, (*row, _hash(row)))

    def runs(self) -> list[RunInfo]:
        """All runs, the oldest first."""
        with self._errors("read"):
            return [_info(row[2]) for row in self._runs()]

    def run(self, id: str) -> tuple[RunInfo, list[TrialResult]]:
        """A run by its id, a beginning of it that is unique, or "last"; with the rows it has so far.

        Raises
        ------
        StoreError
            No such run, or several that begin so; the message names those there are.
        """
        with self._errors("read"):
            rows = self._runs()
        if not rows:
            raise StoreError(f"{self.path} holds no runs yet")
        matching = rows[-1:] if id == "last" else [row for row in rows if id and row[0].startswith(id)]
        if len(matching) != 1:
            there = ", ".join(row[0] for row in (matching or rows)[-5:])
            what = f"{len(matching)} runs begin with" if matching else "no run"
            raise StoreError(f"{self.path}: {what} {id!r}; there are, the latest last: {there}")
        _, _, text, identities, *_ = matching[0]
        with self._errors("read"):
            info = _info(text)
            return info, list(self._rows_of(info, json.loads(identities)))

    def _runs(self) -> list[Any]:
        query = f"SELECT {_RUN}, hash FROM runs ORDER BY number, id"
        return [_whole(row) for row in self._db.execute(query).fetchall()]

    def _rows_of(self, info: RunInfo, identities: Sequence[str]) -> Iterator[TrialResult]:
        """Rows under the names that the run's methods have in it."""
        for place, identity in enumerate(identities):
            result = self.get(identity)
            if result is not None:
                method = info.methods[place // len(info.seeds)]["name"]
                yield replace(result, method=method)

    def _prepare(self) -> None:
        version = self._pragma("user_version")
        if version > SCHEMA:
            raise StoreError(
                f"{self.path} was written by a newer assay (schema {version}, this one knows {SCHEMA}): "
                "it is left as it is; update assay, or name another file"
            )
        if version and self._pragma("application_id") == _APPLICATION:
            self._set_write_ahead()
            if version < SCHEMA:
                self._bring_up()
            return
        if version or self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            # another process may have made the tables since the version was read
            if self._pragma("application_id") == _APPLICATION and self._pragma("user_version") == SCHEMA:
                self._set_write_ahead()
                return
            raise StoreError(f"{self.path} is a database of another program; name another file")
        self._set_write_ahead()
        with self._transaction():
            if self._pragma("user_version") == 0:
                for statement in filter(str.strip, _TABLES.split(";")):
                    self._db.execute(statement)
                self._db.execute(f"PRAGMA application_id = {_APPLICATION}")
                self._db.execute(f"PRAGMA user_version = {SCHEMA}")

    def _bring_up(self) -> None:
        """Give the rows of a store of schema 1 their numbers and hashes."""
        with self._transaction():
            if self._pragma("user_version") != 1:  # another process was first
                return
            for statement in _CHANGES:
                self._db.execute(statement)
            for row in self._db.execute(f"SELECT {_ALL} FROM trials").fetchall():
                self._db.execute("UPDATE trials SET hash = ? WHERE identity = ?", (_hash(row), row[0]))
            runs = self._db.execute("SELECT id, started, info, identities FROM runs ORDER BY started, id")
            for number, row in enumerate(runs.fetchall(), start=1):
                values = (number, _hash((*row, number)), row[0])
                self._db.execute("UPDATE runs SET number = ?, hash = ? WHERE id = ?", values)
            self._db.execute(f"PRAGMA user_version = {SCHEMA}")

    def _set_write_ahead(self) -> None:
        # changing the journal needs the file alone, and SQLite does not wait for that by itself
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        self._db.execute("PRAGMA synchronous = FULL")

    def _pragma(self, name: str) -> int:
        return int(self._db.execute(f"PRAGMA {name}").fetchone()[0])

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        """One transaction that waits for its turn to write."""
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    @contextlib.contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise StoreError(f"cannot {doing} the store {self.path}: {_explain(error)}") from error
        except (ValueError, TypeError, KeyError) as error:
            # text that is no UTF-8 is the file's, whatever is done: SQLite quotes it in its errors
            if doing != "read" and not isinstance(error, UnicodeDecodeError):
                raise
            raise StoreError(f"cannot {doing} the store {self.path}: {_damaged(error)}") from error


def _hash(values: Sequence[Any]) -> str:
    """SHA-256 of the values of a row, as the file keeps them."""
    return hashlib.sha256(json.dumps([_plain(value) for value in values]).encode()).hexdigest()


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, float) else value


def _whole(row: Any) -> Any:
    """The row without its hash, refused if it is not what was written; None for None."""
    if row is not None and _hash(row[:-1]) != row[-1]:
        raise ValueError(f"the row {row[0]!r} is not what was written")
    return None if row is None else row[:-1]


def _damaged(error: Exception) -> str:
    return f"it is damaged ({type(error).__name__}: {error}); move it away, and a new one is made"


def _explain(error: sqlite3.Error) -> str:
    text = str(error)
    if "malformed" in text:
        return _damaged(error)
    if "not a database" in text:
        return "the file is not a database of results; name another file"
    if "locked" in text or "busy" in text:
        return f"another process has held it for more than {_BUSY_SECONDS:g} s ({text})"
    if "readonly" in text or "unable to open" in text:
        return f"no permission to write there ({text})"
    return text


def _result(row: Sequence[Any]) -> TrialResult:
    identity, method, seed, status, metrics, seconds, error, detail, notices = row
    return TrialResult(
        identity=identity,
        method=method,
        seed=seed,
        status=status,
        metrics=json.loads(metrics),
        seconds=seconds,
        error=error,
        detail=json.loads(detail),
        notices=tuple(json.loads(notices)),
    )


def _info(text: str) -> RunInfo:
    fields = json.loads(text)
    fields.setdefault("targets", [fields["target"]])  # runs of before there were several
    for name in ("notes", "methods", "seeds", "targets"):
        fields[name] = tuple(fields[name])
    return RunInfo(**fields)
