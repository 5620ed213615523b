"""Weights of past windows by a kernel, corrected by empirical likelihood; the bandwidth by AICc."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from assay.core.checks import FloatArray, check_target
from assay.core.errors import DataError, MethodError

KERNELS = ("epanechnikov", "gaussian")

_ROOT_STEPS = 200
_ROOT_TOLERANCE = 1e-15
_STEP_TOLERANCE = 1e-14
#: a grid of at most so many bandwidths is tried whole
_WHOLE_GRID = 12
_COARSE, _FINE, _AROUND = 8, 5, 0.3
_BLOCK = 1 << 21


def kernel_values(squared: FloatArray, bandwidth: float, kernel: str = "epanechnikov") -> FloatArray:
    """(n,) kernel of squared distances, up to a factor common to all.

    "epanechnikov": ``max(0, 1 - d^2 / h^2)``; "gaussian": ``exp(-d^2 / (2 h^2))``, divided by its
    largest value so that far windows do not all become 0.
    """
    if kernel == "epanechnikov":
        with np.errstate(over="ignore"):  # further away than a number can say weighs nothing
            out = squared * (-1.0 / bandwidth**2)
        out += 1.0
        return np.maximum(out, 0.0, out=out)
    if kernel == "gaussian":
        nearest = float(squared.min(initial=np.inf))
        if not np.isfinite(nearest):
            return np.zeros_like(squared)
        with np.errstate(over="ignore"):
            return np.asarray(np.exp((nearest - squared) * (0.5 / bandwidth**2)))
    raise MethodError(f"kernel must be one of {', '.join(KERNELS)}, got {kernel!r}")


def rnw_multiplier(g: FloatArray) -> float:
    """Multiplier of the weights p_i that fulfil ``sum p_i g_i = 0`` and maximise ``sum log p_i``.

    They are ``p_i = 1 / (n (1 + lam g_i))``, lam the root of ``sum g_i / (1 + lam g_i)``, which falls
    strictly between -1 / max g and -1 / min g.

    Parameters
    ----------
    g : (n,) finite numbers

    Returns
    -------
    float
        0 where all g that are not 0 have one sign, or none is: the condition cannot be met.
    """
    g = np.asarray(g, dtype=np.float64)
    low, high = float(g.min(initial=0.0)), float(g.max(initial=0.0))
    if low >= 0 or high <= 0:
        return 0.0
    scale = max(high, -low)
    above, below = g[g > 0] / scale, g[g < 0] / scale
    pole_left, pole_right = -scale / high, -scale / low
    # no p_i exceeds one: 1 + lam g_i is at least 1 / m, m the number of g that are not 0
    inside = 1 - 1 / (len(above) + len(below))
    left, right = inside * pole_left, inside * pole_right
    lam = 0.0
    for _ in range(_ROOT_STEPS):
        rising, falling = above / (1 + lam * above), below / (1 + lam * below)
        up, down = float(rising.sum()), float(falling.sum())
        if up + down > 0:
            left = lam
        else:
            right = lam
        if abs(up + down) <= _ROOT_TOLERANCE * (up - down):
            break
        slopes = float(rising @ rising), float(falling @ falling)
        step = _two_pole_root(lam, up + down, slopes, pole_left, pole_right)
        if abs(step - lam) <= _STEP_TOLERANCE * abs(lam):
            break
        lam = step if left < step < right else 0.5 * (left + right)
    return lam / scale


def _two_pole_root(
    lam: float, value: float, slopes: tuple[float, float], pole_left: float, pole_right: float
) -> float:
    """The root of ``S + a / (x - pole_left) + b / (x - pole_right)`` that fits the sum at lam.

    a and b give the slopes at lam of its terms with positive and with negative g, and S its value: the
    nearest poles are where the sum bends most, so that this takes a handful of steps where Newton's
    method takes twenty.
    """
    to_left, to_right = lam - pole_left, lam - pole_right
    a, b = slopes[0] * to_left**2, slopes[1] * to_right**2
    constant = value - slopes[0] * to_left - slopes[1] * to_right
    gap = pole_right - pole_left
    middle = a + b - constant * gap
    root = math.sqrt(max(middle**2 + 4 * constant * a * gap, 0.0))
    if middle >= 0:
        below = middle + root
        return pole_left + 2 * a * gap / below if below > 0 else lam
    return pole_left + (root - middle) / (2 * constant)


def rnw_probabilities(g: FloatArray, multiplier: float | None = None) -> FloatArray:
    """(n,) probabilities ``1 / (n (1 + lam g_i))``; uniform where lam is 0."""
    g = np.asarray(g, dtype=np.float64)
    lam = rnw_multiplier(g) if multiplier is None else multiplier
    return np.asarray(1 / (len(g) * (1 + lam * g)))


def effective_size(weights: FloatArray) -> float:
    """``1 / sum W^2`` of weights that add up to one: how many equal weights would be worth as much."""
    return float(1 / (weights @ weights))


def aicc_bandwidth(
    windows: FloatArray, targets: FloatArray, grid: Sequence[float], kernel: str = "epanechnikov"
) -> float:
    """The bandwidth of the grid with the least corrected AIC of the kernel regression.

    ``log RSS(h) + (n + tr(S S')) / (n - tr(S S') - 2)``, S the smoother that takes the (n, w) windows'
    (n,) targets to their Nadaraya-Watson means, every row's own target among them. A grid of up to 12
    is tried whole; of a longer one 8 evenly spaced, then 5 within 30 % of the best of these.

    Raises
    ------
    MethodError
        No positive bandwidth, or none that leaves a degree of freedom.
    """
    candidates = [float(h) for h in grid]
    if not candidates or not all(np.isfinite(h) and h > 0 for h in candidates):
        raise MethodError(f"bandwidths must be positive numbers, got {candidates!r}")
    if len(candidates) > _WHOLE_GRID:
        coarse = [candidates[i] for i in np.linspace(0, len(candidates) - 1, _COARSE).round().astype(int)]
        best = _best(windows, targets, coarse, kernel)
        candidates = [float(h) for h in np.linspace((1 - _AROUND) * best, (1 + _AROUND) * best, _FINE)]
    return _best(windows, targets, candidates, kernel)


def _best(windows: FloatArray, targets: FloatArray, grid: Sequence[float], kernel: str) -> float:
    criteria = aicc(windows, targets, grid, kernel)
    if np.isposinf(criteria).all():
        raise MethodError(
            f"none of {len(grid)} bandwidths from {min(grid):.3g} to {max(grid):.3g} leaves a degree of "
            f"freedom with {len(targets)} windows; give more residuals, or bandwidth as a number"
        )
    return float(grid[int(np.argmin(criteria))])


def aicc(
    windows: FloatArray, targets: FloatArray, grid: Sequence[float], kernel: str = "epanechnikov"
) -> FloatArray:
    """Corrected AIC of each bandwidth of the grid; +inf where no degree of freedom is left."""
    targets = check_target(targets, name="targets")
    n = len(targets)
    if windows.shape[0] != n:
        raise DataError(f"{windows.shape[0]} windows and {n} targets")
    rss, trace = np.zeros(len(grid)), np.zeros(len(grid))
    columns = np.ascontiguousarray(windows.T)
    rows = max(1, _BLOCK // max(n, 1))
    for start in range(0, n, rows):
        block = slice(start, min(start + rows, n))
        squared = np.zeros((block.stop - start, n))
        for column in columns:
            squared += np.square(column[block, None] - column[None, :])
        for i, bandwidth in enumerate(grid):
            # a row's distance to itself is 0, so that no sum is
            if kernel == "gaussian":
                with np.errstate(over="ignore"):
                    K = np.exp(squared * (-0.5 / bandwidth**2))
            else:
                K = kernel_values(squared, bandwidth, kernel)
            mass = K.sum(axis=1)
            rss[i] += float(np.square(targets[block] - K @ targets / mass).sum())
            trace[i] += float((np.einsum("ij,ij->i", K, K) / mass**2).sum())
    left = n - trace - 2
    out = np.full(len(grid), np.inf)
    usable = left > 0
    with np.errstate(divide="ignore"):
        out[usable] = np.log(rss[usable]) + (n + trace[usable]) / left[usable]
    return out
