"""A classifier of many: one member for each part of the training rows, each part by its rows' content."""

from __future__ import annotations

import hashlib
import warnings
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.utils import get_tags
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from assay.core.checks import row_count, to_numpy
from assay.core.errors import AssayWarning, DataError, MethodError
from assay.core.probabilities import check_labels, distinct_labels, known_labels
from assay.core.seeds import derive_seed, row_keys, seed_of

Codes = NDArray[np.intp]
Keys = NDArray[np.uint64]

_SPARSE_BLOCK = 1024


class PartitionedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Members trained on disjoint parts of the rows; the answer is what most of them say.

    Row x belongs to part ``hash(x) mod n_partitions``, by its features alone: a label that is flipped, a
    row that is added or one that is taken away touches one part, and so one member and one vote. A row
    whose features change may leave one part and enter another, which counts as two.

    Within a part rows are sorted by content, and everything a member draws comes from ``random_state``
    and the number of its part, so that a part that nobody touched gives the same member again. That is
    what certificates rest on: an ``estimator`` whose training cannot be repeated (threads that race,
    a GPU) voids them. What is learnt from all rows before (means, scales, vocabularies) is outside of the
    certificate; put it into a Pipeline, which is then trained in each part.

    A part that holds one class only has a member that always says it. A part without rows says nothing.

    Parameters
    ----------
    estimator : classifier, default LogisticRegression(max_iter=1000)
        Cloned for each part. Every ``random_state`` in it that is not an integer is set.
    n_partitions : int, default 100
        Number of parts; 100 is the largest number in the paper's experiments.
    random_state : int or None, default 0
        Of the hash and of the members.

    Attributes
    ----------
    classes_ : (K,) sorted labels of the training rows. Certificates take them as known: poison that brings a
        new label is refused by whoever knows the labels, and not certified against.
    members_ : n_partitions members
    partition_sizes_ : (n_partitions,) training rows of each
    seed_ : the integer behind hash and members

    References
    ----------
    Scholten, Günnemann (2025), Provably reliable conformal prediction sets in the presence of data
    poisoning.
    """

    def __init__(self, estimator: Any = None, n_partitions: int = 100, *, random_state: Any = 0) -> None:
        self.estimator = estimator
        self.n_partitions = n_partitions
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train one member a part.

        Parameters
        ----------
        X : (n, d) table; y : (n,) labels

        Raises
        ------
        DataError
            No rows, missing or continuous labels, lengths that differ.
        MethodError
            ``n_partitions`` is no whole number from 1, or a member cannot be trained.
        """
        check_consistent_length(X, y)
        y = check_labels(y)
        if len(y) == 0:
            raise DataError("there are 0 training rows; give at least one")
        n_partitions = check_count(self.n_partitions, "n_partitions")
        base = LogisticRegression(max_iter=1000) if self.estimator is None else self.estimator
        seed = seed_of(self.random_state)
        classes = distinct_labels(y)
        codes = known_labels(y, classes)
        X = as_rows(X)
        keys = content_keys(X, seed)
        parts = partition_of(keys, n_partitions)
        order = np.lexsort((codes, keys, parts))
        ends = np.searchsorted(parts[order], np.arange(n_partitions + 1))
        members = []
        for part in range(n_partitions):
            rows = order[ends[part] : ends[part + 1]]
            members.append(self._train_member(base, take_rows(X, rows), codes[rows], derive_seed(seed, part)))
        sizes = np.diff(ends)
        _warn_of_parts(members, sizes, len(classes))
        self.classes_ = classes
        self.members_ = members
        self.partition_sizes_ = sizes
        self.seed_ = seed
        return self

    def _train_member(self, base: Any, X: Any, codes: Codes, seed: int) -> Member:
        return Member.train(base, X, codes, seed)

    def predict_votes(self, X: Any) -> NDArray[np.int64]:
        """(n, K) number of members that say each class; rows sum to the members that say anything."""
        check_is_fitted(self, "members_")
        votes = np.zeros((row_count(X), len(self.classes_)), dtype=np.int64)
        if len(votes) == 0:
            return votes
        X = as_rows(X)
        rows = np.arange(len(votes))
        for member in self.members_:
            said = member.predict(X)
            if said is not None:
                votes[rows, said] += 1
        return votes

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """(n, K) shares of the votes; votes that nobody gave are shared out evenly."""
        votes = self.predict_votes(X)
        silent = len(self.members_) - votes.sum(axis=1, keepdims=True)
        return np.asarray((votes + silent / votes.shape[1]) / len(self.members_))

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,) the class with the most votes; ties to the lower class."""
        return np.asarray(self.classes_[np.argmax(self.predict_votes(X), axis=1)])

    @property
    def n_features_in_(self) -> int:
        """Number of features seen in fit, where the members know it."""
        check_is_fitted(self, "members_")
        known = [m.model.n_features_in_ for m in self.members_ if hasattr(m.model, "n_features_in_")]
        if not known:
            raise AttributeError("no member knows the number of features")
        return int(known[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(LogisticRegression() if self.estimator is None else self.estimator).input_tags
        tags.input_tags.sparse = inner.sparse
        tags.input_tags.allow_nan = inner.allow_nan
        return tags


class Member:
    """A trained classifier of one part, or the one class that the part knows, or nothing."""

    def __init__(self, model: Any, codes: Codes) -> None:
        self.model = model
        self.codes = codes

    @classmethod
    def train(cls, base: Any, X: Any, codes: Codes, seed: int) -> Self:
        known, local = np.unique(codes, return_inverse=True)
        if len(known) < 2:
            return cls(None, known)
        model = clone(base)
        states = {
            name: derive_seed(seed, name)
            for name, value in model.get_params(deep=True).items()
            if name.rpartition("__")[2] == "random_state" and not isinstance(value, (int, np.integer))
        }
        return cls(model.set_params(**states).fit(X, local), known)

    def predict(self, X: Any) -> Codes | None:
        """(n,) codes, or None where it says nothing."""
        if self.model is not None:
            return self.codes[np.asarray(to_numpy(self.model.predict(X)), dtype=np.intp).reshape(-1)]
        return None if len(self.codes) == 0 else np.full(row_count(X), self.codes[0])


def _warn_of_parts(members: list[Member], sizes: NDArray[np.intp], n_classes: int) -> None:
    n, empty = len(members), int((sizes == 0).sum())
    single = sum(len(member.codes) == 1 for member in members) if n_classes > 1 else 0
    if empty or single:
        said = [f"{empty} hold no row and do not vote"] * bool(empty)
        said += [f"{single} hold a single class and always vote for it"] * bool(single)
        warnings.warn(
            f"of {n} parts of {int(sizes.sum())} training rows {' and '.join(said)}; fewer parts "
            f"(n_partitions, now {n}) give better members",
            AssayWarning,
            stacklevel=3,
        )


def check_count(value: Any, name: str) -> int:
    """A whole number from 1."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise MethodError(f"{name} must be a whole number from 1, got {value!r}")
    return int(value)


def as_rows(X: Any) -> Any:
    """The table in a form whose rows can be taken: a DataFrame, CSR matrix or array."""
    if hasattr(X, "iloc"):
        return X
    return X.tocsr() if sparse.issparse(X) else to_numpy(X)


def take_rows(X: Any, rows: Codes) -> Any:
    """Rows of a table that :func:`as_rows` gave."""
    return X.iloc[rows] if hasattr(X, "iloc") else X[rows]


def partition_of(keys: Keys, n_partitions: int) -> Codes:
    """(n,) part of each row from its key."""
    return np.asarray(keys % np.uint64(n_partitions), dtype=np.intp)


def content_keys(X: Any, seed: int, stream: str = "partitions") -> Keys:
    """(n,) 64-bit keys of rows by what they hold, never by where they stand.

    Numbers count by their value as float64 (whatever their dtype, -0.0 as 0.0, all NaN alike); tables that
    hold anything else by the text of their values.
    """
    X = as_rows(X)
    if sparse.issparse(X):
        blocks = [X[i : i + _SPARSE_BLOCK].toarray() for i in range(0, X.shape[0], _SPARSE_BLOCK)]
        return np.concatenate([row_keys(block, seed, stream) for block in blocks] or [np.empty(0, np.uint64)])
    numeric = all(d.kind in "biuf" for d in X.dtypes) if hasattr(X, "iloc") else X.dtype.kind in "biuf"
    if numeric:
        numbers = np.asarray(to_numpy(X), dtype=np.float64).reshape(row_count(X), -1)
        return row_keys(np.where(np.isnan(numbers), np.nan, numbers), seed, stream)
    values = X.astype(object).to_numpy() if hasattr(X, "iloc") else X
    salt = str(derive_seed(seed, stream)).encode()
    digests = [hashlib.blake2b(_spelled(row), key=salt, digest_size=8).digest() for row in values]
    return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _spelled(row: Any) -> bytes:
    return "\x1f".join(_spell(value) for value in np.atleast_1d(row)).encode("utf-8", "surrogatepass")


def _spell(value: Any) -> str:
    if isinstance(value, (bool, int, float, np.number, np.bool_)):
        return repr(float(value) + 0.0)
    return f"{len(str(value))}:{value}"
