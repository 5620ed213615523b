"""CONTRA where the smallest region is known, and beside other regions of the same models on real data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import chi2
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor

from assay.conformal.bonferroni_box import BonferroniBoxRegressor
from assay.conformal.contra import FlowConformalRegressor
from assay.conformal.ellipsoid import EllipsoidRegressor
from assay.conformal.pcp import PCP
from assay.conformal.regions import Region
from assay.conformal.res_contra import ResidualFlowConformalRegressor
from assay.core.checks import FloatArray
from assay.core.seeds import derive_seed

_NOISE = 0.2
#: rows that train, calibrate and test, at most
_ROWS = (6000, 2000, 2000)
#: test rows whose volume is measured
_VOLUMES = 500

Measured = Mapping[str, Mapping[str, float]]


def banana(seed: int) -> Measured:
    """A bent law whose best region is known: 4,000 training, 2,000 calibration and 4,000 test rows.

    x ~ U(-1, 1), y1 ~ N(0, 1), y2 = y1^2 + x + 0.2 N(0, 1): the regions of the true transport have
    area pi chi2(0.9; 2) 0.2 = 2.8935. Metrics: ``coverage``, ``volume`` (mean), ``oracle_ratio``
    (volume divided by 2.8935) and ``ellipsoid_ratio`` (divided by that of an ellipse of the errors of a
    linear model).
    """
    rng = np.random.default_rng(derive_seed("banana", seed))
    (X, Y), (Xc, Yc), (Xt, Yt) = (_bananas(n, rng) for n in (4000, 2000, 4000))
    methods: dict[str, Any] = {
        "contra": FlowConformalRegressor(random_state=seed),
        "ellipsoid": EllipsoidRegressor(random_state=seed),
        "bonferroni-box": BonferroniBoxRegressor(random_state=seed),
    }
    out: dict[str, dict[str, float]] = {}
    for name, method in methods.items():
        region = method.fit(X, Y, Xc, Yc).predict_region(Xt)
        out.setdefault("coverage", {})[name] = float(region.contains(Yt).mean())
        out.setdefault("volume", {})[name] = float(region.volume().mean())
    oracle = np.pi * chi2.ppf(0.9, 2) * _NOISE
    out["oracle_ratio"] = {name: value / oracle for name, value in out["volume"].items()}
    out["ellipsoid_ratio"] = {
        name: value / out["volume"]["ellipsoid"] for name, value in out["volume"].items()
    }
    return out


def _bananas(n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
    x, first = rng.uniform(-1, 1, n), rng.normal(size=n)
    second = first**2 + x + _NOISE * rng.normal(size=n)
    return x[:, None], np.column_stack([first, second])


def real_data(seed: int, split: Any) -> Measured:
    """All regions on one split of real data, of 6,000, 2,000 and 2,000 rows at most.

    The latent ball (contra), density level sets (flow-hdr) and balls around 50 draws (pcp-balls) are
    of one and the same flow; ResCONTRA, ellipsoid and box of the same boosted trees. Metrics:
    ``coverage``; ``median_volume`` and ``mean_volume`` in units of the product of the targets' standard
    deviations; ``log_volume`` per target; ``ellipsoid_ratio``, the median volume divided by the
    ellipsoid's. Volumes are those of the first 500 test rows.
    """
    trees = HistGradientBoostingRegressor(
        max_iter=100, max_leaf_nodes=15, min_samples_leaf=10, early_stopping=False
    )
    return _compare(seed, split, trees)


def real_data_forest(seed: int, split: Any) -> Measured:
    """:func:`real_data` with a random forest of 50 trees in place of the boosted trees."""
    return _compare(seed, split, RandomForestRegressor(50, min_samples_leaf=5, random_state=seed))


def _compare(seed: int, split: Any, model: Any) -> Measured:
    parts = [
        (getattr(split, f"X_{part}")[:most], getattr(split, f"y_{part}")[:most])
        for part, most in zip(("train", "calib", "test"), _ROWS, strict=True)
    ]
    spread = parts[0][1].std(axis=0)
    (X, Y), calibration, (Xt, Yt) = ((features, targets / spread) for features, targets in parts)
    contra = FlowConformalRegressor(random_state=seed).fit(X, Y, *calibration)
    density = FlowConformalRegressor(contra.flow_, "log_density", random_state=seed)
    regions: dict[str, Region] = {
        "contra": contra.predict_region(Xt),
        "flow-hdr": density.calibrate(*calibration).predict_region(Xt),
        "pcp-balls": PCP(contra.flow_, random_state=seed).calibrate(*calibration).predict_region(Xt),
    }
    others: dict[str, Any] = {
        "res-contra": ResidualFlowConformalRegressor(model, random_state=seed),
        "ellipsoid": EllipsoidRegressor(model, random_state=seed),
        "bonferroni-box": BonferroniBoxRegressor(model, random_state=seed),
    }
    for name, method in others.items():
        regions[name] = method.fit(X, Y, *calibration).predict_region(Xt)
    out: dict[str, dict[str, float]] = {}
    for name, region in regions.items():
        for metric, value in _values(region, Yt).items():
            out.setdefault(metric, {})[name] = value
    medians = out["median_volume"]
    out["ellipsoid_ratio"] = {name: value / medians["ellipsoid"] for name, value in medians.items()}
    return out


def _values(region: Region, Y: FloatArray) -> dict[str, float]:
    log_volume = region.take(np.arange(min(_VOLUMES, len(Y)))).log_volume()
    volume = np.exp(log_volume)
    return {
        "coverage": float(region.contains(Y).mean()),
        "median_volume": float(np.median(volume)),
        "mean_volume": float(volume.mean()),
        "log_volume": float(log_volume[log_volume > -np.inf].mean() / Y.shape[1]),
    }
