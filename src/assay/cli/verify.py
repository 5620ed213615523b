"""``assay verify``: the claims of papers, re-run."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("methods", nargs=-1, metavar="[ID]...")
@click.option("--record", is_flag=True, help="Put what comes out into the ledger, whichever way it came out.")
@click.option(
    "--data",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="The folder with the papers' data sets.  [default: $ASSAY_DATA]",
)
def verify(methods: tuple[str, ...], record: bool, data: Path | None) -> int:
    """Run again what the papers of methods claim, beside the baselines, and judge it.

    Without ID all claims are run, which takes long. The verdict is written by code:
    holds, does not hold, or undecided.
    """
    from assay.claims.api import verify as run_claims

    outcomes = run_claims(methods or None, record=record, data=data)
    click.echo(outcomes)
    return 0
