"""A conditional density of one or several outputs: a normalising flow of affine couplings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.preprocessing import QuantileTransformer, StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from assay.conformal.coupling_flow import train_couplings
from assay.conformal.density_models import check_outputs
from assay.conformal.flow_models import score_of
from assay.core.checks import FloatArray
from assay.core.errors import DataError, MethodError
from assay.core.models import import_torch
from assay.core.seeds import derive_seed, row_keys, row_uniforms, seed_of
from assay.networks.training import Training

_MEAN_POINTS = 256
_ROWS_A_VALUE = 5
_CHUNK_BYTES = 2**22
_QUANTILES = 1000
_FEATURE_BOUND = 4.0
_SCORE_BOUND = 3.0


class FeatureEncoder:
    """Features as networks take them: standardised and as normal scores of ranks, both bounded.

    A column that is constant in training is left out.
    """

    def __init__(self, X: FloatArray) -> None:
        self.varying = np.ptp(X, axis=0) > 0
        varying = X[:, self.varying]
        self.scaler = StandardScaler().fit(varying) if self.varying.any() else None
        self.ranker = QuantileTransformer(
            n_quantiles=min(_QUANTILES, len(X)), output_distribution="normal", subsample=None
        )
        if self.scaler is not None:
            self.ranker.fit(varying)

    def transform(self, X: FloatArray) -> FloatArray:
        """(n, 2 k) encoded features of rows (n, d), k columns of which vary."""
        varying = X[:, self.varying]
        if self.scaler is None or len(X) == 0:
            return np.zeros((len(X), 2 * varying.shape[1]))
        standard = np.clip(self.scaler.transform(varying), -_FEATURE_BOUND, _FEATURE_BOUND)
        return np.hstack([standard, np.clip(self.ranker.transform(varying), -_SCORE_BOUND, _SCORE_BOUND)])


class FlowDensityRegressor(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Conditional density p(y | x) as the image of a standard normal under affine couplings.

    Between standardised outputs and z ~ N(0, I_q) stand ``n_layers`` couplings. Each shifts and
    scales half of the outputs by networks of the other half and the features,
    ``z_b = (y_b - t(y_a, x)) exp(-s(y_a, x))``, with ``|s| < 3``; the halves change in turn, from a
    new random order each pair of couplings. Trained on the mean negative log likelihood with AdamW,
    starting at the identity. One output has no halves: the couplings are affine given x, a Gaussian.
    Training uses torch (extra ``torch``); the trained flow is plain float64 arrays and works without.

    A feature enters twice: standardised and held within 4, and as the normal score of its rank among
    the training rows, held within 3. With the first alone a single far value rules the scale of all
    others (volumes on a river-flow table, whose features reach 170 standard deviations, were five
    times as large) and networks are asked far outside of what they were trained on.

    An output with few distinct values (on average ``5`` rows or more a value) has no density: uniform
    noise one step wide, the median gap between its values, is added in training and nowhere else. One that
    is constant gets scale 1, and the narrowest density that the couplings can give.

    Parameters
    ----------
    n_layers : int, default 6
        Couplings.
    hidden : sequence of int, default (64, 64)
        Widths of each coupling's network.
    max_epochs : int, default 200
        Passes over the training rows.
    batch_size : int, default 256
    lr : float, default 2e-3
        Learning rate of AdamW (weight decay 1e-4). On three splits of house prices 1e-3 gives regions a
        tenth larger.
    patience : int or None, default 20
        Stop after so many epochs without a better likelihood of a tenth of the rows, kept apart, and
        keep the best weights. None trains ``max_epochs`` on all rows; so do fewer than 20 rows.
    dequantize : bool or (q,) array, default True
        False adds no noise in training; an array gives the step of each output (0: no noise).
    device : str, default "cpu"
        Where torch trains, such as "cuda".
    random_state : int, RandomState, Generator or None, default None
    progress : callable, optional
        Called after each epoch with (epoch, max_epochs, loss).

    Attributes
    ----------
    flow_ : the trained couplings, between standardised outputs and z
    steps_ : (q,) width of the noise that was added in training, in the units of the outputs
    n_outputs_, n_epochs_ : int
    loss_ : float, mean negative log likelihood (standardised outputs) of the kept weights

    References
    ----------
    Dinh, Sohl-Dickstein, Bengio (2017), Density estimation using Real NVP. ICLR.
    """

    #: a row's draws depend on the row's values and random_state only
    samples_by_row = True

    def __init__(
        self,
        n_layers: int = 6,
        hidden: Sequence[int] = (64, 64),
        *,
        max_epochs: int = 200,
        batch_size: int = 256,
        lr: float = 2e-3,
        patience: int | None = 20,
        dequantize: Any = True,
        device: str = "cpu",
        random_state: Any = None,
        progress: Callable[[int, int, float], None] | None = None,
    ) -> None:
        self.n_layers = n_layers
        self.hidden = hidden
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.lr = lr
        self.patience = patience
        self.dequantize = dequantize
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any) -> Self:
        """Train on features X (n, d) and outputs y, (n,) or (n, q).

        Raises
        ------
        MissingDependency
            torch is not installed.
        DataError
            NaN or infinite values, lengths that differ.
        MethodError
            Impossible parameters, or the loss stopped being a number.
        """
        X, y = validate_data(
            self, X, y, dtype=np.float64, multi_output=True, y_numeric=True, ensure_min_samples=2
        )
        how = self._training()
        how.check(self.hidden)
        if int(self.n_layers) < 1:
            raise MethodError(f"n_layers must be at least 1, got {self.n_layers!r}")
        single = np.ndim(y) == 1
        Y = check_outputs(y)
        steps = self._steps(Y)
        encoder, y_scaler = FeatureEncoder(X), StandardScaler().fit(Y)
        torch = import_torch("FlowDensityRegressor")
        # one thread: for networks of this size more only wait for each other
        with threadpool_limits(1):
            flow, epochs, loss = train_couplings(
                torch,
                encoder.transform(X),
                y_scaler.transform(Y),
                steps / y_scaler.scale_,
                int(self.n_layers),
                self.hidden,
                how,
                derive_seed(seed_of(self.random_state), "coupling flow"),
            )
        self.encoder_, self.y_scaler_ = encoder, y_scaler
        self.flow_, self.steps_ = flow, steps
        self.n_epochs_, self.loss_ = epochs, loss
        self.n_outputs_ = Y.shape[1]
        self._single = single
        return self

    def _training(self) -> Training:
        return Training(
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            learning_rate=self.lr,
            patience=self.patience,
            validation_fraction=0.1,
            device=self.device,
            progress=self.progress,
        )

    def _steps(self, Y: FloatArray) -> FloatArray:
        if not isinstance(self.dequantize, (bool, np.bool_)):
            steps = np.asarray(self.dequantize, dtype=np.float64)
            if steps.shape != (Y.shape[1],) or not (np.isfinite(steps) & (steps >= 0)).all():
                raise MethodError(
                    f"dequantize must be a bool or {Y.shape[1]} steps not below 0, got {self.dequantize!r}"
                )
            return steps
        steps = np.zeros(Y.shape[1])
        for j in range(Y.shape[1] if self.dequantize else 0):
            values = np.unique(Y[:, j])
            if 1 < len(values) <= len(Y) / _ROWS_A_VALUE:
                steps[j] = np.median(np.diff(values))
        return steps

    def _features(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        rows = np.asarray(validate_data(self, X, reset=False, dtype=np.float64, ensure_min_samples=0))
        return self.encoder_.transform(rows)

    def inverse(self, y: Any, x: Any) -> tuple[FloatArray, FloatArray]:
        """z (n, q) of outputs y, (n,) or (n, q), given features x (n, d), and log|det dz/dy| (n,)."""
        z, logdet = self.inverse_points(check_outputs(y)[:, None, :], x)
        return z[:, 0], logdet[:, 0]

    def forward(self, z: Any, x: Any) -> FloatArray:
        """y (n, q) of latent values z (n, q)."""
        return self.forward_points(np.asarray(z, dtype=np.float64)[:, None, :], x)[0][:, 0]

    def inverse_points(self, Y: Any, X: Any) -> tuple[FloatArray, FloatArray]:
        """z (n, m, q) and log|det dz/dy| (n, m) of m values a row, Y (n, m, q)."""
        features, values = self._features(X), self._values(Y, X)
        with np.errstate(over="ignore"):
            scaled = (values - self.y_scaler_.mean_) / self.y_scaler_.scale_
        with threadpool_limits(1):
            z, logdet = self.flow_.inverse(scaled, features)
        return z, logdet - np.log(self.y_scaler_.scale_).sum()

    def forward_points(self, Z: Any, X: Any) -> tuple[FloatArray, FloatArray]:
        """y (n, m, q) and log|det dy/dz| (n, m) of m latent values a row, Z (n, m, q)."""
        features, values = self._features(X), self._values(Z, X)
        return self._forward(values, features)

    def _forward(self, values: FloatArray, features: FloatArray) -> tuple[FloatArray, FloatArray]:
        with threadpool_limits(1):
            y, logdet = self.flow_.forward(values, features)
        return y * self.y_scaler_.scale_ + self.y_scaler_.mean_, logdet + np.log(self.y_scaler_.scale_).sum()

    def _values(self, values: Any, X: Any) -> FloatArray:
        array = np.asarray(values, dtype=np.float64)
        if array.ndim != 3 or len(array) != len(X) or array.shape[2] != self.n_outputs_:
            raise DataError(
                f"points have shape {array.shape}, expected ({len(X)}, points, {self.n_outputs_})"
            )
        return array

    def predict(self, X: Any) -> FloatArray:
        """Mean of y given x, over 256 even latent points: (n,), or (n, q) where y had two dimensions."""
        features = self._features(X)
        points = ndtri(qmc.Sobol(self.n_outputs_, scramble=True, rng=0).random(_MEAN_POINTS))
        out: FloatArray = np.empty((len(features), self.n_outputs_))
        for rows in self._pieces(len(features), _MEAN_POINTS):
            z = np.broadcast_to(points, (len(features[rows]), *points.shape))
            out[rows] = self.flow_.forward(z, features[rows])[0].mean(axis=1)
        out = out * self.y_scaler_.scale_ + self.y_scaler_.mean_
        return out[:, 0] if self._single else out

    def _pieces(self, n: int, points: int) -> list[slice]:
        step = max(1, _CHUNK_BYTES // (8 * points * self.n_outputs_))
        return [slice(start, start + step) for start in range(0, n, step)]

    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> FloatArray:
        """(n, n_samples, q) draws; a row's draws depend on its values and the seed, never on the batch."""
        check_is_fitted(self)
        rows = np.asarray(validate_data(self, X, reset=False, dtype=np.float64, ensure_min_samples=0))
        q = self.n_outputs_
        out = np.empty((len(rows), n_samples, q))
        features = self.encoder_.transform(rows)
        keys = row_keys(rows, seed_of(random_state), "coupling flow")
        for piece in self._pieces(len(rows), n_samples):
            z = ndtri(row_uniforms(keys[piece], n_samples * q)).reshape(-1, n_samples, q)
            out[piece] = self._forward(z, features[piece])[0]
        return out

    def log_prob(self, X: Any, y: Any) -> FloatArray:
        """(n,) log densities of outputs y, (n,) or (n, q)."""
        return self.log_prob_samples(X, check_outputs(y)[:, None, :])[:, 0]

    def log_prob_samples(self, X: Any, Y: Any) -> FloatArray:
        """(n, m) log densities of m values a row, Y of shape (n, m, q)."""
        z, logdet = self.inverse_points(Y, X)
        return -score_of(z, logdet, "log_density")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        tags.non_deterministic = False
        return tags
