"""Sets of labels for a classification."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from assay.core.checks import FloatArray, to_numpy
from assay.core.errors import DataError, MethodError, TaskError
from assay.data.columns import kind_of
from assay.data.table import Table
from assay.tasks import bare_probabilities, groups, measures, running
from assay.tasks.base import Asked, Metric, Outcome, Split, Task
from assay.tasks.splitting import PART, check_row_count, make_split, stratified_parts, without_test

_MAX_EXAMPLES = 30
#: strata of set size with fewer test rows than this do not enter the size-stratified gap
MIN_STRATUM_ROWS = 10


class LabelSetTask(Task):
    """Sets that hold the true label with probability 1 - alpha, as small as can be.

    A method offers ``fit(X, y)`` and ``predict_set(X) -> (n, K) bool``, columns in the order of
    its ``classes_`` (of the sorted labels where it has none). Labels reach it as they are. Where the table
    has a group column, a method whose ``fit`` names ``groups`` gets the groups of its rows (those of X_calib
    as ``groups_calib``) and ``predict_set`` those of the test rows; coverage and size are measured by
    group for every method.

    Parameters
    ----------
    proba : bool
        The table holds class probabilities, and no model is trained: methods are calibrated by
        ``calibrate_proba`` and asked by ``predict_set_proba``.
    """

    name: ClassVar[str] = "label-set"
    reference: ClassVar[str] = "lac"
    size_metric: ClassVar[str] = "mean_size"
    coverage_metric: ClassVar[str | None] = "coverage"
    by_group: ClassVar[bool] = True
    options: ClassVar[tuple[str, ...]] = ("proba",)
    metrics: tuple[Metric, ...] = (
        Metric("coverage", "coverage", "share", "target", "Share of test rows whose label is in the set."),
        Metric("mean_size", "mean size", "labels", "lower", "Mean number of labels in a set."),
        Metric("share_empty", "empty", "share", "lower", "Share of sets without a label."),
        Metric("share_singleton", "one label", "share", "higher", "Share of sets with exactly one label."),
        Metric(
            "worst_class_coverage",
            "worst-class coverage",
            "share",
            "higher",
            "Coverage among the test rows of the class where it is worst.",
        ),
        Metric(
            "size_stratified_gap",
            "gap over sizes",
            "share",
            "lower",
            "Largest distance of coverage from 1 - alpha over sets of 0-1, 2-3, 4-6, 7-10, 11-100 and more "
            f"labels, where there are at least {MIN_STRATUM_ROWS} of them.",
        ),
        Metric(
            "class_coverage_gap",
            "gap over classes",
            "share",
            "lower",
            "Mean distance of a class's coverage from 1 - alpha.",
        ),
        *groups.METRICS,
        Metric("fit_seconds", "fit", "s", "lower", "Seconds to fit and calibrate."),
        Metric("predict_seconds", "predict", "s", "lower", "Seconds to predict the test rows."),
        Metric("peak_memory", "peak memory", "MiB", "lower", "Peak memory above the start of the trial."),
    )

    def __init__(self, proba: bool = False) -> None:
        self.bare = bool(proba)

    def check(self, table: Table, alpha: Fraction) -> None:
        """Refuse a single class, classes with a single row, too many groups, and too few rows for alpha."""
        groups.check_groups(table)
        if self.bare:
            bare_probabilities.check(table, alpha)
            return
        n, name = len(table), table.target
        if kind_of(table.y) == "date":
            raise TaskError(f"the target {name!r} is dates; sets of labels need classes")
        values = table.y
        if values.dtype.kind == "f" and np.isinf(values.to_numpy()).any():
            infinite = np.isinf(values.to_numpy())
            raise DataError(
                f"the target {name!r} is infinite in {int(infinite.sum())} of {n} rows, first at row "
                f"{int(infinite.argmax())}; leave those rows out"
            )
        classes, counts = np.unique(as_labels(table), return_counts=True)
        if len(classes) == 1:
            raise DataError(f"the target {name!r} has one class only: {classes[0]} in all {n} rows")
        if (counts == 1).any():
            single = [str(label) for label in classes[counts == 1]]
            listed = ", ".join(map(repr, single[:5])) + (", ..." if len(single) > 5 else "")
            raise DataError(
                f"{len(single)} of {len(classes)} classes of {name!r} have a single row: {listed}; at least "
                "2 rows a class are needed. Merge rare classes or leave those rows out"
                + ("; for a number, --task interval" if kind_of(values) == "number" else "")
            )
        check_row_count(n, alpha, surely=int((counts // PART).sum()))

    def split(self, table: Table, seed: int) -> Split:
        """Of each class half of the rows train, a quarter calibrates, a quarter tests.

        Of bare probabilities half of the rows calibrates and half tests.
        """
        if self.bare:
            return bare_probabilities.split(table, seed)
        labels = as_labels(table)
        classes, encoded = np.unique(labels, return_inverse=True)
        parts = stratified_parts(encoded, seed)
        return make_split(table, labels, parts, seed, classes, groups.row_groups(table))

    def final_split(self, table: Table, seed: int) -> Split:
        """See :class:`~assay.tasks.base.Task`; shared out within each class."""
        labels = self.outcomes(table)
        classes, encoded = np.unique(labels, return_inverse=True)
        parts = without_test(stratified_parts(encoded, seed))
        return make_split(table, labels, parts, seed, classes, groups.row_groups(table))

    def outcomes(self, table: Table) -> NDArray[Any]:
        """(n,) labels."""
        return as_labels(table)

    def answers(self, asked: Asked) -> dict[str, Any]:
        """``prediction`` (where the method has one), ``set`` (a list of labels) and its ``size``."""
        sets, classes = _sets_of(asked)
        labels = [str(label) for label in classes]
        held = [[labels[k] for k in np.flatnonzero(row)] for row in sets]
        return {**running.centre(asked), "set": held, "size": sets.sum(axis=1)}

    def covered(self, asked: Asked, y: NDArray[Any]) -> tuple[measures.BoolArray, FloatArray]:
        """See :class:`~assay.tasks.base.Task`; a label that the method does not know is not covered."""
        sets, classes = _sets_of(asked)
        place = {label: k for k, label in enumerate(classes.tolist())}
        column = np.array([place.get(label, -1) for label in y.tolist()], dtype=np.intp)
        covered = (column >= 0) & sets[np.arange(len(y)), column]
        return covered, sets.sum(axis=1).astype(np.float64)

    def default_model(self) -> Any:
        """Gradient-boosted trees: as good as many more on digits and Adult, 0.3 s a fit on one core.

        Without the penalty their probabilities go to 0 and 1 where classes are rare (16 classes of Adult's
        education: log loss 3.6 to 6.8 instead of 1.7).
        None for bare probabilities.
        """
        if self.bare:
            return None
        from sklearn.ensemble import HistGradientBoostingClassifier

        return HistGradientBoostingClassifier(
            max_iter=30, learning_rate=0.2, max_leaf_nodes=15, l2_regularization=1.0, early_stopping=False
        )

    def accepts(self, method: Any) -> str | None:
        """None if there are ``fit(X, y)`` and ``predict_set(X)``, or their forms for bare probabilities."""
        if self.bare:
            return bare_probabilities.lacks(method)
        return running.lacks(method, "predict_set")

    def evaluate(self, method: Any, split: Split, alpha: Fraction) -> Outcome:
        """See :class:`~assay.tasks.base.Task`; peak memory is measured around it, by the comparison."""
        if split.classes is None:
            raise TaskError("the split has no classes; it was not made by a label-set task")
        notices: tuple[str, ...] = ()
        if self.bare:
            fit_seconds = bare_probabilities.fit(method, split)
            raw, predict_seconds = bare_probabilities.predict(method, split, alpha)
        else:
            fit_seconds = running.fit(method, split)
            raw, predict_seconds, notices = running.predict(method, "predict_set", split, alpha)
        sets, unseen = align_sets(raw, getattr(method, "classes_", None), split.classes, len(split.X_test))
        if unseen:
            notices = (
                *notices,
                f"{unseen} of {len(split.classes)} classes are unknown to it: never in a set",
            )
        K = len(split.classes)
        order = np.argsort(split.classes, kind="stable")  # those of bare probabilities are in any order
        true = order[np.searchsorted(split.classes[order], split.y_test)]
        covered = sets[np.arange(len(sets)), true]
        sizes = sets.sum(axis=1)
        per_class, rows_of_class = measures.class_coverage(true, covered, K)
        worst = int(np.nanargmin(per_class))
        metrics = {
            "coverage": float(covered.mean()),
            "mean_size": float(sizes.mean()),
            "share_empty": float((sizes == 0).mean()),
            "share_singleton": float((sizes == 1).mean()),
            "worst_class_coverage": float(per_class[worst]),
            "size_stratified_gap": measures.size_stratified_gap(sizes, covered, alpha, MIN_STRATUM_ROWS),
            "class_coverage_gap": float(np.nanmean(np.abs(per_class - float(1 - alpha)))),
            "fit_seconds": fit_seconds,
            "predict_seconds": predict_seconds,
        }
        n_train, n_calib = (0, len(split.y_calib)) if self.bare else running.rows(method, split)
        labels = [str(label) for label in split.classes]
        values, counts = np.unique(sizes, return_counts=True)
        detail: dict[str, Any] = {
            "n_train": n_train,
            "n_calib": n_calib,
            "n_test": len(sets),
            "expected_coverage": list(measures.expected_coverage(n_calib or n_train, len(sets), alpha)),
            "examples": [
                {
                    "row": int(split.test_rows[i]),
                    "y": labels[true[i]],
                    "set": [labels[k] for k in np.flatnonzero(sets[i])],
                }
                for i in measures.evenly_spread(np.argsort(sizes, kind="stable"), _MAX_EXAMPLES)
            ],
            "by_size": [
                {"label": label, "n": len(rows), "coverage": float(covered[rows].mean())}
                for label, rows in measures.size_strata(sizes)
            ],
            "by_class": [
                {
                    "label": labels[k],
                    "n": int(rows_of_class[k]),
                    "coverage": float(per_class[k]),
                    "mean_size": float(sizes[true == k].mean()),
                }
                for k in range(K)
                if rows_of_class[k]
            ],
            "worst_class": {
                "label": labels[worst],
                "n": int(rows_of_class[worst]),
                "coverage": float(per_class[worst]),
            },
            "size_histogram": [[int(size), int(count)] for size, count in zip(values, counts, strict=True)],
        }
        if split.groups_test is not None:
            of_groups, detail["by_group"] = groups.by_group(split.groups_test, covered, sizes)
            metrics |= of_groups
        return Outcome(metrics, detail, notices)

    def notes(self, table: Table) -> tuple[str, ...]:
        """How groups are used."""
        if self.bare and table.group is not None:
            return ()
        return groups.group_notes(table)


def _sets_of(asked: Asked) -> tuple[measures.BoolArray, NDArray[Any]]:
    """((n, K) bool, (K,) labels of its columns)."""
    classes = to_numpy(asked.method.classes_)
    return align_sets(running.answer(asked, "predict_set"), classes, classes, len(asked.X))[0], classes


def as_labels(table: Table) -> NDArray[Any]:
    """(n,) labels: integers (also for whole floats), true and false, or strings."""
    y = table.y
    kind = kind_of(y)
    if kind == "bool":
        return y.to_numpy(dtype=bool)
    if kind == "number":
        values = y.to_numpy()
        if values.dtype.kind in "iu":
            return np.asarray(values)
        if (values == np.floor(values)).all() and (np.abs(values) < 2**53).all():
            return values.astype(np.int64)
        return np.array([repr(float(value)) for value in values])
    return np.array([str(value) for value in y.to_numpy(dtype=object)])


def align_sets(raw: Any, known: Any, classes: NDArray[Any], n: int) -> tuple[measures.BoolArray, int]:
    """((n, K) bool in the order of ``classes``, number of classes the method does not know)."""
    array = to_numpy(raw)
    if known is None:
        order, columns = np.arange(len(classes)), len(classes)
    else:
        known = to_numpy(known)
        columns = len(known)
        place = {label: k for k, label in enumerate(classes.tolist())}
        strange = [label for label in known.tolist() if label not in place]
        if strange:
            raise MethodError(
                f"classes_ of the method names {len(strange)} labels not in the data, such as {strange[0]!r}"
            )
        order = np.array([place[label] for label in known.tolist()], dtype=int)
    if array.shape != (n, columns):
        raise MethodError(f"predict_set gave shape {array.shape} for {n} rows; ({n}, {columns}) is expected")
    if array.dtype.kind not in "biuf" or not ((array == 0) | (array == 1)).all():
        raise MethodError(f"predict_set gave values that are neither true nor false (dtype {array.dtype})")
    sets = np.zeros((n, len(classes)), dtype=bool)
    sets[:, order] = array.astype(bool)
    return sets, len(classes) - len(order)
