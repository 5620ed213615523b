"""Temperature scaling: one number that makes a network's probabilities softer or sharper."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from assay.bayes.predictive_base import NetworkPredictive
from assay.core.checks import FloatArray
from assay.core.distributions import PredictiveDistribution
from assay.core.errors import MethodError
from assay.core.probabilities import softmax
from assay.networks.training import MIN_ROWS_TO_VALIDATE, Training

# temperatures outside of this range make probabilities that are all equal, or all 0 and 1
_LOG_RANGE = (-3.0, 5.0)


def fit_temperature(logits: FloatArray, codes: NDArray[Any]) -> float:
    """The T > 0 of least mean negative log likelihood of ``softmax(logits / T)``, within [exp(-3), exp(5)].

    Parameters
    ----------
    logits : (n, K) array
    codes : (n,) class numbers
    """

    def loss(log_t: float) -> float:
        log_p = log_softmax(logits * np.exp(-log_t), axis=1)
        return -float(log_p[np.arange(len(codes)), codes].mean())

    found = minimize_scalar(loss, bounds=_LOG_RANGE, method="bounded", options={"xatol": 1e-6})
    return float(np.exp(found.x))


class TemperatureScaling(NetworkPredictive):
    """A network whose logits are divided by a temperature: ``softmax(f(x) / T)``.

    T has the least negative log likelihood on the rows that also stopped the training. The likeliest
    label is that of the network. For classes only: for numbers the noise of the network without
    scaling is already fitted to those rows. Uses torch.

    Parameters
    ----------
    module : torch.nn.Module or callable, optional
        A module from (n, d) standardised rows to (n, K) logits, of which a copy is trained, or a function
        (n_features, n_outputs) that makes one; by default ReLU layers of 64 and 32 units.
    likelihood : "classification"
    training : Training, optional
        Epochs, batches, rate and validation rows
        (:func:`assay.networks.predictive.default_training` by default).
    random_state : int, RandomState, Generator or None, default None

    Attributes
    ----------
    temperature_ : float
        Above 1 where the network was too sure.
    network_, classes_ : as in the network without scaling, which is the same for the same random_state

    References
    ----------
    Guo, Pleiss, Sun, Weinberger (2017), On calibration of modern neural networks.
    """

    def __init__(
        self,
        module: Any = None,
        *,
        likelihood: str = "classification",
        training: Training | None = None,
        random_state: Any = None,
    ) -> None:
        self.module = module
        self.likelihood = likelihood
        self.training = training
        self.random_state = random_state

    def _fit(self, X: FloatArray, y: NDArray[Any]) -> None:
        if self.likelihood != "classification":
            raise MethodError("temperature scaling is for classes; likelihood must be 'classification'")
        super()._fit(X, y)

    def _after_training(self, X: FloatArray, y: NDArray[Any]) -> None:
        held = self.network_.validation_rows
        if not len(held):
            raise MethodError(
                f"no rows are left to fit a temperature: {len(X)} rows are given; at least "
                f"{MIN_ROWS_TO_VALIDATE} and a training with patience are needed"
            )
        codes = self.network_.targets(y[held]).numpy()
        self.temperature_ = fit_temperature(self.network_.outputs(X[held]), codes)

    def _dist(self, X: FloatArray) -> PredictiveDistribution:
        return self._categorical(softmax(self.network_.outputs(X) / self.temperature_))
