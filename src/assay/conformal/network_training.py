"""Training of small ReLU networks with torch into plain float64 arrays, which predict without it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from assay.core.checks import FloatArray
from assay.networks.training import Training, minimise

#: (weight (in, out), bias (out,)) of each layer, ReLU between them
Layers = list[tuple[FloatArray, FloatArray]]


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
