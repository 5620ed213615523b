"""A file takes the place of another in one step, or not at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from assay.core.errors import StoreError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name beside ``path`` to write to: on success it takes the place of ``path``, else it goes.

    Under ``path`` there is always the former file or the whole new one, also after a power cut.

    Raises
    ------
    StoreError
        The folder is not there or cannot be written, or the disk is full.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        yield part
        descriptor = os.open(part, os.O_RDWR)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.replace(part, path)
        sync_folder(path.parent)
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Bring names made or removed in a folder to the disk."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
