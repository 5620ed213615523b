"""Means, intervals and paired differences over repeated splits."""

import math

import numpy as np
import pytest
from made_up import info, result
from scipy import stats as reference

from assay.core.errors import DataError
from assay.engine.stats import (
    Summary,
    binomial_interval,
    corrected_error,
    corrected_interval,
    estimate,
    valid_coverage_quantile,
)
from assay.tasks import get_task


def summarise(methods, results, **changes):
    return Summary(info(methods, **changes), results, get_task("interval"))


def trial(method, seed, coverage=0.9, width=1.0, **more):
    return result(method, seed, {"coverage": coverage, "mean_width": width, **more})


def test_corrected_interval_by_hand():
    # s^2 = 5/3, variance of the mean (1/4 + 1/4) 5/3 = 5/6, t(3) at 97.5 % = 3.182446
    low, high = corrected_interval([1.0, 2.0, 3.0, 4.0], 0.25)
    half = 3.182446305 * math.sqrt(5 / 6)
    assert (low, high) == pytest.approx((2.5 - half, 2.5 + half))
    assert corrected_error([1.0, 2.0, 3.0, 4.0], 0.25) == pytest.approx(math.sqrt(5 / 6))


def test_corrected_interval_without_overlap_is_the_usual_t_interval():
    values = np.random.default_rng(0).normal(size=9)
    usual = reference.t.interval(0.95, 8, values.mean(), reference.sem(values))
    assert corrected_interval(values, 0.0) == pytest.approx(usual)


@pytest.mark.parametrize(("k", "n"), [(0, 20), (20, 20), (17, 20), (180, 200), (1, 1)])
def test_binomial_interval_agrees_with_scipy(k, n):
    exact = reference.binomtest(k, n).proportion_ci(0.95, method="exact")
    assert binomial_interval(k, n) == pytest.approx((exact.low, exact.high), abs=1e-12)


@pytest.mark.parametrize(
    ("alpha", "n_calib", "n_test"), [("0.1", 200, 200), ("0.05", 39, 500), ("0.2", 4, 30)]
)
@pytest.mark.parametrize("probability", [0.025, 0.05, 0.5, 0.975])
def test_valid_coverage_is_beta_binomial(alpha, n_calib, n_test, probability):
    missed = math.floor(float(alpha) * (n_calib + 1) + 1e-9)
    law = reference.betabinom(n_test, n_calib + 1 - missed, missed)
    ours = valid_coverage_quantile(alpha, n_calib, n_test, probability)
    assert ours == pytest.approx(law.ppf(probability) / n_test)


def test_valid_coverage_at_the_edges():
    assert valid_coverage_quantile("0.1", 5, 100, 0.05) == 1.0  # infinite threshold
    assert valid_coverage_quantile("0", 500, 100, 0.05) == 1.0


def test_corrected_interval_covers_over_random_splits_and_the_usual_one_does_not():
    """Error of the training mean, 10 random splits of 100 rows; truth: the mean over data sets."""
    rng = np.random.default_rng(1)
    repetitions, n, n_test, J = 500, 100, 25, 10
    hits = {"corrected": 0, "usual": 0}
    truth = 1 + 1 / (n - n_test)
    for _ in range(repetitions):
        y = rng.normal(size=n)
        order = rng.permuted(np.tile(np.arange(n), (J, 1)), axis=1)
        centre = y[order[:, n_test:]].mean(1)
        error = ((y[order[:, :n_test]] - centre[:, None]) ** 2).mean(1)
        for name, ratio in (("corrected", n_test / (n - n_test)), ("usual", 0.0)):
            low, high = corrected_interval(error, ratio)
            hits[name] += low <= truth <= high
    assert hits["corrected"] / repetitions > 0.91
    assert hits["usual"] / repetitions < 0.85


def test_infinite_and_undefined_values_are_shown_as_such():
    of = estimate({0: 1.0, 1: math.inf, 2: 2.0}, 0.25)
    assert of.mean == math.inf
    assert (of.low, of.high, of.infinite, of.seeds) == (None, None, 1, (0, 1, 2))
    assert math.isnan(estimate({0: math.inf, 1: -math.inf}, 0.25).mean)
    of = estimate({0: 1.0, 1: math.nan, 2: 3.0}, 0.25)
    assert (of.mean, of.undefined, of.seeds) == (2.0, (1,), (0, 2))
    assert of.basis == "corrected t"
    of = estimate({0: math.nan}, 0.25)
    assert math.isnan(of.mean)
    assert of.undefined == (0,)


def test_no_interval_without_spread_or_rows():
    assert estimate({0: 5.0}, 0.25).low is None
    assert estimate({0: 5.0, 1: 6.0}, None).low is None


def test_interval_uses_the_rows_of_the_trials():
    values = [0.9, 0.88, 0.93, 0.91, 0.9]
    found = summarise(["split"], [trial("split", seed, value) for seed, value in enumerate(values)])
    of = found.method("split").estimates["coverage"]
    assert (of.low, of.high) == pytest.approx(corrected_interval(values, 200 / 600))


def test_one_seed_has_an_exact_interval_for_the_coverage_only():
    found = summarise(["split"], [trial("split", 7, 0.915, 3.0)], seeds=(7,)).method("split")
    exact = reference.binomtest(183, 200).proportion_ci(0.95, method="exact")
    of = found.estimates["coverage"]
    assert (of.low, of.high) == pytest.approx((exact.low, exact.high))
    assert of.basis == "exact binomial"
    assert found.estimates["mean_width"].low is None
    assert found.estimates["mean_width"].mean == 3.0


def test_differences_are_paired_over_common_seeds():
    widths = {"split": [10.0, 20.0, 30.0, 40.0], "cqr": [9.0, 18.5, 28.0, None]}
    results = [
        trial(name, seed, width=width) if width else result(name, seed, status="timed out", error="60 s")
        for name, values in widths.items()
        for seed, width in enumerate(values)
    ]
    found = summarise(["split", "cqr"], results, seeds=range(4))
    gap = found.method("cqr").differences["mean_width"]
    assert gap.mean == pytest.approx(-1.5)
    assert gap.seeds == (0, 1, 2)
    assert (gap.low, gap.high) == pytest.approx(corrected_interval([-1.0, -1.5, -2.0], 200 / 600))
    assert found.method("split").differences == {}


def test_difference_of_infinite_values():
    results = [trial("split", 0, width=math.inf), trial("split", 1, width=2.0)]
    results += [trial("cqr", 0, width=math.inf), trial("cqr", 1, width=math.inf)]
    gap = summarise(["split", "cqr"], results, seeds=(0, 1)).method("cqr").differences["mean_width"]
    assert gap.mean == math.inf
    assert gap.undefined == (0,)


def test_every_trial_is_counted():
    results = [
        trial("a", 0),
        result("a", 1, status="failed", error="x"),
        result("a", 2, status="out of memory"),
    ]
    found = summarise(["a", {"name": "b", "skip": "needs torch"}], results, seeds=range(4))
    counts = found.method("a").counts
    assert counts == {
        "ok": 1,
        "failed": 1,
        "timed out": 0,
        "out of memory": 1,
        "skipped": 0,
        "not run": 1,
    }
    assert found.method("a").trials == 4
    assert found.method("a").failures == 2
    assert found.method("b").counts["skipped"] == 4
    assert found.method("b").failures == 0
    assert found.compared_seeds == (0, 1, 2)


def test_reference_is_the_task_s_or_the_first_that_finished():
    results = [trial("cqr", 0), trial("split", 0), result("mine", 0, status="failed")]
    assert summarise(["mine", "cqr", "split"], results, seeds=(0,)).reference == "split"
    assert summarise(["mine", "cqr"], [results[2], results[0]], seeds=(0,)).reference == "cqr"
    named = {"name": "plain", "card": "split"}
    assert summarise(["cqr", named], [results[0], trial("plain", 0)], seeds=(0,)).reference == "plain"
    assert summarise(["mine"], [results[2]], seeds=(0,)).reference is None


def test_the_same_trial_twice_is_refused():
    with pytest.raises(DataError, match=r"two results of 'split' with seed 3"):
        summarise(["split"], [trial("split", 3), trial("split", 3)])


def test_unknown_metrics_follow_the_task_s():
    found = summarise(["split"], [trial("split", 0, my_own=4.0)], seeds=(0,))
    assert [m.name for m in found.metrics][-1] == "my_own"
    assert found.metrics[-1].direction == "info"
    assert found.method("split").estimates["my_own"].mean == 4.0


def test_intervals_of_shares_stay_between_zero_and_one():
    values = (1.0, 0.9, 1.0)
    found = summarise(["split"], [trial("split", k, v, 10 * v) for k, v in enumerate(values)], seeds=range(3))
    of = found.method("split").estimates["coverage"]
    assert of.high == 1.0
    assert of.low == pytest.approx(corrected_interval(values, 1 / 3)[0])
    assert found.method("split").estimates["mean_width"].high > 10


def test_intervals_of_sizes_do_not_go_below_zero():
    found = summarise(
        ["split"], [trial("split", k, 0.9, w) for k, w in enumerate((1.0, 2.0, 90.0))], seeds=range(3)
    )
    assert found.method("split").estimates["mean_width"].low == 0.0
    gap = (
        summarise(
            ["split", "cqr"],
            [
                trial(m, k, 0.9, w)
                for m, ws in (("split", (9.0, 8.0)), ("cqr", (1.0, 2.0)))
                for k, w in enumerate(ws)
            ],
            seeds=range(2),
        )
        .method("cqr")
        .differences["mean_width"]
    )
    assert gap.low < gap.mean < 0
