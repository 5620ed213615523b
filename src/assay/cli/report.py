"""``assay report``: the answer and the page of a run that is kept."""

from __future__ import annotations

from pathlib import Path

import click

from assay.cli.compare import default_report, finish
from assay.cli.options import FILE, check_outputs, existing_store, json_option, store_option


@click.command()
@click.argument("run")
@store_option
@click.option(
    "--report",
    "page",
    type=FILE,
    metavar="FILE",
    help="The HTML page.  [default: assay-report-RUN.html]",
)
@json_option
def report(run: str, store: Path | None, page: Path | None, json_file: Path | None) -> int:
    """Show the answer of a kept run again and write its page; nothing is run.

    RUN is an id of `assay runs`, the beginning of one, or last.
    """
    path = existing_store(store)
    check_outputs((page, json_file), path)

    from assay.engine.comparison import Comparison
    from assay.engine.store import Store

    with Store(path) as kept:
        info, results = kept.run(run)
    page = page or default_report(info.id)
    check_outputs((page, json_file), path)
    return finish(Comparison(info, results), store=path, report=page, json_file=json_file)
