"""Label sets of any classifier that keep their coverage when rows are moved within a radius."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_consistent_length, check_is_fitted

from assay.conformal.binary_certificate import BinaryCertificate
from assay.conformal.label_rows import training_and_calibration, untrained_classifier
from assay.conformal.set_base import BoolArray, in_columns
from assay.conformal.smoothed_rule import SmoothedRule
from assay.conformal.smoothed_scores import TEST, Noise, SmoothedScores, Tally
from assay.core.checks import row_count
from assay.core.errors import DataError, MethodError
from assay.core.levels import parse_levels
from assay.core.models import predict_probabilities
from assay.core.probabilities import (
    check_labels,
    classes_of_columns,
    known_labels,
)
from assay.core.seeds import seed_of

#: labels of test rows whose sums (for CAS a histogram each) are in memory at a time
_BLOCK_LABELS = 2**11


class SmoothedSetClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Label sets for rows that an adversary may have moved: a rule on the classifier's scores under noise.

    Calibration rows are clean. A set for a row x~ holds the true label with probability at least 1 - alpha
    if x~ lies within ``radius`` of a row exchangeable with the calibration rows. Both are scored at
    ``n_samples`` noisy copies, with noise of their own. The radius is measured on X as it is given: on
    standardised features 1 is one standard deviation of one feature, or of several in part.

    Parameters
    ----------
    rule : rule such as BinCP, RSCP, RSCPPlus or CAS
        Cloned; its alpha, radius and certificate are set from the arguments here.
    estimator : classifier, default LogisticRegression(max_iter=1000)
        Cloned and trained by ``fit``; used as it is by ``calibrate``. There it may also be a torch module
        or a function of X that gives (n, K) probabilities.
    alpha : level, default 0.1
        Miscoverage.
    radius : float, default 0.25
        How far rows may be moved, in the norm of the noise: l2 for Gaussian, l1 for Laplace and uniform
        noise; (added, deleted) bits for sparse noise.
    score : str or LabelScore, default "lac"
        A label score of the package; the conformity score is 1 - score.
    noise : {"gaussian", "laplace", "uniform", "sparse"}, default "gaussian"
    noise_scale : float, default 0.25
        Of the noise, in the units of X; see :class:`~assay.conformal.binary_certificate.BinaryCertificate`.
        Sets are small for radii up to about this; a larger scale blurs the classifier.
    n_samples : int, default 150
        Noisy copies of a row that are scored (the paper's 100 to 200).
    noisy_copies : int, default 5
        ``fit`` trains on so many noisy copies of each training row, so that the classifier knows rows as
        they will be scored; 0 trains on the rows themselves.
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    random_state : int or None, default None
        Draws calibration rows and noise.

    Attributes
    ----------
    classes_ : (K,) labels, in the order of the columns
    estimator_ : the trained model
    rule_ : the calibrated rule
    certified_radius_ : ``radius``, or 0 where the rule guarantees nothing at finite numbers of copies
    scores_ : SmoothedScores; its ``calls`` counts the rows that the model was asked about
    """

    def __init__(
        self,
        rule: Any,
        estimator: Any = None,
        *,
        alpha: Any = 0.1,
        radius: Any = 0.25,
        score: Any = "lac",
        noise: str = "gaussian",
        noise_scale: Any = 0.25,
        n_samples: int = 150,
        noisy_copies: int = 5,
        calibration_size: float | int = 0.5,
        random_state: Any = None,
    ) -> None:
        self.rule = rule
        self.estimator = estimator
        self.alpha = alpha
        self.radius = radius
        self.score = score
        self.noise = noise
        self.noise_scale = noise_scale
        self.n_samples = n_samples
        self.noisy_copies = noisy_copies
        self.calibration_size = calibration_size
        self.random_state = random_state

    def fit(self, X: Any, y: Any, X_calib: Any = None, y_calib: Any = None) -> Self:
        """Train a clone of the classifier on noisy rows and calibrate it on rows it has not seen.

        Parameters
        ----------
        X : (n, d) numbers
        y : (n,) labels
        X_calib, y_calib : rows and labels, optional
            Without them ``calibration_size`` of the given rows, drawn with ``random_state``, are set aside.

        Raises
        ------
        DataError
            Missing values, missing labels, lengths that differ, fewer than two classes to train on, or
            calibration rows that are all training rows.
        MethodError
            An impossible parameter.
        """
        parse_levels(self.alpha)
        seed = seed_of(self.random_state)
        if self.noisy_copies != int(self.noisy_copies) or self.noisy_copies < 0:
            raise MethodError(f"noisy_copies must be a whole number of at least 0, got {self.noisy_copies!r}")
        given = training_and_calibration(X, y, X_calib, y_calib, self.calibration_size, seed)
        model = untrained_classifier(self.estimator)
        rows, y = self._scores(model, seed).rows(given.X), given.y
        copies = int(self.noisy_copies)
        if copies:
            noisy = Noise(rows, self.noise, self.noise_scale, seed, "training").add(copies)
            rows, y = noisy.reshape(-1, *rows.shape[1:]), np.repeat(y, copies)
        model.fit(rows, y)
        self._calibrate_model(model, given.X_calib, given.y_calib, given.classes, seed)
        return self

    def calibrate(self, X: Any, y: Any, classes: Sequence[Any] | None = None) -> Self:
        """Calibrate the model given to the constructor, which is already trained (on noisy rows, one hopes).

        After ``fit`` the trained model of ``fit`` is calibrated anew. The rows must not have been used in
        training.

        Parameters
        ----------
        X : (n, ...) numbers
        y : (n,) labels
        classes : K labels, optional
            For a model without ``classes_`` the labels of its outputs in their order.
        """
        check_consistent_length(X, y)
        y = check_labels(y)
        parse_levels(self.alpha)
        model = getattr(self, "estimator_", self.estimator)
        if model is None:
            raise MethodError("calibrate needs a trained model: give it as estimator, or use fit")
        seed = seed_of(self.random_state)
        self._calibrate_model(model, X, y, None if classes is None else check_labels(classes), seed)
        return self

    def _scores(self, model: Any, seed: int) -> SmoothedScores:
        return SmoothedScores(
            model,
            score=self.score,
            noise=self.noise,
            scale=self.noise_scale,
            n_samples=self.n_samples,
            random_state=seed,
        )

    def _calibrate_model(
        self, model: Any, X: Any, y: NDArray[Any], classes: NDArray[Any] | None, seed: int
    ) -> None:
        if row_count(X) == 0:
            raise DataError("there are 0 calibration rows; give at least one")
        if not isinstance(self.rule, SmoothedRule):
            raise MethodError(f"rule must be an object such as BinCP(), got {self.rule!r}")
        certificate = BinaryCertificate(self.noise, scale=self.noise_scale)
        rule = clone(self.rule).set_params(alpha=self.alpha, radius=self.radius, certificate=certificate)
        scores = self._scores(model, seed)
        rows = scores.rows(X)
        # the model's classes, and whether it gives logits, from the rows as they are
        raw, outputs = predict_probabilities(model, rows)
        known = getattr(model, "classes_", None)
        if known is None:
            known = classes = classes_of_columns(y, raw.shape[1], classes)
        else:
            known = np.asarray(known)
            classes = known if classes is None else classes
        columns = known_labels(known, classes, "the model's classes_")
        codes = known_labels(y, classes)
        if len(columns) < len(classes) or (columns != np.arange(len(classes))).any():
            scores.model = InColumns(model, columns, len(classes))
            outputs = "probabilities"
        scores.outputs = outputs
        samples, n_classes = scores.label_samples(rows, codes)
        rule.calibrate_labels(samples, n_classes)
        self.estimator_ = model
        self.scores_ = scores
        self.classes_ = classes
        self.rule_ = rule

    def predict_set(self, X: Any, alpha: Any = None) -> BoolArray:
        """The label set of each row, wherever within the radius it was moved from.

        Parameters
        ----------
        X : (n, ...) numbers
        alpha : level or sequence of L levels, optional
            Miscoverage; the constructor's ``alpha`` if not given.

        Returns
        -------
        (n, K) bool array in the order of ``classes_``, or (L, n, K) for a sequence of levels.
            All labels where calibration rows are too few, with a warning.
        """
        check_is_fitted(self, "rule_")
        levels, is_scalar = self.rule_.levels(self.alpha if alpha is None else alpha)
        thresholds = self.rule_.thresholds(levels)
        rows = self.scores_.rows(X)
        out = np.empty((len(levels), len(rows), len(self.classes_)), dtype=np.bool_)
        for block, tally in self._tallies(rows, thresholds):
            out[:, block] = self.rule_.marks(tally, thresholds, self.radius)
        return out[0] if is_scalar else out

    def certified_sets(self, X: Any, radii: Sequence[Any], alpha: Any = None) -> BoolArray:
        """(R, n, K) label sets for each of R radii at one level; every row is scored once for all radii."""
        check_is_fitted(self, "rule_")
        levels, _ = self.rule_.levels(self.alpha if alpha is None else alpha)
        if len(levels) > 1:
            raise MethodError(f"sets at several radii take one alpha, {len(levels)} are given")
        thresholds = self.rule_.thresholds(levels)
        rows = self.scores_.rows(X)
        out = np.empty((len(radii), len(rows), len(self.classes_)), dtype=np.bool_)
        for block, tally in self._tallies(rows, thresholds):
            for i, radius in enumerate(radii):
                out[i, block] = self.rule_.marks(tally, thresholds, radius)[0]
        return out

    def _tallies(
        self, rows: NDArray[np.float64], thresholds: NDArray[np.float64]
    ) -> Iterator[tuple[slice, Tally]]:
        """Blocks of rows with what the rule sums up over their samples."""
        rows_a_block = max(1, _BLOCK_LABELS // len(self.classes_))
        for start in range(0, len(rows), rows_a_block):
            some = rows[start : start + rows_a_block]
            for block, chunks in self.scores_.blocks(some, TEST):
                tally = self.rule_.tally(block.stop - block.start, thresholds)
                for chunk in chunks:
                    tally.add(chunk)
                yield slice(start + block.start, start + block.stop), tally

    def predict_proba(self, X: Any) -> NDArray[Any]:
        """(n, K) probabilities of the underlying model without noise, in the order of ``classes_``."""
        check_is_fitted(self, "rule_")
        if row_count(X) == 0:
            return np.empty((0, len(self.classes_)))
        return predict_probabilities(self.scores_.model, self.scores_.rows(X), self.scores_.outputs)[0]

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,) the most probable label of each row without noise; ties to the lower class."""
        best = np.argmax(self.predict_proba(X), axis=1)
        return np.asarray(self.classes_[best])

    @property
    def certified_radius_(self) -> Any:
        """The radius up to which coverage is guaranteed at this number of noisy copies; 0 for none."""
        check_is_fitted(self, "rule_")
        return self.radius if self.rule_.certifies else 0.0

    @property
    def n_features_in_(self) -> int:
        """Number of features seen in fit, where the underlying model knows it."""
        check_is_fitted(self, "estimator_")
        return int(self.estimator_.n_features_in_)


class InColumns:
    """A model whose probabilities stand in columns of more classes than it knows."""

    def __init__(self, model: Any, columns: NDArray[np.intp], n_classes: int) -> None:
        self.model, self._columns, self._n_classes = model, columns, n_classes

    def __call__(self, X: Any) -> NDArray[Any]:
        """(n, K) probabilities; classes the model does not know get zero."""
        return in_columns(predict_probabilities(self.model, X)[0], self._columns, self._n_classes)
