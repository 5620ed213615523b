"""The label-set task on probabilities that are given: half of the rows calibrates, half tests, no model."""

from __future__ import annotations

import inspect
from fractions import Fraction
from time import perf_counter
from typing import Any

import numpy as np

from assay.core.errors import DataError, MethodError, TaskError
from assay.core.levels import smallest_n
from assay.core.seeds import derive_seed
from assay.data.table import Table
from assay.tasks import running
from assay.tasks.base import Split
from assay.tasks.groups import row_groups
from assay.tasks.splitting import MIN_TEST_ROWS

_CALLS = ("calibrate_proba", "predict_set_proba")


def check(table: Table, alpha: Fraction) -> None:
    """Raise TaskError where a half of the rows would be too small for the level."""
    if not hasattr(table.y, "cat"):
        raise DataError("this table holds no probabilities; compare(..., proba=True) makes one that does")
    need = smallest_n(alpha)
    if need is None:
        raise TaskError("alpha 0 asks for sets that contain everything; take a level above 0, such as 0.1")
    enough = max(need, MIN_TEST_ROWS)
    if len(table) // 2 < enough:
        raise TaskError(
            f"{len(table)} rows are too few at alpha {float(alpha):g}: half calibrates and half tests, which "
            f"gives {len(table) // 2} rows each; {enough} are needed, at least {2 * enough} rows in all"
        )


def split(table: Table, seed: int) -> Split:
    """Half of the rows, drawn by the seed, calibrates and half tests; X are (n, K) probabilities."""
    order = np.random.default_rng(derive_seed("split", seed)).permutation(len(table))
    half = len(table) // 2
    calib, test = order[half:], order[:half]
    P = table.X.to_numpy()
    classes = np.array([str(label) for label in table.y.cat.categories])
    y = classes[table.y.cat.codes.to_numpy()]
    groups = row_groups(table)
    return Split(
        X_train=P[:0],
        y_train=y[:0],
        X_calib=P[calib],
        y_calib=y[calib],
        X_test=P[test],
        y_test=y[test],
        feature_names=table.features,
        test_rows=test,
        seed=seed,
        classes=classes,
        groups_train=None if groups is None else groups[:0],
        groups_calib=None if groups is None else groups[calib],
        groups_test=None if groups is None else groups[test],
    )


def lacks(method: Any) -> str | None:
    """What a class or object lacks to work from probabilities alone; None if nothing."""
    named = method.__name__ if inspect.isclass(method) else type(method).__name__
    for call in _CALLS:
        if not callable(getattr(method, call, None)):
            return f"{named} does not work from probabilities alone: it has no {call}"
    return None


def fit(method: Any, of: Split) -> float:
    """Calibrate the method from probabilities; the seconds it took."""
    groups = _groups(method, of.groups_calib)
    start = perf_counter()
    method.calibrate_proba(of.X_calib, of.y_calib, classes=of.classes, **groups)
    return perf_counter() - start


def predict(method: Any, of: Split, alpha: Fraction) -> tuple[Any, float]:
    """(the sets of the test rows, seconds)."""
    options = _groups(method, of.groups_test)
    if not running.has_alpha(method):
        options["alpha"] = float(alpha)
    start = perf_counter()
    answer = method.predict_set_proba(of.X_test, **options)
    seconds = perf_counter() - start
    if answer is None:
        raise MethodError(f"predict_set_proba returned nothing; {len(of.X_test)} rows were asked for")
    return answer, seconds


def _groups(method: Any, groups: Any) -> dict[str, Any]:
    known = groups is not None and callable(getattr(method, "fit", None)) and running.takes_groups(method)
    return {"groups": groups} if known else {}
