"""How a comparison shows that it moves: a bar on a terminal, a line a trial in a log, or nothing."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

from assay.cli import text
from assay.engine.wording import duration, plural

if TYPE_CHECKING:
    from assay.engine.plan import TrialResult
    from assay.engine.run import ProgressEvent


class Progress(Protocol):
    """Takes what the engine reports."""

    def __call__(self, event: ProgressEvent) -> None:
        """One trial has ended, or the run begins (no result)."""


@contextmanager
def progress(*, quiet: bool) -> Iterator[Progress]:
    """The progress that suits where stderr goes; a bar is taken away at the end."""
    if quiet:
        yield lambda event: None
    elif sys.stderr.isatty():
        with _bar() as bar:
            yield bar
    else:
        yield _Lines()


def _trial_line(result: TrialResult) -> str:
    line = f"{result.method}, seed {result.seed}: {result.status}"
    if result.status == "ok":
        return f"{line} ({duration(result.seconds)})"
    error = text.first_line(result.error)
    return f"{line}: {error}" if error else line


class _Lines:
    """One line a trial on stderr, with the count before it."""

    def __call__(self, event: ProgressEvent) -> None:
        if event.result is None:
            reused = f", {event.reused} of them kept from before" if event.reused else ""
            click.echo(f"{plural(event.total, 'trial')}{reused}", err=True)
        else:
            digits = len(str(event.total))
            click.echo(f"[{event.done:>{digits}}/{event.total}] {_trial_line(event.result)}", err=True)


@contextmanager
def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    console = Console(stderr=True)
    columns = (
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with RichProgress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("starting", total=None)
        begun = time.monotonic()

        def update(event: ProgressEvent) -> None:
            said = "running"
            if event.result is not None:
                said = f"last: {_trial_line(event.result)}"
                fresh = event.done - event.reused
                if fresh > 0 and event.done < event.total:
                    left = (time.monotonic() - begun) / fresh * (event.total - event.done)
                    said = f"about {duration(left)} left; {said}"
                if event.result.status not in ("ok", "skipped"):
                    console.print(_trial_line(event.result), markup=False, highlight=False)
            bar.update(task, completed=event.done, total=event.total, description=said)

        yield update
