"""Answers of ``assay monitor``: rows as CSV or JSON, in a file that holds each once, or on stdout."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.core.durable import write_all
from assay.core.errors import DataError

COLUMNS = ("batch", "series_id", "time", "forecast", "lower", "upper", "covered", "alarm")

Position = dict[str, Any]


def as_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Rows as lines of CSV."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
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
            there = os.fstat(self._descriptor).st_size
            if there < length and there > 0:
                raise DataError(
                    f"{path} has {there} bytes, but {length} were written to it: it was changed since. "
                    "Name another file, or move this one away"
                )
            if there > length and not known:
                raise DataError(f"{path} is there already and not of this state; name another file")
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
        return {"path": str(self.path.resolve()), "length": self.length}

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

    def position(self) -> None:
        """Nothing is known of what became of it."""

    def close(self) -> None:
        """Standard output stays open."""
