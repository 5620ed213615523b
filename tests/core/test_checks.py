"""Every kind of array that users have: taken as what it means, or refused with numbers."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

from assay.core.checks import (
    check_target,
    check_vector,
    refuse_infinite,
    refuse_nan,
    row_count,
    to_float,
    to_numpy,
)
from assay.core.errors import DataError

NUMBERS = [0.5, -2.0, 3.0]
KINDS = {
    "list": NUMBERS,
    "tuple": tuple(NUMBERS),
    "float16": np.array(NUMBERS, np.float16),
    "float32": np.array(NUMBERS, np.float32),
    "longdouble": np.array(NUMBERS, np.longdouble),
    "objects": np.array(NUMBERS, object),
    "column": np.array(NUMBERS)[:, None],
    "big-endian": np.array(NUMBERS, ">f8"),
    "masked without a mask": np.ma.array(NUMBERS),
    "Series": pd.Series(NUMBERS, index=[9, 8, 7]),
    "nullable Series": pd.Series(NUMBERS, dtype="Float64"),
    "DataFrame": pd.DataFrame({"y": NUMBERS}),
    "arrow Series": pd.Series(NUMBERS, dtype="double[pyarrow]"),
    "polars": pl.Series(NUMBERS),
    "tensor": torch.tensor(NUMBERS),
    "tensor with gradient": torch.tensor(NUMBERS, requires_grad=True),
    "bfloat16": torch.tensor(NUMBERS, dtype=torch.bfloat16),
    "half tensor": torch.tensor(NUMBERS, dtype=torch.float16),
    "column tensor": torch.tensor(NUMBERS, dtype=torch.float64)[:, None],
}


@pytest.mark.parametrize("values", KINDS.values(), ids=KINDS)
def test_every_kind_of_numbers(values):
    vector = check_vector(values, "y", length=3)
    assert vector.dtype == np.float64
    assert vector.tolist() == NUMBERS
    assert row_count(values) == 3


@pytest.mark.parametrize(
    "values", [[True, False, True], np.array([1, 0, 1], np.int8), torch.tensor([1, 0, 1])]
)
def test_integers_and_booleans_are_numbers(values):
    assert check_vector(values, "y").tolist() == [1, 0, 1]


MISSING = {
    "NaN": [1.0, np.nan, 3.0, np.nan],
    "None": [1.0, None, 3.0, None],
    "objects": np.array([1.0, np.nan, 3, None], object),
    "Series with None": pd.Series([1.0, None, 3.0, None]),
    "nullable": pd.Series([1, None, 3, None], dtype="Int64"),
    "nullable float": pd.Series([1, None, 3, None], dtype="Float64"),
    "arrow": pd.Series([1, None, 3, None], dtype="int64[pyarrow]"),
    "polars": pl.Series([1.0, None, 3.0, None]),
    "polars integers": pl.Series([1, None, 3, None]),
    "masked": np.ma.array([1.0, 2.0, 3.0, 4.0], mask=[0, 1, 0, 1]),
    "masked integers": np.ma.array([1, 2, 3, 4], mask=[0, 1, 0, 1]),
    "tensor": torch.tensor([1.0, float("nan"), 3.0, float("nan")]),
}


@pytest.mark.parametrize("values", MISSING.values(), ids=MISSING)
def test_missing_is_refused_by_first_row_and_count(values):
    with pytest.raises(DataError, match="y is NaN in 2 of 4 rows, first at row 1"):
        check_vector(values, "y")


TEXTS = {
    "text": ["a", "b"],
    "digits": ["1", "2"],
    "bytes": [b"1", b"2"],
    "objects with digits": np.array([1.0, "2"], object),
    "string Series": pd.Series(["1", "2"]),
    "dates": np.array(["2020-01-01", "2020-01-02"], "datetime64[D]"),
    "time spans": np.array([1, 2], "timedelta64[s]"),
    "complex": np.array([1 + 1j, 2]),
    "dicts": [{"a": 1}, {"b": 2}],
    "categories": pd.Series(["a", "b"], dtype="category"),
    "records": np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]),
}


@pytest.mark.parametrize("values", TEXTS.values(), ids=TEXTS)
def test_what_is_no_number_is_refused(values):
    with pytest.raises(DataError, match=r"^y"):
        check_vector(values, "y")


@pytest.mark.parametrize("values", [3.0, np.zeros((2, 2)), np.zeros((2, 1, 1)), [[1, 2], [3, 4]]])
def test_shapes_that_are_no_vector_are_named(values):
    with pytest.raises(DataError, match=r"y has shape \("):
        check_vector(values, "y")


def test_infinite_scores_pass_and_infinite_targets_do_not():
    assert check_vector([np.inf, -np.inf, 1], "scores").tolist() == [np.inf, -np.inf, 1]
    with pytest.raises(DataError, match="y is infinite in 2 of 3 rows, first at row 0"):
        check_target([np.inf, -np.inf, 1])


def test_numbers_whose_sum_overflows_are_neither_nan_nor_infinite():
    huge = np.full(4, 1.7e308)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_target(huge).tolist() == huge.tolist()
        refuse_nan(np.array([huge[:2], -huge[:2]]), "y")
        refuse_infinite(huge, "y")


def test_rows_of_tables_are_counted_once():
    table = np.zeros((5, 3))
    table[[1, 4]] = np.nan
    with pytest.raises(DataError, match="X is NaN in 2 of 5 rows, first at row 1"):
        refuse_nan(table, "X")
    table[1, 0], table[2, 2] = np.inf, np.inf
    with pytest.raises(DataError, match="X is infinite in 2 of 5 rows, first at row 1"):
        refuse_infinite(table, "X")


def test_float64_is_not_copied():
    array = np.zeros(3)
    assert check_vector(array, "y").base is array or check_vector(array, "y") is array
    assert to_float(array, "y") is array


def test_the_caller_keeps_its_tensor():
    tensor = torch.ones(3, requires_grad=True)
    to_numpy(tensor)
    assert tensor.requires_grad
    assert tensor.grad is None


def test_empty_vectors_are_vectors():
    for values in ([], np.empty(0, int), np.empty((0, 1)), np.array([], object), torch.empty(0)):
        assert check_vector(values, "y").shape == (0,)


def test_row_count_of_what_has_no_rows():
    for nothing in (np.float64(3), torch.tensor(1.0)):
        with pytest.raises(DataError, match="single number"):
            row_count(nothing)
    with pytest.raises(DataError, match="got generator"):
        row_count(x for x in "ab")
