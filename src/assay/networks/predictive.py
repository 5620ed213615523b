"""The trained network from which predictive methods start: the same one for the same seed."""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from assay.core.checks import FloatArray, check_target
from assay.core.errors import AssayWarning, DataError, MethodError
from assay.core.models import import_torch, run_torch
from assay.core.probabilities import check_labels, distinct_labels, known_labels
from assay.core.seeds import derive_seed, seed_of
from assay.networks.backend import one_thread
from assay.networks.mlp import fresh_module
from assay.networks.training import MIN_ROWS_TO_VALIDATE, Training, minimise

Likelihood = Literal["classification", "regression"]
#: Adam's penalty on the squares of the weights, as in the example of SUQ (Li et al. 2025)
WEIGHT_DECAY = 1e-5
#: sd of the noise, in sd of the target, below which residuals are not believed
NOISE_FLOOR = 1e-6


def default_training(n: int) -> Training:
    """How a network is trained on n rows unless told otherwise.

    Batches of n / 64 rows, at least 32 and at most 512: an epoch then takes at most about 64 steps up to
    32,000 rows. 15 % of the rows validate; training stops 20 epochs after the best loss there.
    """
    return Training(
        max_epochs=200,
        batch_size=int(np.clip(n // 64, 32, 512)),
        learning_rate=2e-3,
        patience=20,
        validation_fraction=0.15,
    )


@dataclass(frozen=True)
class TrainedNetwork:
    """A trained module and what is needed to use it on rows as they come.

    ``module`` (in evaluation mode) takes float32 rows standardised by ``x_mean`` and ``x_scale``, both
    (d,), and gives logits (n, K), or for regression the standardised target (n, 1): z * y_scale + y_mean
    is in the units of y. ``noise_std`` is the root mean squared residual on the validation rows
    (on the training rows where none validate), in the units of y; NaN for classes. ``training_rows`` and
    ``validation_rows`` are positions in the X of the call. ``loss`` is that of the kept weights: cross
    entropy, or mean squared error of the standardised target.
    """

    module: Any
    likelihood: Likelihood
    x_mean: FloatArray
    x_scale: FloatArray
    y_mean: float
    y_scale: float
    noise_std: float
    classes: NDArray[Any] | None
    training_rows: NDArray[np.intp]
    validation_rows: NDArray[np.intp]
    epochs: int
    loss: float
    how: Training
    seed: int

    @property
    def noise_std_z(self) -> float:
        """The sd of the noise in sd of the target, the scale on which the module works."""
        return self.noise_std / self.y_scale

    def inputs(self, X: FloatArray) -> Any:
        """(n, d) float32 tensor of standardised rows, as the module takes them."""
        torch = import_torch("a network")
        return torch.as_tensor(((X - self.x_mean) / self.x_scale).astype(np.float32))

    def targets(self, y: Any) -> Any:
        """(n,) tensor of class numbers, or (n, 1) float32 tensor of standardised targets."""
        torch = import_torch("a network")
        if self.classes is not None:
            return torch.as_tensor(known_labels(check_labels(y), self.classes).astype(np.int64))
        z = (check_target(y) - self.y_mean) / self.y_scale
        return torch.as_tensor(z.astype(np.float32)[:, None])

    def outputs(self, X: FloatArray, module: Any = None) -> FloatArray:
        """(n, K) float64 logits, or (n, 1) standardised predictions, of ``module`` or another of its kind."""
        chosen = self.module if module is None else module
        if len(X) == 0:
            return np.empty((0, 1 if self.classes is None else len(self.classes)))
        with one_thread():
            return np.asarray(run_torch(chosen, self.inputs(X)), dtype=np.float64)


def loss_function(likelihood: Likelihood) -> Any:
    """(outputs, targets) -> mean loss: cross entropy of logits, or squared error."""
    functional = import_torch("a network").nn.functional
    return functional.cross_entropy if likelihood == "classification" else functional.mse_loss


def train_predictive_network(
    X: FloatArray,
    y: Any,
    likelihood: Likelihood,
    module: Any = None,
    random_state: Any = None,
    *,
    training: Training | None = None,
    dropout: float = 0.0,
    objective: Any = None,
) -> TrainedNetwork:
    """Train a network for classes or numbers, the same one for the same arguments on the same machine.

    Features (and numeric targets) are standardised; Adam with early stopping on validation rows, of which
    each class keeps one for training. Torch's global random state is as before afterwards, and a
    given module is left as it is: a copy is trained, from its present weights.

    Parameters
    ----------
    X : (n, d) finite float64 array
    y : (n,) labels or finite numbers
    likelihood : "classification" or "regression"
    module : torch.nn.Module or factory, optional
        See :func:`~assay.networks.mlp.fresh_module`; the house network by default.
    random_state : int, RandomState, Generator or None
        Start, validation rows, batches.
    training : Training, optional
        :func:`default_training` of n by default.
    dropout : float
        Of the house network.
    objective : callable, optional
        (outputs, targets, epoch) -> mean loss, in place of cross entropy or squared error. Epochs count
        from 0; on validation rows the epoch is infinite: an annealed loss is compared in its last form.

    Raises
    ------
    DataError
        One class only, or a target that is not what the likelihood takes.
    MethodError
        An unknown likelihood, a module that does not fit, a loss that stopped being a number.
    """
    if likelihood not in ("classification", "regression"):
        raise MethodError(f"likelihood must be 'classification' or 'regression', got {likelihood!r}")
    torch = import_torch("a network")
    how = default_training(len(X)) if training is None else training
    how.check(())
    seed = seed_of(random_state)
    x_mean, x_scale = X.mean(axis=0), X.std(axis=0)
    x_scale = np.where(x_scale > 0, x_scale, 1.0)
    y_mean, y_scale, classes = 0.0, 1.0, None
    if likelihood == "classification":
        labels = check_labels(y, length=len(X))
        classes = distinct_labels(labels)
        if len(classes) < 2:
            raise DataError(
                f"y has one class only, {classes.tolist()[0]!r}, in all {len(X)} rows; two are needed"
            )
        codes = known_labels(labels, classes)
    else:
        values = check_target(y, length=len(X))
        codes = np.zeros(len(X), dtype=np.intp)
        y_mean, y_scale = float(values.mean()), float(values.std()) or 1.0
    n_outputs = 1 if classes is None else len(classes)
    # the start of a module and dropout draw from torch's global state: a fork of it is ours
    with one_thread(), torch.random.fork_rng(devices=[]), torch.enable_grad():
        generator = torch.Generator().manual_seed(derive_seed(seed, "predictive network"))
        torch.random.default_generator.manual_seed(derive_seed(seed, "predictive network start"))
        net = fresh_module(module, X.shape[1], n_outputs, dropout).to(how.device)
        validation, rows = _parts(torch, codes, how, generator)
        start = TrainedNetwork(
            net, likelihood, x_mean, x_scale, y_mean, y_scale, float("nan"), classes, rows.numpy(),
            validation.numpy(), 0, float("nan"), how, seed,
        )  # fmt: skip
        epochs, loss = _train(
            torch, start, start.inputs(X), start.targets(y), (validation, rows), generator, objective
        )
    net.eval()
    for parameter in net.parameters():
        parameter.grad = None
    trained = {**start.__dict__, "epochs": epochs, "loss": loss}
    if classes is None:
        judged = start.validation_rows if len(validation) else start.training_rows
        rest = values[judged] - (start.outputs(X[judged])[:, 0] * y_scale + y_mean)
        trained["noise_std"] = _noise(float(np.sqrt(np.mean(rest**2))), y_scale)
    return TrainedNetwork(**trained)


def _noise(found: float, y_scale: float) -> float:
    floor = NOISE_FLOOR * y_scale
    if found < floor:
        warnings.warn(
            f"the residuals are {found:.3g}, less than {NOISE_FLOOR:g} of the target's sd; the noise is set "
            f"to {floor:.3g}",
            AssayWarning,
            stacklevel=3,
        )
    return max(found, floor)


def _parts(torch: Any, codes: NDArray[np.intp], how: Training, generator: Any) -> tuple[Any, Any]:
    """(validation, training) rows; one row of each class is sure to train."""
    n = len(codes)
    order = torch.randperm(n, generator=generator)
    if how.patience is None or n < MIN_ROWS_TO_VALIDATE:
        return order[:0], order
    kept = np.zeros(n, dtype=bool)
    kept[np.unique(codes[order.numpy()], return_index=True)[1]] = True
    free = np.flatnonzero(~kept)
    held = np.zeros(n, dtype=bool)
    held[free[: max(1, round(how.validation_fraction * n))]] = True
    mask = torch.as_tensor(held)
    return order[mask], order[~mask]


def _train(
    torch: Any,
    start: TrainedNetwork,
    x: Any,
    target: Any,
    parts: tuple[Any, Any],
    generator: Any,
    objective: Any,
) -> tuple[int, float]:
    """Train the module in place; (epochs, loss of the kept weights)."""
    net, how = start.module, start.how
    x, target = x.to(how.device), target.to(how.device)
    loss = loss_function(start.likelihood)
    weights = [p for p in net.parameters() if p.requires_grad]

    batches = math.ceil(len(parts[1]) / int(how.batch_size))
    calls = itertools.count()

    def of_rows(rows: Any, training: bool) -> Any:
        # a single row has no spread for batch normalisation to learn from
        net.train(training and len(rows) > 1)
        if objective is None:
            return loss(net(x[rows]), target[rows])
        return objective(net(x[rows]), target[rows], next(calls) // batches if training else math.inf)

    kept = [*weights, *net.buffers()]
    best, epochs, reached = minimise(
        torch,
        kept,
        of_rows,
        len(x),
        torch.optim.Adam(weights, lr=how.learning_rate, weight_decay=WEIGHT_DECAY),
        how,
        generator,
        parts,
    )
    with torch.no_grad():
        for tensor, value in zip(kept, best, strict=True):
            tensor.copy_(value)
    return epochs, reached
