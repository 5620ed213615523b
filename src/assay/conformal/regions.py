"""Prediction sets over numbers: a region a row, knowing what it contains and how large it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from scipy.special import gammaln
from sklearn.utils import _safe_indexing

from assay.conformal.density_models import check_outputs, draw, log_density, log_density_of_draws
from assay.core.checks import FloatArray
from assay.core.errors import MethodError
from assay.core.seeds import seed_of

# draws and distances are worked on in pieces of this many bytes: larger ones are no faster
DEFAULT_MAX_MEMORY = 2**23
_GRID = 256
_SECTIONS = 16
_REFINEMENTS = 10
_DOUBLINGS = 60


class Region(ABC):
    """n regions in q dimensions, one a row."""

    #: number of outputs q
    n_outputs: int

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows n."""

    @abstractmethod
    def contains(self, y: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """(n,) bool: whether each row's region holds its value of y, (n,) or (n, q). Borders belong."""

    @abstractmethod
    def volume(self, method: str = "auto") -> FloatArray:
        """(n,) length, area or volume: inf where unbounded, 0 where empty."""

    @abstractmethod
    def intervals(self) -> list[FloatArray]:
        """One output only: for each row its disjoint intervals in order, (k, 2); k = 0 where empty."""

    @abstractmethod
    def hull(self) -> FloatArray:
        """One output only: (n, 2) smallest interval around each region; lower > upper where empty."""

    def _one_output(self, what: str) -> None:
        if self.n_outputs != 1:
            raise MethodError(f"{what} is for one output; this region has {self.n_outputs}")


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


class LevelSet(Region):
    """Density level sets: row i is ``{y : log p(y | x_i) >= log_threshold[i]}``.

    Parameters
    ----------
    model : object with ``log_prob`` and ``sample``
    X : (n, d) table, the rows of the sets
    log_threshold : (n,) float64 array
        -inf is the whole space, +inf the empty set.
    n_outputs : int
    seed : int
        Of the draws that find the set on the line and estimate its volume.
    max_memory : int, default 8 MiB
        Bytes of working memory for draws and densities.
    """

    def __init__(
        self,
        model: Any,
        X: Any,
        log_threshold: FloatArray,
        n_outputs: int,
        seed: int = 0,
        max_memory: int = DEFAULT_MAX_MEMORY,
    ) -> None:
        self.model = model
        self.X = X
        self.log_threshold = log_threshold
        self.n_outputs = n_outputs
        self.seed = seed
        self.max_memory = max_memory

    def __len__(self) -> int:
        return len(self.log_threshold)

    def __repr__(self) -> str:
        return f"LevelSet(rows={len(self)}, outputs={self.n_outputs})"

    def contains(self, y: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """(n,) bool: whether y, (n,) or (n, q), lies in each row's set."""
        values = check_outputs(y, length=len(self))
        return np.asarray(log_density(self.model, self.X, values) >= self.log_threshold)

    def _chunks(self, columns: int) -> Iterator[tuple[slice, Any]]:
        # points, their densities, a model's copy of both, and what is sorted or compared
        step = max(1, int(self.max_memory) // (8 * 8 * columns * self.n_outputs))
        whole = not getattr(self.model, "samples_by_row", False)
        for start in range(0, len(self), len(self) if whole else step):
            rows = slice(start, start + (len(self) if whole else step))
            yield rows, _safe_indexing(self.X, np.arange(len(self))[rows])

    def _sample(self, X: Any, m: int) -> FloatArray:
        return draw(self.model, X, m, self.seed, self.n_outputs)

    def intervals(self) -> list[FloatArray]:
        """For each row its disjoint intervals in order, (k, 2); one output only.

        Ends are found by subdivision between points that are drawn from the model or lie on an even
        grid around them; a piece that falls between two neighbouring points is missed.
        """
        self._one_output("intervals()")
        out: list[FloatArray] = []
        for rows, X in self._chunks(2 * _GRID):
            out.extend(self._intervals(X, self.log_threshold[rows]))
        return out

    def _intervals(self, X: Any, threshold: FloatArray) -> list[FloatArray]:
        n = len(threshold)
        grid = self._grid(X, threshold)
        inside = log_density_of_draws(self.model, X, grid[:, :, None]) >= threshold[:, None]
        row, at = np.nonzero(inside[:, 1:] != inside[:, :-1])
        left, right = grid[row, at], grid[row, at + 1]
        entering = inside[row, at + 1]
        at_border = _safe_indexing(X, row)
        for _ in range(_REFINEMENTS if len(row) else 0):
            points = np.linspace(left, right, _SECTIONS + 1, axis=1)
            held = log_density_of_draws(self.model, at_border, points[:, 1:-1, None]) >= threshold[row, None]
            # the first inner point on the right end's side of the border; the right end itself if none is
            beyond = np.argmax(np.column_stack([held == entering[:, None], np.ones(len(row), bool)]), axis=1)
            left = np.take_along_axis(points, beyond[:, None], axis=1)[:, 0]
            right = np.take_along_axis(points, beyond[:, None] + 1, axis=1)[:, 0]
        # the end that lies inside the set
        ends = np.where(entering, right, left)
        counts = np.bincount(row, minlength=n)
        pieces = np.split(ends, np.cumsum(counts)[:-1]) if n else []
        everything = np.array([[-np.inf, np.inf]])
        return [
            everything if t == -np.inf else piece.reshape(-1, 2)
            for t, piece in zip(threshold, pieces, strict=True)
        ]

    def _grid(self, X: Any, threshold: FloatArray) -> FloatArray:
        """(n, 2 * _GRID) points a row, in order, the first and last outside the set where it is bounded."""
        draws = np.sort(self._sample(X, _GRID)[:, :, 0], axis=1)
        low, high = draws[:, 0], draws[:, -1]
        reach = np.maximum(high - low, 1e-12 * np.maximum(np.abs(low), np.abs(high)) + 1e-300)
        low, high = low - reach, high + reach
        for _ in range(_DOUBLINGS):
            ends = np.stack([low, high], axis=1)
            held = log_density_of_draws(self.model, X, ends[:, :, None]) >= threshold[:, None]
            held &= (threshold > -np.inf)[:, None]
            if not held.any():
                break
            reach = 2 * reach
            low = np.where(held[:, 0], low - reach, low)
            high = np.where(held[:, 1], high + reach, high)
        else:
            raise MethodError(
                f"in {int(held.any(axis=1).sum())} rows the model's density stays above its threshold out to "
                f"{float(reach.max()):.3g} from its draws; it is not a density on the line"
            )
        even = np.linspace(low, high, _GRID, axis=1)
        return np.sort(np.concatenate([draws, even], axis=1), axis=1)

    def hull(self) -> FloatArray:
        """(n, 2) smallest interval around each set; where empty, lower lies above upper."""
        self._one_output("hull()")
        out = np.empty((len(self), 2))
        for i, piece in enumerate(self.intervals()):
            out[i] = (piece[0, 0], piece[-1, 1]) if len(piece) else (np.inf, -np.inf)
        return out

    def volume(self, method: str = "auto", *, n_points: int = 4096) -> FloatArray:
        """(n,) length (q = 1) or volume (q > 1) of each set.

        Parameters
        ----------
        method : "auto", "exact" or "mc"
            "exact" adds up the intervals (one output). "mc" averages 1{p >= t} / p over draws of the
            model, unbiased for any q. "auto" is exact for one output, "mc" otherwise.
        n_points : int, default 4096
            Draws a row of "mc".
        """
        if method not in {"auto", "exact", "mc"}:
            raise MethodError(f"method must be 'auto', 'exact' or 'mc', got {method!r}")
        if method == "exact":
            self._one_output("volume('exact')")
        if method != "mc" and self.n_outputs == 1:
            return np.array([float((piece[:, 1] - piece[:, 0]).sum()) for piece in self.intervals()])
        out = np.empty(len(self))
        for rows, X in self._chunks(n_points):
            log_p = log_density_of_draws(self.model, X, self._sample(X, n_points))
            with np.errstate(over="ignore"):
                inverse = np.where(log_p >= self.log_threshold[rows, None], np.exp(-log_p), 0.0)
            out[rows] = inverse.mean(axis=1)
        out[self.log_threshold == -np.inf] = np.inf
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
