"""Training of small ReLU networks with torch into plain float64 arrays, which predict without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from assay.core.checks import FloatArray
from assay.core.errors import MethodError, MissingDependency

_GRADIENT_NORM = 5.0
_MIN_ROWS_TO_VALIDATE = 20

#: (weight (in, out), bias (out,)) of each layer, ReLU between them
Layers = list[tuple[FloatArray, FloatArray]]


@dataclass(frozen=True)
class Training:
    """How long and how fast to train; ``patience`` None trains ``max_epochs`` on all rows."""

    max_epochs: int
    batch_size: int
    learning_rate: float
    patience: int | None
    validation_fraction: float
    device: str = "cpu"
    dropout: float = 0.0
    progress: Callable[[int, int, float], None] | None = None

    def check(self, hidden: Sequence[int]) -> None:
        """Refuse what cannot be trained."""
        if any(int(value) < 1 for value in (self.max_epochs, self.batch_size, *hidden)):
            raise MethodError(
                "max_epochs, batch_size and the hidden widths must be at least 1, got "
                f"{self.max_epochs}, {self.batch_size}, {tuple(hidden)}"
            )
        if not 0 < self.validation_fraction < 1:
            raise MethodError(f"validation_fraction must lie in (0, 1), got {self.validation_fraction!r}")
        if not self.learning_rate > 0:
            raise MethodError(f"learning_rate must be positive, got {self.learning_rate!r}")
        if not 0 <= self.dropout < 1:
            raise MethodError(f"dropout must lie in [0, 1), got {self.dropout!r}")


def import_torch(what: str) -> Any:
    """The module torch, or one line that installs it for ``what``."""
    try:
        import torch
    except ImportError:
        raise MissingDependency(f"{what} needs: pip install 'assay[torch]'") from None
    return torch


def run_layers(layers: Layers, X: FloatArray) -> FloatArray:
    """(n, out) outputs of a trained network on standardised rows, rounded to float32.

    The last bits of a matrix product depend on the number of rows; what follows must not, and the
    weights were trained in float32 anyway.
    """
    h = X
    for weight, bias in layers[:-1]:
        h = np.maximum(h @ weight + bias, 0)
    weight, bias = layers[-1]
    return np.asarray((h @ weight + bias).astype(np.float32).astype(np.float64))


def train_network(
    torch: Any,
    X: FloatArray,
    Y: FloatArray,
    widths: Sequence[int],
    loss: Callable[[Any, Any], Any],
    optimiser: Callable[[list[Any]], Any],
    how: Training,
    seed: int,
    start_bias: Callable[[Any, Any], None] | None = None,
) -> tuple[Layers, int, float]:
    """Train a ReLU network on standardised arrays.

    Parameters
    ----------
    X, Y : (n, d) and (n, q) arrays
    widths : widths of the layers, the last being that of the output; the input's is d
    loss : (output, target) tensors -> mean loss of the batch
    optimiser : list of parameters -> torch optimiser
    start_bias : (last bias, generator), changes the output's first bias in place

    Returns
    -------
    layers, epochs trained, and the loss of the kept weights: on validation rows where there are
    some (``patience`` given and at least 20 rows), else on the training rows.
    """
    linear, relu = torch.nn.functional.linear, torch.relu
    generator = torch.Generator().manual_seed(seed)
    parameters: list[Any] = []
    # own generator throughout: torch's global random state is the caller's
    for fan_in, fan_out in pairwise([X.shape[1], *map(int, widths)]):
        bound = 1 / np.sqrt(fan_in)
        for shape in ((fan_out, fan_in), (fan_out,)):
            start = torch.empty(shape).uniform_(-bound, bound, generator=generator)
            parameters.append(start)
    if start_bias is not None:
        start_bias(parameters[-1], generator)
    parameters = [p.to(how.device).requires_grad_() for p in parameters]
    keep = 1.0 - how.dropout

    def output(x: Any, training: bool) -> Any:
        for i in range(0, len(parameters) - 2, 2):
            x = relu(linear(x, parameters[i], parameters[i + 1]))
            if training and keep < 1:
                x = x * (torch.rand(x.shape, generator=generator) < keep).to(x) / keep
        return linear(x, parameters[-2], parameters[-1])

    x_all = torch.as_tensor(X, dtype=torch.float32, device=how.device)
    y_all = torch.as_tensor(Y, dtype=torch.float32, device=how.device)
    best, epochs, best_loss = minimise(
        torch,
        parameters,
        lambda rows, training: loss(output(x_all[rows], training), y_all[rows]),
        len(X),
        optimiser(parameters),
        how,
        generator,
    )
    arrays = [p.cpu().numpy().astype(np.float64) for p in best]
    layers = [(arrays[i].T.copy(), arrays[i + 1]) for i in range(0, len(arrays), 2)]
    return layers, epochs, best_loss


def minimise(
    torch: Any,
    parameters: list[Any],
    loss: Callable[[Any, bool], Any],
    n: int,
    steps: Any,
    how: Training,
    generator: Any,
) -> tuple[list[Any], int, float]:
    """Minimise a mean loss over n rows in shuffled batches.

    Parameters
    ----------
    parameters : tensors that require gradients, changed in place
    loss : (row indices, whether for training) -> mean loss of these rows
    steps : torch optimiser of the parameters
    generator : torch generator of validation rows and batches

    Returns
    -------
    the kept parameters (detached), epochs trained, and their loss: on validation rows where there
    are some (``patience`` given and at least 20 rows), else on the training rows.
    """
    order = torch.randperm(n, generator=generator)
    held = 0
    if how.patience is not None and n >= _MIN_ROWS_TO_VALIDATE:
        held = max(1, round(how.validation_fraction * n))
    validation, train = order[:held].to(how.device), order[held:]
    epochs = int(how.max_epochs)
    # without validation the last weights are kept: a falling rate lets them settle
    schedule = None if held else torch.optim.lr_scheduler.CosineAnnealingLR(steps, epochs)
    best, best_loss, best_epoch, epoch = None, np.inf, 0, 0
    for epoch in range(1, epochs + 1):
        total = 0.0
        shuffled = train[torch.randperm(len(train), generator=generator)].to(how.device)
        for rows in torch.split(shuffled, int(how.batch_size)):
            steps.zero_grad(set_to_none=True)
            batch_loss = loss(rows, True)
            batch_loss.backward()
            torch.nn.utils.clip_grad_norm_(parameters, _GRADIENT_NORM)
            steps.step()
            total += float(batch_loss.detach()) * len(rows)
        if schedule is not None:
            schedule.step()
        current = total / len(train)
        if held:
            with torch.no_grad():
                current = float(loss(validation, False))
        if not np.isfinite(current):
            raise MethodError(
                f"training diverged: the loss is {current} in epoch {epoch}; try a learning_rate below "
                f"{how.learning_rate:g}"
            )
        if how.progress is not None:
            how.progress(epoch, epochs, current)
        if not held or current < best_loss:
            best = [p.detach().clone() for p in parameters] if held else None
            best_loss, best_epoch = current, epoch
        elif how.patience is not None and epoch - best_epoch >= how.patience:
            break
    return best or [p.detach() for p in parameters], epoch, float(best_loss)
