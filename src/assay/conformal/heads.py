"""Several probability estimates of the same labels: heads, however they come.

Heads are classifiers that answer the same question: trained apart, on different columns of a table,
or on one backbone. What a method needs of them is an (n, K, d) array of probabilities, head j in the
last axis; models that make all of them at once offer it as ``predict_proba_heads``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils import _safe_indexing, assert_all_finite, get_tags
from sklearn.utils.validation import _check_feature_names, check_is_fitted

from assay.core.checks import to_numpy
from assay.core.errors import DataError, MethodError
from assay.core.models import predict_probabilities
from assay.core.probabilities import Probabilities
from assay.core.seeds import derive_seed, seed_of


class SubspaceHeads(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Copies of one classifier, each trained on its own random part of the columns.

    The columns are the only thing in which the heads differ: training rows are the same. That makes
    diverse heads of any classifier, without torch and without more data.

    Parameters
    ----------
    estimator : classifier, default LogisticRegression(max_iter=1000)
        Cloned once a head.
    n_heads : int, default 3
    fraction : float, default 0.5
        Share of the columns that each head sees, at least one column. With 1 all heads see all of
        them and differ by the estimator's own random state at most.
    random_state : int or None, default None
        Draws the columns.

    Attributes
    ----------
    estimators_ : list of n_heads fitted classifiers
    columns_ : list of n_heads sorted arrays of column numbers
    classes_ : (K,) labels
    n_features_in_ : int
    feature_names_in_ : (D,) names of the columns, where X has any
    """

    def __init__(
        self, estimator: Any = None, *, n_heads: int = 3, fraction: float = 0.5, random_state: Any = None
    ) -> None:
        self.estimator = estimator
        self.n_heads = n_heads
        self.fraction = fraction
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train all heads on (n, D) rows and (n,) labels.

        Raises
        ------
        MethodError
            ``n_heads`` below one or ``fraction`` outside (0, 1].
        """
        if self.n_heads < 1:
            raise MethodError(f"n_heads must be at least 1, got {self.n_heads!r}")
        if not 0 < self.fraction <= 1:
            raise MethodError(f"fraction must lie in (0, 1], got {self.fraction!r}")
        X = self._table(X)
        _check_feature_names(self, X, reset=True)
        width = int(X.shape[1])
        if width == 0:
            raise DataError(f"0 feature(s) (shape={tuple(X.shape)}) while a minimum of 1 is required.")
        kept = max(1, round(self.fraction * width))
        seed = seed_of(self.random_state)
        base = LogisticRegression(max_iter=1000) if self.estimator is None else self.estimator
        columns, heads = [], []
        for head in range(self.n_heads):
            rng = np.random.default_rng(derive_seed(seed, "columns of head", head))
            columns.append(np.sort(rng.permutation(width)[:kept]))
            heads.append(clone(base).fit(_safe_indexing(X, columns[-1], axis=1), y))
        self.columns_ = columns
        self.estimators_ = heads
        self.classes_ = heads[0].classes_
        self.n_features_in_ = width
        return self

    def predict_proba_heads(self, X: Any) -> NDArray[np.float64]:
        """(n, K, d) probabilities of every head."""
        check_is_fitted(self, "estimators_")
        X = self._table(X)
        _check_feature_names(self, X, reset=False)
        if X.shape[1] != self.n_features_in_:
            raise DataError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input"
            )
        parts = zip(self.estimators_, self.columns_, strict=True)
        return np.stack(
            [predict_probabilities(head, _safe_indexing(X, at, axis=1))[0] for head, at in parts], axis=2
        )

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n, K) mean probabilities of the heads."""
        return np.asarray(self.predict_proba_heads(X).mean(axis=2))

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,) the label with the largest mean probability."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return np.asarray(self.classes_[best])

    def _table(self, X: Any) -> Any:
        """X with a shape (n, D) whose columns can be taken; NaN is refused where the heads refuse it."""
        if issparse(X):
            X = X.tocsr()
        elif not hasattr(X, "shape") or hasattr(X, "detach"):
            X = to_numpy(X)
        if len(X.shape) != 2:
            raise DataError(
                f"Expected 2D array, got an array of shape {tuple(X.shape)}. Reshape your data to one row a "
                "sample and one column a feature"
            )
        if not get_tags(self).input_tags.allow_nan:
            # a column that no head happens to see must not hide it
            assert_all_finite(X, input_name="X")
        return X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(LogisticRegression() if self.estimator is None else self.estimator).input_tags
        tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
        return tags


class HeadList(list[Any]):
    """Classifiers side by side: a list that can be trained."""

    def fit(self, X: Any, y: Any) -> Self:
        """Train each of them."""
        for model in self:
            model.fit(X, y)
        return self


def predict_heads(
    model: Any, X: Any, outputs: Sequence[str | None] | None = None
) -> tuple[list[NDArray[Any]], tuple[str, ...], list[NDArray[Any] | None]]:
    """Probabilities of each head, how their outputs were read, and the labels of their columns.

    Parameters
    ----------
    model : a list of fitted models, one with ``predict_proba_heads``, or a single model (one head)
    X : (n, d) table of at least one row
    outputs : d of "probabilities", "logits" or None; see :func:`~assay.core.models.predict_probabilities`

    Raises
    ------
    MethodError
        An empty list, or a model that gives no probabilities.
    DataError
        Answers of the wrong shape.
    """
    if hasattr(model, "predict_proba_heads"):
        raw = to_numpy(model.predict_proba_heads(X))
        if raw.ndim != 3 or raw.shape[2] == 0:
            raise DataError(
                f"predict_proba_heads of {type(model).__name__} gave shape {raw.shape}; (n, K, d) with at "
                "least one head is expected"
            )
        d = raw.shape[2]
        labels = getattr(model, "classes_", None)
        return [raw[:, :, j] for j in range(d)], ("probabilities",) * d, [labels] * d
    models = model if isinstance(model, (list, tuple)) else [model]
    if len(models) == 0:
        raise MethodError("the list of heads is empty; give at least one classifier")
    kinds = outputs or [None] * len(models)
    answers = [predict_probabilities(head, X, kind) for head, kind in zip(models, kinds, strict=True)]
    labels_of = [getattr(head, "classes_", None) for head in models]
    return [proba for proba, _ in answers], tuple(kind for _, kind in answers), labels_of


def split_heads(values: Any, name: str = "proba") -> list[Any]:
    """The (n, K) matrix of each head, from such matrices in a list, an (n, K, d) array or one matrix.

    Raises
    ------
    DataError
        No head, heads of different shapes, or an array of another number of axes.
    """
    if isinstance(values, (list, tuple)) and all(len(getattr(part, "shape", ())) == 2 for part in values):
        heads = [to_numpy(part) for part in values]
    else:
        array = to_numpy(values)
        if array.ndim == 2:
            heads = [array]
        elif array.ndim == 3:
            heads = [array[:, :, j] for j in range(array.shape[2])]
        else:
            raise DataError(
                f"{name} has shape {array.shape}; give (n, K) for one head, (n, K, d) for d heads, or a list "
                "of (n, K) matrices"
            )
    if not heads:
        raise DataError(f"{name} holds no head; give at least one (n, K) matrix")
    shapes = [head.shape for head in heads]
    if len(set(shapes)) > 1:
        raise DataError(
            f"{name}: the heads have different shapes {shapes}; all must have the same rows and classes"
        )
    return heads


class HeadProbabilities(Probabilities):
    """(n, K) probabilities of each of d heads; blocks are (d, n, K), each head checked.

    Parameters
    ----------
    values : list of (n, K) matrices, an (n, K, d) array, or one (n, K) matrix
    name : str
        Word for error messages.
    n_classes, n_heads : int, optional
        Numbers that are required.

    Raises
    ------
    DataError
        What :class:`~assay.core.probabilities.Probabilities` raises, no head, heads that do not
        match, or the wrong number of them.
    """

    def __init__(
        self, values: Any, name: str = "proba", n_classes: int | None = None, n_heads: int | None = None
    ) -> None:
        heads = split_heads(values, name)
        check_head_count(len(heads), n_heads, name)
        several = len(heads) > 1
        self.heads = [
            Probabilities(head, f"{name} of head {j}" if several else name, n_classes)
            for j, head in enumerate(heads)
        ]
        self.values = self.heads[0].values
        self.name = name

    @property
    def n_heads(self) -> int:
        """Number of heads d."""
        return len(self.heads)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The widest type of the heads."""
        return np.result_type(*(head.dtype for head in self.heads))

    def blocks(self, max_bytes: int = 1 << 20) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Consecutive rows: where they stand, and their (d, n, K) probabilities."""
        dtype = self.dtype
        share = max_bytes // len(self.heads)
        # the same rows of every head, whatever its own type
        parts = [head.blocks(share * head.dtype.itemsize // dtype.itemsize) for head in self.heads]
        for together in zip(*parts, strict=True):
            yield together[0][0], np.stack([block for _, block in together]).astype(dtype, copy=False)

    def take(self, rows: Any) -> HeadProbabilities:
        """Those rows, by a mask or by their numbers."""
        return HeadProbabilities([head.values[rows] for head in self.heads], self.name)


class HeadScores(Probabilities):
    """(n, K) nonconformity scores of each of d heads, any numbers; blocks are (d, n, K).

    Raises
    ------
    DataError
        Shapes as for :class:`HeadProbabilities`; NaN, or infinite where ``finite``.
    """

    def __init__(
        self,
        values: Any,
        name: str = "scores",
        n_classes: int | None = None,
        n_heads: int | None = None,
        finite: bool = True,
    ) -> None:
        heads = [np.asarray(head) for head in split_heads(values, name)]
        check_head_count(len(heads), n_heads, name)
        if n_classes is not None and heads[0].shape[1] != n_classes:
            raise DataError(f"{name} has {heads[0].shape[1]} columns, {n_classes} classes are expected")
        if heads[0].shape[1] == 0:
            raise DataError(f"{name} has no columns; give one column a class")
        self.stack = np.stack([np.asarray(head, dtype=np.float64) for head in heads])
        self.values = self.stack[0]
        self.name = name
        wrong = np.isnan(self.stack) if not finite else ~np.isfinite(self.stack)
        bad = np.asarray(wrong.any(axis=(0, 2)))
        if bad.any():
            kind, hint = (
                ("NaN or infinite", "; rank_transform=True takes infinite ones") if finite else ("NaN", "")
            )
            raise DataError(
                f"{name} is {kind} in {int(bad.sum())} of {len(bad)} rows, first at row "
                f"{int(np.argmax(bad))}{hint}"
            )

    @property
    def n_heads(self) -> int:
        """Number of heads d."""
        return len(self.stack)

    def blocks(self, max_bytes: int = 1 << 20) -> Iterator[tuple[slice, NDArray[Any]]]:
        """Consecutive rows: where they stand, and their (d, n, K) scores."""
        rows = max(1, max_bytes // (8 * self.n_classes * len(self.stack)))
        for start in range(0, len(self), rows):
            block = self.stack[:, start : start + rows]
            yield slice(start, start + block.shape[1]), block

    def take(self, rows: Any) -> HeadScores:
        """Those rows, by a mask or by their numbers."""
        return HeadScores(list(self.stack[:, rows]), self.name, finite=False)


def check_head_count(got: int, expected: int | None, name: str) -> None:
    """Refuse another number of heads than in calibration."""
    if expected is not None and got != expected:
        raise DataError(f"{name} has {got} head(s), {expected} were calibrated")
