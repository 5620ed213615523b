"""CP2 where the truth is known, and by groups of rows with like spread on real data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from assay.conformal.ball_sets import BallSetRegressor
from assay.conformal.cp2 import ConditionalPCP
from assay.conformal.mixture_density import MixtureDensityNetwork
from assay.conformal.pcp import PCP
from assay.core.checks import FloatArray
from assay.core.seeds import derive_seed, row_keys, row_uniforms, seed_of

_ALPHA = 0.1
_BINS = 5
_N_CALIB, _N_TEST = 2000, 4000

Measured = Mapping[str, Mapping[str, float]]


class GrowingNoise:
    """A known law whose noise grows with x: y | x ~ N(0, s(x)^2 I_q).

    ``s(x) = 0.05 + x^2`` for the first feature x, uniform on (0, 1): the noise grows twentyfold.
    """

    samples_by_row = True

    def __init__(self, n_outputs: int = 1) -> None:
        self.n_outputs = n_outputs

    def scale(self, X: Any) -> FloatArray:
        """(n,) standard deviation of each output."""
        return np.asarray(0.05 + np.asarray(X, dtype=np.float64)[:, 0] ** 2)

    def sample(self, X: Any, n_samples: int, random_state: Any = None) -> FloatArray:
        """(n, n_samples, q) draws of the true law."""
        keys = row_keys(np.asarray(X), seed_of(random_state), "growing noise")
        u = row_uniforms(keys, n_samples * self.n_outputs).reshape(len(keys), n_samples, self.n_outputs)
        return np.asarray(self.scale(X)[:, None, None] * ndtri(u))

    def log_prob(self, X: Any, y: Any) -> FloatArray:
        """(n,) true log densities."""
        s = self.scale(X)
        z = np.asarray(y, dtype=np.float64).reshape(len(s), self.n_outputs) / s[:, None]
        return np.asarray(-0.5 * (z**2).sum(axis=1) - self.n_outputs * (np.log(s) + 0.5 * np.log(2 * np.pi)))

    def generate(self, n: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """n rows (X, y) of the law; X (n, 1), y (n, q)."""
        X = rng.random((n, 1))
        return X, self.scale(X)[:, None] * rng.standard_normal((n, self.n_outputs))


def exact_model(seed: int, n_outputs: int = 1) -> Measured:
    """Coverage by noise level with the true law as the model, 2,000 calibration and 4,000 test rows.

    Metrics over the five equal bins of x: ``coverage``, ``worst_bin_gap`` (largest distance from
    0.9), ``last_bin_coverage`` (the noisiest rows) and ``first_bin_coverage`` (the quietest).
    """
    truth = GrowingNoise(n_outputs)
    rng = np.random.default_rng(derive_seed("cp2 exact model", seed))
    X, y = truth.generate(_N_CALIB, rng)
    X_test, y_test = truth.generate(_N_TEST, rng)
    group = np.minimum((X_test[:, 0] * _BINS).astype(int), _BINS - 1)
    out: dict[str, dict[str, float]] = {}
    for name, method in _methods(truth, seed).items():
        covered = method.calibrate(X, y).predict_set(X_test).contains(y_test)
        bins = np.array([covered[group == k].mean() for k in range(_BINS)])
        values = {
            "coverage": covered.mean(),
            "worst_bin_gap": np.abs(bins - (1 - _ALPHA)).max(),
            "first_bin_coverage": bins[0],
            "last_bin_coverage": bins[-1],
        }
        for metric, value in values.items():
            out.setdefault(metric, {})[name] = float(value)
    return out


def exact_model_two_outputs(seed: int) -> Measured:
    """:func:`exact_model` with two outputs."""
    return exact_model(seed, 2)


def real_data(seed: int, split: Any) -> Measured:
    """CP2 and PCP around one density network on a split of real data.

    ``spread_gap`` is the mean distance of coverage from 0.9 over quintiles of CP2's tau, the same
    groups of test rows for all methods; ``first_quintile_coverage`` and ``last_quintile_coverage``
    are those of the calmest and the noisiest rows; ``size`` is the mean length of the sets in standard
    deviations of the training targets.
    """
    model = MixtureDensityNetwork(random_state=derive_seed(seed, "model")).fit(split.X_train, split.y_train)
    covered: dict[str, NDArray[np.bool_]] = {}
    sizes: dict[str, FloatArray] = {}
    tau = np.empty(0)
    for name, method in _methods(model, seed).items():
        region = method.calibrate(split.X_calib, split.y_calib).predict_set(split.X_test)
        covered[name], sizes[name] = region.contains(split.y_test), region.volume()
        if name == "cp2":
            tau = region.radius
    quintile = np.searchsorted(np.quantile(tau, np.arange(1, _BINS) / _BINS), tau)
    out: dict[str, dict[str, float]] = {}
    for name, inside in covered.items():
        bins = np.array([inside[quintile == k].mean() for k in range(_BINS)])
        values = {
            "coverage": inside.mean(),
            "spread_gap": np.abs(bins - (1 - _ALPHA)).mean(),
            "first_quintile_coverage": bins[0],
            "last_quintile_coverage": bins[-1],
            "size": sizes[name].mean() / split.y_train.std(),
        }
        for metric, value in values.items():
            out.setdefault(metric, {})[name] = float(value)
    return out


def _methods(model: Any, seed: int) -> dict[str, BallSetRegressor]:
    return {
        "cp2": ConditionalPCP(model, alpha=_ALPHA, random_state=seed),
        "cp2-d": ConditionalPCP(model, "difference", alpha=_ALPHA, random_state=seed),
        "pcp": PCP(model, alpha=_ALPHA, random_state=seed),
    }
