"""Full conformal prediction for ridge regression, exact."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import clone
from sklearn.linear_model import Ridge

from assay.conformal.cross_fit import MAX_MEMORY, check_max_memory, row_blocks
from assay.conformal.interval_base import IntervalRegressor, training_target
from assay.conformal.linear_leverage import Leverage, linear_settings
from assay.conformal.selection import kth_near_sorted
from assay.core.checks import FloatArray, row_count, to_float, to_numpy
from assay.core.errors import AssayWarning, DataError, MethodError
from assay.core.levels import lower_rank, parse_levels, warn_infinite
from assay.core.models import predict_values
from assay.core.state import all_or_nothing

# beyond this bound on |h| a training row's own set may be unbounded: the general sweep decides
_SAFE_REACH = 1 - 1e-6


class FullConformalRidge(IntervalRegressor):
    """Full conformal intervals around ridge regression: every row trains and calibrates, one fit.

    A candidate y belongs to the set of x when, after refitting on the n rows and (x, y), the
    residual of (x, y) is not among the largest: ``(1 + #{|R_i(y)| >= |R(y)|}) / (n + 1) > alpha``.
    All residuals are linear in y, so the set is found without a grid and without refitting; the
    answer is its convex hull. With ``u = (y - f(x)) / (1 + h(x, x))`` the residuals are
    ``R_i = r_i - u h(x, i)`` and ``R = u``, so each row's condition
    ``(r_i - u (h + 1)) (r_i - u (h - 1)) >= 0`` is an interval of u or two rays.

    A row that differs from the training rows where these do not differ among themselves (a constant
    column, more columns than rows) weighs the more in its own refit: its interval is wider, and without
    a penalty infinite, with a warning.

    Parameters
    ----------
    estimator : Ridge or LinearRegression, default Ridge()
        Unfitted; ``Ridge(alpha=...)`` is the penalty on the squared coefficients, the intercept is
        not penalised.
    alpha : level, default 0.1
        Miscoverage.
    max_memory : int, default 256 MiB
        Bound in bytes of the working set of a prediction; it does not change the answer.

    Attributes
    ----------
    estimator_ : the model of the n rows
    leverage_ : hat values of the rows

    References
    ----------
    Vovk, Gammerman, Shafer (2005), Algorithmic learning in a random world, sec. 2.3.
    Nouretdinov, Melluish, Vovk (2001), Ridge regression confidence machine.
    """

    def __init__(self, estimator: Any = None, *, alpha: Any = 0.1, max_memory: int = MAX_MEMORY) -> None:
        self.estimator = estimator
        self.alpha = alpha
        self.max_memory = max_memory

    def fit(self, X: Any, y: Any) -> Self:
        """Fit the ridge regression and its hat values.

        Parameters
        ----------
        X : (n, d) dense table of numbers
        y : (n,) numbers

        Raises
        ------
        MethodError
            The estimator is no Ridge or LinearRegression with a direct solver.
        DataError
            NaN or infinite values, lengths that differ, sparse X.
        """
        y = training_target(X, y)
        parse_levels(self.alpha)
        base = Ridge() if self.estimator is None else self.estimator
        settings = linear_settings(base)
        if settings is None:
            raise MethodError(
                f"the estimator must be Ridge or LinearRegression with a direct solver and coefficients of "
                f"any sign, got {base!r}; other models have no exact full conformal set"
            )
        check_max_memory(self.max_memory)
        if len(y) < 2:
            raise DataError(f"{len(y)} sample(s) given: at least 2 are needed")
        if issparse(X):
            raise DataError("X is sparse; give a dense table")
        with all_or_nothing(self):
            self.estimator_ = clone(base).fit(X, y)
            leverage = Leverage(to_float(to_numpy(X), "X"), *settings)
            residuals = y - predict_values(self.estimator_, X)
            order = np.argsort(np.abs(residuals), kind="stable")
            leverage.rows = np.ascontiguousarray(leverage.rows[order])
            self.leverage_ = leverage
            self._residuals = residuals[order]
        return self

    def _intervals(self, X: Any, levels: Sequence[Fraction]) -> FloatArray:
        centre = self.predict(X)
        if issparse(X):
            raise DataError("X is sparse; give a dense table")
        table = to_float(to_numpy(X), "X")
        weights = self.leverage_.coordinates(table)
        own = np.einsum("ij,ij->i", weights, weights)
        reach = np.sqrt(own * self.leverage_.own.max()) * (1 + 1e-9) + 1e-12
        near = np.flatnonzero(reach < _SAFE_REACH)
        far = np.flatnonzero(reach >= _SAFE_REACH)
        own += self.leverage_.outside(table)
        free = np.isinf(own)
        if free.any():
            warnings.warn(
                f"{int(free.sum())} of {len(free)} rows, first row {int(free.argmax())}, differ from the "
                "training rows where these do not differ among themselves: without a penalty the model fits "
                "any target of theirs, and their intervals are infinite; Ridge with alpha > 0 gives finite "
                "ones",
                AssayWarning,
                stacklevel=4,
            )
            own[free] = 0.0
        n = len(self._residuals)
        out = np.empty((len(levels), row_count(X), 2))
        for ends, level in zip(out, levels, strict=True):
            need = lower_rank(n, level)
            if need < 1:
                warn_infinite(n, level, "interval", stacklevel=4)
                ends[:] = [-np.inf, np.inf]
                continue
            for column, side in ((0, -1), (1, 1)):
                ends[near, column] = side * self._end_near(weights[near], reach[near], n + 1 - need, side)
                ends[far, column] = side * self._end_far(weights[far], need, side)
            ends *= (1 + own)[:, None]
            ends += centre[:, None]
            ends[free] = [-np.inf, np.inf]
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    def _end_near(self, weights: FloatArray, reach: FloatArray, rank: int, side: int) -> FloatArray:
        """Far end of the set in u on one side where all |h| < 1: each row's set holds 0 and ends once.

        That end is ``|r| / (1 + side sign(r) h)``; ``need`` sets reach as far as the rank-th smallest.
        """
        residuals, trained = self._residuals, self.leverage_.rows
        size = np.abs(residuals)
        sign = side * np.sign(residuals)

        def candidates(rows: NDArray[np.intp], start: int, stop: int) -> FloatArray:
            hat: FloatArray = weights[rows] @ trained[start:stop].T
            hat *= sign[start:stop]
            hat += 1
            np.divide(size[start:stop], hat, out=hat)
            return hat

        return kth_near_sorted(size, rank, 1 / (1 + reach), 1 / (1 - reach), candidates, self.max_memory)

    def _end_far(self, weights: FloatArray, need: int, side: int) -> FloatArray:
        """Far end of the set in u on one side, for any h: a sweep over the ends of all rows' sets."""
        out = np.empty(len(weights))
        for rows in row_blocks(len(weights), len(self._residuals) * 160, self.max_memory):
            hat = side * (weights[rows] @ self.leverage_.rows.T)
            out[rows] = _largest_covered(self._residuals, hat, need)
        return out


def _largest_covered(r: FloatArray, h: FloatArray, need: int) -> FloatArray:
    """Largest u that lies in at least ``need`` of the sets {u : (r - u (h + 1)) (r - u (h - 1)) >= 0}.

    ``r`` is (n,), ``h`` (m, n); the answer (m,), +inf where ``need`` sets are unbounded above.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        one, two = r / (1 + h), r / (h - 1)
    low, high = np.minimum(one, two), np.maximum(one, two)
    inside = np.abs(h) < 1
    # |h| < 1: [low, high]; |h| > 1: two rays, up to low and from high on
    starts = [np.where(inside, low, -np.inf), np.where(inside, np.inf, high)]
    ends = [np.where(inside, high, low), np.full_like(h, np.inf)]
    second = ~inside
    edge = (np.abs(h) == 1) | ((r == 0) & ~inside)
    if edge.any():
        # |h| = 1 has one root: a ray on the side of the sign of -r h; r = 0 leaves the whole line
        root, flat = np.broadcast_to(r, h.shape) * h / 2, np.broadcast_to(r == 0, h.shape)
        upward = np.broadcast_to(r, h.shape) * h < 0
        starts[0] = np.where(edge, np.where(upward & ~flat, root, -np.inf), starts[0])
        ends[0] = np.where(edge, np.where(upward | flat, np.inf, root), ends[0])
        second &= ~edge
    # walking down from +inf: a closed end opens its set before a start at the same place closes one
    place = np.concatenate([*ends, *starts], axis=1)
    step = np.concatenate(
        [np.ones_like(h, dtype=np.int8), second, -np.ones_like(h, dtype=np.int8), -second.astype(np.int8)],
        axis=1,
    )
    order = np.argsort(-place, axis=1, kind="stable")
    depth = np.cumsum(np.take_along_axis(step, order, axis=1), axis=1, dtype=np.intp)
    reached = np.argmax(depth >= need, axis=1)
    return np.take_along_axis(place, np.take_along_axis(order, reached[:, None], axis=1), axis=1)[:, 0]
