"""What a comparison hands out: frames, JSON, short table, picture."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from made_up import FAKES, Fake, info, interval_results, label_set_results, result

from assay.engine.comparison import Comparison

COLUMNS = ["dataset", "task", "method", "seed", "status", "metric", "value", "unit", "seconds", "error"]


@pytest.fixture(scope="module")
def comparison():
    return Comparison(info([{**fake.spec, "name": fake.name} for fake in FAKES]), interval_results())


def no_constants(text):
    def refuse(name):
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_table_is_tidy(comparison):
    table = comparison.table()
    assert list(table.columns) == COLUMNS
    assert table["seed"].dtype == np.int64
    assert table["value"].dtype == np.float64
    metrics = {m.name for m in comparison.task.metrics}
    done = table[table.status == "ok"]
    assert len(done) == 33 * len(metrics)
    assert not done.duplicated(["method", "seed", "metric"]).any()
    assert set(done.unit[done.metric == "mean_width"]) == {"target"}
    assert (done.error == "").all()
    failed = table[table.status != "ok"]
    assert list(failed.seed) == [1, 3]
    assert list(failed.status) == ["failed", "timed out"]
    assert failed.metric.isna().all()
    assert failed.value.isna().all()
    assert failed.error.str.contains("singular").all()


def test_table_holds_the_numbers_of_the_trials(comparison):
    table = comparison.table().set_index(["method", "seed", "metric"]).value
    for trial in comparison.results:
        for metric, value in trial.metrics.items():
            np.testing.assert_equal(table[trial.method, trial.seed, metric], value)


def test_summary_has_a_row_for_each_method_and_metric(comparison):
    summary = comparison.summary()
    assert len(summary) == len(FAKES) * len(comparison.task.metrics)
    table = comparison.table()
    means = table[table.status == "ok"].groupby(["method", "metric"]).value.mean()
    rows = summary.set_index(["method", "metric"])
    assert rows["mean"].sort_index().to_numpy() == pytest.approx(means.sort_index(), nan_ok=True)
    assert (rows.loc["full-ridge", "ok"] == 3).all()
    assert (rows.loc["full-ridge", "timed_out"] == 1).all()
    assert rows.loc[("full-ridge", "coverage"), "difference_seeds"] == 3
    assert rows.loc[("split", "width_quintile_gap"), "undefined"] == 5
    assert set(summary.reference) == {"split"}


def test_best_and_failed(comparison):
    best = comparison.best()
    assert best.method in {"normalised", "cqr", "cp2"}
    assert str(best) == best.reason
    assert best.reason.endswith(".")
    assert "not significantly below 0.9" in best.rule
    assert best.verdict("pcp").low
    assert [(t.method, t.seed) for t in comparison.failed] == [("full-ridge", 1), ("full-ridge", 3)]


def test_rows_for_the_terminal(comparison):
    header, *rows = comparison.rows()
    assert header[0] == "method"
    assert header[4] == "vs split [95 %]"
    assert [row[0].removesuffix(" *") for row in rows] == [fake.name for fake in FAKES]
    assert sum(row[0].endswith(" *") for row in rows) == 1
    by_name = {row[0].removesuffix(" *"): row for row in rows}
    assert by_name["split"][4] == "reference"
    assert by_name["full-ridge"][6] == "3/5"
    assert by_name["pcp"][1].endswith("!")
    assert by_name["split"][2] == "0.840 to 0.950"
    assert any("full-ridge 3 of 5" in note for note in comparison.notes())
    shown = repr(comparison)
    assert "full-ridge" in shown
    assert comparison.verdict() in shown
    assert max(len(line) for line in shown.splitlines()[2:10]) < 140


def test_json_is_strict_and_holds_the_same_rows(comparison, tmp_path):
    path = comparison.to_json(tmp_path / "out.json")
    content = no_constants(path.read_text("utf-8"))
    assert content["format"] == "assay-comparison"
    table = comparison.table()
    assert len(content["trials"]) == len(table)
    assert list(content["trials"][0]) == COLUMNS
    back = pd.DataFrame(content["trials"])
    assert back.value.astype(float).to_numpy() == pytest.approx(table.value.to_numpy(), nan_ok=True)
    assert len(content["summary"]) == len(comparison.summary())
    assert content["best"]["method"] == comparison.best().method
    assert content["best"]["rule"] == comparison.best().rule
    assert content["run"]["command"] == comparison.info.command
    assert content["run"]["seeds"] == [0, 1, 2, 3, 4]


def test_json_writes_infinity_as_a_string_and_nan_as_null(tmp_path):
    metrics = {"coverage": 1.0, "mean_width": math.inf, "width_quintile_gap": math.nan}
    one = Comparison(info(["split"], seeds=(0,)), [result("split", 0, metrics)])
    content = no_constants(one.to_json(tmp_path / "x.json").read_text("utf-8"))
    values = {row["metric"]: row["value"] for row in content["trials"]}
    assert values == {"coverage": 1.0, "mean_width": "Infinity", "width_quintile_gap": None}


def test_json_takes_odd_parameters(tmp_path):
    spec = {"name": "mine", "params": {"k": np.int64(3), "f": np.float32(0.5), "g": len, 1: (1, 2)}}
    one = Comparison(info([spec]), [])
    content = no_constants(one.to_json(tmp_path / "x.json").read_text("utf-8"))
    params = content["run"]["methods"][0]["params"]
    assert (params["k"], params["f"], params["1"]) == (3, 0.5, [1, 2])


def test_no_results_at_all():
    empty = Comparison(info(["split", "cqr"]), [])
    assert empty.table().empty
    assert list(empty.table().columns) == COLUMNS
    assert empty.best().method is None
    assert set(empty.summary().not_run) == {5}
    assert [row[-1] for row in empty.rows()[1:]] == ["0/5", "0/5"]
    assert "No method qualifies" in repr(empty)
    assert empty.plot()._repr_svg_().startswith("<svg")


def test_infinite_widths_are_shown():
    fakes = (Fake("split"), Fake("wide", infinite=True))
    seen = Comparison(info(["split", "wide"]), interval_results(fakes))
    row = next(row for row in seen.rows() if row[0] == "wide")
    assert row[3] == "∞"
    assert row[4] == "+∞"


def test_label_sets():
    names = ["lac", "aps", "raps", "class-conditional"]
    seen = Comparison(info(names, task="label-set"), label_set_results())
    assert seen.rows()[0][3] == "mean size [95 %]"
    assert seen.best().method in {"lac", "aps", "class-conditional"}
    assert seen.reference == "lac"
    assert "label sets" in seen.verdict()


def test_notebook_and_picture(comparison, tmp_path):
    html = comparison._repr_html_()
    assert "<table>" in html
    assert "<svg" in html
    path = comparison.plot().save(tmp_path / "plot.svg")
    import xml.etree.ElementTree as ET

    root = ET.parse(path).getroot()
    assert root.tag.endswith("svg")
    assert "split" in "".join(root.itertext())


def test_a_long_list_of_close_methods_is_cut_short():
    fakes = [Fake(f"m{k}", 0.9) for k in range(9)]
    seen = Comparison(info([fake.name for fake in fakes]), interval_results(fakes))
    assert "others to be wider." in seen.verdict()
    assert len(seen.verdict()) < 400


def _of(task, metrics, seeds=(0, 1, 2), notices=()):
    from dataclasses import replace

    rows = [replace(result("mine", k, metrics), notices=tuple(notices)) for k in seeds]
    return Comparison(info(["mine"], task=task, seeds=seeds), rows)


def test_the_verdict_claims_no_level_that_was_not_reached():
    reached = _of("interval", {"coverage": 0.9, "mean_width": 1.0}).verdict()
    assert "intervals that keep to the level come from mine" in reached
    short = _of("interval", {"coverage": 0.899, "mean_width": 1.0}).verdict()
    assert "intervals whose coverage is not shown to fall short come from mine" in short


def test_empty_sets_are_explained_where_there_are_many():
    metrics = {"coverage": 0.9, "mean_size": 0.92, "share_empty": 0.081}
    (note,) = [n for n in _of("label-set", metrics).notes() if n.startswith("Empty")]
    assert note.startswith("Empty label sets: mine 8.1 % of the test rows; each is a miss.")
    assert "below 1, the most probable label alone usually covers more than 90 %" in note
    (note,) = [n for n in _of("label-set", {**metrics, "mean_size": 1.2}).notes() if n.startswith("Empty")]
    assert "below 1" not in note
    few = _of("label-set", {**metrics, "share_empty": 0.009}).notes()
    assert not any(n.startswith("Empty") for n in few)


def test_what_is_undefined_on_every_seed_is_a_dash_and_no_note():
    metrics = {"coverage": 0.9, "mean_width": 1.0, "width_quintile_gap": math.nan}
    assert not any("Undefined" in note for note in _of("interval", metrics).notes())


def test_notices_that_differ_in_numbers_alone_are_one():
    from assay.engine.report.text import notices

    metrics = {"coverage": 0.9, "mean_width": 1.0}
    said = _of("interval", metrics, notices=["AssayWarning: 6 of 10 rows", "AssayWarning: 2 of 10 rows"])
    assert notices(said.statistics) == ["mine (3 trials): 6 of 10 rows"]


def test_skipped_methods_are_named_with_their_reason_and_not_as_unfinished():
    metrics = {"coverage": 0.9, "mean_width": 1.0}
    methods = ["mine", {"name": "cp2", "skip": "needs: torch"}, {"name": "pcp", "skip": "needs: torch"}]
    notes = Comparison(info(methods, seeds=(0,)), [result("mine", 0, metrics)]).notes()
    assert "Skipped: cp2, pcp: needs: torch." in notes
    assert not any("Not finished" in note for note in notes)


def test_one_method_alone_is_asked_what_it_gives():
    only = _of("interval", {"coverage": 0.9, "mean_width": 1.0})
    assert repr(only).startswith("Which prediction intervals does mine give for price in housing (2,930 rows")


def test_no_size_is_more_than_a_whole_smaller():
    from assay.engine.report.text import relative

    sizes = {"split": (1.0, 10.0, 1.2), "cqr": (0.9, 1.0, 1.1)}
    results = [
        result(name, seed, {"coverage": 0.9, "mean_width": size})
        for name, values in sizes.items()
        for seed, size in enumerate(values)
    ]
    comparison = Comparison(info(list(sizes), seeds=(0, 1, 2)), results)
    gap = relative(comparison.statistics, "cqr", "mean_width")
    assert gap.low == -100
    assert gap.high > 0
    assert -100 < gap.mean < 0
