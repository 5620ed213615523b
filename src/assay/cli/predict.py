"""``assay predict``: what a saved method says of new rows, a batch at a time."""

from __future__ import annotations

from pathlib import Path

import click

from assay.cli import text
from assay.cli.options import FILE, check_writable, names, trust_option
from assay.cli.saved import loaded


@click.command()
@click.argument("saved", metavar="SAVED", type=FILE)
@click.argument("data", metavar="FILE", type=FILE)
@click.option(
    "-o",
    "--out",
    type=FILE,
    metavar="FILE",
    help="Where to write: .parquet, .jsonl, else CSV.  [default: CSV to the terminal]",
)
@click.option(
    "--keep", callback=names, metavar="A,B,...", help="Columns of FILE to write beside the answers."
)
@click.option("--quiet", is_flag=True, help="No progress.")
@trust_option
def predict(
    saved: Path,
    data: Path,
    out: Path | None,
    keep: tuple[str, ...] | None,
    quiet: bool,
    trust: tuple[str, ...] | None,
) -> int:
    """Predict every row of FILE with the method in SAVED, in the order of the rows.

    Rows are read and written a batch at a time, so that memory does not grow with the file. FILE needs the
    columns that the method was fitted on, in any order; what is strange in them is said at the end.

    \b
    assay predict price.assay new.csv -o out.parquet --keep id
    """
    if out is not None:
        check_writable(out, saved, data)
    from assay.data.batches import AnswerWriter, csv_text
    from assay.data.schema import Notices

    fitted = loaded(saved, trust)
    notices = Notices()
    batches = fitted.predict_batches(data, notices=notices, keep=keep or ())
    done = 0
    if out is None:
        for number, frame in enumerate(batches):
            click.echo(csv_text(frame, header=number == 0), nl=False)
            done += len(frame)
    else:
        with AnswerWriter(out) as writer:
            for frame in batches:
                writer.write(frame)
                done += len(frame)
                if not quiet:
                    click.echo(f"{done:,} rows", err=True)
    for line in notices.lines():
        click.echo(text.plain(f"notice: {line}"), err=True)
    if out is not None:
        click.echo(f"{done:,} rows: {out}")
    return 0
