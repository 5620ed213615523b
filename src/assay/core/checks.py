"""Checks of arrays that methods are given: shapes, NaN, probabilities, labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.errors import DataError

FloatArray = NDArray[np.float64]


def to_numpy(values: Any) -> NDArray[Any]:
    """Array of anything array-like: lists, DataFrames, torch tensors (detached, on the CPU).

    What is marked as missing in a masked array or a nullable column becomes NaN.
    """
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        try:
            return np.asarray(values.numpy())
        except TypeError:  # bfloat16 and narrower kinds, which numpy does not have
            return np.asarray(values.float().numpy())
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values)
        if not mask.any():
            return np.asarray(values.data)
        holder = np.float64 if values.dtype.kind in "biuf" else object
        return np.where(mask, np.nan, values.data.astype(holder))
    if hasattr(values, "to_numpy"):
        return np.asarray(values.to_numpy())
    return np.asarray(values)


def check_scores(scores: ArrayLike, name: str = "scores") -> FloatArray:
    """(n,) float64 scores without NaN; +-inf passes. (n, 1) means the same as (n,)."""
    return check_vector(scores, name)


def as_vector(values: Any, name: str, *, length: int | None = None) -> FloatArray:
    """(n,) float64 vector; (n, 1) is flattened. NaN is not looked for.

    Raises
    ------
    DataError
        Wrong shape or length, or not numbers.
    """
    array = to_numpy(values)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(f"{name} has shape {array.shape}; give one number a row, shape (n,)")
    vector = to_float(array, name)
    if length is not None and len(vector) != length:
        raise DataError(f"{name} has {len(vector)} rows, {length} are expected")
    return vector


def check_vector(values: Any, name: str, *, length: int | None = None) -> FloatArray:
    """(n,) float64 vector without NaN; (n, 1) is flattened.

    Raises
    ------
    DataError
        Wrong shape or length, not numbers, or NaN (naming the first row and the count).
    """
    vector = as_vector(values, name, length=length)
    refuse_nan(vector, name)
    return vector


def to_float(array: NDArray[Any], name: str) -> FloatArray:
    """float64 copy (or the same array); refuses text, dates and complex numbers by name.

    None and pandas' NA among objects become NaN.
    """
    if array.dtype.kind == "c":
        raise DataError(f"{name}: Complex data not supported; give real numbers")
    if array.dtype.kind in "biuf":
        return np.asarray(array, dtype=np.float64)
    if array.dtype.kind == "O":
        missing = np.vectorize(_is_missing, otypes=[np.bool_])(array) if array.size else array.astype(bool)
        texts = np.vectorize(_is_text, otypes=[np.bool_])(array) if array.size else missing
        if not texts.any():
            try:
                return np.where(missing, np.nan, array).astype(np.float64)
            except (TypeError, ValueError):
                pass
    raise DataError(f"{name} holds values that are not numbers (dtype {array.dtype})")


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ in {"NAType", "NaTType"}


def _is_text(value: Any) -> bool:
    return isinstance(value, str | bytes)


def refuse_nan(array: NDArray[Any], name: str) -> None:
    """Raise a DataError that names the first row with a NaN and how many rows have one."""
    # a sum is one pass without a temporary; NaN or inf - inf in it asks for the full look
    with np.errstate(all="ignore"):
        if not np.isnan(array.sum()):
            return
    bad = np.isnan(array)
    if array.ndim > 1:
        bad = bad.any(axis=tuple(range(1, array.ndim)))
    count = int(bad.sum())
    if count:
        first = int(np.argmax(bad))
        raise DataError(
            f"{name} is NaN in {count} of {len(array)} rows, first at row {first}; "
            "leave those rows out or fill them before"
        )


def sums_to_finite(array: NDArray[Any]) -> bool:
    """Whether the sum is finite: then no value is NaN or infinite. One pass without a temporary."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(array.sum()))


def refuse_infinite(array: NDArray[Any], name: str) -> None:
    """Raise a DataError that names the first row with an infinite value and how many rows have one."""
    if sums_to_finite(array):
        return
    bad = np.isinf(array)
    if array.ndim > 1:
        bad = bad.any(axis=tuple(range(1, array.ndim)))
    count = int(bad.sum())
    if count:
        raise DataError(
            f"{name} is infinite in {count} of {len(array)} rows, first at row {int(np.argmax(bad))}"
        )


def check_target(y: Any, *, length: int | None = None, name: str = "y") -> FloatArray:
    """(n,) float64 target of a regression: finite numbers."""
    vector = as_vector(y, name, length=length)
    if not sums_to_finite(vector):
        refuse_nan(vector, name)
        refuse_infinite(vector, name)
    return vector


def calibration_given(X_calib: Any, y_calib: Any) -> bool:
    """Whether calibration rows are given beside the training rows.

    Raises
    ------
    DataError
        One of the two is given without the other.
    """
    if (X_calib is None) != (y_calib is None):
        there, absent = ("y_calib", "X_calib") if X_calib is None else ("X_calib", "y_calib")
        raise DataError(
            f"{there} is given without {absent}; give both, or neither, and some rows are set aside"
        )
    return X_calib is not None


def row_count(X: Any) -> int:
    """Number of rows of an array, DataFrame, list or tensor."""
    shape = getattr(X, "shape", None)
    if shape is not None:
        if len(shape) == 0:
            raise DataError("X is a single number; give a table with one row a sample")
        return int(shape[0])
    if hasattr(X, "__array__"):
        return int(np.asarray(X).shape[0])
    try:
        return len(X)
    except TypeError:
        raise DataError(f"X must be a table or an array, got {type(X).__name__}") from None
