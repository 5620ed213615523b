"""A conditional flow of the outputs made of a predictor and a flow of its residuals."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.linear_model import LinearRegression
from sklearn.utils import indexable
from sklearn.utils.validation import check_is_fitted

from assay.conformal.cross_fit import fit_without, fold_numbers
from assay.conformal.density_models import check_outputs
from assay.conformal.flow_density import FlowDensityRegressor
from assay.conformal.flow_models import from_latent, to_latent
from assay.conformal.region_base import for_outputs
from assay.core.checks import FloatArray, refuse_infinite, row_count
from assay.core.models import predict_values
from assay.core.seeds import derive_seed, seed_of


class ResidualFlow(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """The law y = f(x) + T(z; x): a predictor f, and a flow T of residuals that f had not seen.

    f is trained anew on the other folds for the residuals of each fold, and then on all rows: its
    residuals on its own training rows would be too small.

    Parameters
    ----------
    estimator : regressor, default LinearRegression()
        Any scikit-learn regressor; one that takes a single output is trained once an output.
    flow : flow estimator, default FlowDensityRegressor()
        ``fit(X, residuals)``, ``inverse`` and ``forward``.
    cv : int or splitter, default 5
        Folds of the residuals.
    random_state : int, RandomState, Generator or None, default None
        Of the folds, and of estimator and flow where theirs is None.

    Attributes
    ----------
    estimator_, flow_ : the trained predictor and flow
    n_outputs_ : int, q
    """

    samples_by_row = True

    def __init__(
        self, estimator: Any = None, flow: Any = None, *, cv: Any = 5, random_state: Any = None
    ) -> None:
        self.estimator = estimator
        self.flow = flow
        self.cv = cv
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train the predictor on features X (n, d) and outputs y, (n,) or (n, q), and the flow.

        Raises
        ------
        DataError
            NaN or infinite outputs, fewer than two rows.
        MethodError
            Folds that do not hold every row once.
        """
        Y = check_outputs(y)
        q = Y.shape[1]
        seed = seed_of(self.random_state)
        X = indexable(X)[0]
        model = LinearRegression() if self.estimator is None else self.estimator
        model = _seeded(for_outputs(model, q), seed)
        target = Y[:, 0] if q == 1 else Y
        _, left_out = fit_without(model, X, target, fold_numbers(self.cv, X, Y, seed % 2**32))
        flow = _seeded(FlowDensityRegressor() if self.flow is None else self.flow, seed)
        self.flow_ = flow.fit(X, (target - left_out).reshape(Y.shape))
        self.estimator_ = model.fit(X, target)
        self.n_outputs_ = q
        return self

    def inverse(self, y: Any, x: Any) -> tuple[FloatArray, FloatArray]:
        """z (n, q) of outputs y (n, q) given features x (n, d), and log|det dz/dy| (n,)."""
        z, logdet = self.inverse_points(check_outputs(y)[:, None, :], x)
        return z[:, 0], logdet[:, 0]

    def forward(self, z: Any, x: Any) -> FloatArray:
        """y (n, q) of latent values z (n, q)."""
        return self.forward_points(np.asarray(z, dtype=np.float64)[:, None, :], x)[0][:, 0]

    def inverse_points(self, Y: Any, X: Any) -> tuple[FloatArray, FloatArray]:
        """z (n, m, q) and log|det dz/dy| (n, m) of m values a row, Y (n, m, q)."""
        return to_latent(self.flow_, X, np.asarray(Y, dtype=np.float64) - self._centers(X)[:, None, :])

    def forward_points(self, Z: Any, X: Any) -> tuple[FloatArray, FloatArray]:
        """y (n, m, q) and log|det dy/dz| (n, m) of m latent values a row, Z (n, m, q)."""
        residuals, logdet = from_latent(self.flow_, X, np.asarray(Z, dtype=np.float64))
        return residuals + self._centers(X)[:, None, :], logdet

    def predict(self, X: Any) -> FloatArray:
        """(n, q) predictions of the predictor, (n,) for one output."""
        centers = self._centers(X)
        return centers[:, 0] if self.n_outputs_ == 1 else centers

    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> FloatArray:
        """(n, n_samples, q) draws of the law."""
        draws = self.flow_.sample(X, n_samples, random_state)
        return np.asarray(draws + self._centers(X)[:, None, :])

    def _centers(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        if row_count(X) == 0:
            return np.empty((0, self.n_outputs_))
        return _predictions(self.estimator_, X, self.n_outputs_)

    @property
    def n_features_in_(self) -> int:
        """Number of features seen in fit, where the predictor knows it."""
        check_is_fitted(self)
        return int(self.estimator_.n_features_in_)


def _seeded(model: Any, seed: int) -> Any:
    """A clone; where it is random and has no seed, it gets one."""
    model = clone(model)
    unset = {name for name, value in model.get_params().items() if value is None}
    seeds = {name for name in unset if name == "random_state" or name.endswith("__random_state")}
    return model.set_params(**dict.fromkeys(seeds, derive_seed(seed, "flow")))


def _predictions(model: Any, X: Any, q: int) -> FloatArray:
    out = predict_values(model, X, columns=q).reshape(-1, q)
    refuse_infinite(out, "the model's prediction")
    return out
