"""Fitting a method on all rows of a user's table, for use."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.core.cards import all_cards
from assay.core.errors import MethodError
from assay.core.levels import parse_alpha
from assay.data.read import as_table
from assay.data.schema import Notices, Schema
from assay.engine.api import check_model, choose_methods, importable_from_here
from assay.engine.bench import Bench, load_model, load_task
from assay.engine.fitted import FORMAT, FittedMethod, row_hashes
from assay.engine.plan import MethodSpec
from assay.tasks import running
from assay.tasks.infer import choose_task


def fit(
    data: Any,
    target: str | Sequence[str] | None = None,
    *,
    method: Any = None,
    model: Any = None,
    alpha: Any = 0.1,
    task: str = "auto",
    seed: int = 0,
    drop: Sequence[str] = (),
    group: str | None = None,
    name: str | None = None,
) -> FittedMethod:
    """Fit a method on all rows of your table, for use.

    Two thirds of the rows train the method and one third calibrates it; none is kept for a test, which is
    what a comparison is for.

    Parameters
    ----------
    data, target, drop, group, name
        As in :func:`assay.compare`.
    method : id of a card, "package.module:Class", class, unfitted object or (name, method) pair
        By default the task's reference method ("split", "lac", ...).
    model : "package.module:Class" or unfitted estimator, optional
        The model inside the method; the task's own by default.
    alpha : level, default 0.1
        Miscoverage.
    task : str
        "auto", or "interval", "region", "label-set", ...
    seed : int, default 0
        Of the division of the rows and of the method.

    Raises
    ------
    DataError, TaskError, MethodError
        The data, the question or the method cannot be used; whatever the method itself raises.
    """
    level = parse_alpha(alpha)
    with importable_from_here([] if method is None else [method], model):
        table = as_table(data, target, name=name, drop=drop, group=group)
        task_name, why = choose_task(table, task)
        options = dict(load_task(task_name).decided(table))
        the_task = load_task(task_name, options)
        check_model(model, the_task)
        the_task = the_task.with_model(load_model(model))
        the_task.check(table, level)
        spec = choose_methods([the_task.reference if method is None else method], the_task, table)[0]
        if spec.skip:
            raise MethodError(f"{spec.name} cannot be fitted: {spec.skip}")
        bench = Bench(table, task_name, level, model, isolated=False, options=options)
        notices: list[str] = [*table.notes, *the_task.notes(table)]
        split = bench.task.final_split(table, seed)
        fitted = bench.fit(spec, split, seed, notices)
    n_train, n_calib = running.rows(fitted, split)
    by_group = split.groups_train is not None and running.takes_groups(fitted)
    about: dict[str, Any] = {
        "format": FORMAT,
        "kind": "fitted method",
        "task": task_name,
        "why_task": why,
        "options": options,
        "method": spec.name,
        "card": spec.card,
        "params": {key: repr(value) for key, value in spec.params.items()},
        "model": "the task's own" if model is None else _text(model),
        "alpha": _decimal(level),
        "seed": seed,
        "targets": list(table.targets),
        "group": table.group,
        "group_column": Schema.of(table.frame[[table.group]]).to_list() if by_group else [],
        "groups": sorted(set(map(str, split.groups_train.tolist()))) if by_group else [],  # type: ignore[union-attr]
        "calib_by_group": _counts(split.groups_calib) if by_group and n_calib else {},
        "classes": None if split.classes is None else [str(label) for label in split.classes],
        "n_rows": len(table),
        "n_train": n_train,
        "n_calib": n_calib,
        "dataset": table.name,
        "source": table.source,
        "fingerprint": table.fingerprint,
        "outcome_columns": Schema.of(table.Y).to_list(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "guarantee": _guarantee(spec),
        "notes": list(dict.fromkeys(notices)),
    }
    schema, outcomes = Schema.of(table.X), Schema.of(table.Y)
    rows = pd.concat([schema.conform(table.X, Notices()), outcomes.conform(table.Y, Notices())], axis=1)
    seen = np.unique(row_hashes(rows))
    return FittedMethod(fitted, split.preparation, schema, seen, about, tuple(about["notes"]))


def _counts(groups: NDArray[Any] | None) -> dict[str, int]:
    """How many rows each group has."""
    names, counts = np.unique([] if groups is None else groups, return_counts=True)
    return {str(name): int(count) for name, count in zip(names, counts, strict=True)}


def _decimal(level: Fraction) -> str:
    """Text that stands for exactly that level."""
    short = f"{float(level):g}"
    return short if Fraction(short) == level else str(level)


def _guarantee(spec: MethodSpec) -> str:
    return all_cards()[spec.card].guarantee if spec.card else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else repr(value)
