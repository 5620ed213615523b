"""Rows with labels as ``fit`` gets them: checked, and divided into training and calibration rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_consistent_length

from assay.conformal.interval_base import check_given, split_rows
from assay.conformal.leakage import refuse_training_labels
from assay.core.checks import calibration_given
from assay.core.errors import DataError, MethodError
from assay.core.probabilities import check_labels, distinct_labels


@dataclass(frozen=True)
class LabelledRows:
    """Training and calibration rows, and the (K,) sorted ``classes`` of both together.

    ``drawn`` are the positions of the calibration rows among the given ones, None where they were given.
    """

    X: Any
    y: NDArray[Any]
    X_calib: Any
    y_calib: NDArray[Any]
    classes: NDArray[Any]
    drawn: NDArray[np.intp] | None


def training_and_calibration(
    X: Any, y: Any, X_calib: Any, y_calib: Any, calibration_size: Any, random_state: Any
) -> LabelledRows:
    """The rows that train and those that calibrate; without the latter ``calibration_size`` are drawn.

    Raises
    ------
    DataError
        Missing or continuous labels, lengths that differ, fewer than two rows or two classes to train on,
        ``y_calib`` without ``X_calib``, or calibration rows that are all training rows.
    """
    y = training_labels(X, y)
    drawn = None
    if calibration_given(X_calib, y_calib):
        check_consistent_length(X_calib, y_calib)
        y_calib = check_labels(y_calib, name="y_calib")
        classes = distinct_labels(y, y_calib)
        refuse_training_labels(X, y, X_calib, y_calib, classes)
    else:
        classes = distinct_labels(y)
        X, X_calib, train, drawn = split_rows(X, np.arange(len(y)), calibration_size, random_state)
        y, y_calib = y[train], y[drawn]
    n_training = len(distinct_labels(y))
    if n_training < 2:
        raise DataError(
            f"the {len(y)} training rows hold {n_training} class, a classifier needs two; all rows given "
            f"hold {len(classes)} class(es)"
        )
    return LabelledRows(X, y, X_calib, y_calib, classes, drawn)


def untrained_classifier(estimator: Any) -> Any:
    """A clone of the user's classifier for ``fit`` to train; logistic regression for None."""
    if estimator is not None and not hasattr(estimator, "fit"):
        raise MethodError(
            f"fit trains a clone of a scikit-learn classifier; {type(estimator).__name__} has no "
            "fit. A torch module or a function that is already trained is used by calibrate"
        )
    return LogisticRegression(max_iter=1000) if estimator is None else clone(estimator)


def training_labels(X: Any, y: Any) -> NDArray[Any]:
    """(n,) labels, as many as rows of X; a column (n, 1) is taken with a notice."""
    check_given(X, y, stacklevel=5)
    return check_labels(y)
