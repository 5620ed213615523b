"""Metrics: numbers worked out by hand, and what must hold for all inputs."""

from fractions import Fraction
from itertools import pairwise
from time import process_time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from assay.core.levels import conformal_rank
from assay.tasks import measures
from assay.tasks.measures import (
    covers,
    evenly_spread,
    expected_coverage,
    interval_score,
    interval_widths,
    is_empty,
    size_strata,
    size_stratified_gap,
    width_groups,
    width_quintile_gap,
    worst_slab,
)

TENTH = Fraction(1, 10)
INF = np.inf


def test_widths_empty_and_infinite():
    interval = np.array([[0, 2], [3, 1], [-INF, 5], [-INF, INF], [INF, INF], [INF, -INF], [4, 4.0]])
    assert interval_widths(interval).tolist() == [2, 0, INF, INF, 0, 0, 0]
    assert is_empty(interval).tolist() == [False, True, False, False, True, True, False]
    assert covers(interval, np.array([2, 2, -1e9, 0, 0, 0, 4.0])).tolist() == [
        True,
        False,
        True,
        True,
        False,
        False,
        True,
    ]


def test_interval_score_by_hand():
    # width + 20 x distance outside at alpha 0.1
    interval = np.array([[0, 2], [0, 2], [0, 2], [1, -1], [-INF, 5], [-INF, 5]])
    y = np.array([1.0, 3.0, -0.5, 0.0, 4.0, 6.0])
    assert interval_score(interval, y, TENTH).tolist() == [2, 22, 12, 40, INF, INF]
    assert interval_score(interval[:2], y[:2], Fraction(1, 2)).tolist() == [2, 6]


@settings(max_examples=50, deadline=None)
@given(
    y=hnp.arrays(float, 12, elements=st.integers(-9, 9)),
    ends=hnp.arrays(float, (12, 2), elements=st.integers(-9, 9)),
    alpha=st.fractions(Fraction(1, 100), Fraction(99, 100), max_denominator=100),
)
def test_interval_score_is_least_where_it_covers(y, ends, alpha):
    interval = np.sort(ends, axis=1)
    score = interval_score(interval, y, alpha)
    inside = covers(interval, y)
    np.testing.assert_allclose(score[inside], interval_widths(interval)[inside])
    assert (score[~inside] > interval_widths(interval)[~inside]).all()


def test_widths_by_quintile_and_their_gap():
    width = np.repeat([1.0, 2, 3, 4, 5], 4)
    interval = np.column_stack([np.zeros(20), width])
    hits = [4, 3, 2, 4, 0]
    y = np.concatenate([[0.5] * h + [9.0] * (4 - h) for h in hits])
    groups = width_groups(interval)
    assert [rows.tolist() for rows in groups] == [list(range(4 * g, 4 * g + 4)) for g in range(5)]
    expected = np.mean([abs(h / 4 - 0.9) for h in hits])
    assert width_quintile_gap(interval, y, TENTH) == pytest.approx(expected)


def test_equal_widths_stay_together_and_alone_are_undefined():
    centre = np.random.default_rng(0).normal(size=50) * 1e6
    same = np.column_stack([centre - 0.1, centre + 0.1])
    assert np.unique(interval_widths(same)).size > 1  # rounding only
    assert np.isnan(width_quintile_gap(same, centre, TENTH))
    two = same.copy()
    two[:10, 1] += 5
    assert sorted(len(rows) for rows in width_groups(two)) == [10, 40]
    infinite = np.tile([-INF, INF], (7, 1))
    assert width_groups(infinite) == []
    assert width_groups(np.empty((0, 2))) == []
    mixed = np.array([[0, 1], [0, 1], [-INF, INF], [0, INF]])
    assert [rows.tolist() for rows in width_groups(mixed)] == [[0, 1], [2, 3]]


@settings(max_examples=50, deadline=None)
@given(hnp.arrays(float, st.integers(1, 60), elements=st.sampled_from([0.5, 1.0, 2.0, 3.5, 7.0, INF])))
def test_width_groups_part_the_rows(width):
    groups = width_groups(np.column_stack([np.zeros(len(width)), width]))
    if groups:
        assert sorted(np.concatenate(groups).tolist()) == list(range(len(width)))
        for low, high in pairwise(groups):
            assert width[low].max() < width[high].min()
    else:
        assert len(set(width)) == 1


def test_groups_of_width_do_not_see_where_the_target_lies():
    rng = np.random.default_rng(0)
    width, center = rng.exponential(size=500), rng.normal(size=500)
    interval = np.column_stack([center - width, center + width])
    here, far = (width_groups(interval + shift) for shift in (0.0, 1e9))
    assert [len(rows) for rows in here] == [len(rows) for rows in far] == [100] * 5
    # constant width is still told from one that varies
    assert width_groups(np.column_stack([center - 0.1, center + 0.1]) + 1e9) == []


def test_expected_coverage_is_the_beta_binomial_range():
    # 9 calibration rows at 0.1: the threshold is the largest score, coverage is Beta(9, 1)
    rng = np.random.default_rng(0)
    simulated = rng.binomial(50, rng.beta(9, 1, 400_000)) / 50
    low, high = expected_coverage(9, 50, TENTH)
    assert low == pytest.approx(np.quantile(simulated, 0.025), abs=0.021)
    assert high == 1.0
    assert expected_coverage(8, 50, TENTH) == (1.0, 1.0)
    wide, narrow = expected_coverage(100, 1000, TENTH), expected_coverage(10_000, 1000, TENTH)
    assert wide[0] < narrow[0] < 0.9 < narrow[1] < wide[1]


def test_expected_coverage_holds_for_methods_that_train_and_calibrate_on_all_rows():
    """Full conformal prediction around the mean; a binomial range would miss 8 % of the repetitions."""
    rng = np.random.default_rng(2)
    n, n_test = 120, 400
    y, test = rng.normal(size=(1500, n)), rng.normal(size=(1500, n_test))
    residuals = np.abs(y - y.mean(axis=1, keepdims=True))
    threshold = np.sort(residuals, axis=1)[:, [conformal_rank(n, TENTH) - 1]]
    coverage = (np.abs(test - y.mean(axis=1, keepdims=True)) <= threshold).mean(axis=1)
    low, high = expected_coverage(n, n_test, TENTH)
    outside = np.mean((coverage < low) | (coverage > high))
    assert 0.02 < outside < 0.07


def test_expected_coverage_holds_for_exact_split_conformal():
    rng = np.random.default_rng(1)
    low, high = expected_coverage(60, 80, TENTH)
    calib, test = np.sort(rng.random((4000, 60)), axis=1), rng.random((4000, 80))
    coverage = (test <= calib[:, [54]]).mean(axis=1)  # rank 55 of 60
    inside = ((coverage >= low) & (coverage <= high)).mean()
    assert 0.94 < inside < 0.985


def brute_run(position, covered, mass):
    n = len(covered)
    shortest = int(np.ceil(mass * n))
    worst = np.inf
    for row in position:
        hit = covered[np.argsort(row)]
        for i in range(n):
            for j in range(i + shortest, n + 1):
                worst = min(worst, hit[i:j].mean())
    return worst


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), n=st.integers(5, 40), mass=st.sampled_from([0.1, 0.2, 0.35]))
def test_worst_run_equals_a_search_of_all_runs(seed, n, mass):
    rng = np.random.default_rng(seed)
    position, covered = rng.normal(size=(3, n)), rng.random(n) < 0.7
    coverage, direction, low, high = measures._worst_run(position, covered, mass)
    assert coverage == pytest.approx(brute_run(position, covered, mass))
    inside = (position[direction] >= low) & (position[direction] <= high)
    assert inside.sum() >= mass * n
    assert covered[inside].mean() == pytest.approx(coverage)


def test_worst_slab_finds_an_uncovered_region_and_measures_it_elsewhere():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 3))
    X[:, 2] *= 1e4
    covered = ~(np.abs(X[:, 2]) / 1e4 < 0.2)  # 16 % of the rows
    slab = worst_slab(X, covered, seed=0)
    assert slab.coverage < 0.15
    assert 0.08 < slab.mass < 0.2
    assert np.argmax(np.abs(slab.direction)) == 2
    assert np.linalg.norm(slab.direction) == pytest.approx(1)


def test_worst_slab_is_honest_where_coverage_is_the_same_everywhere():
    rng = np.random.default_rng(0)
    found = [
        worst_slab(rng.normal(size=(2000, 5)), rng.random(2000) < 0.9, seed=seed).coverage
        for seed in range(12)
    ]
    assert abs(np.mean(found) - 0.9) < 0.02


def test_worst_slab_is_a_function_of_the_seed_and_of_nothing_global():
    rng = np.random.default_rng(0)
    X, covered = rng.normal(size=(400, 4)), rng.random(400) < 0.8
    a, b, c = (worst_slab(X, covered, seed=seed) for seed in (1, 1, 2))
    assert a.coverage == b.coverage
    np.testing.assert_array_equal(a.direction, b.direction)
    assert (a.direction != c.direction).any()


def test_worst_slab_with_constant_columns_or_too_few_rows():
    covered = np.arange(200) % 5 > 0
    X = np.column_stack([np.full(200, 7.0), np.arange(200.0)])
    assert worst_slab(X, covered, seed=0).direction.tolist() in ([0.0, 1.0], [0.0, -1.0])
    assert worst_slab(X[:, :1], covered, seed=0) is None
    assert worst_slab(X[:99], covered[:99], seed=0) is None


def test_worst_slab_is_quick():
    rng = np.random.default_rng(0)
    X, covered = rng.normal(size=(2000, 50)), rng.random(2000) < 0.9
    start = process_time()
    worst_slab(X, covered, seed=0)
    assert process_time() - start < 3  # 0.15 s alone; the machine may be busy


def test_size_strata_and_their_gap_by_hand():
    sizes = np.array([0, 1, 1, 2, 3, 4, 6, 7, 11, 2000])
    assert [(label, rows.tolist()) for label, rows in size_strata(sizes)] == [
        ("0-1", [0, 1, 2]), ("2-3", [3, 4]), ("4-6", [5, 6]), ("7-10", [7]), ("11-100", [8]),
        ("1001 or more", [9]),
    ]  # fmt: skip
    covered = np.array([0, 1, 1, 1, 1, 1, 0, 1, 1, 1], dtype=bool)
    assert size_stratified_gap(sizes, covered, TENTH) == pytest.approx(0.4)  # 4-6: 0.5
    assert size_stratified_gap(sizes, covered, TENTH, min_rows=3) == pytest.approx(0.9 - 2 / 3)
    assert np.isnan(size_stratified_gap(sizes, covered, TENTH, min_rows=9))


def test_class_coverage_by_hand():
    true = np.array([0, 0, 0, 0, 2, 2])
    covered = np.array([1, 1, 1, 0, 1, 0], dtype=bool)
    coverage, count = measures.class_coverage(true, covered, 3)
    np.testing.assert_array_equal(coverage, [0.75, np.nan, 0.5])
    assert count.tolist() == [4, 0, 2]


def test_evenly_spread_keeps_the_ends():
    assert evenly_spread(np.arange(5), 10).tolist() == [0, 1, 2, 3, 4]
    assert evenly_spread(np.arange(101), 5).tolist() == [0, 25, 50, 75, 100]
