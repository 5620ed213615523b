"""A model's whole conditional distribution as a grid of quantiles, and methods that calibrate it."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.validation import check_is_fitted

from assay.conformal.density_models import draw
from assay.conformal.interval_base import SplitIntervalRegressor
from assay.conformal.quantile_models import (
    QuantileModel,
    as_quantile_estimator,
    fit_quantiles,
    fitted_quantiles,
)
from assay.conformal.quantile_network import seeded_network
from assay.core.checks import (
    FloatArray,
    as_vector,
    refuse_infinite,
    refuse_nan,
    row_count,
    to_float,
    to_numpy,
)
from assay.core.errors import DataError, MethodError
from assay.core.levels import parse_levels
from assay.core.models import untrained
from assay.core.seeds import derive_seed, seed_of

_DRAWS_BYTES = 2**23


class DrawnQuantiles:
    """Quantiles of a density model's draws: the ceil(p m)-th smallest of m at level p."""

    def __init__(self, model: Any, levels: FloatArray, n_samples: int, seed: int) -> None:
        self.model = model
        self.ranks = np.ceil(np.round(levels * n_samples, 9)).astype(int)
        self.n_samples = n_samples
        self.seed = seed

    @property
    def n_features_in_(self) -> int:
        return int(self.model.n_features_in_)

    def predict(self, X: Any, stage: str = "predict") -> FloatArray:
        """(n, K) quantiles. A row's draws are its own where the model can, else those of the stage."""
        by_row = getattr(self.model, "samples_by_row", False)
        seed = derive_seed(self.seed, "grid") if by_row else derive_seed(self.seed, stage, "grid")
        n = row_count(X)
        step = max(1, _DRAWS_BYTES // (8 * 5 * self.n_samples)) if by_row else max(n, 1)
        out = np.empty((n, len(self.ranks)))
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            piece = X if step >= n else _safe_indexing(X, np.arange(start, rows.stop))
            draws = np.sort(draw(self.model, piece, self.n_samples, seed, 1)[:, :, 0], axis=1)
            out[rows] = draws[:, np.maximum(self.ranks, 1) - 1]
        return out


def with_tails(quantiles: FloatArray, support: tuple[float, float] | None) -> FloatArray:
    """(n, K + 2) sorted quantiles between the ends of the distribution, at levels 0 and 1.

    The ends are those of ``support``, or beyond where a quantile is; without support each tail is
    as long as the outermost quantiles lie apart.
    """
    inner = np.sort(quantiles, axis=1)
    low, high = inner[:, 0], inner[:, -1]
    if support is None:
        low, high = low - (high - low), high + (high - low)
    else:
        low, high = np.minimum(low, support[0]), np.maximum(high, support[1])
    return np.column_stack([low, inner, high])


def distribution_function(
    knots: FloatArray, levels: FloatArray, y: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """(P(Y < y), P(Y <= y)) of each row, linear between its knots; they differ where knots coincide.

    Beyond the ends the levels run on, below 0 and above 1, by the distance in units of the distance
    between the ends: a value far outside must score as stranger than one just outside.
    """
    last = knots.shape[1] - 1
    row = np.arange(len(y))

    def at(count: Any) -> FloatArray:
        # knots[count - 1] and knots[count] enclose y and differ, except outside all knots
        left = np.clip(count - 1, 0, last - 1)
        a, b = knots[row, left], knots[row, left + 1]
        with np.errstate(invalid="ignore", divide="ignore"):
            share = np.where(b > a, (y - a) / (b - a), 0.0)
        inside = levels[left] + share * (levels[left + 1] - levels[left])
        return np.where(count == 0, 0.0, np.where(count > last, 1.0, inside)) + outside(knots, y)

    return at((knots < y[:, None]).sum(axis=1)), at((knots <= y[:, None]).sum(axis=1))


def outside(knots: FloatArray, y: FloatArray) -> FloatArray:
    """(n,) distance of y beyond the first (negative) or last knot, in units of their distance; 0 between."""
    beyond = np.minimum(y - knots[:, 0], 0.0) + np.maximum(y - knots[:, -1], 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(beyond == 0, 0.0, beyond / (knots[:, -1] - knots[:, 0]))


def quantile_function(knots: FloatArray, levels: FloatArray, p: float) -> FloatArray:
    """(n,) quantiles at one level, linear between the knots and, outside [0, 1], beyond them."""
    if np.isinf(p):
        return np.full(len(knots), p)
    if not 0 <= p <= 1:
        width = knots[:, -1] - knots[:, 0]
        return np.asarray(knots[:, 0] + p * width if p < 0 else knots[:, -1] + (p - 1) * width)
    left = min(int(np.searchsorted(levels, p, side="right")) - 1, len(levels) - 2)
    share = (p - levels[left]) / (levels[left + 1] - levels[left])
    return np.asarray(knots[:, left] + share * (knots[:, left + 1] - knots[:, left]))


class QuantileGridRegressor(SplitIntervalRegressor):
    """Base of interval methods that use a grid of conditional quantiles as the distribution.

    A subclass implements ``_set_scores(knots, y)`` and ``_around(knots, levels) -> (L, n, 2)``.
    """

    n_levels: int
    n_samples: int
    support: Any
    levels_: FloatArray
    support_: tuple[float, float] | None

    def _set_scores(self, knots: FloatArray, y: FloatArray) -> None:
        """Set ``scores_`` and ``thresholds_`` from each calibration row's knots (n, K + 2)."""
        raise NotImplementedError

    def _around(self, knots: FloatArray, levels: Sequence[Fraction]) -> FloatArray:
        """(L, n, 2) intervals of rows with these knots."""
        raise NotImplementedError

    def _grid(self) -> FloatArray:
        """(K,) levels of the quantiles, k / (K + 1)."""
        if int(self.n_levels) < 2:
            raise MethodError(f"n_levels must be at least 2, got {self.n_levels!r}")
        if int(self.n_samples) < 2:
            raise MethodError(f"n_samples must be at least 2, got {self.n_samples!r}")
        count = int(self.n_levels)
        return np.arange(1, count + 1) / (count + 1)

    def _given_support(self) -> tuple[float, float] | None:
        if self.support is None:
            return None
        ends = np.asarray(self.support, dtype=np.float64)
        if ends.shape != (2,) or not np.isfinite(ends).all() or not ends[0] < ends[1]:
            raise MethodError(f"support must be two finite numbers, low < high, got {self.support!r}")
        return float(ends[0]), float(ends[1])

    def _take(self, source: Any, support: tuple[float, float] | None) -> None:
        self.estimator_ = source
        self.levels_ = np.concatenate([[0.0], self._grid(), [1.0]])
        self.support_ = support

    def _train(self, X: Any, y: FloatArray) -> None:
        grid, support = self._grid(), self._given_support()
        source: Any
        if hasattr(self.estimator, "sample"):
            seed = seed_of(self.random_state)
            model = untrained(self.estimator, "model", seed)
            source = DrawnQuantiles(model.fit(X, y), grid, int(self.n_samples), seed)
        else:
            network = seeded_network(self.estimator, self.random_state)
            source = fit_quantiles(network, [float(p) for p in grid], X, y, self.random_state)
        self._take(source, support or (float(y.min()), float(y.max())))

    def _use_fitted(self) -> None:
        grid, support = self._grid(), self._given_support()
        source: DrawnQuantiles | QuantileModel
        if hasattr(self.estimator, "sample"):
            source = DrawnQuantiles(self.estimator, grid, int(self.n_samples), seed_of(self.random_state))
        else:
            source = fitted_quantiles(self.estimator, [float(p) for p in grid])
        self._take(source, support)

    def _knots(self, X: Any, stage: str) -> FloatArray:
        source = self.estimator_
        drawn = isinstance(source, DrawnQuantiles)
        quantiles = source.predict(X, stage) if drawn else source.predict(X)
        refuse_infinite(quantiles, "the model's prediction")
        return with_tails(quantiles, self.support_)

    def _calibrate(self, X: Any, y: FloatArray) -> None:
        self._set_scores(self._knots(X, "calibrate"), y)

    def _intervals(self, X: Any, levels: Sequence[Fraction]) -> FloatArray:
        return self._around(self._knots(X, "predict"), levels)

    def predict(self, X: Any) -> FloatArray:
        """(n,) medians of the model's distributions."""
        self._check_has_model()
        if row_count(X) == 0:
            return np.empty(0)
        return quantile_function(self._knots(X, "predict"), self.levels_, 0.5)

    def calibrate_pred(self, y_pred: Any, y: Any) -> Self:
        """Calibrate from bare predicted quantiles; no model is needed.

        Parameters
        ----------
        y_pred : (n, K) predicted quantiles at k / (K + 1), K = ``n_levels``
        y : (n,) targets
        """
        target = as_vector(y, "y")
        quantiles = self._as_quantiles(y_pred)
        if len(quantiles) != len(target):
            raise DataError(f"y_pred has {len(quantiles)} rows, y has {len(target)}")
        refuse_nan(target, "y")
        refuse_infinite(target, "y")
        self.levels_ = np.concatenate([[0.0], self._grid(), [1.0]])
        self.support_ = self._given_support()
        self._set_scores(with_tails(quantiles, self.support_), target)
        return self

    def predict_interval_pred(self, y_pred: Any, alpha: Any = None) -> FloatArray:
        """(n, 2) intervals from bare predicted quantiles (n, K); (L, n, 2) for a sequence of levels."""
        check_is_fitted(self)
        levels, is_scalar = parse_levels(self.alpha if alpha is None else alpha)
        out = self._around(with_tails(self._as_quantiles(y_pred), self.support_), levels)
        return out[0] if is_scalar else out

    def _as_quantiles(self, values: Any) -> FloatArray:
        quantiles = to_float(to_numpy(values), "y_pred")
        columns = len(self._grid())
        if quantiles.ndim != 2 or quantiles.shape[1] != columns:
            raise DataError(
                f"y_pred has shape {quantiles.shape}; give the {columns} predicted quantiles of each row, "
                f"shape (n, {columns})"
            )
        refuse_nan(quantiles, "y_pred")
        refuse_infinite(quantiles, "y_pred")
        return quantiles

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        model = seeded_network(self.estimator, 0)
        if isinstance(model, BaseEstimator):
            base = model if hasattr(model, "sample") else as_quantile_estimator(model)[0]
            inner = get_tags(base).input_tags
            tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
        return tags
