"""Exact order statistics: equal to brute force to the last bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.conformal.selection import kth_near_sorted, kth_of_shifted


def brute(offsets, lists, k):
    return np.sort(np.concatenate([o + v[:, None] for o, v in zip(offsets, lists, strict=True)]), axis=0)[
        k - 1
    ]


@pytest.mark.parametrize("scale", [1.0, 1e-9, 1e9])
@pytest.mark.parametrize("decimals", [0, 12])
def test_shifted_lists_equal_brute_force(scale, decimals):
    rng = np.random.default_rng(0)
    lists = [np.sort(np.round(rng.exponential(size=n) * 3, decimals)) for n in (1, 7, 300, 1000)]
    offsets = (rng.normal(size=(4, 57)) + 1e3) * scale
    lists = [v * scale for v in lists]
    for k in (1, 2, 700, 1200, 1307, 1308):
        np.testing.assert_array_equal(kth_of_shifted(offsets, lists, k), brute(offsets, lists, k))


def test_rounding_of_sums_at_a_large_offset_is_kept():
    # at 1e9 neighbouring residuals give equal sums: the answer is still one of the sums
    rng = np.random.default_rng(1)
    lists = [np.sort(rng.exponential(size=500) * 1e-6) for _ in range(5)]
    offsets = 1e9 + rng.normal(size=(5, 20)) * 1e-6
    for k in (1, 1250, 2250, 2500):
        np.testing.assert_array_equal(kth_of_shifted(offsets, lists, k), brute(offsets, lists, k))


def test_many_ties_and_little_memory():
    lists = [np.zeros(400), np.ones(300), np.repeat([0.0, 2.0], 200)]
    offsets = np.array([[0.0, 5.0, 1.0], [0.0, -3.0, 0.0], [0.0, 0.0, 1.0]])
    for k in (1, 400, 600, 1100):
        np.testing.assert_array_equal(
            kth_of_shifted(offsets, lists, k, max_bytes=1), brute(offsets, lists, k)
        )


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_shifted_lists_property(data):
    number = st.floats(-1e6, 1e6, allow_subnormal=False).map(lambda v: round(v, 3))
    lists = data.draw(st.lists(st.lists(number.map(abs), min_size=1, max_size=80), min_size=1, max_size=4))
    lists = [np.sort(np.array(v)) for v in lists]
    columns = data.draw(st.integers(1, 3))
    offsets = np.array(
        [data.draw(st.lists(number, min_size=columns, max_size=columns)) for _ in lists], dtype=float
    )
    k = data.draw(st.integers(1, sum(map(len, lists))))
    np.testing.assert_array_equal(kth_of_shifted(offsets, lists, k), brute(offsets, lists, k))


@pytest.mark.parametrize("max_bytes", [1, 10**5, 10**8])
def test_near_sorted_computes_few_candidates_and_is_exact(max_bytes):
    rng = np.random.default_rng(2)
    base = np.sort(rng.exponential(size=2000))
    base[:50] = 0
    reach = np.concatenate([rng.uniform(0, 0.05, 60), [0.9, 1.5]])
    table = base * (1 + reach[:, None] * rng.uniform(-1, 1, size=(len(reach), len(base))))
    seen = []

    def evaluate(rows, start, stop):
        seen.append(len(rows) * (stop - start))
        return table[rows, start:stop]

    for k in (1, 30, 1000, 1900, 2000):
        got = kth_near_sorted(base, k, 1 - reach, 1 + reach, evaluate, max_bytes)
        np.testing.assert_array_equal(got, np.sort(table, axis=1)[:, k - 1])
    if max_bytes == 10**5:
        assert sum(seen) < 5 * table.size / 4
