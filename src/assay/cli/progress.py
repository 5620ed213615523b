"""How long work shows that it moves: a bar on a terminal, lines in a log, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

from assay.cli import text
from assay.engine.wording import duration, plural

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

    from assay.engine.plan import TrialResult
    from assay.engine.run import ProgressEvent


class Progress(Protocol):
    """Shows how far the work is."""

    def __call__(self, done: int, total: int, what: str, *, reused: int = 0) -> None:
        """``done`` of ``total`` pieces are there, ``reused`` of them from before; ``what`` came last."""

    def say(self, line: str) -> None:
        """A line that stays."""


@contextmanager
def progress(*, quiet: bool) -> Iterator[Progress]:
    """The progress that suits where stderr goes; a bar is taken away at the end."""
    if quiet:
        yield _Nothing()
    elif sys.stderr.isatty():
        with _bar() as bar:
            yield bar
    else:
        yield _Lines()


class _Nothing:
    """For --quiet."""

    def __call__(self, done: int, total: int, what: str, *, reused: int = 0) -> None:
        """Show nothing."""

    def say(self, line: str) -> None:
        """Say nothing."""


class _Lines:
    """One line a piece, with the count before it."""

    def __call__(self, done: int, total: int, what: str, *, reused: int = 0) -> None:
        click.echo(f"[{done:>{len(str(total))}}/{total}] {what}", err=True)

    def say(self, line: str) -> None:
        click.echo(line, err=True)


class _Bar:
    """A bar with the time that is left and what came last."""

    def __init__(self, bar: RichProgress) -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=None)
        self._begun = time.monotonic()

    def __call__(self, done: int, total: int, what: str, *, reused: int = 0) -> None:
        fresh = done - reused
        if fresh > 0 and done < total:
            left = (time.monotonic() - self._begun) / fresh * (total - done)
            what = f"about {duration(round(left))} left; {what}"
        self._bar.update(self._task, completed=done, total=total, description=what)

    def say(self, line: str) -> None:
        self._bar.console.print(line, markup=False, highlight=False)


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Column

    columns = (
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn(
            "{task.description}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")
        ),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Bar(bar)


def show_trials(show: Progress) -> Callable[[ProgressEvent], None]:
    """Takes what a comparison reports and shows it."""

    def report(event: ProgressEvent) -> None:
        if event.result is None:
            kept = f", {event.reused} of them kept from before" if event.reused else ""
            show.say(f"{plural(event.total, 'trial')}{kept}")
        else:
            show(event.done, event.total, trial_line(event.result), reused=event.reused)

    return report


def trial_line(result: TrialResult) -> str:
    """Method, seed and outcome of a trial."""
    line = f"{result.method}, seed {result.seed}: {result.status}"
    if result.status == "ok":
        return f"{line} ({duration(result.seconds)})"
    error = text.first_line(result.error)
    return f"{line}: {error}" if error else line
