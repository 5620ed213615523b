"""Unions of balls of one radius a row: what they contain, and how large they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import cKDTree

from assay.conformal.disc_areas import union_areas
from assay.conformal.region_shapes import check_bounded, check_points, log_unit_ball, points_in_ball
from assay.conformal.regions import DEFAULT_MAX_MEMORY, Region
from assay.core.checks import FloatArray
from assay.core.errors import MethodError
from assay.core.seeds import seed_of

# rounding of distances, as a part of the radius
_INSIDE = 1e-12
# more discs than this: their pairs cost more than points
_DISCS = 256
# more balls than this, or centres farther apart than so many radii: a tree instead of all pairs
_BALLS_AT_ONCE = 256
_WIDE = 1e4
_VOLUME_POINTS = 2048


class BallUnionSet(Region):
    """Unions of balls: row i is ``{y : min_j |y / scale - centers[i, j]| <= radius[i]}`` (Euclidean).

    Parameters
    ----------
    centers : (n, M, q) float64 array
        In units of ``scale``.
    radius : (n,) float64 array
        +inf is the whole space, a negative radius the empty set.
    max_memory : int, default 8 MiB
        Bytes of working memory for distances.
    scale : (q,) float64 array, optional
        The unit of each output; 1 if not given.
    """

    def __init__(
        self,
        centers: FloatArray,
        radius: FloatArray,
        max_memory: int = DEFAULT_MAX_MEMORY,
        scale: FloatArray | None = None,
    ) -> None:
        self.centers = centers
        self.radius = radius
        self.max_memory = max_memory
        self.n_outputs = centers.shape[2]
        self.scale = np.ones(self.n_outputs) if scale is None else scale

    def __len__(self) -> int:
        return len(self.radius)

    def __repr__(self) -> str:
        return f"BallUnionSet(rows={len(self)}, balls={self.centers.shape[1]}, outputs={self.n_outputs})"

    def contains(self, y: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """(n,) bool: whether y, (n,) or (n, q), lies in each row's set."""
        values = check_points(y, self) / self.scale
        return np.asarray(nearest_center(values, self.centers, self.max_memory) <= self.radius)

    def _merged(self) -> tuple[FloatArray, Any]:
        """Sorted centres (n, M), and (n, M - 1) whether the gap after each centre stays open."""
        ordered = np.sort(self.centers[:, :, 0], axis=1)
        with np.errstate(invalid="ignore"):
            opened = (ordered[:, 1:] - self.radius[:, None]) > (ordered[:, :-1] + self.radius[:, None])
        return ordered, opened

    def intervals(self) -> list[FloatArray]:
        """For each row its disjoint intervals in order, (k, 2); one output only."""
        self._one_output("intervals()")
        n = len(self)
        ordered, opened = self._merged()
        edge = np.ones((n, 1), dtype=bool)
        alive = (self.radius >= 0)[:, None]
        starts = np.hstack([edge, opened]) & alive
        ends = np.hstack([opened, edge]) & alive
        bounds = (
            np.column_stack(
                [(ordered - self.radius[:, None])[starts], (ordered + self.radius[:, None])[ends]]
            )
            * self.scale
        )
        return np.split(bounds, np.cumsum(starts.sum(axis=1))[:-1]) if n else []

    def hull(self) -> FloatArray:
        """(n, 2) smallest interval around each set; where empty, lower lies above upper."""
        self._one_output("hull()")
        low, high = self.centers[:, :, 0].min(axis=1), self.centers[:, :, 0].max(axis=1)
        middle = (low + high) / 2
        empty = self.radius < 0
        low, high = np.where(empty, middle, low), np.where(empty, middle, high)
        return np.column_stack([low - self.radius, high + self.radius]) * self.scale

    def take(self, rows: Any) -> BallUnionSet:
        """The sets of these rows, in this order; a row may come several times."""
        return BallUnionSet(self.centers[rows], self.radius[rows], self.max_memory, self.scale)

    def bounding_box(self) -> FloatArray:
        """(n, q, 2) lower and upper end of each output; (inf, -inf) where empty."""
        reach = self.radius[:, None]
        low, high = self.centers.min(axis=1) - reach, self.centers.max(axis=1) + reach
        ends = np.stack([low * self.scale, high * self.scale], axis=2)
        ends[self.radius < 0] = [np.inf, -np.inf]
        return ends

    def sample(self, n: int, random_state: Any = 0) -> FloatArray:
        """(rows, n, q) points drawn uniformly from each set.

        Raises
        ------
        MethodError
            A set is unbounded or empty.
        """
        check_bounded((self.radius >= 0) & (self.radius < np.inf), "sample")
        rng = np.random.default_rng(seed_of(random_state))
        _, m, q = self.centers.shape
        out = np.empty((len(self), n, q))
        for i, radius in enumerate(self.radius):
            found = 0
            while found < n:
                ball = rng.integers(m, size=n)
                inner = (1 - _INSIDE) * radius * points_in_ball(n, q, int(rng.integers(2**32)))
                points = self.centers[i, ball] + inner
                # a point in several balls comes up that many times as often
                kept = points[rng.random(n) * self._balls_that_hold(i, points) < 1][: n - found]
                out[i, found : found + len(kept)] = kept
                found += len(kept)
        return out * self.scale

    def _balls_that_hold(self, row: int, points: FloatArray) -> FloatArray:
        """Number of a row's balls that hold each point, at least 1."""
        # a point just inside its own ball may fall outside it by rounding
        radius = self.radius[row] * (1 + _INSIDE)
        held = cKDTree(self.centers[row]).query_ball_point(points, radius, return_length=True)
        return np.asarray(np.maximum(held, 1), dtype=np.float64)

    def volume(
        self, method: str = "auto", *, n_points: int = _VOLUME_POINTS, random_state: Any = 0
    ) -> FloatArray:
        """(n,) volume of each union: length for one output, area for two.

        Parameters
        ----------
        method : "auto", "exact" or "mc"
            "exact" is for one output (``2 r + sum(min(gap, 2 r))`` over the sorted centres) and two
            (the arcs of the border, O(M^2 log M) a row). "mc" draws points uniformly from the balls and
            weights each by 1 / (number of balls that hold it): unbiased for any q. "auto" is exact
            where that is possible, for two outputs up to 256 balls, "mc" otherwise.
        n_points : int, default 2048
            Points a row of "mc"; its relative standard error is at most sqrt(M / n_points) and
            mostly near 1 %.
        random_state : int or None, default 0
            Of "mc".
        """
        with np.errstate(over="ignore"):
            return np.asarray(self._scaled_volume(method, n_points, random_state) * np.prod(self.scale))

    def log_volume(self) -> FloatArray:
        """(n,) natural logarithm of the volume: +inf where unbounded, -inf where it is 0."""
        with np.errstate(divide="ignore"):
            scaled = np.log(self._scaled_volume("auto", _VOLUME_POINTS, 0))
        return np.asarray(scaled + np.log(self.scale).sum())

    def _scaled_volume(self, method: str, n_points: int, random_state: Any) -> FloatArray:
        """(n,) volumes in units of ``scale``."""
        _, m, q = self.centers.shape
        if method not in {"auto", "exact", "mc"}:
            raise MethodError(f"method must be 'auto', 'exact' or 'mc', got {method!r}")
        if method == "exact" and q > 2:
            raise MethodError(f"volume('exact') is for one or two outputs; this region has {q}")
        if method == "mc" or q > 2 or (method == "auto" and q == 2 and m > _DISCS):
            return self._volume_mc(n_points, random_state)
        return self._area() if q == 2 else self._length()

    def _area(self) -> FloatArray:
        out = np.where(self.radius > 0, np.inf, 0.0)
        some = np.flatnonzero((self.radius > 0) & (self.radius < np.inf))
        out[some] = union_areas(self.centers[some], self.radius[some], self.max_memory)
        return out

    def _length(self) -> FloatArray:
        width = 2 * np.maximum(self.radius, 0.0)[:, None]
        gaps = np.diff(np.sort(self.centers[:, :, 0], axis=1), axis=1)
        return np.asarray(width[:, 0] + np.minimum(gaps, width).sum(axis=1)) if len(self) else np.empty(0)

    def _volume_mc(self, n_points: int, random_state: Any) -> FloatArray:
        _, m, q = self.centers.shape
        seed = seed_of(random_state)
        offsets = points_in_ball(n_points, q, seed)
        ball = np.random.default_rng([seed, 1]).integers(m, size=n_points)
        out = np.where(self.radius > 0, np.inf, 0.0)
        for i in np.flatnonzero((self.radius > 0) & (self.radius < np.inf)).tolist():
            radius = self.radius[i]
            centers = (self.centers[i] - self.centers[i].mean(axis=0)) / radius
            points = centers[ball] + offsets
            if m <= _BALLS_AT_ONCE and np.abs(centers).max() < _WIDE:
                # |p - c|^2 - |p|^2 of all pairs in one product
                pairs = (
                    np.column_stack([-2 * points, np.ones(n_points)])
                    @ np.column_stack([centers, (centers**2).sum(axis=1)]).T
                )
                bound = 1 + _INSIDE - (points**2).sum(axis=1)
                held = np.maximum(np.count_nonzero(pairs <= bound[:, None], axis=1), 1)
            else:
                held = self._balls_that_hold(i, self.centers[i, ball] + radius * offsets)
            log_balls = np.log(m) + log_unit_ball(q) + q * np.log(radius)
            with np.errstate(over="ignore"):
                out[i] = np.exp(log_balls) * np.mean(1.0 / held)
        return out


def nearest_center(y: FloatArray, centers: FloatArray, max_memory: int = DEFAULT_MAX_MEMORY) -> FloatArray:
    """(n,) distances from y (n, q) to the nearest of each row's centres (n, M, q), in float64."""
    n, m, q = centers.shape
    out = np.empty(n)
    step = max(1, max_memory // (8 * 2 * m))
    for start in range(0, n, step):
        rows = slice(start, start + step)
        if q == 1:
            out[rows] = np.abs(centers[rows, :, 0] - y[rows]).min(axis=1)
        else:
            square = np.zeros(centers[rows].shape[:2])
            for j in range(q):
                square += (centers[rows, :, j] - y[rows, None, j]) ** 2
            out[rows] = np.sqrt(square.min(axis=1))
    return out
