"""BinCP: robust label sets from one binary certificate."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.conformal.binary_certificate import GAUSSIAN, BinaryCertificate
from assay.conformal.monte_carlo_bounds import clopper_pearson_lower, clopper_pearson_upper
from assay.conformal.smoothed_rule import BoolArray, FloatArray, SmoothedRule, exact_share
from assay.conformal.smoothed_scores import count_reaching
from assay.core.errors import DataError, MethodError

_CORRECTIONS = ("clopper-pearson", "none", None)
_UNIONS = ("n+K", "n+1")


class BinCP(SmoothedRule["Counts"]):
    """Label sets that keep their coverage under attack: one certificate of one event for all rows.

    The event for a label is that its score at a noisy copy of the row reaches a threshold tau. Of m noisy
    copies, a row's true label has its p-quantile score ``lambda_i``, the largest value that at least
    ``round(p m)`` of its samples reach. With k = floor((n + 1)(alpha - eta)) tau is the k-th smallest of the
    n ``lambda_i``: most rows' events then happen with probability p or more, and within the radius with at
    least ``c(p; r)``, c the certificate. A label is in the set if its event happens with that probability.
    Counts are replaced by Clopper-Pearson bounds, each failing with probability ``eta / (n + K)``.

    Parameters
    ----------
    alpha : level, default 0.1
        Miscoverage, of clean and of attacked rows alike.
    radius : float, default 0.0
        How far a row may be moved, in the norm of the certificate; (added, deleted) bits for sparse noise.
    p : float, default 0.8
        Probability of the event to calibrate for (the authors' default).
    threshold : float, optional
        Take this tau and calibrate the probability instead (p is then not used).
    certificate : BinaryCertificate, default BinaryCertificate("gaussian", scale=0.25)
        Of the noise under which the samples were drawn.
    confidence : float, default 0.999
        1 - eta: what the bounds on counts hold with, all of them together; eta comes out of alpha.
    correction : {"clopper-pearson", "none", None}, default "clopper-pearson"
        None (in a card "none") takes counts as probabilities: right only as m grows.
    union : {"n+K", "n+1"}, default "n+K"
        Among how many bounds eta is divided. The authors count every label of the test row; only its true
        label's bound has to hold, so that "n+1" is valid, too, and a little tighter.

    Attributes
    ----------
    n_calib_, n_samples_, n_classes_ : calibration rows, samples of each, and labels
    quantiles_ : (n,) sorted ``lambda_i``; with a ``threshold`` the sorted counts of its event instead

    References
    ----------
    Zargarbashi, Bojchevski (2025), Robust conformal prediction with a single binary certificate.
    """

    def __init__(
        self,
        alpha: Any = 0.1,
        radius: Any = 0.0,
        p: float = 0.8,
        threshold: float | None = None,
        certificate: BinaryCertificate = GAUSSIAN,
        confidence: float = 0.999,
        correction: str | None = "clopper-pearson",
        union: str = "n+K",
    ) -> None:
        self.alpha = alpha
        self.radius = radius
        self.p = p
        self.threshold = threshold
        self.certificate = certificate
        self.confidence = confidence
        self.correction = correction
        self.union = union

    # ---- from counts, where the threshold is given

    def calibrate_counts(self, counts: Any, n_samples: int, n_classes: int) -> BinCP:
        """Calibrate from the number of samples that reach the fixed ``threshold``.

        Parameters
        ----------
        counts : (n,) whole numbers, of the true labels
        n_samples, n_classes : m and K
        """
        self._needs_threshold()
        array = np.asarray(counts)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise DataError(f"counts must be (n,) whole numbers, got {array.dtype} of shape {array.shape}")
        self._prepare(len(array), n_samples)
        self.quantiles_ = np.sort(_within(array, n_samples))
        self._fitted(len(array), n_samples, n_classes)
        return self

    def predict_set_counts(self, counts: Any, alpha: Any = None) -> BoolArray:
        """(n, K) label sets from (n, K) counts of the threshold's event; (L, n, K) for several levels."""
        self._needs_threshold()
        levels, is_scalar = self.levels(alpha)
        thresholds = self.thresholds(levels)
        array = np.asarray(counts)
        if array.ndim != 2 or array.shape[1] != self.n_classes_ or array.dtype.kind not in "iu":
            raise DataError(
                f"counts must be (n, {self.n_classes_}) whole numbers, got {array.dtype} of shape "
                f"{array.shape}"
            )
        tally = self.tally(len(array), thresholds)
        tally.counts[:] = _within(array, self.n_samples_)
        out = self.marks(tally, thresholds, self.radius)
        return out[0] if is_scalar else out

    def _needs_threshold(self) -> None:
        if self.threshold is None:
            raise MethodError("counts are of the event of a fixed threshold: give threshold")

    # ---- what the numbers are

    @property
    def share_(self) -> float:
        """eta, what sampling errors take from alpha."""
        return float(self._share())

    def conservative_probability(self, level: Fraction | float | None = None) -> float:
        """What the event of most calibration rows' true labels surely has for probability.

        With a fixed ``p`` the same at every level.
        """
        levels, _ = self.levels(level)
        hits = self._hits if self.threshold is None else self._hits_at(levels[0])
        return float(self._lower(hits))

    def certified_level(self, radius: Any = None, level: Fraction | float | None = None) -> float:
        """``c(p; r)``: the probability that the event of a label in the set must be able to have."""
        p = self.conservative_probability(level)
        return float(self.certificate.lower(p, self.radius if radius is None else radius))

    # ---- the rule

    def _check(self, n_samples: int) -> None:
        if self.correction not in _CORRECTIONS:
            raise MethodError(f"correction must be one of {_CORRECTIONS}, got {self.correction!r}")
        if self.union not in _UNIONS:
            raise MethodError(f"union must be one of {_UNIONS}, got {self.union!r}")
        if self.threshold is not None:
            if not np.isfinite(self.threshold):
                raise MethodError(f"threshold must be a finite number, got {self.threshold!r}")
        elif not 0 < self.p <= 1:
            raise MethodError(f"p must lie in (0, 1], got {self.p!r}")
        elif round(self.p * n_samples) < 1:
            raise MethodError(
                f"p = {self.p} of {n_samples} samples is less than one; give at least "
                f"{int(np.ceil(1 / self.p))} samples, or a larger p"
            )

    def _share(self) -> Fraction:
        return 1 - exact_share(self.confidence, "confidence") if self._corrected else Fraction(0)

    @property
    def _corrected(self) -> bool:
        return self.correction == "clopper-pearson"

    @property
    def _delta(self) -> float:
        bounds = self.n_calib_ + (self.n_classes_ if self.union == "n+K" else 1)
        return float(self._share() / bounds)

    @property
    def _hits(self) -> int:
        return round(self.p * self.n_samples_)

    def _learn(self, samples: NDArray[Any]) -> None:
        m = samples.shape[1]
        if self.threshold is None:
            rank = m - round(self.p * m)
            self.quantiles_ = np.sort(np.partition(samples, rank, axis=1)[:, rank])
        else:
            self.quantiles_ = np.sort(count_reaching(samples[:, None], self.threshold)[:, 0])

    def thresholds(self, levels: Sequence[Fraction]) -> FloatArray:
        """(L,) tau of each level; with a fixed threshold the count that stands for the probability."""
        ranks = [self._rank(level) for level in levels]
        lowest = -np.inf if self.threshold is None else 0
        return np.array([float(self.quantiles_[k - 1]) if k else lowest for k in ranks])

    def tally(self, n: int, thresholds: FloatArray) -> Counts:
        """Counts of the samples that reach each level's tau."""
        taus = thresholds if self.threshold is None else np.array([self.threshold])
        return Counts(n, self.n_classes_, taus)

    def marks(self, tally: Counts, thresholds: FloatArray, radius: Any) -> BoolArray:
        """(L, n, K): a label is in the set if its count reaches a number that depends on level and radius."""
        uppers = _upper_bounds(self.n_samples_, self._delta if self._corrected else None)
        if self.threshold is None:
            levels = np.full(len(thresholds), self._lower(self._hits))
        else:
            levels = self._lower(thresholds)
        certified = self.certificate.lower(levels, radius)
        # the smallest count whose bound is at least the certified probability; counts beyond m never come
        needed = np.searchsorted(uppers, certified, side="left")
        return np.asarray(tally.counts >= needed.astype(np.int32)[:, None, None])

    def _hits_at(self, level: Fraction) -> float:
        return float(self.thresholds([level])[0])

    def _lower(self, hits: Any) -> FloatArray:
        if self._corrected:
            return clopper_pearson_lower(hits, self.n_samples_, self._delta)
        return np.asarray(hits) / self.n_samples_


@lru_cache(maxsize=16)
def _upper_bounds(n_samples: int, delta: float | None) -> FloatArray:
    """(m + 1,) bounds from 0 .. m hits, the same for all blocks of rows and all radii; not to be written."""
    hits = np.arange(n_samples + 1)
    return hits / n_samples if delta is None else clopper_pearson_upper(hits, n_samples, delta)


class Counts:
    """How many samples of each label reach each of several thresholds: ``counts`` (L or 1, n, K)."""

    def __init__(self, n: int, n_classes: int, thresholds: FloatArray) -> None:
        self.counts = np.zeros((len(thresholds), n, n_classes), dtype=np.int32)
        self._thresholds = thresholds

    def add(self, samples: NDArray[Any]) -> None:
        """Take in (n, K, m) further samples."""
        for counts, threshold in zip(self.counts, self._thresholds, strict=True):
            counts += count_reaching(samples, threshold)


def _within(counts: NDArray[Any], n_samples: int) -> NDArray[Any]:
    bad = (counts < 0) | (counts > n_samples)
    if bad.any():
        raise DataError(
            f"{int(bad.sum())} of {counts.size} counts are not between 0 and {n_samples}, the number of "
            "samples"
        )
    return counts
