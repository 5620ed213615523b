"""What the pictures of regions show, and the words beside them."""

import re

from report_cases import CASES

from assay.engine.report import region_figures, text


def test_the_plane_shows_reference_and_recommended_first():
    found = CASES["regions"]()
    figure = region_figures.planes(found.statistics, found.best())
    assert [chart.title.partition(":")[0] for chart in figure.charts] == ["bonferroni-box", "ellipse"]
    assert "Drawn: 2 of 3 methods" in figure.caption
    assert found.best().method == "ellipse"
    for chart in figure.charts:
        assert len(re.findall(r'class="region(-missed)?"', chart.body)) == 6
        missed = chart.body.count('class="miss"')
        assert f"{missed} of 6 outside" in chart.body
        assert chart.body.count('class="held"') == 6 - missed
    rows = figure.numbers.rows
    assert len(rows) == 12
    assert [row[1] for row in rows[:6]] == [row[1] for row in rows[6:]]


def test_three_targets_have_the_spread_of_the_volumes_only():
    found = CASES["regions-of-three"]()
    assert region_figures.planes(found.statistics, found.best()) is None
    figure = region_figures.volumes(found.statistics, found.best())
    assert [row[0] for row in figure.numbers.rows] == ["bonferroni-box", "ellipse", "unbounded"]
    assert figure.numbers.rows[2][-1] == "∞"
    assert "∞" not in figure.numbers.rows[0]


def test_the_answer_says_what_a_volume_is_and_which_regions_have_no_end():
    found = CASES["regions"]()
    notes = " ".join(found.notes())
    assert "product of the targets' standard deviations" in notes
    assert re.search(r"1 is lat 0\.\d+ × price [\d,]+ on seed 0", notes)
    assert "Infinite prediction regions, not seen in the median volume: unbounded 10.0 %" in notes
    assert "smallest prediction regions" in found.verdict()
    assert "for lat, price in housing" in text.question(found.info)


def test_other_tasks_have_none_of_it():
    found = CASES["interval"]()
    assert region_figures.planes(found.statistics, found.best()) is None
    assert region_figures.volumes(found.statistics, found.best()) is None
    assert "olume" not in " ".join(found.notes())
