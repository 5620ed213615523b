"""``assay datasets``: the built-in real data."""

from __future__ import annotations

import click

from assay.cli import text


@click.command()
def datasets() -> None:
    """List the built-in real data; none of it needs a network.

    A name can stand for FILE in `assay compare`; its target is known.
    """
    from assay.data.builtin import listing

    entries = listing()
    here = [entry for entry in entries if entry["missing"] is None]
    rows = [
        (
            entry["name"],
            entry["task"],
            f"{entry['rows']:,}",
            str(entry["columns"]),
            entry["target"],
            entry["about"],
        )
        for entry in here
    ]
    click.echo(text.table(rows, ("name", "task", "rows", "columns", "target", "about"), right=(2, 3)))
    if absent := [entry["name"] for entry in entries if entry["missing"] is not None]:
        click.echo("\n" + text.paragraph("Not here:", ", ".join(absent), indent=10))
        click.echo("`assay compare NAME` says what such a set needs.")
    click.echo("\n`assay compare NAME` compares methods on one.")
