"""``assay verify``: the claims of papers, re-run."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.cli import text
from assay.cli.main import State

if TYPE_CHECKING:
    from assay.claims.api import ClaimEvent


@click.command(short_help="Run again what papers claim, beside baselines.")
@click.argument("methods", nargs=-1, metavar="[ID]...")
@click.option("--record", is_flag=True, help="Put what comes out into the ledger, whichever way it came out.")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="The folder with the papers' data sets.  [default: $ASSAY_DATA]",
)
@click.option("--long", is_flag=True, help="Also run the claims that take long.")
@click.option("--seeds", type=click.IntRange(2), help="In place of the number that each claim names.")
@click.option("--workers", type=click.IntRange(1), default=1, show_default=True, help="Trials at once.")
@click.option("--quiet", is_flag=True, help="No progress, only the ledger.")
@click.pass_obj
def verify(
    state: State,
    methods: tuple[str, ...],
    record: bool,
    data: Path | None,
    long: bool,
    seeds: int | None,
    workers: int,
    quiet: bool,
) -> int:
    """Run again what the papers of methods claim, beside the baselines, and judge it.

    Without ID the claims of all methods are run. Code writes the verdict: a claim holds if the whole
    95 % interval of the gain lies where the paper says, does not hold if the whole of it lies
    elsewhere, and is undecided otherwise.

    \b
    Exit status: 0 every claim that was run holds, 1 one does not or is undecided,
    2 none could be run, 130 interrupted.
    """
    from assay.claims.api import verify as run_claims
    from assay.claims.ledger import COLUMNS
    from assay.cli.progress import progress

    with text.collected_warnings() as notices:
        try:
            with progress(quiet=quiet) as show:

                def report(event: ClaimEvent) -> None:
                    show(event.done, event.total, event.what)
                    for row in event.rows:
                        show.say(f"{row.claim}: {row.verdict}")

                ledger = run_claims(
                    methods or None,
                    seeds=seeds,
                    data=data,
                    progress=report,
                    workers=workers,
                    long=long,
                    record=record,
                    command=shlex.join(["assay", *state.argv]),
                )
        finally:
            text.show_warnings(notices)
    for row in ledger:
        click.echo(text.paragraph(f"{row.claim}: ", f"{row.statement} ({row.where})", indent=2) + "\n")
    click.echo(text.table([(*row.cells()[:-1], row.verdict) for row in ledger], COLUMNS))
    why: dict[str, list[str]] = {}
    for row in ledger:
        if row.reason:
            why.setdefault(f"{row.verdict}: {row.reason}", []).append(row.claim)
    for reason, claims in why.items():
        click.echo("\n" + text.paragraph("", f"{reason} ({', '.join(claims)})", indent=0))
    counts = ledger.counts()
    click.echo("\n" + ", ".join(f"{count} {verdict}" for verdict, count in counts.items() if count))
    if record:
        click.echo("recorded in the ledger")
    if counts["skipped"] == len(ledger):
        return 2
    return 1 if counts["does not hold"] or counts["undecided"] else 0
