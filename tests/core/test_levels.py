"""The exact rank: what many libraries get wrong."""

import math
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from assay.core.errors import InfiniteSetWarning, MethodError
from assay.core.levels import conformal_rank, lower_rank, parse_alpha, parse_levels, smallest_n
from assay.core.quantiles import conformal_pvalue, conformal_quantile, weighted_quantile


@pytest.mark.parametrize(
    ("n", "alpha", "rank"),
    [(9, 0.1, 9), (4, 0.2, 4), (19, 0.1, 18), (9, 0.2, 8), (14, 0.2, 12), (9, 0.7, 3), (19, 0.7, 6),
     (19, 0.95, 1), (1, 0.5, 1), (5, 0.1, 6), (20, 0.1, 19), (19, 0.05, 19)],
)  # fmt: skip
def test_rank_of_the_decimal_that_was_typed(n, alpha, rank):
    assert conformal_rank(n, alpha) == rank


def test_rank_equals_rational_arithmetic_everywhere():
    for hundredth in range(1, 100):
        exact = Fraction(hundredth, 100)
        typed = hundredth / 100
        for n in [*range(1, 201), 999, 1000, 2999, 3000]:
            assert conformal_rank(n, typed) == math.ceil((1 - exact) * (n + 1))
            assert lower_rank(n, typed) == math.floor(exact * (n + 1))


def test_level_from_float_arithmetic_is_forgiven():
    assert conformal_rank(9, 1 - 0.9) == 9
    assert conformal_rank(2, 1 / 3) == 2


@pytest.mark.parametrize(
    "alpha",
    [0.1, "0.1", "1/10", Decimal("0.1"), Fraction(1, 10), np.float32(0.1), np.float16(0.1), np.array(0.1)],
)
def test_every_spelling_of_one_tenth(alpha):
    assert parse_alpha(alpha) == Fraction(1, 10)


@pytest.mark.parametrize("alpha", [1, -0.1, 1.5, float("nan"), float("inf"), None, True, "ten", [0.1], 1j])
def test_refused_levels(alpha):
    with pytest.raises(MethodError, match="alpha must"):
        parse_alpha(alpha)


def test_levels_scalar_or_sequence():
    assert parse_levels(0.1) == ((Fraction(1, 10),), True)
    assert parse_levels([0.1, "0.05"]) == ((Fraction(1, 10), Fraction(1, 20)), False)
    assert parse_levels(np.array([0.2])) == ((Fraction(1, 5),), False)
    with pytest.raises(MethodError, match="empty"):
        parse_levels([])


@pytest.mark.parametrize(("alpha", "n"), [(0.1, 9), (0.05, 19), (0.04, 24), (0.2, 4), (0, None), (0.3, 3)])
def test_smallest_n_is_the_first_finite_one(alpha, n):
    assert smallest_n(alpha) == n
    if n is not None:
        assert conformal_rank(n, alpha) <= n
        assert conformal_rank(n - 1, alpha) > n - 1


def test_quantile_small_cases():
    assert conformal_quantile(np.arange(1, 10), 0.1) == 9
    assert conformal_quantile(np.arange(1, 20), 0.05) == 19
    assert conformal_quantile(np.arange(1, 10), 0.7) == 3
    with pytest.warns(InfiniteSetWarning, match=r"8 calibration rows at alpha 0\.1: at least 9"):
        assert conformal_quantile(np.arange(1, 9), 0.1) == np.inf


def test_quantile_of_several_levels_and_infinite_scores():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(conformal_quantile(np.arange(1, 20), [0.1, 0.5]), [18, 10])
        assert conformal_quantile([1, np.inf, 2, np.inf], 0.5) == np.inf


def test_nan_score_is_refused_with_row_and_count():
    with pytest.raises(ValueError, match=r"NaN in 2 of 4 rows, first at row 1"):
        conformal_quantile([0, np.nan, 1, np.nan], 0.5)


def test_weighted_quantile_is_nexcp_example():
    scores, weights = [1, 2, 3], [0.125, 0.25, 0.5]
    assert conformal_quantile(scores, 0.6, weights) == 3
    assert conformal_quantile(scores, 0.8, weights) == 2
    assert conformal_quantile(scores, 0.5, weights) == np.inf
    assert weighted_quantile([3, 1, 2], 1.0, [1, 1, 1]) == 3


def test_equal_weights_are_the_plain_rank():
    rng = np.random.default_rng(0)
    for n in (5, 19, 40):
        s = rng.normal(size=n)
        for alpha in (0.2, 0.3, 0.5, 0.9):
            assert conformal_quantile(s, alpha, np.ones(n)) == conformal_quantile(s, alpha)


def test_pvalue_keeps_exactly_what_the_rank_keeps():
    rng = np.random.default_rng(1)
    s = rng.integers(0, 6, 25).astype(float)
    test = np.arange(-1, 8).astype(float)
    for alpha in (0.1, 0.2, 0.5):
        np.testing.assert_array_equal(conformal_pvalue(s, test) > alpha, test <= conformal_quantile(s, alpha))
