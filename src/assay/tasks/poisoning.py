"""Sets of labels when training or calibration rows may be poisoned: what is certified, what attacks do."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from assay.core.seeds import derive_seed
from assay.data.table import Table
from assay.tasks import running
from assay.tasks.base import Metric, Outcome, Split
from assay.tasks.label_set import LabelSetTask, align_sets

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

#: numbers of poisoned rows that are reported and attacked
RADII = (1, 2, 4)
#: number of poisoned rows at which the certified size is judged
JUDGED = 2
#: attacks with random rows for each number of poisoned rows; two that aim are added
RANDOM_ATTACKS = {"calib": 8, "train": 1}
#: the largest radius of the curves
MAX_RADIUS = 30
#: test rows on which attacks are measured
MAX_ATTACKED = 1000
_SIDES = {"calib": "calibration", "train": "training"}
_KEPT = (
    "coverage",
    "mean_size",
    "worst_class_coverage",
    "share_empty",
    "fit_seconds",
    "predict_seconds",
    "peak_memory",
)


def _metrics() -> tuple[Metric, ...]:
    known = {metric.name: metric for metric in LabelSetTask.metrics}
    new = [
        Metric(
            "certified_size",
            "certified size",
            "labels",
            "lower",
            f"Mean of the most labels that a set can have when {JUDGED} rows are poisoned, all for training "
            "or all for calibration; all labels where nothing is certified.",
        )
    ]
    for side, word in _SIDES.items():
        new += [
            Metric(
                f"certified_{side}_{r}",
                f"certified, {r} {word}",
                "share",
                "higher",
                "Share of sets that provably stay the same whatever is done to "
                f"{r} {word} row{'s' * (r > 1)}.",
            )
            for r in RADII
        ]
    new += [
        Metric(
            f"flips_{side}",
            f"changed, {word}",
            "share",
            "lower",
            f"Share of sets that changed under at least one attack with {RADII[-1]} poisoned {word} rows.",
        )
        for side, word in _SIDES.items()
    ]
    new.append(
        Metric(
            "broken_certificates",
            "broken certificates",
            "rows",
            "lower",
            "Sets that an attack changed in a direction that was certified; one is a bug.",
        )
    )
    first, last = _KEPT[:4], _KEPT[4:]
    return (*(known[name] for name in first), *new, *(known[name] for name in last))


class PoisoningTask(LabelSetTask):
    """Label sets, some of whose training or calibration rows an adversary has written.

    One poisoned row is one that is added, taken away, or given another label. A method offers what a
    label-set method offers, and may offer ``certify(X)``: an object with ``training`` and ``calibration``,
    each with (n,) ``coverage_radius``, ``size_radius`` and ``robust_radius`` (poisoned rows that the set of
    each row survives), and (R + 1, n) ``largest_train`` and ``largest_calib`` (the most labels that it can
    have with 0 .. R poisoned rows). Without it nothing is certified for more than 0 rows. Certified or not,
    every method is attacked: rows are added, taken away and given other labels, at random and with aim, and
    the method is calibrated, or fitted, anew.
    """

    name: ClassVar[str] = "poisoning"
    reference: ClassVar[str] = "plain-lac"
    size_metric: ClassVar[str] = "certified_size"
    by_group: ClassVar[bool] = False
    options: ClassVar[tuple[str, ...]] = ()
    metrics: tuple[Metric, ...] = _metrics()

    def __init__(self) -> None:
        super().__init__()

    def check(self, table: Table, alpha: Fraction) -> None:
        """As for label sets; a group is a column like any other."""
        super().check(replace(table, group=None), alpha)

    def split(self, table: Table, seed: int) -> Split:
        """That of label sets; a group is a column like any other."""
        return super().split(replace(table, group=None), seed)

    def default_model(self) -> Any:
        """Logistic regression: trained on the few rows of a part, trees are worse and slower."""
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression(max_iter=500)

    def notes(self, table: Table) -> tuple[str, ...]:
        """Where the threat begins."""
        return (
            "Poisoned rows are rows of numbers: the columns were turned into numbers (means, scales, "
            "categories) on clean training rows, and that step is not part of the certificates.",
        )

    def evaluate(self, method: Any, split: Split, alpha: Fraction) -> Outcome:
        """See :class:`~assay.tasks.base.Task`."""
        fresh = clone(method) if hasattr(method, "get_params") else copy.deepcopy(method)
        outcome = super().evaluate(method, split, alpha)
        n, K = len(split.X_test), len(split.classes) if split.classes is not None else 0
        found = _certified(method, split, alpha, n, K)
        metrics = {name: outcome.metrics[name] for name in _KEPT if name in outcome.metrics}
        sizes = np.maximum(*(found[side].largest_at(JUDGED, K) for side in _SIDES))
        metrics["certified_size"] = float(sizes.mean())
        detail: dict[str, Any] = {"curves": {}}
        broken = 0
        for side in _SIDES:
            radii = found[side]
            for r in RADII:
                metrics[f"certified_{side}_{r}"] = float((radii.robust >= r).mean())
            attacks = _Attacks(method, fresh, split, alpha, side)
            unchanged = []
            for r in RADII:
                changed, wrong = attacks.run(r, radii)
                unchanged.append(1.0 - float(changed.mean()))
                broken += wrong
            metrics[f"flips_{side}"] = 1.0 - unchanged[-1]
            detail["curves"][side] = {**radii.curve(K), "attacked": list(RADII), "unchanged": unchanged}
        metrics["broken_certificates"] = float(broken)
        return Outcome(metrics, {**outcome.detail, **detail}, outcome.notices)


@dataclass(frozen=True)
class _Side:
    """What is certified against poison on one side, for n sets."""

    coverage: IntArray
    size: IntArray
    largest: IntArray

    @property
    def robust(self) -> IntArray:
        return np.minimum(self.coverage, self.size)

    def largest_at(self, radius: int, n_classes: int) -> IntArray:
        """(n,) most labels with that many poisoned rows."""
        if radius < len(self.largest):
            return np.asarray(self.largest[radius])
        return np.full(self.largest.shape[1], n_classes)

    def curve(self, n_classes: int) -> dict[str, Any]:
        """Shares and mean largest sizes by number of poisoned rows, up to where nothing is certified."""
        last = min(MAX_RADIUS, int(max(self.coverage.max(initial=0), self.size.max(initial=0))) + 1)
        radii = range(max(last, RADII[-1]) + 1)
        return {
            "radius": list(radii),
            "robust": [float((self.robust >= r).mean()) for r in radii],
            "coverage": [float((self.coverage >= r).mean()) for r in radii],
            "size": [float((self.size >= r).mean()) for r in radii],
            "largest": [float(self.largest_at(r, n_classes).mean()) for r in radii],
        }


def _certified(method: Any, split: Split, alpha: Fraction, n: int, n_classes: int) -> dict[str, _Side]:
    certify = getattr(method, "certify", None)
    if not callable(certify):
        sizes = _sets(method, split.X_test, split, alpha).sum(axis=1)
        nothing = _Side(np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64), sizes[None])
        return {"calib": nothing, "train": nothing}
    options = {} if running.has_alpha(method) else {"alpha": float(alpha)}
    found = certify(split.X_test, **options)
    sides = {
        "calib": (found.calibration, found.largest_calib),
        "train": (found.training, found.largest_train),
    }
    return {
        side: _Side(np.asarray(radii.coverage_radius), np.asarray(radii.size_radius), np.asarray(largest))
        for side, (radii, largest) in sides.items()
    }


def _sets(method: Any, X: NDArray[np.float64], split: Split, alpha: Fraction) -> BoolArray:
    part = replace(split, X_test=X)
    raw, _, _ = running.predict(method, "predict_set", part, alpha)
    classes = split.classes if split.classes is not None else np.empty(0)
    return align_sets(raw, getattr(method, "classes_", None), classes, len(X))[0]


class _Attacks:
    """Attacks on one side of a fitted method."""

    def __init__(self, method: Any, fresh: Any, split: Split, alpha: Fraction, side: str) -> None:
        self.method, self.fresh, self.split, self.alpha, self.side = method, fresh, split, alpha, side
        rng = np.random.default_rng(derive_seed("attacked rows", split.seed))
        n = len(split.X_test)
        self.rows = np.sort(rng.permutation(n)[:MAX_ATTACKED])
        self.X_test = split.X_test[self.rows]
        self.clean = _sets(method, self.X_test, split, alpha)

    def run(self, r: int, certified: _Side) -> tuple[BoolArray, int]:
        """(which rows changed under any attack with r poisoned rows, certified sets that were broken)."""
        changed = np.zeros(len(self.rows), dtype=np.bool_)
        stays, keeps_out = certified.coverage[self.rows] >= r, certified.size[self.rows] >= r
        broken = np.zeros(len(self.rows), dtype=np.bool_)
        for X, y in self._poisoned(r):
            sets = _sets(self._learn(X, y), self.X_test, self.split, self.alpha)
            lost, entered = (self.clean & ~sets).any(axis=1), (sets & ~self.clean).any(axis=1)
            changed |= lost | entered
            broken |= (lost & stays) | (entered & keeps_out)
        return changed, int(broken.sum())

    def _learn(self, X: NDArray[np.float64], y: NDArray[Any]) -> Any:
        """A method that saw the poisoned rows in place of the clean ones."""
        if self.side == "calib" and callable(getattr(self.method, "calibrate", None)):
            poisoned = copy.deepcopy(self.method)
            poisoned.calibrate(X, y)
            return poisoned
        poisoned = clone(self.fresh) if hasattr(self.fresh, "get_params") else copy.deepcopy(self.fresh)
        if self.side == "calib":
            running.fit(poisoned, replace(self.split, X_calib=X, y_calib=y))
        else:
            running.fit(poisoned, replace(self.split, X_train=X, y_train=y))
        return poisoned

    def _poisoned(self, r: int) -> Iterator[tuple[NDArray[np.float64], NDArray[Any]]]:
        split = self.split
        X, y = (split.X_calib, split.y_calib) if self.side == "calib" else (split.X_train, split.y_train)
        classes = split.classes if split.classes is not None else np.unique(y)
        rng = np.random.default_rng(derive_seed("poison", self.side, r, split.seed))
        for _ in range(RANDOM_ATTACKS[self.side]):
            yield random_poison(X, y, classes, r, rng)
        for labels, rows in self._aimed(X, y, classes, r, rng):
            relabelled = y.copy()
            relabelled[rows] = labels
            yield X, relabelled

    def _aimed(
        self, X: NDArray[np.float64], y: NDArray[Any], classes: NDArray[Any], r: int, rng: np.random.Generator
    ) -> Iterator[tuple[NDArray[Any], NDArray[np.intp]]]:
        """(new labels, rows): calibration rows that move thresholds most, training rows near a test row."""
        if self.side == "train":
            target = self.X_test[rng.integers(len(self.X_test))]
            near = np.argsort(((X - target) ** 2).sum(axis=1), kind="stable")[:r]
            other = classes[(np.searchsorted(classes, y[near]) + 1) % len(classes)]
            # the same new label for all of them tells a member one thing
            yield np.full(len(near), other[0]), near
            return
        predict = getattr(self.method, "predict_proba", None)
        if not callable(predict):
            return
        known = np.asarray(getattr(self.method, "classes_", classes))
        proba = np.asarray(predict(X))
        column = {label: i for i, label in enumerate(known.tolist())}
        own = proba[np.arange(len(y)), [column[label] for label in y.tolist()]]
        surest, worst = np.argsort(-own, kind="stable")[:r], np.argsort(own, kind="stable")[:r]
        yield known[np.argmin(proba[surest], axis=1)], surest
        yield known[np.argmax(proba[worst], axis=1)], worst


def random_poison(
    X: NDArray[np.float64], y: NDArray[Any], classes: NDArray[Any], r: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """(X, y) after r random rows were each taken away, copied with a random label, or given another label."""
    chosen = rng.choice(len(y), size=min(r, len(y)), replace=False)
    deed = rng.integers(3, size=len(chosen))
    y = y.copy()
    flipped, copied, gone = chosen[deed == 0], chosen[deed == 1], chosen[deed == 2]
    step = rng.integers(1, max(len(classes), 2), size=len(flipped))
    y[flipped] = classes[(np.searchsorted(classes, y[flipped]) + step) % len(classes)]
    kept = np.setdiff1d(np.arange(len(y)), gone)
    return (
        np.concatenate([X[kept], X[copied]]),
        np.concatenate([y[kept], classes[rng.integers(len(classes), size=len(copied))]]),
    )
