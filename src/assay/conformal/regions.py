"""Prediction sets over numbers: a region a row, knowing what it contains and how large it is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import logsumexp
from sklearn.utils import _safe_indexing

from assay.conformal.density_models import check_outputs, draw, log_density, log_density_of_draws
from assay.core.checks import FloatArray
from assay.core.errors import MethodError

# draws and distances are worked on in pieces of this many bytes: larger ones are no faster
DEFAULT_MAX_MEMORY = 2**23
_GRID = 256
_SECTIONS = 16
_REFINEMENTS = 10
_DOUBLINGS = 60
# of the bounding box of several outputs, on each side
_MARGIN = 0.1
# draws a row that a volume is estimated from
_VOLUME_POINTS = 1024


class Region(ABC):
    """n regions in q dimensions, one a row.

    Kinds of region that can do more have ``boundary(n_points) -> (n, n_points, q)`` points of the
    border, ``sample(m) -> (n, m, q)`` points inside and ``bounding_box() -> (n, q, 2)``,
    ends of each output (lower > upper where the region is empty).
    """

    #: number of outputs q
    n_outputs: int

    @abstractmethod
    def __len__(self) -> int:
        """Number of rows n."""

    @abstractmethod
    def contains(self, y: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """(n,) bool: whether each row's region holds its value of y, (n,) or (n, q). Borders belong."""

    @abstractmethod
    def volume(self) -> FloatArray:
        """(n,) length, area or volume: inf where unbounded, 0 where empty."""

    def log_volume(self) -> FloatArray:
        """(n,) natural logarithm of the volume: +inf where unbounded, -inf where it is 0."""
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self.volume()))

    def take(self, rows: Any) -> Region:
        """The regions of these rows, in this order; a row may come several times."""
        raise MethodError(f"{type(self).__name__} has no take(rows)")

    def intervals(self) -> list[FloatArray]:
        """One output only: for each row its disjoint intervals in order, (k, 2); k = 0 where empty."""
        hull = self.hull()
        return [ends[None] if ends[0] <= ends[1] else np.empty((0, 2)) for ends in hull]

    def hull(self) -> FloatArray:
        """One output only: (n, 2) smallest interval around each region; lower > upper where empty."""
        raise MethodError(f"{type(self).__name__} has no hull()")

    def _one_output(self, what: str) -> None:
        if self.n_outputs != 1:
            raise MethodError(f"{what} is for one output; this region has {self.n_outputs}")


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

    def take(self, rows: Any) -> LevelSet:
        """The sets of these rows, in this order; a row may come several times."""
        index = np.arange(len(self))[rows]
        return LevelSet(
            self.model,
            _safe_indexing(self.X, index),
            self.log_threshold[index],
            self.n_outputs,
            self.seed,
            self.max_memory,
        )

    def bounding_box(self, *, n_points: int = 4096) -> FloatArray:
        """(n, q, 2) lower and upper end of each output; (inf, -inf) where empty.

        For one output the ends of :meth:`hull`. For several an estimate: the ends of the model's draws
        that lie in the set, of ``n_points`` a row, moved apart by a tenth of their distance each.
        """
        if self.n_outputs == 1:
            return self.hull()[:, None]
        out = np.empty((len(self), self.n_outputs, 2))
        for rows, X in self._chunks(n_points):
            draws = self._sample(X, n_points)
            inside = log_density_of_draws(self.model, X, draws) >= self.log_threshold[rows, None]
            low = np.where(inside[:, :, None], draws, np.inf).min(axis=1)
            high = np.where(inside[:, :, None], draws, -np.inf).max(axis=1)
            margin = _MARGIN * np.maximum(high - low, 0.0)
            out[rows] = np.stack([low - margin, high + margin], axis=2)
        out[self.log_threshold == -np.inf] = [-np.inf, np.inf]
        return out

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

    def volume(self, method: str = "auto", *, n_points: int = _VOLUME_POINTS) -> FloatArray:
        """(n,) length (q = 1) or volume (q > 1) of each set.

        Parameters
        ----------
        method : "auto", "exact" or "mc"
            "exact" adds up the intervals (one output). "mc" averages 1{p >= t} / p over draws of the
            model, unbiased for any q. "auto" is exact for one output, "mc" otherwise.
        n_points : int, default 1024
            Draws a row of "mc"; its relative standard error is mostly some per cent.
        """
        if method not in {"auto", "exact", "mc"}:
            raise MethodError(f"method must be 'auto', 'exact' or 'mc', got {method!r}")
        if method == "exact":
            self._one_output("volume('exact')")
        if method != "mc" and self.n_outputs == 1:
            return np.array([float((piece[:, 1] - piece[:, 0]).sum()) for piece in self.intervals()])
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(self._log_volume_mc(n_points)))

    def log_volume(self) -> FloatArray:
        """(n,) natural logarithm of the volume: +inf where unbounded, -inf where it is 0."""
        return super().log_volume() if self.n_outputs == 1 else self._log_volume_mc(_VOLUME_POINTS)

    def _log_volume_mc(self, n_points: int) -> FloatArray:
        out = np.empty(len(self))
        for rows, X in self._chunks(n_points):
            log_p = log_density_of_draws(self.model, X, self._sample(X, n_points))
            inside = log_p >= self.log_threshold[rows, None]
            out[rows] = logsumexp(np.where(inside, -log_p, -np.inf), axis=1) - np.log(n_points)
        out[self.log_threshold == -np.inf] = np.inf
        return out
