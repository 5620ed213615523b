"""Exact areas of unions of discs of one radius."""

from __future__ import annotations

import numpy as np

from assay.core.checks import FloatArray

_TURN = 2 * np.pi
# arrays of one number a pair of discs that are alive at once
_ARRAYS = 8


def union_areas(centers: FloatArray, radius: FloatArray, max_memory: int) -> FloatArray:
    """(n,) areas of the unions of discs around centers (n, M, 2) with radii (n,), finite and above 0.

    By Green's theorem the area is half the integral of ``x dy - y dx`` along the arcs that lie in no
    other disc. O(M^2 log M) a row.
    """
    n, m, _ = centers.shape
    out = np.empty(n)
    step = max(1, int(max_memory) // (8 * _ARRAYS * m * m))
    for start in range(0, n, step):
        rows = slice(start, start + step)
        # in units of the radius, around the middle: large coordinates would cost digits
        middle = centers[rows].mean(axis=1, keepdims=True)
        points = (centers[rows] - middle) / radius[rows, None, None]
        out[rows] = radius[rows] ** 2 * _areas(points)
    return out


def _areas(points: FloatArray) -> FloatArray:
    """(n,) areas of the unions of unit discs around points (n, M, 2)."""
    n, m, _ = points.shape
    x, y = points[:, :, 0], points[:, :, 1]
    dx, dy = x[:, None, :] - x[:, :, None], y[:, None, :] - y[:, :, None]
    distance = np.sqrt(dx**2 + dy**2)
    # of discs in the same place the first one counts
    same = (distance == 0) & (np.arange(m)[:, None] > np.arange(m)[None, :])
    hidden = same.any(axis=2)
    meets = (distance < 2) & (distance > 0)
    half = np.arccos(np.where(meets, distance / 2, 1.0))
    begin = np.arctan2(dy, dx) - half
    begin = np.where(begin < 0, begin + _TURN, begin)
    begin = np.where(meets, begin, _TURN)
    end = np.where(meets, begin + 2 * half, _TURN)
    # what runs past a full turn covers the start of the circle
    first = np.maximum(end.max(axis=2, initial=0.0) - _TURN, 0.0)
    order = np.argsort(begin, axis=2)
    begin = np.take_along_axis(begin, order, axis=2)
    end = np.maximum.accumulate(np.take_along_axis(end, order, axis=2), axis=2)
    free_from = np.concatenate([first[:, :, None], np.maximum(end, first[:, :, None])], axis=2)
    free_to = np.concatenate([begin, np.full((n, m, 1), _TURN)], axis=2)
    row, disc, arc = np.nonzero((free_to > free_from) & ~hidden[:, :, None])
    t0, t1 = free_from[row, disc, arc], free_to[row, disc, arc]
    # the sine of the float next to 2 pi is not that of 0
    t1_place = np.where(t1 == _TURN, 0.0, t1)
    pieces = (
        (t1 - t0)
        + x[row, disc] * (np.sin(t1_place) - np.sin(t0))
        - y[row, disc] * (np.cos(t1_place) - np.cos(t0))
    )
    return np.asarray(0.5 * np.bincount(row, weights=pieces, minlength=n))
