"""The linearised Laplace predictive: a Gaussian of the outputs by the network's Jacobian."""

from __future__ import annotations

from typing import Any

from assay.bayes.laplace_base import LaplaceNetwork
from assay.bayes.latent import glm_variance, probit
from assay.core.checks import FloatArray
from assay.core.distributions import PredictiveDistribution
from assay.networks.backend import one_thread
from assay.networks.selection import Selection
from assay.networks.training import Training


class GLMLaplace(LaplaceNetwork):
    """A trained network linearised in its weights, under their Laplace posterior.

    Latent outputs are ``N(f(x), J S J')`` with J the Jacobian of the row and S the posterior covariance.
    Classes: ``softmax(f / sqrt(1 + pi/8 diag))``; numbers: ``N(f, J S J' + noise^2)``. With
    ``params="last_layer"`` the rest of the network is a fixed feature map. Uses torch.

    Parameters
    ----------
    module, prior_precision, structure, params, likelihood, training, random_state
        As in :class:`~assay.bayes.suq.StreamlinedNetwork`.

    Attributes
    ----------
    network_, posterior_, prior_precision_, classes_

    References
    ----------
    Immer, Korzepa, Bauer (2021), Improving predictions of Bayesian neural nets via local linearization,
    AISTATS. Daxberger et al. (2021), Laplace redux, NeurIPS.
    """

    def __init__(
        self,
        module: Any = None,
        prior_precision: float | str = "validation",
        structure: str = "diag",
        params: Selection = "all",
        *,
        likelihood: str = "classification",
        training: Training | None = None,
        random_state: Any = None,
    ) -> None:
        self.module = module
        self.prior_precision = prior_precision
        self.structure = structure
        self.params = params
        self.likelihood = likelihood
        self.training = training
        self.random_state = random_state

    def _dist(self, X: FloatArray) -> PredictiveDistribution:
        net = self.network_
        mean = net.outputs(X)
        with one_thread():
            variance = glm_variance(net.module, self.posterior_, net.inputs(X))
        if net.classes is not None:
            return self._categorical(probit(mean, variance))
        return self._gaussian(mean, variance[:, 0])
