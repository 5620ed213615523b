"""A file of JSON texts and byte strings that is whole or refused: a zip archive under one digest.

Members are stored, never compressed, so that no member is larger than the file. The archive's comment
is the SHA-256 of everything before it: a flipped bit anywhere is found before anything is read.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from assay.core.errors import StoreError
from assay.core.replacing import replacing

_MARK = b"assay sha256 "
_DIGITS = 64
_BLOCK = 1 << 20
#: a moment that zip knows, so that equal contents are equal files
_EPOCH = (1980, 1, 1, 0, 0, 0)


class BrokenArchive(StoreError):
    """A file is not an archive of ours, or not what was written."""


def write_archive(path: Path, members: Mapping[str, bytes]) -> int:
    """Write the members under ``path``, atomically; the number of bytes."""
    with replacing(path) as part:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as archive:
            for name, content in members.items():
                archive.writestr(zipfile.ZipInfo(name, _EPOCH), content)
            archive.comment = _MARK + b"0" * _DIGITS
        with part.open("r+b") as file:
            size = file.seek(0, os.SEEK_END)
            digest = _digest(file.seek, file.read, size - _DIGITS)
            file.seek(size - _DIGITS)
            file.write(digest)
    return size


def read_archive(path: Path) -> dict[str, bytes]:
    """All members of a file written by :func:`write_archive`; nothing is unpacked to the disk.

    Raises
    ------
    BrokenArchive
        The file is something else, or a byte of it is not what was written.
    StoreError
        The file cannot be read.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            if size < _DIGITS + len(_MARK):
                raise BrokenArchive(f"{path} is no saved method: it has {size} bytes")
            file.seek(size - _DIGITS - len(_MARK))
            tail = file.read()
            if not tail.startswith(_MARK):
                raise BrokenArchive(f"{path} is no saved method, or it was cut short or added to")
            if tail[len(_MARK) :] != _digest(file.seek, file.read, size - _DIGITS):
                raise BrokenArchive(
                    f"{path} is damaged: its bytes are not those that were written (SHA-256 differs); "
                    "take a copy that is whole, or fit and save again"
                )
            return _members(path, file, size)
    except OSError as error:
        raise StoreError(f"cannot read {path}: {error.strerror or error}") from error


def _members(path: Path, file: object, size: int) -> dict[str, bytes]:
    try:
        with zipfile.ZipFile(file) as archive:  # type: ignore[call-overload]
            infos = archive.infolist()
            names = [info.filename for info in infos]
            if len(set(names)) < len(names):
                raise BrokenArchive(f"{path}: a member is there twice")
            packed = [info.filename for info in infos if info.compress_type != zipfile.ZIP_STORED]
            if packed:
                raise BrokenArchive(f"{path}: {packed[0]!r} is compressed; saved methods are not")
            if sum(info.file_size for info in infos) > size:
                raise BrokenArchive(f"{path}: the members overlap")
            return {info.filename: archive.read(info) for info in infos}
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        if isinstance(error, BrokenArchive):
            raise
        raise BrokenArchive(f"{path}: the archive cannot be read: {error}") from error


def _digest(seek: Callable[[int], int], read: Callable[[int], bytes], length: int) -> bytes:
    """Hexadecimal SHA-256 of the first ``length`` bytes."""
    seek(0)
    digest = hashlib.sha256()
    while length > 0:
        block = read(min(_BLOCK, length))
        if not block:
            break
        digest.update(block)
        length -= len(block)
    return digest.hexdigest().encode()
