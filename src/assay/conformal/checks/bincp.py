"""BinCP beside CAS and RSCP+: size of the sets, coverage of attacked rows, and how many samples it takes.

On digits a network 64-128-128-10 trained with noise on 797 images, 300 images to calibrate, 700 to test;
pixels in [0, 1], Gaussian noise of deviation 0.25, 150 samples, scores are probabilities.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
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
from assay.core.errors import MissingDependency
from assay.core.overlap import draws_own_splits
from assay.core.seeds import derive_seed

Measured = Mapping[str, Mapping[str, float]]
FloatArray = NDArray[np.float64]

N_TRAIN, N_CALIB, N_TEST = 797, 300, 700
SCALE = 0.25
_SAMPLES = 150
_TRAINING_STEPS = 300
_ATTACK_STEPS = 20
_COPIES = 8

IMAGES_TRAIN, IMAGES_CALIB, IMAGES_TEST = 5_000, 1_000, 2_000
_RADII = (0.12, 0.25)
_FEWER = (50, 150, 500)
_EPOCHS = 40


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


@draws_own_splits(IMAGES_TEST / IMAGES_TRAIN)
def cifar(seed: int, data: str | Path | None = None) -> Measured:
    """Sets of clean CIFAR-10 images against the number of samples, at alpha 0.1; scores are probabilities.

    Images are 256 features of a network trained on ImageNet, scaled to a mean square of 1 over the training
    images; noise (0.25) and radii are in those units. A network 256-128-10 is trained with noise on 5,000
    images; of the test images 1,000 calibrate and 2,000 test. The features lie in ``cifar10-features`` in the
    folder ``data``, by default $ASSAY_DATA.

    Metrics ``size_R_M`` for radii R 0.12 and 0.25 and M = 50, 150, 500 samples, ``coverage_M`` at radius
    0.25; of "bincp", "cas", "rscp-plus" and "rscp-plus-hoeffding". ``size_R_few``: "bincp" with 150 samples,
    the others with 500. The samples of a smaller number are the first of the larger.
    """
    X, y, X_other, y_other = _features(data)
    rng = np.random.default_rng(derive_seed(seed, "CIFAR-10"))
    order = rng.permutation(len(y_other))[: IMAGES_CALIB + IMAGES_TEST]
    calib, test = order[:IMAGES_CALIB], order[IMAGES_CALIB:]
    model = MLPClassifier((128,), batch_size=250, random_state=seed)
    for _ in range(_EPOCHS):
        model.partial_fit(X + SCALE * rng.standard_normal(X.shape), y, classes=np.arange(10))
    scores = SmoothedScores(model, scale=SCALE, n_samples=max(_FEWER), random_state=seed)
    of_calib, of_test = scores.samples(X_other[calib], CALIBRATION), scores.samples(X_other[test])
    out: dict[str, dict[str, float]] = {}
    for m in _FEWER:
        rules: dict[str, SmoothedRule[Any]] = {
            "bincp": BinCP(),
            "cas": CAS(),
            "rscp-plus": RSCPPlus(),
            "rscp-plus-hoeffding": RSCPPlus(bound="hoeffding"),
        }
        for name, rule in rules.items():
            sets = rule.calibrate(of_calib[..., :m], y_other[calib]).certified_sets(of_test[..., :m], _RADII)
            for radius, found in zip(_RADII, sets, strict=True):
                size = float(found.sum(axis=1).mean())
                out.setdefault(f"size_{radius:g}_{m}", {})[name] = size
                if m == (150 if name == "bincp" else 500):
                    out.setdefault(f"size_{radius:g}_few", {})[name] = size
            own = sets[-1][np.arange(IMAGES_TEST), y_other[test]]
            out.setdefault(f"coverage_{m}", {})[name] = float(own.mean())
    return out


def _features(data: str | Path | None) -> tuple[NDArray[Any], ...]:
    """(training rows, their labels, test rows, their labels)."""
    folder = data or os.environ.get("ASSAY_DATA")
    path = Path(folder or "") / "cifar10-features" / "features.npz"
    if not folder or not path.is_file():
        raise MissingDependency(
            "this check reads cifar10-features/features.npz in the folder that is named as data or in "
            "ASSAY_DATA"
        )
    with np.load(path) as file:
        X, y, X_other, y_other = (file[key] for key in ("X_train", "y_train", "X_test", "y_test"))
    X, X_other = X.astype(np.float64), X_other.astype(np.float64)
    unit = np.sqrt((X**2).mean())
    return X / unit, y.astype(np.intp), X_other / unit, y_other.astype(np.intp)
