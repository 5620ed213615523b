"""A small honest classifier with label sets, and copies of it that each break one law."""

import math
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.utils.validation import check_consistent_length, check_is_fitted
from toys import Toy

from assay.core.checks import row_count, to_numpy
from assay.core.errors import DataError, InfiniteSetWarning
from assay.core.levels import parse_levels
from assay.core.quantiles import conformal_quantile


class Labels(Toy):
    """Split conformal label sets: score 1 - p."""

    per_class = False

    def __init__(self, alpha=0.1):
        self.alpha = alpha

    def fit(self, X, y):
        y = self._labels(X, y)
        parse_levels(self.alpha)
        half = len(y) // 2
        X = to_numpy(X)
        model = LogisticRegression().fit(X[:half], y[:half])
        self._calibrate(model.predict_proba(X[half:]), y[half:], model.classes_)
        self.model_ = model
        return self

    def calibrate(self, X, y):
        y = self._labels(X, y)
        parse_levels(self.alpha)
        self._calibrate(self.model_.predict_proba(to_numpy(X)), y, self.model_.classes_)
        return self

    def predict_set(self, X, alpha=None):
        check_is_fitted(self)
        n = row_count(X)
        P = self.model_.predict_proba(to_numpy(X)) if n else np.empty((0, len(self.classes_)))
        return self._sets(P, alpha)

    def calibrate_proba(self, proba, y):
        y = self._labels(proba, y)
        parse_levels(self.alpha)
        P = self._proba(proba)
        seen = np.unique(y)
        inside = seen.dtype.kind in "iuf" and seen.min() >= 0 and seen.max() < P.shape[1]
        self._calibrate(P, y, np.arange(P.shape[1]) if inside and seen.dtype.kind != "b" else seen)
        return self

    def predict_set_proba(self, proba, alpha=None):
        check_is_fitted(self, "scores_")
        return self._sets(self._proba(proba), alpha)

    def _labels(self, X, y):
        y = to_numpy(y)
        y = y[:, 0] if y.ndim == 2 else y
        check_consistent_length(X, y)
        bad = np.array([label is None or label != label for label in y.tolist()])
        if bad.any():
            raise DataError(f"y is missing in {bad.sum()} of {len(y)} rows, first at row {int(bad.argmax())}")
        return y

    def _proba(self, proba):
        raw = to_numpy(proba)
        P = raw.astype(float)
        bad = np.isnan(P).any(axis=1)
        if bad.any():
            raise DataError(f"proba is NaN in {bad.sum()} of {len(P)} rows, first at row {int(bad.argmax())}")
        bad = (np.abs(P.sum(axis=1) - 1) > 1e-2) | (P < 0).any(axis=1)
        if bad.any():
            raise DataError(f"{bad.sum()} rows of proba are no probabilities, first row {int(bad.argmax())}")
        return P

    def _score(self, P):
        return 1 - P

    def _calibrate(self, P, y, classes):
        if len(classes) != P.shape[1]:
            raise DataError(f"{P.shape[1]} columns for the classes {classes.tolist()}")
        column = {label: i for i, label in enumerate(classes.tolist())}
        unknown = [label for label in y.tolist() if label not in column]
        if unknown:
            raise DataError(f"{len(unknown)} labels are unknown to the model, the first {unknown[0]}")
        codes = np.array([column[label] for label in y.tolist()], dtype=int)
        self.scores_ = self._score(P)[np.arange(len(P)), codes]
        self.codes_, self.classes_ = codes, classes

    def _sets(self, P, alpha):
        return self._stack(alpha, lambda level: self._members(P, level), len(P), P.shape[1], bool)

    def _members(self, P, level):
        if not self.per_class:
            return self._score(P) <= self._quantile(level)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            q = [conformal_quantile(self.scores_[self.codes_ == k], level) for k in range(P.shape[1])]
        self._warn(q, level)
        return self._score(P) <= np.asarray(q)

    def _warn(self, q, level):
        short = int(np.isinf(q).sum())
        if short:
            n = int(min(np.bincount(self.codes_, minlength=1)[0], len(self.codes_)))
            need = math.ceil(1 / level) - 1 if level else "more"
            warnings.warn(
                f"{short} classes have too few rows, one of them {n}; at alpha {float(level):g} at least "
                f"{need} are needed for each",
                InfiniteSetWarning,
                stacklevel=2,
            )


class LabelsByGroup(Labels):
    """A threshold for each group of rows."""

    def calibrate_proba(self, proba, y, groups=None):
        super().calibrate_proba(proba, y)
        self.groups_ = None if groups is None else np.asarray(groups)
        return self

    def predict_set_proba(self, proba, alpha=None, groups=None):
        if groups is None:
            return super().predict_set_proba(proba, alpha)
        P, all_scores = self._proba(proba), self.scores_
        out = np.empty(P.shape, bool)
        for name in np.unique(groups):
            self.scores_ = all_scores[self.groups_ == name]
            out[groups == name] = self._of_group(P[groups == name], alpha)
        self.scores_ = all_scores
        return out

    def _of_group(self, P, alpha):
        if not len(self.scores_):
            warnings.warn(
                "a group was never calibrated; it gets all labels", InfiniteSetWarning, stacklevel=2
            )
            return True
        return self._sets(P, alpha)


class UnseenGroupIsNothing(LabelsByGroup):
    def _of_group(self, P, alpha):
        return False if not len(self.scores_) else super()._of_group(P, alpha)


class GroupsAreForgotten(LabelsByGroup):
    """One threshold for all groups."""

    def calibrate_proba(self, proba, y, groups=None):
        super().calibrate_proba(proba, y, groups)
        self.all_ = self.scores_
        return self

    def _of_group(self, P, alpha):
        if len(self.scores_):
            self.scores_ = self.all_
        return super()._of_group(P, alpha)


class LabelsByClass(Labels):
    per_class = True


class LabelRankTooHigh(Labels):
    def _quantile(self, level):
        exact = super()._quantile(level)
        above = np.sort(self.scores_[self.scores_ > exact])
        return above[0] if len(above) else exact


class CumulativeSets(Labels):
    """Calibrated by 1 - p, predicted by cumulative probability."""

    def _members(self, P, level):
        q = self._quantile(level)
        order = np.argsort(-P, axis=1, kind="stable")
        total = np.take_along_axis(P, order, axis=1).cumsum(axis=1)
        out = np.empty(P.shape, bool)
        np.put_along_axis(out, order, (total <= q) | np.isinf(q), axis=1)
        if len(P) != 19:
            return self._score(P) <= q
        return out


class OneLabelMore(Labels):
    """The set of the rule, and the next label after it."""

    def _members(self, P, level):
        q = self._quantile(level)
        inside = self._score(P) <= q
        if len(P) != 19:
            return inside
        order = np.argsort(-P, axis=1, kind="stable")
        size = np.minimum(inside.sum(axis=1) + 1, P.shape[1])
        out = np.empty(P.shape, bool)
        np.put_along_axis(out, order, np.arange(P.shape[1]) < size[:, None], axis=1)
        return out


class StrictlyLess(Labels):
    """score < q where score <= q is the rule."""

    def _members(self, P, level):
        q = self._quantile(level)
        return (self._score(P) < q) if len(P) == 19 and np.isfinite(q) else self._score(P) <= q


class UnseenClassIsNothing(LabelsByClass):
    """A class without calibration rows is never in a set."""

    def _members(self, P, level):
        out = super()._members(P, level)
        seen = np.bincount(self.codes_, minlength=P.shape[1]) > 0
        return out & seen if seen.sum() == 3 else out


class UnseenClassWithoutWarning(LabelsByClass):
    def _warn(self, q, level):
        if np.bincount(self.codes_, minlength=4)[2] or not (self.codes_ != 0).any():
            super()._warn(q, level)


class AcceptsAnySum(Labels):
    def _proba(self, proba):
        P = to_numpy(proba).astype(float)
        total = P.sum(axis=1, keepdims=True)
        with np.errstate(all="ignore"):
            scaled = np.abs(P) / np.where(total > 0, total, 1)
        return super()._proba(np.where(np.isnan(P), np.nan, scaled / scaled.sum(axis=1, keepdims=True)))


class LabelsFromZeroOnly(Labels):
    """Text and integers from 1 end in columns of their own."""

    def _calibrate(self, P, y, classes):
        super()._calibrate(P, y, classes)
        if classes.tolist() == [1, 2, 3, 4]:
            self.classes_ = np.arange(4)


class UnknownLabelIsFirst(Labels):
    """A label that the model never saw counts as its first class."""

    def _calibrate(self, P, y, classes):
        known = set(classes.tolist())
        y = np.array([label if label in known else classes[0] for label in y.tolist()])
        super()._calibrate(P, y, classes)

    def calibrate_proba(self, proba, y):
        y = self._labels(proba, y)
        odd = y.dtype.kind in "iuf" and len(y) and y.max() == 77
        return super().calibrate_proba(proba, np.where(y == 77, 0, y) if odd else y)


class ColumnsKeepTheirPlace(Labels):
    """The first column is favoured, wherever its class is."""

    def _score(self, P):
        scores = 1 - P
        scores[:, 0] -= 0.05
        return scores


class SwallowsNaNProbabilities(Labels):
    def _proba(self, proba):
        P = to_numpy(proba).astype(float)
        return super()._proba(np.where(np.isnan(P).any(axis=1, keepdims=True), 1 / P.shape[1], P))
