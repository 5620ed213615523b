"""SUQ: mean and variance of a weight posterior in one forward pass of a network trained here."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from assay.bayes.laplace_base import LaplaceNetwork
from assay.bayes.latent import probit
from assay.bayes.posterior import GaussianPosterior
from assay.bayes.streamlined import StreamlinedModel, streamline
from assay.core.checks import FloatArray
from assay.core.distributions import PredictiveDistribution
from assay.networks.backend import one_thread
from assay.networks.selection import Selection
from assay.networks.training import Training


class StreamlinedNetwork(LaplaceNetwork):
    """A network whose predictive mean and variance come from one deterministic pass.

    A Gaussian posterior of the weights (Laplace approximation with the exact Gauss-Newton diagonal, or
    Kronecker factors) is carried through the layers: linear layers by their exact moments with
    independent inputs, activations linear at the mean. Latent variances are divided by a scale fitted on
    the validation rows. Classes: ``softmax(m / sqrt(1 + pi/8 v))``; numbers: ``N(m, v + noise^2)``. Uses
    torch. For a network that is trained already see :func:`~assay.bayes.streamlined.streamline`.

    Parameters
    ----------
    module : torch.nn.Module or callable, optional
        As in :class:`~assay.bayes.map_network.MapNetwork`, of layers that have a rule.
    prior_precision : float, "validation" or "marglik", default "validation"
        Of the weights of the standardised network. "validation": the one of 17 in 1e-4 .. 1e4 whose
        linearised predictive has the smallest NLPD on the validation rows (Li et al. 2025 choose so for
        large networks); without such rows, and for "marglik", the one of the largest evidence.
    structure : "diag" or "kron", default "diag"
    fit_scale : bool, default True (Li et al. 2025)
        On the validation rows; without such rows the scale is 1.
    params : "all", "last_layer" or callable (name, parameter) -> bool, default "all"
        Weights that are random.
    likelihood : "classification" or "regression", default "classification"
    training : Training, optional
    random_state : int, RandomState, Generator or None, default None

    Attributes
    ----------
    network_ : TrainedNetwork
    posterior_ : GaussianPosterior
    prior_precision_ : float
    model_ : StreamlinedModel, on standardised rows and targets
    scale_ : float
    classes_ : (K,) labels, for classification

    References
    ----------
    Li, Klasson, Solin, Trapp (2025), Streamlining prediction in Bayesian deep learning, ICLR.
    """

    def __init__(
        self,
        module: Any = None,
        prior_precision: float | str = "validation",
        structure: str = "diag",
        fit_scale: bool = True,
        params: Selection = "all",
        *,
        likelihood: str = "classification",
        training: Training | None = None,
        random_state: Any = None,
    ) -> None:
        self.module = module
        self.prior_precision = prior_precision
        self.structure = structure
        self.fit_scale = fit_scale
        self.params = params
        self.likelihood = likelihood
        self.training = training
        self.random_state = random_state

    model_: StreamlinedModel
    scale_: float

    def _use(self, posterior: GaussianPosterior) -> None:
        super()._use(posterior)
        net = self.network_
        noise = net.noise_std_z if net.classes is None else None
        self.model_ = streamline(net.module, posterior, self.structure, net.likelihood, noise)
        self.scale_ = 1.0

    def _after_training(self, X: FloatArray, y: NDArray[Any]) -> None:
        super()._after_training(X, y)
        held = self.network_.validation_rows
        if self.fit_scale and len(held):
            with one_thread():
                self.model_.fit_scale(self.network_.inputs(X[held]), self.network_.targets(y[held]))
            self.scale_ = self.model_.scale_

    def _dist(self, X: FloatArray) -> PredictiveDistribution:
        with one_thread():
            mean, variance = self.model_.latent(self.network_.inputs(X))
        if self.likelihood == "classification":
            return self._categorical(probit(mean, variance))
        return self._gaussian(mean, variance[:, 0])
