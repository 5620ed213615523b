"""Sets made of balls around a model's draws, calibrated by any adjustment: what PCP and CP2 share."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Self

import numpy as np
from scipy.spatial import cKDTree

from assay.conformal.adjustments import Adjustment
from assay.conformal.ball_unions import BallUnionSet, nearest_center
from assay.conformal.density_base import DensitySetRegressor
from assay.conformal.density_models import check_draws, check_outputs, draw
from assay.conformal.regions import DEFAULT_MAX_MEMORY, Region
from assay.core.checks import FloatArray, row_count
from assay.core.errors import DataError, MethodError
from assay.core.levels import lower_rank, parse_levels
from assay.core.quantiles import conformal_quantile
from assay.core.seeds import seed_of

# Spreads below this part of the draws' magnitude are rounding; the floor depends on the row alone,
# so calibration and test rows are treated alike.
_RELATIVE_FLOOR = 1e-12
# more distances a row than this, in few dimensions: a tree beats all pairs
_PAIRS_FOR_TREE = 2**16
_OUTPUTS_FOR_TREE = 8


class BallSetRegressor(DensitySetRegressor):
    """Calibration and sets of ``union_i B(Yhat_i, f_tau(Q))`` for an adjustment f.

    Several outputs are measured each in units of its standard deviation in the training rows of
    ``fit``, so that one radius means the same for all of them; a model that was trained elsewhere is
    calibrated in the units of its outputs.
    """

    n_samples: int
    #: (q,) unit of each output
    scale_: FloatArray

    def _train(self, model: Any, X: Any, y: FloatArray) -> Any:
        Y = check_outputs(y)
        spread = Y.std(axis=0)
        self.scale_ = np.where((spread > 0) & (Y.shape[1] > 1), spread, 1.0)
        return model.fit(X, y)

    def _scale(self, outputs: int) -> FloatArray:
        scale = getattr(self, "scale_", None)
        return np.ones(outputs) if scale is None or len(scale) != outputs else scale

    def _adjustment(self) -> Adjustment:
        raise NotImplementedError

    def _n_reference(self) -> int:
        """Draws that measure each row's own spread; 0 where the adjustment has no use for it."""
        raise NotImplementedError

    def _law(self) -> dict[str, Any]:
        if int(self.n_samples) < 1:
            raise MethodError(f"n_samples must be at least 1, got {self.n_samples!r}")
        return {
            "n_samples": self.n_samples,
            "n_reference": self._n_reference(),
            "adjustment": self._adjustment(),
        }

    def _drawn(self, model: Any, X: Any, seed: int, outputs: int, stage: str) -> Iterator[Any]:
        """(rows, centres in units of the scale, sorted spread distances, floors) of pieces of X."""
        m, extra = int(self.n_samples), self._n_reference()
        for rows, piece in self._pieces(model, X, outputs):
            scale = self._scale(outputs)
            centers = draw(model, piece, m, self._stream(model, seed, stage, "centers"), outputs) / scale
            reference = None
            if extra:
                stream = self._stream(model, seed, stage, "reference")
                reference = draw(model, piece, extra, stream, outputs) / scale
            yield rows, centers, *self._spread(centers, reference)

    def _spread(self, centers: FloatArray, reference: FloatArray | None) -> tuple[FloatArray, FloatArray]:
        """(n, n_reference) sorted distances of reference draws to the nearest centre; (n,) floors of tau."""
        magnitude = np.abs(centers).max(axis=(1, 2), initial=0.0)
        if reference is None:
            distances = np.empty((len(centers), 0))
        else:
            distances = np.sort(distances_to_nearest(reference, centers, int(self.max_memory)), axis=1)
            magnitude = np.maximum(magnitude, np.abs(reference).max(axis=(1, 2), initial=0.0))
        return distances, np.maximum(_RELATIVE_FLOOR * magnitude, np.finfo(np.float64).tiny)

    def _tau(self, distances: FloatArray, floors: FloatArray, level: Fraction) -> FloatArray:
        """(n,) tau: the ceil((1 - alpha) m)-th smallest spread distance, floored, through the adjustment."""
        m = distances.shape[1]
        if m == 0:
            return floors
        rank = m - lower_rank(m - 1, level)
        return self._adjustment().tau(np.maximum(distances[:, rank - 1], floors))

    def _calibration(self, model: Any, X: Any, y: FloatArray, seed: int) -> dict[str, Any]:
        n = len(y)
        state = {
            "distances_": np.empty(n),
            "spreads_": np.empty((n, self._n_reference())),
            "floors_": np.empty(n),
        }
        for rows, centers, spread, floors in self._drawn(model, X, seed, y.shape[1], "calibrate"):
            scaled = y[rows] / self._scale(y.shape[1])
            state["distances_"][rows] = nearest_center(scaled, centers, int(self.max_memory))
            state["spreads_"][rows] = spread
            state["floors_"][rows] = floors
        return state

    def _row_bytes(self, outputs: int) -> int:
        return 8 * 5 * (int(self.n_samples) + self._n_reference()) * outputs

    def _threshold(self, level: Fraction) -> float:
        return float(conformal_quantile(self.conformity_scores(level), level, what="set", stacklevel=5))

    def conformity_scores(self, alpha: Any = None) -> FloatArray:
        """(n_calib,) conformal scores of the calibration rows at one level."""
        (level,), _ = parse_levels(self._default_alpha() if alpha is None else alpha)
        return self._adjustment().scores(self._tau(self.spreads_, self.floors_, level), self.distances_)

    def _sets(self, X: Any, levels: tuple[Fraction, ...], thresholds: list[float]) -> list[Region]:
        n = row_count(X)
        centers = np.empty((n, int(self.n_samples), self.n_outputs_))
        radii = np.empty((len(levels), n))
        for rows, drawn, spread, floors in self._drawn(
            self.model_, X, self.seed_, self.n_outputs_, "predict"
        ):
            centers[rows] = drawn
            for i, (level, threshold) in enumerate(zip(levels, thresholds, strict=True)):
                radii[i, rows] = self._adjustment().bound(self._tau(spread, floors, level), threshold)
        scale = self._scale(self.n_outputs_)
        return [BallUnionSet(centers, radius, int(self.max_memory), scale) for radius in radii]

    def calibrate_samples(self, samples: Any, y: Any, reference: Any = None) -> Self:
        """Calibrate from bare draws of any model in any framework.

        Parameters
        ----------
        samples : (n, M) or (n, M, q) draws, the centres; M is ``n_samples``
        y : (n,) or (n, q) targets
        reference : (n, M') or (n, M', q) further, independent draws; M' is ``n_reference``
        """
        Y = check_outputs(y)
        centers, others = self._check_samples(samples, reference, len(Y))
        if centers.shape[2] != Y.shape[1]:
            raise DataError(f"samples have {centers.shape[2]} outputs, y has {Y.shape[1]}")
        scale = self._scale(Y.shape[1])
        centers, others = centers / scale, None if others is None else others / scale
        spread, floors = self._spread(centers, others)
        self.distances_ = nearest_center(Y / scale, centers, int(self.max_memory))
        self.spreads_, self.floors_ = spread, floors
        self.n_outputs_ = Y.shape[1]
        self.seed_ = seed_of(self.random_state)
        self.level_, self._probe = None, None
        self.law_ = self._law()
        return self

    def predict_set_samples(self, samples: Any, reference: Any = None, alpha: Any = None) -> Any:
        """The set of each row from bare draws of the same model; a list for a sequence of levels."""
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        self._check_law()
        centers, others = self._check_samples(samples, reference, row_count(samples))
        scale = self._scale(centers.shape[2])
        centers, others = centers / scale, None if others is None else others / scale
        spread, floors = self._spread(centers, others)
        sets = []
        for level in levels:
            radius = self._adjustment().bound(self._tau(spread, floors, level), self._threshold(level))
            sets.append(BallUnionSet(centers, radius, int(self.max_memory), scale))
        return sets[0] if is_scalar else sets

    def _check_samples(self, samples: Any, reference: Any, n: int) -> tuple[FloatArray, FloatArray | None]:
        centers = check_draws(samples, n)
        need = self._n_reference()
        if centers.shape[1] != int(self.n_samples):
            raise DataError(f"samples hold {centers.shape[1]} draws a row; n_samples is {self.n_samples}")
        if not need:
            return centers, None
        if reference is None:
            raise DataError(f"reference is missing: give {need} further draws a row, independent of samples")
        others = check_draws(reference, n, "reference")
        if others.shape[1:] != (need, centers.shape[2]):
            raise DataError(f"reference has shape {others.shape}, expected {(n, need, centers.shape[2])}")
        return centers, others


def distances_to_nearest(
    points: FloatArray, centers: FloatArray, max_memory: int = DEFAULT_MAX_MEMORY
) -> FloatArray:
    """(n, m) distances of each row's points (n, m, q) to the nearest of its centres (n, M, q)."""
    n, m, q = points.shape
    if q == 1:
        return _nearest_on_line(points[:, :, 0], centers[:, :, 0])
    out = np.empty((n, m))
    pairs = m * centers.shape[1]
    if pairs > _PAIRS_FOR_TREE and q <= _OUTPUTS_FOR_TREE:
        for i in range(n):
            out[i] = cKDTree(centers[i]).query(points[i])[0]
        return out
    step = max(1, max_memory // (8 * 2 * pairs))
    for start in range(0, n, step):
        rows = slice(start, start + step)
        square = np.zeros((len(out[rows]), m, centers.shape[1]))
        for j in range(q):
            square += (points[rows, :, None, j] - centers[rows, None, :, j]) ** 2
        out[rows] = np.sqrt(square.min(axis=2))
    return out


def _nearest_on_line(points: FloatArray, centers: FloatArray) -> FloatArray:
    """(n, m) distances on the line: one sort a row, then the nearest centre to the left and right."""
    n, m = points.shape
    both = np.concatenate([centers, points], axis=1)
    order = np.argsort(both, axis=1, kind="stable")
    values = np.take_along_axis(both, order, axis=1)
    is_center = order < centers.shape[1]
    left = np.maximum.accumulate(np.where(is_center, values, -np.inf), axis=1)
    right = np.minimum.accumulate(np.where(is_center, values, np.inf)[:, ::-1], axis=1)[:, ::-1]
    nearest = np.minimum(values - left, right - values)
    out = np.empty_like(both)
    np.put_along_axis(out, order, nearest, axis=1)
    return out[:, centers.shape[1] :].reshape(n, m)
