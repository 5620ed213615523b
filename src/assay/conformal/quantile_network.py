"""A network that predicts several conditional quantiles at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin, clone
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from assay.conformal.network_training import Layers, run_layers, train_network
from assay.core.checks import FloatArray
from assay.core.errors import MethodError
from assay.core.models import import_torch
from assay.core.seeds import derive_seed, seed_of
from assay.networks.training import Training


class QuantileNetwork(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Conditional quantiles of one target by a ReLU network with one output a quantile.

    Trained by Adam on the pinball loss, averaged over the levels, with features and target
    standardised. Predicted quantiles are sorted, so that they never cross. Training uses torch (extra
    ``torch``); the trained model is plain float64 arrays and predicts without it.

    :class:`assay.conformal.ConformalizedQuantileRegressor` and the methods that use a grid of quantiles
    set ``quantiles`` themselves and train one network for all of them.

    Parameters
    ----------
    quantiles : increasing sequence of numbers in (0, 1), default (0.05, 0.5, 0.95)
    hidden : sequence of int, default (64, 64)
        Width of each hidden layer (Romano et al. 2019, as the next four).
    dropout : float, default 0.1
        Share of hidden units left out at each training step.
    learning_rate : float, default 5e-4
    weight_decay : float, default 1e-6
    batch_size : int, default 64
    max_epochs : int, default 1000
        Passes over the training rows.
    patience : int or None, default 30
        Stop after so many epochs without a lower validation loss and keep the best weights. None
        trains ``max_epochs`` on all rows with a rate that falls along a cosine; so does a table of
        fewer than 20 rows.
    validation_fraction : float, default 0.1
        Part of the training rows kept for early stopping.
    device : str, default "cpu"
        Where torch trains, such as "cuda".
    random_state : int, RandomState, Generator or None, default None
        Initial weights, batches, dropout and validation rows.
    progress : callable, optional
        Called after each epoch with (epoch, max_epochs, loss).

    Attributes
    ----------
    layers_ : list of (weight (in, out), bias (out,)) float64 arrays
    quantiles_ : (L,) levels of the columns of ``predict``
    n_epochs_ : int, epochs trained
    loss_ : float, mean pinball loss (standardised target) of the kept weights

    References
    ----------
    Romano, Patterson, Candes (2019), Conformalized quantile regression.
    """

    def __init__(
        self,
        quantiles: Sequence[float] = (0.05, 0.5, 0.95),
        hidden: Sequence[int] = (64, 64),
        *,
        dropout: float = 0.1,
        learning_rate: float = 5e-4,
        weight_decay: float = 1e-6,
        batch_size: int = 64,
        max_epochs: int = 1000,
        patience: int | None = 30,
        validation_fraction: float = 0.1,
        device: str = "cpu",
        random_state: Any = None,
        progress: Callable[[int, int, float], None] | None = None,
    ) -> None:
        self.quantiles = quantiles
        self.hidden = hidden
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_fraction = validation_fraction
        self.device = device
        self.random_state = random_state
        self.progress = progress

    def fit(self, X: Any, y: Any) -> Self:
        """Train on features X (n, d) and targets y (n,).

        Raises
        ------
        MissingDependency
            torch is not installed.
        DataError
            NaN or infinite values, lengths that differ.
        MethodError
            Levels outside (0, 1) or not increasing, other impossible parameters, or the loss stopped
            being a number.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        levels = self._levels()
        how = Training(
            max_epochs=self.max_epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            patience=self.patience,
            validation_fraction=self.validation_fraction,
            device=self.device,
            dropout=self.dropout,
            progress=self.progress,
        )
        how.check(self.hidden)
        target = np.asarray(y, dtype=np.float64)[:, None]
        x_scaler, y_scaler = StandardScaler().fit(X), StandardScaler().fit(target)
        torch = import_torch("QuantileNetwork")
        tau = torch.as_tensor(levels, dtype=torch.float32, device=self.device)

        def pinball(output: Any, wanted: Any) -> Any:
            error = wanted - output
            return torch.maximum(tau * error, (tau - 1) * error).mean()

        def adam(parameters: list[Any]) -> Any:
            return torch.optim.Adam(parameters, lr=self.learning_rate, weight_decay=self.weight_decay)

        # one thread: for networks of this size more only wait for each other
        with threadpool_limits(1):
            layers, epochs, loss = train_network(
                torch,
                x_scaler.transform(X),
                y_scaler.transform(target),
                [*self.hidden, len(levels)],
                pinball,
                adam,
                how,
                derive_seed(seed_of(self.random_state), "quantile network"),
            )
        self.x_scaler_, self.y_scaler_ = x_scaler, y_scaler
        self.layers_: Layers = layers
        self.quantiles_ = levels
        self.n_epochs_, self.loss_ = epochs, loss
        return self

    def _levels(self) -> FloatArray:
        levels = np.asarray(self.quantiles, dtype=np.float64)
        if levels.ndim != 1 or len(levels) == 0 or not ((levels > 0) & (levels < 1)).all():
            raise MethodError(f"quantiles must be a list of numbers in (0, 1), got {self.quantiles!r}")
        if not (np.diff(levels) > 0).all():
            raise MethodError(f"quantiles must increase, got {self.quantiles!r}")
        return levels

    def predict(self, X: Any) -> FloatArray:
        """(n, L) predicted quantiles, in order; (n,) for a single level."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, dtype=np.float64, ensure_min_samples=0)
        h = self.x_scaler_.transform(X) if len(X) else X
        out: FloatArray = run_layers(self.layers_, h) * self.y_scaler_.scale_ + self.y_scaler_.mean_
        out.sort(axis=1)
        return out[:, 0] if out.shape[1] == 1 else out


def seeded_network(estimator: Any, random_state: Any) -> Any:
    """The estimator, or QuantileNetwork() for None; a clone with a seed where a network has none."""
    network = QuantileNetwork() if estimator is None else estimator
    if isinstance(network, QuantileNetwork) and network.random_state is None:
        seed = derive_seed(seed_of(random_state), "quantile network")
        return clone(network).set_params(random_state=seed)
    return network
