"""Pictures of certified shares and sizes, and a report of the poisoning task from end to end."""

import assay
from assay.engine.report import poisoning_figures


def test_a_comparison_under_poisoning(tmp_path):
    found = assay.compare(
        "wine",
        task="poisoning",
        seeds=2,
        methods=["plain-lac", "partitioned-split"],
        in_process=True,
        alpha=0.2,
    )
    assert not found.failed
    assert {trial.metrics["broken_certificates"] for trial in found.results} == {0}
    for side in ("train", "calib"):
        shares = poisoning_figures.certified_shares(found.statistics, found.best(), side)
        sizes = poisoning_figures.certified_sizes(found.statistics, found.best(), side)
        assert len(shares.charts) == len(sizes.charts) == 2
        assert all(
            chart.description.startswith(("0 rows", "0: ")) for chart in (*shares.charts, *sizes.charts)
        )
    page = found.to_html(tmp_path / "page.html").read_text()
    assert "Under poisoning" in page
    assert "Poisoned calibration rows" in page


def test_other_tasks_have_no_such_section(tmp_path):
    found = assay.compare("wine", seeds=2, methods=["lac"], in_process=True, alpha=0.2)
    assert poisoning_figures.certified_shares(found.statistics, found.best(), "train") is None
    assert "Under poisoning" not in found.to_html(tmp_path / "page.html").read_text()
