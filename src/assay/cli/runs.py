"""``assay runs``: what is in the store."""

from __future__ import annotations

from pathlib import Path

import click

from assay.cli import text
from assay.cli.options import existing_store, store_option

_MAX_NAME = 24


@click.command()
@store_option
def runs(store: Path | None) -> None:
    """List the comparisons that are kept, newest first."""
    path = existing_store(store)

    from assay.engine.store import Store
    from assay.engine.wording import duration, plural, shorten

    with Store(path) as store_of_runs:
        kept = store_of_runs.runs()[::-1]
    if not kept:
        click.echo(f"no runs in {path}")
        return
    rows = [
        (
            info.id,
            info.started[:16].replace("T", " "),
            shorten(info.dataset, _MAX_NAME),
            shorten(info.target, _MAX_NAME),
            info.task,
            info.alpha,
            str(len(info.methods)),
            str(len(info.seeds)),
            duration(info.seconds),
        )
        for info in kept
    ]
    header = ("run", "started (UTC)", "data", "target", "task", "alpha", "methods", "seeds", "time")
    click.echo(text.table(rows, header, right=(5, 6, 7, 8)))
    click.echo(f"\n{plural(len(kept), 'run')} in {path}; `assay report RUN` shows one again.")
