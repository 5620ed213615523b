"""How far the probability of an event under noise can move when the input moves in a ball."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from scipy.stats import binom

from assay.core.checks import FloatArray
from assay.core.errors import MethodError

#: noise -> the norm of the ball for which its certificate is known
NORMS = {"gaussian": "l2", "laplace": "l1", "uniform": "l1", "sparse": "flips"}


@dataclass(frozen=True)
class BinaryCertificate:
    """Bounds on ``Pr[event at x~ + noise]`` over all x~ near x, from ``p = Pr[event at x + noise]`` alone.

    The bounds hold for every event, hence for every model, and for the mean of any function with
    values in [0, 1] in place of the probability. At radius 0 they are p itself.

    Parameters
    ----------
    noise : {"gaussian", "laplace", "uniform", "sparse"}
        Independent for each feature. "sparse" flips bits: 0 becomes 1 with probability ``p_plus``, 1
        becomes 0 with probability ``p_minus``.
    norm : {"l2", "l1", "flips"}, optional
        Of the ball: "l2" for Gaussian noise, "l1" for Laplace and uniform noise, "flips" for sparse
        noise; that one if not given, any other is refused.
    scale : float, or (p_plus, p_minus) for sparse noise
        In the features' units: the standard deviation of Gaussian and of uniform noise (which is then
        uniform on +- scale * sqrt(3)), the parameter b of Laplace noise.

    Notes
    -----
    With F the distribution function of the standardised noise the lower bound is ``F(F^-1(p) - r / scale)``
    for Gaussian and Laplace noise and ``p - r / (2 sqrt(3) scale)``, not below 0, for uniform noise. For
    flips with radius (r_a, r_d), at most r_a bits added and r_d deleted, it is the solution of a small
    Neyman-Pearson problem over the number of differing bits. The upper bound is ``1 - lower(1 - p)``.

    Raises
    ------
    MethodError
        Unknown noise, a norm that this noise certifies nothing for, a scale that is not positive
        (for sparse noise: not two probabilities above 0 whose sum is below 1).

    References
    ----------
    Cohen, Rosenfeld, Kolter (2019), Certified adversarial robustness via randomized smoothing.
    Teng, Lee, Yuan (2020), l1 adversarial robustness certificates: a randomized smoothing approach.
    Levine, Feizi (2021), Improved, deterministic smoothing for l1 certified robustness.
    Bojchevski, Klicpera, Guennemann (2020), Efficient robustness certificates for discrete data.
    """

    noise: str = "gaussian"
    norm: str | None = None
    scale: Any = 0.25

    def __post_init__(self) -> None:
        if self.noise not in NORMS:
            raise MethodError(f"no certificate for noise {self.noise!r}; give one of {', '.join(NORMS)}")
        if self.norm not in (None, NORMS[self.noise]):
            raise MethodError(
                f"{self.noise} noise has no certificate for {self.norm!r} balls here; its norm is "
                f"{NORMS[self.noise]!r}"
            )
        if self.noise == "sparse":
            self.flip_probabilities()
        else:
            positive_scale(self.scale)

    @property
    def ball(self) -> str:
        """The norm of the ball, also where none was given."""
        return NORMS[self.noise]

    def flip_probabilities(self) -> tuple[float, float]:
        """(p_plus, p_minus) of sparse noise."""
        return flip_probabilities(self.scale)

    def lower(self, p: Any, radius: Any) -> FloatArray:
        """The smallest probability that the event can have within the radius.

        Parameters
        ----------
        p : array of any shape, in [0, 1]
        radius : float >= 0, or whole numbers (r_a, r_d) of flips for sparse noise

        Returns
        -------
        array of the shape of p

        Raises
        ------
        MethodError
            A radius below 0 or NaN, or p outside [0, 1].
        """
        p = np.asarray(p, dtype=np.float64)
        if not ((p >= 0) & (p <= 1)).all():
            raise MethodError("p holds numbers outside [0, 1], or NaN; they must be probabilities")
        radius = self.check_radius(radius)
        if radius in (0.0, (0, 0)):
            return np.asarray(p)
        if self.noise == "sparse":
            return self._lower_flips(p, *radius)
        steps = radius / float(self.scale)
        if self.noise == "gaussian":
            # ndtri gives -inf and inf at 0 and 1, which ndtr takes back; a huge shift must not make NaN
            return np.asarray(np.where(p >= 1, 1.0, ndtr(ndtri(np.where(p >= 1, 0.5, p)) - steps)))
        if self.noise == "uniform":
            return np.asarray(np.maximum(p - steps / (2 * np.sqrt(3)), 0.0))
        return _lower_laplace(p, steps)

    def upper(self, p: Any, radius: Any) -> FloatArray:
        """The largest probability the event can have within the radius; arguments as in :meth:`lower`."""
        p = np.asarray(p, dtype=np.float64)
        if self.check_radius(radius) in (0.0, (0, 0)):
            return self.lower(p, radius)
        return np.asarray(1 - self.lower(1 - p, radius))

    def check_radius(self, radius: Any) -> Any:
        """The radius as a float, or as (r_a, r_d); refused where it is none."""
        if self.noise == "sparse":
            pair = (0, 0) if np.ndim(radius) == 0 and radius == 0 else tuple(np.ravel(radius).tolist())
            if len(pair) != 2 or any(value < 0 or value != int(value) for value in pair):
                raise MethodError(
                    f"the radius of sparse noise is (bits added, bits deleted), whole numbers from 0; got "
                    f"{radius!r}"
                )
            return int(pair[0]), int(pair[1])
        if np.ndim(radius) != 0 or not 0 <= float(radius) < np.inf:
            raise MethodError(f"the radius must be a finite number of at least 0, got {radius!r}")
        return float(radius)

    def _lower_flips(self, p: FloatArray, added: int, deleted: int) -> FloatArray:
        plus, minus = self.flip_probabilities()
        # number of differing bits that the noise turns to the side of x~, from x and from x~
        here = np.convolve(_pmf(added, plus), _pmf(deleted, minus))
        there = np.convolve(_pmf(added, 1 - minus), _pmf(deleted, 1 - plus))
        # the ratio here/there falls in the count, since p_plus + p_minus < 1: most of p where it costs least
        cumulative = np.concatenate([[0.0], np.cumsum(here)])
        cost = np.concatenate([[0.0], np.cumsum(there)])
        return np.asarray(np.interp(p, cumulative / cumulative[-1], cost / cost[-1]))


def positive_scale(scale: Any) -> float:
    """The scale of the noise as a float; refused where it is not a finite number above 0."""
    if np.ndim(scale) != 0 or not 0 < float(scale) < np.inf:
        raise MethodError(f"the scale of the noise must be a finite number above 0, got {scale!r}")
    return float(scale)


def flip_probabilities(scale: Any) -> tuple[float, float]:
    """(p_plus, p_minus) of sparse noise, checked."""
    pair = tuple(np.ravel(scale).tolist())
    if len(pair) != 2 or not min(pair) > 0 or not sum(pair) < 1:
        raise MethodError(
            f"the scale of sparse noise is (p_plus, p_minus), both above 0 with a sum below 1; got {scale!r}"
        )
    return float(pair[0]), float(pair[1])


def _pmf(n: int, p: float) -> FloatArray:
    return np.asarray(binom.pmf(np.arange(n + 1), n, p))


def _lower_laplace(p: FloatArray, steps: float) -> FloatArray:
    """F(F^-1(p) - steps) for the standard Laplace distribution function."""
    shrink = np.exp(-steps)
    q = np.maximum(1 - p, 1e-300)
    # the branch is taken only where shrink is at least 2e-300, that is for less than 700 steps
    high = 1 - np.exp(min(steps, 700.0)) * (1 - p)
    middle = shrink / (4 * q)
    low = np.where(q <= shrink / 2, high, np.where(p >= 0.5, middle, p * shrink))
    return np.asarray(np.where(p >= 1, 1.0, low))


#: of Gaussian noise with the scale of the papers' experiments
GAUSSIAN = BinaryCertificate("gaussian", scale=0.25)
