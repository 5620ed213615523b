"""RPS on digits: coverage beside a single split, and attacks that must not break a certificate.

Twenty logistic regressions on parts of 897 images, 400 images to calibrate in ten parts, 500 to test.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from assay.conformal.partitioned import Codes, Member, PartitionedClassifier
from assay.conformal.reliability import Certificate
from assay.conformal.rps import ReliablePredictionSets
from assay.core.errors import AssayWarning
from assay.core.overlap import draws_own_splits

Measured = Mapping[str, Mapping[str, float]]
BoolArray = NDArray[np.bool_]
Rows = tuple[NDArray[np.float64], NDArray[Any]]

N_TRAIN, N_CALIB, N_TEST = 897, 400, 500
_FEW = 200
_ATTEMPTS = 200
_RADII = (1, 2, 3)
_CLASSES = 10


@draws_own_splits(N_TEST / N_TRAIN)
def digits(seed: int) -> Measured:
    """Coverage and size on clean rows, and the shares of sets certified against two rows.

    Metrics ``coverage``, ``size``, ``calib_2`` and ``train_2`` (share of sets that two calibration, or
    training, rows cannot change) of "rps", of "exact" (its exact majority) and of "single" (the same votes
    calibrated once).
    """
    train, calib, (X, y) = _split(seed, N_TRAIN)
    members = PartitionedClassifier(_model(), 20, random_state=seed)
    with _quiet():
        members.fit(*train)
        kinds: dict[str, dict[str, Any]] = {
            "rps": {"n_calibration_partitions": 10},
            "exact": {"n_calibration_partitions": 10, "majority": "exact", "rank": "tight"},
            "single": {"n_calibration_partitions": 1, "rank": "tight"},
        }
        out: dict[str, dict[str, float]] = {"coverage": {}, "size": {}, "calib_2": {}, "train_2": {}}
        for name, options in kinds.items():
            method = ReliablePredictionSets(members, random_state=seed, **options).calibrate(*calib)
            sets, found = method.predict_set(X), method.certify(X)
            out["coverage"][name] = float(sets[np.arange(len(y)), y].mean())
            out["size"][name] = float(sets.sum(axis=1).mean())
            out["calib_2"][name] = float(found.reliable(0, 2).mean())
            out["train_2"][name] = float(found.reliable(2, 0).mean())
    return out


@draws_own_splits(N_TEST / _FEW)
def one_model(seed: int) -> Measured:
    """One logistic regression on 200 images, calibrated in ten parts: nothing for training rows.

    Metrics of "rps-calibration": ``coverage``, ``size``, ``coverage_radius_2`` (share of sets that no label
    leaves with two poisoned calibration rows) and ``broken`` (sets that 200 attacks for each of 1, 2 and 3
    rows changed in a certified direction).
    """
    train, calib, (X, y) = _split(seed, _FEW)
    with _quiet():
        method = ReliablePredictionSets(
            _model(), n_partitions=1, n_calibration_partitions=10, random_state=seed
        ).fit(*train, *calib)
        sets, found = method.predict_set(X), method.certify(X)
        other = ReliablePredictionSets(
            method.estimator_, n_partitions=1, n_calibration_partitions=10, random_state=seed
        )

        def answer(X_calib: NDArray[np.float64], y_calib: NDArray[Any]) -> BoolArray:
            return other.calibrate(X_calib, y_calib).predict_set(X)

        broken = _broken(calib, answer, sets, found, "calib", seed)
    return {
        "coverage": {"rps-calibration": float(sets[np.arange(len(y)), y].mean())},
        "size": {"rps-calibration": float(sets.sum(axis=1).mean())},
        "coverage_radius_2": {"rps-calibration": float(found.reliable(0, 2, "coverage").mean())},
        "broken": {"rps-calibration": broken["broken"]},
    }


@draws_own_splits(N_TEST / N_TRAIN)
def attacked_calibration(seed: int) -> Measured:
    """200 attacks on calibration rows for each of 1, 2 and 3 rows.

    Metrics ``broken`` (sets changed in a certified direction) and ``changed`` (share of sets that some attack
    with 3 rows changed) of "rps" and "exact".
    """
    train, calib, (X, _) = _split(seed, N_TRAIN)
    out: dict[str, dict[str, float]] = {"broken": {}, "changed": {}}
    with _quiet():
        members = PartitionedClassifier(_model(), 20, random_state=seed).fit(*train)
        votes = members.predict_votes(X)
        for name, majority, rank in (("rps", "binomial", "published"), ("exact", "exact", "tight")):
            method = ReliablePredictionSets(
                members, n_calibration_partitions=10, majority=majority, rank=rank, random_state=seed
            ).calibrate(*calib)
            sets, found = method.predict_set_votes(votes), method.certify_votes(votes)

            def answer(
                X_calib: NDArray[np.float64], y_calib: NDArray[Any], of: ReliablePredictionSets = method
            ) -> BoolArray:
                return of.calibrate(X_calib, y_calib).predict_set_votes(votes)

            result = _broken(calib, answer, sets, found, "calib", seed)
            for metric, value in result.items():
                out[metric][name] = value
    return out


@draws_own_splits(N_TEST / N_TRAIN)
def attacked_training(seed: int) -> Measured:
    """200 attacks on training rows for each of 1, 2 and 3 rows, after each the touched parts trained again.

    Metrics as in :func:`attacked_calibration`, of "rps".
    """
    train, calib, (X, _) = _split(seed, N_TRAIN)
    with _quiet():
        members = _Remembering(_model(), 20, random_state=seed)
        method = ReliablePredictionSets(members, n_calibration_partitions=10, random_state=seed)
        members.fit(*train)
        sets = method.calibrate(*calib).predict_set(X)
        found = method.certify(X)

        def answer(X_train: NDArray[np.float64], y_train: NDArray[Any]) -> BoolArray:
            members.fit(X_train, y_train)
            return method.calibrate(*calib).predict_set(X)

        result = _broken(train, answer, sets, found, "train", seed)
    return {metric: {"rps": value} for metric, value in result.items()}


class _Remembering(PartitionedClassifier):
    """Trains a part only if its rows are not those of a part trained before."""

    def _train_member(self, base: Any, X: Any, codes: Codes, seed: int) -> Member:
        known: dict[Any, Member] = self.__dict__.setdefault("known", {})
        key = (seed, X.tobytes(), codes.tobytes())
        if key not in known:
            known[key] = super()._train_member(base, X, codes, seed)
        return known[key]


def _broken(
    rows: Rows,
    answer: Callable[[NDArray[np.float64], NDArray[Any]], BoolArray],
    clean: BoolArray,
    found: Certificate,
    side: str,
    seed: int,
) -> dict[str, float]:
    broken, changed = 0, np.zeros(len(clean), dtype=np.bool_)
    for r in _RADII:
        radii = (r, 0) if side == "train" else (0, r)
        stays, out = found.reliable(*radii, "coverage"), found.reliable(*radii, "size")
        for X, y in _attacks(*rows, r, np.random.default_rng([seed, r])):
            sets = answer(X, y)
            lost, entered = (clean & ~sets).any(axis=1), (sets & ~clean).any(axis=1)
            broken += int(((lost & stays) | (entered & out)).sum())
            changed |= lost | entered
    return {"broken": float(broken), "changed": float(changed.mean())}


def _attacks(X: NDArray[np.float64], y: NDArray[Any], r: int, rng: np.random.Generator) -> Iterator[Rows]:
    """Attempts that give r random rows another label, take them away, or add them with another label."""
    for attempt in range(_ATTEMPTS):
        rows = rng.choice(len(y), size=r, replace=False)
        labels = (y[rows] + rng.integers(1, _CLASSES, size=r)) % _CLASSES
        if attempt % 3 == 0:
            changed = y.copy()
            changed[rows] = labels
            yield X, changed
        elif attempt % 3 == 1:
            yield np.delete(X, rows, axis=0), np.delete(y, rows)
        else:
            # a pixel is changed as well, so that the new row falls anywhere
            new = X[rows].copy()
            new[np.arange(r), rng.integers(X.shape[1], size=r)] += 1
            yield np.concatenate([X, new]), np.concatenate([y, labels])


def _split(seed: int, n_train: int) -> tuple[Rows, Rows, Rows]:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(y))
    parts = order[:n_train], order[N_TRAIN : N_TRAIN + N_CALIB], order[N_TRAIN + N_CALIB :]
    train, calib, test = ((X[part], y[part]) for part in parts)
    return train, calib, test


def _model() -> LogisticRegression:
    return LogisticRegression(max_iter=100)


class _quiet(warnings.catch_warnings):  # noqa: N801
    """Short parts and early stops of the fits: both are part of what is measured."""

    def __enter__(self) -> Any:
        entered = super().__enter__()
        warnings.simplefilter("ignore", AssayWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        return entered
