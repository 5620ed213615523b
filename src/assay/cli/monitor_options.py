"""Values of the options of ``assay monitor``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click

ROLES = ("series_id", "time", "forecast", "actual")


def parameters(
    _context: click.Context | None, _option: click.Parameter | None, values: Iterable[str]
) -> dict[str, object]:
    """NAME=VALUE pairs; true, false and numbers are taken as such."""
    found: dict[str, object] = {}
    for pair in values:
        name, sign, value = pair.partition("=")
        if not sign or not name.isidentifier() or not value:
            raise click.BadParameter(f"{pair!r} is not of the form name=value")
        if name in found:
            raise click.BadParameter(f"{name} is given twice")
        found[name] = _value(value)
    return found


def _value(text: str) -> object:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    kinds: tuple[Any, ...] = (int, float)
    for kind in kinds:
        try:
            number: object = kind(text)
        except ValueError:
            continue
        return number
    return text


def columns(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, ...]:
    """The four names, in the order of the roles."""
    named = dict(zip(ROLES, ROLES, strict=True))
    for pair in value.split(",") if value is not None else ():
        role, sign, name = (part.strip() for part in pair.partition("="))
        if not sign or not name or role not in named:
            raise click.BadParameter(
                f"{pair!r} is not of the form role=name, with a role of {', '.join(ROLES)}"
            )
        named[role] = name
    found = tuple(named.values())
    if len(set(found)) < len(found):
        raise click.BadParameter(f"two roles have the same column: {', '.join(found)}")
    return found
