"""What the Laplace methods share: a trained network, and one Gaussian posterior of its weights."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.bayes.curvature import Curvature, diag_ggn, kron_ggn
from assay.bayes.latent import glm_variance, latent_nlpd
from assay.bayes.posterior import GaussianPosterior, posterior_of
from assay.bayes.predictive_base import NetworkPredictive
from assay.core.checks import FloatArray, to_numpy
from assay.core.errors import MethodError
from assay.networks.backend import one_thread
from assay.networks.selection import Selection

#: prior precisions that validation rows choose from: log10 of -4 .. 4 in steps of a half
VALIDATED = np.logspace(-4, 4, 17)


class LaplaceNetwork(NetworkPredictive):
    """A network and ``posterior_``, the Laplace approximation at its weights; subclasses predict.

    For the same arguments all subclasses have the same network and the same posterior. Its curvature is
    the Gauss-Newton matrix of the rows that the network was trained on, in float64.
    """

    prior_precision: float | str
    structure: str
    params: Selection
    posterior_: GaussianPosterior
    prior_precision_: float

    def _after_training(self, X: FloatArray, y: NDArray[Any]) -> None:
        if self.structure not in ("diag", "kron"):
            raise MethodError(f"structure must be 'diag' or 'kron', got {self.structure!r}")
        net = self.network_
        # small and done once: float64 keeps the sums over rows exact
        module = copy.deepcopy(net.module).double()
        rows = net.inputs(X[net.training_rows]).double()
        noise = net.noise_std_z if net.classes is None else None
        with one_thread():
            make = diag_ggn if self.structure == "diag" else kron_ggn
            curvature = make(module, rows, net.likelihood, noise_std=noise, params=self.params)
            chosen: float | str = self.prior_precision
            if chosen == "validation":
                held = net.validation_rows
                chosen = self._validated(curvature, X[held], y[held]) if len(held) else "marglik"
            self._use(posterior_of(curvature, chosen))

    def _validated(self, curvature: Curvature, X: FloatArray, y: NDArray[Any]) -> float:
        """The prior precision whose linearised predictive has the smallest NLPD on these rows.

        One criterion for all methods, so that all have the same posterior.
        """
        net = self.network_
        inputs, mean = net.inputs(X), net.outputs(X)
        targets = to_numpy(net.targets(y))
        losses = []
        for t in VALIDATED:
            variance = glm_variance(net.module, posterior_of(curvature, float(t)), inputs)
            losses.append(latent_nlpd(mean, variance, targets, net.likelihood, net.noise_std_z))
        return float(VALIDATED[int(np.argmin(losses))])

    def _use(self, posterior: GaussianPosterior) -> None:
        """Predict with this posterior from now on."""
        self.posterior_ = posterior
        self.prior_precision_ = float(posterior.prior_precision or np.nan)
