"""``assay datasets``: the built-in real data."""

from __future__ import annotations

import click


@click.command()
def datasets() -> None:
    """List the built-in real data, which needs no file and no network."""
