"""Checks that tasks with numeric targets share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from assay.core.checks import FloatArray, to_numpy
from assay.core.errors import DataError, MethodError, TaskError
from assay.data.columns import kind_of
from assay.tasks.measures import BoolArray


def check_numbers(y: pd.Series[Any], target: str, what: str, otherwise: str) -> None:
    """Refuse a target that is not numbers, or is infinite somewhere, or constant; missing ones may be there.

    ``what`` needs the numbers ("an interval"); ``otherwise`` is what a target of labels can do.
    """
    kind, n = kind_of(y), len(y)
    if kind != "number":
        raise TaskError(_no_numbers(y, target, kind, what, otherwise))
    values = y.to_numpy(dtype=np.float64)
    infinite = np.isinf(values)
    if infinite.any():
        raise DataError(
            f"the target {target!r} is infinite in {int(infinite.sum())} of {n} rows, first at row "
            f"{int(infinite.argmax())}; leave those rows out"
        )
    known = values[~np.isnan(values)]
    if known.min() == known.max():
        raise DataError(
            f"the target {target!r} is constant: {known[0]:g} in all {len(known)} rows; nothing to predict"
        )


def _no_numbers(y: pd.Series[Any], target: str, kind: str, what: str, otherwise: str) -> str:
    shown = ", ".join(repr(str(value)) for value in y.drop_duplicates().head(3))
    found = {"bool": "true or false", "date": "dates"}.get(kind, "text")
    line = f"the target {target!r} is {found} ({shown}); {what} needs numbers"
    if kind == "date":
        return line
    bare = y.astype(object).map(str).str.replace(r"[$€£%,\s]", "", regex=True)
    if kind != "bool" and pd.to_numeric(bare, errors="coerce").notna().all():
        return f"{line}: take currency signs and thousands separators out"
    return f"{line}; {otherwise}"


def check_contains(region: Any, y: FloatArray) -> BoolArray:
    """(n,) which targets the regions of ``predict_region`` contain, or a MethodError with numbers."""
    covered = to_numpy(region.contains(y))
    n = len(y)
    if covered.shape != (n,) or covered.dtype != bool:
        raise MethodError(
            f"predict_region gave contains() of shape {covered.shape} ({covered.dtype}) for {n} rows; "
            f"({n},) true or false is expected"
        )
    return covered


def check_sizes(values: Any, n: int, call: str, *, negative: bool = False) -> FloatArray:
    """(n,) float64 volumes or their logarithms without NaN, or a MethodError with numbers."""
    array = to_numpy(values)
    if array.shape != (n,) or array.dtype.kind not in "fiu":
        raise MethodError(
            f"predict_region gave {call} of shape {array.shape} ({array.dtype}) for {n} rows; "
            f"({n},) numbers are expected"
        )
    array = array.astype(np.float64)
    bad = np.isnan(array) if negative else ~(array >= 0)
    if bad.any():
        raise MethodError(
            f"{call} of predict_region is {'NaN' if negative else 'negative or NaN'} in {int(bad.sum())} of "
            f"{n} rows, first at row {int(bad.argmax())}"
        )
    return array
