"""Predictive distributions, one a row: of numbers (Gaussian, mixtures of Gaussians) or of classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp, ndtr, ndtri

from assay.core.checks import FloatArray, as_vector, check_vector, refuse_infinite, refuse_nan, to_float
from assay.core.checks import to_numpy as _to_numpy
from assay.core.errors import DataError, MethodError
from assay.core.probabilities import Probabilities, check_labels, classes_of_columns, known_labels
from assay.core.seeds import row_uniforms, seed_of

_LOG_2PI = float(np.log(2 * np.pi))
#: bytes of a working block: long inputs are done in pieces
_CHUNK_BYTES = 2**25
_BISECTIONS = 200


class PredictiveDistribution(ABC):
    """What a method says of the target of each of n rows. Logarithms are natural."""

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows n."""

    @abstractmethod
    def log_prob(self, y: Any) -> FloatArray:
        """(n,) log density (numbers) or log probability (classes) of the targets y (n,); -inf is legal."""

    @abstractmethod
    def take(self, rows: Any) -> Self:
        """The distributions of those rows, by a mask or by their numbers; repeats are allowed."""

    def sample(self, n_samples: int = 1, random_state: Any = None, *, keys: Any = None) -> NDArray[Any]:
        """(n, n_samples) independent draws.

        Parameters
        ----------
        n_samples : int
        random_state : int, RandomState, Generator or None
        keys : (n,) array of uint64, optional
            One a row (:func:`assay.core.seeds.row_keys`): the draws of a row then depend on its key alone,
            however the rows are batched; ``random_state`` is not used.
        """
        if int(n_samples) < 1:
            raise MethodError(f"n_samples must be at least 1, got {n_samples!r}")
        shape = (len(self), int(n_samples))
        if keys is not None:
            u = row_uniforms(np.asarray(keys, dtype=np.uint64), 2 * shape[1]).reshape(*shape, 2)
        else:
            u = np.random.default_rng(seed_of(random_state)).random((*shape, 2))
        return self._draw(np.clip(u, 2.0**-54, 1 - 2.0**-53))

    @abstractmethod
    def _draw(self, u: FloatArray) -> NDArray[Any]:
        """(n, m) draws from (n, m, 2) independent uniforms in (0, 1)."""


class NumericDistribution(PredictiveDistribution):
    """A distribution over numbers, in the units of the target."""

    @property
    @abstractmethod
    def mean(self) -> FloatArray:
        """(n,) expected targets."""

    @property
    @abstractmethod
    def variance(self) -> FloatArray:
        """(n,) variances, in squared units of the target."""

    @property
    def std(self) -> FloatArray:
        """(n,) standard deviations."""
        return np.sqrt(self.variance)

    @abstractmethod
    def cdf(self, y: Any) -> FloatArray:
        """(n,) probabilities of a target of at most y (n,)."""

    def quantile(self, p: Any) -> FloatArray:
        """(n,) quantiles at the probability p; (len(p), n) for several."""
        levels = np.asarray(p, dtype=np.float64)
        if levels.ndim > 1 or not ((levels >= 0) & (levels <= 1)).all():
            raise DataError(f"p must be one probability in [0, 1] or a list of them, got {p!r}")
        out = self._quantiles(np.atleast_1d(levels))
        return out[0] if levels.ndim == 0 else out

    @abstractmethod
    def _quantiles(self, levels: FloatArray) -> FloatArray:
        """(L, n) quantiles at L probabilities."""

    def _targets(self, y: Any) -> FloatArray:
        return check_vector(y, "y", length=len(self))


class GaussianDistribution(NumericDistribution):
    """Normal distributions.

    Parameters
    ----------
    mean, variance : (n,) arrays, or a number for all rows as variance
        Finite; variances above 0, in squared units of the target.

    Raises
    ------
    DataError
        Not numbers, NaN or infinite, or a variance that is not positive: the first row and the count.
    """

    def __init__(self, mean: Any, variance: Any) -> None:
        self._mean = _finite(as_vector(mean, "mean"), "mean")
        if np.ndim(variance) == 0:
            variance = np.full(len(self._mean), float(variance))
        values = as_vector(variance, "variance", length=len(self._mean))
        self._variance = _positive(_finite(values, "variance"), "variance")

    def __len__(self) -> int:
        return len(self._mean)

    @property
    def mean(self) -> FloatArray:
        """(n,) means."""
        return self._mean

    @property
    def variance(self) -> FloatArray:
        """(n,) variances."""
        return self._variance

    def log_prob(self, y: Any) -> FloatArray:
        """(n,) log densities of targets y (n,)."""
        z2 = (self._targets(y) - self._mean) ** 2 / self._variance
        return np.asarray(-0.5 * (z2 + np.log(self._variance) + _LOG_2PI))

    def cdf(self, y: Any) -> FloatArray:
        """(n,) probabilities of a target of at most y."""
        return np.asarray(ndtr((self._targets(y) - self._mean) / self.std))

    def take(self, rows: Any) -> Self:
        """The distributions of those rows."""
        return type(self)(self._mean[rows], self._variance[rows])

    def _quantiles(self, levels: FloatArray) -> FloatArray:
        return np.asarray(self._mean + self.std * ndtri(levels)[:, None])

    def _draw(self, u: FloatArray) -> FloatArray:
        return np.asarray(self._mean[:, None] + self.std[:, None] * ndtri(u[:, :, 0]))


class MixtureDistribution(NumericDistribution):
    """Mixtures of m normal distributions.

    Parameters
    ----------
    mean : (m, n) array
        Means of the components, one row a component.
    variance : (m, n) array, or what broadcasts to it
        Variances of the components; finite, above 0.
    weights : (m,) or (m, n) array, optional
        Not negative, summing to one over the components; equal by default.

    Raises
    ------
    DataError
        Wrong shapes, NaN or infinite values, variances that are not positive, weights that do not sum
        to one.
    """

    def __init__(self, mean: Any, variance: Any, weights: Any = None) -> None:
        means = to_float(_to_numpy(mean), "mean")
        if means.ndim != 2 or len(means) == 0:
            raise DataError(f"mean has shape {means.shape}; give (m, n): one row a component")
        self._means = _finite(means, "mean")
        values = to_float(_to_numpy(variance), "variance")
        try:
            values = np.broadcast_to(values, means.shape)
        except ValueError:
            raise DataError(f"variance has shape {values.shape}, mean has {means.shape}") from None
        self._variances = _positive(_finite(values, "variance"), "variance")
        self._weights = _weights(weights, means.shape)

    def __len__(self) -> int:
        return int(self._means.shape[1])

    @property
    def components(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Means, variances and weights of the components, (m, n) each."""
        return self._means, self._variances, self._weights

    @property
    def mean(self) -> FloatArray:
        """(n,) means of the mixtures."""
        return np.asarray((self._weights * self._means).sum(axis=0))

    @property
    def variance(self) -> FloatArray:
        """(n,) variances of the mixtures: mean variance of the components plus variance of their means."""
        spread = (self._means - self.mean) ** 2
        return np.asarray((self._weights * (self._variances + spread)).sum(axis=0))

    def log_prob(self, y: Any) -> FloatArray:
        """(n,) log densities of targets y (n,)."""
        z2 = (self._targets(y) - self._means) ** 2 / self._variances
        with np.errstate(divide="ignore"):
            log_weights = np.log(self._weights)
        return np.asarray(logsumexp(log_weights - 0.5 * (z2 + np.log(self._variances) + _LOG_2PI), axis=0))

    def cdf(self, y: Any) -> FloatArray:
        """(n,) probabilities of a target of at most y."""
        return self._cdf(self._targets(y), slice(None))

    def _cdf(self, y: FloatArray, rows: Any) -> FloatArray:
        z = (y - self._means[:, rows]) / np.sqrt(self._variances[:, rows])
        # rounding may lift the sum of the weights past one
        return np.asarray(np.minimum((self._weights[:, rows] * ndtr(z)).sum(axis=0), 1.0))

    def take(self, rows: Any) -> Self:
        """The distributions of those rows."""
        return type(self)(self._means[:, rows], self._variances[:, rows], self._weights[:, rows])

    def _quantiles(self, levels: FloatArray) -> FloatArray:
        m, n = self._means.shape
        out = np.empty((len(levels), n))
        step = max(1, _CHUNK_BYTES // (8 * m))
        for i, p in enumerate(levels):
            if p in (0.0, 1.0):
                out[i] = np.inf if p else -np.inf
                continue
            for start in range(0, n, step):
                rows = slice(start, start + step)
                out[i, rows] = self._bisect(float(p), rows)
        return out

    def _bisect(self, p: float, rows: slice) -> FloatArray:
        """The mixture's quantile lies between the least and the largest of its components'."""
        ends = self._means[:, rows] + np.sqrt(self._variances[:, rows]) * ndtri(p)
        used = self._weights[:, rows] > 0
        low = np.where(used, ends, np.inf).min(axis=0)
        high = np.where(used, ends, -np.inf).max(axis=0)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            if ((middle <= low) | (middle >= high)).all():
                break
            below = self._cdf(middle, rows) < p
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return np.asarray(0.5 * (low + high))

    def _draw(self, u: FloatArray) -> FloatArray:
        n, samples, _ = u.shape
        out = np.empty((n, samples))
        for i in range(n):
            edges = np.cumsum(self._weights[:-1, i])
            chosen = np.searchsorted(edges, u[i, :, 0], side="right")
            out[i] = self._means[chosen, i] + np.sqrt(self._variances[chosen, i]) * ndtri(u[i, :, 1])
        return out


class CategoricalDistribution(PredictiveDistribution):
    """Probabilities of K classes.

    Parameters
    ----------
    proba : (n, K) array
        Checked, never repaired: finite, not negative, rows that sum to one.
    classes : (K,) labels, optional
        In the order of the columns; 0 .. K - 1 by default.

    Raises
    ------
    DataError
        What :class:`~assay.core.probabilities.Probabilities` refuses, or the wrong number of labels.
    """

    def __init__(self, proba: Any, classes: Any = None) -> None:
        given = Probabilities(proba)
        given.check()
        self._proba = np.asarray(given.values, dtype=np.float64)
        K = given.n_classes
        self._classes = np.arange(K) if classes is None else classes_of_columns(np.empty(0), K, classes)

    def __len__(self) -> int:
        return len(self._proba)

    @property
    def proba(self) -> FloatArray:
        """(n, K) probabilities."""
        return self._proba

    @property
    def classes(self) -> NDArray[Any]:
        """(K,) labels of the columns."""
        return self._classes

    @property
    def mode(self) -> NDArray[Any]:
        """(n,) labels of largest probability; the first of equals."""
        return np.asarray(self._classes[self._proba.argmax(axis=1)])

    @property
    def entropy(self) -> FloatArray:
        """(n,) entropies in nats."""
        p = self._proba
        return np.asarray(-(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1))

    def log_prob(self, y: Any) -> FloatArray:
        """(n,) log probabilities of labels y; a label that is no class is a DataError."""
        codes = known_labels(check_labels(y, length=len(self)), self._classes)
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self._proba[np.arange(len(self)), codes]))

    def take(self, rows: Any) -> Self:
        """The distributions of those rows."""
        return type(self)(self._proba[rows], self._classes)

    def _draw(self, u: FloatArray) -> NDArray[Any]:
        edges = np.cumsum(self._proba, axis=1)
        edges /= edges[:, -1:]
        chosen = np.empty(u.shape[:2], dtype=np.intp)
        for i, row in enumerate(edges):
            chosen[i] = np.searchsorted(row[:-1], u[i, :, 0], side="right")
        return np.asarray(self._classes[chosen])


def _finite(values: FloatArray, name: str) -> FloatArray:
    rows = values.T if values.ndim == 2 else values
    refuse_nan(rows, name)
    refuse_infinite(rows, name)
    return values


def _positive(values: FloatArray, name: str) -> FloatArray:
    bad = np.any(np.atleast_2d(values) <= 0, axis=0)
    if bad.any():
        raise DataError(
            f"{name} is not above 0 in {int(bad.sum())} of {len(bad)} rows, first at row {int(bad.argmax())}"
        )
    return values


def _weights(weights: Any, shape: tuple[int, ...]) -> FloatArray:
    m, n = shape
    if weights is None:
        return np.broadcast_to(1 / m, shape)
    given = to_float(_to_numpy(weights), "weights")
    if given.shape not in ((m,), shape):
        raise DataError(f"weights have shape {given.shape}; give ({m},) or ({m}, {n})")
    if not (given >= 0).all() or not np.allclose(given.sum(axis=0), 1, atol=1e-6):
        raise DataError("weights must not be negative and must sum to one over the components")
    full = given[:, None] if given.ndim == 1 else given
    return np.asarray(np.broadcast_to(full / full.sum(axis=0), shape))


__all__ = [
    "CategoricalDistribution",
    "GaussianDistribution",
    "MixtureDistribution",
    "NumericDistribution",
    "PredictiveDistribution",
]
