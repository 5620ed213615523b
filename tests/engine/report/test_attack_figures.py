"""Certified size against the radius, and the report of the attack task from end to end."""

import assay
from assay.engine.report import attack_figures


def test_a_comparison_under_attack(tmp_path):
    found = assay.compare(
        "wine", task="attack", seeds=2, methods=["bincp", "smooth-cp"], in_process=True, alpha=0.2
    )
    assert not found.failed
    figure = attack_figures.certified_sizes(found.statistics, found.best())
    (chart,) = figure.charts
    assert chart.title.startswith("bincp")
    head, (name, *sizes) = figure.numbers.header, *figure.numbers.rows
    assert name == "bincp"
    assert head[1:] == ("0", "0.0625", "0.125", "0.188", "0.250", "0.312", "0.375", "0.438", "0.500")
    assert sizes == sorted(sizes, key=float)
    page = found.to_html(tmp_path / "page.html").read_text()
    for text in ("Against the radius", "Coverage under attack", "Clean coverage", "Sizes of the sets"):
        assert text in page


def test_other_tasks_have_no_such_section(tmp_path):
    found = assay.compare("wine", seeds=2, methods=["lac"], in_process=True, alpha=0.2)
    assert attack_figures.certified_sizes(found.statistics, found.best()) is None
    assert "Against the radius" not in found.to_html(tmp_path / "page.html").read_text()
