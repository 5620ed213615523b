"""BinCP on CIFAR-10 beside CAS and RSCP+: size of the sets against the number of Monte-Carlo samples.

Images are 256 features of a network trained on ImageNet, scaled to a mean square of 1 over the training
images; noise and radii are in those units. A network 256-128-10 is trained with noise on 5,000 images; of the
test images 1,000 calibrate and 2,000 test. Features lie in ``cifar10-features`` in the folder of data.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier

from assay.conformal.bincp import BinCP
from assay.conformal.cas import CAS
from assay.conformal.rscp import RSCPPlus
from assay.conformal.smoothed_rule import SmoothedRule
from assay.conformal.smoothed_scores import CALIBRATION, SmoothedScores
from assay.core.errors import MissingDependency
from assay.core.overlap import draws_own_splits
from assay.core.seeds import derive_seed

N_TRAIN, N_CALIB, N_TEST = 5_000, 1_000, 2_000
SCALE = 0.25
RADII = (0.12, 0.25)
SAMPLES = (50, 150, 500)
_EPOCHS = 40


@draws_own_splits(N_TEST / N_TRAIN)
def cifar(seed: int, data: str | Path | None = None) -> Mapping[str, Mapping[str, float]]:
    """Mean size and coverage of clean test images at alpha 0.1, score: the probability.

    Metrics ``size_R_M`` for radii R 0.12 and 0.25 and M = 50, 150, 500 samples, ``coverage_M`` at radius
    0.25; of "bincp", "cas", "rscp-plus" and "rscp-plus-hoeffding". ``size_R_few``: "bincp" with 150 samples,
    the others with 500. The samples of a smaller number are the first of the larger.
    """
    X, y, X_other, y_other = _features(data)
    rng = np.random.default_rng(derive_seed(seed, "CIFAR-10"))
    order = rng.permutation(len(y_other))[: N_CALIB + N_TEST]
    calib, test = order[:N_CALIB], order[N_CALIB:]
    model = MLPClassifier((128,), batch_size=250, random_state=seed)
    for _ in range(_EPOCHS):
        model.partial_fit(X + SCALE * rng.standard_normal(X.shape), y, classes=np.arange(10))
    scores = SmoothedScores(model, scale=SCALE, n_samples=max(SAMPLES), random_state=seed)
    of_calib, of_test = scores.samples(X_other[calib], CALIBRATION), scores.samples(X_other[test])
    out: dict[str, dict[str, float]] = {}
    for m in SAMPLES:
        rules: dict[str, SmoothedRule[Any]] = {
            "bincp": BinCP(),
            "cas": CAS(),
            "rscp-plus": RSCPPlus(),
            "rscp-plus-hoeffding": RSCPPlus(bound="hoeffding"),
        }
        for name, rule in rules.items():
            sets = rule.calibrate(of_calib[..., :m], y_other[calib]).certified_sets(of_test[..., :m], RADII)
            for radius, found in zip(RADII, sets, strict=True):
                size = float(found.sum(axis=1).mean())
                out.setdefault(f"size_{radius:g}_{m}", {})[name] = size
                if m == (150 if name == "bincp" else 500):
                    out.setdefault(f"size_{radius:g}_few", {})[name] = size
            own = sets[-1][np.arange(N_TEST), y_other[test]]
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
