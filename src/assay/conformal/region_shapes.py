"""What the shapes of regions share: checked points, directions, and ends that are true to the last bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

from assay.conformal.density_models import check_outputs
from assay.conformal.regions import Region
from assay.core.checks import FloatArray
from assay.core.errors import DataError, MethodError

# a sum, a product or a quotient is off by an ulp or two
_ULPS = 3


def check_points(y: Any, region: Region) -> FloatArray:
    """(n, q) finite values, one a row of the region; (n,) is one output."""
    values = check_outputs(y, length=len(region))
    if values.shape[1] != region.n_outputs:
        raise DataError(f"y has {values.shape[1]} outputs, the region has {region.n_outputs}")
    return values


def check_bounded(bounded: NDArray[np.bool_], what: str) -> None:
    """Refuse rows that have no points to give."""
    bad = ~bounded
    if bad.any():
        raise MethodError(
            f"{what}: {int(bad.sum())} of {len(bad)} regions are unbounded or empty, first at row "
            f"{int(bad.argmax())}; take(rows) the others"
        )


def unit_directions(n: int, q: int, seed: int = 0) -> FloatArray:
    """(n, q) unit vectors: evenly around the circle for q = 2, drawn uniformly otherwise."""
    if q == 2:
        angle = np.arange(n) * (2 * np.pi / n)
        return np.column_stack([np.cos(angle), np.sin(angle)])
    directions = np.random.default_rng(seed).normal(size=(n, q))
    return np.asarray(directions / np.linalg.norm(directions, axis=1, keepdims=True))


def points_in_ball(n: int, q: int, seed: int) -> FloatArray:
    """(n, q) points drawn uniformly from the unit ball."""
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(n, q))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return np.asarray(directions * rng.random((n, 1)) ** (1 / q))


def log_unit_ball(q: int) -> float:
    """Logarithm of the volume of the unit ball: 2, pi, 4 pi / 3, ..."""
    return float(0.5 * q * np.log(np.pi) - gammaln(0.5 * q + 1))


def last_within(guess: FloatArray, score: Callable[[FloatArray], FloatArray], threshold: Any) -> FloatArray:
    """The largest floats near ``guess`` whose score, increasing in them, is at most the threshold."""
    at = np.array(guess, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(_ULPS):
            at = np.where(score(at) > threshold, np.nextafter(at, -np.inf), at)
        for _ in range(_ULPS):
            up = np.nextafter(at, np.inf)
            at = np.where(score(up) <= threshold, up, at)
    return at


def farthest(center: FloatArray, distance: Any) -> FloatArray:
    """The largest y with ``y - center <= distance`` as floats are subtracted."""
    distance = np.broadcast_to(distance, center.shape)

    def away(y: FloatArray) -> FloatArray:
        return y - center

    with np.errstate(over="ignore", invalid="ignore"):
        guess = center + distance
        out = last_within(guess, away, distance)
        # where y is far smaller than both, many floats y have the same rounded difference
        beyond = last_within(guess + np.spacing(distance) / 2, away, distance)
        return np.where(away(beyond) <= distance, np.fmax(out, beyond), out)
