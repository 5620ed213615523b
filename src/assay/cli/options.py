"""Option values that several commands read: the store, sizes, lists."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import click

from assay.core.errors import DataError

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def size(_context: click.Context, _option: click.Parameter, value: str | None) -> int | None:
    """Bytes, as people write them: 800M, 2G, 1.5GiB; units are powers of 1024."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", value.strip().lower())
    found = int(float(match[1]) * _UNITS[match[2]]) if match else 0
    if found <= 0:
        raise click.BadParameter(f"{value!r} is not a size; write it as 800M or 2G")
    return found


def names(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    """Names separated by commas."""
    if value is None:
        return None
    found = tuple(name.strip() for name in value.split(","))
    if not all(found):
        raise click.BadParameter(f"{value!r} has an empty name in it")
    return found


#: a file that is read or written
FILE = click.Path(dir_okay=False, path_type=Path)

alpha_option = click.option(
    "--alpha",
    default="0.1",
    show_default=True,
    metavar="SHARE",
    help="The share that may be missed: 0.1 asks for 90 % coverage.",
)
drop_option = click.option("--drop", callback=names, metavar="A,B,...", help="Columns to leave out.")
json_option = click.option(
    "--json", "json_file", type=FILE, metavar="FILE", help="Also write all results as JSON."
)
store_option = click.option(
    "--store",
    type=FILE,
    metavar="FILE",
    help="Where results are kept. Default: $ASSAY_STORE, else runs.db in the user's data folder.",
)


trust_option = click.option(
    "--trust",
    callback=names,
    metavar="A,B,...",
    help="Further types that SAVED may hold, as `assay show` names them; of people you trust.",
)


def store_path(given: Path | None) -> Path:
    """The file of the store: the one given, or the user's own."""
    from assay.engine.store import default_store_path

    return given if given is not None else default_store_path()


def existing_store(given: Path | None) -> Path:
    """The store's path, refused where nothing has been kept yet."""
    path = store_path(given)
    if not path.exists():
        raise DataError(f"there is no store at {path}; `assay compare` makes one, --store names another")
    return path


def check_outputs(outputs: Sequence[Path | None], *read: str | Path | None) -> None:
    """:func:`check_writable` for several output files, which must not be one file either."""
    named = [path for path in outputs if path is not None]
    for i, path in enumerate(named):
        check_writable(path, *read)
        if any(path.resolve() == other.resolve() for other in named[:i]):
            raise DataError(f"{path} is to be written twice, with other content; name another file")


def check_writable(path: Path, *read: str | Path | None) -> None:
    """Refuse an output file that could not be written, or that is ``read``, before hours of work."""
    folder = path.resolve().parent
    if not folder.is_dir():
        raise DataError(f"cannot write {path}: the folder {folder} is not there")
    if path.is_dir():
        raise DataError(f"cannot write {path}: it is a folder")
    if path.exists() and not path.is_file():
        raise DataError(f"cannot write {path}: it is a device or pipe, and would be replaced by a file")
    for other in read:
        if other is not None and path.exists() and Path(other).exists() and path.samefile(other):
            raise DataError(f"cannot write {path}: it is read too, and would be lost; name another file")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise DataError(f"cannot write {path}: no permission")
