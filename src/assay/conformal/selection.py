"""Exact order statistics of many rows at once, without the (n_train, n_test) matrix of candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from assay.core.checks import FloatArray

# bisection stops at about this many candidates a row; the rest are compared one by one
_FEW = 48
_MAX_STEPS = 80
_EPS = float(np.finfo(np.float64).eps)

#: (rows, start, stop) -> (len(rows), stop - start) candidate values of these rows
Evaluate = Callable[[NDArray[np.intp], int, int], FloatArray]


def kth_of_shifted(
    offsets: FloatArray, lists: Sequence[FloatArray], k: int, max_bytes: int = 1 << 26
) -> FloatArray:
    """The k-th smallest of ``offsets[f] + lists[f]`` over all lists f, for each column of ``offsets``.

    Bisection on the value keeps, for every column, an interval that surely holds the answer; how many
    candidates of a list fall below a value is one binary search. When few are left they are
    compared as the floating-point sums that they are, so the answer is one of the sums, exact.
    O(K m log n) time for K lists of n values together and m columns.

    Parameters
    ----------
    offsets : (K, m) finite values
    lists : K sorted arrays of finite values, n in all
    k : rank, from 1 to n
    max_bytes : bound of the working set of the last comparison

    Returns
    -------
    (m,) float64 array
    """
    pivot = np.partition(np.concatenate(lists), k - 1)[k - 1]
    lo, hi = offsets.min(axis=0) + pivot, offsets.max(axis=0) + pivot
    # |a| + |v| bounds every number that a search compares: rounding moves a count by less than this
    slack = 4 * _EPS * (np.abs(offsets).max(axis=0) + np.maximum(np.abs(lo), np.abs(hi)))
    n_lo = _count(offsets, lists, lo - slack, "left")
    n_hi = _count(offsets, lists, hi + slack, "right")
    for _ in range(_MAX_STEPS):
        open_rows = np.flatnonzero((n_hi - n_lo > _FEW) & (hi - lo > 4 * slack))
        if len(open_rows) == 0:
            break
        middle = lo[open_rows] + (hi[open_rows] - lo[open_rows]) / 2
        count = _count(offsets[:, open_rows], lists, middle, "right")
        enough = count >= k
        down, up = open_rows[enough], open_rows[~enough]
        hi[down], n_hi[down] = middle[enough] + slack[down], count[enough]
        lo[up], n_lo[up] = middle[~enough] - slack[up], count[~enough]
    return _kth_between(offsets, lists, k, lo - 2 * slack, hi + 2 * slack, max_bytes)


def _count(
    offsets: FloatArray, lists: Sequence[FloatArray], value: FloatArray, side: str
) -> NDArray[np.intp]:
    """How many candidates of each column lie below its value, all lists together."""
    total = np.zeros(offsets.shape[1], dtype=np.intp)
    for offset, values in zip(offsets, lists, strict=True):
        total += np.searchsorted(values, value - offset, side=side)  # type: ignore[call-overload]
    return total


def _kth_between(
    offsets: FloatArray,
    lists: Sequence[FloatArray],
    k: int,
    lo: FloatArray,
    hi: FloatArray,
    max_bytes: int,
) -> FloatArray:
    """The k-th smallest candidate of each column, known to lie strictly between lo and hi."""
    sizes = [len(values) for values in lists]
    flat = np.concatenate(lists)
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    first = np.stack(
        [np.searchsorted(v, lo - a, side="left") for a, v in zip(offsets, lists, strict=True)], axis=1
    )
    last = np.stack(
        [np.searchsorted(v, hi - a, side="right") for a, v in zip(offsets, lists, strict=True)], axis=1
    )
    width = (last - first).sum(axis=1)
    rank = k - first.sum(axis=1)
    out = np.empty(len(lo))
    order = np.argsort(width, kind="stable")
    at = 0
    while at < len(order):
        # widths grow along the order: as many rows as fit beside the widest of them
        block = _block(width[order], at, max_bytes)
        rows = order[at : at + block]
        lengths = (last - first)[rows].ravel()
        ends = np.cumsum(lengths)
        index = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
        source = np.repeat((first[rows] + starts).ravel(), lengths) + index
        values = flat[source] + np.repeat(offsets[:, rows].T.ravel(), lengths)
        table = np.full((len(rows), int(width[rows[-1]])), np.inf)
        table[np.arange(table.shape[1]) < width[rows][:, None]] = values
        table.sort(axis=1)
        out[rows] = table[np.arange(len(rows)), rank[rows] - 1]
        at += block
    return out


def _block(widths: NDArray[np.intp], at: int, max_bytes: int) -> int:
    """How many rows from ``at`` on fit into memory; widths are not decreasing."""
    block = len(widths) - at
    while block > 1 and block * int(widths[at + block - 1]) * 40 > max_bytes:
        block = max(1, block // 2)
    return block


def kth_near_sorted(
    base: FloatArray, k: int, shrink: FloatArray, grow: FloatArray, evaluate: Evaluate, max_bytes: int
) -> FloatArray:
    """The k-th smallest of n candidates a row, each within known factors of a value shared by all rows.

    Candidate i of row x lies in ``[shrink[x] * base[i], grow[x] * base[i]]``. So the answer lies
    between ``shrink * base[k-1]`` and ``grow * base[k-1]``, and only candidates near rank k have to
    be computed: those with ``base`` in ``base[k-1]`` times ``[shrink / grow, grow / shrink]``.

    Parameters
    ----------
    base : (n,) sorted values, not negative
    k : rank, from 1 to n
    shrink, grow : (m,) factors; shrink <= 0 means that nothing is known below
    evaluate : gives the candidates of some rows and a range of positions in ``base``
    max_bytes : bound of the working set

    Returns
    -------
    (m,) float64 array
    """
    n, pivot = len(base), base[k - 1]
    known = shrink > 0
    factor = np.where(known, grow, np.inf) / np.where(known, shrink, 1.0) * (1 + 16 * _EPS)
    with np.errstate(invalid="ignore"):
        first = np.where(known, np.searchsorted(base, pivot / factor, side="left"), 0)
        last = np.where(known, np.searchsorted(base, pivot * factor, side="right"), n)
    out = np.empty(len(shrink))
    order = np.argsort(last - first, kind="stable")
    at = 0
    while at < len(order):
        block = _block((last - first)[order], at, max_bytes)
        rows = order[at : at + block]
        start, stop = int(first[rows].min()), int(last[rows].max())
        values = evaluate(rows, start, stop)
        out[rows] = np.partition(values, k - start - 1, axis=1)[:, k - start - 1]
        at += block
    return out
