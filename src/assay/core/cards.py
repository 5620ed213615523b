"""Cards: the facts about each method, read from the TOML file beside its module.

Reading cards imports no method and no numpy, so lists and help are instant.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from assay.core.errors import AssayError, AssayWarning, MethodError, MissingDependency

_PACKAGE = Path(__file__).resolve().parents[1]

#: extra of pyproject.toml -> the module whose presence shows that it is installed
EXTRAS = {
    "torch": "torch",
    "flows": "zuko",
    "fast": "numba",
    "forecast": "statsforecast",
    "forest": "quantile_forest",
    "ray": "ray",
}


@dataclass(frozen=True)
class Card:
    """What is known of a method without importing it.

    ``defaults`` are constructor arguments of a comparison; ``exceptions`` map the name
    of a conformance law to the reason why the method cannot keep it.
    """

    id: str
    name: str
    cls: str
    family: str
    task: str
    role: str
    summary: str
    use_for: str = ""
    fails_when: str = ""
    guarantee: str = ""
    cost: str = ""
    baselines: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    #: what the comparison's --model stands for: "any", "quantile", "ridge" or "own" (ignored)
    model: str = "any"
    #: more training rows than this: skipped in a comparison that did not ask for the method by name
    max_rows: int | None = None
    #: False: not part of a comparison unless it is asked for by name
    in_menu: bool = True
    #: True: it works on groups of rows, and is no part of a comparison on a table without a group column
    needs_groups: bool = False
    #: "classification" or "regression": no part of a predictive comparison of the other kind
    only_for: str = ""
    #: id of the method that it is where there is one matrix of probabilities, and so one model, for all heads
    of_one_model: str = ""
    #: why `assay monitor` takes this tracker where no other is named; of one card only
    watches_because: str = ""
    paper: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    claims: tuple[Mapping[str, Any], ...] = ()
    exceptions: Mapping[str, str] = field(default_factory=dict)
    #: constructor arguments that make the method cheap enough for the conformance suite
    testing: Mapping[str, Any] = field(default_factory=dict)
    #: of the worked example in the documentation: ``data``, ``model`` and ``arguments`` beside ``defaults``
    example: Mapping[str, Any] = field(default_factory=dict)
    path: str = ""

    @property
    def missing(self) -> tuple[str, ...]:
        """The extras this method needs that are not installed."""
        return tuple(extra for extra in self.requires if importlib.util.find_spec(EXTRAS[extra]) is None)

    def load(self) -> Any:
        """Import the method's class.

        Raises
        ------
        MissingDependency
            An extra is not installed; the message is the one line that installs it.
        """
        if self.missing:
            extras = ",".join(self.missing)
            raise MissingDependency(f"{self.id} needs: pip install 'assay[{extras}]'")
        return import_object(self.cls)


def import_object(path: str) -> Any:
    """Import ``package.module:attribute``; a MethodError says which part is not there."""
    module_name, _, attribute = path.partition(":")
    if not attribute:
        raise MethodError(f"{path!r} is not of the form package.module:Class")
    try:
        module = importlib.import_module(module_name)
    except AssayError:
        raise
    except ModuleNotFoundError as error:
        hint = f"; did you mean {module_name[:-3]}:{attribute}?" if module_name.endswith(".py") else ""
        raise MethodError(f"cannot import {module_name!r} of {path!r}: {error}{hint}") from error
    except Exception as error:  # the user's own module may raise anything
        said = f"{type(error).__name__}: {error}"
        raise MethodError(f"cannot import {module_name!r} of {path!r}: {said}") from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        near = difflib.get_close_matches(attribute, dir(module), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise MethodError(f"module {module_name!r} has no {attribute!r}{hint}") from None


def build_argument(value: Any) -> Any:
    """What a card's constructor argument stands for: a table with a ``class`` is an object of that class.

    ``{ class = "package.module:Class", ... }`` is made with the rest of the table; any other value is itself.
    """
    if not isinstance(value, Mapping) or "class" not in value:
        return value
    return import_object(value["class"])(**{key: item for key, item in value.items() if key != "class"})


_FIELDS = set(Card.__dataclass_fields__) - {"cls", "path"}
#: what TOML must give for a key that is not text
_KINDS: dict[str, type] = {
    **dict.fromkeys(("baselines", "requires", "claims"), list),
    **dict.fromkeys(("paper", "defaults", "exceptions", "testing", "example"), dict),
    "max_rows": int,
    "in_menu": bool,
    "needs_groups": bool,
}


def read_card(path: Path) -> Card:
    """Read and check one card."""
    with path.open("rb") as handle:
        try:
            raw = tomllib.load(handle)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise MethodError(f"{path}: not a valid card: {error}") from error
    cls = raw.pop("class", None)
    unknown = sorted(set(raw) - _FIELDS)
    missing = [key for key in ("id", "name", "family", "task", "role", "summary") if key not in raw]
    if cls is None:
        missing.append("class")
    if unknown or missing:
        raise MethodError(f"{path}: unknown keys {unknown}, missing keys {missing}")
    for key, value in raw.items():
        kind = _KINDS.get(key, str)
        if type(value) is not kind:
            raise MethodError(f"{path}: {key} must be a {kind.__name__}, got {value!r}")
    if raw["role"] not in {"paper", "baseline"}:
        raise MethodError(f"{path}: role must be 'paper' or 'baseline', got {raw['role']!r}")
    if raw.get("only_for", "") not in {"", "classification", "regression"}:
        raise MethodError(
            f"{path}: only_for must be 'classification' or 'regression', got {raw['only_for']!r}"
        )
    _check_example(path, raw.get("example", {}))
    unknown_extras = sorted(set(raw.get("requires", ())) - set(EXTRAS))
    if unknown_extras:
        raise MethodError(f"{path}: unknown extras {unknown_extras}; known: {sorted(EXTRAS)}")
    for key in ("baselines", "requires", "claims"):
        if key in raw:
            raw[key] = tuple(raw[key])
    return Card(cls=cls, path=str(path), **raw)


def _check_example(path: Path, example: Mapping[str, Any]) -> None:
    """Refuse a table ``[example]`` that the documentation would not understand."""
    kinds: dict[str, tuple[type, ...]] = {"data": (str,), "model": (dict, list), "arguments": (dict,)}
    for key, value in example.items():
        if key not in kinds:
            raise MethodError(f"{path}: unknown key {key!r} in [example]; there are: {', '.join(kinds)}")
        if not isinstance(value, kinds[key]):
            names = " or ".join(kind.__name__ for kind in kinds[key])
            raise MethodError(f"{path}: {key} in [example] must be a {names}, got {value!r}")
    models = example.get("model", [])
    for model in models if isinstance(models, list) else [models]:
        if not isinstance(model, dict) or not isinstance(model.get("class"), str):
            raise MethodError(f"{path}: a model in [example] is a table with a class, got {model!r}")


def _third_party_cards(known: Mapping[str, Card]) -> Iterator[Card]:
    """Cards of entry points ``assay.methods``: NAME = "package.module:Class", card beside the module.

    Another package's broken card is left out with a warning: it must not take all methods with it.
    """
    from importlib.metadata import entry_points

    taken = dict(known)
    for point in entry_points(group="assay.methods"):
        try:
            spec = importlib.util.find_spec(point.module)
            if spec is None or spec.origin is None:
                raise MethodError(f"module {point.module!r} is not there")
            card = read_card(Path(spec.origin).with_suffix(".toml"))
            if card.id in taken:
                raise MethodError(f"its id {card.id!r} is that of {taken[card.id].path}")
        except (MethodError, ImportError, OSError) as error:
            warnings.warn(
                f"the method {point.name!r} of another package ({point.value}) is left out: {error}",
                AssayWarning,
                stacklevel=2,
            )
            continue
        taken[card.id] = card
        yield card


@cache
def all_cards() -> dict[str, Card]:
    """Every installed card by id, papers first, then by task and id."""
    cards: dict[str, Card] = {}
    for path in _PACKAGE.glob("*/*.toml"):
        card = read_card(path)
        if card.id in cards:
            raise MethodError(f"two cards have the id {card.id!r}: {cards[card.id].path} and {path}")
        cards[card.id] = card
    cards.update({card.id: card for card in _third_party_cards(cards)})
    ordered = sorted(cards.values(), key=lambda card: (card.task, card.role != "paper", card.id))
    return {card.id: card for card in ordered}


def get_card(method: str) -> Card:
    """The card of a method by its id; an unknown id names the nearest ones."""
    cards = all_cards()
    if method in cards:
        return cards[method]
    near = difflib.get_close_matches(method, cards, 3)
    hint = f"; nearest: {', '.join(near)}" if near else ""
    raise MethodError(f"no method {method!r}{hint}. `assay methods` lists all of them")
