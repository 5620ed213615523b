"""``assay methods``: what there is to compare, and the card of one method."""

from __future__ import annotations

import difflib

import click

from assay.cli import text
from assay.core.cards import Card, all_cards, get_card

#: columns of a terminal from which the list of methods is shown in full
_WIDE = 110


@click.command()
@click.argument("method", required=False, metavar="[ID]")
@click.option("--task", metavar="TASK", help="Only the methods of one task.")
def methods(method: str | None, task: str | None) -> None:
    """List the methods, or show the card of one.

    The card says what the method is for, what it guarantees and when it fails, what it costs
    and needs installed, what its paper claims and what came out when we re-ran that.
    """
    if method is not None:
        click.echo(card_text(get_card(method)))
        return
    cards = list(all_cards().values())
    tasks = list(dict.fromkeys(card.task for card in cards))
    if task is not None:
        if task not in tasks:
            near = difflib.get_close_matches(task, tasks, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise click.BadParameter(f"no task {task!r}{hint} There are: {', '.join(tasks)}")
        tasks = [task]
    blocks = [_task_block(name, [card for card in cards if card.task == name]) for name in tasks]
    click.echo("\n\n".join(blocks))
    click.echo("\n`assay methods ID` shows one card; `assay compare FILE --target COLUMN` runs them.")


def _task_block(task: str, cards: list[Card]) -> str:
    columns = {
        "id": [card.id for card in cards],
        "name": [card.name for card in cards],
        "role": [card.role for card in cards],
        "family": [card.family for card in cards],
        "needs": [needs(card) for card in cards],
        "paper": [source(card) for card in cards],
    }
    if (text.table_width() or _WIDE) < _WIDE:  # the card of a method says these
        del columns["role"], columns["family"]
    return f"{task}\n" + text.table(list(zip(*columns.values(), strict=True)), list(columns))


def needs(card: Card) -> str:
    """The extras a method needs, and which of them are not installed."""
    if not card.requires:
        return "-"
    missing = set(card.missing)
    return ", ".join(extra + (" (not installed)" if extra in missing else "") for extra in card.requires)


def source(card: Card) -> str:
    """Venue and year of the method's paper."""
    if not card.paper:
        return "-"
    return f"{card.paper.get('venue', '')} {card.paper.get('year', '')}".strip()


def card_text(card: Card) -> str:
    """The whole card as text."""
    lines = [f"{card.id}: {card.name}", "", text.paragraph("", card.summary, indent=0), ""]
    facts = [
        ("use it for", card.use_for),
        ("guarantee", card.guarantee),
        ("fails when", card.fails_when),
        ("cost", card.cost),
        ("task", f"{card.task}; {card.role} method of the family {card.family}"),
        ("needs", _needs_text(card)),
        ("compared with", ", ".join(card.baselines)),
        ("defaults", ", ".join(f"{key}={value!r}" for key, value in card.defaults.items())),
        ("class", card.cls.replace(":", ".")),
        ("paper", paper(card)),
    ]
    lines += [text.paragraph(label, value) for label, value in facts if value]
    for law, reason in card.exceptions.items():
        lines.append(text.paragraph("exception", f"{law}: {reason}"))
    return "\n".join([*lines, *_claims_text(card)])


def _needs_text(card: Card) -> str:
    if not card.requires:
        return "nothing beyond assay itself"
    if card.missing:
        return f"{needs(card)}: pip install 'assay[{','.join(card.missing)}]'"
    return f"{needs(card)} (installed)"


def paper(card: Card) -> str:
    """Authors, title, venue and year."""
    parts = [str(card.paper[key]) for key in ("authors", "title") if card.paper.get(key)]
    return ". ".join([*parts, source(card)]) if card.paper else ""


def _claims_text(card: Card) -> list[str]:
    from assay.claims.claim import claims_of
    from assay.claims.ledger import COLUMNS, recorded

    found = {row.claim: row for row in recorded(card.id)}
    lines = []
    for claim in claims_of(card):
        lines += ["", text.paragraph("claim", f"{claim.statement} ({claim.where}; {claim.name})")]
        lines.append(text.paragraph("paper", claim.paper))
        row = found.get(claim.name)
        if row is None:
            lines.append(text.paragraph("verdict", f"not run yet: assay verify {card.id} --record"))
            continue
        cells = dict(zip(COLUMNS, row.cells(), strict=True))
        ours = f"{cells['ours']} against {cells['baseline']}, gain {cells['gain [95 %]']}"
        lines.append(text.paragraph("ours", f"{ours}; {row.seeds} seeds on {row.dataset or 'made-up data'}"))
        lines.append(text.paragraph("verdict", f"{cells['verdict']} ({row.date})"))
    return lines
