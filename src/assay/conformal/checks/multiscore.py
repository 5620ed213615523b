"""Multi-score sets on digits, beside one head and the same heads averaged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from assay.conformal.head_ensemble import HeadEnsemble
from assay.conformal.heads import SubspaceHeads
from assay.conformal.label_scores import LabelScore, RAPSScore, get_score
from assay.conformal.multiscore import MultiScoreConformal
from assay.core.overlap import draws_own_splits
from assay.core.seeds import derive_seed

_ALPHA = 0.05
_N_TRAIN, _N_CALIB = 80, 800
_N_CLASSES = 10
_HEADS = (3, 5)
_DRAWINGS, _DIVISIONS = 5, 15
#: Ratio for the variance of overlapping divisions. That of test to training rows, 917 / 80, would be
#: for splits whose training rows overlap as much as their test rows do. Here two seeds share one in
#: twenty training images and half of the others, and dividing the others anew for given training
#: images makes at most half of the variance of the size ratio (0.29 to 0.50 over 12 x 5 divisions): a
#: correlation of at most 1/4, which is a ratio of 1/3
_SHARED = 1 / 3

Measured = Mapping[str, Mapping[str, float]]


def _heads(seed: int, n_heads: int) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """((n, 10, d) probabilities and labels to calibrate, the same to test) of logistic heads.

    80 training images, each head on its own 32 of 64 pixels; 800 images calibrate, half of them form
    cells; the other 917 test.
    """
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(derive_seed("multi-score digits", seed)).permutation(len(y))
    train, calib, test = np.split(order, [_N_TRAIN, _N_TRAIN + _N_CALIB])
    model = SubspaceHeads(LogisticRegression(max_iter=1000), n_heads=n_heads, random_state=seed)
    model.fit(X[train] / 16, y[train])

    def proba(rows: NDArray[Any]) -> NDArray[Any]:
        out = np.zeros((len(rows), _N_CLASSES, n_heads))
        out[:, model.classes_] = model.predict_proba_heads(X[rows] / 16)
        return out

    return proba(calib), y[calib], proba(test), y[test]


@draws_own_splits(_SHARED)
def digits(seed: int) -> Measured:
    """Sets at alpha 0.05 from the same heads, without randomisation.

    ``lac_size`` and ``lac_coverage`` with the LAC score, ``lac_size_of_single`` the size as a share of
    one head's; the same with ``raps_`` for lambda 0.1 and k_reg 2. "single" is the mean over the first
    three heads, each alone. For d = 3 and 5: "multiscore-d" (cells), "neighbours-d" (our ratio of
    neighbours in place of cells), both the mean over five drawings of the cell rows, "ensemble-d" (mean
    probability) and "mean-score-d". "multiscore-1" is the cells of the first head.
    """
    calib, y, test, truth = _heads(seed, max(_HEADS))
    out: dict[str, dict[str, float]] = {}
    for name, rule in (("lac", get_score("lac")), ("raps", RAPSScore(lam=0.1, k_reg=2))):
        sizes, coverages = out.setdefault(f"{name}_size", {}), out.setdefault(f"{name}_coverage", {})
        for contender, runs in _contenders(rule, seed).items():
            found = []
            for heads, method in runs:
                method.calibrate_proba(calib[:, :, heads], y, classes=range(_N_CLASSES))
                sets = method.predict_set_proba(test[:, :, heads])
                found.append((sets.sum(axis=1).mean(), sets[np.arange(len(truth)), truth].mean()))
            sizes[contender], coverages[contender] = (float(value) for value in np.mean(found, axis=0))
        out[f"{name}_size_of_single"] = {key: size / sizes["single"] for key, size in sizes.items()}
    return out


def _contenders(rule: LabelScore, seed: int) -> dict[str, list[tuple[slice, Any]]]:
    """Heads and method of each run of a contender."""

    def cells(d: int, **options: Any) -> list[tuple[slice, Any]]:
        drawings = [derive_seed(seed, "cells", i) for i in range(_DRAWINGS)]
        return [
            (slice(d), MultiScoreConformal(scores=rule, alpha=_ALPHA, random_state=drawing, **options))
            for drawing in drawings
        ]

    def averaged(heads: slice, combine: str = "probability") -> tuple[slice, Any]:
        return heads, HeadEnsemble(scores=rule, combine=combine, alpha=_ALPHA)

    found = {"single": [averaged(slice(j, j + 1)) for j in range(min(_HEADS))], "multiscore-1": cells(1)}
    for d in _HEADS:
        found |= {
            f"multiscore-{d}": cells(d),
            f"neighbours-{d}": cells(d, partition="knn_ratio"),
            f"ensemble-{d}": [averaged(slice(d))],
            f"mean-score-{d}": [averaged(slice(d), "score")],
        }
    return found


def fifteen_divisions(seed: int) -> Measured:
    """The means of :func:`digits` over seeds 0 to 14, as they stand, and ``.._coverage_miss``.

    Nothing here is random; ``seed`` is not used. How far such means may be from those of other images
    is what the intervals of :func:`digits` tell.
    """
    every = [digits(division) for division in range(_DIVISIONS)]
    out = {
        metric: {key: float(np.mean([one[metric][key] for one in every])) for key in of}
        for metric, of in every[0].items()
    }
    for name in ("lac", "raps"):
        sizes, coverages = out[f"{name}_size"], out[f"{name}_coverage"]
        out[f"{name}_size_of_single"] = {key: size / sizes["single"] for key, size in sizes.items()}
        out[f"{name}_coverage_miss"] = {key: abs(c - (1 - _ALPHA)) for key, c in coverages.items()}
    return out


def no_signal(seed: int) -> Measured:
    """``coverage`` and ``size`` where labels are permuted, so that the heads know nothing.

    At alpha 0.05 valid sets hold nine and a half of ten labels on average. Labels are permuted anew for
    every seed, so that seeds are independent although they share images.
    """
    calib, y, test, truth = _heads(seed, 3)
    rng = np.random.default_rng(derive_seed("multi-score permuted", seed))
    y, truth = rng.permutation(y), rng.permutation(truth)
    out: dict[str, dict[str, float]] = {"coverage": {}, "size": {}}
    for partition in ("voronoi", "knn_ratio"):
        method = MultiScoreConformal(
            scores="lac", alpha=_ALPHA, partition=partition, random_state=seed
        ).calibrate_proba(calib, y, classes=range(_N_CLASSES))
        sets = method.predict_set_proba(test)
        contender = "multiscore" if partition == "voronoi" else "neighbours"
        out["coverage"][contender] = float(sets[np.arange(len(truth)), truth].mean())
        out["size"][contender] = float(sets.sum(axis=1).mean())
    return out
