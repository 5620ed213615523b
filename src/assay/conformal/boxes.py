"""Boxes: an interval for each output."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.conformal.region_shapes import check_bounded, check_points, farthest, unit_directions
from assay.conformal.regions import Region
from assay.core.checks import FloatArray
from assay.core.errors import DataError, MethodError
from assay.core.seeds import seed_of


class Box(Region):
    """Axis-parallel boxes: row i is ``{y : lower[i] <= y <= upper[i]}``.

    Parameters
    ----------
    lower, upper : (n, q) float64 arrays
        In the units of the outputs. Infinite ends are legal; a row with a lower end above its upper
        end is empty.
    """

    def __init__(self, lower: FloatArray, upper: FloatArray) -> None:
        if lower.shape != upper.shape or lower.ndim != 2:
            raise DataError(f"lower has shape {lower.shape}, upper {upper.shape}; both must be (n, q)")
        self.lower = lower
        self.upper = upper
        self.n_outputs = lower.shape[1]

    @classmethod
    def around(cls, center: FloatArray, below: Any, above: Any) -> Box:
        """Boxes of the y with ``-below <= y - center <= above``, true to the last bit.

        ``center`` is (n, q); ``below`` and ``above``, distances that broadcast to it, may be
        infinite, or negative for empty boxes.
        """
        return cls(-farthest(-center, below), farthest(center, above))

    def __len__(self) -> int:
        return len(self.lower)

    def __repr__(self) -> str:
        return f"Box(rows={len(self)}, outputs={self.n_outputs})"

    def contains(self, y: Any) -> NDArray[np.bool_]:
        """(n,) bool: whether y, (n,) or (n, q), lies in each row's box. Borders belong."""
        values = check_points(y, self)
        return np.asarray(((self.lower <= values) & (values <= self.upper)).all(axis=1))

    @property
    def is_empty(self) -> NDArray[np.bool_]:
        """(n,) bool: whether a row's lower end lies above its upper end."""
        return np.asarray((self.lower > self.upper).any(axis=1))

    def volume(self) -> FloatArray:
        """(n,) product of the widths: inf where unbounded, 0 where empty or flat."""
        width = self._widths()
        flat = (width == 0).any(axis=1)
        with np.errstate(over="ignore", invalid="ignore"):
            return np.where(flat, 0.0, width.prod(axis=1))

    def log_volume(self) -> FloatArray:
        """(n,) natural logarithm of the volume, for widths whose product has no float as well."""
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(self._widths())
            return np.where((logs == -np.inf).any(axis=1), -np.inf, logs.sum(axis=1))

    def _widths(self) -> FloatArray:
        with np.errstate(over="ignore"):
            width = self.upper - self.lower
        return np.where(self.is_empty[:, None], 0.0, width)

    def take(self, rows: Any) -> Box:
        """The boxes of these rows, in this order; a row may come several times."""
        return Box(self.lower[rows], self.upper[rows])

    def bounding_box(self) -> FloatArray:
        """(n, q, 2) lower and upper end of each output; (inf, -inf) where empty."""
        ends = np.stack([self.lower, self.upper], axis=2)
        ends[self.is_empty] = [np.inf, -np.inf]
        return ends

    def hull(self) -> FloatArray:
        """(n, 2) ends, for one output; (inf, -inf) where empty."""
        self._one_output("hull()")
        return self.bounding_box()[:, 0]

    def boundary(self, n_points: int = 200) -> FloatArray:
        """(n, n_points, q) points of the border: around it in order (q = 2), or in random directions.

        For two outputs the first point is a corner; where ``n_points`` is a multiple of 4 all corners
        are among them.

        Raises
        ------
        MethodError
            A box is unbounded or empty, or there is one output.
        """
        if self.n_outputs == 1:
            raise MethodError("boundary(n_points) is for several outputs; hull() gives the ends of one")
        self._check_bounded("boundary")
        if self.n_outputs == 2:
            around = np.arange(n_points) * (4 / n_points)
            corners = np.arange(5)
            square = np.column_stack(
                [
                    np.interp(around, corners, [-1, 1, 1, -1, -1]),
                    np.interp(around, corners, [-1, -1, 1, 1, -1]),
                ]
            )
        else:
            directions = unit_directions(n_points, self.n_outputs)
            square = directions / np.abs(directions).max(axis=1, keepdims=True)
        return self._from_square(square)

    def sample(self, n: int, random_state: Any = 0) -> FloatArray:
        """(rows, n, q) points drawn uniformly: the same ones of the unit cube in every box."""
        self._check_bounded("sample")
        rng = np.random.default_rng(seed_of(random_state))
        return self._from_square(2 * rng.random((n, self.n_outputs)) - 1)

    def _from_square(self, points: FloatArray) -> FloatArray:
        """(n, m, q) points of the boxes for (m, q) points of the cube from -1 to 1."""
        share = (points + 1) / 2
        low, high = self.lower[:, None], self.upper[:, None]
        return np.clip(low * (1 - share) + high * share, low, high)

    def _check_bounded(self, what: str) -> None:
        bounded = np.isfinite(self.lower).all(axis=1) & np.isfinite(self.upper).all(axis=1)
        check_bounded(bounded & ~self.is_empty, what)
