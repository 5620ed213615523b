"""What the label-set methods of several heads share: training them, reading them, averaging them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from assay.conformal.heads import HeadList, HeadProbabilities, SubspaceHeads, predict_heads
from assay.conformal.label_scores import LabelScore, get_score
from assay.conformal.set_base import BoolArray, Codes, FloatArray, SetClassifier, in_columns
from assay.core.checks import row_count
from assay.core.errors import DataError, MethodError
from assay.core.probabilities import (
    Probabilities,
    check_labels,
    classes_of_columns,
    distinct_labels,
    known_labels,
)
from assay.core.seeds import derive_seed, seed_of


class HeadSetClassifier(SetClassifier):
    """Base of label-set methods of several heads.

    ``estimator`` is one of: a list of classifiers, each a head; a classifier with
    ``predict_proba_heads``; any other classifier, of which ``fit`` trains copies on random halves of
    the columns (:class:`~assay.conformal.heads.SubspaceHeads`) and which ``calibrate`` takes as a
    single head. Bare probabilities are a list of (n, K) matrices, an (n, K, d) array, or one matrix.

    Attributes
    ----------
    n_heads_ : d, number of heads
    outputs_ : d of "probabilities" or "logits", what each head gives
    """

    def _make_model(self) -> Any:
        given = self.estimator
        if isinstance(given, (list, tuple)):
            if not given:
                raise MethodError("the list of heads is empty; give at least one classifier")
            for head in given:
                _must_train(head)
            return HeadList(clone(head) for head in given)
        if given is not None:
            _must_train(given)
        if hasattr(given, "predict_proba_heads"):
            return clone(given)
        return SubspaceHeads(given, random_state=derive_seed(seed_of(self.random_state), "heads"))

    def _read(self, proba: Any, name: str = "proba", n_classes: int | None = None) -> HeadProbabilities:
        expected = None if n_classes is None else self.n_heads_
        return HeadProbabilities(proba, name, n_classes, expected)

    def _face(self, block: NDArray[Any]) -> NDArray[Any]:
        # the same for heads in another order, and for a head that is there twice
        return np.asarray(block.max(axis=0))

    def _best(self, block: NDArray[Any]) -> Codes:
        return np.asarray(np.argmax(block.mean(axis=0), axis=1))

    def _calibrate(
        self,
        proba: Any,
        y: NDArray[Any],
        classes: NDArray[Any],
        groups: Any,
        further: Callable[[Any], Probabilities] | None = None,
    ) -> None:
        super()._calibrate(proba, y, classes, groups, further)
        self.n_heads_ = proba.n_heads

    def _calibrate_model(
        self, model: Any, X: Any, y: NDArray[Any], classes: NDArray[Any] | None, groups: Any = None
    ) -> None:
        if row_count(X) == 0:
            raise DataError("there are 0 calibration rows; give at least one")
        raw, outputs, labels = predict_heads(model, X)
        named = [check_labels(known) for known in labels if known is not None]
        if classes is None:
            if named:
                classes = distinct_labels(*named) if len(named) > 1 else named[0]
            else:
                classes = classes_of_columns(y, raw[0].shape[1])
        columns = [
            np.arange(len(classes)) if known is None else known_labels(known, classes, "the model's classes_")
            for known in labels
        ]
        order = classes

        def probabilities(raw: list[NDArray[Any]]) -> HeadProbabilities:
            placed = [in_columns(part, at, len(order)) for part, at in zip(raw, columns, strict=True)]
            return HeadProbabilities(placed, "the model's probabilities")

        def further(X: Any) -> HeadProbabilities:
            return probabilities(predict_heads(model, X, outputs)[0])

        self._calibrate(probabilities(raw), y, classes, groups, further)
        self.estimator_ = model
        self.outputs_ = outputs
        self.columns_ = columns

    def predict_proba_heads(self, X: Any) -> NDArray[Any]:
        """(n, K, d) probabilities of every head, in the order of ``classes_``."""
        check_is_fitted(self, "estimator_")
        if row_count(X) == 0:
            return np.empty((0, len(self.classes_), self.n_heads_))
        raw, _, _ = predict_heads(self.estimator_, X, self.outputs_)
        placed = [
            in_columns(part, at, len(self.classes_)) for part, at in zip(raw, self.columns_, strict=True)
        ]
        return np.stack(placed, axis=2)

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """(n, K) mean probabilities of the heads, in the order of ``classes_``."""
        return np.asarray(self.predict_proba_heads(X).mean(axis=2))

    def predict_set(self, X: Any, alpha: Any = None, groups: Any = None) -> BoolArray:
        """The label set of each row; see :meth:`SetClassifier.predict_set`."""
        heads = self.predict_proba_heads(X)
        return self._sets(HeadProbabilities(heads, "the model's probabilities"), alpha, groups)

    @property
    def n_features_in_(self) -> int:
        """Number of features seen in fit, where the underlying model knows it."""
        check_is_fitted(self, "estimator_")
        first = self.estimator_[0] if isinstance(self.estimator_, (list, tuple)) else self.estimator_
        return int(first.n_features_in_)


def _must_train(model: Any) -> None:
    if not hasattr(model, "fit"):
        raise MethodError(
            f"fit trains clones of scikit-learn classifiers; {type(model).__name__} has no fit. Torch "
            "modules or functions that are already trained are used by calibrate"
        )


def rules_of(scores: Any) -> tuple[LabelScore, ...]:
    """The label scores of an argument: one, or a list of them, by name or as objects."""
    given = scores if isinstance(scores, (list, tuple)) else [scores]
    if not given:
        raise MethodError("scores is an empty list; give at least one label score")
    return tuple(get_score(score) for score in given)


def as_heads(block: NDArray[Any]) -> NDArray[Any]:
    """(d, n, K) of a block of heads; an (n, K) matrix is one head."""
    return block if block.ndim == 3 else block[None]


def score_vectors(rules: tuple[LabelScore, ...], block: NDArray[Any], u: FloatArray | None) -> FloatArray:
    """(n, K, d * s) scores of all labels by s rules, from (d, n, K) probabilities; u is shared by all."""
    return np.stack([rule.all(head, u) for head in as_heads(block) for rule in rules], axis=2)


def true_vectors(
    rules: tuple[LabelScore, ...], block: NDArray[Any], labels: Codes, u: FloatArray | None
) -> FloatArray:
    """(n, d * s) scores of one label a row, equal to those of :func:`score_vectors`."""
    return np.stack([rule.of(head, labels, u) for head in as_heads(block) for rule in rules], axis=1)
