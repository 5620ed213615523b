"""``assay report``: the answer and the page of a run that is kept."""

from __future__ import annotations

from pathlib import Path

import click

from assay.cli.compare import default_report, finish
from assay.cli.options import check_writable, existing_store, store_option
from assay.core.errors import DataError


@click.command()
@click.argument("run")
@store_option
@click.option(
    "--report",
    "page",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The HTML page.  [default: assay-report-RUN.html]",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write all results as JSON.",
)
def report(run: str, store: Path | None, page: Path | None, json_file: Path | None) -> int:
    """Show the answer of a kept run again and write its page; nothing is run.

    RUN is an id of `assay runs`, or the beginning of one.
    """
    path = existing_store(store)
    for file in (page, json_file):
        if file is not None:
            check_writable(file)

    from assay.engine.comparison import Comparison
    from assay.engine.store import Store

    kept = Store(path)
    ids = [info.id for info in kept.runs()]
    found = [run] if run in ids else [known for known in ids if known.startswith(run)]
    if len(found) != 1:
        what = "no run" if not found else f"{len(found)} runs"
        raise DataError(f"{what} {run!r} in {path}; `assay runs` lists all of them")
    info, results = kept.run(found[0])
    page = page or default_report(info.id)
    return finish(Comparison(info, results), store=path, report=page, json_file=json_file)
