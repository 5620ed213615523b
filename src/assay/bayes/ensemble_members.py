"""Predictions of one member after the other, checked against the labels of their rows and aligned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.checks import FloatArray, refuse_infinite, refuse_nan, to_float, to_numpy
from assay.core.errors import DataError
from assay.core.probabilities import Probabilities, check_labels, classes_of_columns, known_labels

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Member:
    """Predictions of one member.

    ``order`` are the positions of its columns in the order of the first member's; None if equal.
    """

    values: Probabilities | FloatArray
    order: NDArray[np.intp] | None = None

    @property
    def n_columns(self) -> int:
        """Classes, or outputs."""
        return self.values.n_classes if isinstance(self.values, Probabilities) else int(self.values.shape[1])

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Rows and their float64 predictions, checked and aligned; each block may be written to."""
        if isinstance(self.values, Probabilities):
            for rows, block in self.values.blocks(_BLOCK):
                yield rows, np.array(block if self.order is None else block[:, self.order], dtype=np.float64)
            return
        step = max(1, _BLOCK // (8 * self.n_columns))
        for start in range(0, len(self.values), step):
            rows = slice(start, min(start + step, len(self.values)))
            yield rows, self.values[rows].copy()


class MemberReader:
    """Labels or numbers of the rows, and what every member's predictions must look like.

    Attributes
    ----------
    truth : (n,) positions in ``classes``, or (n, q) numbers
        Known with the first member.
    classes : (K,) labels; empty for numbers
    """

    truth: NDArray[Any]

    def __init__(self, y: Any, *, numbers: bool) -> None:
        self.numbers = numbers
        self.classes: NDArray[Any] = np.empty(0)
        self.y: NDArray[Any] = (
            _two_dimensional(to_float(to_numpy(y), "y"), "y") if numbers else check_labels(y)
        )
        if numbers:
            self.truth = self.y
        if len(self.y) < 2:
            raise DataError(
                f"{len(self.y)} rows: a forecast needs at least 2, and some hundreds to be of use"
            )

    @property
    def n_rows(self) -> int:
        """Rows of every member."""
        return len(self.y)

    def same_rows(self, y: Any) -> bool:
        """Whether these are the labels or numbers that the first member came with."""
        other = MemberReader(y, numbers=self.numbers).y
        return np.array_equal(other, self.y)

    def read(self, member: Any, labels: Any, number: int) -> Member:
        """One member's predictions; ``labels`` are those of its columns.

        Raises
        ------
        DataError
            Another shape than that of the first member, or other classes.
        """
        name = f"member {number}"
        if self.numbers:
            array = _two_dimensional(to_float(to_numpy(member), name), name)
            if array.shape != self.y.shape:
                raise DataError(f"{name} has shape {array.shape}, y has {self.y.shape}")
            return Member(array)
        expected = len(self.classes) or None
        values = Probabilities(member, name, expected)
        if len(values) != self.n_rows:
            raise DataError(f"{name} has {len(values)} rows, y has {self.n_rows}")
        if expected is None:
            self.classes = classes_of_columns(self.y, values.n_classes, labels)
            self.truth = known_labels(self.y, self.classes)
            return Member(values)
        return Member(values, None if labels is None else column_order(labels, self.classes, name))


def column_order(labels: Any, classes: NDArray[Any], name: str) -> NDArray[np.intp] | None:
    """Where each class is among the labels of a member's columns; None if they stand in the same order.

    Raises
    ------
    DataError
        They are not the same classes.
    """
    given = check_labels(labels, name=f"the classes of {name}")
    if len(given) == len(classes) and (given == classes).all():
        return None
    if sorted(map(repr, given.tolist())) != sorted(map(repr, classes.tolist())):
        raise DataError(
            f"{name} has the classes {given.tolist()}, the members before have {classes.tolist()}; members "
            "of an ensemble know the same classes: give a column of zeros for one that a member never saw"
        )
    return known_labels(classes, given, f"the classes of {name}")


def _two_dimensional(array: FloatArray, name: str) -> FloatArray:
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise DataError(f"{name} has shape {array.shape}; give one number a row, or one row of numbers")
    refuse_nan(array, name)
    refuse_infinite(array, name)
    return array
