"""A stream of rows in batches: from standard input, a file that may grow, or Parquet; with its position."""

from __future__ import annotations

import json
import os
import select
import stat
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.core.errors import DataError
from assay.data.stream_rows import ROLES, BadRow, CsvLines, JsonLines, RowReader, Rows

#: a line of more bytes is refused
LONGEST_LINE = 1 << 16
_CHUNK = 1 << 20
_POLL_SECONDS = 0.2
#: bytes before the position by which a file is known again
_TAIL = 1024
_MARK = b"\xef\xbb\xbf"
_BLANK = b"\r\n\t " + _MARK

Position = dict[str, Any]


class LineFeed:
    """Lines of a descriptor, taken as many as asked for; long ones are cut, and never held whole.

    What stands behind the last line end of a file may be half of a line, and half a number is a number:
    it is left where it is, unless it is a whole JSON object. A pipe that has ended has said all.
    """

    def __init__(self, descriptor: int, offset: int, *, follow: bool, stop: Callable[[], bool]) -> None:
        self.descriptor, self.offset = descriptor, offset
        self._regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._follow, self._stop = follow, stop
        self._lines: list[bytes] = []
        self._extra: list[int] = []  # bytes of long lines that were dropped, in order
        self._rest = b""
        self._dropped = 0
        self.ended = False
        self._unfinished = False  # whether the last line has no line end
        self.unended = 0  # lines taken whose end is still to come
        self.left = False  # whether something without a line end was left at the end of a file

    def take(self, most: int, patience: float) -> list[bytes]:
        """Up to ``most`` lines; fewer at the end, or if nothing more comes for ``patience`` seconds."""
        deadline: float | None = None
        while len(self._lines) < most and not self.ended and not self._stop():
            if self._fill():
                deadline = None
            elif self._lines:
                now = time.monotonic()
                deadline = now + patience if deadline is None else deadline
                if now >= deadline:
                    break
            elif self._regular and self._follow:
                break
        if self._regular and self._stop() and len(self._lines) < most and not self.ended:
            return []  # the batches of a file do not depend on where it was stopped
        taken, self._lines = self._lines[:most], self._lines[most:]
        self.offset += sum(map(len, taken)) + len(taken)
        for line in taken:
            if len(line) > LONGEST_LINE:
                self.offset += self._extra.pop(0)
        if self.ended and not self._lines and taken and self._unfinished:
            self.offset -= 1
            self.unended = 1
        return taken

    @property
    def unfinished(self) -> bool:
        """Whether a line has begun and not ended."""
        return bool(self._rest)

    def skip(self, unwanted: Callable[[bytes], bool]) -> int:
        """Take lines as long as ``unwanted`` says so of the next; their number."""
        count = 0
        while self._lines or not (self.ended or self._stop()):
            if not self._lines:
                if not self._fill() and self._regular and not self.ended:
                    break
            elif unwanted(self._lines[0]):
                count += len(self.take(1, 0.0))
            else:
                break
        return count

    def _fill(self) -> bool:
        """Read once; whether something came. Waits a moment where nothing is there yet."""
        if not self._regular:
            ready, _, _ = select.select([self.descriptor], [], [], _POLL_SECONDS)
            if not ready:
                return False
        chunk = os.read(self.descriptor, _CHUNK)
        if not chunk:
            if self._follow and self._regular:
                if self._lines:
                    time.sleep(_POLL_SECONDS)
                return False
            self.ended = True
            if self._rest and self._regular and not _is_object(self._rest):
                self.left = True
            elif self._rest:
                self._unfinished = True
                self._add(self._rest)
                self._rest = b""
            return False
        *whole, self._rest = (self._rest + chunk).split(b"\n")
        for line in whole:
            self._add(line)
        if len(self._rest) > LONGEST_LINE + 1:
            self._dropped += len(self._rest) - LONGEST_LINE - 1
            self._rest = self._rest[: LONGEST_LINE + 1]
        return True

    def _add(self, line: bytes) -> None:
        if len(line) > LONGEST_LINE:
            self._extra.append(self._dropped + len(line) - LONGEST_LINE - 1)
            self._dropped = 0
            line = line[: LONGEST_LINE + 1]
        self._lines.append(line)


class TextStream:
    """Batches of rows from lines of CSV (with a header) or JSON.

    Parameters
    ----------
    path : Path or None
        None: standard input.
    columns : names of series, time, forecast, outcome
    form : "csv" or "jsonl" or None
        None: JSON if the first line begins with a brace.
    follow : bool
        Go on waiting for lines at the end of a file, and begin again where it was replaced or cut.
    position : mapping or None
        Where an earlier run was; a file that is no longer what was read is read from its beginning.
    stop : callable
        Asked now and then; True ends the stream after the lines at hand.
    say : callable
        Takes a line for the user.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        columns: Sequence[str] = ROLES,
        form: str | None = None,
        follow: bool = False,
        position: Mapping[str, Any] | None = None,
        kind: str = "",
        stop: Callable[[], bool] = lambda: False,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self._path, self._columns, self._form = path, columns, form
        self._follow, self._stop, self._say = follow, stop, say
        self._reader = RowReader(kind)
        self._parser: CsvLines | JsonLines | None = None
        self._line = 0
        self._where = "standard input" if path is None else str(path)
        self._feed = self._open(position)

    def batches(self, size: int, patience: float = 0.5) -> Iterator[tuple[Rows, Position]]:
        """Rows of up to ``size`` lines each, and the position behind them."""
        while not self._stop():
            if self._parser is None:
                self._line += self._feed.skip(self._unwanted)
            taken = self._feed.take(size, patience) if self._parser is not None else []
            if taken:
                first = self._line + 1
                self._line += len(taken) - self._feed.unended
                yield self._plain_rows(taken, first) or self._any_rows(taken, first), self.position()
            elif self._stop():
                return
            elif self._feed.ended:
                self._say_left()
                return
            else:
                self._wait()

    def position(self) -> Position:
        """Where the stream is, for another run."""
        if self._path is None:
            return {}
        offset = self._feed.offset
        return {
            "path": str(self._path.resolve()),
            "offset": offset,
            "line": self._line,
            "tail": tail_checksum(self._feed.descriptor, offset),
        }

    def close(self) -> None:
        """Close the file."""
        if self._path is not None:
            os.close(self._feed.descriptor)

    # --- inside ------------------------------------------------------------------------------------

    def _open(self, position: Mapping[str, Any] | None) -> LineFeed:
        if self._path is None:
            return LineFeed(0, 0, follow=False, stop=self._stop)
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except OSError as error:
            raise DataError(f"{self._path} cannot be read: {error.strerror}") from error
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            os.close(descriptor)
            raise DataError(f"{self._path} is a folder; give the file of the stream")
        feed = LineFeed(descriptor, 0, follow=self._follow, stop=self._stop)
        if position and stat.S_ISREG(mode) and position.get("path") == str(self._path.resolve()):
            offset = int(position["offset"])
            if tail_checksum(descriptor, offset) != position["tail"]:
                self._say(f"{self._path} is not what was read before; it is read from its beginning")
            elif offset:
                begun = os.pread(descriptor, _CHUNK, 0).split(b"\n")
                self._first_line(next((line for line in begun if line.strip(_BLANK)), b""))
                os.lseek(descriptor, offset, os.SEEK_SET)
                feed.offset, self._line = offset, int(position["line"])
        return feed

    def _first_line(self, raw: bytes) -> bool:
        """Decide what the lines are; whether the first is a header."""
        text = raw.removeprefix(_MARK).decode("utf-8", "replace").rstrip("\r")
        if self._form == "jsonl" or (self._form is None and text.lstrip().startswith("{")):
            self._parser = JsonLines(self._columns, self._say)
            return False
        self._parser = CsvLines(text, self._columns, self._where)
        return True

    def _unwanted(self, line: bytes) -> bool:
        """Whether a line at the beginning is blank or a header; what lines are is decided by the first."""
        return self._parser is None and (not line.strip(_BLANK) or self._first_line(line))

    def _plain_rows(self, taken: list[bytes], first: int) -> Rows | None:
        """Rows of lines without anything odd in them, all at once."""
        if not isinstance(self._parser, CsvLines) or not taken or max(map(len, taken)) > LONGEST_LINE:
            return None
        try:
            text = b"\n".join(taken).decode().replace("\r\n", "\n").removesuffix("\r")
        except UnicodeDecodeError:
            return None
        columns = self._parser.columns(text)
        return None if columns is None else self._reader.read_plain(first, columns)

    def _any_rows(self, taken: list[bytes], first: int) -> Rows:
        """Rows of lines, each looked at by itself."""
        assert self._parser is not None
        lines, values, bad = [], [], []
        for number, raw in enumerate(taken, first):
            try:
                text = _decode(raw)
                if not text.strip():
                    continue
                found = self._parser.values(text, number)
            except ValueError as error:
                bad.append(BadRow(number, str(error)))
                continue
            if found is not None:
                lines.append(number)
                values.append(found)
        return self._reader.read(lines, values, bad)

    def _wait(self) -> None:
        """At the end of a file that is followed: a new one in its place is opened, else wait."""
        assert self._path is not None
        descriptor = self._feed.descriptor
        place = os.lseek(descriptor, 0, os.SEEK_CUR)
        before = tail_checksum(descriptor, place)
        time.sleep(_POLL_SECONDS)
        own = os.fstat(descriptor)
        cut = tail_checksum(descriptor, place) != before
        if not cut and own.st_size > place:
            return  # also of a file that was moved away, what is left of it comes first
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            there = own
        if cut or there.st_ino != own.st_ino or there.st_dev != own.st_dev:
            self._say_left()
            self._say(f"{self._path} was replaced or cut; it is read from its beginning")
            os.close(descriptor)
            self._parser, self._line = None, 0
            self._feed = self._open(None)

    def _say_left(self) -> None:
        """Say that the last line was left because it may be half of one."""
        if self._feed.left or self._feed.unfinished:
            self._say(
                f"{self._where}: the last line has no line end, so that it may be half written; it was not "
                "taken. If the file is complete, end that line"
            )


def _decode(raw: bytes) -> str:
    if len(raw) > LONGEST_LINE:
        raise ValueError(f"the line is longer than {LONGEST_LINE} bytes")
    try:
        return raw.removeprefix(_MARK).decode().rstrip("\r")
    except UnicodeDecodeError as error:
        raise ValueError(f"the line is not UTF-8 (byte 0x{raw[error.start]:02x})") from None


def _is_object(raw: bytes) -> bool:
    try:
        return isinstance(json.loads(raw.removeprefix(_MARK)), dict)
    except (ValueError, RecursionError):
        return False


def tail_checksum(descriptor: int, offset: int) -> int:
    """Checksum of what stands before an offset; -1 where the file does not reach it."""
    start = max(0, offset - _TAIL)
    try:
        found = os.pread(descriptor, offset - start, start)
    except OSError:  # a pipe has no places
        return -1
    return zlib.crc32(found) if len(found) == offset - start else -1


class ParquetStream:
    """Batches of rows of a Parquet file; the position is a row."""

    def __init__(
        self,
        path: Path,
        *,
        columns: Sequence[str] = ROLES,
        position: Mapping[str, Any] | None = None,
        kind: str = "",
        stop: Callable[[], bool] = lambda: False,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        self._path, self._columns, self._stop = path, list(columns), stop
        self._reader = RowReader(kind)
        try:
            self._file = parquet.ParquetFile(path)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{path}: the Parquet file cannot be read: {error}") from error
        names = self._file.schema_arrow.names
        missing = [column for column in columns if column not in names]
        if missing:
            raise DataError(
                f"{path} has no column {', '.join(map(repr, missing))}; it has {', '.join(names[:20])}. "
                "--columns says which are which"
            )
        self._row = 0
        # a file of the same length written anew is another one, and is read from its beginning
        self._checksum = _checksum(path)
        if position and position.get("path") == str(path.resolve()):
            if position.get("checksum") == self._checksum:
                self._row = int(position["row"])
            else:
                say(f"{path} is not what was read before; it is read from its beginning")

    def batches(self, size: int, patience: float = 0.5) -> Iterator[tuple[Rows, Position]]:
        """Rows of up to ``size`` lines each, and the position behind them."""
        import pyarrow as pa

        # the same rows make a batch whether or not a run began between them
        groups, start = list[int](), 0
        for group in range(self._file.num_row_groups):
            rows = self._file.metadata.row_group(group).num_rows
            if groups or start + rows > self._row:
                groups.append(group)
            else:
                start += rows
        left_out, held = self._row - start, list[Any]()
        try:
            for batch in self._file.iter_batches(size, row_groups=groups, columns=self._columns):
                columns = [_plain(batch[name])[left_out:] for name in self._columns]
                left_out = max(0, left_out - batch.num_rows)
                held += zip(*columns, strict=True)
                while len(held) >= size and not self._stop():
                    yield self._give(held[:size])
                    held = held[size:]
                if self._stop():
                    return
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self._path}: the Parquet file is damaged: {error}") from error
        if held:
            yield self._give(held)

    def _give(self, values: list[Any]) -> tuple[Rows, Position]:
        numbers = range(self._row + 1, self._row + 1 + len(values))
        self._row += len(values)
        return self._reader.read(numbers, values, ()), self.position()

    def position(self) -> Position:
        """Where the stream is, for another run."""
        return {
            "path": str(self._path.resolve()),
            "row": self._row,
            "checksum": self._checksum,
        }

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _checksum(path: Path) -> int:
    found = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            found = zlib.crc32(chunk, found)
    return found


def _plain(column: Any) -> list[Any]:
    """Values as Python's own; times to the microsecond."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_timestamp(kind):
        column = column.cast(pa.timestamp("us", tz=kind.tz), safe=False)
    elif pa.types.is_date(kind):
        column = column.cast(pa.timestamp("us"))
    elif pa.types.is_decimal(kind):
        column = column.cast(pa.float64())
    elif pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
    return list(column.to_pylist())


def open_stream(path: Path | None, *, form: str | None, follow: bool, **options: Any) -> Any:
    """The stream that suits: Parquet by its first bytes or by ``form``, else lines of text."""
    parquet = form == "parquet"
    if path is not None and form is None and path.is_file():
        with path.open("rb") as file:
            parquet = file.read(4) == b"PAR1"
    if not parquet:
        return TextStream(path, form=form, follow=follow, **options)
    if path is None or follow:
        raise DataError(
            "Parquet is read from a whole file; --follow and standard input need CSV or JSON lines"
        )
    return ParquetStream(path, **options)
