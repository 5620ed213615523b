"""How many of the rows whose outcome came were covered: in memory, and on the disk if a folder is named."""

from __future__ import annotations

import hashlib
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from assay.core.checkpoints import StateFolder
from assay.core.durable import Record
from assay.core.errors import DataError
from assay.engine.coverage import evidence, part_of

_FORMAT = 1
#: changes after which the whole state is written anew; they bound the time of opening
_CHECKPOINT = 1_000


class Feedback:
    """Counts of covered and of all rows, with the exact tests of their coverage. May be used by many threads.

    Parameters
    ----------
    alpha, level : level
        Miscoverage that was promised, and chance of a false finding of drift.
    n_calib : int
        Calibration rows of the method; 0 where its promise does not rest on them.
    identity : str
        Of the saved method; a state of another one is refused.
    folder : Path, optional
        Where the counts are kept; without it they are lost at the end.
    restore : bool
        Where the folder is damaged, go back to the last state that can be had, instead of refusing.

    Raises
    ------
    StoreError
        The folder cannot be used, or is damaged, or another process holds it.
    DataError
        It holds the counts of another saved method.
    """

    def __init__(
        self,
        alpha: Fraction,
        level: Fraction,
        n_calib: int,
        identity: str,
        folder: Path | None = None,
        *,
        restore: bool = False,
    ) -> None:
        self._alpha, self._level, self._n_calib = alpha, level, n_calib
        self._identity = identity
        self._lock = threading.Lock()
        self._rows = self._covered = self._batches = self._since = 0
        self._most = 1.0
        self.lost = ""
        self._folder = None if folder is None else StateFolder(folder)
        if self._folder is not None:
            self._folder.acquire()
            try:
                self._open(self._folder, restore)
            except BaseException:
                self._folder.close()
                raise

    @property
    def durable(self) -> bool:
        """Whether the counts survive the end of the process."""
        return self._folder is not None

    @property
    def counts(self) -> tuple[int, int]:
        """(covered, all) rows so far."""
        with self._lock:
            return self._covered, self._rows

    def add(self, covered: int, rows: int) -> None:
        """Count rows; they are on the disk when this returns, or not counted.

        Raises
        ------
        StoreError
            They could not be written.
        """
        with self._lock:
            if self._folder is not None:
                self._folder.append({"covered": covered, "rows": rows}, {})
            self._count(covered, rows)
            if self._folder is not None and self._since >= _CHECKPOINT:
                self._checkpoint(self._folder)

    def report(self) -> dict[str, Any]:
        """What `assay check` says of all rows so far, and the evidence that may be looked at any time.

        ``p`` and ``verdict`` are those of a single look. Who looks again and again goes by ``drifted``:
        whether the evidence has ever reached 1 / level, of which the chance is at most the level where
        nothing has drifted.
        """
        with self._lock:
            rows, covered, batches, most = self._rows, self._covered, self._batches, self._most
        said: dict[str, Any] = {
            "promised": float(1 - self._alpha),
            "level": float(self._level),
            "calibration_rows": self._n_calib,
            "rows": rows,
            "covered": covered,
            "batches": batches,
            "coverage": None,
            "low": None,
            "high": None,
            "p": None,
            "verdict": None,
            "evidence": evidence(covered, rows, self._alpha, self._n_calib),
            "most_evidence": most,
            "drifted": most >= 1 / self._level,
            "kept": "on disk" if self.durable else "in memory",
        }
        if rows:
            part = part_of("all", "all rows", rows, covered, self._alpha, self._level, self._n_calib)
            said |= {name: getattr(part, name) for name in ("coverage", "low", "high", "p", "verdict")}
        return said

    def close(self) -> None:
        """Let the folder go; what was counted is there."""
        with self._lock:
            if self._folder is not None:
                self._folder.close()

    # --- inside ------------------------------------------------------------------------------------

    def _count(self, covered: int, rows: int) -> None:
        self._covered += covered
        self._rows += rows
        self._batches += 1
        self._since += 1
        self._most = max(self._most, evidence(self._covered, self._rows, self._alpha, self._n_calib))

    def _open(self, folder: StateFolder, restore: bool) -> None:
        if folder.empty:
            folder.begin(self._about(), self._arrays())
            return
        opened = (folder.restore if restore else folder.open)(self._load, self._again)
        self.lost = opened.lost
        if opened.lost:
            self._checkpoint(folder)

    def _checkpoint(self, folder: StateFolder) -> None:
        folder.checkpoint(self._about(), self._arrays())
        self._since = 0

    def _about(self) -> dict[str, Any]:
        return {"format": _FORMAT, "kind": "feedback", "method": self._identity}

    def _arrays(self) -> dict[str, Any]:
        return {
            "counts": np.array([self._covered, self._rows, self._batches]),
            "most": np.array([self._most]),
        }

    def _load(self, record: Record) -> None:
        about = record.about
        if about.get("kind") != "feedback" or about.get("format") != _FORMAT:
            raise DataError("the state is no feedback of a service; name another folder")
        if about["method"] != self._identity:
            raise DataError(
                f"the state has the feedback of another saved method (SHA-256 {about['method'][:16]}..., "
                f"this one is {self._identity[:16]}...); name another folder"
            )
        self._covered, self._rows, self._batches = (int(v) for v in record.arrays["counts"])
        self._most = float(record.arrays["most"][0])
        self._since = 0

    def _again(self, record: Record) -> None:
        self._count(record.about["covered"], record.about["rows"])


def identity_of(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
