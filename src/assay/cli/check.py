"""``assay check``: has the coverage of a saved method drifted?"""

from __future__ import annotations

import json
from pathlib import Path

import click

from assay.cli import text
from assay.cli.options import FILE, check_writable, trust_option
from assay.cli.saved import loaded


@click.command()
@click.argument("saved", metavar="SAVED", type=FILE)
@click.argument("data", metavar="FILE", type=FILE)
@click.option("--group", metavar="COLUMN", help="Also test the rows of each value of this column.")
@click.option(
    "--level", default="0.05", show_default=True, metavar="SHARE", help="Chance of a false finding of drift."
)
@click.option("--json", "json_file", type=FILE, metavar="FILE", help="Also write the table as JSON.")
@trust_option
def check(
    saved: Path,
    data: Path,
    group: str | None,
    level: str,
    json_file: Path | None,
    trust: tuple[str, ...] | None,
) -> int:
    """Test on labelled rows, which the method has not seen, whether SAVED covers what it promised.

    \b
    Exit status: 0 coverage over all rows is as promised, 1 it is not, 2 the file or rows cannot be used.
    """
    if json_file is not None:
        check_writable(json_file, saved, data)
    from assay.engine.coverage import check as run_check

    fitted = loaded(saved, trust)
    with text.collected_warnings() as warned:
        try:
            found = run_check(fitted, data, group=group, level=level)
        finally:
            text.show_warnings(warned)
    promised = float(1 - found.alpha)
    rows = [
        (
            part.name,
            f"{part.rows:,}",
            f"{part.coverage:.4f}",
            f"{part.low:.4f} to {part.high:.4f}",
            f"{part.adjusted:.3g}",
            part.verdict,
        )
        for part in found.parts
    ]
    header = ("rows of", "rows", "coverage", "95 % interval", "p", "verdict")
    click.echo(text.table(rows, header, right=(1, 2, 4)))
    law = (
        f"beta-binomial, for {found.n_calib:,} calibration rows"
        if found.n_calib
        else "binomial: no calibration"
    )
    click.echo(
        "\n"
        + text.paragraph(
            "",
            f"Promised: {promised:g} of all rows; tested at level {float(found.level):g} (two-sided, exact: "
            f"{law}; parts corrected by Holm). A part has no promise of its own unless the method "
            f"gives one: {fitted.about['guarantee'] or 'its card names no guarantee'}",
            indent=0,
        )
    )
    for line in found.notices:
        click.echo(text.plain(f"notice: {line}"), err=True)
    if json_file is not None:
        records = found.table().to_dict("records")
        content = {"alpha": float(found.alpha), "drifted": found.drifted, "parts": records}
        json_file.write_text(json.dumps(content, indent=1))
        click.echo(f"json: {json_file}")
    return 1 if found.drifted else 0
