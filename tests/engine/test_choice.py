"""The recommended method and the rule that chose it."""

import math

import numpy as np
import pytest
from made_up import info, result
from scipy import stats as reference

from assay.engine.choice import choose, coverage_test
from assay.engine.stats import Summary
from assay.tasks import get_task

GOOD = (0.90, 0.91, 0.89, 0.90, 0.91)
LOW = (0.82, 0.84, 0.83, 0.81, 0.83)


def decide(methods, *, alpha="0.1", seeds=None, rows=None, task="interval"):
    """``methods``: name -> (coverage by seed, width by seed); a status may stand for a coverage."""
    results = []
    n = max(len(coverages) for coverages, _ in methods.values())
    for name, (coverages, widths) in methods.items():
        widths = np.broadcast_to(widths, len(coverages))
        for seed, (coverage, width) in enumerate(zip(coverages, widths, strict=True)):
            if isinstance(coverage, str):
                results.append(result(name, seed, status=coverage, error="it broke"))
            elif coverage is not None:
                metrics = {"coverage": coverage, "mean_width": float(width)}
                results.append(result(name, seed, metrics, **(rows or {})))
    summary = Summary(
        info(list(methods), alpha=alpha, seeds=range(n) if seeds is None else seeds), results, get_task(task)
    )
    return summary, choose(summary)


def test_narrowest_of_those_that_cover():
    _, choice = decide({"split": (GOOD, 10.0), "cqr": (GOOD, 8.0), "pcp": (LOW, 5.0)})
    assert choice.method == "cqr"
    assert choice.verdict("pcp").low
    assert not choice.verdict("pcp").qualifies
    assert "cqr has the smallest mean width, 8.00, of the 2 methods that qualify" in str(choice)
    assert "pcp: significantly below 0.9: coverage 0.826" in str(choice)
    assert "1/5 + 200/600 = 0.533" in choice.rule
    assert "0.0095, the binomial error of 1,000 rows" in choice.rule


def test_the_t_test_is_one_sided_with_the_corrected_error():
    values = (0.86, 0.88, 0.87, 0.89, 0.84)
    summary, choice = decide({"split": (values, 1.0)})
    error = math.sqrt((1 / 5 + 1 / 3) * np.var(values, ddof=1))
    t, critical = (np.mean(values) - 0.9) / error, reference.t.ppf(0.05, 4)
    assert t < critical
    low, numbers = coverage_test(summary, "split")
    assert low
    assert numbers == f"t = {t:.2f}, under {critical:.2f}".replace("-", "−")
    assert choice.method is None
    assert str(choice).startswith("No method qualifies: split: significantly below 0.9")


STRETCHES = {"n_train": 300, "n_calib": 50, "n_test": 400, "disjoint": True}
FLEET = {**STRETCHES, "n_targets": 40_000}


def test_stretches_of_time_are_not_corrected_for_overlap():
    values = (0.89, 0.90, 0.88, 0.89, 0.90)
    summary, choice = decide({"ogd": (values, 1.0)}, rows=STRETCHES, task="online")
    error = max(np.std(values, ddof=1) / math.sqrt(5), math.sqrt(0.09 / 2000))
    t = (np.mean(values) - 0.9) / error
    assert coverage_test(summary, "ogd") == (False, f"t = {t:.2f}, not under −2.13".replace("-", "−"))
    assert "Nadeau" not in choice.rule
    assert (
        "0.0067, the binomial error of 2,000 rows, with more than 1.05 times the misses asked for; "
        "or more than 1.2 times the misses"
    ) in choice.rule
    found = summary.method("ogd").estimates["coverage"]
    half = reference.t.ppf(0.975, 4) * error
    assert found.basis == "t"
    assert (found.low, found.high) == pytest.approx((np.mean(values) - half, np.mean(values) + half))


def test_a_method_that_swings_between_stretches_covers_too_little():
    swinging = (0.99, 0.98, 0.55, 0.97, 0.60)
    summary, choice = decide({"ogd": (GOOD, 9.0), "aci": (swinging, 5.0)}, rows=STRETCHES, task="online")
    low, said = coverage_test(summary, "aci")
    assert low
    assert "not under −2.13, but 1.82 times the misses asked for" in said
    assert choice.method == "ogd"
    _, at_random = decide({"split": (GOOD, 9.0), "cqr": (swinging, 5.0)})
    assert at_random.method == "cqr"


def test_many_series_show_a_shortfall_that_one_could_not():
    """What series have in common shows between stretches: the floor is that of all targets, not of steps."""
    short = (0.881, 0.884, 0.878, 0.882, 0.880)
    summary, choice = decide({"ogd": (GOOD, 9.0), "spci": (short, 5.0)}, rows=FLEET, task="online")
    assert choice.method == "ogd"
    assert "0.0007, the binomial error of 200,000 rows" in choice.rule
    assert coverage_test(summary, "spci")[0]
    almost = (0.898, 0.8985, 0.898, 0.8975, 0.898)
    summary, choice = decide({"ogd": (GOOD, 9.0), "aci": (almost, 5.0)}, rows=FLEET, task="online")
    assert choice.method == "aci"
    assert coverage_test(summary, "aci")[1].endswith("but at most 1.05 times the misses asked for")


def test_few_stretches_are_held_against_the_binomial():
    bound = reference.binom.ppf(0.05, 400, 0.9) / 400
    for coverage, low in ((bound - 0.0025, True), (bound, False)):
        summary, choice = decide({"ogd": ((coverage,), 1.0)}, rows=STRETCHES, task="online")
        assert coverage_test(summary, "ogd")[0] is low
        assert f"{bound:.3f} with 400 test rows" in choice.rule


def test_covering_too_much_is_not_held_against_a_method():
    _, choice = decide({"split": ((1.0, 1.0, 1.0), 10.0)})
    assert choice.method == "split"


def test_equal_coverage_on_every_seed_is_judged_by_the_binomial_error_of_the_table():
    # 1,000 rows: error 0.00949; t(4) at 5 % is -2.13, so the border lies at 0.8798
    assert decide({"split": ((0.885,) * 5, 1.0)})[1].method == "split"
    assert decide({"split": ((0.875,) * 5, 1.0)})[1].method is None


@pytest.mark.parametrize("seeds", [1, 2])
def test_few_seeds_are_judged_by_the_beta_binomial(seeds):
    # 200 calibration rows, l = 20: beta-binomial(200; 181, 20)
    bound = reference.betabinom(200, 181, 20).ppf(0.05) / 200
    _, choice = decide({"split": ((bound,) * seeds, 1.0)})
    assert choice.method == "split"
    assert f"{bound:.3f} with 200 calibration and 200 test rows" in choice.rule
    assert decide({"split": ((bound - 0.005,) * seeds, 1.0)})[1].method is None


def test_one_seed_of_a_method_without_a_calibration_part_is_judged_by_its_training_rows():
    rows = {"n_train": 800, "n_calib": 0, "n_test": 200}
    bound = reference.betabinom(200, 721, 80).ppf(0.05) / 200
    _, choice = decide({"cv+": ((bound,), 1.0)}, rows=rows)
    assert choice.method == "cv+"
    assert f"{bound:.3f} with 800 training and 200 test rows" in choice.rule
    assert decide({"cv+": ((bound - 0.005,), 1.0)}, rows=rows)[1].method is None


def test_a_method_with_a_failed_trial_does_not_qualify():
    _, choice = decide({"split": (GOOD, 10.0), "cqr": ((0.9, 0.9, "timed out", 0.9, 0.9), 1.0)})
    assert choice.method == "split"
    assert "cqr: 1 of 5 trials did not finish (4 ok, 1 timed out)" in str(choice)


def test_low_coverage_is_said_also_of_a_method_that_failed():
    _, choice = decide({"split": (GOOD, 10.0), "pcp": ((*LOW[:4], "failed"), 1.0)})
    assert choice.verdict("pcp").low


def test_ties_go_to_the_method_named_first():
    _, choice = decide({"b": (GOOD, 3.0), "a": (GOOD, 3.0)})
    assert choice.method == "b"
    assert "Next is a with 3.00, the same." in str(choice)


def test_infinite_and_undefined_sizes_do_not_qualify():
    widths = np.array([1.0, np.inf, 1.0, 1.0, 1.0])
    _, choice = decide({"split": (GOOD, 10.0), "cqr": (GOOD, widths)})
    assert choice.method == "split"
    assert "cqr: infinite mean width on 1 of 5 seeds" in str(choice)
    _, choice = decide({"split": (GOOD, np.nan)})
    assert choice.method is None
    assert "undefined on 5 of 5 seeds" in str(choice)


def test_the_runner_up_is_named_with_the_paired_difference():
    ups = np.array([1.0, 1.1, 0.9, 1.0, 1.1])
    _, choice = decide({"split": (GOOD, ups), "cqr": (GOOD, ups + 0.5), "far": (GOOD, 9.0)})
    assert "Next is cqr with 1.52: larger by 0.500" in str(choice)
    _, choice = decide({"split": (GOOD, ups), "cqr": (GOOD, ups[::-1] + 0.01)})
    assert "which these seeds cannot tell from none" in str(choice)


def test_an_interrupted_run_is_judged_on_the_seeds_that_every_method_has():
    _, choice = decide({"split": (GOOD, 10.0), "cqr": ((*GOOD[:3], None, None), 8.0)})
    assert choice.method == "cqr"
    assert "Only 3 of 5 seeds have a trial of every method" in choice.rule
    _, choice = decide({"split": (GOOD, 10.0), "cqr": ((None,) * 5, 8.0)})
    assert choice.method is None
    assert "no seed has a trial of every method" in str(choice)


def test_skipped_methods_do_not_stand_in_the_way():
    _, choice = decide({"split": (GOOD, 10.0), "cp2": (("skipped",) * 5, 1.0)})
    assert choice.method == "split"
    assert "cp2: no trial finished (5 skipped)" in str(choice)


def test_all_failed():
    _, choice = decide({"split": (("failed",) * 3, 1.0), "cqr": (("out of memory",) * 3, 1.0)})
    assert choice.method is None
    assert str(choice) == (
        "No method qualifies: split: no trial finished (3 failed); cqr: no trial finished (3 out of memory)."
    )


def test_methods_that_train_on_more_rows_have_their_own_factor():
    calibrated = [result("split", k, {"coverage": c, "mean_width": 9.0}) for k, c in enumerate(GOOD)]
    whole = {"n_train": 800, "n_calib": 0}
    other = [
        result("cv+", k, {"coverage": c, "mean_width": 8.0, "median_width": c}, **whole)
        for k, c in enumerate(GOOD)
    ]
    summary = Summary(info(["split", "cv+"]), calibrated + other, get_task("interval"))
    choice = choose(summary)
    assert choice.method == "cv+"
    assert "1/5 + 200/600 = 0.533 (less where a method trains on more rows)" in choice.rule
    gaps = summary.method("cv+").differences["coverage"]
    assert gaps.high == pytest.approx(0.0)
    error = np.sqrt((1 / 5 + 200 / 800) * np.var(GOOD, ddof=1))
    of = summary.method("cv+").estimates["median_width"]
    assert of.high - of.mean == pytest.approx(reference.t.ppf(0.975, 4) * error)


def test_alpha_zero():
    assert decide({"split": ((1.0, 1.0, 1.0), 9.0)}, alpha="0")[1].method == "split"
    assert decide({"split": ((0.99, 0.99, 0.99), 9.0)}, alpha="0")[1].method is None


def test_trials_that_do_not_say_their_rows_are_not_tested():
    rows = {"n_train": None, "n_test": None}
    _, choice = decide({"split": (LOW, 1.0)}, rows=rows)
    assert choice.method == "split"
    assert "coverage is not tested" in choice.verdict("split").why


def test_exactly_valid_methods_are_rarely_turned_away_and_low_ones_are():
    rng = np.random.default_rng(0)
    law = reference.betabinom(200, 181, 20)
    valid = law.rvs(size=(200, 5), random_state=rng) / 200
    turned = [decide({"split": (tuple(map(float, v)), 1.0)})[1].method is None for v in valid]
    assert np.mean(turned) < 0.05
    low = np.clip(valid[:50] - 0.1, 0, 1)
    assert np.mean([decide({"split": (tuple(map(float, v)), 1.0)})[1].method is None for v in low]) > 0.9


@pytest.mark.parametrize("task", ["interval", "online"])
def test_the_interval_of_the_coverage_has_the_error_by_which_it_is_judged(task):
    """Equal shortfalls are no certain shortfall: the binomial error is the least, shown as judged."""
    rows = STRETCHES if task == "online" else None
    n = 5 * 400 if task == "online" else 1000
    summary, _ = decide({"ogd": ((0.888,) * 5, 1.0)}, rows=rows, task=task)
    of = summary.method("ogd").estimates["coverage"]
    half = reference.t.ppf(0.975, 4) * math.sqrt(0.09 / n)
    assert (of.low, of.high) == pytest.approx((0.888 - half, 0.888 + half))
    assert not coverage_test(summary, "ogd")[0]
    # the test's t is the shortfall in units of what the interval is made of
    t = (0.888 - 0.9) / ((of.high - of.low) / 2) * reference.t.ppf(0.975, 4)
    assert f"t = \N{MINUS SIGN}{-t:.2f}" in coverage_test(summary, "ogd")[1]
    width = summary.method("ogd").estimates["mean_width"]
    assert width.low == width.high == 1.0


def test_the_interval_of_the_coverage_is_wider_where_seeds_differ_more():
    summary, _ = decide({"ogd": (LOW, 1.0)})
    of = summary.method("ogd").estimates["coverage"]
    spread = np.std(LOW, ddof=1) * math.sqrt(1 / 5 + 200 / 600)
    least = math.sqrt(0.09 / 1000)
    half = reference.t.ppf(0.975, 4) * max(spread, least)
    assert of.high - of.low == pytest.approx(2 * half)
