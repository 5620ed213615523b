"""Conformal histogram regression: nested shortest intervals of a modelled histogram."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from assay.conformal.histogram_intervals import IntArray, drop_edges, nested_intervals
from assay.conformal.quantile_grid import QuantileGridRegressor, outside
from assay.core.checks import FloatArray
from assay.core.errors import MethodError
from assay.core.seeds import row_keys, row_uniforms, seed_of

# histograms of so many bytes at a time
_CHUNK_BYTES = 2**20


class ConformalHistogramRegressor(QuantileGridRegressor):
    """The shortest intervals of a modelled histogram, of a calibrated mass.

    The conditional distribution, K predicted quantiles with linear pieces between, is put into
    ``n_bins`` even bins between the ends of its tails. For each mass tau of 1/T, 2/T .. 1 a row has
    an interval of bins with at least that mass, each containing the one before: the shortest at
    ``start``, from there on the shortest that contains (or lies in) its neighbour. The score is the
    least tau whose interval holds y, beyond all bins 1 plus the distance in units of their range; the
    interval is that of the ``ceil((1 - alpha)(n + 1))``-th smallest of n scores.

    ``randomize`` leaves out one edge bin with the probability that makes the mass exact. Its random
    number is a function of the row's predicted quantiles and ``random_state``: the same row has the
    same interval in any batch.

    Parameters
    ----------
    estimator : model of the distribution, or None
        None is ``QuantileNetwork()``. A conditional density model (``sample``; such as
        MixtureDensityNetwork) gives quantiles of its draws. Any other regressor with a quantile loss
        is trained once a level: 99 fits by default, fewer with a smaller ``n_levels``. For
        ``calibrate``: a trained density model, or quantile models with a column a level.
    n_bins : int, default 1000
    n_masses : int, default 100
        T (Sesia and Romano).
    start : number in (0, 1], default 0.9
        The mass whose interval is the shortest outright: give 1 - alpha.
    randomize : bool, default True
    n_levels : int, default 99
        K, quantiles at k / (K + 1).
    n_samples : int, default 1000
        Draws a row that a density model's quantiles come from.
    support : (low, high) or None, default None
        Where the tails end. None: at the range of the training targets after ``fit``; without
        training, as far beyond the outermost quantiles as these lie apart.
    alpha : level, default 0.1
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    random_state : int, RandomState, Generator or None, default None

    Attributes
    ----------
    estimator_ : the trained model; ``estimator_.predict(X)`` is (n, K)
    scores_ : (n_calib,) scores: multiples of 1 / T, or above 1
    seed_ : int, of the edge bins

    References
    ----------
    Sesia, Romano (2021), Conformal prediction using conditional histograms.
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        n_bins: int = 1000,
        n_masses: int = 100,
        start: float = 0.9,
        randomize: bool = True,
        n_levels: int = 99,
        n_samples: int = 1000,
        support: Any = None,
        alpha: Any = 0.1,
        calibration_size: float | int = 0.5,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.n_bins = n_bins
        self.n_masses = n_masses
        self.start = start
        self.randomize = randomize
        self.n_levels = n_levels
        self.n_samples = n_samples
        self.support = support
        self.alpha = alpha
        self.calibration_size = calibration_size
        self.random_state = random_state

    def _grid(self) -> FloatArray:
        if int(self.n_bins) < 1 or int(self.n_masses) < 1:
            raise MethodError(
                f"n_bins and n_masses must be at least 1, got {self.n_bins!r} and {self.n_masses!r}"
            )
        if not 0 < self.start <= 1:
            raise MethodError(f"start must lie in (0, 1], got {self.start!r}")
        return super()._grid()

    def _set_scores(self, knots: FloatArray, y: FloatArray) -> None:
        # what the scores rest on, kept: predictions must follow the same rule
        self.seed_ = seed_of(self.random_state)
        self._rule = (int(self.n_bins), int(self.n_masses), float(self.start), bool(self.randomize))
        scores = np.empty(len(y))
        for rows, edges, first, last in self._intervals_of_bins(knots):
            scores[rows] = _least_mass(edges, first, last, y[rows])
        self.scores_ = scores + np.abs(outside(knots, y))
        self.thresholds_ = {}

    def _side_scores(self, side: int, out: FloatArray) -> None:
        out[:] = self.scores_

    def _intervals_of_bins(self, knots: FloatArray) -> Iterator[tuple[slice, FloatArray, IntArray, IntArray]]:
        """(rows, edges (r, B + 1), first and last bin (r, T) at each mass) for pieces of the rows."""
        bins, count, start, randomize = self._rule
        masses = np.arange(1, count + 1) / count
        at = min(max(int(np.ceil(round(start * count, 9))) - 1, 0), count - 1)
        step = max(1, _CHUNK_BYTES // (8 * (bins + 1)))
        for begin in range(0, len(knots), step):
            rows = slice(begin, begin + step)
            edges, cumulative = _histograms(knots[rows], self.levels_, bins)
            first, last = nested_intervals(cumulative, masses, at)
            # all of the mass is everything between the ends, also where the model sees none
            first[:, -1], last[:, -1] = 0, bins - 1
            if randomize:
                # float32: the same row gets the same number whatever its batch did to the last bits
                content = knots[rows, 1:-1].astype(np.float32)
                u = row_uniforms(row_keys(content, self.seed_, "edge bins"), 1)[:, 0]
                first[:, :-1], last[:, :-1] = drop_edges(
                    cumulative, masses[:-1], first[:, :-1], last[:, :-1], u
                )
            yield rows, edges, first, last

    def _around(self, knots: FloatArray, levels: Sequence[Fraction]) -> FloatArray:
        out = np.empty((len(levels), len(knots), 2))
        thresholds = [self._threshold(level) for level in levels]
        for rows, edges, first, last in self._intervals_of_bins(knots):
            row = np.arange(len(edges))
            for ends, threshold in zip(out, thresholds, strict=True):
                if np.isinf(threshold):
                    ends[rows] = -np.inf, np.inf
                    continue
                t = min(round(threshold * first.shape[1]), first.shape[1]) - 1
                # an empty interval, first > last, keeps its lower end above its upper end
                ends[rows, 0] = edges[row, first[:, t]]
                ends[rows, 1] = np.where(
                    first[:, t] > last[:, t],
                    np.nextafter(ends[rows, 0], -np.inf),
                    edges[row, last[:, t] + 1],
                )
                if threshold > 1:
                    reach = (threshold - 1) * (edges[:, -1] - edges[:, 0])
                    ends[rows, 0] -= reach
                    ends[rows, 1] += reach
        return out


def _histograms(knots: FloatArray, levels: FloatArray, bins: int) -> tuple[FloatArray, FloatArray]:
    """(n, B + 1) even edges between the outer knots, and the mass left of each."""
    edges = np.linspace(knots[:, 0], knots[:, -1], bins + 1, axis=1)
    cumulative = np.array([np.interp(edge, knot, levels) for edge, knot in zip(edges, knots, strict=True)])
    cumulative = cumulative.reshape(edges.shape)
    cumulative[:, 0], cumulative[:, -1] = 0.0, 1.0
    return edges, cumulative


def _least_mass(edges: FloatArray, first: IntArray, last: IntArray, y: FloatArray) -> FloatArray:
    """(n,) least mass whose interval holds y; y beyond the edges counts as at the nearest one."""
    masses = first.shape[1]
    bins = edges.shape[1] - 1
    at = np.clip((edges <= y[:, None]).sum(axis=1) - 1, 0, bins - 1)[:, None]
    held = (first <= at) & (at <= last)
    # the intervals contain each other and the last is everything: those that miss y come first
    missed = (~held).sum(axis=1)
    beyond = (y < edges[:, 0]) | (y > edges[:, -1])
    return np.asarray(np.where(beyond, masses, missed + 1) / masses)
