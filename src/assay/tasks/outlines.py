"""Outlines in the plane of regions with two outputs, for pictures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.checks import FloatArray, to_numpy

_GRID = 40
_BISECTIONS = 8
_BOUNDARY_POINTS = 72
#: an outline of more points than this is thinned
_MAX_POINTS = 90
#: pieces of one region that are drawn, the largest first
_MAX_PIECES = 6


def outlines(region: Any, rows: NDArray[np.intp], frame: FloatArray) -> list[list[FloatArray]] | None:
    """Closed outlines of the regions of ``rows``, each (m, 2); None where the region has no way to give them.

    A region with ``boundary(n_points)`` says itself where it ends. Of one with ``take(rows)`` the border
    is found: membership on a grid over its ``bounding_box()`` (else the ``frame``, (2, 2): lower and
    upper end of each output), then by bisection between neighbours of which one lies inside. What is
    unbounded ends at the frame.
    """
    if not callable(getattr(region, "take", None)):
        return None
    chosen = region.take(rows)
    if callable(getattr(chosen, "boundary", None)):
        border = to_numpy(chosen.boundary(_BOUNDARY_POINTS)).astype(np.float64)
        return [[line] if np.isfinite(line).all() else [] for line in border]
    boxes = np.broadcast_to(frame, (len(rows), 2, 2))
    if callable(getattr(chosen, "bounding_box", None)):
        found = to_numpy(chosen.bounding_box()).astype(np.float64)
        boxes = np.where(np.isfinite(found), found, boxes)
    return [_traced(_member(region, row), box) for row, box in zip(rows, boxes, strict=True)]


def _member(region: Any, row: int) -> Callable[[FloatArray], NDArray[np.bool_]]:
    """Whether points (m, 2) lie in the region of one row."""

    def member(points: FloatArray) -> NDArray[np.bool_]:
        return np.asarray(region.take(np.repeat(row, len(points))).contains(points), dtype=bool)

    return member


def _traced(member: Callable[[FloatArray], NDArray[np.bool_]], box: FloatArray) -> list[FloatArray]:
    """Outlines of the set in the box, whose own border counts as outside."""
    low, high = box[:, 0], box[:, 1]
    if not (high > low).all():
        return []
    pad = 0.02 * (high - low)
    axes = [np.linspace(low[k] - pad[k], high[k] + pad[k], _GRID) for k in range(2)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    held = member(points.reshape(-1, 2)).reshape(_GRID, _GRID)
    held[[0, -1]] = held[:, [0, -1]] = False
    crossing = _crossings(member, points, held)
    return _linked(held, crossing)


#: an edge of the grid: the point where it starts, and 0 or 1 for the axis along which it runs
_Edge = tuple[int, int, int]


def _crossings(
    member: Callable[[FloatArray], NDArray[np.bool_]], points: FloatArray, held: NDArray[np.bool_]
) -> dict[_Edge, FloatArray]:
    """Where the border cuts each edge between a point inside and one outside."""
    edges: list[_Edge] = []
    for axis in range(2):
        cut = np.diff(held, axis=axis)
        edges += [(int(i), int(j), axis) for i, j in np.argwhere(cut)]
    if not edges:
        return {}
    i, j, axis = np.array(edges).T
    start, end = points[i, j], points[i + (axis == 0), j + (axis == 1)]
    begins_inside = held[i, j]
    inside = np.where(begins_inside[:, None], start, end)
    outside = np.where(begins_inside[:, None], end, start)
    for _ in range(_BISECTIONS):
        middle = (inside + outside) / 2
        within = member(middle)[:, None]
        inside, outside = np.where(within, middle, inside), np.where(within, outside, middle)
    return dict(zip(edges, (inside + outside) / 2, strict=True))


def _linked(held: NDArray[np.bool_], crossing: dict[_Edge, FloatArray]) -> list[FloatArray]:
    """Closed lines through the crossings, from cell to cell; the largest pieces."""
    neighbours: dict[_Edge, list[_Edge]] = {edge: [] for edge in crossing}
    cells = {(i - di, j - dj) for i, j, axis in crossing for di, dj in ((0, 0), (axis == 1, axis == 0))}
    for i, j in cells:
        if not (0 <= i < len(held) - 1 and 0 <= j < len(held) - 1):
            continue
        around: list[_Edge] = [(i, j, 0), (i + 1, j, 1), (i, j + 1, 0), (i, j, 1)]
        cut = [edge for edge in around if edge in crossing]
        # in a saddle the two corners inside are kept apart
        pairs = [(0, 1)] if len(cut) == 2 else [(0, 3), (1, 2)] if held[i, j] else [(0, 1), (2, 3)]
        for a, b in pairs:
            neighbours[cut[a]].append(cut[b])
            neighbours[cut[b]].append(cut[a])
    lines, seen = [], set()
    for first in crossing:
        if first in seen:
            continue
        path, edge = [], first
        while edge not in seen:
            seen.add(edge)
            path.append(edge)
            edge = next((other for other in neighbours[edge] if other not in seen), edge)
        if len(path) > 2:
            lines.append(np.array([crossing[edge] for edge in path]))
    lines.sort(key=lambda line: -abs(_area(line)))
    return [line[:: -(-len(line) // _MAX_POINTS)] for line in lines[:_MAX_PIECES]]


def _area(line: FloatArray) -> float:
    x, y = line.T
    return float(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2
