"""Stretches of time: what a trial of the online task works on, and what the report draws of it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.checks import FloatArray
from assay.tasks import measures

#: stretches of time on which methods are judged; a seed is the number of one
STRETCHES = 5
#: share of the steps before the first stretch; the rest is shared out among the stretches
HISTORY = Fraction(1, 4)
#: burn-in before each stretch, at most: a tenth of all steps where that is less
BURN_IN = 500
WINDOWS = (100, 500)
#: fewer steps than this make stretches that say nothing about coverage
MIN_STEPS = 100
#: points of a stretch that are kept for the pictures
_DRAWN = 150
_CLOSE_UP = 150
#: a mean error this many times larger, or smaller, than before is marked as a shift
SHIFT_FACTOR = 2.0
_SHIFT_WINDOW = 100


@dataclass(frozen=True)
class Stretch:
    """One stretch of time with the burn-in before it; the same for every method.

    ``y`` and ``forecasts`` are (n_series, burn_in + n): NaN targets are missing and change nothing;
    forecasts are finite. ``first`` is the stretch's first step on the panel's axis, ``n_fit`` the
    number of steps that the forecaster was fitted on. ``unit`` is (n_series,) what widths are measured
    in: 1 for a single series. ``drawn`` is the series in the pictures, ``when`` its times.
    """

    y: FloatArray
    forecasts: FloatArray
    burn_in: int
    n_fit: int
    first: int
    horizon: int
    seed: int
    series: tuple[str, ...]
    unit: FloatArray
    drawn: int
    when: tuple[str, ...]
    notices: tuple[str, ...] = ()


def parts(n_steps: int) -> tuple[int, int, int]:
    """(steps of history, of a stretch, of the burn-in before each)."""
    history = int(n_steps * HISTORY)
    return history, (n_steps - history) // STRETCHES, min(BURN_IN, n_steps // 10)


def typical_change(y: FloatArray) -> FloatArray:
    """(n_series,) mean absolute change from one known step to the next; 1 where nothing has changed yet."""
    change = np.abs(np.diff(y, axis=1))
    known = np.isfinite(change)
    mean = np.where(known, change, 0.0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
    return np.where(mean > 0, mean, 1.0)


def detail(
    split: Stretch, interval: FloatArray, judged: measures.BoolArray, alpha: Fraction
) -> dict[str, Any]:
    """Numbers of steps, and what the report draws."""
    B, i = split.burn_in, split.drawn
    y, forecasts = split.y[:, B:], split.forecasts[:, B:]
    n = y.shape[1]
    hits = judged & measures.covers(interval.reshape(-1, 2), y.reshape(-1)).reshape(y.shape)
    shift = _shift(_scaled_errors(split), split)
    spread = np.unique(np.linspace(0, n - 1, min(n, _DRAWN)).round().astype(int))
    centre = shift["step"] - split.first if shift else n // 2
    start = min(max(centre - _CLOSE_UP // 2, 0), max(n - _CLOSE_UP, 0))
    near = np.arange(start, min(start + _CLOSE_UP, n))
    window = next((w for w in reversed(WINDOWS) if n >= 2 * w), min(WINDOWS[0], max(n // 4, 1)))
    # many series move together: the steps, not the series times the steps, say how much is known
    steps = judged.any(axis=0).sum()

    def shown(at: NDArray[np.intp]) -> dict[str, Any]:
        return {
            "step": [int(split.first + t) for t in at],
            "time": [split.when[t] for t in at],
            "y": _plain(y[i, at]),
            "prediction": _plain(forecasts[i, at]),
            "lower": _plain(interval[i, at, 0]),
            "upper": _plain(interval[i, at, 1]),
        }

    return {
        "n_train": split.n_fit,
        "n_calib": B,
        "n_test": int(steps),
        "n_targets": int(judged.sum()),
        "disjoint": True,
        "expected_coverage": list(measures.binomial_coverage(int(steps), alpha)),
        "stretch": {
            "number": split.seed,
            "first": split.first,
            "n": n,
            "series": split.series[i],
            "n_series": len(y),
            "from": next((w for w in split.when if w), ""),
            "to": next((w for w in reversed(split.when) if w), ""),
        },
        "series": shown(spread),
        "close_up": shown(near),
        "rolling": _rolling(hits, judged, window, split.first),
        "shift": shift,
    }


def _rolling(hits: measures.BoolArray, judged: measures.BoolArray, window: int, first: int) -> dict[str, Any]:
    """Coverage of all series over the last ``window`` steps, at points evenly spread over the stretch."""
    count = np.concatenate([[0], np.cumsum(judged.sum(axis=0))])
    inside = np.concatenate([[0], np.cumsum(hits.sum(axis=0))])
    ends = np.arange(window, len(count))
    ends = measures.evenly_spread(ends, _DRAWN)
    of = count[ends] - count[ends - window]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = (inside[ends] - inside[ends - window]) / of
    return {"window": window, "step": [int(first + t - 1) for t in ends], "coverage": _plain(share)}


def _scaled_errors(split: Stretch) -> FloatArray:
    """(burn_in + n,) absolute error, in units of each series' mean over the burn-in; mean over series."""
    error = np.abs(split.y - split.forecasts)
    base = np.nanmean(error[:, : split.burn_in], axis=1)
    error = error / np.where(base > 0, base, 1.0)[:, None]
    known = np.isfinite(error)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(known, error, 0.0).sum(axis=0) / known.sum(axis=0))


def _shift(errors: FloatArray, split: Stretch) -> dict[str, Any] | None:
    """The step around which the forecasts' errors change most; None if by less than the factor.

    The mean error over a window after a step is compared with that over a window before it. It is
    seen in hindsight and by no method.
    """
    B, n = split.burn_in, len(errors) - split.burn_in
    window = min(_SHIFT_WINDOW, n // 4, B)
    known = np.where(np.isfinite(errors), errors, 0.0)
    total = np.concatenate([[0.0], np.cumsum(known)])
    count = np.concatenate([[0], np.cumsum(np.isfinite(errors))])
    at = np.arange(B, len(errors) - window + 1)
    before, after = total[at] - total[at - window], total[at + window] - total[at]
    n_before, n_after = count[at] - count[at - window], count[at + window] - count[at]
    usable = (before > 0) & (after > 0) & (2 * n_before >= window) & (2 * n_after >= window)
    if not usable.any():
        return None
    at, factor = at[usable], (after[usable] / n_after[usable]) / (before[usable] / n_before[usable])
    best = int(np.abs(np.log(factor)).argmax())
    if max(factor[best], 1 / factor[best]) < SHIFT_FACTOR:
        return None
    step = int(at[best]) - B
    return {
        "step": split.first + step,
        "time": split.when[step],
        "factor": float(factor[best]),
        "window": window,
    }


def _plain(values: FloatArray) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]
