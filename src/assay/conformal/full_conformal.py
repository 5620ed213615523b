"""Full conformal sets of residuals that are linear in the candidate label. Arrays only, no model.

After a refit on the n training rows and (x, y) the residuals are ``R_i(y) = a_i + b_i y`` and, for
the new row, ``R(y) = a_star + b_star y``. The set of x is
``{y : (1 + #{i : |R_i(y)| >= |R(y)|}) / (n + 1) > alpha}``, answered by its convex hull.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from assay.conformal.cross_fit import MAX_MEMORY, row_blocks
from assay.core.checks import FloatArray, refuse_infinite, refuse_nan
from assay.core.errors import DataError, MethodError
from assay.core.levels import conformal_rank, lower_rank, parse_levels, warn_infinite

SCORES = ("standard", "deleted", "studentized")
SOLVERS = ("exact", "two_sided")
# least 1 - h of a row in the refit: a row that determines its own prediction has no residual to scale
_LEAST_FREEDOM = 1e-4
# bytes a test and training row of a sweep: four events of three arrays each
_SWEEP_BYTES = 200

Coefficients = tuple[FloatArray, FloatArray, FloatArray, FloatArray]


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuse a value that is none of the choices."""
    if value not in choices:
        raise MethodError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def ridge_residual_coefficients(
    r: FloatArray,
    f_star: FloatArray,
    h_star: FloatArray,
    h_cross: FloatArray,
    h_train: FloatArray,
    score: str = "studentized",
) -> Coefficients:
    """Residuals of a ridge regression refitted with (x, y), as linear functions of y.

    With hat values h of the fit without x, ``b_i = -h_cross_i / (1 + h_star)``,
    ``a_i = r_i - b_i f_star``, ``b_star = 1 / (1 + h_star)``, ``a_star = -f_star / (1 + h_star)``.
    "deleted" divides by ``1 - g`` and "studentized" by its root, g the hat value in the refit,
    ``g_i = h_i - h_cross_i^2 / (1 + h_star)`` and ``g_star = h_star / (1 + h_star)``; ``1 - g`` is
    taken as at least 1e-4.

    Parameters
    ----------
    r : (n,) residuals y - f of the training rows
    f_star : (m,) predictions of the new rows; zeros give sets of y - f_star
    h_star : (m,) hat values of the new rows
    h_cross : (m, n) weight of each training row in each new prediction
    h_train : (n,) hat values of the training rows
    score : "standard", "deleted" or "studentized"

    Returns
    -------
    a, b : (m, n) arrays
    a_star, b_star : (m,) arrays
        All new; the inputs are left as they are.
    """
    check_choice("score", score, SCORES)
    b_star = 1 / (1 + h_star)
    b = h_cross * -b_star[:, None]
    a = r - b * f_star[:, None]
    a_star = -f_star * b_star
    if score == "standard":
        return a, b, a_star, b_star
    # b h_cross = -h_cross^2 / (1 + h_star)
    free = np.maximum(1 - h_train - b * h_cross, _LEAST_FREEDOM)
    free_star = np.maximum(b_star, _LEAST_FREEDOM)
    if score == "studentized":
        np.sqrt(free, out=free)
        np.sqrt(free_star, out=free_star)
    a /= free
    b /= free
    return a, b, a_star / free_star, b_star / free_star


def full_conformal_interval(
    a: FloatArray,
    b: FloatArray,
    a_star: FloatArray,
    b_star: FloatArray,
    alpha: Any,
    solver: str = "exact",
    *,
    max_memory: int = MAX_MEMORY,
) -> FloatArray:
    """Convex hull of the full conformal set of each new row.

    "exact" solves every training row's condition ``|R_i(y)| >= |R(y)|``, an interval or two rays,
    and finds the outermost y that lies in enough of them. "two_sided" takes signed residuals at
    alpha / 2 a side: with ``t_i = (a_i - a_star) / (b_star - b_i)`` where ``b_star > b_i`` (elsewhere
    unbounded) the ends are the ``floor(alpha / 2 (n + 1))``-th and ``ceil((1 - alpha / 2)(n + 1))``-th
    smallest. Time O(m n), and O(m n log n) for rows with some ``|b_i| >= b_star``.

    Parameters
    ----------
    a, b : (m, n) finite arrays; a may be (n,)
    a_star, b_star : (m,) arrays, b_star above 0
    alpha : level, or sequence of L levels
    solver : "exact" or "two_sided"
    max_memory : int
        Bound in bytes of the working set of rows with some ``|b_i| >= b_star``.

    Returns
    -------
    (m, 2), or (L, m, 2) float64 array; infinite ends where the set is unbounded, or n is too small
    (with a warning).

    Raises
    ------
    DataError
        NaN or infinite values, or b_star not above 0.
    """
    check_choice("solver", solver, SOLVERS)
    levels, is_scalar = parse_levels(alpha)
    for name, values in (("a", a), ("b", b), ("a_star", a_star), ("b_star", b_star)):
        refuse_nan(values, name)
        refuse_infinite(values, name)
    if len(b_star) and not (b_star > 0).all():
        raise DataError(f"b_star is not above 0 in {int((b_star <= 0).sum())} of {len(b_star)} rows")
    solve = _exact if solver == "exact" else _two_sided
    out = solve(np.broadcast_to(a, b.shape), b, a_star, b_star, levels, max_memory)
    return out[0] if is_scalar else out


def _two_sided(
    a: FloatArray,
    b: FloatArray,
    a_star: FloatArray,
    b_star: FloatArray,
    levels: Sequence[Fraction],
    max_memory: int,
) -> FloatArray:
    m, n = b.shape
    gap = b_star[:, None] - b
    one_end = gap > 0
    t = np.divide(a - a_star[:, None], gap, out=np.empty_like(gap), where=one_end)
    out = np.empty((len(levels), m, 2))
    for ends, level in zip(out, levels, strict=True):
        ranks = lower_rank(n, level / 2), conformal_rank(n, level / 2)
        if ranks[0] < 1:
            warn_infinite(n, level / 2, "interval", stacklevel=5)
            ends[:] = [-np.inf, np.inf]
            continue
        for column, rank in enumerate(ranks):
            candidates = np.where(one_end, t, -np.inf if column == 0 else np.inf)
            candidates.partition(rank - 1, axis=1)
            ends[:, column] = candidates[:, rank - 1]
    return out


def _exact(
    a: FloatArray,
    b: FloatArray,
    a_star: FloatArray,
    b_star: FloatArray,
    levels: Sequence[Fraction],
    max_memory: int,
) -> FloatArray:
    m, n = b.shape
    near = np.maximum(b.max(axis=1), -b.min(axis=1)) < b_star
    low, high = _bounded_sets(*_rows(a, b, a_star, b_star, near))
    far_a, far_b, far_a_star, far_b_star = a[~near], b[~near], a_star[~near], b_star[~near]
    out = np.empty((len(levels), m, 2))
    for ends, level in zip(out, levels, strict=True):
        need = lower_rank(n, level)
        if need < 1:
            warn_infinite(n, level, "interval", stacklevel=5)
            ends[:] = [-np.inf, np.inf]
            continue
        low.partition(need - 1, axis=1)
        high.partition(n - need, axis=1)
        ends[near] = np.column_stack([low[:, need - 1], high[:, n - need]])
        above = outermost(far_a, far_b, far_a_star, far_b_star, need, max_memory)
        below = outermost(far_a, -far_b, far_a_star, -far_b_star, need, max_memory)
        ends[~near] = np.column_stack([-below, above])
    return out


def _rows(a: FloatArray, b: FloatArray, a_star: FloatArray, b_star: FloatArray, keep: Any) -> Coefficients:
    return (a, b, a_star, b_star) if keep.all() else (a[keep], b[keep], a_star[keep], b_star[keep])


def _bounded_sets(
    a: FloatArray, b: FloatArray, a_star: FloatArray, b_star: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """(m, n) ends of the rows' sets where all ``|b_i| < b_star``: intervals with a point in common.

    They all hold the zero of R, so that k of them reach as far as the k-th outermost end.
    """
    p, gap = a + a_star[:, None], b + b_star[:, None]
    np.divide(p, gap, out=p)
    np.negative(p, out=p)
    q = np.subtract(a, a_star[:, None])
    np.subtract(b_star[:, None], b, out=gap)
    np.divide(q, gap, out=q)
    low = np.minimum(p, q, out=gap)
    return low, np.maximum(p, q, out=p)


def outermost(
    a: FloatArray,
    b: FloatArray,
    a_star: FloatArray | float,
    b_star: FloatArray | float,
    need: int,
    max_memory: int = MAX_MEMORY,
) -> FloatArray:
    """Largest y that lies in at least ``need`` of the sets ``{y : |a_i + b_i y| >= |a_star + b_star y|}``.

    ``a`` and ``b`` are (m, n), ``a_star`` and ``b_star`` (m,), ``b_star`` not 0; the answer (m,) is
    +inf where ``need`` sets are unbounded above.
    """
    m, n = b.shape
    a = np.broadcast_to(a, b.shape)
    a_star, b_star = np.broadcast_to(a_star, m), np.broadcast_to(b_star, m)
    out = np.empty(m)
    for rows in row_blocks(m, n * _SWEEP_BYTES, max_memory):
        out[rows] = _sweep(a[rows], b[rows], a_star[rows, None], b_star[rows, None], need)
    return out


def _sweep(a: FloatArray, b: FloatArray, a_star: FloatArray, b_star: FloatArray, need: int) -> FloatArray:
    # |.| does not see the sign of a residual: all slopes are made not negative
    a_star, b_star = np.where(b_star < 0, -a_star, a_star), np.abs(b_star)
    a, b = np.where(b < 0, -a, a), np.abs(b)
    p = -(a + a_star) / (b + b_star)
    with np.errstate(divide="ignore", invalid="ignore"):
        q = (a - a_star) / (b_star - b)
    bounded, parallel = b < b_star, b == b_star
    low, high = np.minimum(p, q), np.maximum(p, q)
    # one change point: a ray; none, or two that coincide between two rays: the whole line
    whole = (parallel & (a == a_star)) | (~bounded & ~parallel & (p == q))
    upward, downward = parallel & (a > a_star), parallel & (a < a_star)
    rays = ~bounded & ~parallel & ~whole
    # a set is [low, high], or a ray, or all up to low and, second, all from high on
    start = np.where(bounded, low, np.where(upward, p, -np.inf))
    end = np.where(bounded, high, np.where(upward | whole, np.inf, np.where(downward, p, low)))
    # walking down from +inf: a closed end opens its set before a start at the same place closes one
    place = np.concatenate(
        [end, np.where(rays, np.inf, -np.inf), start, np.where(rays, high, -np.inf)], axis=1
    )
    step = np.concatenate(
        [np.ones(b.shape, dtype=np.int8), rays, -np.ones(b.shape, dtype=np.int8), -rays.astype(np.int8)],
        axis=1,
    )
    order = np.argsort(-place, axis=1, kind="stable")
    depth = np.cumsum(np.take_along_axis(step, order, axis=1), axis=1, dtype=np.intp)
    reached = np.argmax(depth >= need, axis=1)
    return np.take_along_axis(place, np.take_along_axis(order, reached[:, None], axis=1), axis=1)[:, 0]
