"""SWAG: a Gaussian over the weights from the path of stochastic gradient descent."""

from __future__ import annotations

import copy
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.bayes.predictive_base import NetworkPredictive
from assay.core.checks import FloatArray
from assay.core.distributions import PredictiveDistribution
from assay.core.errors import MethodError
from assay.core.models import import_torch
from assay.core.seeds import derive_seed
from assay.networks.backend import one_thread
from assay.networks.predictive import WEIGHT_DECAY, loss_function
from assay.networks.training import Training

#: variances of single weights are at least this (as in the authors' code)
_LEAST_VARIANCE = 1e-30
_MOMENTUM = 0.9
#: rates that validation rows choose from: that of Maddox et al. for VGG16, and smaller ones
RATES = (0.01, 0.001, 0.0001)
#: what one rate leaves behind
_WALKED = ("mean_", "variance_", "deviations_", "weights_", "_buffers", "learning_rate_")


class SWAG(NetworkPredictive):
    """The average of S networks drawn from a Gaussian around the mean of an SGD path.

    From the trained network on, SGD with a constant rate goes on for T epochs, and the weights after each
    are collected: their mean m, their variances v, and the last ``rank`` deviations D from the running
    mean. A draw is ``m + (sqrt(v) * a + D b / sqrt(K - 1)) / sqrt(2)`` with standard normal a, b and K the
    number of deviations. Batch normalisation is run over the training rows anew for each draw. Classes:
    the mean of the probabilities. Numbers: the mixture of S Gaussians around the draws, with the squared
    error of the network on the validation rows as their variance. Uses torch.

    Parameters
    ----------
    module : torch.nn.Module or callable, optional
        A module from (n, d) standardised rows to (n, K) logits, or (n, 1) for regression, of which a copy
        is trained, or a function (n_features, n_outputs) that makes one; by default ReLU layers of 64 and
        32 units.
    rank : int, default 20
        Deviations that are kept (Maddox et al. 2019, for all of their networks).
    n_samples : int, default 30
        Draws S (Maddox et al. 2019).
    epochs : int, default 40
        Epochs of collecting T (Maddox et al. collect once an epoch too, over 140 of 300 epochs).
    learning_rate : float or "validation", default "validation"
        Constant rate of SGD with momentum 0.9 (Maddox et al. take 0.01 for VGG16, 0.05 for PreResNets).
        "validation": of 0.01, 0.001 and 0.0001 the one that makes the validation rows likeliest. A network
        that was stopped early leaves that point at 0.01, and is too sure of itself when it is collected.
    likelihood : "classification" or "regression", default "classification"
    training : Training, optional
        Of the network before collecting
        (:func:`assay.networks.predictive.default_training` by default).
    random_state : int, RandomState, Generator or None, default None

    Attributes
    ----------
    mean_, variance_ : (P,) mean and variances of the weights
    deviations_ : (K, P) last deviations from the running mean
    weights_ : (S, P) draws
    learning_rate_ : the rate with which they were collected
    network_, classes_ : the network from which collecting starts, and the labels

    References
    ----------
    Maddox, Garipov, Izmailov, Vetrov, Wilson (2019), A simple baseline for Bayesian uncertainty in deep
    learning.
    """

    def __init__(
        self,
        module: Any = None,
        *,
        rank: int = 20,
        n_samples: int = 30,
        epochs: int = 40,
        learning_rate: float | str = "validation",
        likelihood: str = "classification",
        training: Training | None = None,
        random_state: Any = None,
    ) -> None:
        self.module = module
        self.rank = rank
        self.n_samples = n_samples
        self.epochs = epochs
        self.learning_rate = learning_rate
        self.likelihood = likelihood
        self.training = training
        self.random_state = random_state

    def _fit(self, X: FloatArray, y: NDArray[Any]) -> None:
        if int(self.rank) < 2 or int(self.epochs) < 2 or int(self.n_samples) < 1:
            raise MethodError(
                "rank and epochs must be at least 2 and n_samples at least 1, got "
                f"{self.rank}, {self.epochs} and {self.n_samples}"
            )
        rate = self.learning_rate
        if rate != "validation" and (isinstance(rate, str) or not rate > 0):
            raise MethodError(f"learning_rate must be positive or 'validation', got {rate!r}")
        super()._fit(X, y)

    def _after_training(self, X: FloatArray, y: NDArray[Any]) -> None:
        held = self.network_.validation_rows
        if self.learning_rate != "validation" or not len(held):
            self._walk(X, y, RATES[0] if self.learning_rate == "validation" else float(self.learning_rate))
            return
        best, state, trouble = -np.inf, {}, None
        for rate in RATES:
            try:
                self._walk(X, y, rate)
            except MethodError as error:  # it diverged; a smaller rate may not
                trouble = error
                continue
            found = float(self._dist(X[held]).log_prob(y[held]).mean())
            if found > best:
                best, state = found, {name: getattr(self, name) for name in _WALKED}
        if not state:
            raise trouble or MethodError("the draws give no likelihood on the validation rows")
        for name, value in state.items():
            setattr(self, name, value)

    def _walk(self, X: FloatArray, y: NDArray[Any], rate: float) -> None:
        """Collect with one rate, and draw."""
        torch, net = import_torch("SWAG"), self.network_
        module = copy.deepcopy(net.module)
        rows = net.training_rows
        x, target = net.inputs(X[rows]).to(net.how.device), net.targets(y[rows]).to(net.how.device)
        seed = derive_seed(net.seed, "swag")
        with one_thread(), torch.random.fork_rng(devices=[]), torch.enable_grad():
            torch.random.default_generator.manual_seed(seed)
            self._collect(torch, module, x, target, rate)
            self._draw_weights(seed)
            self._buffers = [self._normalised(torch, module, draw, x) for draw in self.weights_]
        self.learning_rate_ = rate

    def _collect(self, torch: Any, module: Any, x: Any, target: Any, rate: float) -> None:
        net = self.network_
        loss = loss_function(net.likelihood)
        weights = [p for p in module.parameters() if p.requires_grad]
        steps = torch.optim.SGD(weights, lr=rate, momentum=_MOMENTUM, weight_decay=WEIGHT_DECAY)
        mean = square = np.zeros(0)
        deviations: deque[FloatArray] = deque(maxlen=int(self.rank))
        for epoch in range(int(self.epochs)):
            for rows in torch.split(torch.randperm(len(x)), int(net.how.batch_size)):
                # a single row has no spread for batch normalisation to learn from
                module.train(len(rows) > 1)
                steps.zero_grad(set_to_none=True)
                value = loss(module(x[rows]), target[rows])
                value.backward()
                steps.step()
            now = torch.nn.utils.parameters_to_vector(weights).detach().cpu().numpy().astype(np.float64)
            if not np.isfinite(now).all():
                raise MethodError(
                    f"collecting diverged in epoch {epoch + 1}; try a learning_rate below {rate:g}"
                )
            mean = now if epoch == 0 else (mean * epoch + now) / (epoch + 1)
            square = now**2 if epoch == 0 else (square * epoch + now**2) / (epoch + 1)
            deviations.append(now - mean)
        self.mean_ = mean
        self.variance_ = np.maximum(square - mean**2, _LEAST_VARIANCE)
        self.deviations_ = np.stack(deviations)

    def _draw_weights(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        K, P = self.deviations_.shape
        single = rng.standard_normal((int(self.n_samples), P)) * np.sqrt(self.variance_)
        common = rng.standard_normal((int(self.n_samples), K)) @ self.deviations_ / np.sqrt(K - 1)
        self.weights_ = self.mean_ + (single + common) / np.sqrt(2)

    def _normalised(self, torch: Any, module: Any, draw: FloatArray, x: Any) -> dict[str, Any]:
        """Buffers of the module with those weights, batch normalisation run over the training rows."""
        load_weights(torch, module, draw)
        if any(hasattr(part, "running_mean") for part in module.modules()):
            batches = [part for part in torch.split(x, int(self.network_.how.batch_size)) if len(part) > 1]
            torch.optim.swa_utils.update_bn(batches, module)
        return {name: value.detach().clone() for name, value in module.named_buffers()}

    def _dist(self, X: FloatArray) -> PredictiveDistribution:
        torch, net = import_torch("SWAG"), self.network_
        module = copy.deepcopy(net.module)
        outputs = []
        for draw, buffers in zip(self.weights_, self._buffers, strict=True):
            load_weights(torch, module, draw)
            for name, value in module.named_buffers():
                value.copy_(buffers[name])
            outputs.append(net.outputs(X, module))
        return self._of_members(np.stack(outputs))


def load_weights(torch: Any, module: Any, vector: FloatArray) -> None:
    """Put a vector in the place of the weights that are trained, in the order of ``parameters()``."""
    weights = [p for p in module.parameters() if p.requires_grad]
    values = torch.as_tensor(vector, dtype=weights[0].dtype, device=weights[0].device)
    torch.nn.utils.vector_to_parameters(values, weights)
