"""Nested shortest intervals of histograms, for many rows at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.checks import FloatArray

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

# a mass is reached up to the rounding of a sum of bins
_TOLERANCE = 1e-12


def nested_intervals(cumulative: FloatArray, masses: FloatArray, start: int) -> tuple[IntArray, IntArray]:
    """First and last bin of nested intervals, one a mass.

    At ``masses[start]`` the interval has the fewest bins of all with that mass or more; for larger
    masses the fewest of those that contain the one before, for smaller masses the fewest of those
    inside it. Of equally short ones it is that with the largest mass, then the leftmost.

    Parameters
    ----------
    cumulative : (n, B + 1) array
        Mass left of each bin's edge: 0 first, 1 last, never falling.
    masses : (T,) increasing array in (0, 1]
    start : index into ``masses``

    Returns
    -------
    low, high : (n, T) integer arrays, ``low <= high``
    """
    n, bins = len(cumulative), cumulative.shape[1] - 1
    low = np.zeros((n, len(masses)), dtype=np.int64)
    high = np.full((n, len(masses)), bins - 1, dtype=np.int64)
    if n == 0:
        return low, high
    low[:, start], high[:, start] = _shrink(cumulative, low[:, start], high[:, start], masses[start])
    for t in range(start - 1, -1, -1):
        low[:, t], high[:, t] = _shrink(cumulative, low[:, t + 1], high[:, t + 1], masses[t])
    for t in range(start + 1, len(masses)):
        low[:, t], high[:, t] = _grow(cumulative, low[:, t - 1], high[:, t - 1], masses[t])
    return low, high


def drop_edges(
    cumulative: FloatArray, masses: FloatArray, low: IntArray, high: IntArray, u: FloatArray
) -> tuple[IntArray, IntArray]:
    """Nested intervals without one edge bin at random, so that each has its mass exactly on average.

    An interval heavier than its mass loses a bin with probability (excess / mass of the bin): the
    lighter of its ends that the next smaller interval does not reach. So the intervals stay nested for
    any ``u``, (n,) uniforms in (0, 1). An interval of one bin that loses it is empty: first > last.
    """
    first, last = low.copy(), high.copy()
    n = len(low)
    row = np.arange(n)
    # the last interval that was different: none yet, so that both ends are new
    inner_low, inner_high = np.full(n, cumulative.shape[1]), np.full(n, -1)
    for t, mass in enumerate(masses):
        a, b = low[:, t], high[:, t]
        if t:
            changed = (a != low[:, t - 1]) | (b != high[:, t - 1])
            inner_low = np.where(changed, low[:, t - 1], inner_low)
            inner_high = np.where(changed, high[:, t - 1], inner_high)
        left = np.where(a < inner_low, cumulative[row, a + 1] - cumulative[row, a], np.inf)
        right = np.where(b > inner_high, cumulative[row, b + 1] - cumulative[row, b], np.inf)
        excess = cumulative[row, b + 1] - cumulative[row, a] - mass
        dropped = u * np.minimum(left, right) < excess - _TOLERANCE
        first[:, t] += dropped & (left <= right)
        last[:, t] -= dropped & (left > right)
    return first, last


def _best_window(
    cumulative: FloatArray, rows: IntArray, low: IntArray, high: IntArray, k: IntArray, grow: bool
) -> tuple[FloatArray, IntArray]:
    """Largest mass of windows with k bins more (or fewer) than [low, high], and its first bin, by row.

    Larger windows contain [low, high], smaller ones lie inside it; the mass is -1 where none fits.
    """
    edges = cumulative.shape[1]
    counts = k + 1
    starts = np.cumsum(counts) - counts
    shift = np.arange(int(counts.sum())) - np.repeat(starts, counts)
    size = high - low + 1 + (k if grow else -k)
    left = np.repeat(low, counts) + (-shift if grow else shift)
    # places in the flattened table: one gather an end
    base = np.repeat(rows * edges, counts)
    right = left + np.repeat(size, counts)
    flat = cumulative.reshape(-1)
    if grow:
        fits = (left >= 0) & (right < edges)
        mass = np.where(
            fits, flat[base + np.where(fits, right, 0)] - flat[base + np.where(fits, left, 0)], -1.0
        )
    else:
        mass = flat[base + right] - flat[base + left]
    best = np.maximum.reduceat(mass, starts)
    leftmost = np.where(mass == np.repeat(best, counts), left, edges)
    return best, np.minimum.reduceat(leftmost, starts)


def _grow(cumulative: FloatArray, low: Any, high: Any, mass: float) -> tuple[IntArray, IntArray]:
    def enough(rows: IntArray, k: IntArray) -> BoolArray:
        return _best_window(cumulative, rows, low[rows], high[rows], k, True)[0] >= mass - _TOLERANCE

    k = _least(enough, cumulative.shape[1] - 2 - (high - low))
    first = _best_window(cumulative, np.arange(len(k)), low, high, k, True)[1]
    return first, first + (high - low) + k


def _shrink(cumulative: FloatArray, low: Any, high: Any, mass: float) -> tuple[IntArray, IntArray]:
    def one_more_is_too_many(rows: IntArray, k: IntArray) -> BoolArray:
        best, _ = _best_window(cumulative, rows, low[rows], high[rows], k + 1, False)
        return best < mass - _TOLERANCE

    k = _least(one_more_is_too_many, high - low)
    first = _best_window(cumulative, np.arange(len(k)), low, high, k, False)[1]
    return first, first + (high - low) - k


def _least(holds: Callable[[IntArray, IntArray], BoolArray], limit: IntArray) -> IntArray:
    """(n,) smallest k in 0 .. limit at which ``holds(rows, k)``; it holds at every larger k, and at limit.

    The work is that of windows about as large as the answer: probes double until one holds.
    """
    fails, true = np.full(len(limit), -1, dtype=np.int64), limit.copy()
    active, probe = np.flatnonzero(limit > 0), 0
    while len(active):
        k = np.minimum(probe, limit[active])
        held = k >= limit[active]
        asked = np.flatnonzero(~held)
        if len(asked):
            held[asked] = holds(active[asked], k[asked])
        true[active[held]] = k[held]
        fails[active[~held]] = k[~held]
        active, probe = active[~held], max(1, 2 * probe)
    active = np.flatnonzero(true - fails > 1)
    while len(active):
        k = (true[active] + fails[active]) // 2
        held = holds(active, k)
        true[active[held]] = k[held]
        fails[active[~held]] = k[~held]
        active = active[true[active] - fails[active] > 1]
    return true
