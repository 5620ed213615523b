"""A file's rows a batch at a time, in order and in bounded memory; and writing answers the same way."""

from __future__ import annotations

import codecs
import csv
import io
import json
import lzma
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pandas as pd

from assay.core.errors import DataError, StoreError
from assay.core.replacing import replacing
from assay.data.files import (
    ARROW_ERRORS,
    MISSING_CELLS,
    OPENERS,
    arrow_frame,
    header_of,
    no_such_file,
    read_file,
    refuse_wide,
)

BATCH_ROWS = 65_536
#: bytes of a text file that are parsed at a time; a record must fit
_BLOCK_BYTES = 1 << 24
#: a spreadsheet takes cells that begin so for formulas
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?|[+-]?(inf|nan)|-", re.IGNORECASE)
#: cells of a batch, so that a wide table takes no more memory than a long one
_BATCH_CELLS = 1 << 23
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def read_batches(path: Path, rows: int = BATCH_ROWS) -> Iterator[tuple[int, pd.DataFrame]]:
    """(number of the first row, at most ``rows`` rows) of a table file, in order.

    Parquet and text (also compressed) are never held whole; other files are. Cells of a text file come
    as text, whatever they hold: what a column is, the reader of the batches knows.

    Raises
    ------
    DataError
        The file is not there, is no table, or is damaged; in a text file the line is named where it can be.
    """
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise DataError(
                f"{path} is a pipe or device, which can be read only once; write it to a file first"
            )
        with path.open("rb") as file:
            head = file.read(8)
    except FileNotFoundError:
        raise DataError(no_such_file(path)) from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from error
    if head.startswith(b"PAR1"):
        frames = _parquet(path, rows)
    elif head.startswith((b"ARROW1", b"FEA1", b"PK\x03\x04")) or path.suffix == ".arff":
        frames = _whole(path, rows)
    else:
        frames = _text(path, head)
    start = 0
    for frame in frames:
        yield start, frame
        start += len(frame)


def frame_batches(frame: pd.DataFrame, rows: int = BATCH_ROWS) -> Iterator[tuple[int, pd.DataFrame]]:
    """The same of a frame in memory; a frame without rows is one batch without rows."""
    rows = _fitting(rows, frame.shape[1])
    for start in range(0, max(len(frame), 1), rows):
        yield start, frame.iloc[start : start + rows]


def _fitting(rows: int, columns: int) -> int:
    """Rows of a batch of so many columns."""
    return max(1, min(rows, _BATCH_CELLS // max(columns, 1)))


def _whole(path: Path, rows: int) -> Iterator[pd.DataFrame]:
    for _, piece in frame_batches(read_file(path)[0], rows):
        yield piece


def _parquet(path: Path, rows: int) -> Iterator[pd.DataFrame]:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        with parquet.ParquetFile(path, pre_buffer=False) as file:
            refuse_wide(file.metadata.num_columns, path)
            if not file.metadata.num_rows:
                yield arrow_frame(file.schema_arrow.empty_table(), f"{path}: ")
            for batch in file.iter_batches(_fitting(rows, file.metadata.num_columns)):
                yield arrow_frame(pa.Table.from_batches([batch]), f"{path}: ", exact=True)
    except (pa.ArrowException, *ARROW_ERRORS) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path}: the Parquet file cannot be read: {error}") from error


def _text(path: Path, head: bytes) -> Iterator[pd.DataFrame]:
    import pyarrow as pa
    from pyarrow import csv as pa_csv

    opener: Callable[[Path, str], Any] = next(
        (found for magic, found in OPENERS.items() if head.startswith(magic)), open
    )
    try:
        with opener(path, "rb") as packed:
            file = _Recoded(packed)
            names, separator, skip = header_of(file.read(_BLOCK_BYTES), path)
        with opener(path, "rb") as packed:
            file = _Recoded(packed)
            reader = pa_csv.open_csv(
                file,
                read_options=pa_csv.ReadOptions(
                    column_names=names, skip_rows=skip, block_size=_BLOCK_BYTES, use_threads=False
                ),
                parse_options=pa_csv.ParseOptions(delimiter=separator, newlines_in_values=True),
                convert_options=pa_csv.ConvertOptions(
                    column_types={name: pa.string() for name in names},
                    null_values=list(MISSING_CELLS),
                    strings_can_be_null=True,
                ),
            )
            empty = True
            for batch in reader:
                empty = False
                columns = [_trimmed(column) for column in batch.columns]
                yield arrow_frame(pa.table(columns, names=names), f"{path}: ")
            if empty:
                yield pd.DataFrame({name: pd.Series([], dtype=object) for name in names})
    except (pa.ArrowException, OSError, EOFError, lzma.LZMAError, zlib.error, ValueError) as error:
        if isinstance(error, DataError):
            raise
        if "straddl" in str(error):
            size = f"{_BLOCK_BYTES >> 20} MiB"
            why = f"{path}: a record is longer than {size}; does a quote never end?"
            raise DataError(why) from error
        raise DataError(f"{path}: the text cannot be read: {str(error)[:300]}") from error


class _Recoded(io.RawIOBase):
    """The bytes of a text file in UTF-8: as they are, or from UTF-16 where its mark says so."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._pending: bytes = file.read(2)
        self._decoder: Any = None
        if self._pending in _UTF16:
            self._decoder = codecs.getincrementaldecoder("utf-16")()
            self._decoder.decode(self._pending)
            self._pending = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """At most ``size`` bytes; none at the end."""
        if size < 0:
            return b"".join(iter(lambda: self.read(_BLOCK_BYTES), b""))
        pieces, length = [self._pending], len(self._pending)
        while length < size:
            more = self._file.read(size - length)
            piece = more
            if self._decoder is not None:
                piece = self._decoder.decode(more, final=not more).encode("utf-8", "surrogatepass")
            pieces.append(piece)
            length += len(piece)
            if not more:
                break
        whole = b"".join(pieces)
        self._pending = whole[size:]
        return whole[:size]


def _trimmed(column: Any) -> Any:
    """Spaces off; cells that then say "missing" are missing."""
    import pyarrow as pa
    from pyarrow import compute as pc

    trimmed = pc.utf8_trim_whitespace(column)
    return pc.if_else(pc.is_in(trimmed, value_set=pa.array(MISSING_CELLS)), None, trimmed)


class AnswerWriter:
    """Writes frames of answers one after the other; under its name the file is whole or not there.

    The ending of the name says what is written: ``.parquet``, ``.jsonl`` (an object a line), else text
    with a header and commas. In text, a cell of words that a spreadsheet would take for a formula gets an
    apostrophe before it.

    Parameters
    ----------
    path : Path
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kind = path.suffix.lower()
        self._replacing = replacing(path)
        self._writer: Any = None
        self._file: io.TextIOWrapper | None = None

    def __enter__(self) -> Self:
        self._part = self._replacing.__enter__()
        try:
            if self._kind != ".parquet":
                self._file = open(self._part, "w", newline="", encoding="utf-8")
        except OSError as error:
            raise StoreError(f"cannot write {self.path}: {error.strerror}") from error
        return self

    def write(self, frame: pd.DataFrame) -> None:
        """Add rows; all frames have the columns of the first."""
        if self._file is None:
            self._write_parquet(frame)
        elif self._kind == ".jsonl":
            self._file.writelines(json_lines(frame))
        else:
            self._file.write(csv_text(frame, header=self._writer is None))
            self._writer = True

    def _write_parquet(self, frame: pd.DataFrame) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        table = pa.Table.from_pandas(frame, preserve_index=False)
        if self._writer is None:
            schema = pa.schema([pa.field(f.name, _lasting(f.type)) for f in table.schema])
            self._writer = parquet.ParquetWriter(self._part, schema)
        columns = []
        for field in self._writer.schema:
            try:
                columns.append(table.column(field.name).cast(field.type))
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise DataError(
                    f"the column {field.name!r} holds {field.type} in the first rows and then something else "
                    f"({error}): write .csv or .jsonl, or do not keep it"
                ) from error
        self._writer.write_table(pa.table(columns, schema=self._writer.schema))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._file is not None:
            self._file.close()
        elif self._writer is not None:
            self._writer.close()
        self._replacing.__exit__(kind, error, where)


def _lasting(kind: Any) -> Any:
    """A type that holds later rows too: of the first ones all may be missing, or small."""
    import pyarrow as pa

    if pa.types.is_null(kind):
        return pa.string()
    return pa.decimal128(38, kind.scale) if pa.types.is_decimal(kind) else kind


def csv_text(frame: pd.DataFrame, *, header: bool) -> str:
    """Lines with commas; words that begin like a formula get an apostrophe before them."""
    safe = frame.copy()
    for name in safe.columns:
        if safe[name].dtype.kind in "OUT" or isinstance(safe[name].dtype, pd.StringDtype):
            safe[name] = safe[name].map(_cell, na_action="ignore")
    safe.columns = pd.Index([_cell(str(name)) for name in safe.columns])
    return str(safe.to_csv(index=False, header=header, lineterminator="\n", quoting=csv.QUOTE_MINIMAL))


def _cell(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        value = json.dumps(list(value), ensure_ascii=False)
    risky = isinstance(value, str) and value.startswith(_FORMULA) and not _NUMBER.fullmatch(value)
    return f"'{value}" if risky else value


def json_lines(frame: pd.DataFrame) -> Sequence[str]:
    """One JSON object a row; what is no number becomes null, an infinite end the text "inf" or "-inf"."""
    rows = frame.astype(object).to_dict("records")
    return [json.dumps({key: _json(v) for key, v in row.items()}, ensure_ascii=False) + "\n" for row in rows]


def _json(value: Any) -> Any:
    if isinstance(value, (list, str)):
        return value
    if pd.isna(value):
        return None
    item = value.item() if hasattr(value, "item") else value
    return str(item) if isinstance(item, float) and item in (float("inf"), float("-inf")) else item
