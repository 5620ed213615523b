"""Real data that comes with installed packages, or lies in the folder that $ASSAY_DATA names."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.core.errors import DataError, MissingDependency

if TYPE_CHECKING:
    import pandas as pd

    from assay.data.table import Table

#: the folder of further sets; each set names its file in it
FOLDER_VARIABLE = "ASSAY_DATA"
_LIST = Path(__file__).with_name("sets") / "builtin.toml"
#: the rows of a sampled set are always the same ones
_SAMPLE_SEED = 2025


@cache
def _sets() -> Mapping[str, Mapping[str, Any]]:
    with _LIST.open("rb") as handle:
        return tomllib.load(handle)


def names() -> tuple[str, ...]:
    """Names of all sets, installed or not."""
    return tuple(_sets())


def listing() -> list[dict[str, Any]]:
    """One mapping a set: what ``datasets()`` has, and ``missing`` in place of ``installed``:
    the line that says what to install or set; None where the set can be loaded.
    """
    return [
        {
            "name": name,
            "task": entry["task"],
            "target": entry["target"],
            "rows": entry["rows"],
            "columns": entry["columns"],
            "source": entry.get("package", f"${FOLDER_VARIABLE}/{entry.get('file')}"),
            "licence": entry["licence"],
            "about": entry["about"],
            "missing": _missing(name),
        }
        for name, entry in _sets().items()
    ]


def datasets() -> pd.DataFrame:
    """The real data that can be named in a comparison.

    Returns
    -------
    DataFrame
        One row a set: name, task, target, rows, columns (without the target), source, licence,
        about, installed (whether it can be loaded here).
    """
    import pandas as pd

    frame = pd.DataFrame(listing())
    return frame.assign(installed=frame.pop("missing").isna())


def _missing(name: str, folder: str | Path | None = None) -> str | None:
    """What must be installed or set before the set can be loaded; None if nothing."""
    entry = _sets()[name]
    if package := entry.get("package"):
        if importlib.util.find_spec(package) is not None:
            return None
        return f"{name} needs: pip install 'assay[{entry['extra']}]' (or pip install {package})"
    folder = folder or os.environ.get(FOLDER_VARIABLE)
    if not folder:
        return (
            f"{name} needs a folder of data: set {FOLDER_VARIABLE} to the folder that holds {entry['file']}"
        )
    path = Path(folder) / entry["file"]
    return None if path.is_file() else f"{name} needs {path}, which is not there (data folder: {folder})"


def load(name: str, folder: str | Path | None = None) -> Table:
    """A set by its name.

    Parameters
    ----------
    name : str
    folder : path, optional
        Where sets lie that come in no package; $ASSAY_DATA by default.

    Raises
    ------
    DataError
        No set of that name.
    MissingDependency
        The package or the folder it comes from is not there; the message says what to install or set.
    """
    if name not in _sets():
        near = difflib.get_close_matches(name, names(), 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise DataError(f"no built-in set {name!r}{hint}. There are: {', '.join(names())}")
    if (reason := _missing(name, folder)) is not None:
        raise MissingDependency(reason)
    from assay.data.build import build

    entry = _sets()[name]
    frame, notes = _read(entry, folder)
    frame = frame.drop(columns=list(entry.get("drop", ())))
    if entry.get("complete") == "rows":
        whole = frame.dropna()
        notes.append(f"{len(frame) - len(whole)} of {len(frame)} rows left out: a value is missing there")
        frame = whole
    elif entry.get("complete") == "columns":
        whole = frame.dropna(axis="columns")
        notes.append(f"{frame.shape[1] - whole.shape[1]} columns left out: values are missing there")
        frame = whole
    if size := entry.get("sample"):
        notes.append(f"a fixed sample of {size:,} of {len(frame):,} rows")
        frame = frame.sample(size, random_state=_SAMPLE_SEED)
    if names_in := entry.get("wide"):
        time, group = entry["time"], entry["group"]
        frame = frame.rename(columns={names_in: group}).melt(group, var_name=time, value_name=entry["target"])
        frame = frame.dropna()
        frame[time] = frame[time].astype(str).str.extract(r"(\d+)$", expand=False).astype(int)
        notes.append("one line a series in the file: brought to one row a series and step")
    if entry.get("count_rows"):
        frame = frame.assign(**{entry["time"]: range(len(frame))})
        notes.append("no times in the file: the rows are counted")
    targets = entry["target"].split(", ")
    return build(
        frame,
        targets if len(targets) > 1 else targets[0],
        name,
        f"built-in {name}",
        notes=notes,
        time=entry.get("time"),
        group=entry.get("group"),
    )


def _read(entry: Mapping[str, Any], folder: str | Path | None) -> tuple[pd.DataFrame, list[str]]:
    import numpy as np

    from assay.data.files import arrays_frame, read_file

    if "loader" in entry:
        return _read_sklearn(entry), []
    if package := entry.get("package"):
        # the package itself is never imported: it may pull in much, and only its file is wanted
        spec = importlib.util.find_spec(package)
        locations = (spec.submodule_search_locations if spec else None) or []
        for location in locations:
            path = Path(location) / entry["file"]
            if path.is_file():
                return read_file(path)
        raise MissingDependency(f"the installed {package} has no {entry['file']}; install a newer one")
    path = Path(folder or os.environ[FOLDER_VARIABLE]) / entry["file"]
    if arrays := entry.get("arrays"):
        with np.load(path, allow_pickle=False) as stored:
            return arrays_frame({name: stored[array] for name, array in arrays.items()}, str(path))
    return read_file(path)


def _read_sklearn(entry: Mapping[str, Any]) -> pd.DataFrame:
    loader = getattr(importlib.import_module("sklearn.datasets"), entry["loader"])
    options = {"scaled": False} if entry["loader"] == "load_diabetes" else {}
    bunch = loader(as_frame=True, **options)
    y = bunch.target
    labels = bunch.get("target_names")
    if entry["task"] == "label-set" and labels is not None and isinstance(labels[0], str):
        y = y.map(dict(enumerate(map(str, labels))))
    frame: pd.DataFrame = bunch.data.assign(**{entry["target"]: y})
    return frame
