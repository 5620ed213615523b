"""Class probabilities and class labels as they come from users: checked, never repaired.

Probabilities are read in blocks of rows, so that the check costs one pass over memory that is
in the cache anyway, and nothing of the size of the input is ever copied.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.checks import to_float, to_numpy
from assay.core.errors import DataError

#: how far the sum of a row may be from one, by the dtype in which the probabilities are given.
#: A float32 softmax over 1,000 classes is off by up to 2e-5, also after a cast to float64.
SUM_TOLERANCE = {"float16": 1e-2, "float32": 1e-3, "float64": 1e-4}

_BLOCK = 1 << 20


class Probabilities:
    """(n, K) class probabilities of n rows; :meth:`blocks` hands them out, checked.

    Parameters
    ----------
    values : (n, K) array, DataFrame, list or tensor
        float16, float32 and float64 are read as they are, anything else as float64.
    name : str
        Word for error messages.
    n_classes : int, optional
        Number of columns that is required.

    Raises
    ------
    DataError
        Not a table of numbers, no column, or the wrong number of columns.
    """

    def __init__(self, values: Any, name: str = "proba", n_classes: int | None = None) -> None:
        array = to_numpy(values)
        if array.ndim != 2:
            raise DataError(
                f"{name} has shape {array.shape}; give one row a sample and one column a class, shape (n, K)"
            )
        if array.dtype.name not in SUM_TOLERANCE:
            array = to_float(array, name)
        if array.shape[1] == 0:
            raise DataError(f"{name} has no columns; give one column a class")
        if n_classes is not None and array.shape[1] != n_classes:
            raise DataError(f"{name} has {array.shape[1]} columns, {n_classes} classes are expected")
        self.values: NDArray[Any] = array
        self.name = name
        self.tolerance = SUM_TOLERANCE[array.dtype.name]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def n_classes(self) -> int:
        """Number of columns K."""
        return int(self.values.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64, the type of the blocks."""
        return np.dtype(np.float64 if self.values.dtype == np.float64 else np.float32)

    def blocks(self, max_bytes: int = _BLOCK) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Consecutive rows and where they stand, each checked when it is handed out.

        A block is a contiguous float32 or float64 array of at most ``max_bytes`` bytes, and of at
        least one row.

        Raises
        ------
        DataError
            A probability is NaN, infinite or negative, or a row does not sum to one. The message
            names the first such row and counts them over the whole input.
        """
        rows = max(1, max_bytes // (self.n_classes * self.dtype.itemsize))
        for start in range(0, len(self), rows):
            block = np.ascontiguousarray(self.values[start : start + rows], dtype=self.dtype)
            with np.errstate(all="ignore"):
                # NaN fails both comparisons. This sum, in the dtype of the block, is right to far less
                # than half the tolerance; what it leaves open is decided by the float64 sum
                sums = np.einsum("ij->i", block)
                fine = np.abs(sums - 1).max() <= self.tolerance / 2 and block.min() >= 0
            if not fine:
                self._refuse(block, start)
            yield slice(start, start + len(block)), block

    def take(self, rows: Any) -> Probabilities:
        """Those rows, by a mask or by their numbers."""
        return Probabilities(self.values[rows], self.name)

    def check(self) -> None:
        """Check all rows; raises what :meth:`blocks` raises."""
        for _ in self.blocks():
            pass

    def _bad(self, block: NDArray[Any]) -> tuple[NDArray[np.bool_], NDArray[np.bool_], NDArray[np.float64]]:
        with np.errstate(all="ignore"):
            sums = block.sum(axis=1, dtype=np.float64)
            wrong_value = ~((block >= 0) & np.isfinite(block)).all(axis=1)
            wrong_sum = ~(np.abs(sums - 1) <= self.tolerance)
        return wrong_value, wrong_sum, sums

    def _refuse(self, block: NDArray[Any], start: int) -> None:
        wrong_value, wrong_sum, sums = self._bad(block)
        bad = wrong_value | wrong_sum
        if not bad.any():
            return
        step = len(block)
        count = int(bad.sum())
        for later in range(start + step, len(self), step):
            values, totals, _ = self._bad(np.asarray(self.values[later : later + step]))
            count += int((values | totals).sum())
        at = int(np.argmax(bad))
        where = f"first at row {start + at}; {count} of {len(self)} rows cannot be used"
        if wrong_value[at]:
            row = block[at]
            column = int(np.argmax(~((row >= 0) & np.isfinite(row))))
            value = float(row[column])
            kind = "NaN" if np.isnan(value) else "infinite" if np.isinf(value) else f"negative ({value:.6g})"
            hint = "; are these logits? Give their softmax" if np.isfinite(value) else ""
            raise DataError(f"{self.name} is {kind} in column {column}, {where}{hint}")
        raise DataError(
            f"{self.name}: the row sums to {sums[at]:.6g} instead of 1 "
            f"(within {self.tolerance:g} for {self.values.dtype.name}), {where}"
        )


def softmax(logits: Any) -> NDArray[Any]:
    """(n, K) probabilities of (n, K) logits, or of (n,) or (n, 1) logits of the second of two classes."""
    from scipy.special import expit, softmax

    array = to_numpy(logits)
    if array.dtype == np.float16:
        array = array.astype(np.float32)
    if array.ndim == 1 or array.shape[1] == 1:
        positive = expit(array.reshape(-1))
        return np.stack([expit(-array.reshape(-1)), positive], axis=1)
    return np.asarray(softmax(array, axis=1))


def is_probability(outputs: NDArray[Any]) -> bool:
    """Whether all rows of a model's (n, K) outputs are probabilities; (n,) or (n, 1) must lie in [0, 1]."""
    if outputs.ndim == 1 or outputs.shape[1] == 1:
        return bool(((outputs >= 0) & (outputs <= 1)).all())
    try:
        Probabilities(outputs).check()
    except DataError:
        return False
    return True


def check_labels(y: Any, *, length: int | None = None, name: str = "y") -> NDArray[Any]:
    """(n,) labels of any kind but continuous numbers; (n, 1) means the same.

    Raises
    ------
    DataError
        Wrong shape or length, or missing labels (naming the first row and the count).
    """
    array = to_numpy(y)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise DataError(f"{name} has shape {array.shape}; give one label a row, shape (n,)")
    if length is not None and len(array) != length:
        raise DataError(f"{name} has {len(array)} rows, {length} are expected")
    if array.dtype.kind == "O":
        missing = np.fromiter((_is_missing(label) for label in array), dtype=bool, count=len(array))
    elif array.dtype.kind in "fc":
        missing = ~np.isfinite(array)
    else:
        missing = np.zeros(0, dtype=bool)
    if missing.any():
        raise DataError(
            f"{name} is missing, NaN or infinite in {int(missing.sum())} of {len(array)} rows, "
            f"first at row {int(np.argmax(missing))}; leave those rows out"
        )
    if array.dtype.kind == "f" and (array != np.floor(array)).any():
        at = int(np.argmax(array != np.floor(array)))
        raise DataError(
            f"Unknown label type: {name} holds continuous numbers ({array[at]:g} at row {at}), not classes"
        )
    return array


def _is_missing(label: Any) -> bool:
    if label is None or type(label).__name__ in {"NAType", "NaTType"}:
        return True
    return isinstance(label, float | np.floating) and not np.isfinite(label)


def distinct_labels(*parts: NDArray[Any]) -> NDArray[Any]:
    """Sorted distinct labels of one or several checked arrays."""
    try:
        return np.unique(np.concatenate(parts) if len(parts) > 1 else parts[0])
    except TypeError:
        kinds = sorted({type(label).__name__ for part in parts for label in part})
        raise DataError(f"the labels mix types that have no common order: {', '.join(kinds)}") from None


def encode_labels(y: NDArray[Any], classes: NDArray[Any]) -> NDArray[np.intp]:
    """(n,) positions of the labels in ``classes``; -1 where a label is not among them."""
    if _kind(y) != _kind(classes) and y.dtype.kind != "O" and classes.dtype.kind != "O":
        return np.full(len(y), -1, dtype=np.intp)
    if y.dtype.kind == "O" or classes.dtype.kind == "O":
        position = {label: i for i, label in enumerate(classes.tolist())}
        return np.fromiter((position.get(label, -1) for label in y.tolist()), dtype=np.intp, count=len(y))
    order = np.argsort(classes, kind="stable")
    ranked = classes[order]
    at = np.minimum(np.searchsorted(ranked, y), len(classes) - 1)
    return np.where(ranked[at] == y, order[at], -1)


def known_labels(y: NDArray[Any], classes: NDArray[Any], name: str = "y") -> NDArray[np.intp]:
    """(n,) positions of the labels in ``classes``.

    Raises
    ------
    DataError
        A label is not among the classes: it is named, with the first row and the count.
    """
    codes = encode_labels(y, classes)
    unseen = codes < 0
    if unseen.any():
        at = int(np.argmax(unseen))
        shown = ", ".join([*map(repr, classes[:8].tolist()), *(["..."] if len(classes) > 8 else [])])
        raise DataError(
            f"{name} holds {y[at : at + 1].tolist()[0]!r} at row {at}, which is none of the {len(classes)} "
            f"classes ({shown}); {int(unseen.sum())} of {len(y)} rows have an unknown label"
        )
    return codes


def classes_of_columns(
    y: NDArray[Any], n_classes: int, classes: Sequence[Any] | NDArray[Any] | None = None
) -> NDArray[Any]:
    """The label of each of K columns of probabilities.

    Given ``classes`` are taken as they are. Otherwise integers in 0 .. K - 1 (or booleans for two
    columns) name the columns themselves, and K distinct labels stand for the columns in sorted order.

    Raises
    ------
    DataError
        The labels do not tell which column is whose: give ``classes``.
    """
    if classes is not None:
        given = check_labels(classes, name="classes")
        if len(given) != n_classes:
            raise DataError(f"classes has {len(given)} labels for {n_classes} columns of probabilities")
        if len(distinct_labels(given)) != n_classes:
            raise DataError(f"classes names a label twice: {given.tolist()}")
        return given
    if y.dtype.kind == "b" and n_classes == 2:
        return np.array([False, True])
    seen = distinct_labels(y)
    if seen.dtype.kind in "iuf" and len(seen) and seen[0] >= 0 and seen[-1] < n_classes:
        return np.arange(n_classes)
    if len(seen) == n_classes:
        return seen
    raise DataError(
        f"{n_classes} columns of probabilities and {len(seen)} distinct labels: which column is which class "
        "cannot be told; give classes=[...] in the order of the columns"
    )


def _kind(array: NDArray[Any]) -> str:
    return "text" if array.dtype.kind in "USO" else array.dtype.kind if array.dtype.kind in "Mm" else "number"
