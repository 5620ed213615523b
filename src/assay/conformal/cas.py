"""CAS: robust label sets from certified bounds on the whole distribution of a score under noise."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.conformal.binary_certificate import GAUSSIAN, BinaryCertificate
from assay.conformal.monte_carlo_bounds import hoeffding_error
from assay.conformal.smoothed_rule import BoolArray, FloatArray, SmoothedRule, exact_share, refuse_beyond_one
from assay.core.errors import MethodError

_CORRECTIONS = ("dkw", "none", None)


class CAS(SmoothedRule["Histogram"]):
    """Label sets from the mean conformity score, bounded by certificates of its distribution function.

    On a grid ``0 = b_0 < ... < b_G = 1`` with F the share of m samples up to a point and e its error of
    sampling (Dvoretzky-Kiefer-Wolfowitz, probability ``eta / (n + K)``), an attack raises the mean to at most
    ``1 - sum (b_{g+1} - b_g) lower(F(b_g) - e; r)`` and lowers it to at least
    ``1 - sum (b_{g+1} - b_g) upper(F(b_{g+1}) + e; r)``. At test time (``side="test"``) a label is in the set
    if its upper mean reaches the conformal quantile of the calibration rows' means less their error; at
    calibration time the threshold is the quantile of the rows' lower means.

    Parameters
    ----------
    alpha : level, default 0.1
    radius : float, default 0.0
        How far a row may be moved, in the norm of the certificate; (added, deleted) bits for sparse noise.
    certificate : BinaryCertificate, default BinaryCertificate("gaussian", scale=0.25)
        Of the noise under which the samples were drawn. Scores must lie in [0, 1].
    side : {"test", "calibration"}, default "test"
        Where the certificate is applied.
    n_bins : int, default 200
        Steps of the grid, of equal width.
    confidence : float, default 0.999
        1 - eta; eta comes out of alpha.
    correction : {"dkw", "none", None}, default "dkw"
        None (in a card "none") takes the samples' distribution for the true one: right only as m grows.

    Attributes
    ----------
    means_ : (n,) mean conformity scores of the calibration rows' true labels
    cumulative_ : (n, n_bins + 1) number of their samples up to each point of the grid

    References
    ----------
    Zargarbashi, Akhondzadeh, Bojchevski (2024), Robust yet efficient conformal prediction sets.
    """

    def __init__(
        self,
        alpha: Any = 0.1,
        radius: Any = 0.0,
        certificate: BinaryCertificate = GAUSSIAN,
        side: str = "test",
        n_bins: int = 200,
        confidence: float = 0.999,
        correction: str | None = "dkw",
    ) -> None:
        self.alpha = alpha
        self.radius = radius
        self.certificate = certificate
        self.side = side
        self.n_bins = n_bins
        self.confidence = confidence
        self.correction = correction

    def _check(self, n_samples: int) -> None:
        if self.side not in ("test", "calibration"):
            raise MethodError(f"side must be 'test' or 'calibration', got {self.side!r}")
        if self.correction not in _CORRECTIONS:
            raise MethodError(f"correction must be one of {_CORRECTIONS}, got {self.correction!r}")
        if self.n_bins != int(self.n_bins) or self.n_bins < 1:
            raise MethodError(f"n_bins must be a whole number of at least 1, got {self.n_bins!r}")

    def _share(self) -> Fraction:
        return 1 - exact_share(self.confidence, "confidence") if self.correction == "dkw" else Fraction(0)

    @property
    def _error(self) -> float:
        if self.correction != "dkw":
            return 0.0
        return hoeffding_error(self.n_samples_, float(self._share() / (self.n_calib_ + self.n_classes_)))

    def _learn(self, samples: NDArray[Any]) -> None:
        tally = Histogram(len(samples), 1, int(self.n_bins))
        tally.add(samples[:, None])
        self.means_ = tally.mean()[:, 0]
        self.cumulative_ = tally.cumulative()[:, 0]

    def thresholds(self, levels: Sequence[Fraction]) -> FloatArray:
        """(L,) ranks of the thresholds among the calibration means, from the small end; 0: all labels."""
        return np.array([float(self._rank(level)) for level in levels])

    def tally(self, n: int, thresholds: FloatArray) -> Histogram:
        """How many samples lie in each step of the grid, and their sum."""
        return Histogram(n, self.n_classes_, int(self.n_bins))

    def marks(self, tally: Histogram, thresholds: FloatArray, radius: Any) -> BoolArray:
        """(L, n, K) the labels whose mean may have reached the threshold before the attack."""
        if self.side == "test":
            calibrated = self.means_ - self._error
            of_rows = self.upper_means(tally.cumulative(), radius)
        else:
            calibrated = self.lower_means(self.cumulative_, radius)
            of_rows = tally.mean() + self._error
        ranked = np.concatenate([[-np.inf], np.sort(calibrated)])
        return np.asarray(of_rows >= ranked[thresholds.astype(np.intp)][:, None, None])

    def upper_means(self, cumulative: NDArray[Any], radius: Any) -> FloatArray:
        """Certified largest means from (..., n_bins + 1) numbers of samples up to each point of the grid."""
        table = self.certificate.lower(np.maximum(self._shares() - self._error, 0), radius)
        return np.asarray(1 - table[cumulative[..., :-1]].mean(axis=-1))

    def lower_means(self, cumulative: NDArray[Any], radius: Any) -> FloatArray:
        """Certified smallest means, likewise."""
        table = self.certificate.upper(np.minimum(self._shares() + self._error, 1), radius)
        return np.asarray(1 - table[cumulative[..., 1:]].mean(axis=-1))

    def _shares(self) -> FloatArray:
        return np.arange(self.n_samples_ + 1) / self.n_samples_


class Histogram:
    """Sums, and numbers of samples by step of a grid: 0 exactly, then (b_g, b_{g+1}]."""

    def __init__(self, n: int, n_classes: int, n_bins: int) -> None:
        self._counts = np.zeros((n, n_classes, n_bins + 1), dtype=np.int32)
        self._total = np.zeros((n, n_classes))
        self._m = 0

    def add(self, samples: NDArray[Any]) -> None:
        """Take in (n, K, m) further samples."""
        refuse_beyond_one(samples)
        n, n_classes, m = samples.shape
        points = self._counts.shape[2]
        places = np.ceil(samples * (points - 1)).astype(np.intp)
        places += points * np.arange(n * n_classes).reshape(n, n_classes, 1)
        self._counts += np.bincount(places.ravel(), minlength=self._counts.size).reshape(self._counts.shape)
        self._total += samples.sum(axis=2, dtype=np.float64)
        self._m += m

    def cumulative(self) -> NDArray[np.intp]:
        """(n, K, n_bins + 1) number of samples up to each point of the grid."""
        return np.cumsum(self._counts, axis=2, dtype=np.intp)

    def mean(self) -> FloatArray:
        """(n, K) means."""
        return np.asarray(self._total / self._m)
