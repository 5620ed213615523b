"""The majority over calibration parts: thresholds, their exact miscoverage, and what poison does to them."""

import itertools
from fractions import Fraction

import numpy as np
import pytest

from assay.conformal.majority import (
    MajorityRule,
    binomial_threshold,
    conformity_rank,
    exact_threshold,
    miscoverage,
)
from assay.core.errors import MethodError

TENTH = Fraction(1, 10)


@pytest.mark.parametrize(("parts", "expected"), [(1, 0), (2, 0), (3, 1), (5, 3), (10, 7), (22, 17), (40, 33)])
def test_binomial_threshold_at_a_tenth(parts, expected):
    assert binomial_threshold(parts, TENTH) == expected


def test_binomial_threshold_elsewhere():
    assert [binomial_threshold(k, Fraction(1, 20)) for k in (22, 40)] == [18, 35]
    assert binomial_threshold(5, Fraction(0)) == 4


@pytest.mark.parametrize(
    ("parts", "rows", "coverage", "exact"),
    [
        (22, 45, 0.9079, 18),
        (40, 25, 0.9296, 36),
        (10, 100, 0.8936, 6),
        (5, 200, 0.8959, 2),
        (20, 9, 0.8460, 11),
    ],
)
def test_exact_miscoverage_of_the_specification(parts, rows, coverage, exact):
    ranks = [conformity_rank(rows, TENTH, "published")] * parts
    missed = miscoverage([rows] * parts, ranks)
    assert 1 - missed[binomial_threshold(parts, TENTH)] == pytest.approx(coverage, abs=5e-5)
    assert exact_threshold([rows] * parts, ranks, TENTH) == exact


def test_one_part_is_split_conformal():
    for n in (9, 19, 40):
        rank = conformity_rank(n, TENTH, "tight")
        missed = miscoverage([n], [rank])
        assert missed[0] == pytest.approx(rank / (n + 1), abs=1e-9)
        assert exact_threshold([n], [rank], TENTH) == 0


def test_unequal_parts_against_a_simulation():
    rng = np.random.default_rng(0)
    sizes, repeats = [9, 15, 30, 8], 40_000
    ranks = [conformity_rank(n, TENTH, "tight") for n in sizes]
    assert ranks == [1, 1, 3, 0]
    u = rng.random(repeats)
    held = np.ones(repeats, dtype=int)  # the part with 8 rows holds everything
    for n, rank in zip(sizes[:3], ranks[:3], strict=True):
        held += u >= np.sort(rng.random((repeats, n)), axis=1)[:, rank - 1]
    simulated = [(held <= t).mean() for t in range(5)]
    np.testing.assert_allclose(miscoverage(sizes, ranks), simulated, atol=0.006)


@pytest.mark.parametrize(
    ("n", "tight", "published"), [(8, 0, 0), (9, 1, 1), (19, 2, 1), (45, 4, 3), (100, 10, 9)]
)
def test_ranks(n, tight, published):
    assert conformity_rank(n, TENTH, "tight") == tight
    assert conformity_rank(n, TENTH, "published") == published


@pytest.mark.parametrize("sizes", [[12, 19, 30], [9, 9, 20, 31], [40, 41, 39, 40, 38, 57]])
@pytest.mark.parametrize("alpha", [Fraction(1, 10), Fraction(1, 5)])
def test_exact_thresholds_after_any_change_of_sizes_lie_within_the_bounds(sizes, alpha):
    rule = MajorityRule.make("exact", sizes, alpha, "tight", poisoned=True)
    for r in (1, 2, 3):
        for changes in itertools.product(range(-r, r + 1), repeat=len(sizes)):
            if sum(map(abs, changes)) > r or r > len(sizes):
                continue
            poisoned = [n + d for n, d in zip(sizes, changes, strict=True)]
            ranks = [conformity_rank(n, alpha, "tight") for n in poisoned]
            t = exact_threshold(poisoned, ranks, alpha)
            assert rule.lowest[r] <= t <= rule.highest[r], (r, changes)


def test_radii_of_the_published_rule_are_differences():
    rule = MajorityRule.make("binomial", [30] * 10, TENTH, "published", poisoned=True)
    held = np.arange(11)
    np.testing.assert_array_equal(rule.coverage_radius(held), np.maximum(held - 7 - 1, -1))
    np.testing.assert_array_equal(rule.size_radius(held), np.maximum(7 - held, -1))


def test_names():
    with pytest.raises(MethodError, match="majority must be one of binomial, exact"):
        MajorityRule.make("most", [10], TENTH, "tight")
    with pytest.raises(MethodError, match="rank one of published, tight"):
        MajorityRule.make("exact", [10], TENTH, "loose")
