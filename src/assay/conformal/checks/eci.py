"""Trackers on the cached one-step forecasts that the authors of ECI published: nothing in it is random.

Four series (daily opens of Amazon and Google, half-hourly demand of New South Wales, daily temperatures of
Delhi) with three forecasters each. The folder of data holds them in ``eci-online``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from assay.conformal.eci import ErrorQuantifiedTracker
from assay.conformal.ogd import OnlineGradientTracker
from assay.conformal.online import OnlineConformalRegressor
from assay.conformal.pid import PIDTracker
from assay.conformal.tracker_base import OnlineTracker
from assay.core.checks import FloatArray
from assay.core.errors import MissingDependency

Measured = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class Pair:
    """A series and a forecaster, with the burn-in and the learning rates that the authors' code has."""

    data: str
    model: str
    window: int
    #: best of the authors' grids on this pair, in hindsight
    lr: float
    ogd_lr: float
    integral_gain: float
    saturation: float

    @property
    def name(self) -> str:
        """As metrics are called."""
        return f"{self.data}_{self.model}"


_STOCK, _OTHER = (200.0, 1.0), (10.0, 5.0)
PAIRS = (
    Pair("amazon", "prophet", 100, 0.5, 10.0, *_STOCK),
    Pair("amazon", "ar", 100, 0.1, 1.0, *_STOCK),
    Pair("amazon", "theta", 100, 0.1, 5.0, *_STOCK),
    Pair("google", "prophet", 100, 0.5, 10.0, *_STOCK),
    Pair("google", "ar", 100, 0.05, 1.0, *_STOCK),
    Pair("google", "theta", 100, 0.1, 10.0, *_STOCK),
    Pair("elec2", "prophet", 300, 0.5, 0.1, *_OTHER),
    Pair("elec2", "ar", 300, 0.1, 0.05, *_OTHER),
    Pair("elec2", "theta", 300, 0.1, 0.01, *_OTHER),
    Pair("delhi", "prophet", 500, 0.1, 1.0, *_OTHER),
    Pair("delhi", "ar", 500, 0.05, 1.0, *_OTHER),
    Pair("delhi", "theta", 500, 0.05, 0.5, *_OTHER),
)
_FILES = {"amazon": "amzn", "google": "googl", "elec2": "elec2", "delhi": "daily_climate"}
#: widths that the authors quote for ECI
_QUOTED = {"amazon_prophet": 47.0, "amazon_ar": 17.12, "amazon_theta": 17.46}


def read(pair: Pair, data: str | Path | None = None) -> tuple[FloatArray, FloatArray]:
    """(T,) series and its forecasts, from the folder ``data`` ($ASSAY_DATA by default).

    Raises
    ------
    MissingDependency
        The folder is not there.
    """
    folder = data or os.environ.get("ASSAY_DATA")
    path = Path(folder or "", "eci-online", f"{_FILES[pair.data]}.csv.gz")
    if not folder or not path.is_file():
        raise MissingDependency(
            f"the cached forecasts of the authors are not there: name the folder that holds "
            f"eci-online/{path.name} as data, or set ASSAY_DATA to it"
        )
    frame = pd.read_csv(path)
    return frame["y"].to_numpy(np.float64), frame[f"f_{pair.model}"].to_numpy(np.float64)


def measure(pair: Pair, tracker: OnlineTracker, data: str | Path | None = None) -> tuple[float, float]:
    """Coverage after the burn-in, and mean width of all intervals, at 90 %."""
    y, forecasts = read(pair, data)
    lower, upper = OnlineConformalRegressor(tracker, alpha=0.1).run(y, forecasts).T
    covered = (lower <= y) & (y <= upper)
    return float(covered[pair.window + 1 :].mean()), float((upper - lower).mean())


def trackers(pair: Pair) -> dict[str, OnlineTracker]:
    """The trackers compared on a pair, with the learning rate that is best in hindsight."""
    w = pair.window
    return {
        "eci": ErrorQuantifiedTracker(lr=pair.lr, window=w),
        "eci-cutoff": ErrorQuantifiedTracker(lr=pair.lr, window=w, variant="cutoff"),
        "eci-integral": ErrorQuantifiedTracker(lr=pair.lr, window=w, variant="integral"),
        "ogd": OnlineGradientTracker(lr=pair.ogd_lr),
        "pid": PIDTracker(lr=pair.lr, window=w, integral_gain=pair.integral_gain, saturation=pair.saturation),
    }


def automatic(pair: Pair) -> dict[str, OnlineTracker]:
    """The same with learning rates weighed on the way: nothing looks ahead."""
    return {
        "eci": ErrorQuantifiedTracker(lr="auto", window=pair.window),
        "ogd": OnlineGradientTracker(lr="auto"),
    }


def cached_forecasts(seed: int, data: str | Path | None = None) -> Measured:
    """Widths and coverages on all twelve pairs; the seed changes nothing.

    Metrics of a pair, with the rates that are best in hindsight: ``<pair>_width``,
    ``<pair>_miscoverage`` (distance of the coverage from 0.9), and ``<pair>_error`` (distance of ECI's
    width from the one its authors quote). With ``lr="auto"``: ``<pair>_auto_miscoverage``, and
    ``<pair>_auto_width``, where the others keep the rate of hindsight.
    """
    out: dict[str, dict[str, float]] = {}
    for pair in PAIRS:
        for name, tracker in trackers(pair).items():
            coverage, width = measure(pair, tracker, data)
            for metric in ("width", "auto_width"):
                out.setdefault(f"{pair.name}_{metric}", {})[name] = width
            out.setdefault(f"{pair.name}_miscoverage", {})[name] = abs(coverage - 0.9)
        if pair.name in _QUOTED:
            out[f"{pair.name}_error"] = {"eci": abs(out[f"{pair.name}_width"]["eci"] - _QUOTED[pair.name])}
        coverage, width = measure(pair, automatic(pair)["eci"], data)
        out[f"{pair.name}_auto_width"]["eci"] = width
        out[f"{pair.name}_auto_miscoverage"] = {"eci": abs(coverage - 0.9)}
    return out
