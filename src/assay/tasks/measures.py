"""Numbers by which intervals and sets are judged. Infinite widths count as infinite and are never dropped."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from assay.core.checks import FloatArray
from assay.core.levels import conformal_rank
from assay.core.seeds import derive_seed

BoolArray = NDArray[np.bool_]

#: sizes of label sets that are judged together (upper ends), from Angelopoulos, Bates, Malik, Jordan (2021)
SIZE_STRATA = (1, 3, 6, 10, 100, 1000)
#: fewer test rows than this: no slab is looked for
MIN_SLAB_ROWS = 100
_DIRECTIONS_AT_ONCE = 250
_MAX_SEARCH_ROWS = 1000
_MAX_LENGTHS = 64


def expected_coverage(n_calib: int, n_test: int, alpha: Fraction, level: float = 0.95) -> tuple[float, float]:
    """Range of the test coverage that an exactly valid method shows with probability ``level``.

    With n_calib calibration rows the coverage itself is Beta(k, n_calib + 1 - k), k the conformal
    rank, and the number of covered test rows beta-binomial. A method without a calibration part learns
    what to cover from all of its training rows: give their number (nearly exact for full conformal
    prediction and jackknife+ around stable models; a binomial range would be too narrow).
    """
    tail = (1 - level) / 2
    k = conformal_rank(n_calib, alpha)
    if k > n_calib:
        return 1.0, 1.0
    law = stats.betabinom(n_test, k, n_calib + 1 - k)
    return float(law.ppf(tail) / n_test), float(law.ppf(1 - tail) / n_test)


def interval_widths(interval: FloatArray) -> FloatArray:
    """(n,) widths of (n, 2) intervals: 0 where empty (lower above upper), inf where an end is infinite."""
    lower, upper = interval[:, 0], interval[:, 1]
    with np.errstate(invalid="ignore"):
        width = upper - lower
    width[is_empty(interval)] = 0.0
    return np.asarray(width)


def is_empty(interval: FloatArray) -> BoolArray:
    """(n,) whether no finite number lies in the interval."""
    lower, upper = interval[:, 0], interval[:, 1]
    return np.asarray((lower > upper) | (lower == np.inf) | (upper == -np.inf))


def covers(interval: FloatArray, y: FloatArray) -> BoolArray:
    """(n,) whether lower <= y <= upper."""
    return np.asarray((interval[:, 0] <= y) & (y <= interval[:, 1]))


def interval_score(interval: FloatArray, y: FloatArray, alpha: Fraction) -> FloatArray:
    """(n,) Winkler scores: width + (2 / alpha) x distance by which y lies outside; lower is better.

    Winkler (1972); Gneiting and Raftery (2007). An empty interval has width 0 and y pays
    its distance to each of the ends it lies on the wrong side of.
    """
    penalty = float(2 / alpha)
    with np.errstate(invalid="ignore"):
        below = np.maximum(interval[:, 0] - y, 0.0)
        above = np.maximum(y - interval[:, 1], 0.0)
    return np.asarray(interval_widths(interval) + penalty * (below + above))


def sizes(interval: FloatArray, y: FloatArray, width: FloatArray, alpha: Fraction) -> dict[str, float]:
    """The metrics of (n, 2) intervals that tables of rows and streams of steps have in common.

    ``width`` (n,) is that of the intervals, or of sets of which they are the hull.
    """
    return {
        "mean_width": float(width.mean()),
        "median_width": float(np.median(width)),
        "share_infinite": float(np.isinf(width).mean()),
        "share_empty": float(is_empty(interval).mean()),
        "interval_score": float(interval_score(interval, y, alpha).mean()),
    }


def width_groups(
    interval: FloatArray, groups: int = 5, *, width: FloatArray | None = None
) -> list[NDArray[np.intp]]:
    """Rows by quintile of width, equal widths together; an empty list where all widths are equal.

    ``width`` are those of the intervals if not given. Widths that differ by rounding only (1e-13 of
    the largest finite end) count as equal.
    """
    if width is None:
        width = interval_widths(interval)
    finite = interval[np.isfinite(interval)]
    tolerance = 1e-13 * (np.abs(finite).max() if finite.size else 0.0)
    order = np.argsort(width, kind="stable")
    ordered = width[order]
    with np.errstate(invalid="ignore"):
        starts_new = np.diff(ordered) > tolerance
    rank = np.concatenate([[0], np.cumsum(starts_new)])
    if len(width) == 0 or rank[-1] == 0:
        return []
    cuts = [rank[max(int(np.ceil(len(width) * i / groups)) - 1, 0)] for i in range(1, groups)]
    group = np.searchsorted(cuts, rank, side="left")
    return [order[group == g] for g in range(groups) if (group == g).any()]


def width_quintile_gap(interval: FloatArray, y: FloatArray, alpha: Fraction) -> float:
    """Mean of abs(coverage - (1 - alpha)) over quintiles of width; NaN where all widths are equal."""
    return coverage_gap(width_groups(interval), covers(interval, y), alpha)


def coverage_gap(groups: list[NDArray[np.intp]], covered: BoolArray, alpha: Fraction) -> float:
    """Mean of abs(coverage - (1 - alpha)) over groups of rows; NaN for no groups."""
    if not groups:
        return float("nan")
    return float(np.mean([abs(covered[rows].mean() - float(1 - alpha)) for rows in groups]))


@dataclass(frozen=True)
class Slab:
    """The rows between two parallel planes: coverage there, how many rows, their share, the direction."""

    coverage: float
    n: int
    mass: float
    direction: FloatArray


def worst_slab(
    X: FloatArray, covered: BoolArray, *, seed: int, mass: float = 0.1, directions: int = 1000
) -> Slab | None:
    """Coverage in the slab ``a <= v.x <= b`` where it is worst; None below ``MIN_SLAB_ROWS`` rows.

    A quarter of the rows picks, among random unit directions v on standardised features, the slab
    with the lowest coverage that holds at least ``mass`` of them; the other rows measure it, so the
    search does not bias the answer. Cauchois, Gupta, Duchi (2021); Romano, Sesia, Candes (2020).

    Parameters
    ----------
    X : (n, d) float64
    covered : (n,) bool
    seed : int
        Of the split in two and of the directions.
    """
    n = len(covered)
    if n < MIN_SLAB_ROWS or X.shape[1] == 0:
        return None
    rng = np.random.default_rng(derive_seed("slab", seed))
    order = rng.permutation(n)
    search, measure = order[: n // 4][:_MAX_SEARCH_ROWS], order[n // 4 :]
    sd = X.std(axis=0)
    varies = np.flatnonzero(sd > 1e-12 * np.abs(X).max(axis=0))
    if not len(varies):
        return None
    Z = (X[:, varies] - X[:, varies].mean(axis=0)) / sd[varies]
    best = (np.inf, np.zeros(len(varies)), 0.0, 0.0)
    for start in range(0, directions, _DIRECTIONS_AT_ONCE):
        V = rng.standard_normal((min(_DIRECTIONS_AT_ONCE, directions - start), len(varies)))
        V /= np.linalg.norm(V, axis=1, keepdims=True)
        found = _worst_run(V @ Z[search].T, covered[search], mass)
        if found[0] < best[0]:
            best = (found[0], V[found[1]], found[2], found[3])
    position = Z[measure] @ best[1]
    inside = (position >= best[2]) & (position <= best[3])
    count = int(inside.sum())
    direction = np.zeros(X.shape[1])
    direction[varies] = best[1]
    coverage = float(covered[measure][inside].mean()) if count else float("nan")
    return Slab(coverage, count, count / len(measure), direction)


def _worst_run(position: FloatArray, covered: BoolArray, mass: float) -> tuple[float, int, float, float]:
    """(coverage, direction, from, to) of the worst run of ``mass`` of the rows or more, by (v, n) positions.

    A run of 2 m rows or more holds a shorter one that is no better, so lengths below 2 m suffice.
    """
    n = len(covered)
    shortest = max(int(np.ceil(mass * n)), 1)
    order = np.argsort(position, axis=1)
    sums = np.zeros((len(position), n + 1), dtype=np.int32)
    np.cumsum(covered[order], axis=1, out=sums[:, 1:])
    lengths = np.unique(np.linspace(shortest, min(2 * shortest - 1, n), _MAX_LENGTHS).astype(int))
    best = (np.inf, 0, 0, 0)
    for length in lengths:
        inside = sums[:, length:] - sums[:, :-length]
        at = int(inside.argmin())
        coverage = float(inside.flat[at]) / float(length)
        if coverage < best[0]:
            direction, start = divmod(at, inside.shape[1])
            best = (coverage, direction, start, int(length))
    coverage, direction, start, length = best
    rows = order[direction]
    return (
        coverage,
        direction,
        float(position[direction, rows[start]]),
        float(position[direction, rows[start + length - 1]]),
    )


def size_strata(sizes: NDArray[np.intp]) -> list[tuple[str, NDArray[np.intp]]]:
    """(label, rows) of the non-empty strata 0-1, 2-3, 4-6, 7-10, 11-100, 101-1000 and more, by set size."""
    stratum = np.searchsorted(SIZE_STRATA, sizes, side="left")
    lows = (0, *(end + 1 for end in SIZE_STRATA))
    labels = [f"{low}-{end}" for low, end in zip(lows, SIZE_STRATA, strict=False)] + [f"{lows[-1]} or more"]
    return [(labels[s], np.flatnonzero(stratum == s)) for s in np.unique(stratum)]


def size_stratified_gap(
    sizes: NDArray[np.intp], covered: BoolArray, alpha: Fraction, min_rows: int = 1
) -> float:
    """Largest abs(coverage - (1 - alpha)) over strata of set size with ``min_rows`` rows; NaN without any.

    The size-stratified coverage violation of Angelopoulos, Bates, Malik, Jordan (2021).
    """
    gaps = [
        abs(float(covered[rows].mean()) - float(1 - alpha))
        for _, rows in size_strata(sizes)
        if len(rows) >= min_rows
    ]
    return max(gaps, default=float("nan"))


def class_coverage(
    true: NDArray[np.intp], covered: BoolArray, n_classes: int
) -> tuple[FloatArray, NDArray[np.intp]]:
    """((K,) coverage among the test rows of each class, NaN without any; (K,) numbers of rows)."""
    count = np.bincount(true, minlength=n_classes)
    hits = np.bincount(true, weights=covered.astype(np.float64), minlength=n_classes)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(count > 0, hits / count, np.nan)), count


def evenly_spread(order: NDArray[Any], most: int) -> NDArray[Any]:
    """At most ``most`` elements, evenly spread over the array, ends included."""
    if len(order) <= most:
        return order
    return np.asarray(order[np.linspace(0, len(order) - 1, most).round().astype(int)])


def binomial_coverage(n: int, alpha: Fraction, level: float = 0.95) -> tuple[float, float]:
    """Range of the coverage over n steps with probability ``level``; each misses alone, with chance alpha."""
    law = stats.binom(n, float(1 - alpha))
    tail = (1 - level) / 2
    return float(law.ppf(tail) / n), float(law.ppf(1 - tail) / n)


def rolling_coverage(hits: BoolArray, window: int) -> FloatArray:
    """(n - window + 1,) share of hits over each run of ``window`` steps; empty for fewer steps."""
    if len(hits) < window:
        return np.empty(0)
    total = np.concatenate([[0], np.cumsum(hits)])
    return np.asarray((total[window:] - total[:-window]) / window)


def rolling_gap(hits: BoolArray, judged: BoolArray, window: int, alpha: Fraction) -> float:
    """Largest abs(coverage - (1 - alpha)) over ``window`` judged steps in a row, mean over series.

    ``hits`` and ``judged`` are (n_series, T). Series with fewer judged steps are left out; NaN without any.
    """
    gaps = [
        float(np.abs(rolling_coverage(of[steps], window) - float(1 - alpha)).max())
        for of, steps in zip(hits, judged, strict=True)
        if steps.sum() >= window
    ]
    return float(np.mean(gaps)) if gaps else float("nan")
