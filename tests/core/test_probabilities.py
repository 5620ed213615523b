"""What is accepted as probabilities and labels, and how the rest is refused."""

import numpy as np
import pandas as pd
import pytest

from assay.core.errors import DataError
from assay.core.probabilities import (
    Probabilities,
    check_labels,
    classes_of_columns,
    distinct_labels,
    encode_labels,
    is_probability,
    known_labels,
    softmax,
)


def rows(n=10, k=4, dtype=np.float64):
    p = np.random.default_rng(0).dirichlet(np.ones(k), size=n)
    return p.astype(dtype)


def test_float32_row_that_is_off_by_twice_ten_to_minus_five_is_accepted():
    p = rows(dtype=np.float32)
    p[3] *= 1 + 2e-5
    Probabilities(p).check()
    Probabilities(p.astype(np.float64)).check()


@pytest.mark.parametrize(("dtype", "factor"), [(np.float32, 1.005), (np.float64, 1.0005), (np.float64, 0.9)])
def test_row_that_does_not_sum_to_one_is_refused_by_number(dtype, factor):
    p = rows(dtype=dtype)
    p[[4, 7]] *= dtype(factor)
    with pytest.raises(DataError, match=r"sums to .* instead of 1 .*first at row 4; 2 of 10 rows"):
        Probabilities(p).check()


@pytest.mark.parametrize(
    ("value", "message"),
    [(np.nan, "NaN in column 2, first at row 5"), (np.inf, "infinite in column 2"), (-0.25, "negative")],
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_bad_values_are_named(value, message, dtype):
    p = rows(dtype=dtype)
    p[5, 2] = value
    with pytest.raises(ValueError, match=message):
        Probabilities(p).check()


def test_bad_rows_are_counted_over_all_blocks_and_the_first_is_named():
    p = rows(1000, 3)
    p[[10, 500, 999], 1] = np.nan
    checked = Probabilities(p)
    with pytest.raises(DataError, match="first at row 10; 3 of 1000 rows"):
        list(checked.blocks(max_bytes=24 * 7))


def test_negative_that_leaves_the_sum_at_one_is_refused():
    with pytest.raises(DataError, match=r"negative \(-0\.1\) in column 0, first at row 1"):
        Probabilities([[0.5, 0.5], [-0.1, 1.1]]).check()


def test_blocks_cover_all_rows_in_order_whatever_the_layout():
    p = rows(23, 3)
    for layout in (p, np.asfortranarray(p), pd.DataFrame(p), p.tolist(), p.astype(np.float32)[::1]):
        parts = list(Probabilities(layout).blocks(max_bytes=5 * 24))
        assert [part[0].start for part in parts][:2] == [0, len(parts[0][1])]
        np.testing.assert_allclose(np.concatenate([block for _, block in parts]), p, atol=1e-7)
        assert all(block.flags.c_contiguous for _, block in parts)
    assert list(Probabilities(p[:0]).blocks()) == []


def test_float32_is_not_copied_and_float16_is_read_as_float32():
    p = rows(dtype=np.float32)
    assert np.shares_memory(next(Probabilities(p).blocks())[1], p)
    assert next(Probabilities(rows(dtype=np.float16)).blocks())[1].dtype == np.float32


@pytest.mark.parametrize("bad", [np.ones(3), np.ones((2, 3, 1)), np.ones((3, 0)), [["a", "b"]]])
def test_wrong_shapes_and_text(bad):
    with pytest.raises(DataError):
        Probabilities(bad)


def test_wrong_number_of_columns():
    with pytest.raises(DataError, match="4 columns, 3 classes"):
        Probabilities(rows(), n_classes=3)


def test_softmax_and_what_counts_as_probability():
    np.testing.assert_allclose(softmax([[0.0, np.log(3)]]), [[0.25, 0.75]])
    np.testing.assert_allclose(softmax([np.log(3), -1000.0]), [[0.25, 0.75], [1, 0]])
    assert softmax(np.array([[9, -9]], np.float16)).dtype == np.float32
    assert is_probability(rows())
    assert not is_probability(np.log(rows()))
    assert is_probability(np.array([0.2, 1.0]))
    assert not is_probability(np.array([[0.2], [1.5]]))


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([1.0, np.nan], "NaN or infinite in 1 of 2 rows, first at row 1"),
        (np.array(["a", None], object), "first at row 1"),
        (pd.Series(["a", pd.NA]), "first at row 1"),
        ([0.5, 1.0], r"Unknown label type: .*0\.5 at row 0"),
        ([[1, 2], [3, 4]], "shape"),
    ],
)
def test_labels_refused(y, message):
    with pytest.raises(DataError, match=message):
        check_labels(y)


def test_labels_of_any_kind():
    assert check_labels([[1], [2]]).tolist() == [1, 2]
    assert check_labels(pd.Series(["a", "b"])).tolist() == ["a", "b"]
    assert check_labels([True, False]).dtype == bool
    with pytest.raises(DataError, match="3 rows, 2 are expected"):
        check_labels([1, 2, 3], length=2)
    with pytest.raises(DataError, match="mix types"):
        distinct_labels(np.array(["a", 1], object))


def test_codes_in_the_order_of_the_classes():
    assert encode_labels(np.array(["b", "x", "a"]), np.array(["b", "a"])).tolist() == [0, -1, 1]
    assert encode_labels(np.array(["b", "x"], object), np.array(["b", "a"])).tolist() == [0, -1]
    assert encode_labels(np.array([1.0, 3.0]), np.array([3, 1])).tolist() == [1, 0]
    assert encode_labels(np.array([1, 0]), np.array(["0", "1"])).tolist() == [-1, -1]
    with pytest.raises(DataError, match=r"'x' at row 1, which is none of the 2 classes .*1 of 3 rows"):
        known_labels(np.array(["b", "x", "a"]), np.array(["a", "b"]))


def test_whose_column_is_it():
    assert classes_of_columns(np.array([0, 2]), 4).tolist() == [0, 1, 2, 3]
    assert classes_of_columns(np.array([3, 1, 2]), 3).tolist() == [1, 2, 3]
    assert classes_of_columns(np.array(["no", "yes"]), 2).tolist() == ["no", "yes"]
    assert classes_of_columns(np.array([True, True]), 2).tolist() == [False, True]
    assert classes_of_columns(np.array(["b"]), 2, ["b", "a"]).tolist() == ["b", "a"]
    with pytest.raises(DataError, match=r"give classes="):
        classes_of_columns(np.array(["no", "yes"]), 3)
    with pytest.raises(DataError, match="twice"):
        classes_of_columns(np.array([0]), 2, ["a", "a"])
    with pytest.raises(DataError, match="3 labels for 2 columns"):
        classes_of_columns(np.array([0]), 2, ["a", "b", "c"])
