"""The user's table, from whatever they have, or one clear line why it cannot be used."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from assay.core.checks import to_numpy
from assay.core.errors import DataError
from assay.data.columns import (
    fingerprint,
    is_constant,
    is_row_number,
    kind_of,
    same_values,
    spelling_advice,
    tidy,
)
from assay.data.files import arrow_frame, read_file
from assay.data.prepare import MAX_CATEGORIES
from assay.data.table import Table

#: duplicate rows are looked for in tables up to this many columns
_DUPLICATES_MAX_COLUMNS = 1000
#: a text column in which at least this part of the values is distinct names its rows
_DISTINCT_SHARE = 0.95
_MAX_DENSE_CELLS = 200_000_000
#: features beyond this overflow when they are scaled; tables write it for "no value" (1.8e308)
_LARGEST = 1e150


def as_table(
    data: Any, target: str | None = None, name: str | None = None, drop: Iterable[str] = ()
) -> Table:
    """A validated table from a file, a frame, arrays or a built-in name.

    Parameters
    ----------
    data : path, DataFrame, (X, y), built-in name or Table
        A file: text with a header line and any separator (also compressed), Parquet, Feather or NPZ.
        A frame: pandas, polars, or another that narwhals knows. ``(X, y)``: arrays, lists, frames or
        torch tensors. A name of ``assay.datasets()`` where no such file is there.
    target : str, optional
        The column to predict. Arrays, NPZ files and built-in sets have one of their own.
    name : str, optional
        What to call the table; the file's stem by default.
    drop : column names
        Columns that are left out before anything else.

    Returns
    -------
    Table
        Rows without a target, columns without a value or with a single value, row numbers and
        texts that differ in every row are left out, each with a note.

    Raises
    ------
    DataError
        With one line that says what is wrong, where, how many, and what would work.
    """
    drop = (drop,) if isinstance(drop, str) else tuple(drop)
    if isinstance(data, Table):
        if not drop and target in {None, data.target} and name in {None, data.name}:
            return data
        return build(
            data.frame, target or data.target, name or data.name, data.source, notes=data.notes, drop=drop
        )
    frame, found_target, found_name, source, notes = _load(data, target)
    if isinstance(frame, Table):
        return as_table(frame, target, name, drop)
    return build(frame, target or found_target, name or found_name, source, notes=notes, drop=drop)


def _load(data: Any, target: str | None) -> tuple[Any, str | None, str, str, Sequence[str]]:
    """(frame or Table, its own target, name, source, notes)."""
    if isinstance(data, (str, Path)):
        return _load_named(data)
    if isinstance(data, tuple):
        if len(data) != 2:
            raise DataError(f"a tuple of {len(data)} was given; give a pair (X, y)")
        frame, column = _pair_frame(data[0], data[1], target)
        return frame, column, "arrays", "arrays in memory", ()
    if isinstance(data, pd.DataFrame):
        return data, None, "frame", "DataFrame in memory", ()
    if isinstance(data, (np.ndarray, list)):
        raise DataError("an array alone has no target; give a pair (X, y) or a DataFrame and target=...")
    return _any_frame(data), None, "frame", "DataFrame in memory", ()


def _load_named(data: str | Path) -> tuple[Any, str | None, str, str, Sequence[str]]:
    from assay.data import builtin

    path = Path(data).expanduser()
    if not path.exists() and isinstance(data, str):
        if data in builtin.names():
            return builtin.load(data), None, data, "", ()
        if not path.suffix and path.name == data:
            near = difflib.get_close_matches(data, builtin.names(), 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise DataError(
                f"{data}: no such file, and no built-in set of that name{hint}. `assay datasets` lists them"
            )
    frame, notes = read_file(path)
    stem = path.name.split(".")[0] or path.name
    own = "y" if "y" in frame.columns and path.suffix == ".npz" else None
    return frame, own, stem, str(path), notes


def _any_frame(data: Any) -> pd.DataFrame:
    """A pandas frame from polars, Arrow or whatever else narwhals takes."""
    import narwhals as nw

    try:
        frame = nw.from_native(data)
    except TypeError:
        raise DataError(
            f"a table cannot be made of {type(data).__name__}; give a path, a DataFrame (pandas, polars), "
            "a pair (X, y) or the name of a built-in set"
        ) from None
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, nw.DataFrame):
        return arrow_frame(frame.to_arrow(), "")
    raise DataError(f"{type(data).__name__} is a single column; give a table with features and a target")


def _pair_frame(X: Any, y: Any, target: str | None) -> tuple[pd.DataFrame, str]:
    """Features and target as one frame; columns without names are x0, x1, ..."""
    name = target or getattr(y, "name", None) or "y"
    if hasattr(X, "toarray") and hasattr(X, "nnz"):
        if np.prod(X.shape) > _MAX_DENSE_CELLS:
            raise DataError(
                f"X is sparse with shape {X.shape}; at most {_MAX_DENSE_CELLS:,} cells can be made dense"
            )
        X = X.toarray()
    if isinstance(X, pd.DataFrame):
        frame = X.reset_index(drop=True)
    elif hasattr(X, "columns") and not hasattr(X, "detach"):
        frame = _any_frame(X)
    else:
        try:
            array = to_numpy(X)
        except ValueError as error:
            raise DataError(f"X is not a table: {error}") from error
        if array.ndim == 0:
            raise DataError("X is a single value; give one row a sample")
        if array.dtype.names is not None:
            raise DataError("X is an array of records; give a DataFrame: pd.DataFrame(X)")
        flat = array.reshape(len(array), -1) if array.size else array.reshape(len(array), 0)
        frame = pd.DataFrame(flat, columns=[f"x{i}" for i in range(flat.shape[1])])
    values: Any = y
    if not isinstance(y, pd.Series):
        values = to_numpy(y)
        if values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        if values.ndim != 1:
            raise DataError(f"y has shape {values.shape}; one target a row, shape (n,), can be assayed")
    if len(frame) != len(values):
        raise DataError(f"X has {len(frame)} rows and y {len(values)}; they must be equally many")
    if name in frame.columns:
        raise DataError(
            f"X has a column {name!r}, the name of the target; rename it or give target another name"
        )
    column = pd.Series(values).reset_index(drop=True).rename(name)
    return pd.concat([frame, column], axis=1), str(name)


def build(
    frame: pd.DataFrame,
    target: str | None,
    name: str,
    source: str,
    *,
    notes: Sequence[str] = (),
    drop: Sequence[str] = (),
) -> Table:
    """A Table from a frame: columns checked and tidied, rows without a target left out."""
    notes = list(notes)
    where = f"{source}: " if source and "memory" not in source else ""
    frame = frame.set_axis([str(column) for column in frame.columns], axis="columns")
    target = None if target is None else str(target)
    drop = [str(column) for column in drop]
    columns = list(frame.columns)
    duplicated = (
        sorted({column for column in columns if columns.count(column) > 1})
        if len(set(columns)) < len(columns)
        else []
    )
    if duplicated:
        raise DataError(
            f"{where}duplicated column name: {', '.join(map(repr, duplicated[:5]))}; rename one of them"
        )
    for column in drop:
        _find(column, columns, where, "column to drop")
    frame = frame.drop(columns=drop)
    if target is None:
        raise DataError(f"{where}which column is the target? Name one of: {_listing(list(frame.columns))}")
    if target in drop:
        raise DataError(f"{where}the target {target!r} is among the columns to drop")
    _find(target, list(frame.columns), where, "target column")
    if frame.empty or not len(frame):
        raise DataError(f"{where}the table has no rows")
    if frame.shape[1] == 1:
        raise DataError(f"{where}{target!r} is the only column; at least one feature column is needed")
    frame = frame.reset_index(drop=True)
    missing = frame[target].isna()
    if missing.all():
        raise DataError(f"{where}the target {target!r} is missing in all {len(frame)} rows")
    if missing.any():
        notes.append(
            f"{int(missing.sum()):,} of {len(frame):,} rows left out: the target {target!r} is missing there"
        )
        frame = frame[~missing].reset_index(drop=True)
    tidied = _tidy_frame(frame, target, notes, where)
    return Table(
        name=name,
        frame=tidied,
        target=target,
        fingerprint=fingerprint(tidied, target),
        source=source,
        notes=tuple(dict.fromkeys(notes)),
    )


def _find(column: str, columns: list[str], where: str, what: str) -> None:
    if column in columns:
        return
    lowered = {name.lower(): name for name in columns}
    asked = str(column).lower()
    parts = [name for key, name in lowered.items() if len(asked) > 2 and asked in key]
    near = [lowered[match] for match in difflib.get_close_matches(asked, lowered, 1)] or parts[:1]
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {_listing(columns)}"
    numeric = columns and all(_is_number(name) for name in columns)
    extra = " (the first line holds numbers only: is the header line missing?)" if numeric else ""
    raise DataError(f"{where}no {what} {column!r}; {hint}{extra}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _listing(names: Sequence[str], most: int = 10) -> str:
    rest = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + rest


def _tidy_frame(frame: pd.DataFrame, target: str, notes: list[str], where: str) -> pd.DataFrame:
    """All columns tidied; those that say nothing left out, with notes."""
    kept: dict[str, pd.Series[Any]] = {}
    empty, constant, counters, names_of_rows, copies, wide = [], [], [], [], [], []
    wide_text: list[str] = []
    infinite: list[str] = []
    y, note = tidy(frame[target], target)
    for name in frame.columns:
        if name == target:
            kept[name] = y
            continue
        column, note = tidy(frame[name], name)
        if note:
            notes.append(note)
        kind = kind_of(column)
        if column.isna().all():
            empty.append(name)
            continue
        if column.dtype.kind == "f":
            bad = np.abs(column.to_numpy(dtype=np.float64)) > _LARGEST
            if bad.any():
                infinite.append(f"{name} ({int(bad.sum())})")
                column = column.mask(bad)
        if is_constant(column):
            constant.append(name)
        elif is_row_number(column, name):
            counters.append(name)
        elif kind == "text" and len(column) >= 20 and (count := column.nunique()) > MAX_CATEGORIES:
            if count >= _DISTINCT_SHARE * len(column):
                names_of_rows.append(name)
            else:
                wide.append(f"{name} ({count})")
                wide_text.append(name)
                kept[name] = column
        else:
            kept[name] = column
        if name in kept and same_values(column, y):
            copies.append(name)
    for left_out, why in (
        (empty, "no value in any row"),
        (constant, "the same value in every row"),
        (counters, "only counts the rows"),
        (names_of_rows, "text that differs in nearly every row"),
    ):
        if left_out:
            notes.append(f"left out, {why}: {_listing(left_out)}")
    for name in [*names_of_rows, *wide_text]:
        if advice := spelling_advice(kept.get(name, frame[name])):
            notes.append(f"{name} is read as text ({str(frame[name].dropna().iloc[0])!r}): {advice}")
    if infinite:
        notes.append(f"infinite or beyond {_LARGEST:g}, taken as missing: {_listing(infinite)}")
    if wide:
        notes.append(
            f"text with many distinct values, only the {MAX_CATEGORIES - 1} most frequent ones kept apart: "
            f"{_listing(wide)}"
        )
    if copies:
        notes.append(
            f"an exact copy of the target {target!r} is among the features: {_listing(copies)}; a leak?"
        )
    if len(kept) == 1:
        raise DataError(f"{where}no usable feature column beside {target!r}: {'; '.join(notes)}")
    out = pd.DataFrame(kept)
    if out.shape[1] <= _DUPLICATES_MAX_COLUMNS:
        duplicates = int(out.duplicated().sum())
        if duplicates:
            notes.append(
                f"{duplicates:,} of {len(out):,} rows repeat an earlier row; "
                "copies may be in training and test"
            )
    return out
