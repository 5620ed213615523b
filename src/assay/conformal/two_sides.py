"""Intervals around forecasts from trackers of residuals: one tracker for each end, or one for both."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from assay.conformal.tracker_base import OnlineTracker, one_of
from assay.core.checks import FloatArray
from assay.core.errors import MethodError
from assay.core.levels import parse_alpha

_SCORES = ("signed", "absolute")


def side_count(score: Any) -> int:
    """Trackers of a stream: 2 for signed scores, (above, below), and 1 for absolute ones."""
    return 2 if one_of(score, "score", _SCORES) == "signed" else 1


def side_tracker(tracker: Any, sides: int, alpha: Any = None, horizon: int | None = None) -> OnlineTracker:
    """An unfitted copy of a tracker at the level of one side of an interval."""
    if not isinstance(tracker, OnlineTracker):
        raise MethodError(f"tracker must be an unfitted tracker of assay.conformal, got {tracker!r}")
    level = parse_alpha(tracker.alpha if alpha is None else alpha)
    own: OnlineTracker = clone(tracker)
    own.set_params(alpha=float(level / sides))
    if horizon is not None:
        own.set_params(horizon=horizon)
    return own


def side_scores(y: FloatArray, forecasts: FloatArray, sides: int) -> FloatArray:
    """(n * sides, T) scores of (n, T) outcomes; the sides of a stream stand together."""
    residuals = y - forecasts
    if sides == 1:
        return np.abs(residuals)
    both = np.empty((len(y), 2, y.shape[1]))
    both[:, 0], both[:, 1] = residuals, -residuals
    return both.reshape(-1, y.shape[1])


def interval_ends(centre: FloatArray, thresholds: FloatArray, sides: int) -> FloatArray:
    """(n, T, 2) ends around (n, T) forecasts, from (n * sides, T) thresholds.

    Ends in the wrong order are exchanged, an absolute threshold below 0 counts as 0, and a threshold of
    -inf gives an interval of no width.
    """
    if sides == 1:
        above = below = np.maximum(thresholds, 0.0)
    else:
        above, below = thresholds[0::2], thresholds[1::2]
        none = np.isneginf(above), np.isneginf(below)
        if none[0].any() or none[1].any():
            above, below = _no_width(above, below, none[0]), _no_width(below, above, none[1])
    lower, upper = centre - below, centre + above
    return np.stack([np.minimum(lower, upper), np.maximum(lower, upper)], axis=-1)


def _no_width(side: FloatArray, other: FloatArray, none: NDArray[np.bool_]) -> FloatArray:
    """A threshold of -inf becomes the one at which the interval ends where it begins."""
    return np.where(none, np.where(np.isfinite(other), -other, 0.0), side)
