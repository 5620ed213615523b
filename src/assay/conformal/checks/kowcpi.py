"""KOWCPI on the electricity and solar series of its paper, EnbPI and SPCI beside it on the same residuals.

The forecaster is EnbPI's: 25 bootstraps of a forest of 10 trees of depth 1, trained on the first
80 % of the rows. Out-of-bag residuals of these are the history, the other rows are the test, and
nothing is trained again. The folder of data is ``data``, by default $ASSAY_DATA.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.lib.stride_tricks import sliding_window_view

from assay.conformal.bootstrap_residuals import BootstrapResiduals
from assay.conformal.enbpi import EnbPI
from assay.conformal.kowcpi import KernelWeightedResidualInterval
from assay.conformal.residual_base import ResidualIntervals
from assay.conformal.spci import SPCI
from assay.core.checks import FloatArray
from assay.core.errors import AssayWarning, MissingDependency

Measured = Mapping[str, Mapping[str, float]]
Folder = str | Path | None

_ALPHA = 0.1
_TRAIN = 0.8
_COVARIATES = ["nswprice", "nswdemand", "vicprice", "vicdemand"]
# before this row Victoria's columns stand still
_ELECTRIC_START, _NINE, _NOON = 17760, 17, 24
_SOLAR_ROWS, _SOLAR_LAGS = 2000, 20
_PAST = 300
_LEAST = 150


def electric(seed: int, data: Folder = None) -> Measured:
    """Windows of 3 and 5, plain kernel weights, and EnbPI with its last 300 residuals.

    Metrics: ``coverage_w3``, ``width_w3``, ``width_ratio_w3`` (to EnbPI's) of "kowcpi", of "plain"
    (without the reweighting) and of "min_ess" (at least 150 effective windows); the same for w5;
    ``coverage`` and ``width`` of "enbpi".
    """
    return _short_windows(*_residuals("electric", seed, data))


def solar(seed: int, data: Folder = None) -> Measured:
    """:func:`electric` on the solar series."""
    return _short_windows(*_residuals("solar", seed, data))


def electric_long_windows(seed: int, data: Folder = None) -> Measured:
    """Coverage and width of windows of 20 and 50, and of the same with at least 150 effective windows.

    Metrics: ``coverage_w20``, ``coverage_w50``, ``ess_w50`` (median over the first 100 steps) and the
    widths, of "kowcpi" and of "min_ess".
    """
    return _long_windows(*_residuals("electric", seed, data))


def electric_forest(seed: int, data: Folder = None) -> Measured:
    """SPCI, its forest trained anew at every step, beside EnbPI: ``coverage``, ``width``, ``width_ratio``."""
    residuals, n = _residuals("electric", seed, data)
    found = {
        "spci": _judge(SPCI(window=100, random_state=seed), residuals, n),
        "enbpi": _judge(EnbPI(past_window=_PAST), residuals, n),
    }
    return {
        "coverage": {name: coverage for name, (coverage, _) in found.items()},
        "width": {name: width for name, (_, width) in found.items()},
        "width_ratio": {"spci": found["spci"][1] / found["enbpi"][1]},
    }


def _short_windows(residuals: FloatArray, n: int) -> Measured:
    coverage, width = _judge(EnbPI(past_window=_PAST), residuals, n)
    out: dict[str, dict[str, float]] = {"coverage": {"enbpi": coverage}, "width": {"enbpi": width}}
    for w in (3, 5):
        variants: dict[str, Any] = {
            "kowcpi": {},
            "plain": {"reweight": False},
            "min_ess": {"min_ess": _LEAST},
        }
        for name, parameters in variants.items():
            method = KernelWeightedResidualInterval(window=w, **parameters)
            covered, wide = _judge(method, residuals, n)
            out.setdefault(f"coverage_w{w}", {})[name] = covered
            out.setdefault(f"width_w{w}", {})[name] = wide
            out.setdefault(f"width_ratio_w{w}", {})[name] = wide / width
    return out


def _long_windows(residuals: FloatArray, n: int) -> Measured:
    out: dict[str, dict[str, float]] = {}
    for w in (20, 50):
        for name, least in (("kowcpi", None), ("min_ess", _LEAST)):
            method = KernelWeightedResidualInterval(window=w, min_ess=least)
            covered, wide = _judge(method, residuals, n)
            out.setdefault(f"coverage_w{w}", {})[name] = covered
            out.setdefault(f"width_w{w}", {})[name] = wide
            sizes = []
            method.fit(residuals[:n])
            for residual in residuals[n : n + 100]:
                sizes.append(method.ess_)
                method.update(residual)
            out.setdefault(f"ess_w{w}", {})[name] = float(np.median(sizes))
    return out


def _judge(method: ResidualIntervals, residuals: FloatArray, n: int) -> tuple[float, float]:
    """Coverage and mean width over the residuals after the first n."""
    with warnings.catch_warnings():
        # too few effective windows: that is what is measured
        warnings.simplefilter("ignore", AssayWarning)
        ends = method.run(residuals, n, _ALPHA)
    test = residuals[n:]
    return float(((ends[:, 0] <= test) & (test <= ends[:, 1])).mean()), float(np.diff(ends).mean())


@lru_cache(maxsize=2)
def _residuals(series: str, seed: int, data: Folder = None) -> tuple[FloatArray, int]:
    """Out-of-bag residuals followed by those of the test rows, and how many are out of bag."""
    X, y = _electric_rows(data) if series == "electric" else _solar_rows(data)
    n = round(_TRAIN * len(y))
    ensemble = BootstrapResiduals(random_state=seed).fit(X[:n], y[:n])
    return np.concatenate([ensemble.residuals_, y[n:] - ensemble.predict(X[n:])]), n


def _electric_rows(data: Folder) -> tuple[FloatArray, FloatArray]:
    """Transfers between states from prices and demands, mornings from 9 to 12: 3,444 rows."""
    table = _read("elec2.csv.gz", data).iloc[_ELECTRIC_START:]
    period = table["period"].to_numpy()
    morning = (period > period[_NINE]) & (period < period[_NOON])
    table = table[morning]
    return table[_COVARIATES].to_numpy(dtype=np.float64), table["transfer"].to_numpy(dtype=np.float64)


def _solar_rows(data: Folder) -> tuple[FloatArray, FloatArray]:
    """Diffuse irradiance in Atlanta, the last 2,000 hours of 2018, from the 20 hours before each."""
    values = _read("solar_atlanta_2018.csv.gz", data)["DHI"].to_numpy(dtype=np.float64)[-_SOLAR_ROWS:]
    windows = sliding_window_view(values, _SOLAR_LAGS + 1)
    return windows[:, :-1], windows[:, -1]


def _read(name: str, data: Folder) -> pd.DataFrame:
    folder = data or os.environ.get("ASSAY_DATA")
    path = Path(folder or "", "ts-shift", name)
    if not folder or not path.is_file():
        raise MissingDependency(
            f"this check reads ts-shift/{name} in the folder that is named as data or in ASSAY_DATA, and "
            + (f"{path} is not there" if folder else "neither is given")
        )
    return pd.read_csv(path)
