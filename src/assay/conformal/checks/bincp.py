"""BinCP on digits beside CAS and RSCP+: size of the sets, and coverage of attacked rows.

A network 64-128-128-10 trained with noise on 797 images, 300 images to calibrate, 700 to test; pixels in
[0, 1], Gaussian noise of deviation 0.25, 150 samples, scores are probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from assay.conformal.bincp import BinCP
from assay.conformal.cas import CAS
from assay.conformal.rscp import RSCPPlus
from assay.conformal.smoothed_rule import SmoothedRule
from assay.conformal.smoothed_scores import CALIBRATION, SmoothedScores
from assay.core.overlap import draws_own_splits

Measured = Mapping[str, Mapping[str, float]]
FloatArray = NDArray[np.float64]

N_TRAIN, N_CALIB, N_TEST = 797, 300, 700
SCALE = 0.25
_SAMPLES = 150
_TRAINING_STEPS = 300
_ATTACK_STEPS = 20
_COPIES = 8


@draws_own_splits(N_TEST / N_TRAIN)
def digits(seed: int) -> Measured:
    """Sets at radii 0.12 and 0.25, half of the noise and all of it.

    Metrics ``size_0.12`` and ``size_0.25`` of "bincp", "tau" (BinCP with the threshold 0.5), "cas",
    "rscp-plus" and "rscp-plus-hoeffding"; ``coverage`` (clean rows, radius 0.25), ``random`` and
    ``attacked`` (rows moved by 0.25, in a random direction and along projected gradients) likewise.
    """
    rng = np.random.default_rng([seed, 7])
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    X, y = X[order] / 16, y[order]
    model = _trained(X[:N_TRAIN], y[:N_TRAIN], seed, rng)
    scores = SmoothedScores(model, scale=SCALE, n_samples=_SAMPLES, random_state=seed)
    calibration = slice(N_TRAIN, N_TRAIN + N_CALIB)
    rules: dict[str, SmoothedRule[Any]] = {
        "bincp": BinCP(radius=SCALE),
        "tau": BinCP(radius=SCALE, threshold=0.5),
        "cas": CAS(radius=SCALE),
        "rscp-plus": RSCPPlus(radius=SCALE),
        "rscp-plus-hoeffding": RSCPPlus(radius=SCALE, bound="hoeffding"),
    }
    samples = scores.samples(X[calibration], CALIBRATION)
    for rule in rules.values():
        rule.calibrate(samples, y[calibration])
    X, y = X[calibration.stop :], y[calibration.stop :]
    moves = rng.standard_normal(X.shape)
    rows = {
        "coverage": X,
        "random": X + SCALE * moves / np.linalg.norm(moves, axis=1, keepdims=True),
        "attacked": X + _projected_gradient(model, X, y, rng),
    }
    out: dict[str, dict[str, float]] = {metric: {} for metric in ("size_0.12", "size_0.25", *rows)}
    for metric, of in rows.items():
        samples = scores.samples(of)
        for name, rule in rules.items():
            small, large = rule.certified_sets(samples, (0.12, SCALE))
            out[metric][name] = float(large[np.arange(len(y)), y].mean())
            if of is X:
                out["size_0.12"][name] = float(small.sum(axis=1).mean())
                out["size_0.25"][name] = float(large.sum(axis=1).mean())
    return out


def _trained(X: FloatArray, y: NDArray[Any], seed: int, rng: np.random.Generator) -> MLPClassifier:
    """A network after 300 steps of Adam on all rows, with new noise in each."""
    model = MLPClassifier((128, 128), alpha=0.0, batch_size=len(X), random_state=seed)
    for _ in range(_TRAINING_STEPS):
        model.partial_fit(X + SCALE * rng.standard_normal(X.shape), y, classes=np.arange(10))
    return model


def _projected_gradient(
    model: MLPClassifier, X: FloatArray, y: NDArray[Any], rng: np.random.Generator
) -> FloatArray:
    """Moves of norm 0.25 or less that raise the loss of the true label, averaged over noise."""
    moves = rng.standard_normal(X.shape)
    moves *= SCALE * rng.random((len(X), 1)) / np.linalg.norm(moves, axis=1, keepdims=True)
    for _ in range(_ATTACK_STEPS):
        gradient = np.zeros_like(X)
        for _ in range(_COPIES):
            gradient += _gradient(model, X + moves + SCALE * rng.standard_normal(X.shape), y)
        gradient /= np.maximum(np.linalg.norm(gradient, axis=1, keepdims=True), 1e-30)
        moves += 2.5 * SCALE / _ATTACK_STEPS * gradient
        moves *= np.minimum(1, SCALE / np.linalg.norm(moves, axis=1, keepdims=True))
    return moves


def _gradient(model: MLPClassifier, X: FloatArray, y: NDArray[Any]) -> FloatArray:
    """Gradient in X of the cross entropy of a network of rectified units."""
    layers = [X]
    for weights, offset in zip(model.coefs_, model.intercepts_, strict=True):
        layers.append(
            np.maximum(layers[-1], 0) @ weights + offset if len(layers) > 1 else X @ weights + offset
        )
    back = softmax(layers[-1], axis=1)
    back[np.arange(len(y)), y] -= 1
    for weights, layer in zip(model.coefs_[:0:-1], layers[-2:0:-1], strict=True):
        back = (back @ weights.T) * (layer > 0)
    return np.asarray(back @ model.coefs_[0].T)
