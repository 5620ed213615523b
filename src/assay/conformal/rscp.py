"""Randomised smoothing of the score's mean: RSCP, and RSCP+ with its errors of sampling."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.conformal.binary_certificate import GAUSSIAN, BinaryCertificate
from assay.conformal.monte_carlo_bounds import bernstein_error, hoeffding_error
from assay.conformal.smoothed_rule import BoolArray, FloatArray, SmoothedRule, exact_share, refuse_beyond_one
from assay.core.errors import MethodError


class RSCP(SmoothedRule["Moments"]):
    """Label sets from the mean score under noise, made larger by what an attack can do to that mean.

    With S(x, y) the mean of ``1 - conformity`` over m noisy copies and q its conformal quantile on
    calibration rows, the set is ``{y : c(S; r) <= q}``, c the lower bound of the certificate
    (``Phi(Phi^-1(S) - r / sigma)`` for Gaussian noise). The guarantee takes S for the exact expectation: at
    finite m it holds without attack only. At radius 0 these are split conformal sets of the mean score.

    Parameters
    ----------
    alpha : level, default 0.1
    radius : float, default 0.0
        How far a row may be moved, in the norm of the certificate; (added, deleted) bits for sparse noise.
    certificate : BinaryCertificate, default BinaryCertificate("gaussian", scale=0.25)
        Of the noise under which the samples were drawn. Scores must lie in [0, 1].

    Attributes
    ----------
    means_ : (n,) sorted mean scores of the calibration rows' true labels

    References
    ----------
    Gendler, Weng, Daniel, Romano (2022), Adversarially robust conformal prediction.
    """

    def __init__(
        self, alpha: Any = 0.1, radius: Any = 0.0, certificate: BinaryCertificate = GAUSSIAN
    ) -> None:
        self.alpha = alpha
        self.radius = radius
        self.certificate = certificate

    def _share(self) -> Fraction:
        return Fraction(0)

    def _learn(self, samples: NDArray[Any]) -> None:
        refuse_beyond_one(samples)
        self.means_ = np.sort(1 - samples.mean(axis=1, dtype=np.float64))

    def thresholds(self, levels: Sequence[Fraction]) -> FloatArray:
        """(L,) conformal quantiles q of the mean scores; infinite where rows are too few."""
        n = self.n_calib_
        ranks = [self._rank(level) for level in levels]
        return np.array([self.means_[n - k] if k else np.inf for k in ranks])

    def tally(self, n: int, thresholds: FloatArray) -> Moments:
        """Sums for means and variances."""
        return Moments(n, self.n_classes_)

    def marks(self, tally: Moments, thresholds: FloatArray, radius: Any) -> BoolArray:
        """(L, n, K) the labels whose mean score may have been below the threshold before the attack."""
        lowest = self.certificate.lower(self._least_mean(tally), radius)
        return np.asarray(lowest <= self._most(thresholds)[:, None, None])

    def _least_mean(self, tally: Moments) -> FloatArray:
        return tally.mean()

    def _most(self, thresholds: FloatArray) -> FloatArray:
        return thresholds


class RSCPPlus(RSCP):
    """RSCP with room for errors of sampling, so that its guarantee holds at any number of samples.

    Calibrated at level ``alpha - 2 beta``; the threshold q gets Hoeffding's
    ``b = sqrt(ln(1 / beta) / (2 m))``, and a test row's mean loses its empirical Bernstein error: the set is
    ``{y : c(max(S - b_B, 0); r) <= min(q + b, 1)}``.

    Parameters
    ----------
    alpha : level, default 0.1
        Larger than ``2 beta``.
    radius : float, default 0.0
        How far a row may be moved, in the norm of the certificate; (added, deleted) bits for sparse noise.
    certificate : BinaryCertificate, default BinaryCertificate("gaussian", scale=0.25)
        Of the noise under which the samples were drawn. Scores must lie in [0, 1].
    beta : float, default 0.001
        Probability of each error of sampling (the paper's value).
    bound : {"bernstein", "hoeffding"}, default "bernstein"
        Of a test row's mean.

    Attributes
    ----------
    means_ : (n,) sorted mean scores of the calibration rows' true labels

    References
    ----------
    Yan, Romano, Weng (2024), Provably robust conformal prediction with improved efficiency.
    """

    def __init__(
        self,
        alpha: Any = 0.1,
        radius: Any = 0.0,
        certificate: BinaryCertificate = GAUSSIAN,
        beta: float = 0.001,
        bound: str = "bernstein",
    ) -> None:
        super().__init__(alpha, radius, certificate)
        self.beta = beta
        self.bound = bound

    def _share(self) -> Fraction:
        return 2 * exact_share(self.beta, "beta")

    def _check(self, n_samples: int) -> None:
        if self.bound not in ("bernstein", "hoeffding"):
            raise MethodError(f"bound must be 'bernstein' or 'hoeffding', got {self.bound!r}")
        if self.bound == "bernstein" and n_samples < 2:
            raise MethodError("the Bernstein bound needs at least 2 samples a row, got 1")

    def _least_mean(self, tally: Moments) -> FloatArray:
        m = self.n_samples_
        if self.bound == "hoeffding":
            return np.maximum(tally.mean() - hoeffding_error(m, self.beta), 0)
        return np.maximum(tally.mean() - bernstein_error(tally.variance(), m, self.beta), 0)

    def _most(self, thresholds: FloatArray) -> FloatArray:
        return np.minimum(thresholds + hoeffding_error(self.n_samples_, self.beta), 1)


class Moments:
    """Mean and variance of the scores ``1 - conformity`` over samples."""

    def __init__(self, n: int, n_classes: int) -> None:
        self._total = np.zeros((n, n_classes))
        self._squares = np.zeros((n, n_classes))
        self._m = 0

    def add(self, samples: NDArray[Any]) -> None:
        """Take in (n, K, m) further samples."""
        refuse_beyond_one(samples)
        self._total += samples.sum(axis=2, dtype=np.float64)
        self._squares += np.einsum("nkm,nkm->nk", samples, samples, dtype=np.float64)
        self._m += samples.shape[2]

    def mean(self) -> FloatArray:
        """(n, K) means."""
        return np.asarray(np.clip(1 - self._total / self._m, 0, 1))

    def variance(self) -> FloatArray:
        """(n, K) unbiased variances."""
        spread = self._squares - self._total**2 / self._m
        return np.asarray(np.maximum(spread, 0) / (self._m - 1))
