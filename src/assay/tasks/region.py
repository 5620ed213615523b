"""Prediction regions for several numeric targets at once."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from assay.core.checks import FloatArray, to_numpy
from assay.core.errors import DataError, MethodError, TaskError
from assay.data.columns import same_values
from assay.data.table import Table
from assay.tasks import measures, running
from assay.tasks.base import Asked, Metric, Outcome, Split, Task
from assay.tasks.numeric import check_contains, check_numbers, check_sizes
from assay.tasks.outlines import outlines
from assay.tasks.splitting import Parts, check_row_count, make_split, random_parts, without_test

_VOLUME_UNIT = "product of sds"
#: quantiles of the volumes that the report draws
_QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
_DRAWN_ROWS = 6
_BACKGROUND_ROWS = 250
_SLAB_FEATURES = 3
#: a target of at most this many values, each for this many rows on average, is no continuous one
_FEW_VALUES = 100
_ROWS_A_VALUE = 10


class RegionTask(Task):
    """Regions that hold all targets of a row at once with probability 1 - alpha, as small as can be.

    A method offers ``fit(X, Y)`` with Y (n, q) and ``predict_region(X)``, an object with
    ``contains(Y) -> (n,) bool`` and ``volume() -> (n,)`` (inf where unbounded, 0 where empty), or
    ``log_volume()`` in place of the latter. Pictures of two targets take ``boundary(n_points)``, or
    ``take(rows)`` with ``bounding_box()``, where there is one.

    Volumes are given in units of the product of the targets' standard deviations on the training rows:
    1 is a box of one standard deviation a side, whatever the targets are measured in.

    The median volume decides the recommendation. Volumes are heavy-tailed: a few rows far from the
    training rows can carry the mean. The geometric mean (the log-volume) looks at all rows, but a method
    can lower it without bound by giving a few rows next to nothing; half of the rows cannot be bought
    that way at an honest coverage. Mean, log-volume and infinite regions stand beside it.
    """

    name: ClassVar[str] = "region"
    reference: ClassVar[str] = "bonferroni-box"
    size_metric: ClassVar[str] = "median_volume"
    coverage_metric: ClassVar[str | None] = "coverage"
    several_targets: ClassVar[bool] = True
    metrics: tuple[Metric, ...] = (
        Metric(
            "coverage", "coverage", "share", "target", "Share of test rows whose targets lie in the region."
        ),
        Metric(
            "median_volume",
            "median volume",
            _VOLUME_UNIT,
            "lower",
            "Median volume, in units of the product of the targets' standard deviations on the training "
            "rows.",
        ),
        Metric(
            "mean_volume",
            "mean volume",
            _VOLUME_UNIT,
            "lower",
            "Mean volume in the same unit; infinite if any region is.",
        ),
        Metric(
            "log_volume_per_dimension",
            "log-volume per target",
            "",
            "lower",
            "Mean over the rows of the volume's natural logarithm, divided by the number of targets: "
            "e to that power is the side of a typical cube, in standard deviations. Empty regions are left "
            "out.",
        ),
        Metric("share_infinite", "infinite", "share", "lower", "Share of regions without an end."),
        Metric("share_empty", "empty", "share", "lower", "Share of regions of volume 0."),
        Metric(
            "worst_slab_coverage",
            "worst-slab coverage",
            "share",
            "higher",
            "Coverage in the slab of feature space (a tenth of the rows or more) where it is worst, "
            "found on a quarter of the test rows and measured on the others.",
        ),
        Metric(
            "volume_quintile_gap",
            "gap over volumes",
            "share",
            "lower",
            "Mean distance of coverage from 1 - alpha over the quintiles of the method's own volumes.",
        ),
        Metric("fit_seconds", "fit", "s", "lower", "Seconds to fit and calibrate."),
        Metric(
            "predict_seconds",
            "predict",
            "s",
            "lower",
            "Seconds to predict the regions of the test rows and to say which hold their targets.",
        ),
        Metric("peak_memory", "peak memory", "MiB", "lower", "Peak memory above the start of the trial."),
    )

    def check(self, table: Table, alpha: Fraction) -> None:
        """Refuse a single target, targets that are not numbers, infinite, constant or equal, and few rows."""
        if len(table.targets) < 2:
            raise TaskError(
                f"a region is for two targets or more, such as --target {table.target},OTHER; "
                "for one target: --task interval"
            )
        for target in table.targets:
            check_numbers(
                table.Y[target], target, "a region", "a target of labels needs a question of its own"
            )
        for i, first in enumerate(table.targets):
            for second in table.targets[i + 1 :]:
                if same_values(table.Y[first], table.Y[second]):
                    raise DataError(f"the targets {first!r} and {second!r} are equal in every row; name one")
        check_row_count(len(table), alpha)

    def notes(self, table: Table) -> tuple[str, ...]:
        """Targets of few distinct values, in which a small volume says little."""
        counts = {target: int(table.frame[target].nunique()) for target in table.targets}
        most = min(_FEW_VALUES, len(table) / _ROWS_A_VALUE)
        few = [f"{target} ({count})" for target, count in counts.items() if count <= most]
        if not few:
            return ()
        return (
            f"few distinct values, for {len(table):,} rows: {', '.join(few)}. Slivers around single values "
            "cover them at next to no volume, so volumes favour methods that learn densities; "
            "what they say of values in between is not tested",
        )

    def split(self, table: Table, seed: int) -> Split:
        """Half of the rows train, a quarter calibrates, a quarter tests; y are (n, q) arrays.

        Raises
        ------
        DataError
            A target is constant on the training rows of this seed, and so has no unit.
        """
        return self._split(table, random_parts(len(table), seed), seed)

    def final_split(self, table: Table, seed: int) -> Split:
        """See :class:`~assay.tasks.base.Task`."""
        return self._split(table, without_test(random_parts(len(table), seed)), seed)

    def _split(self, table: Table, parts: Parts, seed: int) -> Split:
        Y = self.outcomes(table)
        constant = Y[parts[0]].min(axis=0) == Y[parts[0]].max(axis=0)
        if constant.any():
            target = table.targets[int(constant.argmax())]
            raise DataError(
                f"the target {target!r} is constant on the {len(parts[0])} training rows of seed {seed}"
            )
        return make_split(table, Y, parts, seed, None)

    def outcomes(self, table: Table) -> FloatArray:
        """(n, q) float64."""
        return table.Y.to_numpy(dtype=np.float64)

    def answers(self, asked: Asked) -> dict[str, Any]:
        """``prediction_T`` of each target T (where the method has one), the ``volume`` of the region in units
        of the targets, and where there is one its bounding box: ``lower_T``, ``upper_T``."""
        region, out = running.answer(asked, "predict_region"), {}
        for prediction in running.centre(asked).values():
            out = {f"prediction_{t}": prediction[:, i] for i, t in enumerate(asked.targets)}
        out["volume"] = check_sizes(region.volume(), len(asked.X), "volume()")
        if running.has(region, "bounding_box"):
            box = to_numpy(region.bounding_box())
            for i, target in enumerate(asked.targets):
                out |= {f"lower_{target}": box[:, i, 0], f"upper_{target}": box[:, i, 1]}
        return out

    def covered(self, asked: Asked, y: NDArray[Any]) -> tuple[measures.BoolArray, FloatArray]:
        """See :class:`~assay.tasks.base.Task`; sizes are volumes."""
        region = running.answer(asked, "predict_region")
        return check_contains(region, y), check_sizes(region.volume(), len(y), "volume()")

    def default_model(self) -> Any:
        """The trees of the interval task, one model a target.

        On house prices (latitude and price, 6,000 training rows) the squared errors are a sixth and five
        sixths of those of extremely randomised trees with both outputs (100, leaves of 3 rows), in a third
        of their time; random forests are no better. On four outcomes of births all are within 7 %.
        """
        return self.fitting(_trees(100))

    def default_quantile_model(self) -> Any:
        """The quantile model of the interval task, for one target: such methods copy it for each."""
        return _trees(300)

    def fitting(self, model: Any) -> Any:
        """The model itself if it predicts several targets, else one copy of it a target."""
        from sklearn.multioutput import MultiOutputRegressor

        if _predicts_several(model):
            return model
        return MultiOutputRegressor(model)

    def accepts(self, method: Any) -> str | None:
        """None if there are ``fit(X, Y)`` and ``predict_region(X)``."""
        return running.lacks(method, "predict_region")

    def evaluate(self, method: Any, split: Split, alpha: Fraction) -> Outcome:
        """See :class:`~assay.tasks.base.Task`; peak memory is measured around it, by the comparison."""
        Y, (n, q) = split.y_test, split.y_test.shape
        fit_seconds = running.fit(method, split)
        region, predict_seconds, notices = running.predict(method, "predict_region", split, alpha)
        covered, seconds = running.timed(check_contains, region, Y)
        log_volume = _log_volumes(region, n) - float(np.log(split.y_train.std(axis=0)).sum())
        with np.errstate(over="ignore"):
            volume = np.exp(log_volume)
        groups = measures.width_groups(np.column_stack([log_volume, log_volume]), width=log_volume)
        slab = measures.worst_slab(split.X_test, covered, seed=split.seed)
        sized = log_volume[log_volume > -np.inf]
        metrics = {
            "coverage": float(covered.mean()),
            "median_volume": float(np.median(volume)),
            "mean_volume": float(volume.mean()),
            "log_volume_per_dimension": float(sized.mean()) / q if len(sized) else float("nan"),
            "share_infinite": float(np.isposinf(log_volume).mean()),
            "share_empty": float(np.isneginf(log_volume).mean()),
            "worst_slab_coverage": float("nan") if slab is None else slab.coverage,
            "volume_quintile_gap": measures.coverage_gap(groups, covered, alpha),
            "fit_seconds": fit_seconds,
            "predict_seconds": predict_seconds + seconds,
        }
        n_train, n_calib = running.rows(method, split)
        detail: dict[str, Any] = {
            "n_train": n_train,
            "n_calib": n_calib,
            "n_test": n,
            "expected_coverage": list(measures.expected_coverage(n_calib or n_train, n, alpha)),
            "target_sd": [_rounded(sd) for sd in split.y_train.std(axis=0)],
            "volumes": [_rounded(v) for v in np.quantile(volume, _QUANTILES, method="higher")],
        }
        if groups:
            detail["by_volume"] = [
                {
                    "label": f"{volume[rows].min():.3g} to {volume[rows].max():.3g}",
                    "n": len(rows),
                    "coverage": float(covered[rows].mean()),
                    "mean_volume": _rounded(volume[rows].mean()),
                }
                for rows in groups
            ]
        if slab is not None:
            largest = np.argsort(-np.abs(slab.direction), kind="stable")[:_SLAB_FEATURES]
            detail["slab"] = {
                "coverage": slab.coverage,
                "n": slab.n,
                "mass": slab.mass,
                "features": [split.feature_names[i] for i in largest],
            }
        if q == 2:
            detail["plane"] = _plane(region, split, covered, log_volume)
        return Outcome(metrics, detail, notices)


def _trees(n: int) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor

    return HistGradientBoostingRegressor(
        max_iter=n, max_leaf_nodes=15, min_samples_leaf=10, early_stopping=False
    )


def _predicts_several(model: Any) -> bool:
    """What scikit-learn's tags say; a model without tags is taken at its word."""
    from sklearn.utils import get_tags

    if not hasattr(model, "__sklearn_tags__"):
        return True
    return bool(get_tags(model).target_tags.multi_output)


def _log_volumes(region: Any, n: int) -> FloatArray:
    """(n,) natural logarithms of the volumes, in the targets' own units."""
    if callable(getattr(region, "log_volume", None)):
        return check_sizes(region.log_volume(), n, "log_volume()", negative=True)
    if not callable(getattr(region, "volume", None)):
        raise MethodError(f"predict_region gave a {type(region).__name__} without volume()")
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(check_sizes(region.volume(), n, "volume()")))


def _rounded(value: float) -> float | None:
    """Four significant digits; None if infinite."""
    return float(f"{value:.4g}") if np.isfinite(value) else None


def _plane(region: Any, split: Split, covered: measures.BoolArray, log_volume: FloatArray) -> dict[str, Any]:
    """Material of a picture: test targets, and the regions of a few rows, the same for every method."""
    frame = _frame(split)
    margin = 0.15 * (frame[:, 1] - frame[:, 0])
    frame = np.column_stack([frame[:, 0] - margin, frame[:, 1] + margin])
    rows = _spread_rows(split)
    lines = outlines(region, rows, frame)
    background = measures.evenly_spread(np.argsort(split.y_test[:, 0], kind="stable"), _BACKGROUND_ROWS)
    digits = [max(0, int(np.ceil(4 - np.log10(width)))) for width in frame[:, 1] - frame[:, 0]]

    def listed(points: FloatArray) -> list[list[float]]:
        return [[round(float(x), digits[0]), round(float(y), digits[1])] for x, y in points]

    return {
        "frame": frame.tolist(),
        "background": listed(split.y_test[background]),
        "regions": [
            {
                "row": int(split.test_rows[row]),
                "y": listed(split.y_test[[row]])[0],
                "inside": bool(covered[row]),
                "infinite": bool(np.isposinf(log_volume[row])),
                "outlines": None if lines is None else [listed(line) for line in lines[place]],
            }
            for place, row in enumerate(rows)
        ],
    }


def _frame(split: Split) -> FloatArray:
    """(2, 2) lower and upper end of each target over 99 % of the test rows, never equal."""
    frame = np.quantile(split.y_test, [0.005, 0.995], axis=0).T
    # a target with one value in almost all rows: the rare others are shown too
    whole = np.column_stack([split.y_test.min(axis=0), split.y_test.max(axis=0)])
    frame = np.where(frame[:, :1] == frame[:, 1:], whole, frame)
    sd = split.y_train.std(axis=0)[:, None] * np.array([-1.0, 1.0])
    return np.where(frame[:, :1] == frame[:, 1:], frame + sd, frame)


def _spread_rows(split: Split) -> NDArray[np.intp]:
    """A few test rows that differ: evenly spread over a linear prediction of the standardised targets.

    The targets of the test rows have no say, so that hits and misses come as they do on all rows.
    """
    Z = (split.y_train - split.y_train.mean(axis=0)) / split.y_train.std(axis=0)
    main = np.linalg.svd(Z, full_matrices=False)[2][0]
    design = np.column_stack([np.ones(len(Z)), split.X_train])
    weights = np.linalg.lstsq(design, Z @ main, rcond=1e-6)[0]
    order = np.argsort(np.column_stack([np.ones(len(split.X_test)), split.X_test]) @ weights, kind="stable")
    places = (np.arange(_DRAWN_ROWS) + 0.5) / _DRAWN_ROWS * len(order)
    return np.asarray(order[np.unique(places.astype(np.intp))])
