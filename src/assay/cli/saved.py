"""Loading a saved method for a command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.cli import text

if TYPE_CHECKING:
    from assay.engine.fitted import FittedMethod


def loaded(saved: Path, trust: Sequence[str] | None) -> FittedMethod:
    """The method in a file, with its columns; warnings go to stderr."""
    from assay.engine.fitted import FittedMethod, load

    with text.collected_warnings() as warned:
        try:
            fitted = load(saved, trusted=trust or ())
        finally:
            text.show_warnings(warned)
    if not isinstance(fitted, FittedMethod):
        raise click.UsageError(
            f"{saved} holds a {type(fitted).__name__} without its columns; use it in Python"
        )
    return fitted
