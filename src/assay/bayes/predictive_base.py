"""What predictive methods share: checks of input, prediction from the distribution, draws and densities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils import ClassifierTags, RegressorTags
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, validate_data

from assay.core.checks import (
    FloatArray,
    check_target,
    refuse_infinite,
    refuse_nan,
)
from assay.core.distributions import (
    CategoricalDistribution,
    GaussianDistribution,
    MixtureDistribution,
    NumericDistribution,
    PredictiveDistribution,
)
from assay.core.errors import DataError, MethodError
from assay.core.probabilities import check_labels, softmax
from assay.core.seeds import row_keys, seed_of
from assay.core.state import all_or_nothing
from assay.networks.predictive import TrainedNetwork, train_predictive_network
from assay.networks.training import Training


def _classifies(self: Any) -> bool:
    if self.likelihood != "classification":
        raise AttributeError("predict_proba is there for likelihood='classification' only")
    return True


def _regresses(self: Any) -> bool:
    if self.likelihood != "regression":
        raise AttributeError("it is there for likelihood='regression' only")
    return True


class PredictiveEstimator(BaseEstimator, ABC):  # type: ignore[misc]
    """A model with ``predict_dist``: subclasses give ``_fit(X, y)`` and ``_dist(X)`` on checked arrays.

    ``likelihood`` is an argument of each subclass; a classifier sets ``classes_`` in ``_fit``. A fitted
    regressor has ``sample`` and ``log_prob``, which is what conformal methods want of a density model.
    """

    likelihood: Any
    classes_: NDArray[Any]
    #: the draws for a row depend on the row and ``random_state`` only
    samples_by_row = True

    def fit(self, X: Any, y: Any) -> Self:
        """Train on features X (n, d) and targets y (n,): labels, or numbers for regression.

        Raises
        ------
        DataError, ValueError
            NaN, infinite values or text in X, lengths that differ, targets that do not suit the likelihood.
        MethodError
            Impossible parameters.
        """
        if self.likelihood not in ("classification", "regression"):
            raise MethodError(f"likelihood must be 'classification' or 'regression', got {self.likelihood!r}")
        with all_or_nothing(self):
            rows = self._rows(X, reset=True)
            check = check_labels if self.likelihood == "classification" else check_target
            self._fit(rows, check(y, length=len(rows)))
        return self

    @abstractmethod
    def _fit(self, X: FloatArray, y: NDArray[Any]) -> None:
        """Train on checked rows; sets ``classes_`` for classification."""

    @abstractmethod
    def _dist(self, X: FloatArray) -> PredictiveDistribution:
        """The distribution of each of n >= 1 checked rows."""

    def predict_dist(self, X: Any) -> PredictiveDistribution:
        """The predictive distribution of each row of X (n, d)."""
        check_is_fitted(self)
        rows = self._rows(X)
        if len(rows) == 0:
            if self.likelihood == "classification":
                return CategoricalDistribution(np.empty((0, len(self.classes_))), self.classes_)
            return GaussianDistribution(np.empty(0), np.empty(0))
        return self._dist(rows)

    def predict(self, X: Any) -> NDArray[Any]:
        """(n,) labels of largest probability, or expected targets."""
        dist = self.predict_dist(X)
        if isinstance(dist, CategoricalDistribution):
            return dist.mode
        return self._numeric(dist).mean

    @available_if(_classifies)  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatArray:
        """(n, K) class probabilities, columns in the order of ``classes_``."""
        dist = self.predict_dist(X)
        if not isinstance(dist, CategoricalDistribution):
            raise MethodError(f"{type(self).__name__} predicts no classes")
        return dist.proba

    @available_if(_regresses)  # type: ignore[untyped-decorator]
    def predict_std(self, X: Any) -> FloatArray:
        """(n,) predictive standard deviations, in the units of y."""
        return self._numeric(self.predict_dist(X)).std

    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> NDArray[Any]:
        """(n, n_samples) draws; a row's draws depend on its values and the seed, never on the batch."""
        check_is_fitted(self)
        rows = self._rows(X)
        keys = row_keys(rows, seed_of(random_state), "predictive")
        return self.predict_dist(rows).sample(n_samples, keys=keys)

    def log_prob(self, X: Any, y: Any) -> FloatArray:
        """(n,) log densities or log probabilities of targets y (n,)."""
        return self.predict_dist(X).log_prob(y)

    @available_if(_regresses)  # type: ignore[untyped-decorator]
    def log_prob_samples(self, X: Any, Y: Any) -> FloatArray:
        """(n, m) log densities of m targets a row, Y of shape (n, m) or (n, m, 1): one pass of the model."""
        dist = self._numeric(self.predict_dist(X))
        values = np.asarray(Y, dtype=np.float64)
        shape = values.shape
        if values.ndim == 3 and shape[2] == 1:
            values = values[:, :, 0]
        if values.ndim != 2 or len(values) != len(dist):
            raise DataError(f"Y has shape {shape}, expected ({len(dist)}, m)")
        out = np.empty(values.shape)
        for j in range(values.shape[1]):
            out[:, j] = dist.log_prob(values[:, j])
        return out

    def score(self, X: Any, y: Any) -> float:
        """Mean log density or log probability of targets y: larger is better."""
        return float(self.log_prob(X, y).mean())

    def _numeric(self, dist: PredictiveDistribution) -> NumericDistribution:
        if not isinstance(dist, NumericDistribution):
            raise MethodError(f"{type(self).__name__} predicts no numbers")
        return dist

    def _rows(self, X: Any, reset: bool = False) -> FloatArray:
        rows = validate_data(
            self,
            X,
            reset=reset,
            dtype=np.float64,
            ensure_all_finite=False,
            ensure_min_samples=2 if reset else 0,
        )
        refuse_nan(rows, "X")
        refuse_infinite(rows, "X")
        return np.asarray(rows)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.likelihood == "classification":
            tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        else:
            tags.estimator_type, tags.regressor_tags = "regressor", RegressorTags()
        tags.target_tags.required = True
        return tags


class NetworkPredictive(PredictiveEstimator):
    """A predictive method around one trained network, ``network_``: the same one for the same seed.

    Subclasses store ``module``, ``likelihood``, ``training`` and ``random_state``, may do more in
    ``_after_training`` and give ``_dist``.
    """

    module: Any
    training: Training | None
    random_state: Any
    network_: TrainedNetwork

    def _fit(self, X: FloatArray, y: NDArray[Any]) -> None:
        self.network_ = train_predictive_network(
            X,
            y,
            self.likelihood,
            self.module,
            self.random_state,
            training=self.training,
            dropout=self._dropout(),
        )
        if self.network_.classes is not None:
            self.classes_ = self.network_.classes
        self._after_training(X, y)

    def _dropout(self) -> float:
        return 0.0

    def _after_training(self, X: FloatArray, y: NDArray[Any]) -> None:
        """What a subclass learns beside the network, from the same checked rows."""

    def _categorical(self, proba: FloatArray) -> CategoricalDistribution:
        return CategoricalDistribution(proba, self.classes_)

    def _gaussian(self, z: FloatArray, variance_z: Any = 0.0) -> GaussianDistribution:
        """N(z, variance_z + noise) of the standardised target, in the units of y; z is (n, 1) or (n,)."""
        net = self.network_
        mean = z.reshape(-1) * net.y_scale + net.y_mean
        return GaussianDistribution(
            mean, np.broadcast_to(variance_z * net.y_scale**2, mean.shape) + net.noise_std**2
        )

    def _of_members(self, outputs: FloatArray) -> PredictiveDistribution:
        """The mixture of S outputs (S, n, K) of equal weight: mean probabilities, or Gaussians with noise."""
        net = self.network_
        if net.classes is not None:
            proba = np.mean([softmax(logits) for logits in outputs], axis=0)
            return self._categorical(proba)
        return MixtureDistribution(outputs[:, :, 0] * net.y_scale + net.y_mean, net.noise_std**2)


__all__ = ["NetworkPredictive", "PredictiveEstimator"]
