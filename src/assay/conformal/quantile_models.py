"""Conditional quantiles from the user's model: how each kind of regressor is told its quantile level."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.pipeline import Pipeline

from assay.core.checks import FloatArray, refuse_nan, row_count, to_float, to_numpy
from assay.core.errors import AssayWarning, DataError, MethodError
from assay.core.models import predict_values
from assay.core.seeds import seed_of

# library -> (argument that names the loss, value for the pinball loss, argument of the level)
_BOOSTERS = {
    "lightgbm": ("objective", "quantile", "alpha"),
    "xgboost": ("objective", "reg:quantileerror", "quantile_alpha"),
}


class QuantileModel:
    """Fitted models of conditional quantiles behind one ``predict(X) -> (n, L)``.

    ``models`` is one model a level, or a single one whose ``predict`` takes ``quantiles``
    or gives all L columns by itself. Columns are in the order of the levels, as the models
    give them: they may cross.
    """

    def __init__(self, models: Sequence[Any], columns: int, levels: Sequence[float] | None = None) -> None:
        self.models = list(models)
        self.columns = columns
        self.levels = None if levels is None else list(levels)

    @property
    def n_features_in_(self) -> int:
        return int(self.models[0].n_features_in_)

    def predict(self, X: Any) -> FloatArray:
        """(n, L) predicted quantiles."""
        if len(self.models) == self.columns:
            return np.column_stack([predict_values(model, X) for model in self.models])
        model = self.models[0]
        if self.levels is None or not takes_quantiles(model):
            return predict_values(model, X, columns=self.columns)
        out = to_float(to_numpy(model.predict(X, quantiles=self.levels)), "the model's prediction")
        if out.shape != (row_count(X), self.columns):
            raise DataError(
                f"predict(X, quantiles=...) gave shape {out.shape}, expected {(row_count(X), self.columns)}"
            )
        refuse_nan(out, "the model's prediction")
        return out


def takes_quantiles(model: Any) -> bool:
    """Whether ``predict`` has an argument ``quantiles`` (quantile forests)."""
    predict = getattr(model, "predict", None)
    return predict is not None and "quantiles" in inspect.signature(predict).parameters


def _learns_all_levels(estimator: Any) -> bool:
    """Whether one fit serves all levels: the constructor of it or a pipeline's end takes ``quantiles``."""
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    return hasattr(last, "get_params") and "quantiles" in last.get_params(deep=False)


def quantile_params(estimator: Any, level: float) -> dict[str, Any] | None:
    """Arguments that turn a clone of ``estimator`` into a model of one quantile; None if it has none."""
    params = estimator.get_params(deep=False)
    library = type(estimator).__module__.partition(".")[0]
    if library in _BOOSTERS:
        loss, value, name = _BOOSTERS[library]
        return {loss: value, name: level}
    if library == "catboost":
        return {"loss_function": f"Quantile:alpha={level}"}
    if "loss" not in params:
        return {"quantile": level} if "quantile" in params else None
    if not _offers_quantile_loss(estimator):
        return None
    return {"loss": "quantile", "quantile" if "quantile" in params else "alpha": level}


def _offers_quantile_loss(estimator: Any) -> bool:
    """Whether scikit-learn's own list of the estimator's losses has the pinball loss."""
    constraints = getattr(estimator, "_parameter_constraints", {}).get("loss", [])
    return any("quantile" in getattr(constraint, "options", ()) for constraint in constraints)


def as_quantile_estimator(estimator: Any, random_state: Any = None) -> tuple[Any, bool]:
    """(unfitted estimator with a quantile loss, whether it stands in for one that has none).

    None is gradient boosting by histograms; the last step of a pipeline is exchanged in its place.
    """
    if estimator is None:
        return HistGradientBoostingRegressor(random_state=seed_of(random_state)), False
    if isinstance(estimator, Pipeline):
        name, last = estimator.steps[-1]
        inner, replaced = as_quantile_estimator(last, random_state)
        return (clone(estimator).set_params(**{name: inner}) if replaced else estimator), replaced
    if (
        takes_quantiles(estimator)
        or _learns_all_levels(estimator)
        or quantile_params(estimator, 0.5) is not None
    ):
        return estimator, False
    return HistGradientBoostingRegressor(random_state=seed_of(random_state)), True


def _at_level(estimator: Any, level: float) -> Any:
    """Unfitted clone of a quantile estimator for one level."""
    model = clone(estimator)
    if isinstance(model, Pipeline):
        name, last = model.steps[-1]
        params = quantile_params(last, level)
        return model.set_params(**{f"{name}__{key}": value for key, value in (params or {}).items()})
    return model.set_params(**(quantile_params(model, level) or {}))


def fit_quantiles(
    estimator: Any, levels: Sequence[float], X: Any, y: FloatArray, random_state: Any
) -> QuantileModel:
    """Fit models of the conditional quantiles at L levels.

    ``estimator`` is None, a regressor, or a tuple or list of L regressors that have their levels
    set already. A regressor with a constructor argument ``quantiles`` learns all levels in one fit,
    others once a level. A regressor without a quantile loss is replaced by
    ``HistGradientBoostingRegressor``, with one AssayWarning that says so.
    """
    if isinstance(estimator, (tuple, list)):
        if len(estimator) != len(levels):
            raise MethodError(f"{len(estimator)} estimators given for {len(levels)} quantiles {list(levels)}")
        return QuantileModel([clone(each).fit(X, y) for each in estimator], len(levels))
    base, replaced = as_quantile_estimator(estimator, random_state)
    if replaced:
        warnings.warn(
            f"{type(estimator).__name__} has no quantile loss; HistGradientBoostingRegressor is used in its "
            "place. Give a model with a quantile loss, or a pair of models, to choose another",
            AssayWarning,
            stacklevel=5,
        )
    if takes_quantiles(base):
        return QuantileModel([clone(base).fit(X, y)], len(levels), levels)
    if _learns_all_levels(base):
        name = f"{base.steps[-1][0]}__quantiles" if isinstance(base, Pipeline) else "quantiles"
        return QuantileModel([clone(base).set_params(**{name: list(levels)}).fit(X, y)], len(levels))
    return QuantileModel([_at_level(base, level).fit(X, y) for level in levels], len(levels))


def fitted_quantiles(estimator: Any, levels: Sequence[float]) -> QuantileModel:
    """Quantile models that the user has trained: L of them, or one that predicts L columns."""
    if estimator is None:
        raise MethodError(
            f"calibrate needs trained quantile models: give the constructor a tuple of {len(levels)}, "
            f"or one whose predictions have {len(levels)} columns"
        )
    if isinstance(estimator, (tuple, list)):
        if len(estimator) != len(levels):
            raise MethodError(f"{len(estimator)} models given for {len(levels)} quantiles {list(levels)}")
        return QuantileModel(estimator, len(levels))
    return QuantileModel([estimator], len(levels), levels)
