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
from assay.data import builtin
from assay.data.build import build, find_targets, listing
from assay.data.files import arrow_frame, read_file
from assay.data.table import Table

_MAX_DENSE_CELLS = 200_000_000


def as_table(
    data: Any,
    target: str | Sequence[str] | None = None,
    name: str | None = None,
    drop: Iterable[str] = (),
    *,
    time: str | None = None,
    group: str | None = None,
    series: bool = False,
) -> Table:
    """A validated table from a file, a frame, arrays or a built-in name.

    Parameters
    ----------
    data : path, DataFrame, (X, y), built-in name or Table
        A file: text with a header line and any separator (also compressed), Parquet, Feather, NPZ or
        ARFF. A frame: pandas, polars, or another that narwhals knows. ``(X, y)``: arrays, lists, frames
        or torch tensors, y of shape (n,) or (n, q). A name of ``assay.datasets()`` where no such file
        is there.
    target : str or list of str, optional
        The column to predict, or several. A string that is no column's name is split at its commas.
        Arrays, NPZ files and built-in sets have targets of their own; the columns of a (n, q) array
        are y0, y1, ...
    name : str, optional
        What to call the table; the file's stem by default.
    drop : column names
        Columns that are left out before anything else.
    time : str, optional
        The column (numbers or dates) that orders the rows of a series.
    group : str, optional
        The column that names the series of each row; without ``time`` a group of rows, and a feature
        unless it is also among the columns to ``drop``.
    series : bool
        The rows are a series in their order, though no column says when: treated as with ``time``.

    Returns
    -------
    Table
        Rows without a target (not in a series: there they stay), columns without a value or with a
        single value, row numbers and texts that differ in every row are left out, each with a note.

    Raises
    ------
    DataError
        With one line that says what is wrong, where, how many, and what would work.
    """
    drop = (drop,) if isinstance(drop, str) else tuple(drop)
    if isinstance(data, Table):
        targets = find_targets(target, list(data.frame.columns)) or data.targets
        time = data.time if time is None else str(time)
        group = data.group if group is None else str(group)
        same = (targets, time, group) == (data.targets, data.time, data.group)
        if not drop and same and name in {None, data.name}:
            return data
        return build(
            data.frame,
            targets,
            name or data.name,
            data.source,
            notes=data.notes,
            drop=drop,
            time=time,
            group=group,
            series=series,
        )
    frame, found_targets, found_name, source, notes = _load(data, target)
    if isinstance(frame, Table):
        return as_table(frame, target, name, drop, time=time, group=group, series=series)
    return build(
        frame,
        found_targets if isinstance(data, tuple) or target is None else target,
        name or found_name,
        source,
        notes=notes,
        drop=drop,
        time=time,
        group=group,
        series=series,
    )


def _load(data: Any, target: Any) -> tuple[Any, Sequence[str] | None, str, str, Sequence[str]]:
    """(frame or Table, its own targets, name, source, notes)."""
    if isinstance(data, (str, Path)):
        return _load_named(data)
    if isinstance(data, tuple):
        if len(data) != 2:
            raise DataError(f"a tuple of {len(data)} was given; give a pair (X, y)")
        frame, columns = _pair_frame(data[0], data[1], target)
        return frame, columns, "arrays", "arrays in memory", ()
    if isinstance(data, pd.DataFrame):
        return data, None, "frame", "DataFrame in memory", ()
    if isinstance(data, (np.ndarray, list)):
        raise DataError("an array alone has no target; give a pair (X, y) or a DataFrame and target=...")
    return _any_frame(data), None, "frame", "DataFrame in memory", ()


def _load_named(data: str | Path) -> tuple[Any, Sequence[str] | None, str, str, Sequence[str]]:
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
    own = None
    if path.suffix == ".npz":
        own = ["y"] if "y" in frame.columns else _numbered(list(frame.columns))
    return frame, own, stem, str(path), notes


def _numbered(columns: Sequence[str]) -> list[str] | None:
    """y0, y1, ... as far as there are such columns; None where there are none."""
    q = next(q for q in range(len(columns) + 1) if f"y{q}" not in columns)
    return [f"y{i}" for i in range(q)] or None


def as_frame(data: Any, names: Sequence[str]) -> pd.DataFrame:
    """Columns without roles: a frame as it is, an (n, d) array with the given names for its columns.

    Raises
    ------
    DataError
        It is no table, or an array with another number of columns.
    """
    if isinstance(data, pd.DataFrame):
        return data
    if hasattr(data, "columns") and not hasattr(data, "detach"):
        return _any_frame(data)
    array = to_numpy(data)
    if array.ndim != 2 or array.shape[1] != len(names):
        raise DataError(
            f"an array of shape {array.shape} cannot be matched with {len(names)} columns "
            f"({listing(list(names))}); give a DataFrame with these columns"
        )
    return pd.DataFrame(array, columns=list(names))


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


def _pair_frame(X: Any, y: Any, target: Any) -> tuple[pd.DataFrame, list[str]]:
    """Features and targets as one frame, and the targets; columns without names are x0, ..., y0, ..."""
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
    values = _pair_targets(y, target)
    if len(frame) != len(values):
        raise DataError(f"X has {len(frame)} rows and y {len(values)}; they must be equally many")
    for name in values.columns:
        if name in frame.columns:
            raise DataError(
                f"X has a column {name!r}, the name of the target; rename it or give target another name"
            )
    return pd.concat([frame, values], axis=1), list(values.columns)


def _pair_targets(y: Any, target: Any) -> pd.DataFrame:
    """The target columns of a pair (X, y), named by the user, by their own names, or y or y0, y1, ..."""
    values: pd.DataFrame
    if isinstance(y, pd.Series):
        values = y.reset_index(drop=True).to_frame("y" if y.name is None else str(y.name))
    elif isinstance(y, pd.DataFrame):
        values = y.reset_index(drop=True).set_axis([str(column) for column in y.columns], axis="columns")
    elif hasattr(y, "columns") and not hasattr(y, "detach"):
        values = _any_frame(y)
    else:
        array = to_numpy(y)
        if array.ndim == 1:
            array = array[:, None]
        if array.ndim != 2 or not array.shape[1]:
            raise DataError(
                f"y has shape {array.shape}; (n,), one target a row, or (n, q), several, can be assayed"
            )
        own = getattr(y, "name", None)
        q = array.shape[1]
        values = pd.DataFrame(array, columns=[str(own or "y")] if q == 1 else [f"y{i}" for i in range(q)])
    if target is not None:
        own_names = list(values.columns)
        named = find_targets(target, own_names)
        if len(own_names) == 1 and isinstance(target, str):
            named = (target,)
        if len(named) != len(own_names):
            raise DataError(
                f"y has {len(own_names)} columns and target names {len(named)}: {', '.join(named)}; name each"
            )
        if set(named) == set(own_names):
            return values[list(named)]
        values = values.set_axis(list(named), axis="columns")
    return values
