"""Sampling the weights of a Laplace posterior: the mean of many forward passes."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.bayes.laplace_base import LaplaceNetwork
from assay.bayes.latent import sampled_outputs
from assay.core.checks import FloatArray
from assay.core.distributions import MixtureDistribution, PredictiveDistribution
from assay.core.errors import MethodError
from assay.core.probabilities import softmax
from assay.core.seeds import derive_seed
from assay.networks.backend import one_thread
from assay.networks.selection import Selection
from assay.networks.training import Training


class MonteCarloLaplace(LaplaceNetwork):
    """Mean prediction of networks drawn from the Laplace posterior of a trained one.

    Classes: ``mean_s softmax(f_s(x))``; numbers: the mixture of ``N(f_s(x), noise^2)``. The draws are fixed
    by ``random_state``, so all rows meet the same networks. Uses torch.

    Parameters
    ----------
    module, prior_precision, structure, params, likelihood, training, random_state
        As in :class:`~assay.bayes.suq.StreamlinedNetwork`.
    n_samples : int, default 100 (laplace-torch)
        Networks drawn, S.

    Attributes
    ----------
    network_, posterior_, prior_precision_, classes_

    References
    ----------
    MacKay (1992), A practical Bayesian framework for backpropagation networks, Neural Computation.
    """

    def __init__(
        self,
        module: Any = None,
        prior_precision: float | str = "validation",
        n_samples: int = 100,
        structure: str = "diag",
        params: Selection = "all",
        *,
        likelihood: str = "classification",
        training: Training | None = None,
        random_state: Any = None,
    ) -> None:
        self.module = module
        self.prior_precision = prior_precision
        self.n_samples = n_samples
        self.structure = structure
        self.params = params
        self.likelihood = likelihood
        self.training = training
        self.random_state = random_state

    def _after_training(self, X: FloatArray, y: Any) -> None:
        if int(self.n_samples) < 1:
            raise MethodError(f"n_samples must be at least 1, got {self.n_samples!r}")
        super()._after_training(X, y)

    def _dist(self, X: FloatArray) -> PredictiveDistribution:
        net = self.network_
        seed = derive_seed(net.seed, "weights of a posterior")
        with one_thread():
            drawn = sampled_outputs(net.module, self.posterior_, net.inputs(X), int(self.n_samples), seed)
            if net.classes is not None:
                total = np.zeros((len(X), len(net.classes)))
                for logits in drawn:
                    total += softmax(logits)
                return self._categorical(total / int(self.n_samples))
            means = np.stack([z[:, 0] for z in drawn]) * net.y_scale + net.y_mean
        return MixtureDistribution(means, net.noise_std**2)
