"""The ledger: each claim with the paper's figure beside ours, whichever way it came out.

What was recorded lies beside the card of the method, ``<card>.ledger.json``. Reading it imports nothing
heavy, so that `assay methods` stays instant.
"""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.cards import Card, all_cards, get_card
from assay.core.errors import StoreError

if TYPE_CHECKING:
    import pandas as pd

_FORMAT = 1
COLUMNS = ("claim", "paper", "ours", "baseline", "gain [95 %]", "verdict")


@dataclass(frozen=True)
class Row:
    """One claim and what came out.

    ``ours`` and ``baseline`` are means over seeds (``baseline`` is the bound where the claim names
    a number), ``ours_sd`` and ``baseline_sd`` their standard deviations over seeds; ``gain`` is the mean
    paired gain in the direction of the claim, ``low`` and ``high`` its 95 % interval. None where there is
    no number.
    """

    claim: str
    method: str
    statement: str
    where: str
    expectation: str
    paper: str
    dataset: str
    metric: str
    unit: str
    versus: str
    verdict: str
    reason: str = ""
    ours: float | None = None
    baseline: float | None = None
    ours_sd: float | None = None
    baseline_sd: float | None = None
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    seeds: int = 0
    per_seed: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    date: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""
    seconds: float = 0.0

    def cells(self) -> tuple[str, ...]:
        """The row as short texts under :data:`COLUMNS`."""
        verdict = f"{self.verdict}: {self.reason}" if self.reason else self.verdict
        if self.ours is None:
            return self.claim, self.paper, "-", "-", "-", verdict
        spread = f" ± {_number(self.ours_sd)}" if self.ours_sd is not None and self.seeds > 1 else ""
        base = f"{_number(self.baseline)} ({self.versus})" if not _is_number(self.versus) else self.versus
        interval = "" if self.low is None else f" [{_number(self.low)}, {_number(self.high)}]"
        return (
            self.claim,
            self.paper,
            f"{_number(self.ours)}{spread}",
            base,
            f"{_number(self.gain)}{interval}",
            verdict,
        )


class Ledger(Sequence[Row]):
    """Rows of claims; ``str()`` is a table with the statements below it."""

    def __init__(self, rows: Iterable[Row] = ()) -> None:
        self._rows = tuple(rows)

    def __getitem__(self, index: Any) -> Any:
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    def __repr__(self) -> str:
        counts = ", ".join(f"{n} {verdict}" for verdict, n in self.counts().items() if n)
        return f"Ledger({len(self)} claims: {counts or 'none'})"

    def __str__(self) -> str:
        if not self._rows:
            return "no claims"
        lines = [COLUMNS, *(row.cells() for row in self._rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(COLUMNS) - 1)]
        table = [
            "  ".join([*(cell.ljust(w) for cell, w in zip(line, widths, strict=False)), line[-1]]).rstrip()
            for line in lines
        ]
        notes = [
            textwrap.fill(
                f"{row.claim}: {row.statement} ({row.where}). Expected: {row.expectation}"
                + (f"; on {row.dataset}" if row.dataset else "")
                + (f", in {row.unit}" if row.unit else "")
                + (f"; {row.seeds} seeds, {row.date}." if row.seeds else "."),
                100,
                subsequent_indent="  ",
            )
            for row in self._rows
        ]
        return "\n".join([*table, "", *notes])

    def counts(self) -> dict[str, int]:
        """Number of claims by verdict."""
        verdicts = ("holds", "does not hold", "undecided", "skipped")
        return {verdict: sum(row.verdict == verdict for row in self._rows) for verdict in verdicts}

    def of(self, method: str) -> Ledger:
        """The claims of one method."""
        return Ledger(row for row in self._rows if row.method == method)

    def table(self) -> pd.DataFrame:
        """One row a claim: all fields of :class:`Row` but the values of single seeds."""
        import pandas as pd

        return pd.DataFrame(
            [
                {k: v for k, v in asdict(row).items() if k not in {"per_seed", "versions"}}
                for row in self._rows
            ]
        )

    def to_json(self, path: str | Path) -> None:
        """Write all rows, so that :func:`read` gives them back."""
        content = {"format": _FORMAT, "claims": [_plain(asdict(row)) for row in self._rows]}
        Path(path).write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")

    def record(self) -> list[Path]:
        """Put the rows into the ledgers beside the cards, in place of earlier ones of the same claims.

        Skipped claims do not replace a verdict. Rows of claims that a card no longer makes are removed.
        Returns the files written.
        """
        written = []
        for method in dict.fromkeys(row.method for row in self._rows):
            card = get_card(method)
            known = {row.claim: row for row in read(_path(card))} if _path(card).exists() else {}
            fresh = {row.claim: row for row in self.of(method) if row.verdict != "skipped"}
            made = [f"{card.id}/{raw.get('id')}" for raw in card.claims]
            rows = [{**known, **fresh}[name] for name in made if name in known or name in fresh]
            if rows:
                Ledger(rows).to_json(_path(card))
                written.append(_path(card))
        return written


def read(path: str | Path) -> Ledger:
    """The ledger of a JSON file.

    Raises
    ------
    StoreError
        The file is no ledger, or was written by a newer version.
    """
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        if content["format"] > _FORMAT:
            raise StoreError(f"{path}: written by a newer version of assay (format {content['format']})")
        return Ledger(Row(**row) for row in content["claims"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path}: not a ledger of claims: {error}") from error


def recorded(method: str | None = None) -> Ledger:
    """What was recorded for one method, or for all; claims without a record are left out."""
    cards = all_cards().values() if method is None else (get_card(method),)
    return Ledger(row for card in cards if _path(card).exists() for row in read(_path(card)))


def _path(card: Card) -> Path:
    return Path(card.path).with_suffix(".ledger.json")


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity and no NaN: such numbers become null, and the reason of the row says why."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else _plain_dict(value)
        for key, value in row.items()
    }


def _plain_dict(value: Any) -> Any:
    return _plain(value) if isinstance(value, dict) else value


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


__all__ = ["COLUMNS", "Ledger", "Row", "read", "recorded"]
