"""A frame of whatever kind becomes a table: roles found, columns tidied, and a note of what is left out."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from assay.core.errors import DataError
from assay.data.columns import (
    fingerprint,
    is_constant,
    is_renamed,
    is_row_number,
    kind_of,
    same_values,
    spelling_advice,
    tidy,
)
from assay.data.prepare import MAX_CATEGORIES
from assay.data.table import Table

#: duplicate rows are looked for in tables up to this many columns
_DUPLICATES_MAX_COLUMNS = 1000
#: a text column in which at least this part of the values is distinct names its rows
_DISTINCT_SHARE = 0.95
#: features beyond this overflow when they are scaled; tables write it for "no value" (1.8e308)
LARGEST = 1e150


def build(
    frame: pd.DataFrame,
    target: str | Sequence[str] | None,
    name: str,
    source: str,
    *,
    notes: Sequence[str] = (),
    drop: Sequence[str] = (),
    time: str | None = None,
    group: str | None = None,
    series: bool = False,
) -> Table:
    """A Table from a frame: columns checked and tidied, rows without a target left out."""
    notes = list(notes)
    where = f"{source}: " if source and "memory" not in source else ""
    frame = frame.set_axis([str(column) for column in frame.columns], axis="columns")
    drop = [str(column) for column in drop]
    time, group = (None if column is None else str(column) for column in (time, group))
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
    hidden = group in drop and time is None
    frame = frame.drop(columns=[column for column in drop if not (hidden and column == group)])
    targets = find_targets(target, columns)
    if not targets:
        raise DataError(f"{where}which column is the target? Name one of: {listing(list(frame.columns))}")
    _check_roles(targets, time, group, drop, list(frame.columns), where)
    if frame.empty or not len(frame):
        raise DataError(f"{where}the table has no rows")
    series = series or time is not None
    if frame.shape[1] - hidden == len(targets) and not series:
        only = f"{targets[0]!r} is the only column" if len(targets) == 1 else "every column is a target"
        raise DataError(
            f"{where}{only}; at least one feature column is needed (none for a series in order: task online)"
        )
    frame = _with_outcomes(frame.reset_index(drop=True), targets, series, notes, where)
    tidied = _tidy_frame(frame, targets, time, group, series, notes, where)
    if hidden and tidied.shape[1] == len(targets) + 1 and not series:
        raise DataError(
            f"{where}no usable feature column is left beside the group {group!r}, which is dropped"
        )
    return Table(
        name=name,
        frame=tidied,
        targets=targets,
        fingerprint=fingerprint(tidied, targets, time, group, group_is_feature=not hidden),
        source=source,
        notes=tuple(dict.fromkeys(notes)),
        time=time,
        group=group,
        group_is_feature=not hidden,
    )


def _check_roles(
    targets: Sequence[str],
    time: str | None,
    group: str | None,
    drop: Sequence[str],
    columns: list[str],
    where: str,
) -> None:
    """Each column that has a role is there, is not dropped, and has no second role."""
    roles: dict[str, str] = {}
    named = [(target, "target") for target in targets]
    named += [(column, role) for column, role in ((time, "time"), (group, "group")) if column is not None]
    for column, role in named:
        shown = f"the target {column!r}" if role == "target" else f"the {role} column {column!r}"
        if column in drop and not (role == "group" and time is None):
            raise DataError(f"{where}{shown} is among the columns to drop")
        _find(column, columns, where, f"{role} column")
        if column in roles:
            twice = "is named twice as a target" if roles[column] == role else f"is also the {roles[column]}"
            raise DataError(f"{where}{shown} {twice}; give each column one role")
        roles[column] = role


def _with_outcomes(
    frame: pd.DataFrame, targets: Sequence[str], series: bool, notes: list[str], where: str
) -> pd.DataFrame:
    """The rows in which no target is missing; all rows of a series, in which that is information."""
    missing = frame[list(targets)].isna()
    for target in targets:
        if missing[target].all():
            raise DataError(f"{where}the target {target!r} is missing in all {len(frame)} rows")
    gone = missing.any(axis="columns")
    if not gone.any():
        return frame
    counts = ", ".join(
        f"{target!r} {int(missing[target].sum()):,}" for target in targets if missing[target].any()
    )
    what = f"the target {targets[0]!r} is" if len(targets) == 1 else f"a target is ({counts})"
    if series:
        notes.append(
            f"{int(gone.sum()):,} of {len(frame):,} rows: {what} missing there; the series keeps them"
        )
        return frame
    if gone.all():
        raise DataError(f"{where}in all {len(frame)} rows {what} missing; name fewer targets")
    notes.append(f"{int(gone.sum()):,} of {len(frame):,} rows left out: {what} missing there")
    return frame[~gone].reset_index(drop=True)


def _find(column: str, columns: list[str], where: str, what: str) -> None:
    if column in columns:
        return
    lowered = {name.lower(): name for name in columns}
    asked = str(column).lower()
    parts = [name for key, name in lowered.items() if len(asked) > 2 and asked in key]
    near = [lowered[match] for match in difflib.get_close_matches(asked, lowered, 1)] or parts[:1]
    hint = f"did you mean {near[0]!r}?" if near else f"there are: {listing(columns)}"
    numeric = columns and all(_is_number(name) for name in columns)
    extra = " (the first line holds numbers only: is the header line missing?)" if numeric else ""
    raise DataError(f"{where}no {what} {column!r}; {hint}{extra}")


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def listing(names: Sequence[str], most: int = 10) -> str:
    rest = f", and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(str, names[:most])) + rest


def _tidy_frame(
    frame: pd.DataFrame,
    targets: Sequence[str],
    time: str | None,
    group: str | None,
    series: bool,
    notes: list[str],
    where: str,
) -> pd.DataFrame:
    """All columns tidied; those that say nothing left out, with notes."""
    kept: dict[str, pd.Series[Any]] = {}
    empty, constant, counters, names_of_rows, wide = [], [], [], [], []
    copies: list[tuple[str, str]] = []
    renamed: list[tuple[str, str]] = []
    wide_text: list[str] = []
    infinite: list[str] = []
    outcomes = {target: tidy(frame[target], target)[0] for target in targets}
    for name in frame.columns:
        if name in outcomes:
            kept[name] = outcomes[name]
            continue
        column, note = tidy(frame[name], name)
        if note:
            notes.append(note)
        if name in {time, group}:
            kept[name] = _check_role_column(column, name, time, where)
            continue
        kind = kind_of(column)
        if column.isna().all():
            empty.append(name)
            continue
        if column.dtype.kind == "f":
            bad = np.abs(column.to_numpy(dtype=np.float64)) > LARGEST
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
        if name in kept:
            copies += [(name, target) for target, y in outcomes.items() if same_values(column, y)]
            renamed += [
                (name, target)
                for target, y in outcomes.items()
                if (name, target) not in copies and is_renamed(column, y)
            ]
    for left_out, why in (
        (empty, "no value in any row"),
        (constant, "the same value in every row"),
        (counters, "only counts the rows"),
        (names_of_rows, "text that differs in nearly every row"),
    ):
        if left_out:
            notes.append(f"left out, {why}: {listing(left_out)}")
    for name in [*names_of_rows, *wide_text]:
        if advice := spelling_advice(kept.get(name, frame[name])):
            notes.append(f"{name} is read as text ({str(frame[name].dropna().iloc[0])!r}): {advice}")
    if infinite:
        notes.append(f"infinite or beyond {LARGEST:g}, taken as missing: {listing(infinite)}")
    if wide:
        notes.append(
            f"text with many distinct values, only the {MAX_CATEGORIES - 1} most frequent ones kept apart: "
            f"{listing(wide)}"
        )
    for target in dict.fromkeys(target for _, target in copies):
        listed = listing([name for name, copied in copies if copied == target])
        notes.append(f"an exact copy of the target {target!r} is among the features: {listed}; a leak?")
    notes += [
        f"{name} and the target {target!r} tell the same under other names; a leak? "
        f"--drop {name} leaves it out"
        for name, target in renamed
    ]
    if len(kept) == len(targets) and not series:
        beside = ", ".join(map(repr, targets))
        raise DataError(f"{where}no usable feature column beside {beside}: {'; '.join(notes)}")
    out = pd.DataFrame(kept)
    if out.shape[1] <= _DUPLICATES_MAX_COLUMNS and not series:
        duplicates = int(out.duplicated().sum())
        if duplicates:
            notes.append(
                f"{duplicates:,} of {len(out):,} rows repeat an earlier row; "
                "copies may be in training and test"
            )
    return out


def _check_role_column(column: pd.Series[Any], name: str, time: str | None, where: str) -> pd.Series[Any]:
    """The time column, or the group of a series, refused where it does not say what it should."""
    if time is None:
        return column
    role = "time" if name == time else "group"
    missing = column.isna()
    if missing.any():
        raise DataError(
            f"{where}the {role} column {name!r} is missing in {int(missing.sum()):,} of {len(column):,} "
            f"rows, first at row {int(missing.argmax())}; leave those rows out"
        )
    if role == "group":
        return column
    if kind_of(column) not in {"number", "date"}:
        advice = spelling_advice(column) or "dates are read as YYYY-MM-DD, and numbers as they are"
        raise DataError(
            f"{where}the time column {name!r} is {kind_of(column)}, such as {str(column.iloc[0])!r}; {advice}"
        )
    if column.dtype.kind == "f" and not np.isfinite(column.to_numpy()).all():
        raise DataError(f"{where}the time column {name!r} holds infinite numbers")
    return column


def find_targets(target: Any, columns: Sequence[str]) -> tuple[str, ...]:
    """The names of the target columns that the user's words mean; () for None.

    A string, or a tuple such as pandas has for columns of several levels, that is a column's name is
    that column. Any other string is split at its commas, the longest pieces that are names first.
    """
    if target is None:
        return ()
    if isinstance(target, tuple) and str(target) not in columns:
        target = list(target)
    if isinstance(target, (list, pd.Index, np.ndarray)):
        return tuple(map(str, target))
    text = str(target)
    if text in columns or "," not in text:
        return (text,)
    pieces, found = text.split(","), []
    while pieces:
        for count in range(len(pieces), 0, -1):
            joined = ",".join(pieces[:count]).strip()
            if joined in columns or count == 1:
                found.append(joined)
                pieces = pieces[count:]
                break
    return tuple(found)
