"""A claim: a comparison whose outcome the paper foretells. It is data in the method's card."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from assay.core.cards import Card, all_cards, get_card
from assay.core.errors import MethodError

Better = Literal["lower", "higher"]
Unit = Literal["", "target sd"]


@dataclass(frozen=True)
class Claim:
    """One foretold outcome of one measurement.

    The gain is ``method - versus`` where higher is better and ``versus - method`` where lower is;
    the claim says that it is at least ``margin`` (negative: no worse than by so much; 0: more than 0).

    Attributes
    ----------
    id : str
        Unique in its card; written ``card/id`` in the ledger.
    card : str
        The method whose paper makes the claim.
    statement, where : str
        The claim in a sentence, and where the paper makes it.
    paper : str
        The paper's own figures, "method against versus", as text; "-" where it gives none.
    metric : str
        A metric of the task, or of the check.
    method, versus : str, and str or float
        Who is measured against whom; a number is a bound.
    better : "lower" or "higher"
    margin : float
    seeds : int
        Random splits (with a dataset) or independent repetitions (without).
    dataset : str or None
        A built-in name.
    check : str or None
        ``package.module:function`` that measures, in place of a comparison of methods:
        ``check(seed)``, or ``check(seed, split)`` with a dataset, returns
        ``{metric: {method: value}}``. One with a parameter ``data`` is given the folder of data, None
        for $ASSAY_DATA. One that draws splits of its own is decorated with
        :func:`~assay.core.overlap.draws_own_splits`.
    task, alpha : str
        Of the comparison, and of the split that a check is given.
    unit : "" or "target sd"
        "target sd" divides values of a comparison by the target's standard deviation.
    long : bool
        Left out unless asked for.
    exact : bool
        Nothing in it is random: measured once (seeds is 1), and one value decides.
    """

    id: str
    card: str
    statement: str
    where: str
    paper: str
    metric: str
    method: str
    versus: str | float
    better: Better
    seeds: int
    margin: float = 0.0
    dataset: str | None = None
    check: str | None = None
    task: str = "interval"
    alpha: str = "0.1"
    unit: Unit = ""
    long: bool = False
    exact: bool = False

    @property
    def name(self) -> str:
        """``card/id``."""
        return f"{self.card}/{self.id}"

    @property
    def expectation(self) -> str:
        """What must be found for the claim to hold, in words."""
        gain = f" by at least {self.margin:g}" if self.margin > 0 else ""
        slack = f", or at most {-self.margin:g} worse" if self.margin < 0 else ""
        other = f"{self.versus:g}" if isinstance(self.versus, float) else self.versus
        return f"{self.metric} of {self.method} is {self.better} than {other}{gain}{slack}"

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that must be run: the one measured and, if it is one, the other."""
        return (self.method,) if isinstance(self.versus, float) else (self.method, self.versus)


_FIELDS = set(Claim.__dataclass_fields__) - {"card"}
_NEEDED = ("id", "statement", "where", "paper", "metric", "method", "versus", "better", "seeds")


def read_claim(card: Card, raw: Mapping[str, Any]) -> Claim:
    """One ``[[claims]]`` table of a card, checked.

    Raises
    ------
    MethodError
        Unknown or missing keys, a direction or unit that does not exist, or nothing to measure.
    """
    where = f"{card.path or card.id}: claim {raw.get('id', '?')!r}"
    unknown, missing = sorted(set(raw) - _FIELDS), [key for key in _NEEDED if key not in raw]
    if unknown or missing:
        raise MethodError(f"{where}: unknown keys {unknown}, missing keys {missing}")
    if raw["better"] not in {"lower", "higher"}:
        raise MethodError(f"{where}: better must be 'lower' or 'higher', got {raw['better']!r}")
    if raw.get("unit", "") not in {"", "target sd"}:
        raise MethodError(f"{where}: unit must be '' or 'target sd', got {raw['unit']!r}")
    if raw.get("dataset") is None and raw.get("check") is None:
        raise MethodError(f"{where}: name a dataset, a check, or both")
    if raw.get("exact", False):
        if raw.get("check") is None or raw.get("dataset") is not None or int(raw["seeds"]) != 1:
            raise MethodError(f"{where}: an exact claim has a check, no dataset, and seeds = 1")
    elif int(raw["seeds"]) < 2:
        raise MethodError(f"{where}: seeds is {raw['seeds']}; at least 2 are needed for an interval")
    versus = raw["versus"]
    if not isinstance(versus, str):
        versus = float(versus)
    return Claim(**{**raw, "card": card.id, "versus": versus})


def claims_of(card: Card) -> tuple[Claim, ...]:
    """All claims of one card."""
    claims = tuple(read_claim(card, raw) for raw in card.claims)
    names = [claim.id for claim in claims]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise MethodError(f"{card.path or card.id}: two claims have the id {twice[0]!r}")
    return claims


def select(methods: Iterable[str] | None) -> list[Claim]:
    """Claims of the named methods, or of every card.

    Raises
    ------
    MethodError
        An unknown method, or one whose card makes no claim.
    """
    if methods is None:
        return [claim for card in all_cards().values() for claim in claims_of(card)]
    chosen: list[Claim] = []
    for method in dict.fromkeys(methods):
        found = claims_of(get_card(method))
        if not found:
            having = sorted({card.id for card in all_cards().values() if card.claims})
            raise MethodError(f"{method} makes no claim; methods with claims: {', '.join(having) or 'none'}")
        chosen.extend(found)
    return chosen
