"""Ellipsoids: a centre, a Cholesky factor and a radius a row."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.conformal.region_shapes import (
    check_bounded,
    check_points,
    log_unit_ball,
    points_in_ball,
    unit_directions,
)
from assay.conformal.regions import Region
from assay.core.checks import FloatArray
from assay.core.errors import DataError, MethodError
from assay.core.seeds import seed_of


class Ellipsoid(Region):
    """Ellipsoids: row i is ``{y : |L_i^-1 (y - center[i])| <= radius[i]}``.

    Parameters
    ----------
    center : (n, q) float64 array
        In the units of the outputs.
    cholesky : (q, q) or (n, q, q) float64 array
        Lower triangular L with ``L L'`` the shape (a covariance) of all rows or of each.
    radius : float or (n,) float64 array
        +inf is the whole space, a negative radius the empty set.
    """

    def __init__(self, center: FloatArray, cholesky: FloatArray, radius: Any) -> None:
        n, q = center.shape
        if cholesky.shape not in ((q, q), (n, q, q)):
            raise DataError(f"cholesky has shape {cholesky.shape}, expected {(q, q)} or {(n, q, q)}")
        self.center = center
        self.cholesky = cholesky
        self.radius = np.array(np.broadcast_to(radius, n), dtype=np.float64)
        self.n_outputs = q

    def __len__(self) -> int:
        return len(self.center)

    def __repr__(self) -> str:
        return f"Ellipsoid(rows={len(self)}, outputs={self.n_outputs})"

    def contains(self, y: Any) -> NDArray[np.bool_]:
        """(n,) bool: whether y, (n,) or (n, q), lies in each row's ellipsoid. Borders belong."""
        values = check_points(y, self)
        return np.asarray(mahalanobis(values - self.center, self.cholesky) <= self.radius)

    def volume(self) -> FloatArray:
        """(n,) ``V_q radius^q |det L|``, V_q the unit ball's: inf where unbounded, 0 where empty."""
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(self.log_volume()))

    def log_volume(self) -> FloatArray:
        """(n,) natural logarithm of the volume: +inf where unbounded, -inf where empty or a point."""
        diagonal = np.abs(np.diagonal(self.cholesky, axis1=-2, axis2=-1))
        with np.errstate(divide="ignore"):
            log_radius = np.log(np.maximum(self.radius, 0.0))
            return np.asarray(
                log_unit_ball(self.n_outputs) + self.n_outputs * log_radius + np.log(diagonal).sum(axis=-1)
            )

    def take(self, rows: Any) -> Ellipsoid:
        """The ellipsoids of these rows, in this order; a row may come several times."""
        shape = self.cholesky if self.cholesky.ndim == 2 else self.cholesky[rows]
        return Ellipsoid(self.center[rows], shape, self.radius[rows])

    def bounding_box(self) -> FloatArray:
        """(n, q, 2) lower and upper end of each output; (inf, -inf) where empty."""
        reach = self.radius[:, None] * np.sqrt((self.cholesky**2).sum(axis=-1))
        ends = np.stack([self.center - reach, self.center + reach], axis=2)
        ends[self.radius < 0] = [np.inf, -np.inf]
        return ends

    def hull(self) -> FloatArray:
        """(n, 2) ends, for one output; (inf, -inf) where empty."""
        self._one_output("hull()")
        return self.bounding_box()[:, 0]

    def boundary(self, n_points: int = 200) -> FloatArray:
        """(n, n_points, q) points of the border: around it in order (q = 2), or in random directions.

        Raises
        ------
        MethodError
            An ellipsoid is unbounded or empty, or there is one output.
        """
        if self.n_outputs == 1:
            raise MethodError("boundary(n_points) is for several outputs; hull() gives the ends of one")
        check_bounded(self._bounded, "boundary")
        return self._from_ball(unit_directions(n_points, self.n_outputs))

    def sample(self, n: int, random_state: Any = 0) -> FloatArray:
        """(rows, n, q) points drawn uniformly: the same ones of the unit ball in every ellipsoid."""
        check_bounded(self._bounded, "sample")
        return self._from_ball(points_in_ball(n, self.n_outputs, seed_of(random_state)))

    @property
    def _bounded(self) -> NDArray[np.bool_]:
        return np.asarray((self.radius >= 0) & (self.radius < np.inf))

    def _from_ball(self, points: FloatArray) -> FloatArray:
        reach = points @ np.swapaxes(self.cholesky, -1, -2)
        return np.asarray(self.center[:, None] + self.radius[:, None, None] * reach)


def mahalanobis(residuals: FloatArray, cholesky: FloatArray) -> FloatArray:
    """(n,) lengths of ``L^-1 r``, L of shape (q, q) or (n, q, q); +inf where it has no float."""
    with np.errstate(over="ignore", invalid="ignore"):
        # by hand and column after column: the same for a row whatever rows come with it
        z = np.empty_like(residuals)
        for j in range(residuals.shape[1]):
            known = (cholesky[..., j, :j] * z[:, :j]).sum(axis=1)
            z[:, j] = (residuals[:, j] - known) / cholesky[..., j, j]
        length = np.sqrt((z**2).sum(axis=1))
    return np.where(np.isnan(length), np.inf, length)
