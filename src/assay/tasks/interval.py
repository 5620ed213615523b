"""Prediction intervals for a numeric target."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from assay.core.checks import FloatArray, to_numpy
from assay.core.errors import MethodError
from assay.data.table import Table
from assay.tasks import measures, running
from assay.tasks.base import Asked, Metric, Outcome, Split, Task
from assay.tasks.numeric import check_contains, check_numbers, check_sizes
from assay.tasks.splitting import check_row_count, make_split, random_parts, without_test

_MAX_EXAMPLES = 150
_SLAB_FEATURES = 3


class IntervalTask(Task):
    """Intervals that hold the target with probability 1 - alpha, as narrow as can be.

    A method offers ``fit(X, y)`` and ``predict_interval(X) -> (n, 2)``. A lower end above its
    upper end is an empty interval; infinite ends are legal; NaN is not. One whose sets are several
    intervals also offers ``predict_region(X)`` with ``contains(y)`` and ``volume()``: coverage and
    widths are then those of the set, and the interval, which holds it, is scored and drawn.
    """

    name: ClassVar[str] = "interval"
    reference: ClassVar[str] = "split"
    size_metric: ClassVar[str] = "mean_width"
    coverage_metric: ClassVar[str | None] = "coverage"
    metrics: tuple[Metric, ...] = (
        Metric(
            "coverage", "coverage", "share", "target", "Share of test rows whose target lies in the interval."
        ),
        Metric("mean_width", "mean width", "target", "lower", "Mean width; infinite if any interval is."),
        Metric("median_width", "median width", "target", "lower", "Median width."),
        Metric("share_infinite", "infinite", "share", "lower", "Share of intervals with an infinite end."),
        Metric("share_empty", "empty", "share", "lower", "Share of intervals that contain nothing."),
        Metric(
            "interval_score",
            "interval score",
            "target",
            "lower",
            "Winkler score: mean of width plus 2 / alpha times the distance by which the target is outside.",
        ),
        Metric(
            "worst_slab_coverage",
            "worst-slab coverage",
            "share",
            "higher",
            "Coverage in the slab of feature space (a tenth of the rows or more) where it is worst, "
            "found on a quarter of the test rows and measured on the others.",
        ),
        Metric(
            "width_quintile_gap",
            "gap over widths",
            "share",
            "lower",
            "Mean distance of coverage from 1 - alpha over the quintiles of the method's own widths.",
        ),
        Metric("fit_seconds", "fit", "s", "lower", "Seconds to fit and calibrate."),
        Metric("predict_seconds", "predict", "s", "lower", "Seconds to predict the test rows."),
        Metric("peak_memory", "peak memory", "MiB", "lower", "Peak memory above the start of the trial."),
    )

    def check(self, table: Table, alpha: Fraction) -> None:
        """Refuse targets that are not numbers, infinite or constant, and tables too small for alpha."""
        check_numbers(table.y, table.target, "an interval", "sets of labels need none: --task label-set")
        check_row_count(len(table), alpha)

    def split(self, table: Table, seed: int) -> Split:
        """Half of the rows train, a quarter calibrates, a quarter tests."""
        return make_split(table, self.outcomes(table), random_parts(len(table), seed), seed, None)

    def final_split(self, table: Table, seed: int) -> Split:
        """See :class:`~assay.tasks.base.Task`."""
        parts = without_test(random_parts(len(table), seed))
        return make_split(table, self.outcomes(table), parts, seed, None)

    def outcomes(self, table: Table) -> FloatArray:
        """(n,) float64."""
        return table.y.to_numpy(dtype=np.float64)

    def answers(self, asked: Asked) -> dict[str, Any]:
        """``prediction`` (where the method has one), ``lower`` and ``upper``."""
        interval = _intervals_of(asked)
        return {**running.centre(asked), "lower": interval[:, 0], "upper": interval[:, 1]}

    def covered(self, asked: Asked, y: NDArray[Any]) -> tuple[measures.BoolArray, FloatArray]:
        """See :class:`~assay.tasks.base.Task`; sizes are widths, of a set of several intervals its length."""
        if running.has(asked.method, "predict_region"):
            region = running.answer(asked, "predict_region")
            return check_contains(region, y), check_sizes(region.volume(), len(y), "volume()")
        interval = _intervals_of(asked)
        return measures.covers(interval, y), measures.interval_widths(interval)

    def default_model(self) -> Any:
        """Gradient-boosted trees, small: 2,000 rows of diamonds take 0.1 s on one core."""
        from sklearn.ensemble import HistGradientBoostingRegressor

        return HistGradientBoostingRegressor(
            max_iter=100, max_leaf_nodes=15, min_samples_leaf=10, early_stopping=False
        )

    def default_quantile_model(self) -> Any:
        """Three times as many trees: the quantile loss learns more slowly.

        With 100 of them CQR's intervals on bike and diamonds were a fifth wider: a weak baseline.
        """
        return self.default_model().set_params(max_iter=300)

    def accepts(self, method: Any) -> str | None:
        """None if there are ``fit(X, y)`` and ``predict_interval(X)``."""
        return running.lacks(method, "predict_interval")

    def evaluate(self, method: Any, split: Split, alpha: Fraction) -> Outcome:
        """See :class:`~assay.tasks.base.Task`; peak memory is measured around it, by the comparison."""
        fit_seconds = running.fit(method, split)
        raw, predict_seconds, notices = running.predict(method, "predict_interval", split, alpha)
        interval = check_intervals(raw, len(split.X_test))
        y = split.y_test
        covered = measures.covers(interval, y)
        width = measures.interval_widths(interval)
        if running.has(method, "predict_region"):
            region, _, _ = running.predict(method, "predict_region", split, alpha)
            covered = check_contains(region, y)
            width = check_sizes(region.volume(), len(y), "volume()")
        groups = measures.width_groups(interval, width=width)
        slab = measures.worst_slab(split.X_test, covered, seed=split.seed)
        metrics = {
            "coverage": float(covered.mean()),
            **measures.sizes(interval, y, width, alpha),
            "worst_slab_coverage": float("nan") if slab is None else slab.coverage,
            "width_quintile_gap": measures.coverage_gap(groups, covered, alpha),
            "fit_seconds": fit_seconds,
            "predict_seconds": predict_seconds,
        }
        n_train, n_calib = running.rows(method, split)
        detail: dict[str, Any] = {
            "n_train": n_train,
            "n_calib": n_calib,
            "n_test": len(y),
            "expected_coverage": list(measures.expected_coverage(n_calib or n_train, len(y), alpha)),
            "examples": _examples(method, split, interval),
        }
        if groups:
            detail["by_width"] = _by_width(groups, width, covered)
        if slab is not None:
            largest = np.argsort(-np.abs(slab.direction), kind="stable")[:_SLAB_FEATURES]
            detail["slab"] = {
                "coverage": _finite(slab.coverage),
                "n": slab.n,
                "mass": slab.mass,
                "features": [split.feature_names[i] for i in largest],
            }
        return Outcome(metrics, detail, notices)


def _intervals_of(asked: Asked) -> FloatArray:
    return check_intervals(running.answer(asked, "predict_interval"), len(asked.X))


def check_intervals(raw: Any, n: int) -> FloatArray:
    """(n, 2) float64 ends without NaN, or a MethodError with numbers."""
    array = to_numpy(raw)
    if array.shape != (n, 2):
        raise MethodError(f"predict_interval gave shape {array.shape} for {n} rows; ({n}, 2) is expected")
    try:
        # text that could be read as numbers, complex numbers and true or false are mistakes
        interval = array.astype(np.float64, casting="unsafe" if array.dtype.kind in "fiuO" else "no")
    except (TypeError, ValueError):
        raise MethodError(
            f"predict_interval gave values that are not numbers (dtype {array.dtype})"
        ) from None
    bad = np.isnan(interval).any(axis=1)
    if bad.any():
        raise MethodError(
            f"predict_interval gave NaN in {int(bad.sum())} of {n} rows, first at row {int(bad.argmax())}"
        )
    return interval


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _examples(method: Any, split: Split, interval: FloatArray) -> dict[str, list[Any]]:
    """Test rows evenly spread over the prediction, for a picture."""
    prediction = None
    if running.has(method, "predict"):
        prediction = to_numpy(method.predict(split.X_test))
    if prediction is None or prediction.shape != split.y_test.shape or prediction.dtype.kind not in "fiu":
        with np.errstate(invalid="ignore"):
            prediction = interval.mean(axis=1)
    rows = measures.evenly_spread(np.argsort(prediction, kind="stable"), _MAX_EXAMPLES)
    return {
        "row": [int(split.test_rows[i]) for i in rows],
        "y": [_finite(split.y_test[i]) for i in rows],
        "prediction": [_finite(prediction[i]) for i in rows],
        "lower": [_finite(interval[i, 0]) for i in rows],
        "upper": [_finite(interval[i, 1]) for i in rows],
    }


def _by_width(
    groups: list[NDArray[np.intp]], width: FloatArray, covered: measures.BoolArray
) -> list[dict[str, Any]]:
    return [
        {
            "label": f"{width[rows].min():.3g} to {width[rows].max():.3g}",
            "n": len(rows),
            "coverage": float(covered[rows].mean()),
            "mean_width": _finite(width[rows].mean()),
        }
        for rows in groups
    ]
