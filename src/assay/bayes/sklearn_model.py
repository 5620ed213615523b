"""A scikit-learn model as a predictive method: its probabilities, or a Gaussian around its prediction."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone, is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.model_selection import KFold

from assay.bayes.predictive_base import PredictiveEstimator
from assay.core.checks import FloatArray, to_numpy
from assay.core.distributions import CategoricalDistribution, GaussianDistribution, PredictiveDistribution
from assay.core.errors import DataError, MethodError
from assay.core.models import predict_values
from assay.core.probabilities import distinct_labels
from assay.core.seeds import derive_seed, seed_of


class SklearnPredictive(PredictiveEstimator):
    """Any scikit-learn model with a predictive distribution around it.

    Classes: the model's ``predict_proba``. Numbers: ``N(f(x), s^2)`` with s the root mean squared
    residual in cross-validation; the model itself is trained on all rows.

    Parameters
    ----------
    estimator : classifier with ``predict_proba``, or regressor, optional
        Cloned; histogram gradient boosting by default.
    folds : int, default 5
        Of the cross-validation, for regression.
    likelihood : "classification" or "regression", default "classification"
    random_state : int, RandomState, Generator or None, default None
        Shuffles the rows into folds.

    Attributes
    ----------
    estimator_ : the trained model
    classes_ : (K,) labels, for classification
    noise_std_ : float, s in the units of y, for regression
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        folds: int = 5,
        likelihood: str = "classification",
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.folds = folds
        self.likelihood = likelihood
        self.random_state = random_state

    def _fit(self, X: FloatArray, y: NDArray[Any]) -> None:
        classes = self.likelihood == "classification"
        model = self.estimator
        if model is None:
            model = HistGradientBoostingClassifier() if classes else HistGradientBoostingRegressor()
            model.set_params(random_state=derive_seed(seed_of(self.random_state), "trees"))
        if classes:
            self._fit_classes(model, X, y)
            return
        if is_classifier(model):
            raise MethodError(
                f"{type(model).__name__} is a classifier; likelihood='regression' needs a regressor"
            )
        if not 2 <= int(self.folds) <= len(X):
            raise MethodError(f"folds must lie between 2 and the {len(X)} rows, got {self.folds!r}")
        seed = derive_seed(seed_of(self.random_state), "folds")
        rest = np.empty(len(y))
        for train, test in KFold(int(self.folds), shuffle=True, random_state=seed).split(X):
            rest[test] = y[test] - predict_values(clone(model).fit(X[train], y[train]), X[test])
        self.noise_std_ = float(np.sqrt(np.mean(rest**2)))
        if self.noise_std_ == 0:
            raise DataError(f"all {len(y)} targets are predicted without any error; a Gaussian needs a width")
        self.estimator_ = clone(model).fit(X, y)

    def _fit_classes(self, model: Any, X: FloatArray, y: NDArray[Any]) -> None:
        if not hasattr(model, "predict_proba"):
            raise MethodError(f"{type(model).__name__} has no predict_proba; give a classifier that has one")
        labels = distinct_labels(y)
        if len(labels) < 2:
            raise DataError(f"y has one class only, {labels[0]!r}, in all {len(X)} rows; two are needed")
        self.estimator_ = clone(model).fit(X, y)
        self.classes_ = to_numpy(self.estimator_.classes_)

    def _dist(self, X: FloatArray) -> PredictiveDistribution:
        if self.likelihood == "classification":
            return CategoricalDistribution(self.estimator_.predict_proba(X), self.classes_)
        return GaussianDistribution(predict_values(self.estimator_, X), self.noise_std_**2)
