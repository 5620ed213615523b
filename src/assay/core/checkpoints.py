"""A folder that holds a state which is never half written: checkpoints, and a journal behind each."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.core.durable import (
    Arrays,
    Damaged,
    Journal,
    Record,
    read_checkpoint,
    write_checkpoint,
)
from assay.core.errors import StoreError
from assay.core.replacing import sync_folder

try:
    import fcntl
except ImportError:  # pragma: no cover - there is no such module on Windows
    fcntl = None  # type: ignore[assignment]

_NAME = re.compile(r"(checkpoint|journal)-(\d{12})")
#: how many checkpoints are kept, each with the journal behind it
_KEPT = 2


@dataclass(frozen=True)
class Opened:
    """What opening a folder found: the number reached, and what restoring left behind."""

    number: int
    about: dict[str, Any]
    replayed: int
    lost: str = ""


class StateFolder:
    """Checkpoints ``checkpoint-N`` of a state after N changes, and journals of the changes behind them.

    The last two checkpoints are kept with their journals, so that the state can be had again up to the
    last whole change if the newest checkpoint is damaged. One process at a time may hold a folder.

    Parameters
    ----------
    path : Path
        The folder; made if it is not there. The folder that it lies in must be there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = -1
        self._journal: Journal | None = None
        self.number = 0

    # --- public ------------------------------------------------------------------------------------

    def acquire(self) -> None:
        """Make the folder where it is not there, and hold it alone."""
        try:
            self.path.mkdir(exist_ok=True)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT, 0o666)
        except FileExistsError:
            raise StoreError(f"{self.path} is a file; a state is a folder, name another") from None
        except OSError as error:
            raise StoreError(f"cannot make or open the state {self.path}: {error.strerror}") from error
        if fcntl is not None:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                self.close()
                raise StoreError(f"the state {self.path} is in use by another process") from None

    @property
    def empty(self) -> bool:
        """Whether nothing has been kept here yet."""
        return not self._numbers("checkpoint") and not any(
            self._file("journal", n).stat().st_size for n in self._numbers("journal") if n
        )

    def begin(self, about: Mapping[str, Any], arrays: Arrays) -> None:
        """Keep the state before any change."""
        self.number = 0
        self.checkpoint(about, arrays)

    def open(self, load: Callable[[Record], None], change: Callable[[Record], None]) -> Opened:
        """Give the newest checkpoint to ``load`` and each record behind it to ``change``, in order.

        Raises
        ------
        Damaged
            Something is not what was written; the message says what ``restore`` would bring back.
        """
        try:
            return self._open(load, change)
        except Damaged as error:
            raise Damaged(f"{error}. {self._offer()}") from error

    def restore(self, load: Callable[[Record], None], change: Callable[[Record], None]) -> Opened:
        """As :meth:`open`; where something is damaged, go back to the last state that can be had.

        Damaged files are put aside. ``lost`` says what they were; then the caller keeps a checkpoint.
        """
        try:
            return self._open(load, change)
        except Damaged as error:
            why = str(error)
        record, damage = self._newest_whole()
        if record is None:
            raise Damaged(f"no checkpoint in {self.path} is whole: {damage}")
        load(record)
        number, broken = self._replay(record.number, change)
        for kind, first in (("checkpoint", record.number + 1), ("journal", number)):
            for n in self._numbers(kind):
                if n >= first:
                    path = self._file(kind, n)
                    os.replace(path, path.with_name(path.name + ".damaged"))
        self.number = number
        return Opened(
            number, record.about, number - record.number, "; ".join(dict.fromkeys([why, *damage, *broken]))
        )

    def append(self, about: Mapping[str, Any], arrays: Arrays) -> int:
        """Keep the next change; on the disk when this returns, with its number of bytes."""
        if self._journal is None:
            raise StoreError(f"the state {self.path} is closed")
        size = self._journal.append(self.number + 1, about, arrays)
        self.number += 1
        return size

    def checkpoint(self, about: Mapping[str, Any], arrays: Arrays) -> int:
        """Keep the whole state as it is after all changes so far; older checkpoints but one go."""
        path = self._file("journal", self.number)
        Journal.create(path, self.number)  # before the checkpoint: one without a journal is damage
        size = write_checkpoint(self._file("checkpoint", self.number), self.number, about, arrays)
        if self._journal is not None:
            self._journal.close()
        self._journal = Journal(path)
        for _ in self._journal.records(self.number):
            raise Damaged(f"{path}: the new journal is not empty")
        self._journal.open()
        keep = self._numbers("checkpoint")[-_KEPT:]
        for kind in ("checkpoint", "journal"):
            for number in self._numbers(kind):
                if number < keep[0]:
                    with suppress(FileNotFoundError):
                        self._file(kind, number).unlink()
        for part in self.path.glob("*.part"):  # of a checkpoint that was never finished
            part.unlink()
        sync_folder(self.path)
        return size

    def close(self) -> None:
        """Let the folder go."""
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # --- inside ------------------------------------------------------------------------------------

    def _open(self, load: Callable[[Record], None], change: Callable[[Record], None]) -> Opened:
        numbers = self._numbers("checkpoint")
        if not numbers:
            raise Damaged(f"{self.path} holds journals but no checkpoint")
        ahead = [n for n in self._numbers("journal") if n > numbers[-1] and self._holds_changes(n)]
        if ahead:
            raise Damaged(f"{self._file('checkpoint', ahead[-1])} is not there, but its journal is")
        record = self._checked(numbers[-1])
        load(record)
        journal = Journal(self._file("journal", record.number))
        number = record.number
        for entry in journal.records(number):
            change(entry)
            number = entry.number
        journal.open()
        self._journal, self.number = journal, number
        return Opened(number, record.about, number - record.number)

    def _file(self, kind: str, number: int) -> Path:
        return self.path / f"{kind}-{number:012d}"

    def _numbers(self, kind: str) -> list[int]:
        found = (_NAME.fullmatch(name) for name in os.listdir(self.path))
        return sorted(int(match[2]) for match in found if match and match[1] == kind)

    def _holds_changes(self, number: int) -> bool:
        return any(True for _ in Journal(self._file("journal", number)).records(number))

    def _checked(self, number: int) -> Record:
        record = read_checkpoint(self._file("checkpoint", number))
        if record.number != number:
            raise Damaged(f"{self._file('checkpoint', number)} holds the state after {record.number}")
        return record

    def _newest_whole(self) -> tuple[Record | None, list[str]]:
        damage: list[str] = []
        for number in reversed(self._numbers("checkpoint")):
            try:
                return self._checked(number), damage
            except Damaged as error:
                damage.append(str(error))
        return None, damage or ["there is none"]

    def _replay(self, number: int, change: Callable[[Record], None]) -> tuple[int, list[str]]:
        """Follow the journals as far as they are whole: the number reached, and what was damaged."""
        damage: list[str] = []
        start = -1
        while start < number and (path := self._file("journal", number)).exists():
            start = number
            try:
                for entry in Journal(path).records(start):
                    change(entry)
                    number = entry.number
            except Damaged as error:
                damage.append(str(error))
        return number, damage

    def _offer(self) -> str:
        record, _ = self._newest_whole()
        if record is None:
            return "No checkpoint is whole: name another state, and feed the whole stream again"
        reached, _ = self._replay(record.number, lambda _entry: None)
        return (
            f"Nothing was changed. The checkpoint after batch {record.number} is whole, and with its "
            f"journal the state after batch {reached} can be had: restore it (--restore)"
        )
