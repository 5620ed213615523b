"""Class probabilities that are already there, as a table: checked, and no column of features."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.core.checks import to_numpy
from assay.core.errors import DataError
from assay.core.probabilities import (
    Probabilities,
    check_labels,
    classes_of_columns,
    distinct_labels,
    known_labels,
)
from assay.data.columns import fingerprint
from assay.data.table import Table

_LABELS = "y"
_GROUPS = "group"
_FORM = "arrays proba (n, K) and y (n,), perhaps groups (n,) and classes (K,)"


def as_probability_table(data: Any, name: str | None = None) -> Table:
    """A table of probabilities from an NPZ file or from arrays.

    Parameters
    ----------
    data : path, or (proba, y), (proba, y, groups), or (proba, y, groups, classes)
        proba (n, K) class probabilities; y (n,) labels; groups (n,) group of each row, or None; classes
        the K labels in the order of the columns. Without classes integers in 0 .. K - 1 name their
        columns, and K distinct labels of another kind stand for them in sorted order. A file has arrays
        of these names.
    name : str, optional
        What to call it; the file's stem by default.

    Returns
    -------
    Table
        A column ``P(label)`` a class, the labels as categories in the order of the columns, and the
        groups as a column that is no feature.

    Raises
    ------
    DataError
        Not such arrays; probabilities that are NaN, negative or do not sum to one (within 1e-4, or 1e-3 for
        float32 and 1e-2 for float16); labels without a column.
    """
    if isinstance(data, (str, Path)):
        path = Path(data).expanduser()
        arrays = _read(path)
        source, found = str(path), path.name.split(".")[0] or path.name
    elif isinstance(data, tuple) and 2 <= len(data) <= 4:
        arrays = dict(zip(("proba", "y", "groups", "classes"), data, strict=False))
        source, found = "arrays in memory", "probabilities"
    else:
        what = f"a tuple of {len(data)}" if isinstance(data, tuple) else f"a {type(data).__name__}"
        raise DataError(f"{what} was given; give an NPZ file, or a tuple (proba, y) or (proba, y, groups)")
    return _table(arrays, name or found, source)


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise DataError(f"{path}: no such file; give an NPZ file with {_FORM}")
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise DataError(f"{path} holds a single array; give an NPZ file with {_FORM}")
        with loaded as stored:
            names = set(stored.files)
            if missing := [key for key in ("proba", "y") if key not in names]:
                listed = ", ".join(sorted(names)[:8]) or "nothing"
                raise DataError(
                    f"{path} has no array {' and no '.join(missing)}; there are: {listed}. It needs {_FORM}"
                )
            return {key: stored[key] for key in ("proba", "y", "groups", "classes") if key in names}
    except DataError:
        raise
    except (ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path} cannot be read as NPZ: {error}; it needs {_FORM}, of numbers or text (no Python objects)"
        ) from error


def _table(arrays: dict[str, Any], name: str, source: str) -> Table:
    proba = Probabilities(arrays["proba"])
    proba.check()
    n, k = len(proba), proba.n_classes
    if n == 0:
        raise DataError("proba has no rows")
    if k < 2:
        raise DataError("proba has 1 column; give one column a class, two at least")
    y = check_labels(arrays["y"], length=n)
    classes = arrays.get("classes")
    if classes is None and (distinct := len(distinct_labels(y))) > k:
        raise DataError(
            f"y holds {distinct} distinct labels and proba has {k} columns: a label without a column is "
            "in no set. Give probabilities of all classes, or leave the rows of the others out"
        )
    labels = classes_of_columns(y, k, classes)
    codes = known_labels(y, labels)
    texts = [str(label) for label in labels.tolist()]
    frame = pd.DataFrame(proba.values, columns=[f"P({text})" for text in texts])
    columns: dict[str, Any] = {_LABELS: pd.Categorical.from_codes(codes, pd.Index(texts, dtype=object))}
    groups = arrays.get("groups")
    if groups is not None:
        columns[_GROUPS] = _groups(groups, n)
    frame = pd.concat([frame, pd.DataFrame(columns)], axis=1)
    group = None if groups is None else _GROUPS
    return Table(
        name=name,
        frame=frame,
        targets=(_LABELS,),
        fingerprint=fingerprint(frame, (_LABELS,), None, group, group_is_feature=False),
        source=source,
        group=group,
        group_is_feature=False,
    )


def _groups(groups: Any, n: int) -> NDArray[Any]:
    array = to_numpy(groups)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (n,):
        raise DataError(f"groups has shape {array.shape}; give one group a row, shape ({n},)")
    return array
