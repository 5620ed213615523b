"""The ledger as a page: each claim with a picture in which the verdict can be seen.

The picture of a claim has one axis, that of what was measured. The shaded part is where the claim holds;
a dashed line is what ours is measured against; the mark is ours, and the bar the 95 % interval of the
paired difference, drawn from the dashed line. So a claim holds where the whole bar is in the shade.
"""

from __future__ import annotations

import math

from assay.claims.claim import Claim, claims_of
from assay.claims.ledger import Ledger, Row, recorded
from assay.core.cards import Card, all_cards
from assay.engine.report.charts import spaced
from assay.engine.report.svg import Chart, Scale, line, marker, padded, rect, words
from assay.engine.report.text import esc
from assay.engine.wording import number, plural, signed

_WIDTH, _LEFT, _RIGHT = 300, 6.0, 294.0
#: verdict -> kind of the chart's colours, shape of the mark
_LOOK = {"holds": ("best", "circle"), "does not hold": ("low", "square"), "undecided": ("plain", "diamond")}
_VERDICTS = tuple(_LOOK)

#: of the page, beside that of the charts
STYLE = """
.assay-inline { display: inline-block; margin: 0 !important; vertical-align: middle; }
.assay-inline .assay-chart { width: auto; }
.assay-legend { font-size: .85em; }
.assay-overview { display: grid; grid-template-columns: minmax(0, 1fr) max-content max-content;
  gap: .15em 1em; font-size: .9em; }
.assay-claim { display: grid; grid-template-columns: minmax(0, 1fr) 300px; gap: 0 1.4em; padding: .7em 0 .2em;
  border-top: .05rem solid var(--md-default-fg-color--lightest); font-size: .9em; }
.assay-claim-said { grid-row: span 2; }
.md-typeset .assay-claim p { margin: 0 0 .4em; }
.md-typeset .assay-claim .assay-figure { margin: .2em 0; }
.md-typeset .assay-claim dl { display: grid; grid-template-columns: max-content minmax(0, 1fr);
  gap: 0 .7em; margin: 0 0 .4em; font-size: .92em; }
.md-typeset .assay-claim dt { color: var(--md-default-fg-color--light); }
.md-typeset .assay-claim dd { margin: 0; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
.md-typeset .assay-claim details { border: 0; box-shadow: none; background: none; margin: 0; padding: 0;
  font-size: .92em; }
.md-typeset .assay-claim summary { background: none; border: 0; padding: 0 0 0 1.4em; min-height: 0; }
.md-typeset .assay-claim summary::before { left: 0; top: .1em; display: none; }
.md-typeset .assay-claim summary::after { left: 0; right: auto; top: .1em; }
.assay-best { color: #0a5fa3; } .assay-low { color: #ad3f07; }
[data-md-color-scheme="slate"] .assay-best { color: #74b9f0; }
[data-md-color-scheme="slate"] .assay-low { color: #f39a60; }
@media (max-width: 700px) { .assay-overview { grid-template-columns: minmax(0, 1fr) max-content; }
  .assay-overview div:nth-child(3n + 1) { grid-column: span 2; margin-top: .4em; }
  .assay-claim { grid-template-columns: minmax(0, 1fr); } }
"""


def ledger_page() -> str:
    """All recorded claims, whichever way they came out."""
    rows = recorded()
    parts = [
        "# Ledger of claims",
        "What papers say beside what we measured, whichever way it came out. Code writes the verdict, from "
        "the paired gain over the baseline in the direction of the claim: a claim *holds* if the whole 95 % "
        "interval of the gain lies where the paper says, *does not hold* if all of it lies elsewhere, and is "
        "*undecided* otherwise, also where a trial failed. `assay verify --record` runs the claims and "
        "renews this page.",
    ]
    if not rows:
        return "\n\n".join([*parts, "Nothing is recorded yet."]) + "\n"
    parts += [f"{plural(len(rows), 'claim')} of {len(_methods(rows))} methods: {_counted(rows)}."]
    parts += [_overview(rows), _legend()]
    for method in _methods(rows):
        card = all_cards()[method]
        parts += [
            f"## {card.name} {{ #{_anchor(method)} }}",
            f"[{method}](methods/{method}.md). {_counted(rows.of(method))}.",
        ]
        parts.append(_claims(card, rows.of(method)))
    return "\n\n".join(parts) + "\n"


def claims_section(card: Card) -> list[str]:
    """What the paper of one method says and what came out; nothing for a method that makes no claim."""
    if not card.claims:
        return []
    rows = recorded(card.id)
    if not rows:
        return ["## Claims", f"Not run yet: `assay verify {card.id} --record`."]
    about = f"{plural(len(rows), 'claim')}: {_counted(rows)}. Those of all methods: [ledger](../ledger.md)."
    return ["## Claims", about, _legend(), _claims(card, rows)]


def _methods(rows: Ledger) -> list[str]:
    return list(dict.fromkeys(row.method for row in rows))


def _anchor(method: str) -> str:
    return f"claims-{method}"


def _counted(rows: Ledger) -> str:
    counts = rows.counts()
    said = [("holds", "holds" if counts["holds"] == 1 else "hold")]
    said += [("does not hold", "does not" if counts["does not hold"] == 1 else "do not")]
    said += [("undecided", "undecided")]
    return ", ".join(f"{counts[verdict]} {words}" for verdict, words in said if counts[verdict])


def _overview(rows: Ledger) -> str:
    """A line a method: a bar of its counts, and the counts."""
    most = max(len(rows.of(method)) for method in _methods(rows))
    lines = []
    for method in _methods(rows):
        of = rows.of(method)
        name = f'<a href="#{_anchor(method)}">{esc(all_cards()[method].name)}</a>'
        lines.append(f"<div>{name}</div><div>{_bar(of, most)}</div><div>{_counted(of)}</div>")
    return f'<div class="assay-overview">{"".join(lines)}</div>'


def _bar(rows: Ledger, most: int) -> str:
    """Counts side by side; the longest bar is that of ``most`` claims."""
    width, x, pieces = 200, 0.0, []
    for verdict in _VERDICTS:
        long = width * rows.counts()[verdict] / most
        pieces.append(rect(x, 1, long - 1, 10, f"f-{_LOOK[verdict][0]}"))
        x += long
    return f'<span class="assay-figure assay-inline">{Chart("", "", width, 12, "".join(pieces)).svg()}</span>'


def _legend() -> str:
    marks = []
    for verdict, (kind, shape) in _LOOK.items():
        chart = Chart(verdict, verdict, 16, 14, marker(8, 7, shape, f"m-{kind}"))
        marks.append(f'<span class="assay-figure assay-inline">{chart.svg()}</span> {verdict}')
    return (
        f'<p class="assay-legend">{"&ensp;".join(marks)}. Shaded: where the claim holds. Dashed: what ours '
        "is measured against. Bar: 95 % interval of the paired difference, drawn from there; one that "
        "reaches the edge goes on beyond it. Every picture has its own axis.</p>"
    )


def _claims(card: Card, rows: Ledger) -> str:
    made = {claim.name: claim for claim in claims_of(card)}
    return '<div class="assay-claims">' + "".join(claim_html(row, made[row.claim]) for row in rows) + "</div>"


def claim_html(row: Row, claim: Claim) -> str:
    """One claim: verdict, statement, picture, the numbers, and how it was measured."""
    kind = _LOOK.get(row.verdict, ("plain", ""))[0]
    picture = claim_chart(row, claim)
    drawn = picture.svg() if picture else '<p class="assay-nothing">Nothing to draw.</p>'
    against = f"{row.versus}: {number(row.baseline)}{_spread(row.baseline_sd, row.seeds)}"
    if isinstance(claim.versus, float):
        against = f"the bound {claim.versus:g}"
    numbers = [("paper", row.paper), ("ours", f"{number(row.ours)}{_spread(row.ours_sd, row.seeds)}")]
    numbers += [("against", against), ("gain", _gain(row))]
    if row.reason:
        numbers.append(("why", row.reason))
    where = f"on {row.dataset}" if row.dataset else "on data of its own"
    unit = f", in {row.unit}" if row.unit else ""
    how = (
        f"Expected: {row.expectation}. Measured {where}{unit}, {plural(row.seeds, 'seed')}, {row.date}, with "
        + ", ".join(f"{name} {version}" for name, version in row.versions.items())
    )
    listed = "".join(f"<dt>{esc(name)}</dt><dd>{esc(text)}</dd>" for name, text in numbers)
    return (
        f'<div class="assay-claim"><div class="assay-claim-said"><p><strong class="assay-{kind}">'
        f"{esc(row.verdict)}</strong> {esc(row.statement)} <small>({esc(row.where)})</small></p>"
        f"<details><summary>{esc(row.claim.partition('/')[2])}</summary><p>{esc(how)}: "
        f"<code>{esc(row.command)}</code></p></details></div>"
        f'<div class="assay-figure">{drawn}</div><dl>{listed}</dl></div>'
    )


def _spread(sd: float | None, seeds: int) -> str:
    return f" ± {number(sd)}" if sd is not None and seeds > 1 else ""


def _gain(row: Row) -> str:
    if row.gain is None:
        return "–"
    ends = "" if row.low is None or row.high is None else f" [{signed(row.low)}, {signed(row.high)}]"
    return f"{signed(row.gain)}{ends}"


def claim_chart(row: Row, claim: Claim) -> Chart | None:
    """The picture of one claim; None where no number came out."""
    if row.ours is None or row.baseline is None or row.gain is None:
        return None
    sign = 1.0 if claim.better == "higher" else -1.0
    edge = row.baseline + sign * claim.margin
    ours = row.baseline + sign * row.gain
    known = row.low is not None and row.high is not None
    ends = sorted(row.baseline + sign * end for end in (row.low, row.high)) if known else [ours, ours]
    x = _scale([row.baseline, edge, ours], ends)
    kind, shape = _LOOK.get(row.verdict, ("plain", "diamond"))
    top, base = 4.0, 36.0
    middle = (top + base) / 2
    beyond = (x(edge), _RIGHT) if sign > 0 else (_LEFT, x(edge))
    parts = [rect(beyond[0], top, beyond[1] - beyond[0], base - top, "band")]
    for at, label in spaced(x, 3):
        parts.append(line(at, base, at, base + 4, "axis"))
        parts.append(words(min(max(at, 16), _WIDTH - 16), base + 16, label, "tick", "middle"))
    parts.append(line(_LEFT, base, _RIGHT, base, "axis"))
    parts.append(line(x(row.baseline), top, x(row.baseline), base, "nominal"))
    if known:
        parts.append(line(x(ends[0]), middle, x(ends[1]), middle, f"e-{kind}"))
    if not x.inside(ours):
        shape = "triangle" if ours > x.high else "triangle-left"
    tip = f"ours {number(row.ours)}, against {number(row.baseline)}"
    parts.append(marker(x(ours), middle, shape, f"m-{kind}", tip))
    said = f"{row.verdict}: {tip}; the claim holds {'above' if sign > 0 else 'below'} {number(edge)}"
    return Chart(f"{row.claim}: {row.verdict}", said, _WIDTH, 56, "".join(parts))


def _scale(values: list[float], ends: list[float]) -> Scale:
    """An axis with all values, and as much of the interval as leaves them apart."""
    span = max(values) - min(values) or max(ends) - min(ends) or abs(values[0]) or 1.0
    reach = [min(max(end, min(values) - 2 * span), max(values) + 2 * span) for end in ends]
    low, high = padded([*values, *(v for v in reach if math.isfinite(v))], 0.12)
    return Scale(low, high, _LEFT, _RIGHT)
