"""Out-of-bag residuals of a bootstrap ensemble: honest errors of a forecaster on its own training rows."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.ensemble import RandomForestRegressor
from sklearn.utils import _safe_indexing, get_tags, indexable
from sklearn.utils.validation import check_is_fitted

from assay.conformal.interval_base import training_target
from assay.core.checks import FloatArray, refuse_infinite, row_count
from assay.core.errors import DataError, MethodError
from assay.core.models import predict_values
from assay.core.seeds import derive_seed, seed_of
from assay.core.state import all_or_nothing


class BootstrapResiduals(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """B models, each trained on rows drawn with replacement; what leaves row i out judges row i.

    ``f_-i`` is the mean of the models whose draw lacks row i (of all models where none does), the
    residual of row i is ``y_i - f_-i(x_i)``, and the prediction of a new row is the mean of the f_-i
    over i: a mean of the models with fixed weights.

    Parameters
    ----------
    estimator : regressor, optional
        Default a forest of 10 trees of depth 1 without a bootstrap of its own, as in EnbPI's code.
    n_models : int
        B. Default 25, from EnbPI's code.
    random_state : int, Generator, RandomState or None

    Attributes
    ----------
    residuals_ : (n,) float64 array
        Out-of-bag residuals in the order of the rows, in units of y.
    fitted_ : (n,) float64 array
        ``f_-i(x_i)``.
    models_ : list of B regressors
    model_weights_ : (B,) float64 array
        Share of each model in a prediction; they add up to one.
    n_always_drawn_ : int
        Rows that every model has seen: their residuals are of the mean of all models.

    References
    ----------
    Xu, Xie: Conformal prediction interval for dynamic time-series. ICML 2021.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> ensemble = BootstrapResiduals(n_models=5, random_state=0).fit(X, X[:, 0])
    >>> ensemble.residuals_.shape, ensemble.predict(X[:3]).shape
    ((200,), (3,))
    """

    def __init__(self, estimator: Any = None, n_models: int = 25, random_state: Any = None) -> None:
        self.estimator = estimator
        self.n_models = n_models
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train the ensemble.

        Parameters
        ----------
        X : (n, d) table
        y : (n,) numbers

        Raises
        ------
        DataError
            Fewer than two rows, NaN or infinite targets, lengths that differ.
        MethodError
            ``n_models`` below 2.
        """
        target = training_target(X, y)
        n = len(target)
        if n < 2:
            raise DataError(f"{n} sample(s) given: at least 2 are needed, one to train and one to leave out")
        if self.n_models < 2:
            raise MethodError(f"n_models is {self.n_models}; at least 2 are needed for rows to be left out")
        with all_or_nothing(self):
            self._fit(indexable(X)[0], target)
        return self

    def _fit(self, X: Any, y: FloatArray) -> None:
        n, seed = len(y), seed_of(self.random_state)
        rng = np.random.default_rng(derive_seed("bootstrap rows", seed))
        out_of_bag = np.ones((self.n_models, n), dtype=bool)
        predictions = np.empty((self.n_models, n))
        self.models_: list[Any] = []
        for b in range(self.n_models):
            rows = rng.integers(n, size=n)
            out_of_bag[b, rows] = False
            model = seeded(self._template(), derive_seed("bootstrap model", seed, b))
            model.fit(_safe_indexing(X, rows), y[rows])
            predictions[b] = predict_values(model, X)
            self.models_.append(model)
        refuse_infinite(predictions.T, "the models' prediction")
        self.n_always_drawn_ = int((~out_of_bag.any(axis=0)).sum())
        shares = leave_out_shares(out_of_bag)
        self.fitted_ = np.einsum("bi,bi->i", shares, predictions)
        self.residuals_ = y - self.fitted_
        self.model_weights_ = shares.mean(axis=1)
        self.n_features_in_ = int(np.shape(X)[1]) if len(np.shape(X)) == 2 else 1

    def _template(self) -> Any:
        if self.estimator is not None:
            return self.estimator
        return RandomForestRegressor(n_estimators=10, max_depth=1, bootstrap=False)

    def predict(self, X: Any) -> FloatArray:
        """(n,) predictions: the mean over training rows i of ``f_-i``."""
        check_is_fitted(self)
        out = np.zeros(row_count(X))
        for weight, model in zip(self.model_weights_, self.models_, strict=True):
            if weight > 0:
                out += weight * predict_values(model, X)
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self._template()).input_tags
        tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
        return tags


def leave_out_shares(out_of_bag: NDArray[np.bool_]) -> FloatArray:
    """(B, n) share of each model in f_-i; equal shares of all for a row that no model left out."""
    shares = out_of_bag.astype(np.float64)
    counts = shares.sum(axis=0)
    shares[:, counts == 0] = 1.0
    return np.asarray(shares / shares.sum(axis=0))


def seeded(estimator: Any, seed: int) -> Any:
    """An unfitted copy whose ``random_state``, where it has one, is the seed."""
    copy = clone(estimator)
    if "random_state" in copy.get_params(deep=False):
        copy.set_params(random_state=seed)
    return copy
