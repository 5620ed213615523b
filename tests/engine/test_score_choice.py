"""A task that promises no level: the choice by score, its words, its pictures."""

import math

import numpy as np
import pytest
from made_up import info, result
from scipy import stats as reference

from assay.engine.choice import choose
from assay.engine.comparison import Comparison
from assay.engine.report.predictive_figures import calibration, likeliest_labels, sharpness
from assay.engine.stats import Summary
from assay.tasks import get_task

BASE = (0.50, 0.52, 0.49, 0.51, 0.50)
BETTER = (0.40, 0.43, 0.38, 0.41, 0.40)
CLOSE = (0.41, 0.43, 0.37, 0.42, 0.40)
ROWS = {"n_train": 750, "n_calib": 0, "n_test": 250, "expected_coverage": None}


def comparison(methods, likelihood="classification", **detail):
    """``methods``: name -> NLPD by seed; a status may stand for one."""
    results = []
    for name, values in methods.items():
        for seed, value in enumerate(values):
            if isinstance(value, str):
                results.append(result(name, seed, status=value, error="it broke"))
                continue
            metrics = {
                "nlpd": value,
                "accuracy": 0.9,
                "calibration_error": 0.02,
                "predict_ms_per_row": 0.1 + seed,
            }
            results.append(result(name, seed, metrics, **{**ROWS, "likelihood": likelihood, **detail}))
    facts = info(
        [{"name": name, "card": name} for name in methods],
        task="predictive",
        seeds=range(max(map(len, methods.values()))),
        options={"likelihood": likelihood},
    )
    return Comparison(facts, results)


def decide(methods):
    found = comparison(methods)
    task = get_task("predictive", likelihood="classification")
    summary = Summary(found.info, [r for m in methods for r in found.statistics.trials(m)], task)
    return summary, choose(summary)


def test_the_smallest_score_is_chosen():
    summary, choice = decide({"map-network": BASE, "swag": BETTER, "mc-dropout": CLOSE})
    assert choice.method == "swag"
    assert str(choice).startswith("swag has the smallest NLPD, 0.404, of the 3 methods that qualify. Next is")
    assert "coverage" not in choice.rule + str(choice)
    assert "variance times 1/5 + 250/750 = 0.533" in choice.rule
    assert not any(verdict.low for verdict in choice.verdicts)
    gap = summary.method("swag").differences["nlpd"]
    values = np.subtract(BETTER, BASE)
    half = reference.t.ppf(0.975, 4) * math.sqrt((1 / 5 + 1 / 3) * np.var(values, ddof=1))
    assert (gap.low, gap.high) == pytest.approx((values.mean() - half, values.mean() + half))


def test_a_failed_or_infinite_method_is_not_chosen():
    _, choice = decide({"map-network": BASE, "swag": (*BETTER[:4], "failed"), "suq": (*BETTER[:4], math.inf)})
    assert choice.method == "map-network"
    assert "1 of 5 trials did not finish" in choice.verdict("swag").why
    assert "infinite NLPD on 1 of 5 seeds" in choice.verdict("suq").why
    _, choice = decide({"map-network": (*BASE[:4], math.nan)})
    assert choice.method is None
    assert "NLPD is undefined on 1 of 5 seeds" in str(choice)


def test_words_of_the_answer():
    found = comparison({"map-network": BASE, "swag": BETTER, "mc-dropout": CLOSE})
    said = found.verdict()
    assert said.startswith("The best predictive distributions come from swag: NLPD 0.404, 0.1")
    assert "less than map-network" in said
    assert said.endswith("These seeds do not show mc-dropout to be worse.")
    head, *rows = found.rows()
    assert head[1:6] == ("NLPD [95 %]", "vs map-network [95 %]", "accuracy", "calibration error", "ms a row")
    assert rows[0][2] == "reference"
    assert rows[1][0] == "swag *"
    assert rows[1][2].startswith("−0.1")
    assert "cover" not in repr(found)


BINS = [{"confidence": c, "accuracy": c - 0.02, "n": 16} for c in np.linspace(0.5, 1, 15)]
LIKELY = [
    {
        "row": i,
        "y": "<b>no</b>",
        "nlpd": 0.4,
        "proba": [["yes" if i % 3 else "<b>no</b>", 0.6], ["maybe", 0.4]],
    }
    for i in range(40)
]
SPREAD = [[level, level] for level in (0.05, 0.25, 0.5, 0.75, 0.95)]


def test_the_page_of_labels(tmp_path):
    found = comparison(
        {"map-network": BASE, "swag": BETTER}, reliability=BINS, likeliest=LIKELY, sharpness=SPREAD
    )
    page = found.to_html(tmp_path / "page.html").read_text()
    for words in (
        "NLPD against time to predict",
        "Calibration",
        "Sharpness",
        "Examples",
        "Down and to the left",
    ):
        assert words in page
    assert "<b>no</b>" not in page
    assert "covers" not in page.split("The methods")[0]
    figure = calibration(found.statistics, found.best())
    assert len(figure.charts) == 2
    assert figure.numbers.rows[0] == ("map-network", "0.500", "0.480", "16")
    assert len(sharpness(found.statistics, found.best()).numbers.rows) == 2
    first = likeliest_labels(found.statistics, found.best())
    assert first.charts[0].title.startswith("swag")  # the recommended one first
    assert "0 of 14 wrong" in first.charts[0].body
    assert first.numbers.rows[1][:4] == ("swag", "3", "<b>no</b>", "<b>no</b> 0.600, maybe 0.400")


def test_the_page_of_numbers(tmp_path):
    examples = {"row": [1], "y": [2.0], "prediction": [1.5], "lower": [1.0], "upper": [3.0]}
    found = comparison(
        {"map-network": BASE, "swag": BETTER},
        "regression",
        pit_histogram=[10] * 25,
        sharpness=SPREAD,
        examples=examples,
    )
    page = found.to_html(tmp_path / "page.html").read_text()
    assert "predicted probability of a smaller target" in page
    figure = calibration(found.statistics, found.best())
    assert figure.numbers.rows[1][1:] == ("0.040",) * 25
    assert found.plot().title == "NLPD against time to predict"
    assert calibration(comparison({"map-network": BASE}).statistics, found.best()) is None
