"""The trained network alone: its softmax, or a Gaussian of constant variance around its output."""

from __future__ import annotations

from typing import Any

from assay.bayes.predictive_base import NetworkPredictive
from assay.core.checks import FloatArray
from assay.core.distributions import PredictiveDistribution
from assay.core.probabilities import softmax
from assay.networks.training import Training


class MapNetwork(NetworkPredictive):
    """A network with one set of weights, the reference of the predictive task.

    Classes: ``softmax(f(x))``. Numbers: ``N(f(x), s^2)`` with s the root mean squared residual on the
    validation rows. Other methods of the family start from the same network for the same
    ``random_state``, so that they differ in the prediction only. Uses torch.

    Parameters
    ----------
    module : torch.nn.Module or callable, optional
        A module from (n, d) standardised rows to (n, K) logits, or (n, 1) for regression, of which a copy
        is trained from its present weights; or a function (n_features, n_outputs) that makes one.
        By default ReLU layers of 64 and 32 units.
    likelihood : "classification" or "regression", default "classification"
    training : Training, optional
        Epochs, batches, rate and validation rows
        (:func:`assay.networks.predictive.default_training` by default).
    random_state : int, RandomState, Generator or None, default None
        Start, validation rows and batches.

    Attributes
    ----------
    network_ : :class:`~assay.networks.predictive.TrainedNetwork`
    classes_ : (K,) labels, for classification
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

    def _dist(self, X: FloatArray) -> PredictiveDistribution:
        outputs = self.network_.outputs(X)
        if self.likelihood == "classification":
            return self._categorical(softmax(outputs))
        return self._gaussian(outputs)
