"""Regions that are the image of a ball or a box under a conditional flow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import gammaln, ndtri
from scipy.stats import chi, norm, qmc
from sklearn.utils import _safe_indexing

from assay.conformal.density_models import check_outputs
from assay.conformal.flow_models import from_latent, latent_scores
from assay.conformal.regions import DEFAULT_MAX_MEMORY, Region
from assay.core.checks import FloatArray
from assay.core.errors import MethodError
from assay.core.seeds import derive_seed, seed_of

_BOX_POINTS = 256
_BOX_ROUNDS = 6
_BOX_TRIES = 8


class FlowRegion(Region):
    """Images of a latent ball: row i is ``{y : |T^-1(y; x_i)| <= radius}``, one connected piece.

    Parameters
    ----------
    flow : conditional flow
        ``inverse(y, x) -> (z, log|det dz/dy|)`` and ``forward(z, x)``.
    X : (n, d) table, the rows of the regions
    radius : float
        +inf is the whole space.
    n_outputs : int
    norm : "l2" or "linf", default "l2"
        Of the latent space: a ball, or a cube of half-width ``radius``.
    max_memory : int, default 8 MiB
        Bytes of working memory for points.
    """

    def __init__(
        self,
        flow: Any,
        X: Any,
        radius: float,
        n_outputs: int,
        norm: str = "l2",
        max_memory: int = DEFAULT_MAX_MEMORY,
    ) -> None:
        self.flow = flow
        self.X = X
        self.radius = float(radius)
        self.n_outputs = n_outputs
        self.norm = norm
        self.max_memory = max_memory

    def __len__(self) -> int:
        return len(self.X)

    def __repr__(self) -> str:
        return f"FlowRegion(rows={len(self)}, outputs={self.n_outputs}, {self.norm} radius={self.radius:.4g})"

    def take(self, rows: Any) -> FlowRegion:
        """The regions of these rows (indices or a mask); a row may come more than once."""
        X = _safe_indexing(self.X, np.arange(len(self))[rows])
        return FlowRegion(self.flow, X, self.radius, self.n_outputs, self.norm, self.max_memory)

    def contains(self, y: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """(n,) bool: whether each row's region holds its value of y, (n,) or (n, q)."""
        values = check_outputs(y, length=len(self))
        scores, _ = latent_scores(self.flow, self.X, values, f"latent_{self.norm}", self.max_memory)
        return np.asarray(scores <= self.radius)

    def _pieces(self, points: int) -> Iterator[tuple[slice, Any]]:
        step = max(1, int(self.max_memory) // (8 * 6 * points * self.n_outputs))
        n = len(self)
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            yield rows, self.X if step >= n else _safe_indexing(self.X, np.arange(start, rows.stop))

    def _images(self, latent: FloatArray) -> FloatArray:
        """(n, m, q) images of the same latent points (m, q) for every row."""
        out = np.empty((len(self), *latent.shape))
        for rows, X in self._pieces(len(latent)):
            same = np.broadcast_to(latent, (rows.stop - rows.start, *latent.shape))
            out[rows] = from_latent(self.flow, X, same)[0]
        return out

    def _directions(self, count: int) -> FloatArray:
        """(count, q) points of the unit sphere or the unit cube's surface; in order around for q = 2."""
        q = self.n_outputs
        if q == 1:
            return np.where(np.arange(count) % 2 == 0, -1.0, 1.0)[:, None]
        if q == 2:
            angle = 2 * np.pi * np.arange(count) / count
            points = np.column_stack([np.cos(angle), np.sin(angle)])
        else:
            points = ndtri(qmc.Sobol(q, scramble=True, rng=1).random(_power_of_two(count))[:count])
        return self._onto_surface(points)

    def _onto_surface(self, points: FloatArray) -> FloatArray:
        order = np.inf if self.norm == "linf" else 2
        return np.asarray(points / np.linalg.norm(points, ord=order, axis=-1, keepdims=True))

    def boundary(self, n_points: int = 200) -> FloatArray:
        """(n, n_points, q) points of each border: in order around it for two outputs, else scattered.

        For one output the two ends in turn, lower first where the flow is increasing.

        Raises
        ------
        MethodError
            The regions are the whole space and have no border.
        """
        if self.radius == np.inf:
            raise MethodError("these regions are the whole space: they have no boundary")
        return self._images(self.radius * self._directions(int(n_points)))

    def log_volume(self, n_samples: int = 256) -> FloatArray:
        """(n,) natural logarithm of :meth:`volume`, which may overflow or vanish where this does not."""
        if self.radius == np.inf:
            return np.full(len(self), np.inf)
        if self.radius == 0:
            return np.full(len(self), -np.inf)
        q, r = self.n_outputs, self.radius
        inside = self._uniform(int(n_samples))
        log_base = q * np.log(2 * r)
        if self.norm == "l2":
            log_base = 0.5 * q * np.log(np.pi) - gammaln(0.5 * q + 1) + q * np.log(r)
        out = np.empty(len(self))
        for rows, X in self._pieces(len(inside)):
            same = np.broadcast_to(inside, (rows.stop - rows.start, *inside.shape))
            logdet = from_latent(self.flow, X, same)[1]
            # the points may be few: their mean in a way that cannot overflow
            top = logdet.max(axis=1)
            out[rows] = log_base + top + np.log(np.exp(logdet - top[:, None]).mean(axis=1))
        return out

    def volume(self, n_samples: int = 256) -> FloatArray:
        """(n,) length, area or volume: the mean of |det dy/dz| over the latent ball, times its volume.

        Parameters
        ----------
        n_samples : int, default 256
            Points spread evenly in the latent ball (a scrambled Sobol sequence, the same points for
            every row). Exact with any number for a flow that is affine in z; within a few thousandths
            for a trained one.
        """
        with np.errstate(over="ignore"):
            return np.asarray(np.exp(self.log_volume(n_samples)))

    def _uniform(self, count: int) -> FloatArray:
        """(count, q) points spread evenly in the latent ball or cube."""
        q = self.n_outputs
        cube = qmc.Sobol(q + 1, scramble=True, rng=0).random(_power_of_two(count))[:count]
        if self.norm == "linf":
            return np.asarray(self.radius * (2 * cube[:, :q] - 1))
        return np.asarray(self.radius * cube[:, q:] ** (1 / q) * self._onto_surface(ndtri(cube[:, :q])))

    def sample(self, n: int = 1, random_state: Any = 0) -> FloatArray:
        """(rows, n, q) draws of the flow, given that they lie in the region."""
        rng = np.random.default_rng(derive_seed(seed_of(random_state), "flow region"))
        q = self.n_outputs
        if self.norm == "linf":
            latent = ndtri(0.5 + (rng.random((n, q)) - 0.5) * (2 * norm.cdf(self.radius) - 1))
        else:
            length = chi.ppf(rng.random((n, 1)) * chi.cdf(self.radius, q), q)
            latent = length * self._onto_surface(rng.normal(size=(n, q)))
        return self._images(latent)

    def bounding_box(self) -> FloatArray:
        """(n, q, 2) lower and upper end of each output over the region.

        Found on the border from 256 points and 6 rounds of nearer looks around the best of them: from
        within, by a small part of the width.
        """
        n, q = len(self), self.n_outputs
        if self.radius == np.inf:
            return np.broadcast_to([-np.inf, np.inf], (n, q, 2)).copy()
        directions = self._directions(_BOX_POINTS if q > 1 else 2)
        points = self._images(self.radius * directions)
        out = np.stack([points.min(axis=1), points.max(axis=1)], axis=2)
        if q == 1:
            return out
        best = np.stack([directions[points.argmin(axis=1)], directions[points.argmax(axis=1)]], axis=2)
        rng = np.random.default_rng(0)
        reach = (2.0 / _BOX_POINTS) ** (1 / (q - 1)) * np.pi
        output = np.arange(q)[:, None]
        for _ in range(_BOX_ROUNDS):
            # (tries, q): the same steps for every row, output and side
            tried = best[:, :, :, None, :] + reach * rng.normal(size=(_BOX_TRIES, q))
            tried = self._onto_surface(tried)
            latent = (self.radius * tried).reshape(n, 2 * q * _BOX_TRIES, q)
            found = np.empty_like(latent)
            for rows, X in self._pieces(latent.shape[1]):
                found[rows] = from_latent(self.flow, X, latent[rows])[0]
            found = found.reshape(n, q, 2, _BOX_TRIES, q)
            own = found[:, output, [0, 1], :, output]  # (q, 2, n, tries)
            for side, better in ((0, np.less), (1, np.greater)):
                values = own[:, side]
                at = values.argmin(axis=2) if side == 0 else values.argmax(axis=2)
                value = np.take_along_axis(values, at[:, :, None], axis=2)[:, :, 0].T
                improved = better(value, out[:, :, side])
                out[:, :, side] = np.where(improved, value, out[:, :, side])
                chosen = np.take_along_axis(tried[:, :, side], at.T[:, :, None, None], axis=2)[:, :, 0]
                best[:, :, side] = np.where(improved[:, :, None], chosen, best[:, :, side])
            reach *= 0.5
        return out

    def hull(self) -> FloatArray:
        """One output only: (n, 2) ends of each region."""
        self._one_output("hull()")
        return self.bounding_box()[:, 0]


def _power_of_two(count: int) -> int:
    """The next power of two: what a Sobol sequence is even for."""
    return 1 << max(0, int(count) - 1).bit_length()
