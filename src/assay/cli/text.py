"""Plain text on a terminal or in a log: tables, wrapped paragraphs, warnings. Imports nothing heavy."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import click

_STEERING = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def width() -> int:
    """Columns to write to: those of the terminal, 100 in a log."""
    return min(shutil.get_terminal_size((100, 24)).columns, 120) if sys.stdout.isatty() else 100


def table_width() -> int | None:
    """Columns that a table may use: those of the terminal; in a log as many as it needs."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def plain(text: str) -> str:
    """Text without the signs that steer a terminal: a file or table may hold any."""
    return _STEERING.sub("\ufffd", text)


def table(rows: Sequence[Sequence[str]], header: Sequence[str], *, right: Iterable[int] = ()) -> str:
    """Columns two spaces apart under a header; a long last column is wrapped on a terminal.

    ``right`` are positions of columns of numbers, set flush right.
    """
    lines = [list(header), *[[plain(cell) for cell in row] for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    flush_right = set(right)
    columns = table_width()
    room = max((columns or sum(widths) + 2 * len(widths)) - sum(widths[:-1]) - 2 * (len(widths) - 1), 20)
    out = []
    for line in lines:
        cells = [
            cell.rjust(size) if i in flush_right else cell.ljust(size)
            for i, (cell, size) in enumerate(zip(line, widths, strict=True))
        ]
        start = "  ".join(cells[:-1])
        last = cells[-1].rstrip() if len(header) - 1 not in flush_right else cells[-1]
        wrapped = textwrap.wrap(last, room) if len(last) > room else [last]
        indent = " " * (len(start) + 2)
        out.append(f"{start}  {wrapped[0]}".rstrip())
        out.extend(indent + rest for rest in wrapped[1:])
    return "\n".join(out)


def paragraph(label: str, text: str, *, indent: int = 16) -> str:
    """A label and its text, wrapped beside it."""
    return textwrap.fill(
        plain(text),
        max(width(), indent + 30),
        initial_indent=label.ljust(indent),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def first_line(text: str) -> str:
    """The first line that says something; of an error, what happened and not where."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


class Notices:
    """Messages to show once each, in the order of their first coming, with how often they came."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def add(self, message: str) -> None:
        """Count a message; white space is made plain."""
        line = " ".join(message.split())
        self._counts[line] = self._counts.get(line, 0) + 1

    def lines(self) -> list[str]:
        """One line a message."""
        return [line + (f" ({count} times)" if count > 1 else "") for line, count in self._counts.items()]


@contextmanager
def collected_warnings() -> Iterator[Notices]:
    """Gather the warnings raised inside, instead of Python's two lines for each."""
    notices = Notices()
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        warnings.showwarning = lambda message, *_args, **_kwargs: notices.add(str(message))
        yield notices


def show_warnings(notices: Notices) -> None:
    """One line a warning, on stderr."""
    for line in notices.lines():
        click.echo(plain(f"warning: {line}"), err=True)
