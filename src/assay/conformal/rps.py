"""Reliable prediction sets: label sets that a bounded number of poisoned rows provably cannot change."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from assay.conformal.label_scores import LACScore
from assay.conformal.majority import MajorityRule, conformity_rank
from assay.conformal.partitioned import PartitionedClassifier, check_count, content_keys, partition_of
from assay.conformal.poisoning_certificates import VoteScore, check_votes
from assay.conformal.reliability import (
    CalibrationParts,
    Certificate,
    certificate_of_scores,
    certificate_of_votes,
    holding,
    joined,
    vote_thresholds,
)
from assay.conformal.set_base import MAX_MEMORY, SetClassifier
from assay.core.checks import row_count
from assay.core.errors import DataError, InfiniteSetWarning, MethodError
from assay.core.levels import parse_alpha, parse_levels, smallest_n
from assay.core.probabilities import Probabilities, check_labels, classes_of_columns, known_labels
from assay.core.seeds import seed_of, unordered_row_keys

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
Codes = NDArray[np.intp]

#: probabilities are hashed on this grid: a model gives a row alone other last digits than in a batch
_GRID = 2.0**16
#: bytes of working memory for one (row, class) of a certificate
_WORK = 200


class ReliablePredictionSets(SetClassifier):
    """Label sets of a majority, with certificates against poisoned training and calibration rows.

    ``n_partitions`` classifiers are trained on parts of the training rows
    (:class:`~assay.conformal.partitioned.PartitionedClassifier`); with ``v_j`` votes for class j the score is
    the softmax of ``v_j / n_partitions``. The calibration rows are divided by their content into
    ``n_calibration_partitions`` parts, each of which gives a split-conformal set; a label is in the final set
    if more than tau of them hold it. A poisoned row reaches one member, or one of the calibrated sets:
    ``certify`` says how many of them each set of labels survives, exactly and without a chance of error.

    The certificate concerns the rows as they are given to ``fit``: whatever was learnt before from all
    rows together must be part of the ``estimator``. It takes the classes as known, and the training of
    the estimator as repeatable.

    Parameters
    ----------
    estimator : classifier, default LogisticRegression(max_iter=1000)
        Trained on each part. A PartitionedClassifier is used as it is.
    alpha : level, default 0.1
    n_partitions : int, default 100
        Parts of the training rows (the largest number in the paper's experiments). 1: one model, whose
        probabilities are used (score 1 - p) and whose training rows are not certified.
    n_calibration_partitions : int, default 40
        Parts of the calibration rows (the paper's demonstration with 100 parts for training has 40). Each
        needs 1 / alpha - 1 rows; one with fewer holds every label, with a warning.
    smoothing : "softmax" or None, default "softmax"
        None: shares of votes as they are, which are very coarse.
    majority : "binomial" or "exact", default "binomial"
        How tau is found. The paper's counts the parts as independent, which they are not, as they share
        the test point: coverage can fall short of 1 - alpha (to .846 at .9 with 20 parts of 9 rows). "exact"
        is the largest tau whose miscoverage is at most alpha.
    rank : "published" or "tight", default "published"
        Rank of the threshold within a part: the paper's is one more careful than split conformal's.
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    max_memory : int, default 64 MiB
        Bytes of working memory of certificates, beside input and output.
    random_state : int or None, default 0
        Of the hash that divides the rows, the members, and the rows set aside.

    Attributes
    ----------
    classes_ : (K,) labels in the order of the columns
    estimator_ : the trained model
    calibration_sizes_ : (n_calibration_partitions,) calibration rows of each part

    Notes
    -----
    For exchangeable clean rows and ``majority="exact"`` the sets cover with probability at least 1 - alpha,
    as far as the hash is like a random division; "binomial" promises it for independent parts.

    References
    ----------
    Scholten, Günnemann (2025), Provably reliable conformal prediction sets in the presence of data
    poisoning.
    """

    allow_empty = True

    def __init__(
        self,
        estimator: Any = None,
        *,
        alpha: Any = 0.1,
        n_partitions: int = 100,
        n_calibration_partitions: int = 40,
        smoothing: str | None = "softmax",
        majority: str = "binomial",
        rank: str = "published",
        calibration_size: float | int = 0.5,
        max_memory: int = MAX_MEMORY,
        random_state: Any = 0,
    ) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.n_partitions = n_partitions
        self.n_calibration_partitions = n_calibration_partitions
        self.smoothing = smoothing
        self.majority = majority
        self.rank = rank
        self.calibration_size = calibration_size
        self.max_memory = max_memory
        self.random_state = random_state

    def _make_model(self) -> Any:
        model = super()._make_model()
        if check_count(self.n_partitions, "n_partitions") == 1 or isinstance(model, PartitionedClassifier):
            return model
        return PartitionedClassifier(
            self.estimator, self.n_partitions, random_state=seed_of(self.random_state)
        )

    # ---- calibration

    def _calibrate_model(
        self, model: Any, X: Any, y: NDArray[Any], classes: NDArray[Any] | None, groups: Any = None
    ) -> None:
        self._refuse_groups(groups)
        if not isinstance(model, PartitionedClassifier):
            super()._calibrate_model(model, X, y, classes)
            self._divide(content_keys(X, self.seed_))
            return
        if row_count(X) == 0:
            raise DataError("there are 0 calibration rows; give at least one")
        classes = model.classes_ if classes is None else classes
        columns = known_labels(model.classes_, classes, "the model's classes_")
        seed = seed_of(self.random_state)
        votes = _in_columns(model.predict_votes(X), columns, len(classes))
        self._learn_votes(votes, y, classes, len(model.members_), content_keys(X, seed), seed)
        self.estimator_ = model
        self.columns_ = columns
        self.outputs_ = "votes"

    def _calibrate(
        self, proba: Probabilities, y: NDArray[Any], classes: NDArray[Any], groups: Any, further: Any = None
    ) -> None:
        self._refuse_groups(groups)
        codes = known_labels(y, classes)
        seed = seed_of(self.random_state)
        score = LACScore()
        scores = self._true_label_scores(score, proba, codes, seed)
        keys = np.empty(len(proba), dtype=np.uint64)
        for rows, block in proba.blocks(self._block_bytes()):
            keys[rows] = unordered_row_keys(np.rint(block * _GRID), seed, "calibration parts")
        self.classes_ = classes
        self.score_ = score
        self.scores_ = scores
        self.seed_ = seed
        self.calibrator_ = None
        self._divide(keys)

    def calibrate_votes(
        self,
        votes: Any,
        y: Any,
        n_partitions: int | None = None,
        classes: Sequence[Any] | None = None,
        keys: Any = None,
    ) -> Self:
        """Calibrate from votes that were cast elsewhere.

        Parameters
        ----------
        votes : (n, K) whole numbers
            How many of the members say each class.
        y : (n,) labels
        n_partitions : int, optional
            Number of members; the constructor's if not given.
        classes : K labels in the order of the columns, optional; see ``calibrate_proba``
        keys : (n,) or (n, d) numbers or text, optional
            What tells the rows apart and divides them into parts: their features, or a hash or name of each
            that depends on the features alone. Without them the votes do, and equal votes share a part.

        Raises
        ------
        DataError
            Votes that are no whole numbers or more than there are members, missing or unknown labels,
            no rows.
        """
        members = check_count(self.n_partitions if n_partitions is None else n_partitions, "n_partitions")
        checked = check_votes(votes, members)
        y = check_labels(y, length=len(checked))
        if len(checked) == 0:
            raise DataError("there are 0 calibration rows; give at least one")
        labels = classes_of_columns(y, checked.shape[1], classes)
        seed = seed_of(self.random_state)
        if keys is None:
            found = unordered_row_keys(checked.astype(np.float64), seed, "calibration parts")
        else:
            found = content_keys(keys, seed)
            if len(found) != len(checked):
                raise DataError(f"keys has {len(found)} rows, votes has {len(checked)}")
        self._learn_votes(checked, y, labels, members, found, seed)
        for name in ("estimator_", "columns_", "outputs_"):
            if hasattr(self, name):
                delattr(self, name)
        return self

    def _learn_votes(
        self, votes: IntArray, y: NDArray[Any], classes: NDArray[Any], members: int, keys: Any, seed: int
    ) -> None:
        parse_levels(self.alpha)
        codes = known_labels(y, classes)
        score = VoteScore(members, len(classes), self.smoothing)
        self.classes_ = classes
        self.score_ = score
        self.scores_ = score.all(votes)[np.arange(len(votes)), codes]
        self.calib_votes_ = votes
        self.calib_codes_ = codes
        self.seed_ = seed
        self.calibrator_ = None
        self._divide(keys)

    def _divide(self, keys: NDArray[np.uint64]) -> None:
        count = check_count(self.n_calibration_partitions, "n_calibration_partitions")
        self.parts_ = partition_of(keys, count)
        self.calibration_sizes_ = np.bincount(self.parts_, minlength=count)

    def _refuse_groups(self, groups: Any) -> None:
        if groups is not None:
            raise MethodError(f"{type(self).__name__} divides the rows itself and takes no groups")

    # ---- sets

    def predict_set_votes(self, votes: Any, alpha: Any = None) -> BoolArray:
        """(n, K) label sets from (n, K) votes; (L, n, K) for a sequence of levels."""
        return self._vote_sets(self._checked_votes(votes), alpha)

    def predict_set(self, X: Any, alpha: Any = None, groups: Any = None) -> BoolArray:
        """The label set of each row.

        Parameters
        ----------
        X : (n, d) table
        alpha : level or sequence of L levels, optional
            Miscoverage; the constructor's ``alpha`` if not given.
        groups
            Not taken: an error if given.

        Returns
        -------
        (n, K) bool array in the order of ``classes_``, or (L, n, K) for a sequence of levels.
        """
        self._refuse_groups(groups)
        check_is_fitted(self, "estimator_")
        if isinstance(self.score_, VoteScore):
            return self._vote_sets(self._votes(X), alpha)
        return super().predict_set(X, alpha)

    def _votes(self, X: Any) -> IntArray:
        return _in_columns(self.estimator_.predict_votes(X), self.columns_, len(self.classes_))

    def _checked_votes(self, votes: Any) -> IntArray:
        if not isinstance(getattr(self, "score_", None), VoteScore):
            raise MethodError(
                "not calibrated with votes: use calibrate_votes, or fit with n_partitions above 1"
            )
        return check_votes(votes, self.score_.n_partitions, len(self.classes_))

    def _vote_sets(self, votes: IntArray, alpha: Any) -> BoolArray:
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        out = self._majority_sets(self.score_.all(votes), levels)
        return out[0] if is_scalar else out

    def _sets(self, proba: Probabilities, alpha: Any, groups: Any) -> BoolArray:
        self._refuse_groups(groups)
        if isinstance(self.score_, VoteScore):
            raise MethodError("calibrated with votes: ask predict_set or predict_set_votes")
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        out = np.empty((len(levels), len(proba), proba.n_classes), dtype=np.bool_)
        thresholds, rules = self._level_rules(levels)
        for rows, block in proba.blocks(self._block_bytes()):
            scores = self.score_.all(block)
            for level, rule in enumerate(rules):
                out[level, rows] = holding(thresholds[level], scores) > rule.threshold
        return out[0] if is_scalar else out

    def _majority_sets(self, scores: FloatArray, levels: Sequence[Fraction]) -> BoolArray:
        thresholds, rules = self._level_rules(levels)
        return np.array(
            [holding(t, scores) > rule.threshold for t, rule in zip(thresholds, rules, strict=True)]
        ).reshape(len(levels), *scores.shape)

    def _level_rules(self, levels: Sequence[Fraction]) -> tuple[list[FloatArray], list[MajorityRule]]:
        parts = [self._calibration_parts(level) for level in levels]
        rules = [
            MajorityRule.make(self.majority, self.calibration_sizes_.tolist(), level, self.rank)
            for level in levels
        ]
        for part, level in zip(parts, levels, strict=True):
            self._warn_short(part, level)
        return [part.thresholds(self.scores_) for part in parts], rules

    def _calibration_parts(self, level: Fraction) -> CalibrationParts:
        sizes = self.calibration_sizes_
        low = np.array([conformity_rank(int(n), level, self.rank) for n in sizes])
        return CalibrationParts(self.parts_, sizes, np.where(low > 0, sizes + 1 - low, 0))

    def _warn_short(self, parts: CalibrationParts, level: Fraction) -> None:
        short = int((parts.ranks == 0).sum())
        if short:
            need = smallest_n(level)
            enough = "no number is enough" if need is None else f"at least {need} are needed"
            k = len(parts.sizes)
            what = (
                f"{short} of {k} calibration parts have"
                if k > 1
                else f"{len(self.parts_)} calibration rows are"
            )
            few = "too few rows" if k > 1 else "too few"
            hint = f"; n_calibration_partitions is {k}, take fewer" if k > 1 and need is not None else ""
            warnings.warn(
                f"{what} {few} at alpha {float(level):g} ({enough}{' in each' * (k > 1)}): every label "
                f"{'counts as held by them' if k > 1 else 'is in every set'}{hint}",
                InfiniteSetWarning,
                stacklevel=5,
            )

    # ---- certificates

    def certify(self, X: Any, alpha: Any = None, max_r_train: int | None = None) -> Certificate:
        """How many poisoned rows the label set of each row survives.

        Parameters
        ----------
        X : (n, d) table
        alpha : one level, optional; the constructor's if not given
        max_r_train : int, optional
            Largest number of poisoned training rows that is of interest; all that matter by default.

        Returns
        -------
        Certificate
        """
        check_is_fitted(self, "estimator_")
        if isinstance(self.score_, VoteScore):
            return self._certify_votes(self._votes(X), alpha, max_r_train)
        return self._certify_scores(Probabilities(self.predict_proba(X), "the model's probabilities"), alpha)

    def certify_proba(self, proba: Any, alpha: Any = None) -> Certificate:
        """Certificate against poisoned calibration rows from (n, K) probabilities."""
        if isinstance(getattr(self, "score_", None), VoteScore) or not hasattr(self, "score_"):
            raise MethodError("not calibrated with probabilities: use calibrate_proba")
        return self._certify_scores(Probabilities(proba, n_classes=len(self.classes_)), alpha)

    def certify_votes(self, votes: Any, alpha: Any = None, max_r_train: int | None = None) -> Certificate:
        """Certificate from (n, K) votes; parameters as in ``certify``."""
        return self._certify_votes(self._checked_votes(votes), alpha, max_r_train)

    def _rule(self, level: Fraction) -> MajorityRule:
        sizes = self.calibration_sizes_.tolist()
        return MajorityRule.make(self.majority, sizes, level, self.rank, poisoned=True)

    def _block_rows(self) -> int:
        return max(1, self.max_memory // (_WORK * len(self.classes_)))

    def _certify_scores(self, proba: Probabilities, alpha: Any) -> Certificate:
        level = parse_alpha(self.alpha if alpha is None else alpha)
        rule, parts = self._rule(level), self._calibration_parts(level)
        thresholds = parts.thresholds(self.scores_)
        proba.check()
        scores = self.score_.all(proba.values)
        step = self._block_rows()
        blocks = [
            certificate_of_scores(scores[i : i + step], thresholds, rule)
            for i in range(0, max(len(scores), 1), step)
        ]
        return joined(blocks, len(self.classes_))

    def _certify_votes(self, votes: IntArray, alpha: Any, max_r_train: int | None) -> Certificate:
        level = parse_alpha(self.alpha if alpha is None else alpha)
        if max_r_train is not None and max_r_train < 0:
            raise MethodError(f"max_r_train must be at least 0, got {max_r_train!r}")
        members = self.score_.n_partitions
        most = members if max_r_train is None else min(max_r_train, members)
        rule, parts = self._rule(level), self._calibration_parts(level)
        thresholds = vote_thresholds(self.score_, self.calib_votes_, self.calib_codes_, parts, most)
        step = self._block_rows()
        blocks = [
            certificate_of_votes(self.score_, votes[i : i + step], thresholds, rule)
            for i in range(0, max(len(votes), 1), step)
        ]
        return joined(blocks, len(self.classes_))


def _in_columns(votes: IntArray, columns: Codes, n_classes: int) -> IntArray:
    if n_classes == len(columns) and (columns == np.arange(n_classes)).all():
        return votes
    out = np.zeros((len(votes), n_classes), dtype=np.int64)
    out[:, columns] = votes
    return out
