"""Monte-Carlo dropout: an average over networks from which units are left out at random."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.bayes.predictive_base import NetworkPredictive
from assay.core.checks import FloatArray
from assay.core.distributions import PredictiveDistribution
from assay.core.errors import MethodError
from assay.core.models import import_torch
from assay.core.seeds import derive_seed
from assay.networks.training import Training


class MCDropout(NetworkPredictive):
    """The average of S passes of one network with dropout switched on.

    Each pass leaves out one random set of units, the same for every row: it is one network drawn from
    the approximate posterior, and a row's answer does not depend on the rows beside it. Only layers of
    type Dropout, Dropout1d, Dropout2d and Dropout3d are switched on; batch normalisation keeps its
    running statistics. Classes: the mean of the probabilities. Numbers: the mixture of S Gaussians
    around the passes, with the squared error on the validation rows as their variance. Uses torch.

    Parameters
    ----------
    module : torch.nn.Module or callable, optional
        As for the network without dropout, with at least one dropout layer; a function
        (n_features, n_outputs) may make it. By default ReLU layers of 64 and 32 units, dropout after each.
    rate : float, default 0.1
        Share of units left out, in the default module (the largest of the rates from which Gal and
        Ghahramani choose for their regression networks).
    n_samples : int, default 50
        Passes S.
    likelihood : "classification" or "regression", default "classification"
    training : Training, optional
        Epochs, batches, rate and validation rows
        (:func:`assay.networks.predictive.default_training` by default).
    random_state : int, RandomState, Generator or None, default None
        Training, and the units left out in each pass.

    Attributes
    ----------
    network_ : :class:`~assay.networks.predictive.TrainedNetwork`
    classes_ : (K,) labels, for classification

    References
    ----------
    Gal, Ghahramani (2016), Dropout as a Bayesian approximation.
    """

    def __init__(
        self,
        module: Any = None,
        *,
        rate: float = 0.1,
        n_samples: int = 50,
        likelihood: str = "classification",
        training: Training | None = None,
        random_state: Any = None,
    ) -> None:
        self.module = module
        self.rate = rate
        self.n_samples = n_samples
        self.likelihood = likelihood
        self.training = training
        self.random_state = random_state

    def _fit(self, X: FloatArray, y: NDArray[Any]) -> None:
        if not 0 < self.rate < 1:
            raise MethodError(f"rate must lie in (0, 1), got {self.rate!r}")
        if int(self.n_samples) < 1:
            raise MethodError(f"n_samples must be at least 1, got {self.n_samples!r}")
        super()._fit(X, y)

    def _dropout(self) -> float:
        return float(self.rate)

    def _after_training(self, X: FloatArray, y: NDArray[Any]) -> None:
        if not _dropout_layers(self.network_.module):
            kinds = sorted({type(part).__name__ for part in self.network_.module.modules()})
            raise MethodError(
                f"the module has no dropout layer to switch on, it is made of {', '.join(kinds)}; "
                "add nn.Dropout"
            )

    def _dist(self, X: FloatArray) -> PredictiveDistribution:
        net = self.network_
        module = copy.deepcopy(net.module)
        seed = derive_seed(net.seed, "dropout passes")
        with _switched_on(module, seed) as next_pass:
            outputs = []
            for number in range(int(self.n_samples)):
                next_pass(number)
                outputs.append(net.outputs(X, module))
        return self._of_members(np.stack(outputs))


def _dropout_layers(module: Any) -> list[Any]:
    nn = import_torch("MCDropout").nn
    kinds = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
    return [part for part in module.modules() if isinstance(part, kinds) and part.p > 0]


@contextmanager
def _switched_on(module: Any, seed: int) -> Iterator[Any]:
    """Dropout layers of a module in evaluation mode multiply by a mask that is fixed for a pass.

    Gives a function that begins the pass of a number.
    """
    torch = import_torch("MCDropout")
    state: dict[str, Any] = {"number": 0}

    def masked(layer: Any, place: int) -> Any:
        channels = not isinstance(layer, torch.nn.Dropout)

        def hook(_: Any, __: Any, output: Any) -> Any:
            shape = output.shape[1:]
            if channels:  # whole channels are left out
                shape = (shape[0], *[1] * (len(shape) - 1))
            generator = torch.Generator().manual_seed(derive_seed(seed, state["number"], place))
            kept = torch.rand(tuple(shape), generator=generator) >= layer.p
            # a rate of 1 leaves out everything, and nothing is to be scaled up
            return output * (kept / max(1 - layer.p, 1e-12)).to(output)

        return hook

    handles = [
        layer.register_forward_hook(masked(layer, place))
        for place, layer in enumerate(_dropout_layers(module))
    ]
    try:
        yield lambda number: state.update(number=number)
    finally:
        for handle in handles:
            handle.remove()
