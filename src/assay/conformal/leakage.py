"""Training rows that come again as calibration rows: seen where rows are numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.checks import FloatArray, to_numpy
from assay.core.errors import DataError
from assay.core.probabilities import encode_labels
from assay.core.seeds import row_keys

# part of the calibration rows that a training row must match alone
_MOSTLY = 0.5


def content_keys(X: Any, Y: FloatArray) -> NDArray[np.uint64]:
    """A key for the content of each row, by which training rows are known again; none for text."""
    features = to_numpy(X)
    if features.dtype.kind not in "biuf" or len(features) == 0:
        return np.empty(0, dtype=np.uint64)
    return row_keys(np.hstack([features.reshape(len(features), -1), Y.reshape(len(Y), -1)]), 0, "row")


def leaked(keys: NDArray[np.uint64], trained_on: NDArray[np.uint64]) -> bool:
    """Whether all calibration rows are training rows, most of them ones that stand there once.

    Rows that repeat in the data may well fall into both parts.
    """
    if len(keys) < 2 or not np.isin(keys, trained_on).all():
        return False
    known, times = np.unique(trained_on, return_counts=True)
    return bool(np.isin(keys, known[times == 1]).mean() > _MOSTLY)


def refuse_training_rows(X: Any, Y: FloatArray, X_calib: Any, Y_calib: FloatArray) -> None:
    """Refuse calibration rows that are all training rows: the errors there are those of training.

    Raises
    ------
    DataError
        The same table and targets are given twice, or every calibration row, with its targets, is a
        training row, most of them one that does not repeat.
    """
    same = X_calib is X and len(Y) > 1 and np.array_equal(Y_calib, Y)
    if same or leaked(content_keys(X_calib, Y_calib), content_keys(X, Y)):
        raise DataError(
            f"all {len(Y_calib)} calibration rows are training rows: errors there are too small, and nothing "
            "would be guaranteed; give other rows, or leave X_calib out and some are set aside"
        )


def refuse_training_labels(
    X: Any, y: NDArray[Any], X_calib: Any, y_calib: NDArray[Any], classes: NDArray[Any]
) -> None:
    """The same for (n,) labels of sorted ``classes``."""
    of_training, of_calibration = (encode_labels(labels, classes).astype(float) for labels in (y, y_calib))
    refuse_training_rows(X, of_training, X_calib, of_calibration)
