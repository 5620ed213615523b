"""Latent Gaussians of a network's outputs: by its Jacobian, by sampling, and what they say of a target."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import log_softmax, softmax

from assay.bayes.curvature import MAX_MEMORY, plain_attention, split_weights
from assay.bayes.linear_layers import output_tensor
from assay.bayes.posterior import GaussianPosterior
from assay.core.checks import FloatArray, to_numpy
from assay.core.models import import_torch

torch = import_torch("a weight posterior")


def probit(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """``softmax(m / sqrt(1 + pi/8 v))`` over the last axis."""
    return np.asarray(softmax(mean / np.sqrt(1 + np.pi / 8 * variance), axis=-1))


def latent_nlpd(
    mean: FloatArray, variance: FloatArray, target: Any, likelihood: str, noise_std: float | None = None
) -> float:
    """Mean negative log probability of class numbers (n,), or density of numbers (n, q), in nats.

    Parameters
    ----------
    mean, variance : (n, K) of the outputs
    noise_std : float
        sd of the noise, for regression.
    """
    if likelihood == "classification":
        codes = np.asarray(target).reshape(-1).astype(np.intp)
        logs = log_softmax(mean / np.sqrt(1 + np.pi / 8 * variance), axis=-1)
        return float(-logs[np.arange(len(codes)), codes].mean())
    total = variance + float(noise_std or 0.0) ** 2
    density = np.log(2 * np.pi * total) + (np.asarray(target).reshape(mean.shape) - mean) ** 2 / total
    return float(0.5 * density.sum(-1).mean())


def sampled_outputs(
    module: Any, posterior: GaussianPosterior, x: Any, n_samples: int, seed: int
) -> Iterator[FloatArray]:
    """Outputs of ``n_samples`` networks drawn from the posterior, one after the other: float64 arrays.

    The same seed draws the same networks, whatever the rows.
    """
    generator = torch.Generator().manual_seed(seed)
    chosen, rest = split_weights(module, posterior.names)
    x = x.to(next(iter(chosen.values())).device)
    with torch.no_grad():
        for _ in range(n_samples):
            weights = {**rest, **posterior.sample(module, generator)}
            out = output_tensor(torch.func.functional_call(module, weights, (x,)))
            yield to_numpy(out).astype(np.float64)


def glm_variance(
    module: Any, posterior: GaussianPosterior, x: Any, *, max_memory: int = MAX_MEMORY
) -> FloatArray:
    """Diagonal of ``J S J'`` of each row: variances of the outputs, float64, in the shape of the output.

    Parameters
    ----------
    module : torch.nn.Module in evaluation mode
    x : (n, ...) tensor
    max_memory : int, default 64 MiB
        Bound on the Jacobians held at once.
    """
    chosen, rest = split_weights(module, posterior.names)
    like = next(iter(chosen.values()))
    x = x.to(like.device)
    blocks = {name: block.to(like) for name, block in posterior.blocks.items()}
    variances = {name: values.to(like) for name, values in posterior.variances.items()}

    def of_row(row: Any, units: Any) -> Any:
        def output(weights: Any) -> Any:
            return output_tensor(torch.func.functional_call(module, {**weights, **rest}, (row[None],)))[0]

        _, pull = torch.func.vjp(output, chosen)
        pulled = torch.func.vmap(lambda unit: pull(unit)[0])(units)
        total = 0.0
        for name, g in pulled.items():
            if name in variances:
                total = total + (g.square() * variances[name]).flatten(1).sum(1)
                continue
            block = blocks[name]
            matrix = g.reshape(len(g), *block.variance.shape)
            turned = block.out_vectors.T @ matrix @ block.in_vectors
            total = total + (turned.square() * block.variance).flatten(1).sum(1)
        return total

    with torch.no_grad():
        shape = output_tensor(module(x[:1])).shape[1:]
    outputs = int(np.prod(shape))
    n_weights = sum(value.numel() for value in chosen.values())
    at_once = max(1, int(max_memory // (8 * n_weights)))
    units = torch.eye(outputs, dtype=like.dtype, device=like.device).reshape(outputs, *shape)
    parts = []
    with plain_attention():
        if at_once >= outputs:
            rows = torch.func.vmap(of_row, in_dims=(0, None))
            parts = [rows(part, units) for part in torch.split(x, at_once // outputs)]
        else:
            for row in x:
                parts.append(torch.cat([of_row(row, some) for some in torch.split(units, at_once)])[None])
    return to_numpy(torch.cat(parts)).astype(np.float64).reshape(len(x), *shape)
