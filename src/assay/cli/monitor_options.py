"""Values of the options of ``assay monitor``."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import click

from assay.core.cards import Card, all_cards

ROLES = ("series_id", "time", "forecast", "actual")


def default_tracker() -> Card:
    """The card of the tracker that is taken where none is named; it says why."""
    return next(card for card in all_cards().values() if card.watches_because)


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


@dataclass(frozen=True)
class Ahead:
    """How far ahead a time may be: a count, of microseconds where ``kind`` is "date"."""

    text: str
    count: int
    kind: str


_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86400}


def max_ahead(_context: click.Context, _option: click.Parameter, value: str | None) -> Ahead | None:
    """A whole number, or a whole number with s, min, h or d."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,12})(s|min|h|d)?", value.strip())
    if not found or not int(found[1]):
        raise click.BadParameter(
            f"{value!r} is no time: give 100, or 90s, 30min, 12h, 7d where times are dates"
        )
    unit = found[2]
    count = int(found[1]) * (1 if unit is None else _UNITS[unit] * 10**6)
    return Ahead(value, count, "date" if unit else "number")


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
