"""Predictive distributions of a target: labels or numbers."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.core.checks import FloatArray, to_numpy
from assay.core.distributions import CategoricalDistribution, NumericDistribution, PredictiveDistribution
from assay.core.errors import MethodError, TaskError
from assay.core.scoring import CRPS_DRAWS, brier, crps, crps_is_exact
from assay.core.seeds import derive_seed
from assay.data.table import Table
from assay.tasks import calibration, measures, running
from assay.tasks.base import Asked, Metric, Outcome, Split, Task
from assay.tasks.interval import IntervalTask
from assay.tasks.label_set import LabelSetTask, as_labels
from assay.tasks.numeric import check_numbers
from assay.tasks.splitting import (
    Parts,
    check_row_count,
    make_split,
    random_parts,
    stratified_parts,
    without_test,
)

#: a probability below this counts as this in the negative log predictive density
PROBABILITY_FLOOR = 1e-12
#: the same for the density of a number, in the units of the target
DENSITY_FLOOR = 1e-300
#: rows of one call, most repeats of it and seconds after which no other is begun, to measure the time a row
TIMED_ROWS, TIMED_CALLS, TIMED_SECONDS = 256, 15, 1.0
_MAX_EXAMPLES = 150
_SHOWN_CLASSES = 3
_SHARPNESS_LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
#: the shifted rows are test rows whose features are shuffled, each by itself
PERMUTE = "permute"
LIKELIHOODS = ("classification", "regression")

_NLPD = "negative log predictive density of the test rows, mean. "
_COVERAGE = Metric(
    "coverage",
    "coverage",
    "share",
    "info",
    "Share of test rows in the predicted set of 1 - alpha: the likeliest labels, or the central interval.",
)
_COST = (
    Metric(
        "predict_ms_per_row",
        "ms a row",
        "ms",
        "lower",
        f"Milliseconds a row to predict up to {TIMED_ROWS} test rows in one call: median of up to "
        f"{TIMED_CALLS} calls after a first one.",
    ),
    Metric("fit_seconds", "fit", "s", "lower", "Seconds to fit."),
    Metric("peak_memory", "peak memory", "MiB", "lower", "Peak memory above the start of the trial."),
)
_OOD = Metric(
    "ood_auroc",
    "AUROC, shifted",
    "share",
    "higher",
    "Chance that a shifted row has a larger predictive entropy or sd than a test row; one half is blind.",
)
_CLASSES = (
    Metric(
        "nlpd",
        "NLPD",
        "nats",
        "lower",
        f"Labels: {_NLPD}A probability under {PROBABILITY_FLOOR:g} counts as that.",
    ),
    Metric(
        "brier",
        "Brier score",
        "",
        "lower",
        "Labels: squared distance of the probabilities from the truth, mean.",
    ),
    Metric(
        "accuracy",
        "accuracy",
        "share",
        "higher",
        "Labels: share of test rows whose likeliest label is right.",
    ),
    Metric(
        "calibration_error",
        "calibration error",
        "share",
        "lower",
        f"Labels: mean distance of accuracy from the largest probability in {calibration.BINS} bins of equal "
        "mass; with few rows a bin it is above zero for a calibrated method too, as chance adds to it.",
    ),
    Metric("sharpness", "mean entropy", "nats", "info", "Labels: mean entropy of the probabilities."),
)
_NUMBERS = (
    Metric(
        "nlpd",
        "NLPD",
        "nats of density",
        "lower",
        f"Numbers: {_NLPD}A density under {DENSITY_FLOOR:g} counts as that.",
    ),
    Metric(
        "crps",
        "CRPS",
        "target",
        "lower",
        "Numbers: continuous ranked probability score, mean: exact for Gaussians and mixtures of them, else "
        f"estimated from {CRPS_DRAWS} draws.",
    ),
    Metric("rmse", "RMSE", "target", "lower", "Numbers: root mean squared error of the predicted mean."),
    Metric(
        "calibration_error",
        "calibration error",
        "share",
        "lower",
        "Numbers: mean distance of the share of targets under the predicted quantile from its level, over "
        "the levels 0.05 to 0.95; chance alone makes it larger than zero.",
    ),
    Metric("sharpness", "mean sd", "target", "info", "Numbers: mean predictive standard deviation."),
)


class PredictiveTask(Task):
    """A distribution of the target for each row, judged by the density it gives to what happened.

    A method offers ``fit(X, y)`` and ``predict_dist(X)``, a
    :class:`~assay.core.distributions.PredictiveDistribution`; for labels ``predict_proba(X)`` and
    ``classes_`` suffice. ``likelihood`` reaches the methods whose constructor takes it.

    Parameters
    ----------
    likelihood : "classification" or "regression", optional
        What the target is; decided from its values by a comparison.
    shifted : str, optional
        Rows on which a method should be less sure than on the test rows: "permute" for the test rows with
        each feature shuffled by itself among them, or what to call those that the table holds.
    """

    name: ClassVar[str] = "predictive"
    reference: ClassVar[str] = "map-network"
    size_metric: ClassVar[str] = "nlpd"
    coverage_metric: ClassVar[str | None] = None
    options: ClassVar[tuple[str, ...]] = ("likelihood", "shifted")

    def __init__(self, likelihood: str | None = None, shifted: str | None = None) -> None:
        if likelihood not in (None, *LIKELIHOODS):
            raise TaskError(f"likelihood must be one of {', '.join(LIKELIHOODS)}, got {likelihood!r}")
        self.likelihood = likelihood
        of_kind = _NUMBERS if likelihood == "regression" else _CLASSES
        self.shifted = shifted
        ood = (_OOD,) if shifted is not None else ()
        self.metrics = (*of_kind, _COVERAGE, *ood, *_COST)
        if likelihood is None:  # not decided: all that there may be
            self.metrics = (*_CLASSES, *_NUMBERS, _COVERAGE, _OOD, *_COST)
        names = (of_kind[2].name, "calibration_error", *(metric.name for metric in ood))
        self.columns = (*names, "predict_ms_per_row")

    def decided(self, table: Table) -> Mapping[str, Any]:
        """The likelihood: labels or numbers, from the target's values unless it was asked for."""
        from assay.tasks.infer import kind_of_target

        if self.likelihood is not None:
            return {}
        classes = kind_of_target(table)[0] == LabelSetTask.name
        return {"likelihood": LIKELIHOODS[0 if classes else 1]}

    def _classifies(self, table: Table) -> bool:
        decided = self.decided(table)
        return bool(decided.get("likelihood", self.likelihood) == LIKELIHOODS[0])

    def check(self, table: Table, alpha: Fraction) -> None:
        """Refuse what the likelihood cannot be asked of, and tables too small for alpha."""
        if self._classifies(table):
            LabelSetTask().check(table, alpha)
            return
        check_numbers(table.y, table.target, "a distribution of numbers", "labels need a few classes")
        check_row_count(len(table), alpha)

    def split(self, table: Table, seed: int) -> Split:
        """Three quarters of the rows train (of each class, for labels), a quarter tests.

        The quarter that conformal methods calibrate on is kept apart in the split: a method whose ``fit``
        takes ``X_calib`` gets it so.
        """
        y, classes, parts = self._parts(table, seed)
        return make_split(table, y, parts, seed, classes, shifted=self._shifted_rows(table, parts[2], seed))

    def final_split(self, table: Table, seed: int) -> Split:
        """See :class:`~assay.tasks.base.Task`; shared out within each class, for labels."""
        y, classes, parts = self._parts(table, seed)
        return make_split(table, y, without_test(parts), seed, classes)

    def outcomes(self, table: Table) -> NDArray[Any]:
        """(n,) labels or numbers."""
        return as_labels(table) if self._classifies(table) else table.y.to_numpy(dtype=np.float64)

    def _parts(self, table: Table, seed: int) -> tuple[NDArray[Any], NDArray[Any] | None, Parts]:
        y = self.outcomes(table)
        if not self._classifies(table):
            return y, None, random_parts(len(table), seed)
        classes, encoded = np.unique(y, return_inverse=True)
        return y, classes, stratified_parts(encoded, seed)

    def answers(self, asked: Asked) -> dict[str, Any]:
        """Of labels ``prediction``, ``entropy`` and ``p_LABEL`` each; of numbers ``prediction``, ``sd`` and
        the ends of the central interval of 1 - alpha, ``lower`` and ``upper``.
        """
        dist = self._dist(asked.method, asked.X)
        if isinstance(dist, CategoricalDistribution):
            columns = {f"p_{label}": p for label, p in zip(dist.classes, dist.proba.T, strict=True)}
            return {"prediction": dist.mode, "entropy": dist.entropy, **columns}
        lower, upper = _central(dist, asked.alpha)
        return {"prediction": dist.mean, "sd": dist.std, "lower": lower, "upper": upper}

    def covered(self, asked: Asked, y: NDArray[Any]) -> tuple[measures.BoolArray, FloatArray]:
        """See :class:`~assay.tasks.base.Task`: the likeliest labels of 1 - alpha, or the central interval."""
        dist = self._dist(asked.method, asked.X)
        if isinstance(dist, CategoricalDistribution):
            place = {label: k for k, label in enumerate(dist.classes.tolist())}
            column = np.array([place.get(label, -1) for label in y.tolist()], dtype=np.intp)
            sizes = sum(
                calibration.in_high_probability_set(dist.proba, np.full(len(y), k), asked.alpha)
                for k in range(len(place))
            )
            inside = calibration.in_high_probability_set(dist.proba, column, asked.alpha)
            return (column >= 0) & inside, np.asarray(sizes, dtype=np.float64)
        lower, upper = _central(dist, asked.alpha)
        return np.asarray((lower <= y) & (y <= upper)), np.asarray(upper - lower)

    def _shifted_rows(self, table: Table, test: NDArray[np.intp], seed: int) -> pd.DataFrame | None:
        if self.shifted is None:
            return None
        if self.shifted != PERMUTE:
            if table.shifted is None:
                raise TaskError("the table holds no shifted rows; give them to compare as shifted=")
            return table.shifted
        rng = np.random.default_rng(derive_seed("shuffled features", seed))
        rows = table.X.iloc[test]
        return pd.DataFrame({name: rows[name].array[rng.permutation(len(rows))] for name in rows})

    def default_model(self) -> Any:
        """The gradient-boosted trees of the label-set and interval tasks."""
        return (IntervalTask() if self.likelihood == "regression" else LabelSetTask()).default_model()

    def accepts(self, method: Any) -> str | None:
        """None if there are ``fit(X, y)`` and ``predict_dist(X)``, or for labels ``predict_proba(X)``."""
        lack = running.lacks(method, "predict_dist")
        if lack is None or self.likelihood == "regression":
            return lack
        return lack if running.lacks(method, "predict_proba") else None

    def evaluate(self, method: Any, split: Split, alpha: Fraction) -> Outcome:
        """See :class:`~assay.tasks.base.Task`; peak memory is measured around it, by the comparison."""
        fit_seconds = running.fit(method, split)
        dist, notices = self._ask(method, split.X_test, split)
        if split.classes is not None:
            metrics, detail, more = _judge_labels(dist, split, alpha)
        else:
            metrics, detail, more = _judge_numbers(dist, split, alpha)
        if split.X_shifted is not None:
            outside, _ = self._ask(method, split.X_shifted, split)
            metrics["ood_auroc"] = calibration.separation(_doubt(dist), _doubt(outside))
        metrics["predict_ms_per_row"] = _milliseconds(
            lambda rows: _parts_of(self._dist(method, rows)), split.X_test
        )
        metrics["fit_seconds"] = fit_seconds
        n_train, n_calib = running.rows(method, split)
        detail |= {"n_train": n_train, "n_calib": n_calib, "n_test": len(split.y_test)}
        return Outcome(metrics, detail, (*notices, *more))

    def _dist(self, method: Any, X: FloatArray) -> Any:
        if callable(getattr(method, "predict_dist", None)):
            return method.predict_dist(X)
        return CategoricalDistribution(method.predict_proba(X), to_numpy(method.classes_))

    def _ask(
        self, method: Any, X: FloatArray, split: Split
    ) -> tuple[PredictiveDistribution, tuple[str, ...]]:
        dist = self._dist(method, X)
        wanted: Any = NumericDistribution if split.classes is None else CategoricalDistribution
        if not isinstance(dist, wanted):
            raise MethodError(f"predict_dist gave a {type(dist).__name__}; a {wanted.__name__} is expected")
        if len(dist) != len(X):
            raise MethodError(f"predict_dist gave {len(dist)} distributions for {len(X)} rows")
        if isinstance(dist, CategoricalDistribution) and split.classes is not None:
            return align_classes(dist, split.classes)
        return dist, ()


def align_classes(
    dist: CategoricalDistribution, classes: NDArray[Any]
) -> tuple[CategoricalDistribution, tuple[str, ...]]:
    """The probabilities in the order of ``classes``, 0 for those the method does not know, and a notice."""
    place = {label: k for k, label in enumerate(classes.tolist())}
    strange = [label for label in dist.classes.tolist() if label not in place]
    if strange:
        raise MethodError(f"the method names {len(strange)} labels not in the data, such as {strange[0]!r}")
    proba = np.zeros((len(dist), len(classes)))
    proba[:, [place[label] for label in dist.classes.tolist()]] = dist.proba
    unseen = len(classes) - len(dist.classes)
    said = f"{unseen} of {len(classes)} classes are unknown to it: probability 0"
    return CategoricalDistribution(proba, classes), (said,) if unseen else ()


def _judge_labels(
    dist: PredictiveDistribution, split: Split, alpha: Fraction
) -> tuple[dict[str, float], dict[str, Any], tuple[str, ...]]:
    assert isinstance(dist, CategoricalDistribution)
    y, proba = split.y_test, dist.proba
    true = np.searchsorted(dist.classes, y)
    log_p, notices = _floored(dist.log_prob(y), PROBABILITY_FLOOR, "probability")
    bins = calibration.reliability(proba, true)
    entropy = dist.entropy
    metrics = {
        "nlpd": -float(log_p.mean()),
        "brier": float(brier(dist, y).mean()),
        "accuracy": float((proba.argmax(axis=1) == true).mean()),
        "calibration_error": calibration.expected_calibration_error(bins),
        "sharpness": float(entropy.mean()),
        "coverage": float(calibration.in_high_probability_set(proba, true, alpha).mean()),
    }
    shown = measures.evenly_spread(np.argsort(entropy, kind="stable"), _MAX_EXAMPLES)
    detail = {
        "likelihood": LIKELIHOODS[0],
        "reliability": bins,
        "sharpness": _quantiles(entropy),
        "likeliest": [
            {
                "row": int(split.test_rows[i]),
                "y": str(y[i]),
                "nlpd": -float(log_p[i]),
                "proba": [
                    [str(dist.classes[k]), float(proba[i, k])]
                    for k in np.argsort(-proba[i], kind="stable")[:_SHOWN_CLASSES]
                ],
            }
            for i in shown
        ],
    }
    return metrics, detail, notices


def _judge_numbers(
    dist: PredictiveDistribution, split: Split, alpha: Fraction
) -> tuple[dict[str, float], dict[str, Any], tuple[str, ...]]:
    assert isinstance(dist, NumericDistribution)
    y, mean, std = split.y_test, dist.mean, dist.std
    log_p, notices = _floored(dist.log_prob(y), DENSITY_FLOOR, "density")
    pit = dist.cdf(y)
    curve = calibration.pit_curve(pit)
    ends = _central(dist, alpha)
    if not crps_is_exact(dist):
        notices += (f"CRPS is estimated from {CRPS_DRAWS} draws",)
    metrics = {
        "nlpd": -float(log_p.mean()),
        "crps": float(crps(dist, y).mean()),
        "rmse": float(np.sqrt(np.mean((y - mean) ** 2))),
        "calibration_error": float(np.mean([abs(share - level) for level, share in curve])),
        "sharpness": float(std.mean()),
        "coverage": float(((y >= ends[0]) & (y <= ends[1])).mean()),
    }
    shown = measures.evenly_spread(np.argsort(mean, kind="stable"), _MAX_EXAMPLES)
    detail = {
        "likelihood": LIKELIHOODS[1],
        "pit_curve": curve,
        "pit_histogram": calibration.pit_histogram(pit),
        "sharpness": _quantiles(std),
        "examples": {
            "row": [int(split.test_rows[i]) for i in shown],
            "y": [float(y[i]) for i in shown],
            "prediction": [float(mean[i]) for i in shown],
            "lower": [float(ends[0, i]) for i in shown],
            "upper": [float(ends[1, i]) for i in shown],
        },
    }
    return metrics, detail, notices


def _central(dist: NumericDistribution, alpha: Fraction) -> FloatArray:
    """(2, n) ends of the central interval of probability 1 - alpha."""
    return dist.quantile([float(alpha / 2), float(1 - alpha / 2)])


def _floored(log_p: FloatArray, floor: float, what: str) -> tuple[FloatArray, tuple[str, ...]]:
    low = int((log_p < np.log(floor)).sum())
    said = f"{low} of {len(log_p)} test rows have a {what} under {floor:g}, which counts as that in the NLPD"
    return np.maximum(log_p, np.log(floor)), (said,) if low else ()


def _quantiles(values: FloatArray) -> list[list[float]]:
    """[level, quantile] of what tells how sure a method is."""
    found = np.quantile(values, _SHARPNESS_LEVELS)
    return [[level, float(value)] for level, value in zip(_SHARPNESS_LEVELS, found, strict=True)]


def _doubt(dist: PredictiveDistribution) -> FloatArray:
    """(n,) how unsure each distribution is: its entropy, or its standard deviation."""
    if isinstance(dist, CategoricalDistribution):
        return dist.entropy
    assert isinstance(dist, NumericDistribution)
    return dist.std


def _parts_of(dist: PredictiveDistribution) -> Any:
    """What a user would read off a distribution: whatever it postpones must count as time."""
    if isinstance(dist, CategoricalDistribution):
        return dist.proba
    return (dist.mean, dist.variance) if isinstance(dist, NumericDistribution) else None


def _milliseconds(call: Any, X: FloatArray) -> float:
    """Median milliseconds a row of warm calls on up to TIMED_ROWS rows."""
    rows = np.ascontiguousarray(X[:TIMED_ROWS])
    call(rows)
    seconds: list[float] = []
    begin = perf_counter()
    while len(seconds) < TIMED_CALLS and (not seconds or perf_counter() - begin < TIMED_SECONDS):
        start = perf_counter()
        call(rows)
        seconds.append(perf_counter() - start)
    return 1000 * float(np.median(seconds)) / len(rows)
