"""A method fitted on a user's table: it predicts new rows, is saved to one file, and loaded again."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.compose import ColumnTransformer

import assay
from assay.core.archive import BrokenArchive, read_archive, write_archive
from assay.core.errors import AssayWarning, DataError, MissingDependency
from assay.core.levels import parse_alpha
from assay.core.models import asked_once
from assay.core.objects import Decoder, Encoder, NotLoaded, NotSaved, from_json, to_json
from assay.data.batches import BATCH_ROWS, frame_batches, read_batches
from assay.data.read import as_frame
from assay.data.schema import Notices, Schema
from assay.data.table import Table
from assay.engine.bench import load_task
from assay.engine.identity import library_versions
from assay.tasks import Task
from assay.tasks.base import Asked
from assay.tasks.groups import names_in
from assay.tasks.splitting import prepared_rows

#: of the file; a reader of another number refuses it
FORMAT = 1
_ABOUT, _STATE = "about.json", "state.json"
#: rows on which a loaded method must answer as it did when it was saved
_PROBE_ROWS = 8
_PROBE_TOLERANCE = 1e-6
#: what the head of a file must say, and of which type
_FACTS: dict[str, Any] = {
    **dict.fromkeys(("kind", "task", "why_task", "method", "model", "alpha", "dataset", "source"), str),
    **dict.fromkeys(("fingerprint", "created", "guarantee"), str),
    **dict.fromkeys(("seed", "n_rows", "n_train", "n_calib"), int),
    **dict.fromkeys(("targets", "groups", "group_column", "columns", "outcome_columns"), list),
    **dict.fromkeys(("notes", "trust"), list),
    **dict.fromkeys(("options", "params", "versions", "calib_by_group"), dict),
    **dict.fromkeys(("card", "group"), (str, type(None))),
    "classes": (list, type(None)),
}


@dataclass
class FittedMethod:
    """A fitted method with all that is needed to use it on new rows of the same columns.

    Attributes
    ----------
    method : the fitted object itself; it takes prepared rows (``prepare``)
    preparation : the fitted transformer from columns to numbers
    schema : the feature columns
    seen : (n,) sorted hashes of the rows that it was fitted on
    about : JSON-able facts: task, method, targets, alpha, rows, data, versions, ...
    notices : what was said while it was fitted or loaded
    """

    method: Any
    preparation: Any
    schema: Schema
    seen: NDArray[np.uint64]
    about: dict[str, Any]
    notices: tuple[str, ...] = field(default=())

    def __repr__(self) -> str:
        about = self.about
        return f"<{about['method']} fitted on {about['n_rows']:,} rows of {about['dataset']}: {self.target}>"

    @property
    def task(self) -> Task:
        """The kind of question that it answers."""
        return load_task(self.about["task"], self.about["options"])

    @property
    def target(self) -> str:
        """The targets as a label."""
        return ", ".join(self.about["targets"])

    @property
    def alpha(self) -> Fraction:
        """Miscoverage that it was calibrated for."""
        return parse_alpha(self.about["alpha"])

    def predict(self, data: Any, *, notices: Notices | None = None) -> pd.DataFrame:
        """What the method says of each row.

        Parameters
        ----------
        data : path, DataFrame or (n, d) array
            With the feature columns of training, in any order; others are left out. An array must have
            the training columns in their order.
        notices : Notices, optional
            Told what is strange in the rows; without it a warning says so.

        Returns
        -------
        DataFrame
            One row a row of ``data``, in its order (a DataFrame keeps its index). Intervals:
            ``prediction``, ``lower``, ``upper``. Label sets: ``prediction``, ``set`` (a list), ``size``.
            Distributions: ``prediction``, ``sd``, ``lower``, ``upper``, or ``entropy`` and ``p_LABEL`` each.
            Regions: ``prediction_T``, ``lower_T``, ``upper_T`` a target, and ``volume``.

        Raises
        ------
        DataError
            Columns are missing, or hold what they did not hold in training: by name, with the first row.
        """
        found = Notices() if notices is None else notices
        pieces = list(self.predict_batches(data, notices=found))
        if notices is None:
            for line in found.lines():
                warnings.warn(line, AssayWarning, stacklevel=2)
        return pd.concat(pieces) if pieces else self._answers(self._no_rows())

    def predict_batches(
        self, data: Any, *, notices: Notices, keep: Sequence[str] = (), rows: int = BATCH_ROWS
    ) -> Iterator[pd.DataFrame]:
        """The same a batch at a time, in bounded memory; columns to ``keep`` come first, as they are."""
        for start, frame in self._batches(data, rows):
            absent = [name for name in keep if name not in frame.columns]
            if absent:
                raise DataError(f"no column {absent[0]!r} to keep; there are: {', '.join(frame.columns)}")
            answers = self._answers(self._features(frame, start, notices, keep), frame, notices)
            both = [name for name in keep if name in answers.columns]
            if both:
                raise DataError(f"the column {both[0]!r} to keep has the name of an answer; rename it")
            yield pd.concat([frame[list(keep)], answers], axis=1) if keep else answers

    def prepare(self, X: pd.DataFrame) -> NDArray[np.float64]:
        """(n, d) numbers that ``method`` takes, from a frame of the schema's columns."""
        return prepared_rows(self.preparation, X)

    def asked(
        self, features: pd.DataFrame, frame: pd.DataFrame | None = None, notices: Notices | None = None
    ) -> Asked:
        """The question to the task about rows; ``frame`` has the group column where it is no feature."""
        return Asked(
            self.method,
            self.prepare(features[list(self.schema.names)]),
            self.alpha,
            tuple(self.about["targets"]),
            self._groups(features if frame is None else frame, notices or Notices()),
        )

    def labelled(self, data: Any, notices: Notices) -> Iterator[tuple[pd.DataFrame, Table]]:
        """(all columns, the table of features and targets) of the rows with an outcome, a batch at a time.

        Rows on which the method was fitted are left out with a notice: they say nothing of new ones.
        """
        targets = tuple(self.about["targets"])
        for start, frame in self._batches(data, BATCH_ROWS):
            absent = [target for target in targets if target not in frame.columns]
            if absent:
                raise DataError(f"the target {absent[0]!r} is not among the columns; rows must be labelled")
            frame = frame.reset_index(drop=True)
            features = self._features(frame, start, notices, targets)
            given = frame[list(targets)].notna().all(axis=1)
            outcome = self.outcome_schema.conform(frame.loc[given, list(targets)], Notices(), first_row=start)
            outcome = outcome.dropna()  # cells such as "NA" turn out to be missing only now
            known = frame.index.isin(outcome.index)
            if not known.all():
                notices.add(self.target, "without an outcome, left out", int((~known).sum()))
            ready = pd.concat([features[known], outcome], axis=1)
            fresh = ~np.isin(row_hashes(ready), self.seen)
            if not fresh.all():
                what = "that it was fitted on, left out"
                notices.add(self.about["method"], what, int((~fresh).sum()))
            yield frame[known][fresh], Table(self.target, ready[fresh], targets, "", "")

    @property
    def outcome_schema(self) -> Schema:
        """The target columns."""
        return Schema.from_list(self.about["outcome_columns"])

    def save(self, path: str | PathLike[str]) -> Path:
        """Write one file: a zip archive of arrays and JSON, and of skops parts for scikit-learn; no pickle.

        Under the name there is the whole file or, if anything goes wrong, what was there before.

        Raises
        ------
        StoreError
            The file cannot be written.
        NotSaved
            The method holds something that a file cannot, such as a function of a notebook.
        """
        target = Path(path)
        X = _probe(self.preparation)
        groups = self._probe_groups(len(X))
        state = {
            "method": self.method,
            "preparation": self.preparation,
            "seen": self.seen,
            "probe": _comparable(self.task.answers(replace(self._asked_bare(X), groups=groups))),
        }
        _write(target, {**self.about, "columns": self.schema.to_list()}, state, self._check_copy)
        return target

    def _check_copy(self, state: Mapping[str, Any]) -> None:
        """Refuse a copy that answers otherwise: an object lost something on its way through the file."""
        copy = replace(self, method=state["method"], preparation=state["preparation"])
        differing = _differing(copy, state["probe"])
        if differing:
            raise NotSaved(
                f"{self.about['method']} answers otherwise when it is read back ({', '.join(differing)}): "
                "a model in it cannot be saved whole"
            )

    def _asked_bare(self, X: NDArray[np.float64]) -> Asked:
        return Asked(self.method, X, self.alpha, tuple(self.about["targets"]))

    def _probe_groups(self, n: int) -> NDArray[Any] | None:
        values = self.about["groups"]
        return None if not values else np.resize(np.array(values, dtype=object), n)

    def _batches(self, data: Any, rows: int) -> Iterator[tuple[int, pd.DataFrame]]:
        if isinstance(data, (str, Path)):
            yield from read_batches(Path(data), rows)
            return
        frame = as_frame(data, self.schema.names)
        yield from frame_batches(frame, rows)

    def _features(
        self, frame: pd.DataFrame, start: int, notices: Notices, known: Sequence[str]
    ) -> pd.DataFrame:
        others = (*self.about["targets"], *known, *([self.about["group"]] if self.about["group"] else ()))
        return self.schema.conform(frame, notices, first_row=start, known=others)

    def _answers(
        self,
        features: pd.DataFrame,
        frame: pd.DataFrame | None = None,
        notices: Notices | None = None,
    ) -> pd.DataFrame:
        asked = self.asked(features, frame, notices)
        with asked_once():
            answers = self.task.answers(asked)
        return pd.DataFrame(answers, index=features.index)

    def _groups(self, frame: pd.DataFrame, notices: Notices) -> NDArray[Any] | None:
        group = self.about["group"]
        if not self.about["groups"]:
            return None
        if group not in frame.columns:
            raise DataError(f"the column {group!r} is missing: {self.about['method']} works on its groups")
        schema = Schema.from_list(self.about["group_column"])
        names = names_in(schema.conform(frame[[group]], Notices())[group])
        strange = ~np.isin(names, self.about["groups"])
        if strange.any():
            what = "of a group without training rows"
            notices.add(group, what, int(strange.sum()), list(dict.fromkeys(names[strange]))[:3])
        return names

    def _no_rows(self) -> pd.DataFrame:
        return pd.DataFrame({name: [] for name in self.schema.names})


def row_hashes(frame: pd.DataFrame) -> NDArray[np.uint64]:
    """(n,) a number for each row: equal for equal rows, and hardly ever for others."""
    return np.asarray(pd.util.hash_pandas_object(frame, index=False), dtype=np.uint64)


def save(fitted: Any, path: str | PathLike[str]) -> Path:
    """Save any fitted method, also one that was fitted without a table, to one file.

    Parameters
    ----------
    fitted : FittedMethod, or a fitted object of a class of assay (or one that can be imported)
    path : file to write; it is whole or not there

    Raises
    ------
    NotSaved
        It holds something that a file cannot; the message names the attribute.
    """
    target = Path(path)
    if isinstance(fitted, FittedMethod):
        return fitted.save(target)
    name = f"{type(fitted).__module__}:{type(fitted).__qualname__}"
    _write(target, {"format": FORMAT, "kind": "object", "class": name}, {"method": fitted})
    return target


def load(path: str | PathLike[str], *, trusted: Collection[str] = ()) -> Any:
    """What :func:`save` wrote: a :class:`FittedMethod`, or the fitted object itself.

    Nothing in the file is run: classes and functions come from the installed packages, and only from
    those that are known, or named here.

    Parameters
    ----------
    path : file
    trusted : names, optional
        Further types that may be made, as the error names them ("package.module:Class").

    Raises
    ------
    BrokenArchive
        The file is damaged or something else.
    NotLoaded
        It holds types that are not trusted, or was saved by a version that this one cannot read, or
        answers otherwise than when it was saved.
    """
    source = Path(path)
    about, members = _read(source)
    try:
        state = Decoder(members, trusted).decode(from_json(members[_STATE]))
        if about["kind"] == "object":
            return state["method"]
        _check_state(state)
        columns = Schema.from_list(about.pop("columns"))
        fitted = FittedMethod(
            state["method"], state["preparation"], columns, state["seen"], about, tuple(about["notes"])
        )
        _check_probe(fitted, state["probe"], source)
    except NotLoaded as error:
        raise NotLoaded(f"{source}: {error}{_since(about)}") from error
    except MissingDependency:
        raise
    except Exception as error:  # whatever the objects of a hostile file, or of another version, raise
        why = f"{type(error).__name__}: {error}"
        raise NotLoaded(f"{source} does not describe a saved method: {why}{_since(about)}") from error
    return fitted


def _check_state(state: Mapping[str, Any]) -> None:
    """Refuse parts of a saved method that are of another kind than those that are written."""
    seen, probe = state["seen"], state["probe"]
    if not isinstance(state["preparation"], ColumnTransformer):
        raise TypeError("its preparation is no ColumnTransformer")
    if not isinstance(seen, np.ndarray) or seen.dtype != np.uint64 or seen.ndim != 1:
        raise TypeError("what it has seen are no hashes of rows")
    if not isinstance(probe, dict) or not probe:
        raise TypeError("it has no answers to compare with")


def about(path: str | PathLike[str]) -> dict[str, Any]:
    """The facts in the head of a saved file; nothing else of it is made."""
    return _read(Path(path))[0]


# ------------------------------------------------------------------------------------------- inside


def _write(
    path: Path,
    facts: Mapping[str, Any],
    state: Mapping[str, Any],
    check: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> None:
    """Write the file of a state, once what it holds has been read back and found good."""
    encoder = Encoder()
    text = to_json(encoder.encode(dict(state), "the saved method"))
    check(Decoder(encoder.members, encoder.foreign).decode(from_json(text)))
    head = {
        **facts,
        "versions": library_versions(frozenset(encoder.packages)),
        "trust": sorted(encoder.foreign),
    }
    write_archive(path, {_ABOUT: to_json(head), _STATE: text, **encoder.members})


def _read(path: Path) -> tuple[dict[str, Any], dict[str, bytes]]:
    members = read_archive(path)
    if _ABOUT not in members or _STATE not in members:
        raise BrokenArchive(f"{path} is an archive, but of no saved method")
    facts = from_json(members[_ABOUT])
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        known = facts.get("format") if isinstance(facts, dict) else None
        raise NotLoaded(
            f"{path} is written in format {known!r}, and assay {assay.__version__} reads format {FORMAT}: "
            "load it with the version that saved it, or fit and save again"
        )
    kinds = _FACTS if facts.get("kind") != "object" else {"class": str, "versions": dict, "trust": list}
    wrong = [key for key, kind in kinds.items() if key not in facts or not isinstance(facts[key], kind)]
    for key in {"targets", "groups", "notes", "trust", "classes", "versions"} & (kinds.keys() - set(wrong)):
        listed = facts[key].values() if key == "versions" else facts[key] or ()
        wrong += [key] if not all(isinstance(item, str) for item in listed) else []
    if wrong:
        raise NotLoaded(
            f"{path} does not describe a saved method: {', '.join(wrong)} is not there or strange"
        )
    return facts, members


def _since(facts: Mapping[str, Any]) -> str:
    """Which versions differ from those that wrote the file, as the end of a sentence."""
    versions = facts.get("versions", {})
    changed = _changed(versions) if isinstance(versions, dict) else []
    return f" (saved with other versions: {', '.join(changed)})" if changed else ""


def _changed(versions: Mapping[str, str]) -> list[str]:
    here = library_versions(tuple(versions))
    return [
        f"{name} {there}, here {here.get(name, 'not installed')}"
        for name, there in versions.items()
        if here.get(name) != there
    ]


def _probe(preparation: Any) -> NDArray[np.float64]:
    """Rows that are nobody's: drawn around the middle of the prepared features."""
    d = len(preparation.get_feature_names_out())
    return np.random.default_rng(0).normal(size=(_PROBE_ROWS, d))


def _comparable(answers: Mapping[str, Any]) -> dict[str, Any]:
    """Answers as arrays of numbers or lists of text."""
    return {key: [str(v) for v in value] if _is_text(value) else value for key, value in answers.items()}


def _is_text(value: Any) -> bool:
    return not (isinstance(value, np.ndarray) and value.dtype.kind in "biuf")


def _differing(fitted: FittedMethod, expected: Mapping[str, Any]) -> list[str]:
    """Which answers to the made-up rows are not those that are expected."""
    X = _probe(fitted.preparation)
    asked = replace(fitted._asked_bare(X), groups=fitted._probe_groups(len(X)))
    answers = _comparable(fitted.task.answers(asked))
    return [key for key in {**expected, **answers} if not _close(answers.get(key), expected.get(key))]


def _check_probe(fitted: FittedMethod, expected: Mapping[str, Any], source: Path) -> None:
    """Refuse a method that answers otherwise than when it was saved, and say which versions changed."""
    differing = _differing(fitted, expected)
    if differing:
        what = ", ".join(differing)
        raise NotLoaded(f"it answers otherwise than when it was saved ({what}); fit and save again")
    changed = _changed(fitted.about["versions"])
    if changed:
        warnings.warn(
            f"{source} was saved with {'; '.join(changed)}. It answers as before on {_PROBE_ROWS} rows",
            AssayWarning,
            stacklevel=4,
        )


def _close(got: Any, expected: Any) -> bool:
    if _is_text(expected):
        return bool(got == expected)
    if not isinstance(got, np.ndarray) or got.shape != expected.shape:
        return False
    scale = float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0))
    return bool(np.allclose(got, expected, rtol=0, atol=_PROBE_TOLERANCE * scale, equal_nan=True))
