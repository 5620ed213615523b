"""What the rules share that make label sets from scores under noise, robust to moves of the input."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from assay.conformal.binary_certificate import BinaryCertificate
from assay.conformal.smoothed_scores import Tally
from assay.core.checks import refuse_nan, to_numpy
from assay.core.errors import DataError, InfiniteSetWarning, MethodError
from assay.core.levels import lower_rank, parse_levels, smallest_n
from assay.core.probabilities import check_labels, known_labels

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
T = TypeVar("T", bound=Tally)


class SmoothedRule(BaseEstimator, ABC, Generic[T]):  # type: ignore[misc]
    """Base of rules that calibrate on, and make sets from, samples of conformity scores under noise.

    A subclass stores ``alpha``, ``radius`` and ``certificate`` in its constructor, and implements
    :meth:`_learn`, :meth:`_share`, :meth:`thresholds`, :meth:`tally` and :meth:`marks`.

    Attributes
    ----------
    n_calib_, n_samples_, n_classes_ : calibration rows, samples of each, and labels
    """

    alpha: Any
    radius: Any
    certificate: BinaryCertificate

    # ---- what a rule says

    @property
    def certifies(self) -> bool:
        """Whether coverage within the radius is guaranteed at the number of samples that are drawn."""
        return self._share() > 0

    @abstractmethod
    def _learn(self, samples: NDArray[Any]) -> None:
        """Keep what is needed of (n, m) true-label samples."""

    @abstractmethod
    def _share(self) -> Fraction:
        """What sampling errors take from alpha."""

    @abstractmethod
    def thresholds(self, levels: Sequence[Fraction]) -> FloatArray:
        """(L,) thresholds, one a level; warns where calibration rows are too few."""

    @abstractmethod
    def tally(self, n: int, thresholds: FloatArray) -> T:
        """What has to be summed up over the samples of n test rows."""

    @abstractmethod
    def marks(self, tally: T, thresholds: FloatArray, radius: Any) -> BoolArray:
        """(L, n, K) the labels in the sets."""

    # ---- from samples

    def calibrate(self, samples: Any, y: Any = None, n_classes: int | None = None) -> Self:
        """Calibrate from samples of conformity scores under noise; no model is needed.

        Parameters
        ----------
        samples : (n, K, m) scores of all labels, or (n, m) scores of the true labels
            m independent draws of the noise for each row; high = fits.
        y : (n,) whole numbers 0 .. K - 1, the true labels; not for (n, m)
        n_classes : int
            K; only for (n, m)

        Raises
        ------
        DataError
            NaN, no rows, wrong shapes, or a label that is no column.
        MethodError
            An impossible parameter.
        """
        array = _checked(samples)
        if array.ndim == 3:
            if y is None:
                raise DataError("samples of all labels, shape (n, K, m), need the true labels y")
            n_classes = array.shape[1]
            codes = known_labels(check_labels(y, length=len(array)), np.arange(n_classes))
            array = array[np.arange(len(array)), codes]
        elif n_classes is None or y is not None:
            raise DataError("samples of the true labels, shape (n, m), need n_classes, and no y")
        return self.calibrate_labels(array, n_classes)

    def calibrate_labels(self, samples: NDArray[Any], n_classes: int) -> Self:
        """Calibrate from (n, m) checked samples of the true labels' scores."""
        n, m = samples.shape
        self._prepare(n, m)
        self._learn(samples)
        self._fitted(n, m, n_classes)
        return self

    def _prepare(self, n: int, n_samples: int) -> None:
        if n == 0 or n_samples == 0:
            raise DataError(f"there are {n} calibration rows of {n_samples} samples each; give at least one")
        self.certificate.check_radius(self.radius)
        self._check(n_samples)
        self._check_levels(parse_levels(self.alpha)[0])

    def _fitted(self, n: int, n_samples: int, n_classes: int) -> None:
        self.n_calib_, self.n_samples_, self.n_classes_ = n, int(n_samples), int(n_classes)

    def predict_set(self, samples: Any, alpha: Any = None) -> BoolArray:
        """(n, K) label sets from (n, K, m) samples; (L, n, K) for a sequence of levels.

        Each set holds the true label with probability at least 1 - alpha also where the rows were moved
        by up to ``radius`` before the noise was drawn.
        """
        levels, is_scalar = self.levels(alpha)
        thresholds = self.thresholds(levels)
        out = self.marks(self._tallied(samples, thresholds), thresholds, self.radius)
        return out[0] if is_scalar else out

    def certified_sets(self, samples: Any, radii: Sequence[Any], alpha: Any = None) -> BoolArray:
        """(R, n, K) label sets for each of R radii, at one level; the samples are gone through once."""
        levels, _ = self.levels(alpha)
        if len(levels) > 1:
            raise MethodError(f"sets at several radii take one alpha, {len(levels)} are given")
        thresholds = self.thresholds(levels)
        tally = self._tallied(samples, thresholds)
        return np.stack([self.marks(tally, thresholds, radius)[0] for radius in radii])

    def levels(self, alpha: Any = None) -> tuple[tuple[Fraction, ...], bool]:
        """The levels asked for, checked, and whether it was a single one."""
        if not hasattr(self, "n_calib_"):
            raise NotFittedError(f"this {type(self).__name__} is not calibrated yet; call calibrate first")
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        self._check_levels(levels)
        return levels, is_scalar

    def _tallied(self, samples: Any, thresholds: FloatArray) -> T:
        array = _checked(samples)
        wanted = (len(array), self.n_classes_, self.n_samples_)
        if array.shape != wanted:
            raise DataError(
                f"samples have shape {array.shape}; {self.n_classes_} labels and {self.n_samples_} samples a "
                f"row, as in calibration, make {wanted}"
            )
        tally = self.tally(len(array), thresholds)
        tally.add(array)
        return tally

    # ---- for rules

    def _check(self, n_samples: int) -> None:
        """Refuse impossible parameters for that many samples."""

    def _check_levels(self, levels: Sequence[Fraction]) -> None:
        share = self._share()
        for level in levels:
            if 0 < level <= share:
                raise MethodError(
                    f"alpha is {float(level):g}, of which {float(share):g} pays for errors of the "
                    "Monte-Carlo samples; alpha must be larger than that"
                )

    def _rank(self, level: Fraction) -> int:
        """Rank, from the small end, of the threshold among scores; 0 with a warning: all labels."""
        share = self._share()
        rank = lower_rank(self.n_calib_, level - share) if level else 0
        if rank < 1:
            need = smallest_n(level - share) if level else None
            enough = "no number gives" if need is None else f"at least {need} are needed for"
            pays = f", of which {float(share):g} pays for sampling errors" if share else ""
            warnings.warn(
                f"{self.n_calib_} calibration rows at alpha {float(level):g}{pays}: {enough} sets smaller "
                "than all labels; every set holds all labels",
                InfiniteSetWarning,
                stacklevel=4,
            )
        return rank


def _checked(samples: Any) -> NDArray[Any]:
    array = to_numpy(samples)
    if array.dtype.kind not in "fiub":
        raise DataError(f"samples hold values that are not numbers (dtype {array.dtype})")
    if array.dtype.kind != "f":
        array = array.astype(np.float64)
    if array.ndim not in (2, 3):
        raise DataError(f"samples have shape {array.shape}; give (n, K, m), or (n, m) of the true labels")
    refuse_nan(array, "samples")
    return array


def exact_share(value: float, name: str) -> Fraction:
    """A probability in (0, 1) as the decimal that was typed."""
    if not 0 < value < 1:
        raise MethodError(f"{name} must lie in (0, 1), got {value!r}")
    return Fraction(str(float(value)))


def refuse_beyond_one(samples: NDArray[Any]) -> None:
    """Raise DataError where a conformity score is not in [0, 1], as bounds on means need it."""
    if samples.size and not (samples.min() >= 0 and samples.max() <= 1):
        raise DataError(
            f"conformity scores range from {samples.min():.6g} to {samples.max():.6g}; this rule bounds "
            "means of scores in [0, 1]: take a score made of probabilities"
        )
