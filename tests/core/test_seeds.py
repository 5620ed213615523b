"""Random numbers by content: reproducible, independent of the batch, and uniform."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from assay.core.errors import MethodError
from assay.core.seeds import derive_seed, row_keys, row_uniforms, seed_of, unordered_row_keys

tables = arrays(
    np.float64,
    st.tuples(st.integers(0, 8), st.integers(0, 4)),
    elements=st.floats(allow_nan=False, width=32),
)


@pytest.mark.parametrize("keys_of", [row_keys, unordered_row_keys])
@given(tables)
def test_keys_do_not_depend_on_the_batch_the_type_or_the_layout(keys_of, X):
    keys = keys_of(X, 3)
    assert keys.shape == (len(X),)
    for i in range(len(X)):
        assert keys_of(X[i : i + 1], 3)[0] == keys[i]
    np.testing.assert_array_equal(keys_of(X.astype(np.float32), 3), keys)
    np.testing.assert_array_equal(keys_of(np.asfortranarray(X), 3), keys)
    np.testing.assert_array_equal(keys_of(X[::-1], 3), keys[::-1])
    np.testing.assert_array_equal(keys_of(-0.0 + X * 1, 3), keys_of(X + 0.0, 3))


def test_zero_rows_zero_columns_vectors_and_images():
    assert row_keys(np.empty((0, 3)), 0).shape == (0,)
    assert row_keys(np.empty((4, 0)), 0).shape == (4,)
    np.testing.assert_array_equal(row_keys(np.arange(3.0), 0), row_keys(np.arange(3.0)[:, None], 0))
    images = np.arange(24.0).reshape(2, 3, 4)
    np.testing.assert_array_equal(row_keys(images, 0), row_keys(images.reshape(2, 12), 0))
    assert row_uniforms(np.empty(0, np.uint64), 3).shape == (0, 3)


def test_other_seeds_streams_and_orders_of_columns_are_other_keys():
    X = np.random.default_rng(0).normal(size=(1000, 3))
    keys = row_keys(X, 0)
    for other in (row_keys(X, 1), row_keys(X, 0, "b"), row_keys(X[:, ::-1], 0)):
        assert not (other == keys).any()
    assert len(np.unique(keys)) == 1000


@given(tables)
def test_unordered_keys_forget_the_order_of_columns_only(X):
    np.testing.assert_array_equal(unordered_row_keys(X[:, ::-1], 0), unordered_row_keys(X, 0))


def test_unordered_keys_tell_rows_apart():
    grid = np.array([[a, b] for a in range(60) for b in range(a, 60)], float)
    assert len(np.unique(unordered_row_keys(grid, 0))) == len(grid)


@pytest.mark.parametrize("rows", ["random", "counting", "one bit apart"])
def test_uniforms_are_uniform_and_rows_independent(rows):
    n = 4000
    X = {
        "random": np.random.default_rng(0).normal(size=(n, 2)),
        "counting": np.arange(n, dtype=float)[:, None],
        "one bit apart": (np.float64(1).view(np.uint64) + np.arange(n, dtype=np.uint64)).view(np.float64)[
            :, None
        ],
    }[rows]
    u = row_uniforms(row_keys(X, 7), 4)
    for column in u.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-3
    correlations = np.corrcoef(np.column_stack([u, u[np.r_[1:n, 0]]]).T)
    assert np.abs(correlations - np.eye(8)).max() < 5 / np.sqrt(n)
    assert stats.kstest(row_uniforms(row_keys(X[:2], 7), n)[1], "uniform").pvalue > 1e-3


def test_uniforms_never_touch_0_or_1():
    # the keys whose next mixed word is all zeros or all ones are found by inverting the mixer
    from assay.core import seeds

    def unmix(z):
        mask = 2**64 - 1
        z ^= z >> 31 ^ z >> 62
        z = z * pow(int(seeds._MIX2), -1, 2**64) & mask
        z ^= z >> 27 ^ z >> 54
        z = z * pow(int(seeds._MIX1), -1, 2**64) & mask
        return z ^ z >> 30 ^ z >> 60

    for word, bound in ((2**64 - 1, 1), (0, 0)):
        key = np.uint64((unmix(word) - int(seeds._GOLDEN)) % 2**64)
        assert row_uniforms(np.array([key]), 1)[0, 0] != bound
        assert 0 < row_uniforms(np.array([key]), 1)[0, 0] < 1


def test_a_sequence_goes_on_where_it_stopped():
    keys = row_keys(np.arange(5.0), 0)
    np.testing.assert_array_equal(
        np.hstack([row_uniforms(keys, 3), row_uniforms(keys, 4, start=3)]), row_uniforms(keys, 7)
    )


def test_seeds_are_the_same_in_every_process():
    code = "from assay.core.seeds import derive_seed; print(derive_seed('trial', 3, 'split'))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(out) == derive_seed("trial", 3, "split")
    assert derive_seed("a", "bc") != derive_seed("ab", "c")
    assert 0 <= derive_seed() < 2**32


def test_seed_of_every_random_state():
    assert seed_of(5) == seed_of(np.int64(5)) == 5
    assert seed_of(np.random.default_rng(0)) == seed_of(np.random.default_rng(0))
    assert seed_of(np.random.RandomState(0)) == seed_of(np.random.RandomState(0))
    assert seed_of(None) != seed_of(None)
    generator = np.random.default_rng(0)
    assert seed_of(generator) != seed_of(generator)
    with pytest.raises(MethodError, match="random_state must be None"):
        seed_of("seven")
