"""Arrays on disk that are whole or refused: records with checksums, journals, checkpoints in a folder.

A record is a head of 40 bytes (magic, number, lengths, two checksums), a description in JSON, and the
bytes of the arrays. A checkpoint is a file of one record. A journal is a file of records, each appended
and brought to the disk before the next. Every byte is under a checksum.
"""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import StoreError
from assay.core.replacing import replacing

Arrays = Mapping[str, NDArray[Any]]

#: magic, number, bytes of the description, bytes of the arrays, checksum of both, checksum of the head
_HEAD = struct.Struct("<8sQQQII")
_MAGIC = b"assayR01"
#: kinds of numbers that a record may hold; never objects
_KINDS = "biuf"


class Damaged(StoreError):
    """A record is not what was written."""


@dataclass(frozen=True)
class Record:
    """One record: its number, its description, its arrays, and the bytes that it takes."""

    number: int
    about: dict[str, Any]
    arrays: dict[str, NDArray[Any]]
    size: int


def encode(number: int, about: Mapping[str, Any], arrays: Arrays) -> list[memoryview | bytes]:
    """The pieces of a record, in order; arrays that lie in one piece are not copied."""
    whole = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    shapes = [[name, array.dtype.str, list(array.shape)] for name, array in whole.items()]
    text = json.dumps([dict(about), shapes], separators=(",", ":")).encode()
    body: list[memoryview | bytes] = [text, *(_bytes_of(array) for array in whole.values() if array.size)]
    checksum = 0
    for piece in body:
        checksum = zlib.crc32(piece, checksum)
    data = sum(array.nbytes for array in whole.values())
    head = _HEAD.pack(_MAGIC, number, len(text), data, checksum, 0)
    return [head[:-4] + struct.pack("<I", zlib.crc32(head[:-4])), *body]


def _known(kind: str) -> np.dtype[Any]:
    dtype = np.dtype(kind)
    if dtype.kind not in _KINDS:
        raise ValueError(kind)
    return dtype


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return memoryview(array.reshape(-1).view(np.uint8).data)


def read_record(file: BinaryIO, left: int, where: str) -> Record | None:
    """The record at the file's position, of which ``left`` bytes are there.

    None if the record ends beyond the end of the file: it was being written and never finished.

    Raises
    ------
    Damaged
        What is there is not what was written.
    """
    if left < _HEAD.size:
        return None
    head = file.read(_HEAD.size)
    magic, number, about_size, data_size, checksum, own = _HEAD.unpack(head)
    if magic != _MAGIC or own != zlib.crc32(head[:-4]):
        raise Damaged(f"{where}: the head of a record is damaged")
    size = _HEAD.size + about_size + data_size
    if left < size:
        return None
    text = file.read(about_size)
    found = zlib.crc32(text)
    try:
        about, shapes = json.loads(text)
        kinds = [(name, _known(kind), shape) for name, kind, shape in shapes]
        fits = sum(kind.itemsize * math.prod(shape) for _, kind, shape in kinds) == data_size
        arrays = {name: np.empty(shape, kind) for name, kind, shape in kinds} if fits else None
    except (ValueError, TypeError) as error:
        raise Damaged(f"{where}: the description of record {number} is damaged") from error
    if arrays is None:
        raise Damaged(f"{where}: the description of record {number} does not fit its length")
    for array in arrays.values():
        if array.size:
            into = _bytes_of(array)
            if file.readinto(into) != len(into):  # type: ignore[attr-defined]
                raise Damaged(f"{where}: the file became shorter while it was read")
            found = zlib.crc32(into, found)
    if found != checksum:
        raise Damaged(f"{where}: the checksum of record {number} is wrong")
    return Record(number, about, arrays, size)


def write_all(descriptor: int, pieces: list[memoryview | bytes]) -> int:
    """Write every piece, whatever the system takes at a time; the number of bytes."""
    total = 0
    for piece in pieces:
        view = memoryview(piece)
        while len(view):
            done = os.write(descriptor, view[: 1 << 26])
            view = view[done:]
            total += done
    return total


def write_checkpoint(path: Path, number: int, about: Mapping[str, Any], arrays: Arrays) -> int:
    """Write a file of one record; under its name it is whole or not there. The number of bytes."""
    with replacing(path) as part:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
        try:
            return write_all(descriptor, encode(number, about, arrays))
        finally:
            os.close(descriptor)


def read_checkpoint(path: Path) -> Record:
    """The record of a file written by :func:`write_checkpoint`, every byte checked."""
    try:
        with path.open("rb") as file:
            length = os.fstat(file.fileno()).st_size
            record = read_record(file, length, str(path))
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror}") from error
    if record is None or record.size != length:
        raise Damaged(f"{path}: the file is {'cut short' if record is None else 'longer than its record'}")
    return record


class Journal:
    """A file of records, to which records are added; each is on the disk when ``append`` returns.

    The first record names the number after which the journal begins. ``records`` reads the others; an
    unfinished one at the end, left by a kill, is cut off by ``open``.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = -1
        self._length = 0
        self._broken = ""

    @classmethod
    def create(cls, path: Path, number: int) -> None:
        """Make the file of a journal that begins after ``number``."""
        write_checkpoint(path, number, {"journal": True}, {})

    def records(self, number: int) -> Iterator[Record]:
        """The whole records after ``number`` in order; then the journal's length is known.

        Raises
        ------
        Damaged
            A record is damaged, or numbers do not follow each other.
        """
        try:
            file = self.path.open("rb")
        except OSError as error:
            raise Damaged(f"{self.path} cannot be read: {error.strerror}") from error
        with file:
            left = os.fstat(file.fileno()).st_size
            first = read_record(file, left, str(self.path))
            if first is None or first.number != number or not first.about.get("journal"):
                raise Damaged(f"{self.path}: the first record is not that of a journal after {number}")
            self._length = first.size
            left -= first.size
            while True:
                record = read_record(file, left, f"{self.path} after {number}")
                if record is None:
                    return
                if record.number != number + 1:
                    raise Damaged(f"{self.path}: record {record.number} stands after {number}")
                yield record
                number = record.number
                self._length += record.size
                left -= record.size

    def open(self) -> None:
        """Make ready to append after the records that were read; what lies behind them is cut off."""
        try:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND)
            os.ftruncate(self._descriptor, self._length)
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error

    def append(self, number: int, about: Mapping[str, Any], arrays: Arrays) -> int:
        """Add a record; on the disk when this returns, with its number of bytes.

        Raises
        ------
        StoreError
            It could not be written. The journal then takes no further record.
        """
        if self._broken:
            raise StoreError(f"{self.path} takes no more records after: {self._broken}")
        try:
            size = write_all(self._descriptor, encode(number, about, arrays))
            os.fsync(self._descriptor)
        except OSError as error:
            self._broken = f"{error.strerror}"
            with suppress(OSError):
                os.ftruncate(self._descriptor, self._length)
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error
        self._length += size
        return size

    def close(self) -> None:
        """Close the file."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
