"""A network whose outputs are evidence: the mean of a Dirichlet distribution, and how little it rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from assay.bayes.predictive_base import NetworkPredictive
from assay.core.checks import FloatArray
from assay.core.distributions import PredictiveDistribution
from assay.core.errors import MethodError
from assay.networks.predictive import train_predictive_network
from assay.networks.training import Training

if TYPE_CHECKING:
    from torch import Tensor


class EvidentialNetwork(NetworkPredictive):
    """The network of the family, its K outputs read as evidence e = softplus(f(x)) for the classes.

    The concentrations alpha = e + 1 are those of a Dirichlet distribution over the probabilities; the
    prediction is its mean alpha / S with S = sum alpha. Trained with the expected cross-entropy plus
    min(1, epoch / anneal_epochs) * kl_weight times the divergence of evidence for wrong classes from none
    (:func:`assay.networks.evidential.evidential_loss`). Classes only: for numbers the epistemic part of
    evidential regression is not identified by its loss (Meinert, Gawlikowski, Lavin 2023), and it is refused.

    The vacuity K / S is only weakly tied to how many rows were seen; it is no promise to notice rows that
    are unlike those of training.

    Parameters
    ----------
    module : torch.nn.Module or callable, optional
        As in :class:`~assay.bayes.map_network.MapNetwork`: (n, d) rows to (n, K) outputs.
    likelihood : "classification", default "classification"
    kl_weight : float, default 1.0
        Final weight of the divergence, as in Sensoy et al. (2018).
    anneal_epochs : int, default 10
        Epochs until it is reached, the same source.
    training : Training, optional
        As in MapNetwork. Validation rows are judged with the full weight.
    random_state : int, RandomState, Generator or None, default None

    Attributes
    ----------
    network_ : :class:`~assay.networks.predictive.TrainedNetwork`
    classes_ : (K,) labels

    References
    ----------
    Sensoy, Kaplan, Kandemir. Evidential Deep Learning to Quantify Classification Uncertainty. NeurIPS 2018.
    """

    def __init__(
        self,
        module: Any = None,
        *,
        likelihood: str = "classification",
        kl_weight: float = 1.0,
        anneal_epochs: int = 10,
        training: Training | None = None,
        random_state: Any = None,
    ) -> None:
        self.module = module
        self.likelihood = likelihood
        self.kl_weight = kl_weight
        self.anneal_epochs = anneal_epochs
        self.training = training
        self.random_state = random_state

    def alpha(self, X: Any) -> FloatArray:
        """(n, K) concentrations, columns in the order of ``classes_``: evidence + 1."""
        from sklearn.utils.validation import check_is_fitted

        check_is_fitted(self)
        return self._alpha(self._rows(X))

    def vacuity(self, X: Any) -> FloatArray:
        """(n,) K / sum of concentrations: 1 without evidence, towards 0 with much."""
        alpha = self.alpha(X)
        return np.asarray(alpha.shape[1] / alpha.sum(axis=1))

    def _alpha(self, X: FloatArray) -> FloatArray:
        return np.asarray(np.logaddexp(0, self.network_.outputs(X)) + 1)

    def _fit(self, X: FloatArray, y: NDArray[Any]) -> None:
        if self.likelihood != "classification":
            raise MethodError(
                "evidential networks are for classes only: for numbers take deep-ensembles, or another method"
            )
        if not self.kl_weight >= 0 or not self.anneal_epochs >= 1:
            raise MethodError(
                f"kl_weight must be at least 0 and anneal_epochs at least 1, got {self.kl_weight!r} and "
                f"{self.anneal_epochs!r}"
            )
        self.network_ = train_predictive_network(
            X,
            y,
            "classification",
            self.module,
            self.random_state,
            training=self.training,
            objective=self._objective,
        )
        self.classes_ = np.asarray(self.network_.classes)

    def _objective(self, outputs: Tensor, labels: Tensor, epoch: float) -> Tensor:
        from torch.nn.functional import softplus

        from assay.networks.evidential import evidential_loss, kl_weight

        weight = self.kl_weight * kl_weight(epoch, self.anneal_epochs)
        return evidential_loss(softplus(outputs) + 1, labels, weight=weight).mean()

    def _dist(self, X: FloatArray) -> PredictiveDistribution:
        alpha = self._alpha(X)
        return self._categorical(alpha / alpha.sum(axis=1, keepdims=True))
