"""Reading a file into a DataFrame (text, Parquet, Feather, NPZ, ARFF), or one clear line why not."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from assay.core.errors import DataError
from assay.data.arff import is_arff, read_arff

#: tried in this order; of equally consistent ones the one with most columns wins
_SEPARATORS = (",", ";", "\t", "|")
#: taken only where none of the above is in the header and every line agrees
_RARE_SEPARATORS = (":", " ")
_SNIFF_CHARACTERS = 200_000

#: cells that count as missing; "None" is left alone, for in many tables it is a category
MISSING_CELLS = (
    "", "?", "NA", "N/A", "n/a", "#N/A", "#NA", "<NA>", "NaN", "nan", "-NaN", "-nan", "NULL", "null",
)  # fmt: skip

OPENERS: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
#: what is packed may become this many times as large, and this much in any case
_LARGEST_RATIO = 100
_SMALL_BYTES = 1 << 28
#: a table of more columns takes minutes and gigabytes before anything is known of it
MOST_COLUMNS = 50_000
#: what Arrow and its way to pandas raise of damaged files
ARROW_ERRORS = (OSError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError, MemoryError)

DECIMAL_COMMA = r"^[+-]?[0-9]+(,[0-9]+)?$"


def read_file(path: Path) -> tuple[pd.DataFrame, list[str]]:
    """The table in a file, and notes on how it was read. What the file is, its first bytes say.

    Raises
    ------
    DataError
        The file is not there, empty, not a table, or damaged; the message names the line where it can.
    """
    if path.is_dir():
        raise DataError(f"{path} is a folder; give the file of the table")
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise DataError(no_such_file(path)) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    raw = _decompress(raw, path)
    if not raw:
        raise DataError(f"{path} is empty (0 bytes)")
    if raw.startswith(b"PAR1"):
        return _read_arrow(raw, path, "Parquet"), []
    if raw.startswith((b"ARROW1", b"FEA1")):
        return _read_arrow(raw, path, "Feather"), []
    if raw.startswith(b"PK\x03\x04"):
        return read_npz(raw, path)
    if is_arff(raw):
        return read_arff(_decode(raw, path).lstrip("\ufeff"), path), []
    return read_text(raw, path)


def no_such_file(path: Path) -> str:
    """What to say of a file that is not there."""
    return f"{path}: no such file{_neighbours(path)}"


def _neighbours(path: Path) -> str:
    import difflib

    if not path.parent.is_dir():
        return f"; the folder {path.parent} does not exist either"
    names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    near = difflib.get_close_matches(path.name, names, 1, cutoff=0.7)
    return f"; did you mean {path.parent / near[0]}?" if near else ""


def _decompress(raw: bytes, path: Path) -> bytes:
    opener: Any = next((found for magic, found in OPENERS.items() if raw.startswith(magic)), None)
    if opener is None:
        return raw
    most = _most_unpacked(len(raw))
    try:
        with opener(io.BytesIO(raw)) as packed:
            content: bytes = packed.read(most + 1)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
        raise DataError(f"{path}: the compressed file is damaged: {error}") from error
    if len(content) > most:
        raise DataError(_bomb(path, len(raw)))
    return content


def _most_unpacked(size: int) -> int:
    """Bytes that a packed file of that size may become."""
    return _SMALL_BYTES + _LARGEST_RATIO * size


def _bomb(path: Path, size: int) -> str:
    return (
        f"{path} of {size:,} bytes would become more than {_most_unpacked(size):,}, as no table does; "
        "if it is one, unpack it first"
    )


# ---------------------------------------------------------------- text


def read_text(raw: bytes, path: Path) -> tuple[pd.DataFrame, list[str]]:
    """A table of text with a header line; types are inferred over all rows.

    The separator (comma, semicolon, tab, bar; else colon or space) is found from the lines.
    Where it is not the comma and no column has decimal points, numbers such as ``3,14`` are
    read as decimals. Spaces around cells are ignored. ISO dates become dates.
    """
    text = _decode(raw, path).lstrip("\ufeff")
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    header, separator, line_offset, lines = _header(text, path)
    stripped = text.lstrip("\n")
    start = 0
    for _ in range(lines):
        start = stripped.find("\n", start) + 1 or len(stripped)
    body = stripped[start:]
    if not body.strip():
        raise DataError(f"{path} has a header ({len(header)} columns) but no rows")
    return _parse(body, header, separator, path, stripped, line_offset)


def header_of(head: bytes, path: Path) -> tuple[list[str], str, int]:
    """(names of the columns, separator, lines before the first record) from the beginning of a text file.

    Raises
    ------
    DataError
        It is no text in UTF-8, or has no header.
    """
    whole = head[: max(head.rfind(b"\n"), head.rfind(b"\r")) + 1] or head
    text = _decode(whole, path).lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    header, separator, line_offset, lines = _header(text, path)
    return header, separator, line_offset + lines


def _header(text: str, path: Path) -> tuple[list[str], str, int, int]:
    """(names, separator, blank lines before the header, lines of the header)."""
    stripped = text.lstrip("\n")
    line_offset = len(text) - len(stripped)
    if not stripped.strip():
        raise DataError(f"{path} is empty: no header, no rows")
    separator = sniff_separator(stripped)
    try:
        reader = csv.reader(io.StringIO(stripped, newline=""), delimiter=separator)
        header = [cell.strip() for cell in next(reader)]
    except csv.Error as error:
        raise DataError(f"{path}: line {line_offset + 1} cannot be read as a header: {error}") from error
    refuse_wide(len(header), path)
    _refuse_duplicates(header, f"{path}: ")
    names = [name or f"column {i + 1}" for i, name in enumerate(header)]
    return names, separator, line_offset, reader.line_num


def refuse_wide(columns: int, path: Path) -> None:
    """Refuse a table of more columns than can be looked at."""
    if columns > MOST_COLUMNS:
        raise DataError(
            f"{path} has {columns:,} columns; at most {MOST_COLUMNS:,} are read. Is it turned round?"
        )


def _decode(raw: bytes, path: Path) -> str:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        encoding = "utf-16"
    else:
        encoding = "utf-8"
        if b"\x00" in raw[:4096]:
            raise DataError(
                f"{path} is no table that can be read; text (CSV), Parquet, Feather (version 2) and NPZ are"
            )
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        lines = sum(1 for piece in raw.split(b"\n") if _is_broken(piece, encoding))
        raise DataError(
            f"{path}: line {line} is not UTF-8 (byte 0x{raw[error.start]:02x}; {lines} such line(s)); save "
            f"the file as UTF-8, for example with: iconv -f WINDOWS-1252 -t UTF-8 {path} > utf8.csv"
        ) from error


def _is_broken(piece: bytes, encoding: str) -> bool:
    try:
        piece.decode(encoding)
    except UnicodeDecodeError:
        return True
    return False


def sniff_separator(text: str) -> str:
    """The separator under which most lines have as many fields as the header."""
    sample = text[:_SNIFF_CHARACTERS]
    if len(text) > len(sample) and "\n" in sample:
        sample = sample[: sample.rindex("\n")]
    best, best_key = ",", (0.0, 0)
    for separator in (*_SEPARATORS, *_RARE_SEPARATORS):
        try:
            widths = [len(row) for row in csv.reader(io.StringIO(sample), delimiter=separator) if row]
        except csv.Error:
            continue
        if not widths or widths[0] < 2:
            continue
        share = sum(width == widths[0] for width in widths) / len(widths)
        if separator in _RARE_SEPARATORS and (best_key[0] > 0 or share < 1 or len(widths) < 2):
            continue
        if (share, widths[0]) > best_key:
            best, best_key = separator, (share, widths[0])
    return best


def _refuse_duplicates(names: list[str], where: str) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1 and name]
    if twice:
        places = ", ".join(
            f"{name!r} (columns {', '.join(str(i + 1) for i, n in enumerate(names) if n == name)})"
            for name in twice[:5]
        )
        raise DataError(f"{where}duplicated column name: {places}; rename or remove one of them")


def _parse(
    body: str, header: list[str], separator: str, path: Path, text: str, line_offset: int
) -> tuple[pd.DataFrame, list[str]]:
    import pyarrow as pa
    from pyarrow import csv as pa_csv

    try:
        table = pa_csv.read_csv(
            pa.BufferReader(body.encode()),
            read_options=pa_csv.ReadOptions(column_names=header),
            parse_options=pa_csv.ParseOptions(delimiter=separator, newlines_in_values='"' in body),
            convert_options=pa_csv.ConvertOptions(null_values=list(MISSING_CELLS), strings_can_be_null=True),
        )
    except pa.ArrowInvalid as error:
        raise DataError(_explain(text, len(header), separator, path, line_offset, str(error))) from error
    columns = [_trim(column) if _is_text(column.type) else column for column in table.columns]
    notes: list[str] = []
    if separator != "," and not any(pa.types.is_floating(column.type) for column in columns):
        columns, commas = _decimal_commas(columns, header)
        if commas:
            notes.append(f"decimal commas read as points in: {_some(commas)}")
    frame = pa.table(columns, names=header).to_pandas(date_as_object=False)
    return frame, notes


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _trim(column: Any) -> Any:
    """Spaces off; cells that then say "missing" are missing; a number if all that is left are numbers."""
    import pyarrow as pa
    from pyarrow import compute as pc

    trimmed = pc.utf8_trim_whitespace(column)
    if trimmed.equals(column):
        return column
    missing = pc.is_in(trimmed, value_set=pa.array(MISSING_CELLS))
    trimmed = pc.if_else(missing, None, trimmed)
    for kind in (pa.int64(), pa.float64()):
        try:
            return trimmed.cast(kind)
        except pa.ArrowInvalid:
            continue
    return trimmed


def _decimal_commas(columns: list[Any], header: list[str]) -> tuple[list[Any], list[str]]:
    import pyarrow as pa
    from pyarrow import compute as pc

    out, changed = [], []
    for name, column in zip(header, columns, strict=True):
        if (
            _is_text(column.type)
            and column.null_count < len(column)
            and pc.all(pc.match_substring_regex(column, DECIMAL_COMMA)).as_py()
        ):
            column = pc.replace_substring(column, ",", ".").cast(pa.float64())
            changed.append(name)
        out.append(column)
    return out, changed


def _records(text: str, separator: str) -> Iterator[tuple[int, list[str]]]:
    """(first line, fields) of each record that is not blank."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    line = 1
    for row in reader:
        if row:
            yield line, row
        line = reader.line_num + 1


def _explain(text: str, width: int, separator: str, path: Path, line_offset: int, error: str) -> str:
    """Why the text could not be read: the first line with a wrong number of fields, and their count."""
    try:
        ragged = [(line, len(row)) for line, row in _records(text, separator) if len(row) != width]
    except csv.Error as problem:
        return f"{path}: {problem}"
    if not ragged:
        return f"{path}: {error}"
    line, fields = ragged[0]
    more = f" ({len(ragged)} such lines)" if len(ragged) > 1 else ""
    named = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar", ":": "colon", " ": "space"}[separator]
    return (
        f"{path}: line {line + line_offset} has {fields} fields where the header has {width}{more}; "
        f"the separator is the {named}"
    )


def _some(names: list[str], most: int = 5) -> str:
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


# ---------------------------------------------------------------- binary


def _read_arrow(raw: bytes, path: Path, kind: str) -> pd.DataFrame:
    import pyarrow as pa

    try:
        if kind == "Parquet":
            from pyarrow import parquet

            refuse_wide(parquet.read_metadata(pa.BufferReader(raw)).num_columns, path)
            table = parquet.read_table(pa.BufferReader(raw))
        else:
            from pyarrow import feather

            table = feather.read_table(pa.BufferReader(raw))
        refuse_wide(table.num_columns, path)
        return arrow_frame(table, f"{path}: ")
    except DataError:
        raise
    except (pa.ArrowException, *ARROW_ERRORS) as error:
        raise DataError(f"{path}: the {kind} file cannot be read: {error}") from error


def arrow_frame(table: Any, where: str, *, exact: bool = False) -> pd.DataFrame:
    """pandas frame of an Arrow table; a stored pandas index without a name is left out.

    ``exact``: integers among which some are missing stay integers, of pandas' nullable types.
    """
    _refuse_duplicates(list(table.column_names), where)
    keep = [name for name in table.column_names if not re.fullmatch(r"__index_level_\d+__", name)]
    chosen = table.select(keep)
    _refuse_broken_text(chosen, where)
    options: dict[str, Any] = {}
    if exact and any(_is_broken_integer(column) for column in chosen.columns):
        options["types_mapper"] = _nullable_integer
    frame: pd.DataFrame = chosen.to_pandas(ignore_metadata=True, date_as_object=False, **options)
    return frame


def _refuse_broken_text(table: Any, where: str) -> None:
    """Arrow takes bytes for text on trust; pandas would fail on them later, somewhere."""
    import pyarrow as pa

    for name, column in zip(table.column_names, table.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowInvalid as error:
            raise DataError(f"{where}the column {name!r} is damaged ({error})") from error


def _is_broken_integer(column: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_integer(column.type) and column.null_count)


def _nullable_integer(kind: Any) -> Any:
    import pyarrow as pa

    if not pa.types.is_integer(kind):
        return None
    return pd.api.types.pandas_dtype(str(kind).replace("uint", "UInt").replace("int", "Int"))


def read_npz(raw: bytes, path: Path) -> tuple[pd.DataFrame, list[str]]:
    """Arrays of an NPZ file: ``X`` (n, d) with ``y`` (n,) or (n, q), or one array (n,) a column."""
    try:
        with zipfile.ZipFile(io.BytesIO(raw)) as archive:
            names = archive.namelist()
            total = sum(info.file_size for info in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
        raise DataError(f"{path}: the file is damaged: {error}") from error
    if any(name.startswith("xl/") for name in names):
        raise DataError(f"{path} is an Excel workbook; save the sheet as CSV or Parquet")
    if not any(name.endswith(".npy") for name in names):
        raise DataError(f"{path} is a zip archive without arrays; unpack it and give the table inside")
    if total > _most_unpacked(len(raw)):
        raise DataError(_bomb(path, len(raw)))
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
    except (*ARROW_ERRORS, EOFError, zipfile.BadZipFile, zlib.error) as error:
        if "allow_pickle" in str(error):
            why = f"{path}: an array of Python objects is not loaded (no pickles): {error}"
            raise DataError(why) from error
        raise DataError(f"{path}: an array in it cannot be read: {error}") from error
    return arrays_frame(arrays, str(path))


def arrays_frame(arrays: dict[str, Any], where: str) -> tuple[pd.DataFrame, list[str]]:
    """Columns from named arrays; ``X`` gives ``x0``, ``x1``, ..., ``y`` of several columns ``y0``, ..."""
    base = arrays.get("X", arrays.get("y"))
    if base is None:
        lengths = Counter(len(array) for array in arrays.values() if array.ndim == 1)
        if not lengths:
            raise DataError(f"{where} holds no array of shape (n,) and no X; found: {_shapes(arrays)}")
        n = lengths.most_common(1)[0][0]
    elif base.ndim == 0:
        raise DataError(f"{where}: X must have shape (n, d); found: {_shapes(arrays)}")
    else:
        n = len(base)
    pieces: dict[str, Any] = {}
    left_out = []
    for name, array in arrays.items():
        if name == "X":
            flat = array.reshape(n, -1)
            pieces |= {f"x{i}": flat[:, i] for i in range(flat.shape[1])}
        elif array.ndim >= 1 and len(array) == n and array.size == n:
            pieces[name] = array.reshape(n)
        elif name == "y" and array.ndim == 2 and len(array) == n and array.shape[1]:
            pieces |= {f"y{i}": array[:, i] for i in range(array.shape[1])}
        else:
            left_out.append(name)
    if "y" in left_out:
        raise DataError(f"{where}: y does not have one row for each of the {n} rows: {_shapes(arrays)}")
    notes = [f"arrays left out, not one value a row: {_some(left_out)}"] if left_out else []
    return pd.DataFrame(pieces), notes


def _shapes(arrays: dict[str, Any]) -> str:
    return ", ".join(f"{name} {array.shape}" for name, array in list(arrays.items())[:8])
