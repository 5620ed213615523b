"""Unions of balls of one radius a row: what they contain, and how large they are."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import gammaln

from assay.conformal.density_models import check_outputs
from assay.conformal.regions import DEFAULT_MAX_MEMORY, Region
from assay.core.checks import FloatArray
from assay.core.errors import MethodError
from assay.core.seeds import seed_of


class BallUnionSet(Region):
    """Unions of balls: row i is ``{y : min_j |y - centers[i, j]| <= radius[i]}`` (Euclidean).

    Parameters
    ----------
    centers : (n, M, q) float64 array
    radius : (n,) float64 array
        +inf is the whole space, a negative radius the empty set.
    max_memory : int, default 8 MiB
        Bytes of working memory for distances.
    """

    def __init__(self, centers: FloatArray, radius: FloatArray, max_memory: int = DEFAULT_MAX_MEMORY) -> None:
        self.centers = centers
        self.radius = radius
        self.max_memory = max_memory
        self.n_outputs = centers.shape[2]

    def __len__(self) -> int:
        return len(self.radius)

    def __repr__(self) -> str:
        return f"BallUnionSet(rows={len(self)}, balls={self.centers.shape[1]}, outputs={self.n_outputs})"

    def contains(self, y: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """(n,) bool: whether y, (n,) or (n, q), lies in each row's set."""
        values = check_outputs(y, length=len(self))
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
        bounds = np.column_stack(
            [(ordered - self.radius[:, None])[starts], (ordered + self.radius[:, None])[ends]]
        )
        return np.split(bounds, np.cumsum(starts.sum(axis=1))[:-1]) if n else []

    def hull(self) -> FloatArray:
        """(n, 2) smallest interval around each set; where empty, lower lies above upper."""
        self._one_output("hull()")
        low, high = self.centers[:, :, 0].min(axis=1), self.centers[:, :, 0].max(axis=1)
        middle = (low + high) / 2
        empty = self.radius < 0
        low, high = np.where(empty, middle, low), np.where(empty, middle, high)
        return np.column_stack([low - self.radius, high + self.radius])

    def volume(self, method: str = "auto", *, n_points: int = 4096, random_state: Any = 0) -> FloatArray:
        """(n,) length of the merged intervals (q = 1), or volume of the union of balls (q > 1).

        Parameters
        ----------
        method : "auto", "exact" or "mc"
            "exact" is for one output: ``2 r + sum(min(gap, 2 r))`` over the sorted centres. "mc" draws
            points uniformly from the balls and weights each by 1 / (number of balls that hold it):
            unbiased for any q. "auto" is exact for one output, "mc" otherwise.
        n_points : int, default 4096
            Points a row of "mc"; its relative standard error is at most sqrt(M / n_points) and
            mostly far less.
        random_state : int or None, default 0
            Of "mc".
        """
        if method not in {"auto", "exact", "mc"}:
            raise MethodError(f"method must be 'auto', 'exact' or 'mc', got {method!r}")
        if method == "exact":
            self._one_output("volume('exact')")
        if method == "mc" or self.n_outputs > 1:
            return self._volume_mc(n_points, random_state)
        width = 2 * np.maximum(self.radius, 0.0)[:, None]
        gaps = np.diff(np.sort(self.centers[:, :, 0], axis=1), axis=1)
        return np.asarray(width[:, 0] + np.minimum(gaps, width).sum(axis=1)) if len(self) else np.empty(0)

    def _volume_mc(self, n_points: int, random_state: Any) -> FloatArray:
        rng = np.random.default_rng(seed_of(random_state))
        _, m, q = self.centers.shape
        direction = rng.normal(size=(n_points, q))
        direction /= np.linalg.norm(direction, axis=1, keepdims=True)
        offsets = direction * rng.random((n_points, 1)) ** (1 / q)
        ball = rng.integers(m, size=n_points)
        log_unit = 0.5 * q * np.log(np.pi) - gammaln(0.5 * q + 1)
        out = np.zeros(len(self))
        for i, radius in enumerate(self.radius):
            if radius == np.inf:
                out[i] = np.inf
            elif radius > 0:
                points = self.centers[i, ball] + radius * offsets
                # a point just inside its own ball may fall outside it by rounding
                inside = cKDTree(self.centers[i]).query_ball_point(
                    points, radius * (1 + 1e-12), return_length=True
                )
                share = np.mean(1.0 / np.maximum(inside, 1))
                out[i] = np.exp(np.log(m) + log_unit + q * np.log(radius)) * share
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
