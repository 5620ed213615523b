"""Interval methods beside crepes, MAPIE and puncc: time as a ratio to ours, memory above inputs and answer.

    bash benchmarks/environment.sh
    .bench-env/bin/python benchmarks/intervals.py --json intervals.json

All libraries get the same predictions. crepes and puncc take them as they are; MAPIE takes none, so
it gets a trained model that returns its input.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from runner import Case, Unavailable, main
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.linear_model import LinearRegression

ALPHA = 0.1
MILLION = 1_000_000


class Column(RegressorMixin, BaseEstimator):
    """A trained model whose prediction is a column of X."""

    fitted_ = True  # what MAPIE looks for in a trained model

    def __init__(self, column: int = 0) -> None:
        self.column = column

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any, y: Any) -> Column:
        return self

    def predict(self, X: Any) -> Any:
        return X[:, self.column]


def rows(n: int, seed: int) -> tuple[Any, Any]:
    """(predictions, targets) of n rows whose noise is normal."""
    rng = np.random.default_rng(seed)
    prediction = rng.normal(size=n)
    return prediction, prediction + rng.normal(size=n)


def split_inputs(n: int = MILLION) -> Any:
    prediction, y = rows(n, 0)
    return prediction, y, rows(n, 1)[0]


def split_assay(data: Any) -> Any:
    from assay.conformal import SplitConformalRegressor

    prediction, y, test = data
    return SplitConformalRegressor(alpha=ALPHA).calibrate_pred(prediction, y).predict_interval_pred(test)


def split_crepes(data: Any) -> Any:
    from crepes import ConformalRegressor

    prediction, y, test = data
    return ConformalRegressor().fit(y - prediction).predict_int(test, confidence=1 - ALPHA)


def split_mapie(data: Any) -> Any:
    from mapie.regression import SplitConformalRegressor

    prediction, y, test = data
    peer = SplitConformalRegressor(Column(), confidence_level=1 - ALPHA, prefit=True)
    return peer.conformalize(prediction[:, None], y).predict_interval(test[:, None])[1][:, :, 0]


def split_puncc(data: Any) -> Any:
    from deel.puncc.api import nonconformity_scores, prediction_sets
    from deel.puncc.api.calibration import BaseCalibrator

    prediction, y, test = data
    peer = BaseCalibrator(
        nonconf_score_func=nonconformity_scores.absolute_difference,
        pred_set_func=prediction_sets.constant_interval,
    )
    peer.fit(y_true=y, y_pred=prediction)
    return tuple(peer.calibrate(alpha=ALPHA, y_pred=test))


def quantiles(n: int, seed: int) -> Any:
    prediction, y = rows(n, seed)
    return np.column_stack([prediction - 1, prediction + 1]), y


def cqr_inputs(n: int = MILLION) -> Any:
    pairs, y = quantiles(n, 0)
    return pairs, y, quantiles(n, 1)[0]


def cqr_assay(data: Any) -> Any:
    from assay.conformal import ConformalizedQuantileRegressor

    pairs, y, test = data
    method = ConformalizedQuantileRegressor(alpha=ALPHA).calibrate_pred(pairs, y)
    return method.predict_interval_pred(test)


def cqr_crepes(data: Any) -> Any:
    raise Unavailable("has no CQR")


def cqr_mapie(data: Any) -> Any:
    from mapie.regression import ConformalizedQuantileRegressor

    pairs, y, test = data
    # lower, upper, median; the third is asked for and plays no part in the interval
    models = [Column(0), Column(1), Column(0)]
    peer = ConformalizedQuantileRegressor(models, confidence_level=1 - ALPHA, prefit=True)
    peer.conformalize(pairs, y)
    return peer.predict_interval(test, symmetric_correction=True)[1][:, :, 0]


def cqr_puncc(data: Any) -> Any:
    from deel.puncc.api import nonconformity_scores, prediction_sets
    from deel.puncc.api.calibration import BaseCalibrator

    pairs, y, test = data
    peer = BaseCalibrator(
        nonconf_score_func=nonconformity_scores.cqr_score, pred_set_func=prediction_sets.cqr_interval
    )
    peer.fit(y_true=y, y_pred=pairs)
    return tuple(peer.calibrate(alpha=ALPHA, y_pred=test))


def table(n: int, seed: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 10))
    return X, X[:, 0] + rng.normal(size=n)


def cross_inputs(n: int) -> Any:
    return lambda: (*table(n, 0), table(n, 1)[0])


def cv_plus_assay(data: Any) -> Any:
    from assay.conformal import CrossValidationPlusRegressor

    X, y, test = data
    return (
        CrossValidationPlusRegressor(LinearRegression(), alpha=ALPHA, random_state=0)
        .fit(X, y)
        .predict_interval(test)
    )


def cv_plus_mapie(data: Any) -> Any:
    from mapie.regression import CrossConformalRegressor
    from sklearn.model_selection import KFold

    X, y, test = data
    folds = KFold(10, shuffle=True, random_state=0)
    peer = CrossConformalRegressor(LinearRegression(), confidence_level=1 - ALPHA, method="plus", cv=folds)
    return peer.fit_conformalize(X, y).predict_interval(test)[1][:, :, 0]


def jackknife_assay(data: Any) -> Any:
    from assay.conformal import JackknifePlusRegressor

    X, y, test = data
    return JackknifePlusRegressor(LinearRegression(), alpha=ALPHA).fit(X, y).predict_interval(test)


def jackknife_mapie(data: Any) -> Any:
    from mapie.regression import CrossConformalRegressor

    X, y, test = data
    peer = CrossConformalRegressor(LinearRegression(), confidence_level=1 - ALPHA, method="plus", cv=len(y))
    return peer.fit_conformalize(X, y).predict_interval(test)[1][:, :, 0]


def same_intervals(ours: Any, theirs: Any) -> str:
    """How far another library's intervals are from ours."""
    ends = np.column_stack(theirs) if isinstance(theirs, tuple) else theirs
    gap = float(np.abs(ours - ends).max())
    return "equal" if gap < 1e-9 else f"differs by up to {gap:.1g}"


CASES = [
    Case(
        "split, 1,000,000 + 1,000,000 rows",
        split_inputs,
        {"assay": split_assay, "crepes": split_crepes, "MAPIE": split_mapie, "puncc": split_puncc},
        repeats=15,
        agree=same_intervals,
        tiny=lambda: split_inputs(100),
    ),
    Case(
        "CQR, 1,000,000 + 1,000,000 rows",
        cqr_inputs,
        {"assay": cqr_assay, "crepes": cqr_crepes, "MAPIE": cqr_mapie, "puncc": cqr_puncc},
        repeats=15,
        agree=same_intervals,
        tiny=lambda: cqr_inputs(100),
    ),
    Case(
        "CV+, 4,000 x 4,000 rows, 10 folds",
        cross_inputs(4_000),
        {"assay": cv_plus_assay, "MAPIE": cv_plus_mapie},
        repeats=5,
        tiny=cross_inputs(100),
        agree=same_intervals,
    ),
    Case(
        "CV+, 50,000 x 50,000 rows, 10 folds",
        cross_inputs(50_000),
        {"assay": cv_plus_assay},
        repeats=3,
        tiny=cross_inputs(100),
    ),
    Case(
        "jackknife+, 1,000 x 1,000 rows, linear model",
        cross_inputs(1_000),
        {"assay": jackknife_assay, "MAPIE": jackknife_mapie},
        repeats=3,
        tiny=cross_inputs(100),
        agree=same_intervals,
    ),
    Case(
        "jackknife+, 50,000 x 50,000 rows, linear model",
        cross_inputs(50_000),
        {"assay": jackknife_assay},
        repeats=3,
        tiny=cross_inputs(100),
    ),
]


if __name__ == "__main__":
    raise SystemExit(main(CASES, "intervals"))
