"""Models that each leave out a part of the rows, and the intervals made from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import KFold, check_cv
from sklearn.utils import _safe_indexing, indexable
from sklearn.utils.validation import check_is_fitted

from assay.conformal.interval_base import IntervalRegressor
from assay.conformal.selection import kth_of_shifted
from assay.core.checks import (
    FloatArray,
    check_target,
    check_vector,
    refuse_infinite,
    refuse_nan,
    row_count,
    to_float,
    to_numpy,
)
from assay.core.errors import DataError, MethodError
from assay.core.levels import conformal_rank, parse_levels, warn_infinite
from assay.core.models import predict_values

METHODS = ("plus", "base", "minmax")
MAX_MEMORY = 256 * 2**20
_FITTED = ("estimator_", "models_", "leverage_", "scores_", "fold_", "thresholds_", "_lists", "_errors")


def fold_numbers(cv: Any, X: Any, y: FloatArray, random_state: Any) -> NDArray[np.intp]:
    """(n,) number of the fold that leaves each row out, from 0 to K - 1.

    ``cv`` is a number of folds (drawn by ``random_state``; one a row where rows are fewer) or a
    scikit-learn splitter whose test parts hold every row exactly once.
    """
    n = row_count(X)
    if isinstance(cv, (int, np.integer)) and not isinstance(cv, bool):
        if n < 2:
            raise DataError(f"{n} sample(s) given: at least 2 are needed, one to train and one to leave out")
        if cv < 2:
            raise MethodError(f"cv={cv}: give a number of folds, at least 2")
        cv = KFold(min(int(cv), n), shuffle=True, random_state=random_state)
    fold = np.full(n, -1, dtype=np.intp)
    seen = 0
    for number, (_, test) in enumerate(check_cv(cv).split(np.zeros((n, 1)), y)):
        fold[test] = number
        seen += len(test)
    if seen != n or (fold < 0).any():
        raise MethodError(
            f"the test parts of {cv!r} hold {seen} rows in all, {int((fold >= 0).sum())} of {n} different "
            "ones; every row must be left out exactly once"
        )
    return fold


def fit_without(
    estimator: Any, X: Any, y: FloatArray, fold: NDArray[np.intp]
) -> tuple[list[Any], FloatArray]:
    """One clone a fold, trained on the rows of the others, and the predictions of the left-out rows.

    y is (n,), or (n, q) for q > 1 outputs; so are the predictions.
    """
    X = indexable(X)[0]
    models = []
    predictions = np.empty(y.shape)
    columns = 1 if y.ndim == 1 else y.shape[1]
    for number in range(int(fold.max()) + 1):
        left_out = fold == number
        model = clone(estimator).fit(_safe_indexing(X, np.flatnonzero(~left_out)), y[~left_out])
        rows = _safe_indexing(X, np.flatnonzero(left_out))
        predictions[left_out] = predict_values(model, rows, columns=columns)
        models.append(model)
    refuse_infinite(predictions, "the model's prediction")
    return models, predictions


class CrossIntervalRegressor(IntervalRegressor):
    """Base of jackknife+ and CV+: left-out residuals R_i and the models mu_-i that left row i out.

    "plus": the ``floor(alpha (n + 1))``-th smallest of ``mu_-i(x) - R_i`` and the
    ``ceil((1 - alpha)(n + 1))``-th smallest of ``mu_-i(x) + R_i``; where the first exceeds the second
    both are their middle. "base": ``f(x) -+ q``, f trained on all rows, q the conformal quantile of R.
    "minmax": ``[min mu_-i(x) - q, max mu_-i(x) + q]``.
    """

    method: str
    max_memory: int

    def _check_parameters(self) -> None:
        parse_levels(self.alpha)
        if self.method not in METHODS:
            raise MethodError(f"method must be one of {', '.join(METHODS)}, got {self.method!r}")
        check_max_memory(self.max_memory)

    def _forget(self) -> None:
        """Drop what a former fit left: models and residuals belong together."""
        for name in _FITTED:
            if hasattr(self, name):
                delattr(self, name)

    def _set_residuals(self, residuals: FloatArray, fold: NDArray[np.intp]) -> None:
        self.scores_ = np.abs(residuals)
        self.fold_ = fold
        order = np.lexsort((self.scores_, fold))
        self._lists = np.split(self.scores_[order], np.cumsum(np.bincount(fold))[:-1])
        self.thresholds_ = {}

    def _side_scores(self, side: int, out: FloatArray) -> None:
        out[:] = self.scores_

    def _left_out_predictions(self, X: Any) -> Iterator[tuple[slice, FloatArray]]:
        """Blocks of rows of X with the (K, rows) predictions of the fold models."""
        X = indexable(X)[0]
        for rows in row_blocks(row_count(X), len(self.models_) * 48, self.max_memory):
            part = _safe_indexing(X, np.arange(rows.start, rows.stop))
            table = np.stack([predict_values(model, part) for model in self.models_])
            refuse_infinite(table, "the model's prediction")
            yield rows, table

    def _intervals(self, X: Any, levels: Sequence[Fraction]) -> FloatArray:
        if self.method == "base":
            return self._constant_width(self.predict(X), levels)
        out = np.empty((len(levels), row_count(X), 2))
        ranks = self._ranks(levels)
        for rows, table in self._left_out_predictions(X):
            out[:, rows] = self._from_table(table, levels, ranks)
        return out

    def _constant_width(self, centre: FloatArray, levels: Sequence[Fraction]) -> FloatArray:
        half = np.array([self._threshold(level) for level in levels])[:, None]
        return np.stack([centre - half, centre + half], axis=-1)

    def _ranks(self, levels: Sequence[Fraction]) -> list[int | None]:
        """Rank of the upper end at each level; None, with a warning, where it is infinite."""
        n = len(self.scores_)
        ranks: list[int | None] = []
        for level in levels:
            rank = conformal_rank(n, level)
            if rank > n:
                warn_infinite(n, level, "interval", stacklevel=5)
            ranks.append(rank if rank <= n else None)
        return ranks

    def _from_table(
        self, table: FloatArray, levels: Sequence[Fraction], ranks: Sequence[int | None]
    ) -> FloatArray:
        """(L, rows, 2) from the (K, rows) predictions of the fold models."""
        out = np.empty((len(levels), table.shape[1], 2))
        for ends, rank in zip(out, ranks, strict=True):
            if rank is None:
                ends[:] = [-np.inf, np.inf]
            elif self.method == "minmax":
                half = np.partition(self.scores_, rank - 1)[rank - 1]
                ends[:, 0] = table.min(axis=0) - half
                ends[:, 1] = table.max(axis=0) + half
            else:
                # the lower end is the upper end of the problem with its sign changed, to the last bit
                ends[:, 0] = -self._kth(-table, rank)
                ends[:, 1] = self._kth(table, rank)
                join_crossed(ends)
        return out

    def _kth(self, table: FloatArray, rank: int) -> FloatArray:
        """The rank-th smallest of table[fold of i] + R_i over i, for each column."""
        if 8 * len(self._lists) < len(self.scores_):
            return kth_of_shifted(table, self._lists, rank, self.max_memory)
        out = np.empty(table.shape[1])
        for columns in row_blocks(table.shape[1], len(self.scores_) * 24, self.max_memory):
            sums = table[self.fold_, columns] + self.scores_[:, None]
            sums.partition(rank - 1, axis=0)
            out[columns] = sums[rank - 1]
        return out

    def _calibrate_left_out(self, y_pred: Any, y: Any, fold: NDArray[np.intp] | None) -> None:
        self._check_parameters()
        y = check_target(y)
        prediction = check_vector(y_pred, "y_pred", length=len(y))
        refuse_infinite(prediction, "y_pred")
        self._forget()
        self._set_residuals(y - prediction, np.arange(len(y)) if fold is None else fold)

    def _predict_left_out(self, y_pred: Any, alpha: Any) -> FloatArray:
        check_is_fitted(self)
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        if self.method == "base":
            out = self._constant_width(check_vector(y_pred, "y_pred"), levels)
            return out[0] if is_scalar else out
        table = to_float(to_numpy(y_pred), "y_pred")
        folds = len(self._lists)
        if table.ndim != 2 or table.shape[1] != folds:
            raise DataError(
                f"y_pred has shape {table.shape}; give the predictions of the {folds} models that each "
                f"left a fold out, shape (n, {folds})"
            )
        refuse_nan(table, "y_pred")
        refuse_infinite(table, "y_pred")
        out = self._from_table(table.T, levels, self._ranks(levels))
        return out[0] if is_scalar else out


def join_crossed(ends: FloatArray) -> None:
    """Both ends become their middle where the lower one exceeds the upper one, in place."""
    crossed = ends[:, 0] > ends[:, 1]
    ends[crossed] = ends[crossed].mean(axis=1, keepdims=True)


def check_max_memory(max_memory: int) -> None:
    """Refuse a bound that is no number of bytes above 0."""
    if not max_memory > 0:
        raise MethodError(f"max_memory must be a number of bytes above 0, got {max_memory!r}")


def row_blocks(n: int, bytes_a_row: int, max_memory: int) -> Iterator[slice]:
    """Slices of n rows whose working set stays below ``max_memory`` bytes (at least one row each)."""
    step = max(1, int(max_memory) // max(1, bytes_a_row))
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))
