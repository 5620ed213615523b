"""Training, calibration and test rows by seed."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.core.errors import TaskError
from assay.core.levels import smallest_n
from assay.core.seeds import derive_seed
from assay.data.prepare import feature_names, preparation
from assay.data.table import Table
from assay.tasks.base import Split

#: one row in four calibrates and one in four tests; the rest, half of the rows, trains.
#: Coverage is judged on the test rows and decided by the calibration rows: both must be many.
PART = 4
#: fewer test rows than this say nothing about coverage
MIN_TEST_ROWS = 8

Parts = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]


def random_parts(n: int, seed: int) -> Parts:
    """Positions of the (training, calibration, test) rows among n, in random order."""
    order = np.random.default_rng(derive_seed("split", seed)).permutation(n)
    part = n // PART
    return order[2 * part :], order[part : 2 * part], order[:part]


def stratified_parts(labels: NDArray[np.intp], seed: int) -> Parts:
    """The same with every class shared out 2 : 1 : 1, and at least one row of each class in training.

    ``labels`` are class numbers, (n,). Rows of a class that cannot be shared out evenly go to a
    part by chance with the same weights, so that calibration and test rows stay exchangeable.
    """
    rng = np.random.default_rng(derive_seed("split", seed))
    parts: list[list[NDArray[np.intp]]] = [[], [], []]
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        share = len(rows) // PART
        train, calib, test = rows[2 * share :], rows[share : 2 * share], rows[:share]
        spare = len(rows) % PART
        if spare:
            # the first spare row of a class without any other training row stays in training
            fixed = 1 if share == 0 else 0
            extra, train = train[: spare - fixed], train[spare - fixed :]
            to = rng.choice(3, size=len(extra), p=(0.5, 0.25, 0.25))
            train = np.concatenate([train, extra[to == 0]])
            calib = np.concatenate([calib, extra[to == 1]])
            test = np.concatenate([test, extra[to == 2]])
        for part, chosen in zip(parts, (train, calib, test), strict=True):
            part.append(chosen)
    shuffled = [rng.permutation(np.concatenate(part)) for part in parts]
    return shuffled[0], shuffled[1], shuffled[2]


def without_test(parts: Parts) -> Parts:
    """The same parts with the test rows given to the others, one in three of them to calibration."""
    train, calib, test = parts
    extra = len(test) // 3
    return np.concatenate([train, test[extra:]]), np.concatenate([calib, test[:extra]]), test[:0]


def check_row_count(n: int, alpha: Fraction, surely: int | None = None) -> None:
    """Raise a TaskError where calibration or test part would be too small for the level.

    ``surely``: rows that both parts have for certain; n // 4 if not given.
    """
    need = smallest_n(alpha)
    if need is None:
        raise TaskError("alpha 0 asks for sets that contain everything; take a level above 0, such as 0.1")
    part = n // PART if surely is None else surely
    enough = max(need, MIN_TEST_ROWS)
    if part >= enough:
        return
    level = float(alpha)
    if n >= PART * enough:
        raise TaskError(
            f"the classes are too small at alpha {level:g}: a quarter of each calibrates, which "
            f"gives {part} of {n} rows for certain; {enough} are needed. Merge rare classes or give more rows"
        )
    other = f" (or alpha {_largest_level(part)})" if part >= MIN_TEST_ROWS else ""
    raise TaskError(
        f"{n} rows are too few at alpha {level:g}: a quarter calibrates and a quarter tests, which gives "
        f"{part} rows each; {enough} are needed, that is at least {PART * enough} rows in all{other}"
    )


def _largest_level(rows: int) -> str:
    """A level that ``rows`` calibration rows allow, with two digits."""
    for hundredth in range(1, 100):
        need = smallest_n(Fraction(hundredth, 100))
        if need is not None and need <= rows:
            return f"{hundredth / 100:g}"
    return "0.5"


def make_split(
    table: Table,
    y: NDArray[np.float64] | NDArray[np.generic],
    parts: Parts,
    seed: int,
    classes: NDArray[np.generic] | None,
    groups: NDArray[np.generic] | None = None,
    shifted: pd.DataFrame | None = None,
) -> Split:
    """The split with features as numbers; the preparation is fitted on the training rows alone.

    ``shifted`` are feature columns of further rows that are prepared alike.
    """
    train, calib, test = parts
    X = table.X
    prepared = preparation(X.iloc[train])
    X_train = np.asarray(prepared.fit_transform(X.iloc[train]), dtype=np.float64)
    return Split(
        X_train=X_train,
        y_train=y[train],
        X_calib=prepared_rows(prepared, X.iloc[calib]),
        y_calib=y[calib],
        X_test=prepared_rows(prepared, X.iloc[test]),
        y_test=y[test],
        feature_names=feature_names(prepared),
        test_rows=test,
        seed=seed,
        classes=classes,
        groups_train=None if groups is None else groups[train],
        groups_calib=None if groups is None else groups[calib],
        groups_test=None if groups is None else groups[test],
        preparation=prepared,
        X_shifted=None if shifted is None else np.asarray(prepared.transform(shifted), dtype=np.float64),
    )


def prepared_rows(preparation: Any, X: pd.DataFrame) -> NDArray[np.float64]:
    """(n, d) what a fitted preparation makes of rows; also of none, which scikit-learn refuses."""
    if not len(X):
        return np.empty((0, len(preparation.get_feature_names_out())))
    return np.asarray(preparation.transform(X), dtype=np.float64)
