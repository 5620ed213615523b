"""The page of the ledger: what is drawn is what was recorded, and the verdict can be seen in it."""

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from assay.claims.claim import claims_of
from assay.claims.ledger import recorded
from assay.core.cards import all_cards, get_card

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "docs"))

import ledger_page

ROWS = recorded()
CLAIMS = {claim.name: claim for card in all_cards().values() for claim in claims_of(card)}


def numbers(svg, element, css):
    """The attributes of the first element of a class, as numbers."""
    found = re.search(rf'<{element} ([^>]*)class="{css}[^"]*"', svg)
    return {name: float(value) for name, value in re.findall(r'(\w+)="([\d.]+)"', found[1])}


@pytest.mark.parametrize("row", ROWS, ids=[row.claim for row in ROWS])
def test_the_verdict_can_be_seen(row):
    chart = ledger_page.claim_chart(row, CLAIMS[row.claim])
    if row.ours is None:
        assert chart is None
        return
    band, bar = numbers(chart.body, "rect", "band"), numbers(chart.body, "line", "e-")
    left, right = band["x"] - 0.11, band["x"] + band["width"] + 0.11  # pixels are written with one decimal
    inside = left <= bar["x1"] and bar["x2"] <= right
    outside = bar["x2"] <= left + 0.22 or bar["x1"] >= right - 0.22
    if row.verdict == "holds":
        assert inside
    elif row.verdict == "does not hold":
        assert outside
    elif row.reason.startswith("the 95 % interval"):
        assert not inside
        assert not outside


def test_every_recorded_claim_is_on_the_page():
    page = ledger_page.ledger_page()
    assert page.count('<div class="assay-claim">') == len(ROWS)
    counts = ROWS.counts()
    assert (
        f"{counts['holds']} hold, {counts['does not hold']} do not, {counts['undecided']} undecided" in page
    )
    for verdict in ("holds", "does not hold", "undecided"):
        assert page.count(f">{verdict}</strong>") == counts[verdict]


def test_a_page_of_a_method_has_its_own_claims_only():
    page = "".join(ledger_page.claims_section(get_card("cp2")))
    assert page.count('<div class="assay-claim">') == len(recorded("cp2"))
    assert ledger_page.claims_section(get_card("split")) == []


def test_no_number_and_no_interval_are_drawn_as_such():
    row = next(row for row in ROWS if row.verdict == "holds")
    claim = CLAIMS[row.claim]
    nothing = replace(
        row, ours=None, gain=None, low=None, high=None, verdict="undecided", reason="1 trial failed"
    )
    html = ledger_page.claim_html(nothing, claim)
    assert "Nothing to draw" in html
    assert "1 trial failed" in html
    without = ledger_page.claim_chart(replace(row, low=None, high=None, verdict="undecided"), claim)
    assert "e-plain" not in without.body
    assert "m-plain" in without.body


def test_markup_is_text():
    row = next(row for row in ROWS if row.verdict == "holds")
    html = ledger_page.claim_html(
        replace(row, statement="<b>x</b>", paper="<i>", command="a & b"), CLAIMS[row.claim]
    )
    assert "<b>" not in html
    assert "<i>" not in html
    assert "a &amp; b" in html
