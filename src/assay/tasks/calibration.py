"""Measures of predictive distributions: calibration, sets of high probability, separation of shifted rows."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from assay.core.checks import FloatArray
from assay.tasks.measures import BoolArray

#: bins of equal mass in the calibration error and the reliability diagram
BINS = 15
#: probabilities at which the share of smaller probability integral transforms is compared
LEVELS = np.arange(1, 20) / 20
#: bars of the histogram of probability integral transforms
PIT_BARS = 20


def reliability(proba: FloatArray, true: NDArray[np.intp], bins: int = BINS) -> list[dict[str, Any]]:
    """Mean confidence, accuracy and number of rows in bins of equal mass of the largest probability."""
    confidence, hit = proba.max(axis=1), proba.argmax(axis=1) == true
    order = np.argsort(confidence, kind="stable")
    return [
        {"confidence": float(confidence[rows].mean()), "accuracy": float(hit[rows].mean()), "n": len(rows)}
        for rows in np.array_split(order, min(bins, len(order)))
    ]


def expected_calibration_error(bins: list[dict[str, Any]]) -> float:
    """Mean distance of accuracy from confidence over the rows of the bins."""
    n = np.array([part["n"] for part in bins], dtype=float)
    gap = np.array([abs(part["accuracy"] - part["confidence"]) for part in bins])
    return float(n @ gap / n.sum())


def pit_curve(pit: FloatArray) -> list[list[float]]:
    """[level, share of probability integral transforms at most that] for each of ``LEVELS``."""
    return [[float(level), float((pit <= level).mean())] for level in LEVELS]


def pit_histogram(pit: FloatArray, bars: int = PIT_BARS) -> list[int]:
    """Rows in bars of equal width from 0 to 1."""
    return [int(count) for count in np.histogram(pit, bins=bars, range=(0, 1))[0]]


def in_high_probability_set(proba: FloatArray, true: NDArray[np.intp], alpha: Fraction) -> BoolArray:
    """(n,) whether the label is among the likeliest ones that together reach 1 - alpha."""
    order = np.argsort(-proba, axis=1, kind="stable")
    ranked = np.take_along_axis(proba, order, axis=1)
    before = np.cumsum(ranked, axis=1) - ranked
    place = (order == true[:, None]).argmax(axis=1)
    # rounding of the sum must not add a label
    return np.asarray(before[np.arange(len(proba)), place] < float(1 - alpha) - 1e-12)


def separation(inside: FloatArray, outside: FloatArray) -> float:
    """AUROC: chance that a score of ``outside`` is larger than one of ``inside``; ties count half."""
    ranks = rankdata(np.concatenate([outside, inside]))
    n, m = len(outside), len(inside)
    return float((ranks[:n].sum() - n * (n + 1) / 2) / (n * m))
