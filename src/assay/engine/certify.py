"""How many poisoned rows the label sets of a user's own classifier survive, on the user's own table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.pipeline import Pipeline
from threadpoolctl import threadpool_limits

from assay.core.cards import all_cards
from assay.core.errors import MethodError, TaskError
from assay.core.levels import parse_alpha, smallest_n
from assay.core.seeds import derive_seed
from assay.data.prepare import preparation
from assay.data.read import as_table
from assay.data.table import Table
from assay.engine.api import check_model, importable_from_here
from assay.engine.bench import load_model
from assay.tasks import get_task
from assay.tasks.infer import check_roles
from assay.tasks.label_set import as_labels
from assay.tasks.splitting import stratified_parts

TASK = "poisoning"
#: the largest numbers of parts in the paper's experiments
MAX_PARTITIONS, MAX_CALIBRATION_PARTITIONS = 100, 40
#: training rows that a part should have for each class, and calibration rows in units of the fewest that do
_ROWS_PER_CLASS, _CALIBRATION_MARGIN = 4, 3
#: rows of the table that is shown
_SHOWN = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)


@dataclass(frozen=True)
class CertifiedTable:
    """What is certified for the test rows of a table.

    Attributes
    ----------
    name, target, alpha : what was asked
    model : the classifier trained on each part
    n_train, n_calib, n_test : rows
    partitions, calibration_partitions : parts of the training and calibration rows
    accuracy : share of test rows whose label most members say
    coverage, mean_size : of the label sets of the test rows
    sets : (n_test, K) bool
    classes : (K,) labels of its columns
    test_rows, y_test : positions of the test rows in the table, and their labels
    certificate : the method's own object, for grids of both radii
    notes : what a user should know, a line each
    """

    name: str
    target: str
    alpha: Fraction
    model: str
    n_train: int
    n_calib: int
    n_test: int
    partitions: int
    calibration_partitions: int
    accuracy: float
    coverage: float
    mean_size: float
    sets: NDArray[np.bool_]
    classes: NDArray[Any]
    test_rows: NDArray[np.intp]
    y_test: NDArray[Any]
    certificate: Any
    notes: tuple[str, ...] = ()

    def table(self, radii: Sequence[int] | None = None) -> pd.DataFrame:
        """One row a number of poisoned rows r: shares of the sets that survive r of them.

        Columns: ``poisoned``; ``train_same``, ``train_none_lost``, ``train_none_gained`` (shares of sets that
        stay the same, lose no label, gain no label with r poisoned training rows) and ``train_labels`` (mean
        of the most labels a set can have); the same for ``calib``; ``both_same`` (r training and r
        calibration rows together). Up to the first r at which nothing is certified.
        """
        found = self.certificate
        sides = {
            "train": (found.training, found.largest_train),
            "calib": (found.calibration, found.largest_calib),
        }
        if radii is None:
            last = max(int(side.robust_radius.max(initial=0)) for side, _ in sides.values()) + 1
            radii = [r for r in _SHOWN if r <= last]
        rows = []
        for r in radii:
            row: dict[str, float] = {"poisoned": r}
            for side, (of, largest) in sides.items():
                row[f"{side}_same"] = float((of.robust_radius >= r).mean())
                row[f"{side}_none_lost"] = float((of.coverage_radius >= r).mean())
                row[f"{side}_none_gained"] = float((of.size_radius >= r).mean())
                row[f"{side}_labels"] = (
                    float(largest[r].mean()) if r < len(largest) else float(len(self.classes))
                )
            row["both_same"] = float(found.reliable(r, r).mean())
            rows.append(row)
        return pd.DataFrame(rows)

    def grid(self, r_train: Sequence[int], r_calib: Sequence[int], kind: str = "robust") -> pd.DataFrame:
        """Share of sets that survive r_train (rows) and r_calib (columns) poisoned rows together.

        ``kind``: "robust" (the set stays the same), "coverage" (no label leaves) or "size" (none enters).
        """
        return pd.DataFrame(
            self.certificate.grid(r_train, r_calib, kind),
            index=pd.Index(list(r_train), name="training"),
            columns=pd.Index(list(r_calib), name="calibration"),
        )

    def rows(self) -> pd.DataFrame:
        """One row a test row: its place in the table, its label, its set, and its six radii."""
        found = self.certificate
        out = pd.DataFrame(
            {
                "row": self.test_rows,
                self.target if self.target != "row" else "target": self.y_test,
                "set": [" ".join(map(str, self.classes[held])) for held in self.sets],
            }
        )
        for side, of in (("train", found.training), ("calib", found.calibration)):
            out[f"{side}_same"] = of.robust_radius
            out[f"{side}_none_lost"] = of.coverage_radius
            out[f"{side}_none_gained"] = of.size_radius
        return out

    def to_json(self, path: str | PathLike[str]) -> Path:
        """Write what was asked, the table and the rows."""
        target = Path(path)
        facts = {
            key: getattr(self, key)
            for key in (
                *("name", "target", "model", "n_train", "n_calib", "n_test", "partitions"),
                *("calibration_partitions", "accuracy", "coverage", "mean_size", "notes"),
            )
        }
        tables = {
            "table": json.loads(self.table().to_json(orient="records")),
            "rows": json.loads(self.rows().to_json(orient="records")),
        }
        target.write_text(json.dumps({**facts, "alpha": str(float(self.alpha)), **tables}, indent=1) + "\n")
        return target


def certify(
    data: Any,
    target: str | None = None,
    *,
    model: Any = None,
    partitions: int | None = None,
    calibration_partitions: int | None = None,
    alpha: Any = 0.1,
    seed: int = 0,
    majority: str = "exact",
    drop: Sequence[str] = (),
    name: str | None = None,
) -> CertifiedTable:
    """Certify the label sets of a classifier against poisoned training and calibration rows.

    Half of the rows train, a quarter calibrates, on the last quarter the sets and their radii are shown. The
    columns are turned into numbers inside each part, so that the certificates hold for the table as it is,
    for rows that are added, taken away or relabelled (a row whose features change counts as two).

    Parameters
    ----------
    data : path, DataFrame, (X, y), built-in name or Table
    target : str, optional
        The column of labels.
    model : "package.module:Class" or unfitted classifier, optional
        Trained once a part; logistic regression if not given.
    partitions : int, optional
        Parts of the training rows. By default as many as leave 4 rows a class, at most 100.
    calibration_partitions : int, optional
        Parts of the calibration rows. By default as many as leave three times the fewest rows
        that alpha asks for, at most 40.
    alpha : level, default 0.1
    seed : int
        Of the split, the parts and the models.
    majority : "exact" or "binomial"
        "exact" keeps to the coverage; "binomial" is the published rule.
    drop : column names to leave out
    name : str, optional
        What to call the data.

    Raises
    ------
    DataError, TaskError, MethodError
        The table, the question or the model cannot be used.
    """
    level = parse_alpha(alpha)
    card = next((card for card in all_cards().values() if card.task == TASK and card.role == "paper"), None)
    if card is None:
        raise MethodError(f"no method of the task {TASK!r} is installed")
    with importable_from_here((), model):
        table = as_table(data, target, name=name, drop=drop)
        task = get_task(TASK)
        check_roles(task, table)
        check_model(model, task)
        task.check(table, level)
        base = load_model(model)
        base = task.default_model() if base is None else base
        return _certified(table, level, card.load(), base, partitions, calibration_partitions, seed, majority)


def _certified(
    table: Table,
    level: Fraction,
    method: Any,
    base: Any,
    partitions: int | None,
    calibration_partitions: int | None,
    seed: int,
    majority: str,
) -> CertifiedTable:
    labels = as_labels(table)
    classes, encoded = np.unique(labels, return_inverse=True)
    train, calib, test = stratified_parts(encoded, seed)
    notes = [*table.notes]
    if partitions is None:
        partitions = int(np.clip(len(train) // (_ROWS_PER_CLASS * len(classes)), 1, MAX_PARTITIONS))
        notes.append(
            f"{partitions} parts of {len(train):,} training rows were chosen for {len(classes)} classes; "
            "partitions sets another number"
        )
    if calibration_partitions is None:
        least = _CALIBRATION_MARGIN * (smallest_n(level) or len(calib))
        calibration_partitions = int(np.clip(len(calib) // least, 1, MAX_CALIBRATION_PARTITIONS))
        notes.append(
            f"{calibration_partitions} parts of {len(calib):,} calibration rows were chosen for alpha "
            f"{float(level):g}; calibration_partitions sets another number"
        )
    if partitions == 1:
        notes.append("with one part of the training rows nothing is certified against poisoned training rows")
    if calibration_partitions == 1:
        notes.append("with one part of the calibration rows nothing is certified against poisoned ones")
    frame = table.X
    estimator = Pipeline([("numbers", preparation(frame)), ("model", base)])
    found = method(
        estimator,
        alpha=level,
        n_partitions=partitions,
        n_calibration_partitions=calibration_partitions,
        majority=majority,
        rank="tight" if majority == "exact" else "published",
        random_state=derive_seed("certify", seed),
    )
    with threadpool_limits(limits=1):  # training that can be repeated
        found.fit(frame.iloc[train], labels[train], frame.iloc[calib], labels[calib])
        X = frame.iloc[test]
        sets = found.predict_set(X)
        predicted = found.predict(X)
        certificate = found.certify(X)
    if not np.array_equal(found.classes_, classes):
        raise TaskError(
            f"{len(classes)} classes in the table, {len(found.classes_)} in training and calibration"
        )
    truth = labels[test]
    return CertifiedTable(
        name=table.name,
        target=table.target,
        alpha=level,
        model=type(base).__name__,
        n_train=len(train),
        n_calib=len(calib),
        n_test=len(test),
        partitions=partitions,
        calibration_partitions=calibration_partitions,
        accuracy=float((predicted == truth).mean()),
        coverage=float(sets[np.arange(len(test)), encoded[test]].mean()),
        mean_size=float(sets.sum(axis=1).mean()),
        sets=sets,
        classes=classes,
        test_rows=test,
        y_test=truth,
        certificate=certificate,
        notes=tuple(notes),
    )
