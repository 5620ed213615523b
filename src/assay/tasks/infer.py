"""Which task a table asks for, and why."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from assay.core.errors import DataError, TaskError
from assay.data.columns import kind_of, spelling_advice
from assay.data.table import Table
from assay.tasks import Task, get_task

#: whole numbers with at most this many distinct values are taken as classes
MAX_NUMBER_CLASSES = 20
#: text with fewer rows a distinct value than this is no class label
MIN_ROWS_PER_LABEL = 2


def choose_task(
    table: Table,
    requested: str = "auto",
    alpha: Fraction | None = None,
    options: Mapping[str, Any] | None = None,
) -> tuple[str, str]:
    """(name of the task, one sentence that says why).

    A column of times asks for forecasts, several targets for regions. Of a single target, text,
    categories and true/false are classes; so are whole numbers with at most ``MAX_NUMBER_CLASSES``
    distinct values, and numbers with two. Other numbers ask for intervals.
    With ``alpha`` the table is also checked for that task.

    Raises
    ------
    DataError
        The target is constant.
    TaskError
        The target is dates, or text that differs in nearly every row; or ``requested`` is no task, does
        not know the options, or has no use for the roles of the table's columns.
    """
    name, reason = _decide(table) if requested == "auto" else (requested, "asked for")
    task = get_task(name, **(options or {}))
    check_roles(task, table)
    if alpha is not None:
        task.check(table, alpha)
    return name, f"{name}: {reason}"


def check_roles(task: Task, table: Table) -> None:
    """Raise TaskError where the table has more targets than the task takes, or a time it does not need."""
    if len(table.targets) > 1 and not task.several_targets:
        raise TaskError(
            f"the task {task.name!r} takes one target; {len(table.targets)} are given: {table.target}. "
            "--task region takes several"
        )
    if table.time is not None and not task.over_time:
        raise TaskError(
            f"the task {task.name!r} splits the rows at random and has no use for the time column "
            f"{table.time!r}; leave the role out, or ask for --task online"
        )


def _decide(table: Table) -> tuple[str, str]:
    if table.time is not None:
        return "online", f"{table.time} orders the rows in time"
    if len(table.targets) > 1:
        return "region", f"{len(table.targets)} targets"
    return kind_of_target(table)


def kind_of_target(table: Table) -> tuple[str, str]:
    """("label-set" or "interval", why) of a single target, as :func:`choose_task` decides it."""
    y, target, n = table.y, table.target, len(table)
    kind = kind_of(y)
    distinct = int(y.nunique())
    if distinct == 1:
        raise DataError(
            f"the target {target!r} is constant: {y.iloc[0]} in all {n:,} rows; nothing to predict"
        )
    values = f"{distinct:,} distinct values"
    if kind == "date":
        raise TaskError(
            f"the target {target!r} is dates; make it a number (days since a start) or a class first"
        )
    if kind == "bool":
        return "label-set", f"{target} is true or false"
    if kind != "number":
        if distinct * MIN_ROWS_PER_LABEL > n and distinct > MAX_NUMBER_CLASSES:
            advice = spelling_advice(y)
            raise TaskError(
                f"the target {target!r} is text with {values} in {n:,} rows, too many for classes and no "
                f"numbers, such as {str(y.iloc[0])!r}; {advice or 'is it the right column?'}"
            )
        return "label-set", f"{target} is {'a category' if kind == 'category' else 'text'} with {values}"
    numbers = y.to_numpy(dtype=np.float64)
    whole = bool(np.isfinite(numbers).all() and (numbers == np.floor(numbers)).all())
    if distinct <= 2 or (whole and distinct <= MAX_NUMBER_CLASSES):
        what = "whole numbers" if whole else "numeric"
        return "label-set", f"{target} is {what} with only {values} (--task interval takes it as a number)"
    return "interval", f"{target} is numeric with {values}"
