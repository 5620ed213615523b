"""RCP1: robust label sets from a single noisy copy of each row."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.conformal.binary_certificate import GAUSSIAN, BinaryCertificate
from assay.conformal.smoothed_rule import BoolArray, FloatArray, SmoothedRule
from assay.core.errors import InfiniteSetWarning, MethodError
from assay.core.levels import lower_rank

#: halvings of [0, 1] in which the level to calibrate for is sought
_HALVINGS = 60


class RCP1(SmoothedRule["OneSample"]):
    """Label sets from one noisy score a label, calibrated for more coverage than is asked for.

    Calibrated at coverage p, the event that a row's true label is kept has some probability for each row, p
    on average. The certificate c is convex, so that under attack the average is at least ``c(p; r)``. With p
    the smallest for which that is 1 - alpha (for Gaussian noise ``Phi(Phi^-1(1 - alpha) + r / sigma)``)
    coverage holds over rows and noise together. No error of sampling is to be paid for; but the set of a row
    changes with its noise, and p near 1 asks for many calibration rows.

    Parameters
    ----------
    alpha : level, default 0.1
    radius : float, default 0.0
        How far a row may be moved, in the norm of the certificate; (added, deleted) bits for sparse noise.
    certificate : BinaryCertificate, default BinaryCertificate("gaussian", scale=0.25)
        Of the noise under which the samples were drawn.

    Attributes
    ----------
    scores_ : (n,) sorted scores of the calibration rows' true labels

    References
    ----------
    Zargarbashi, Akhondzadeh, Bojchevski (2025), One sample is enough to make conformal prediction robust.
    """

    def __init__(
        self, alpha: Any = 0.1, radius: Any = 0.0, certificate: BinaryCertificate = GAUSSIAN
    ) -> None:
        self.alpha = alpha
        self.radius = radius
        self.certificate = certificate

    @property
    def certifies(self) -> bool:
        """Always: the guarantee is over the noise, too."""
        return True

    def raised_coverage(self, level: Fraction | float, radius: Any) -> float:
        """The coverage p to calibrate for, so that 1 - level is left under attack."""
        wanted = float(1 - level)
        low, high = wanted, 1.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if float(self.certificate.lower(middle, radius)) >= wanted:
                high = middle
            else:
                low = middle
        return high

    def _check(self, n_samples: int) -> None:
        if n_samples != 1:
            raise MethodError(f"RCP1 takes one noisy sample a row, got {n_samples}; give n_samples=1")

    def _share(self) -> Fraction:
        return Fraction(0)

    def _learn(self, samples: NDArray[Any]) -> None:
        self.scores_ = np.sort(samples[:, 0])

    def thresholds(self, levels: Sequence[Fraction]) -> FloatArray:
        """(L,) the levels themselves: the threshold depends on the radius, too. Warns for ``radius``."""
        for level in levels:
            if not self._rank_at(level, self.radius):
                kept = self.raised_coverage(level, self.radius) if level else 1.0
                enough = int(np.ceil(1 / (1 - kept) - 1e-9)) - 1 if kept < 1 else None
                warnings.warn(
                    f"{self.n_calib_} calibration rows at alpha {float(level):g}: "
                    f"{'no number gives' if enough is None else f'at least {enough} are needed for'} sets "
                    "smaller than all labels; every set holds all labels",
                    InfiniteSetWarning,
                    stacklevel=3,
                )
        return np.array([float(level) for level in levels])

    def tally(self, n: int, thresholds: FloatArray) -> OneSample:
        """The score itself."""
        return OneSample(n, self.n_classes_)

    def marks(self, tally: OneSample, thresholds: FloatArray, radius: Any) -> BoolArray:
        """(L, n, K) the labels whose score reaches the quantile for that radius."""
        ranks = [self._rank_at(Fraction(level).limit_denominator(10**9), radius) for level in thresholds]
        quantiles = np.array([self.scores_[k - 1] if k else -np.inf for k in ranks])
        return np.asarray(tally.scores >= quantiles[:, None, None])

    def _rank_at(self, level: Fraction, radius: Any) -> int:
        """Rank of the quantile from the small end; 0 where rows are too few."""
        if not level:
            return 0
        if self.certificate.check_radius(radius) in (0.0, (0, 0)):
            return lower_rank(self.n_calib_, level)
        # a last digit that rounding added must not make a rank larger
        return int((self.n_calib_ + 1) * (1 - self.raised_coverage(level, radius)) + 1e-12)


class OneSample:
    """The score of each label at one noisy copy: ``scores`` (n, K)."""

    def __init__(self, n: int, n_classes: int) -> None:
        self.scores = np.zeros((n, n_classes), dtype=np.float64)

    def add(self, samples: NDArray[Any]) -> None:
        """Take in the (n, K, 1) samples."""
        self.scores[:] = samples[:, :, 0]
