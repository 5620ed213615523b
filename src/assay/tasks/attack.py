"""Sets of labels for rows that somebody may have moved within a radius."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import TaskError
from assay.core.seeds import derive_seed
from assay.data.table import Table
from assay.tasks import attacks, running
from assay.tasks.base import Metric, Outcome, Split
from assay.tasks.label_set import LabelSetTask, align_sets

#: test rows that are used: every one is attacked, and scored at many noisy copies
MAX_TEST_ROWS = 500
#: radii of the certified sizes, as multiples of the radius asked for
_RADII = tuple(k / 8 for k in range(17))
#: rows on which calls of the model are counted
_COUNTED_ROWS = 10
_OF_SETS = ("mean_size", "share_empty", "share_singleton", "worst_class_coverage")
_OF_COST = ("fit_seconds", "predict_seconds", "peak_memory")


class AttackTask(LabelSetTask):
    """Sets that hold the true label with probability 1 - alpha wherever within a radius the row was moved.

    A row may be moved by up to ``radius`` in Euclidean distance between prepared features: numbers have
    mean 0 and deviation 1 on the training rows, so that 0.25 is a quarter of a standard deviation of
    one feature. A method offers ``fit`` and ``predict_set`` as for label sets; where its constructor takes
    ``radius`` and ``noise_scale`` it is given those of the question. Fitted, it says in ``certified_radius_``
    up to where its coverage is guaranteed; without, nothing is, and it is not recommended. With
    ``predict_proba`` (without noise), or a torch module as its model, it is attacked by search, or by its
    gradients.
    """

    name: ClassVar[str] = "attack"
    reference: ClassVar[str] = "smooth-cp"
    coverage_metric: ClassVar[str] = "attacked_coverage"
    beside_coverage: ClassVar[tuple[str, ...]] = ("coverage",)
    options: ClassVar[tuple[str, ...]] = ("radius", "noise_scale")
    metrics: tuple[Metric, ...] = (
        Metric(
            "attacked_coverage",
            "coverage under attack",
            "share",
            "target",
            "Share of test rows whose label is in the set of the row moved at random and of the row moved by "
            "an attack on the model, both by the radius.",
        ),
        Metric("coverage", "clean coverage", "share", "target", "Coverage of the test rows where they are."),
        Metric(
            "random_coverage",
            "coverage, random moves",
            "share",
            "target",
            "Coverage of rows moved by the radius in a random direction.",
        ),
        *(metric for metric in LabelSetTask.metrics if metric.name in _OF_SETS),
        Metric(
            "share_all",
            "all labels",
            "share",
            "lower",
            "Share of sets with every label, which say nothing.",
        ),
        Metric(
            "certified_radius",
            "certified radius",
            "deviations",
            "info",
            "How far rows may be moved under the guarantee of the method at this number of noisy copies; 0 "
            "where it gives none.",
        ),
        Metric(
            "model_calls",
            "calls of the model",
            "calls",
            "lower",
            "Times that the model is asked for one row's set.",
        ),
        *(metric for metric in LabelSetTask.metrics if metric.name in _OF_COST),
    )

    def __init__(self, radius: float = 0.25, noise_scale: float = 0.25) -> None:
        for value, what in ((radius, "radius"), (noise_scale, "noise_scale")):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < np.inf:
                raise TaskError(f"{what} is {value!r}; give a finite number of at least 0")
        if noise_scale == 0:
            raise TaskError("noise_scale is 0: without noise there is no certificate; take about the radius")
        self.radius = float(radius)
        self.noise_scale = float(noise_scale)

    def notes(self, table: Table) -> tuple[str, ...]:
        """What the radius means on this table."""
        return (
            f"Rows are moved by {self.radius:g} in Euclidean distance between prepared features: numbers in "
            "standard deviations of the training rows, categories as columns of 0 and 1. Noise has standard "
            f"deviation {self.noise_scale:g} in each.",
        )

    def requirement(self) -> str:
        """A certificate at the radius asked for."""
        return f"that are certified at radius {self.radius:g}" if self.radius else ""

    def lacks(self, means: Mapping[str, float]) -> str | None:
        """What is missing where an attack that was not found is all the evidence."""
        # a mean over seeds of a radius that is the same on each
        if means.get("certified_radius", 0.0) >= self.radius * (1 - 1e-9):
            return None
        return f"not certified at radius {self.radius:g}: an attack that was not found is no certificate"

    def default_model(self) -> Any:
        """One hidden layer, trained until a tenth of its rows no longer improves: noise makes trees jump."""
        from sklearn.neural_network import MLPClassifier

        return MLPClassifier(hidden_layer_sizes=(100,), early_stopping=True, max_iter=1000)

    def evaluate(self, method: Any, split: Split, alpha: Fraction) -> Outcome:
        """Fit, predict at most 500 test rows where they are, then attack them and predict again."""
        some = slice(0, MAX_TEST_ROWS)
        split = replace(
            split, X_test=split.X_test[some], y_test=split.y_test[some], test_rows=split.test_rows[some]
        )
        clean = super().evaluate(method, split, alpha)
        with attacks.counted(getattr(method, "estimator_", None)) as calls:
            asked = split.X_test[:_COUNTED_ROWS]
            method.predict_set(asked)
        rng = np.random.default_rng(derive_seed("attack", split.seed))
        by_chance = self._covered(method, split, attacks.random_moves(split.X_test, self.radius, rng), alpha)
        attacked, attack = self._attack(method, split, rng)
        survived = by_chance
        if attacked is not None:
            survived = by_chance & self._covered(method, split, attacked, alpha)
        # sparse noise certifies numbers of flips, which are no distance
        certified = getattr(method, "certified_radius_", 0.0)
        certified = float(certified) if np.ndim(certified) == 0 else 0.0
        sizes = dict(clean.detail["size_histogram"])
        metrics = {
            **{of.name: clean.metrics[of.name] for of in self.metrics if of.name in clean.metrics},
            "attacked_coverage": float(survived.mean()),
            "random_coverage": float(by_chance.mean()),
            "share_all": sizes.get(0 if split.classes is None else len(split.classes), 0) / len(split.y_test),
            "certified_radius": certified,
            "model_calls": calls.rows / len(asked) if calls is not None else float("nan"),
        }
        detail = {**clean.detail, "radius": self.radius, "noise_scale": self.noise_scale, "attack": attack}
        if 0 < self.radius == certified and hasattr(method, "certified_sets"):
            radii = [self.radius * part for part in _RADII]
            sets = method.certified_sets(split.X_test, radii)
            found = [float(size) for size in sets.sum(axis=2).mean(axis=1)]
            detail["size_by_radius"] = [list(pair) for pair in zip(radii, found, strict=True)]
        return Outcome(metrics, detail, clean.notices)

    def _covered(self, method: Any, split: Split, X: NDArray[Any], alpha: Fraction) -> NDArray[np.bool_]:
        """(n,) whether the sets of the moved rows hold their true labels."""
        raw, _, _ = running.predict(method, "predict_set", replace(split, X_test=X), alpha)
        classes = np.asarray(split.classes)
        sets, _ = align_sets(raw, getattr(method, "classes_", None), classes, len(X))
        return np.asarray(sets[np.arange(len(X)), np.searchsorted(classes, split.y_test)])

    def _attack(
        self, method: Any, split: Split, rng: np.random.Generator
    ) -> tuple[NDArray[np.float64] | None, str]:
        """(moved test rows, how they were found); None where the method shows no chances."""
        classes = np.asarray(getattr(method, "classes_", split.classes))
        column = {label: k for k, label in enumerate(classes.tolist())}
        codes = np.array([column.get(label, -1) for label in split.y_test.tolist()])
        # the attacker knows how the method works, noise and all
        noise_scale = self.noise_scale if hasattr(method, "noise_scale") else 0.0
        known = codes >= 0
        moved = split.X_test.copy()
        X, y, codes = split.X_test[known], split.y_test[known], codes[known]
        module = attacks.torch_module(method)
        if module is not None:
            moved[known] = attacks.projected_gradient(module, X, codes, self.radius, noise_scale, rng)
            return moved, "projected gradients"
        if not hasattr(method, "predict_proba"):
            return None, "random moves only: it has no predict_proba"

        def chance(rows: NDArray[np.float64]) -> NDArray[np.float64]:
            proba = np.asarray(method.predict_proba(rows), dtype=np.float64)
            return np.asarray(proba[np.arange(len(rows)), np.resize(codes, len(rows))])

        towards = attacks.nearest_of_others(X, y, split.X_train, split.y_train, rng)
        moved[known] = attacks.search(chance, X, self.radius, noise_scale, rng, towards)
        return moved, "search"
