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

    rows = [
        (
            entry["name"],
            entry["task"],
            f"{entry['rows']:,}",
            str(entry["columns"]),
            entry["target"],
            "yes" if entry["missing"] is None else "no",
            entry["about"],
        )
        for entry in listing()
    ]
    click.echo(text.table(rows, ("name", "task", "rows", "columns", "target", "here", "about"), right=(2, 3)))
    absent = [entry["missing"] for entry in listing() if entry["missing"] is not None]
    if absent:
        click.echo("\n" + "\n".join(absent))
    click.echo("\n`assay compare NAME` uses one.")
