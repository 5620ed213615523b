"""Answers of ``assay monitor``: rows as CSV or JSON, in a file that holds each once, or on stdout."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.core.durable import write_all
from assay.core.errors import DataError
from assay.core.replacing import sync_folder
from assay.data.stream import tail_checksum

COLUMNS = ("batch", "series_id", "time", "forecast", "lower", "upper", "covered", "alarm")

Position = dict[str, Any]


def as_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as lines of CSV."""
    held = list(rows)
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(held)
    if "\r" in out.getvalue():  # which is left without quotes beside this line end
        out = io.StringIO()
        csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL).writerows(held)
    return out.getvalue()


def as_json(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as lines of JSON; an infinite end is null."""
    lines = []
    for row in rows:
        values = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in zip(COLUMNS, row, strict=True)
        }
        lines.append(json.dumps(values, ensure_ascii=False, default=str) + "\n")
    return "".join(lines)


class OutFile:
    """A file that grows by whole batches; what came after the last acknowledged one is cut off.

    Parameters
    ----------
    path : Path
    kept : mapping or None
        ``position()`` of the last acknowledged batch.
    header : str
        The first line of a new file.
    """

    def __init__(self, path: Path, kept: Mapping[str, Any] | None, header: str) -> None:
        self.path = path
        known = kept is not None and kept.get("path") == str(path.resolve())
        length = int(kept["length"]) if known and kept is not None else 0
        try:
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            status = os.fstat(self._descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise DataError(f"{path} is no file that can be cut; for a pipe leave --out away")
            there = status.st_size
            sync_folder(path.resolve().parent)
            if there > 0 and not known:
                raise DataError(f"{path} is there already and not of this state; name another file")
            tail = kept.get("tail") if kept else None
            if there > 0 and tail != tail_checksum(self._descriptor, length):
                raise DataError(
                    f"{path} is not what was written to it, {length} bytes: it was changed since. "
                    "Name another file, or move this one away"
                )
            self.length = min(there, length)
            os.ftruncate(self._descriptor, self.length)
        except OSError as error:
            raise DataError(f"{path} cannot be written: {error.strerror}") from error
        self._header = header

    def write(self, text: str) -> None:
        """Add text, and bring it to the disk."""
        if not self.length:
            text = self._header + text
        data = text.encode("utf-8", "surrogatepass")
        try:
            self.length += write_all(self._descriptor, [data])
            os.fsync(self._descriptor)
        except OSError as error:
            raise DataError(f"{self.path} cannot be written: {error.strerror}") from error

    def position(self) -> Position:
        """The length that belongs to the batches written so far."""
        return {
            "path": str(self.path.resolve()),
            "length": self.length,
            "tail": tail_checksum(self._descriptor, self.length),
        }

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


class Stdout:
    """Standard output; every batch is flushed."""

    def __init__(self, header: str) -> None:
        self._header = header

    def write(self, text: str) -> None:
        """Write and flush."""
        sys.stdout.write(self._header + text)
        sys.stdout.flush()
        self._header = ""

    def close(self) -> None:
        """Standard output stays open."""
