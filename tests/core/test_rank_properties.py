"""Ranks, quantiles and p-values against rational arithmetic and brute force."""

import math
import warnings
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import DataError, MethodError
from assay.core.levels import conformal_rank, lower_rank, parse_alpha, parse_levels, smallest_n
from assay.core.quantiles import conformal_pvalue, conformal_quantile, lower_quantile, weighted_quantile

decimals = st.integers(1, 9999).map(lambda k: Decimal(k) / 10_000)
fractions = st.fractions(min_value=0, max_value=1, max_denominator=10_000).filter(lambda f: f < 1)
scores = st.lists(
    st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6), st.just(math.inf)), min_size=1, max_size=40
)


@given(st.integers(0, 10**12), decimals)
def test_rank_of_the_float_is_that_of_the_decimal(n, decimal):
    exact = Fraction(decimal)
    rank = math.ceil((1 - exact) * (n + 1))
    assert conformal_rank(n, float(decimal)) == rank
    assert conformal_rank(n, str(decimal)) == rank
    assert conformal_rank(n, np.float64(decimal)) == rank
    assert lower_rank(n, decimal) == n + 1 - rank


@given(st.integers(0, 10**6), fractions)
def test_rank_lies_between_1_and_n_plus_1(n, alpha):
    assert 1 <= conformal_rank(n, alpha) <= n + 1


@given(st.integers(0, 2000), st.integers(1, 999))
def test_levels_from_float_arithmetic_get_the_rank_meant(n, thousandth):
    meant = Fraction(thousandth, 1000)
    assert conformal_rank(n, 1 - (1 - thousandth / 1000)) == math.ceil((1 - meant) * (n + 1))


@given(fractions.filter(lambda f: f > 0))
def test_smallest_n_is_the_first_that_is_finite(alpha):
    n = smallest_n(alpha)
    assert conformal_rank(n, alpha) <= n
    assert conformal_rank(n - 1, alpha) > n - 1


@pytest.mark.parametrize("alpha", ["0.9999999999", 1 - 1e-12, Fraction(10**12 - 1, 10**12)])
def test_a_level_next_to_one_is_the_smallest_score(alpha):
    assert smallest_n(alpha) == 1
    assert [conformal_rank(n, alpha) for n in (0, 1, 9)] == [1, 1, 1]
    assert conformal_quantile([3.0, 1.0, 2.0], alpha) == 1.0


def test_ranks_of_small_integer_types_do_not_wrap():
    assert conformal_rank(np.int8(127), 0.1) == conformal_rank(127, 0.1) == 116
    with pytest.raises(TypeError):
        conformal_rank(9.0, 0.1)


@pytest.mark.parametrize(
    "alpha", ["1e-1000000000", "1e1000000000", Decimal("1e-999999999"), "1/0", "", "10%"]
)
def test_texts_that_are_no_level_are_refused_at_once(alpha):
    with pytest.raises(MethodError, match="alpha must"):
        parse_alpha(alpha)


def test_more_spellings():
    import torch

    assert parse_alpha(" 0.1 ") == parse_alpha("1e-1") == parse_alpha(" 1/10 ") == Fraction(1, 10)
    assert conformal_rank(9, torch.tensor(0.1)) == 9
    assert conformal_rank(19, np.longdouble("0.1")) == 18
    assert parse_levels(torch.tensor([0.5, 0.25]))[0] == (Fraction(1, 2), Fraction(1, 4))
    assert parse_levels(x for x in (0.5,)) == ((Fraction(1, 2),), False)


@pytest.mark.parametrize(
    "alpha", [np.array([[0.1]]), [[0.1]], {"a": 1}, [None], np.bool_(True), Decimal("NaN")]
)
def test_more_refused_levels(alpha):
    with pytest.raises(MethodError, match="alpha"):
        parse_levels(alpha)


@given(scores, fractions)
def test_quantile_is_the_kth_smallest(values, alpha):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = conformal_quantile(values, alpha)
    k = math.ceil((1 - alpha) * (len(values) + 1))
    assert got == (sorted(values)[k - 1] if k <= len(values) else math.inf)


@given(scores, st.lists(fractions, min_size=1, max_size=5))
def test_several_levels_are_each_level(values, levels):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        together = conformal_quantile(values, levels)
        np.testing.assert_array_equal(together, [conformal_quantile(values, level) for level in levels])


@given(scores, fractions.filter(lambda f: f > 0))
def test_pvalue_and_threshold_keep_the_same_values(values, alpha):
    candidates = np.array([*values, -1e9, 0.5, 1e9])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inside = candidates <= conformal_quantile(values, alpha)
    exact = [Fraction(1 + sum(v >= c for v in values), len(values) + 1) > alpha for c in candidates]
    np.testing.assert_array_equal(inside, exact)
    counts = np.rint(conformal_pvalue(values, candidates) * (len(values) + 1)).astype(int)
    assert [Fraction(int(count), len(values) + 1) > alpha for count in counts] == exact


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(0, 8)), min_size=1, max_size=20), fractions)
def test_weighted_quantile_is_the_definition(rows, level):
    values, weights = [float(v) for v, _ in rows], [w for _, w in rows]
    total = sum(weights) + 1
    reached = [v for v in sorted(values) if Fraction(sum(w for x, w in rows if x <= v), total) >= level]
    got = weighted_quantile(values, level, weights, 1)
    assert got == (reached[0] if reached else math.inf) or (level == 0 and got == min(values))


@given(st.integers(1, 300), fractions)
def test_equal_weights_are_the_rank(n, alpha):
    values = np.random.default_rng(n).normal(size=n)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert conformal_quantile(values, alpha, np.full(n, 0.3), 0.3) == conformal_quantile(values, alpha)


@settings(max_examples=5)
@given(st.integers(0, 10**6))
def test_all_the_weight_is_reached_without_a_test_weight(seed):
    rng = np.random.default_rng(seed)
    values, weights = rng.normal(size=200_000), rng.random(200_000)
    assert weighted_quantile(values, 1.0, weights) == values.max()


def test_huge_and_tiny_weights_neither_overflow_nor_vanish():
    assert weighted_quantile([1, 2, 3], 0.5, [1e308, 1e308, 1e308]) == 2
    assert weighted_quantile([1, 2, 3], 0.5, [5e-324, 5e-324, 5e-324]) == 2
    assert weighted_quantile([1, 2, 3], 0.9, [1e-300, 1e-300, 1e-300], 1.0) == math.inf


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([1, -1, 1, -2], "negative in 2 of 4 rows, first at row 1"),
        ([1, np.nan, 1, 1], "NaN in 1 of 4 rows, first at row 1"),
        ([1, 1, np.inf, 1], "infinite in 1 of 4 rows, first at row 2"),
        ([1, 1], "weights has 2 rows, 4 are expected"),
        ([0, 0, 0, 0], "add up to zero"),
    ],
)
def test_impossible_weights_are_refused_by_row(weights, words):
    with pytest.raises(DataError, match=words):
        weighted_quantile([1, 2, 3, 4], 0.5, weights)


def test_lower_quantile_mirrors_the_upper_one():
    rng = np.random.default_rng(0)
    for n in (1, 4, 9, 19, 30):
        values = rng.normal(size=n)
        for alpha in (0.05, 0.1, 0.2, 0.5, 0.7):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert lower_quantile(values, alpha) == -conformal_quantile(-values, alpha)


def test_no_scores_are_infinite_with_a_warning():
    with pytest.warns(UserWarning, match=r"0 calibration rows at alpha 0\.1: at least 9"):
        assert conformal_quantile([], 0.1) == math.inf
    assert conformal_pvalue([], [1.0, 2.0]).tolist() == [1.0, 1.0]


def test_the_scores_given_stay_as_they_are():
    values = np.array([3.0, 1.0, 2.0])
    values.flags.writeable = False
    assert conformal_quantile(values, 0.5) == 2.0
    assert values.tolist() == [3.0, 1.0, 2.0]


def test_nan_test_scores_are_refused_by_row():
    with pytest.raises(DataError, match="test_scores is NaN in 1 of 3 rows, first at row 2"):
        conformal_pvalue([1, 2], [0, 1, np.nan])
