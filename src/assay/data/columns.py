"""Columns of a user's table, brought to a few kinds: numbers, true/false, text, categories, dates."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from assay.core.errors import DataError

_ISO_DATE = r"\d{4}-\d{2}-\d{2}(?:[ T]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
#: spellings that are left as text, and what would make them dates or numbers
_SPELLINGS = {
    r"\s*\d{1,4}[./-]\d{1,2}[./-]\d{1,4}([ T].*)?": "dates are read as YYYY-MM-DD",
    r"\W{0,3}\d[\d.,' ]*\W{0,3}": "to use it as a number, remove units and thousands separators",
}
#: names under which tables carry row numbers
_ID_NAMES = {"id", "index", "idx", "row", "row id", "row number", "rownames", "unnamed: 0", "column 1", "no"}


def kind_of(column: pd.Series[Any]) -> str:
    """ "bool", "number", "date", "category" or "text"."""
    dtype = column.dtype
    if isinstance(dtype, pd.CategoricalDtype):
        return "category"
    if pd.api.types.is_bool_dtype(dtype):
        return "bool"
    if pd.api.types.is_numeric_dtype(dtype):
        return "number"
    if pd.api.types.is_datetime64_any_dtype(dtype):
        return "date"
    return "text"


def tidy(column: pd.Series[Any], name: str) -> tuple[pd.Series[Any], str | None]:
    """The column as one of the kinds of :func:`kind_of`, and a note where its type was changed by us.

    Raises
    ------
    DataError
        Complex numbers, bytes, lists or other objects.
    """
    dtype: Any = column.dtype
    if isinstance(dtype, np.dtype):
        if dtype.kind in "biuf":
            return column, None
        if dtype.kind == "c":
            raise DataError(
                f"column {name!r} holds complex numbers; give real ones, or leave it out with drop"
            )
        if dtype.kind == "m":
            return column.dt.total_seconds(), f"{name}: durations read as seconds"
    if isinstance(dtype, pd.CategoricalDtype):
        return column, None
    if isinstance(dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return _plain_dates(column), None
    if isinstance(dtype, pd.SparseDtype):
        return tidy(pd.Series(np.asarray(column), name=column.name), name)
    if pd.api.types.is_bool_dtype(dtype) and not isinstance(dtype, np.dtype):
        return _nullable(column, "bool"), None
    if pd.api.types.is_numeric_dtype(dtype):
        return _nullable(column, dtype), None
    return _tidy_objects(column, name)


def _nullable(column: pd.Series[Any], dtype: Any) -> pd.Series[Any]:
    """numpy values of a nullable column; float64 with NaN where something is missing."""
    if column.isna().any():
        return pd.Series(column.to_numpy(dtype=np.float64, na_value=np.nan), name=column.name)
    target = dtype if isinstance(dtype, str) else getattr(dtype, "numpy_dtype", np.float64)
    if getattr(target, "kind", "") == "O":
        target = np.float64
    return pd.Series(column.to_numpy(dtype=target), name=column.name)


def _plain_dates(column: pd.Series[Any]) -> pd.Series[Any]:
    """Microseconds without a zone (UTC), so that equal times are equal bytes."""
    if getattr(column.dtype, "tz", None) is not None:
        column = column.dt.tz_convert("UTC").dt.tz_localize(None)
    return pd.Series(column.to_numpy().astype("datetime64[us]"), name=column.name)


def _tidy_objects(column: pd.Series[Any], name: str) -> tuple[pd.Series[Any], str | None]:
    present = column.dropna()
    if present.empty:
        return pd.Series(np.full(len(column), np.nan), name=column.name), None
    what = pd.api.types.infer_dtype(present, skipna=True)
    if what == "string":
        return _tidy_text(column, present), None
    if what == "boolean":
        if len(present) == len(column):
            return column.astype(bool), None
        return column.astype("boolean").astype("Float64").astype(np.float64), None
    if what in {"integer", "floating", "mixed-integer-float", "decimal"}:
        return pd.to_numeric(column.astype(object).where(column.notna(), np.nan)), None
    if what in {"datetime64", "datetime", "date"}:
        return _plain_dates(pd.to_datetime(column, utc=True)), None
    if what == "time":
        seconds = column.map(lambda t: t.hour * 3600 + t.minute * 60 + t.second, na_action="ignore")
        return seconds.astype(np.float64), f"{name}: times of day read as seconds"
    if what in {"mixed-integer", "mixed"} and present.map(np.isscalar).all():
        text = column.map(str, na_action="ignore")
        return text, f"{name}: numbers and text mixed, read as text"
    kinds = sorted({type(value).__name__ for value in present})
    raise DataError(
        f"column {name!r} holds {', '.join(kinds[:3])} values; numbers, text, true/false and dates can "
        "be read. Leave it out with drop"
    )


def _tidy_text(column: pd.Series[Any], present: pd.Series[Any]) -> pd.Series[Any]:
    """Dates where every cell is an ISO date, else the text itself."""
    first = str(present.iloc[0])
    if len(first) >= 10 and first[4:5] == "-" and present.astype(object).str.fullmatch(_ISO_DATE).all():
        dates = pd.to_datetime(column, format="ISO8601", utc=True, errors="coerce")
        if int(dates.notna().sum()) == len(present):
            return _plain_dates(dates)
    return column


def spelling_advice(column: pd.Series[Any]) -> str | None:
    """What would make dates or numbers of a text column that spells them in a way that is not read.

    The first thousand values decide; None if they are something else.
    """
    present = column.dropna().iloc[:1000].astype(object).map(str)
    for pattern, advice in _SPELLINGS.items():
        if len(present) and present.str.fullmatch(pattern).all():
            return advice
    return None


def is_row_number(column: pd.Series[Any], name: str) -> bool:
    """Whether the column only counts the rows: an id by name, consecutive integers by value."""
    if name.strip().lower().replace("_", " ") not in _ID_NAMES or column.dtype.kind not in "iu":
        return False
    values = np.sort(column.to_numpy())
    return bool(len(values) > 1 and (np.diff(values) == 1).all())


def is_constant(column: pd.Series[Any]) -> bool:
    """Whether every row holds the same value and none is missing."""
    if column.dtype.kind in "biuf":
        values = column.to_numpy()
        return bool((values == values[0]).all())
    return column.nunique(dropna=False) == 1


def same_values(a: pd.Series[Any], b: pd.Series[Any]) -> bool:
    """Whether two columns hold equal values in every row."""
    if (kind_of(a) in {"number", "bool"}) != (kind_of(b) in {"number", "bool"}):
        return False
    return bool((a.to_numpy() == b.to_numpy()).all())


def is_renamed(a: pd.Series[Any], b: pd.Series[Any]) -> bool:
    """Whether each value of a few in one column stands beside one value of the other, and the reverse."""
    if a.isna().any() or b.isna().any():
        return False
    distinct = int(b.nunique())
    if not 2 < distinct <= len(b) // 4 or a.nunique() != distinct:
        return False
    codes = pd.factorize(a)[0].astype(np.int64) * distinct + pd.factorize(b)[0]
    return len(np.unique(codes)) == distinct


def fingerprint(
    frame: pd.DataFrame,
    targets: Sequence[str],
    time: str | None = None,
    group: str | None = None,
    *,
    group_is_feature: bool = True,
) -> str:
    """SHA-256 over column names, kinds, types, values and roles, in order; the same in every process.

    Text hashes alike whether pandas keeps it as objects or as strings; anything edited, moved
    or cast gives another fingerprint.
    """
    digest = hashlib.sha256(f"assay table 1\x1f{len(frame)}\x1f{targets[0]}".encode())
    if len(targets) > 1 or time is not None or group is not None:
        hidden = "" if group_is_feature else " hidden"
        digest.update(f"\x1froles {[*targets]!r} {time!r} {group!r}{hidden}".encode())
    for name in frame.columns:
        column = frame[name]
        kind = kind_of(column)
        digest.update(f"\x1e{len(name)}\x1f{name}\x1f{kind}\x1f".encode())
        if kind in {"number", "bool"}:
            values = np.ascontiguousarray(column.to_numpy())
            digest.update(values.dtype.str.encode())
            digest.update(values.data)
        elif kind == "date":
            digest.update(
                np.ascontiguousarray(column.to_numpy().astype("datetime64[us]").view(np.int64)).data
            )
        elif kind == "category":
            _hash_text(digest, pd.Series(column.cat.categories).astype(object).map(str))
            digest.update(str(column.cat.ordered).encode())
            digest.update(np.ascontiguousarray(column.cat.codes.to_numpy().astype(np.int32)).data)
        else:
            _hash_text(digest, column)
    return digest.hexdigest()


def _hash_text(digest: Any, column: pd.Series[Any]) -> None:
    missing = column.isna().to_numpy()
    cells = [
        b"" if gone else str(cell).encode("utf-8", "surrogatepass")
        for cell, gone in zip(column.to_numpy(dtype=object), missing, strict=True)
    ]
    digest.update(np.packbits(missing).data)
    digest.update(np.array([len(cell) for cell in cells], dtype=np.int64).data)
    digest.update(b"".join(cells))
