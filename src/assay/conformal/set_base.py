"""What the label-set methods share: the contract, the classes, and the way through blocks of rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import get_tags
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from assay.conformal.label_calibrators import GroupCalibrator, LabelCalibrator, MarginalCalibrator
from assay.conformal.label_rows import training_and_calibration, untrained_classifier
from assay.conformal.label_scores import LabelScore
from assay.core.checks import calibration_given, row_count
from assay.core.errors import DataError, MethodError
from assay.core.levels import parse_levels
from assay.core.models import predict_probabilities
from assay.core.probabilities import (
    Probabilities,
    check_labels,
    classes_of_columns,
    distinct_labels,
    encode_labels,
    known_labels,
)
from assay.core.seeds import row_keys, row_uniforms, seed_of, unordered_row_keys

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Codes = NDArray[np.intp]

#: default of ``max_memory``: working memory in bytes
MAX_MEMORY = 64 * 2**20
#: a block of probabilities is no larger than this, whatever memory is allowed: it should stay in the cache
_CACHE = 2**19
#: working memory for one byte of probabilities: sorted copy, float64 sums and scores, comparisons, hashes
_WORK = 12
#: a row's own random number comes from its probabilities on this grid: a model gives a row alone other
#: last digits than the same row in a batch, and the number must be the same
_GRID = np.float32(2**16)


@dataclass(frozen=True, eq=False)
class CalibrationRows:
    """The calibration rows: probabilities, (n,) labels as columns, (n,) groups where they are given.

    ``further`` makes probabilities of rows in the form in which those of the calibration were given:
    the model's of a table, or checked ones of bare probabilities.
    """

    proba: Probabilities
    codes: Codes
    groups: NDArray[Any] | None
    further: Callable[[Any], Probabilities]


class SetClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of classifiers with ``predict_set``.

    A subclass stores ``estimator``, ``alpha``, ``allow_empty``, ``calibration_size``, ``max_memory`` and
    ``random_state`` in its constructor and implements :meth:`_score`; it may replace
    :meth:`_choose_score` and :meth:`_make_calibrator`.

    Attributes
    ----------
    classes_ : (K,) labels, in the order of the columns of sets and probabilities
    score_ : the label score in use
    calibrator_ : the true-label scores of the calibration rows and the rule for thresholds
    estimator_ : the trained model (not after ``calibrate_proba`` alone)
    outputs_ : "probabilities" or "logits", what the model gives; decided on the calibration rows
    """

    estimator: Any
    alpha: Any
    allow_empty: bool
    calibration_size: Any
    max_memory: int
    random_state: Any
    #: whether scores are randomised
    randomised: bool = False

    # ---- what a method says

    def _score(self) -> LabelScore:
        """The label score of the constructor's arguments."""
        raise NotImplementedError

    def _choose_score(
        self, proba: Probabilities, codes: Codes, seed: int
    ) -> tuple[LabelScore, BoolArray | None]:
        """The score, and which rows are left for calibration if choosing it used some up."""
        return self._score(), None

    def _make_calibrator(
        self, scores: FloatArray, proba: Probabilities, codes: Codes, seed: int
    ) -> LabelCalibrator:
        """The calibrator from (n,) true-label scores of rows with labels ``codes``."""
        return MarginalCalibrator(scores)

    def _make_model(self) -> Any:
        """An untrained copy of the model that ``fit`` trains."""
        return untrained_classifier(self.estimator)

    def _read(self, proba: Any, name: str = "proba", n_classes: int | None = None) -> Probabilities:
        """The probabilities that the caller gave, in blocks."""
        return Probabilities(proba, name, n_classes)

    def _face(self, block: NDArray[Any]) -> NDArray[Any]:
        """(n, K) of a block of rows: what a row's own random numbers are computed from."""
        return block

    def _best(self, block: NDArray[Any]) -> Codes:
        """(n,) the label that each row of a block gets where ``allow_empty`` is false and its set empty."""
        return np.asarray(np.argmax(block, axis=1))

    # ---- with a model

    def fit(self, X: Any, y: Any, X_calib: Any = None, y_calib: Any = None) -> Self:
        """Train a clone of the classifier and calibrate it on rows it has not seen.

        Parameters
        ----------
        X : (n, d) table
        y : (n,) labels: numbers, strings or booleans
        X_calib, y_calib : table and labels, optional
            Calibration rows. Without them ``calibration_size`` of the given rows, drawn with
            ``random_state`` (not stratified: they must be exchangeable with new rows), are set aside.

        Notes
        -----
        ``classes_`` are the sorted labels of all rows given. A class that is in no training row has
        probability zero everywhere.

        Raises
        ------
        DataError
            Missing or continuous labels, lengths that differ, fewer than two rows or two classes,
            ``y_calib`` without ``X_calib``, or calibration rows that are all training rows.
        """
        return self._fit(X, y, X_calib, y_calib)

    def _fit(
        self, X: Any, y: Any, X_calib: Any, y_calib: Any, groups: Any = None, groups_calib: Any = None
    ) -> Self:
        """:meth:`fit`; ``groups`` are those of the rows of X, from which calibration rows may be drawn."""
        parse_levels(self.alpha)
        if not calibration_given(X_calib, y_calib) and groups_calib is not None:
            raise DataError("groups_calib are given without X_calib; the groups of all rows are groups")
        if groups is not None:
            groups = check_labels(groups, length=row_count(X), name="groups")
        rows = training_and_calibration(X, y, X_calib, y_calib, self.calibration_size, self.random_state)
        if rows.drawn is not None and groups is not None:
            groups_calib = groups[rows.drawn]
        model = self._make_model()
        model.fit(rows.X, rows.y)
        self._calibrate_model(model, rows.X_calib, rows.y_calib, rows.classes, groups_calib)
        return self

    def calibrate(self, X: Any, y: Any, classes: Sequence[Any] | None = None, groups: Any = None) -> Self:
        """Calibrate the model given to the constructor, which is already trained.

        After ``fit`` the trained model of ``fit`` is calibrated anew. The rows must not have been
        used in training: the guarantee rests on that. What a torch module gives, probabilities or
        logits, is decided here from its outputs on X and kept in ``outputs_``.

        Parameters
        ----------
        X : (n, d) table
        y : (n,) labels
        classes : K labels, optional
            For a model with ``classes_``, more labels than the model knows (their probability is
            zero). For any other, the labels of its outputs in their order; see ``calibrate_proba``.
        groups : (n,) group of each row, optional; see ``calibrate_proba``

        Raises
        ------
        DataError
            No rows, missing labels, or a label that is none of the classes.
        """
        check_consistent_length(X, y)
        y = check_labels(y)
        parse_levels(self.alpha)
        model = getattr(self, "estimator_", self.estimator)
        if model is None:
            raise MethodError(
                "calibrate needs a trained model: give it as estimator, or use fit or calibrate_proba"
            )
        self._calibrate_model(model, X, y, None if classes is None else check_labels(classes), groups)
        return self

    def _calibrate_model(
        self, model: Any, X: Any, y: NDArray[Any], classes: NDArray[Any] | None, groups: Any = None
    ) -> None:
        if row_count(X) == 0:
            raise DataError("there are 0 calibration rows; give at least one")
        raw, outputs = predict_probabilities(model, X)
        known = getattr(model, "classes_", None)
        if known is None:
            known = classes = classes_of_columns(y, raw.shape[1], classes)
        else:
            known = np.asarray(known)
            classes = known if classes is None else classes
        columns = known_labels(known, classes, "the model's classes_")

        def probabilities(raw: NDArray[Any]) -> Probabilities:
            return Probabilities(in_columns(raw, columns, len(classes)), "the model's probabilities")

        def further(X: Any) -> Probabilities:
            return probabilities(predict_probabilities(model, X, outputs)[0])

        self._calibrate(probabilities(raw), y, classes, groups, further)
        self.estimator_ = model
        self.outputs_: Any = outputs
        self.columns_: Any = columns

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """(n, K) probabilities of the underlying model, in the order of ``classes_``."""
        check_is_fitted(self, "estimator_")
        if row_count(X) == 0:
            return np.empty((0, len(self.classes_)))
        raw, _ = predict_probabilities(self.estimator_, X, self.outputs_)
        return in_columns(raw, self.columns_, len(self.classes_))

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,) the most probable label of each row; ties to the lower class."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return np.asarray(self.classes_[best])

    def predict_set(self, X: Any, alpha: Any = None, groups: Any = None) -> BoolArray:
        """The label set of each row.

        Parameters
        ----------
        X : (n, d) table
        alpha : level or sequence of L levels, optional
            Miscoverage; the constructor's ``alpha`` if not given.
        groups : (n,) group of each row; required if ``calibrate`` was given groups

        Returns
        -------
        (n, K) bool array in the order of ``classes_``, or (L, n, K) for a sequence of levels.
            All labels where calibration rows are too few, with a warning.
        """
        return self._sets(Probabilities(self.predict_proba(X), "the model's probabilities"), alpha, groups)

    # ---- from bare probabilities

    def calibrate_proba(
        self, proba: Any, y: Any, classes: Sequence[Any] | None = None, groups: Any = None
    ) -> Self:
        """Calibrate from bare probabilities; no model is needed.

        Parameters
        ----------
        proba : (n, K) class probabilities of the calibration rows; float32 is not copied
        y : (n,) labels
        classes : K labels in the order of the columns, optional
            Without them: the classes of the model, if this object was fitted with one; else integers
            in 0 .. K - 1 name their columns (booleans those of two); else K distinct labels stand for
            the columns in sorted order; anything else is refused.
        groups : (n,) group of each row, optional
            Each group gets its own threshold and is covered by itself (Mondrian). ``predict_set_proba``
            then needs the groups of its rows; those of unseen groups get all labels.

        Raises
        ------
        DataError
            Probabilities that are NaN, negative or do not sum to one, missing labels, a label that
            is none of the classes, lengths that differ, or no rows.
        """
        checked = self._read(proba)
        y = check_labels(y, length=len(checked))
        parse_levels(self.alpha)
        if len(checked) == 0:
            raise DataError("there are 0 calibration rows; give at least one")
        fitted = hasattr(self, "estimator_")
        if classes is None and fitted and len(self.classes_) == checked.n_classes:
            labels = self.classes_
        else:
            labels = classes_of_columns(y, checked.n_classes, classes)
        same = fitted and np.array_equal(labels, self.classes_)
        self._calibrate(checked, y, labels, groups)
        if fitted and not same:
            # its columns are not those of the new classes
            del self.estimator_, self.outputs_, self.columns_
        return self

    def predict_set_proba(self, proba: Any, alpha: Any = None, groups: Any = None) -> BoolArray:
        """(n, K) label sets from bare probabilities; (L, n, K) for a sequence of levels.

        Parameters as in ``predict_set``, with (n, K) probabilities in the order of ``classes_``.
        """
        check_is_fitted(self, "calibrator_")
        return self._sets(self._read(proba, n_classes=len(self.classes_)), alpha, groups)

    # ---- the way through

    def _calibrate(
        self,
        proba: Probabilities,
        y: NDArray[Any],
        classes: NDArray[Any],
        groups: Any,
        further: Callable[[Any], Probabilities] | None = None,
    ) -> None:
        codes = known_labels(y, classes)
        seed = seed_of(self.random_state)
        score, keep = self._choose_score(proba, codes, seed)
        scores = self._true_label_scores(score, proba, codes, seed)
        if not self._looks_at_groups():
            groups = None
        if groups is not None:
            groups = check_labels(groups, length=len(scores), name="groups")
        if keep is not None:
            proba = proba.take(keep)
            scores, codes = scores[keep], codes[keep]
            groups = None if groups is None else groups[keep]
        rows = CalibrationRows(proba, codes, groups, self._read if further is None else further)
        calibrator = self._calibrator(score, scores, rows, seed)
        self.classes_ = classes
        self.score_: Any = score
        self.calibrator_: Any = calibrator
        self.seed_ = seed

    def _calibrator(
        self, score: LabelScore, scores: FloatArray, rows: CalibrationRows, seed: int
    ) -> LabelCalibrator:
        """The calibrator from (n,) true-label scores of rows of which the groups may be known."""
        if rows.groups is None:
            return self._make_calibrator(scores, rows.proba, rows.codes, seed)
        if type(self)._make_calibrator is not SetClassifier._make_calibrator:
            raise MethodError(f"{type(self).__name__} has thresholds of its own and takes no groups")
        names = distinct_labels(rows.groups)
        return GroupCalibrator(scores, encode_labels(rows.groups, names), names)

    def _block_bytes(self) -> int:
        if not self.max_memory > 0:
            raise MethodError(f"max_memory must be a positive number of bytes, got {self.max_memory!r}")
        return int(min(_CACHE, self.max_memory // _WORK))

    def _uniforms(self, score: LabelScore, block: NDArray[Any], seed: int) -> FloatArray | None:
        """(n,) uniforms from the probabilities of each row, whatever their order; None if not randomised."""
        if not (self.randomised and score.takes_u):
            return None
        face = np.rint(self._face(block) * _GRID)
        return row_uniforms(unordered_row_keys(face, seed, "label score"), 1)[:, 0]

    def _true_label_scores(
        self, score: LabelScore, proba: Probabilities, codes: Codes, seed: int
    ) -> FloatArray:
        scores = np.empty(len(proba))
        for rows, block in proba.blocks(self._block_bytes()):
            scores[rows] = score.of(block, codes[rows], self._uniforms(score, block, seed))
        return scores

    def _part_uniforms(self, proba: Probabilities, codes: Codes, seed: int, part: str) -> FloatArray:
        """(n,) uniforms that divide calibration rows into parts, whatever the order of rows and classes."""
        keys = np.empty(len(proba), dtype=np.uint64)
        for rows, block in proba.blocks(self._block_bytes()):
            face = self._face(block)
            own = face[np.arange(len(face)), codes[rows]][:, None]
            keys[rows] = unordered_row_keys(face, seed, part) ^ row_keys(own, seed, part)
        # equal rows must not all fall into one part: each gets a number of its own by counting them
        order = np.lexsort((codes, keys))
        ranked = keys[order]
        first = np.searchsorted(ranked, ranked)
        count = np.empty((len(keys), 1))
        count[order, 0] = np.arange(len(keys)) - first
        return row_uniforms(keys ^ row_keys(count, seed, part), 1)[:, 0]

    def _sets(self, proba: Probabilities, alpha: Any, groups: Any) -> BoolArray:
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        n = len(proba)
        out = np.empty((len(levels), n, proba.n_classes), dtype=np.bool_)
        thresholds = self._thresholds(levels, n, groups)
        score: LabelScore = self.score_
        prepared = score.prepare(thresholds, proba.dtype)
        for rows, block in proba.blocks(self._block_bytes()):
            here = prepared[:, rows] if prepared.shape[1] > 1 else prepared
            view = out[:, rows]
            score.mark(block, here, self._uniforms(score, block, self.seed_), view)
            if not self.allow_empty:
                level, row = np.nonzero(~view.any(axis=2))
                view[level, row, self._best(block)[row]] = True
        return out[0] if is_scalar else out

    def _thresholds(self, levels: tuple[Fraction, ...], n: int, groups: Any) -> FloatArray:
        calibrator: LabelCalibrator = self.calibrator_
        names = getattr(calibrator, "names", None)
        if names is not None:
            if groups is None:
                raise DataError("calibrated with groups: give the group of each row as groups")
            groups = check_labels(groups, length=n, name="groups")
            return calibrator.thresholds(levels, self._group_codes(groups, names))
        if groups is not None and self._looks_at_groups():
            raise DataError("groups were given, but calibration was without groups")
        return calibrator.thresholds(levels)

    def _looks_at_groups(self) -> bool:
        """Whether groups that are given count."""
        return True

    def _group_codes(self, groups: NDArray[Any], names: NDArray[Any]) -> Codes:
        """(n,) positions of the groups of rows that are asked for among those known; -1 for the others."""
        return encode_labels(groups, names)

    # ---- scikit-learn

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.estimator is not None and hasattr(self.estimator, "__sklearn_tags__"):
            inner = get_tags(self.estimator).input_tags
            tags.input_tags.sparse = inner.sparse
            tags.input_tags.allow_nan = inner.allow_nan
        else:
            tags.input_tags.sparse = self.estimator is None
        return tags

    @property
    def n_features_in_(self) -> int:
        """Number of features seen in fit, where the underlying model knows it."""
        check_is_fitted(self, "estimator_")
        return int(self.estimator_.n_features_in_)


def in_columns(raw: NDArray[Any], columns: Codes, n_classes: int) -> NDArray[Any]:
    """The model's columns at their places among all classes; classes it does not know get zero."""
    if raw.ndim != 2 or raw.shape[1] != len(columns):
        raise DataError(f"the model's output has shape {raw.shape}, but {len(columns)} classes are expected")
    if n_classes == len(columns) and (columns == np.arange(n_classes)).all():
        return raw
    out = np.zeros((len(raw), n_classes), dtype=raw.dtype)
    out[:, columns] = raw
    return out
