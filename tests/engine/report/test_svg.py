"""Axes, number formats and the placing of labels."""

import math
import re

import numpy as np
import pytest

from assay.engine.report.charts import Point, Row, dot_rows, scatter
from assay.engine.report.svg import Scale, log_ticks, overlap, padded, place_labels, text_width, ticks
from assay.engine.report.text import esc
from assay.engine.stats import Estimate
from assay.engine.wording import duration, estimate_text, number, plural, shorten, signed


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.0001, "−0.000100"),
        (0.90341, "0.903"),
        (12.345, "12.3"),
        (41234.5, "41,234"),
        (-1234.0, "−1,234"),
        (1.5e12, "1.50e12"),
        (2e-7, "2.00e−7"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "–"),
        (None, "–"),
    ],
)
def test_number(value, text):
    assert number(value) == text


def test_estimates_show_what_their_interval_supports():
    assert estimate_text(Estimate(41234.56, 40000.2, 42469.0)) == "41,235 [40,000, 42,469]"
    assert estimate_text(Estimate(1.23456, 1.23416, 1.23496)) == "1.23456 [1.23416, 1.23496]"
    assert estimate_text(Estimate(0.9, 0.9, 0.9), 3) == "0.900 [0.900, 0.900]"
    assert estimate_text(Estimate(math.inf)) == "∞"
    assert estimate_text(Estimate(math.nan)) == "–"
    assert estimate_text(None) == "–"


def test_words():
    assert [duration(s) for s in (0.0021, 0.5, 119, 200, 9000)] == [
        "2.10 ms",
        "0.500 s",
        "119 s",
        "3.33 min",
        "2.50 h",
    ]
    assert (plural(1, "row"), plural(2930, "row")) == ("1 row", "2,930 rows")
    assert [signed(v, 1) for v in (1.23, -1.23, 0.0, 0.04)] == ["+1.2", "−1.2", "0.0", "0.0"]
    assert shorten("a" * 40, 11) == "aaaaa…aaaaa"
    assert len(shorten("mypkg.mymod:MyIntervals", 16)) == 16


def test_escape():
    assert esc('<a href="x">\'&') == "&lt;a href=&quot;x&quot;&gt;&#x27;&amp;"
    assert esc("a\x00b\ud800c\u202ed\ne") == "a\ufffdb\ufffdc\ufffdd\ne"


@pytest.mark.parametrize("seed", range(20))
def test_ticks_are_round_and_inside(seed):
    rng = np.random.default_rng(seed)
    size = 10.0 ** rng.integers(-6, 9)
    low = rng.normal() * size * 100
    high = low + size * rng.uniform(1, 10)
    found = ticks(low, high, 5)
    width = high - low
    assert 2 <= len(found) <= 7
    assert all(low - 1e-6 * width <= value <= high + 1e-6 * width for value in found)
    steps = np.diff(found)
    assert steps == pytest.approx(np.full(len(steps), steps[0]))


def test_log_axis():
    assert log_ticks(0.9, 110) == pytest.approx([1, 2, 5, 10, 20, 50, 100])
    assert len(log_ticks(1e-3, 1e9)) <= 7
    scale = Scale(1, 100, 0, 200, log=True)
    assert scale(10) == pytest.approx(100)
    assert scale(1000) == 200


def test_axis_labels_have_equal_decimals():
    assert [text for _, text in Scale(0.8, 1.0, 0, 100).labels(4)] == ["0.80", "0.85", "0.90", "0.95", "1.00"]
    assert [text for _, text in Scale(0, 250000, 0, 100).labels(3)] == ["0", "100k", "200k"]


def test_padded_never_collapses():
    low, high = padded([3.0, 3.0])
    assert low < 3 < high


@pytest.mark.parametrize("seed", range(10))
def test_labels_overlap_neither_each_other_nor_markers(seed):
    rng = np.random.default_rng(seed)
    points = [(float(x), float(y), f"method {k}") for k, (x, y) in enumerate(rng.uniform(40, 260, (12, 2)))]
    frame = (0.0, 0.0, 320.0, 300.0)
    boxes = place_labels(points, frame, 12)
    placed = [box for box in boxes if box]
    assert len(placed) >= 10
    assert not any(overlap(a, b) for i, a in enumerate(placed) for b in placed[:i])
    for x, y, _ in points:
        assert not any(overlap(box, (x - 5, y - 5, x + 5, y + 5)) for box in placed)
    for box in placed:
        assert box[0] >= 0
        assert box[2] <= 320


def test_a_label_that_fits_nowhere_is_none():
    assert place_labels([(10.0, 10.0, "far too long for this")], (0, 0, 50, 20), 12) == [None]
    assert text_width("mmm", 12) > text_width("iii", 12)


def draw(points, **changes):
    values = {"target": 0.9, "band": (0.85, 0.94), "x_label": "mean width", "y_label": "coverage"}
    return scatter(points, **values, title="t", description="d", **changes)


def test_coinciding_methods_get_separate_labels_or_numbers():
    same = [Point(f"method number {k}", 1.0, 0.9, row=k + 1) for k in range(25)]
    chart = draw(same, width=320, height=330)
    assert "rows of the table" in chart.note
    assert draw(same[:3]).note == ""


def test_scatter_of_odd_points_is_finite():
    points = [
        Point("a", 0.0, 1.0),
        Point("b", math.inf, 1.0, None, (0.99, 1.01)),
        Point("c", math.nan, 0.9),
        Point("d", 1e-9, 0.0, (-1e9, 1e9), (-3.0, 4.0)),
        Point("e", 1e7, 0.5),
    ]
    for some in (points, points[1:2], points[:1], []):
        body = draw(some).body
        assert "nan" not in body
        assert "inf" not in body
    assert "∞" in draw(points).body


def test_one_value_far_from_the_others_is_drawn_beyond_the_axis():
    values = (3.0, -4.0, 5.0, 45.0, 5000.0, -9000.0, math.inf)
    rows = [Row(f"m{k}", value, (value - 1, value + 1), str(value)) for k, value in enumerate(values)]
    chart = dot_rows(rows, title="t", description="d", zero=0.0)
    triangles = re.findall(r'<path d="M([\d.]+) [^>]*><title>(m\d)', chart.body)
    assert [name for _, name in triangles] == ["m4", "m5", "m6"]
    assert float(triangles[0][0]) > float(triangles[1][0])
    assert "inf" not in re.sub(r"<title>.*?</title>|<text.*?</text>", "", chart.body)
