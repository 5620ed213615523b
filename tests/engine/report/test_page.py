"""The report as a document: complete, self-contained, safe."""

import itertools
import re
from html.parser import HTMLParser

import pytest
from report_cases import CASES, MARKUP

VOID = {"wbr", "meta", "link", "br", "img", "input", "hr"}


class Outline(HTMLParser):
    """Tags in order; checks that they nest."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.ids, self.text = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        self.ids += [value for key, value in attributes if key == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> out of order"

    def handle_data(self, data):
        self.text.append(data)


def read(path):
    outline = Outline()
    outline.feed(path.read_text("utf-8"))
    outline.close()
    return outline


def test_well_formed_and_self_contained(page):
    _, path = page
    outline = read(path)
    assert outline.open == []
    assert len(outline.ids) == len(set(outline.ids))
    names = {tag for tag, _ in outline.tags}
    assert not names & {"script", "img", "iframe", "object", "embed", "image", "use"}
    for tag, attributes in outline.tags:
        assert not any(key.startswith("on") for key in attributes), (tag, attributes)
        for key in ("src", "href", "xlink:href", "style"):
            value = attributes.get(key, "")
            allowed = ("#", "data:,") if tag != "a" else ("#", "https://", "http://")
            assert not value or key == "style" or value.startswith(allowed), (tag, key, value)
    text = path.read_text("utf-8")
    assert "@import" not in text
    assert "url(" not in text
    assert path.stat().st_size < 300_000


def test_sections_come_in_order(page):
    name, path = page
    found = [attributes.get("id") for tag, attributes in read(path).tags if tag == "section"]
    order = ["results", "overview", "time", "differences", "groups", "examples", "cost"]
    order += ["failed", "notes", "repeat", "methods"]
    assert found == [key for key in order if key in found]
    assert {"results", "overview", "failed", "notes", "repeat", "methods"} <= set(found)
    if name in {"interval", "label-set", "infinite", "many"}:
        assert found == [key for key in order if key != "time"]


def test_every_picture_has_a_name_and_a_description(page):
    _, path = page
    tags = read(path).tags
    for i, (tag, attributes) in enumerate(tags):
        if tag == "svg" and attributes.get("aria-hidden") != "true":
            assert attributes["role"] == "img"
            assert attributes["aria-label"].strip()
            assert tags[i + 1][0] == "desc"


def test_headings_are_in_order(page):
    _, path = page
    levels = [int(tag[1]) for tag, _ in read(path).tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))


def test_nothing_but_numbers_in_the_drawings(page):
    _, path = page
    drawings = re.findall(r"<svg.*?</svg>", path.read_text("utf-8"), re.DOTALL)
    for drawing in drawings:
        for attribute in re.findall(r' (?:x|y|x1|x2|y1|y2|cx|cy|r|width|height|d)="([^"]*)"', drawing):
            assert not re.search(r"nan|inf", attribute), attribute


def test_hostile_text_stays_text(tmp_path):
    path = CASES["hostile"]().to_html(tmp_path / "x.html")
    source = path.read_text("utf-8")
    assert "<script" not in source
    assert "<img" not in source
    assert "\u202e" not in source
    assert "\x00" not in source
    assert MARKUP in "".join(read(path).text)


def test_the_question_verdict_and_command_are_there(tmp_path):
    comparison = CASES["interval"]()
    text = "".join(read(comparison.to_html(tmp_path / "x.html")).text)
    for part in (
        "Which of 7 methods gives the narrowest prediction intervals for price in housing",
        comparison.verdict(),
        comparison.best().rule,
        comparison.info.command,
        "numpy 2.4.0",
        "Limits of a trialtime 2.00 min, memory 2.00 GiB",
        "2026-07-05 09:12 UTC",
        "12 rows without a target were left out",
        "2 of 35 trials did not finish.",
        "the ridge system is singular at row 17",
        "Inductive confidence machines for regression",
        "A method of your own: mine:cqr",
    ):
        assert part in text, part


def test_without_a_command_the_python_call_is_given(tmp_path):
    from dataclasses import replace

    from assay.engine.comparison import Comparison

    comparison = CASES["interval"]()
    other = Comparison(replace(comparison.info, command=""), comparison.results)
    text = "".join(read(other.to_html(tmp_path / "x.html")).text)
    assert "assay.compare('housing.csv', target='price', methods=['split', 'mine:normalised'" in text


@pytest.mark.parametrize("key", ["scheme", "title"])
def test_links_of_cards_are_web_addresses_only(key):
    from assay.core.cards import Card
    from assay.engine.report.back_matter import card_html

    url = {"scheme": "javascript:alert(1)", "title": 'https://x.org/"onclick="alert(1)'}[key]
    paper = {"title": "A <b>paper</b>", "authors": "A, B", "venue": "ICLR", "year": 2025, "url": url}
    html = card_html(Card("x", "X", "m:X", "f", "interval", "paper", "<i>summary</i>", paper=paper))
    assert "<b>" not in html
    assert "<i>" not in html
    assert "javascript" not in html
    assert '"onclick' not in html
