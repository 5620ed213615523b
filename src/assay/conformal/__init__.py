"""Conformal prediction: one file per method with its card beside it, and the parts they share.

Public classes are imported lazily by name: ``from assay.conformal import SplitConformalRegressor``.
"""

from __future__ import annotations

from typing import Any

#: public classes that are no methods and have no card
_PARTS = ("assay.conformal.fleet:Fleet", "assay.conformal.fleet_store:DurableFleet")


def _exports() -> dict[str, str]:
    from assay.core.cards import all_cards

    cards = [card for card in all_cards().values() if card.family == "conformal"]
    paths = [card.cls for card in cards]
    # and the classes of objects that cards give to a constructor
    paths += [
        value["class"] for card in cards for value in card.defaults.values() if "class" in _table(value)
    ]
    paths += _PARTS
    return {path.partition(":")[2]: path for path in paths if path.startswith("assay.")}


def _table(value: Any) -> Any:
    return value if isinstance(value, dict) else {}


def __getattr__(name: str) -> Any:
    if name.startswith("_"):
        raise AttributeError(name)
    exports = _exports()
    if name not in exports:
        raise AttributeError(f"module 'assay.conformal' has no attribute {name!r}")
    from assay.core.cards import import_object

    return import_object(exports[name])


def __dir__() -> list[str]:
    return sorted(_exports())
