"""A conditional normalising flow of affine couplings: trained with torch, used as plain arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.conformal.network_training import Layers
from assay.core.checks import FloatArray
from assay.networks.training import Training, minimise

#: largest |log scale| of one coupling
_LOG_SCALE = 3.0
_CHUNK_BYTES = 2**22
_WEIGHT_DECAY = 1e-4
_LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True)
class Coupling:
    """One coupling: outputs ``moved`` are shifted and scaled by a network of outputs ``kept`` and x.

    ``from_x`` (d, w) and ``layers``, whose first weight (k, w) takes the kept outputs, make up the
    network; its last layer gives the shifts and then the unbounded log scales of the moved outputs.
    """

    kept: NDArray[np.intp]
    moved: NDArray[np.intp]
    from_x: FloatArray
    layers: Layers

    def shift_and_log_scale(self, kept: FloatArray, context: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(n, m, moved) each, of kept outputs (n, m, k) and the rows' context (n, w).

        The network's outputs are rounded to float32: the last bits of a matrix product depend on the
        number of rows, and what follows must not.
        """
        n, m, k = kept.shape
        h = kept.reshape(n * m, k) @ self.layers[0][0] if k else np.zeros((n * m, context.shape[1]))
        h.reshape(n, m, -1)[:] += context[:, None, :]
        for weight, bias in self.layers[1:]:
            np.maximum(h, 0.0, out=h)
            h = h @ weight
            h += bias
        raw = h.astype(np.float32).astype(np.float64).reshape(n, m, 2, -1)
        return raw[:, :, 0], _LOG_SCALE * np.tanh(raw[:, :, 1] / _LOG_SCALE)


@dataclass(frozen=True)
class CouplingFlow:
    """Bijection between standardised outputs y and a standard normal z, given standardised features.

    ``inverse`` takes y to z by one coupling after the other, ``forward`` z to y by their inverses in
    the opposite order. Exact inverses of each other but for rounding.
    """

    couplings: tuple[Coupling, ...]
    n_outputs: int

    def inverse(self, Y: FloatArray, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """z (n, m, q) and log|det dz/dy| (n, m) of m values a row, Y (n, m, q), X (n, d)."""

        def step(block: FloatArray, logdet: FloatArray, coupling: Coupling, context: FloatArray) -> None:
            shift, log_scale = coupling.shift_and_log_scale(block[:, :, coupling.kept], context)
            block[:, :, coupling.moved] = (block[:, :, coupling.moved] - shift) * np.exp(-log_scale)
            logdet -= log_scale.sum(axis=2)

        return self._run(self.couplings, Y, X, step)

    def forward(self, Z: FloatArray, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """y (n, m, q) and log|det dy/dz| (n, m) of m latent values a row, Z (n, m, q), X (n, d)."""

        def step(block: FloatArray, logdet: FloatArray, coupling: Coupling, context: FloatArray) -> None:
            shift, log_scale = coupling.shift_and_log_scale(block[:, :, coupling.kept], context)
            block[:, :, coupling.moved] = block[:, :, coupling.moved] * np.exp(log_scale) + shift
            logdet += log_scale.sum(axis=2)

        return self._run(self.couplings[::-1], Z, X, step)

    def _run(
        self,
        couplings: Sequence[Coupling],
        values: FloatArray,
        X: FloatArray,
        step: Callable[[FloatArray, FloatArray, Coupling, FloatArray], None],
    ) -> tuple[FloatArray, FloatArray]:
        n, m, _ = values.shape
        out, logdet = values.copy(), np.zeros((n, m))
        width = max(layer[0].shape[1] for coupling in couplings for layer in coupling.layers)
        rows_at_once = max(1, _CHUNK_BYTES // (8 * 2 * width * max(m, 1)))
        for start in range(0, n, rows_at_once):
            rows = slice(start, start + rows_at_once)
            # far values have no float in between: inf and NaN, which the caller judges
            with np.errstate(over="ignore", invalid="ignore"):
                for coupling in couplings:
                    step(out[rows], logdet[rows], coupling, X[rows] @ coupling.from_x + coupling.layers[0][1])
        return out, logdet


def train_couplings(
    torch: Any,
    X: FloatArray,
    Y: FloatArray,
    steps_of_outputs: FloatArray,
    n_layers: int,
    hidden: Sequence[int],
    how: Training,
    seed: int,
) -> tuple[CouplingFlow, int, float]:
    """Train a flow by maximum likelihood on standardised arrays.

    Parameters
    ----------
    X, Y : (n, d) and (n, q) arrays
    steps_of_outputs : (q,) array
        Width of the uniform noise that is added to each output in training; 0 adds none.
    n_layers : couplings
    hidden : widths of each coupling's network
    how, seed : as in :func:`~assay.conformal.network_training.train_network`

    Returns
    -------
    flow, epochs trained, and mean negative log likelihood of the kept weights.
    """
    generator = torch.Generator().manual_seed(seed)
    (n, d), q = X.shape, Y.shape[1]
    masks = _masks(q, n_layers, np.random.default_rng(seed))
    parameters: list[list[Any]] = []
    for kept, moved in masks:
        own = []
        widths = [len(kept) + d, *map(int, hidden)]
        for fan_in, fan_out in pairwise(widths):
            bound = 1 / np.sqrt(fan_in)
            for shape in ((fan_in, fan_out), (fan_out,)):
                own.append(torch.empty(shape).uniform_(-bound, bound, generator=generator))
        # the identity to begin with
        own += [torch.zeros(widths[-1], 2 * len(moved)), torch.zeros(2 * len(moved))]
        parameters.append([p.to(how.device).requires_grad_() for p in own])
    flat = [p for own in parameters for p in own]
    indices = [
        tuple(torch.as_tensor(i, device=how.device) for i in (kept, moved, np.argsort(np.r_[kept, moved])))
        for kept, moved in masks
    ]
    x_all = torch.as_tensor(X, dtype=torch.float32, device=how.device)
    y_all = torch.as_tensor(Y, dtype=torch.float32, device=how.device)
    width = torch.as_tensor(steps_of_outputs, dtype=torch.float32, device=how.device)
    noisy = bool((steps_of_outputs > 0).any())

    def noise(count: int) -> Any:
        return width * (torch.rand((count, q), generator=generator).to(how.device) - 0.5)

    y_validated = y_all + noise(n) if noisy else y_all

    def loss(rows: Any, training: bool) -> Any:
        x = x_all[rows]
        y = y_all[rows] + noise(len(rows)) if noisy and training else y_validated[rows]
        total = 0.5 * q * _LOG_2PI
        for (kept, moved, back), own in zip(indices, parameters, strict=True):
            still = y[:, kept]
            h = torch.addmm(own[1], torch.cat([still, x], dim=1), own[0])
            for i in range(2, len(own), 2):
                h = torch.addmm(own[i + 1], torch.relu(h), own[i])
            shift, raw = h.chunk(2, dim=1)
            log_scale = _LOG_SCALE * torch.tanh(raw / _LOG_SCALE)
            y = torch.cat([still, (y[:, moved] - shift) * torch.exp(-log_scale)], dim=1)[:, back]
            total = total + log_scale.sum(dim=1).mean()
        return total + 0.5 * (y**2).sum(dim=1).mean()

    optimiser = torch.optim.AdamW(flat, lr=how.learning_rate, weight_decay=_WEIGHT_DECAY)
    best, epochs, best_loss = minimise(torch, flat, loss, n, optimiser, how, generator)
    arrays = iter([p.cpu().numpy().astype(np.float64) for p in best])
    couplings = []
    for (kept, moved), own in zip(masks, parameters, strict=True):
        layers = [(next(arrays), next(arrays)) for _ in range(len(own) // 2)]
        first, bias = layers[0]
        layers[0] = (first[: len(kept)].copy(), bias)
        couplings.append(Coupling(kept, moved, first[len(kept) :].copy(), layers))
    return CouplingFlow(tuple(couplings), q), epochs, best_loss


def _masks(
    q: int, n_layers: int, rng: np.random.Generator
) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """(kept, moved) outputs of each coupling: the halves of a random order in turn, a new order each pair.

    One output has no halves: nothing is kept, and the couplings are affine in it given x.
    """
    if q == 1:
        return [(np.arange(0), np.arange(1))] * n_layers
    masks: list[tuple[NDArray[np.intp], NDArray[np.intp]]] = []
    while len(masks) < n_layers:
        order = rng.permutation(q) if q > 2 else np.arange(2)
        halves = np.sort(order[: q // 2]), np.sort(order[q // 2 :])
        masks += [halves, halves[::-1]]
    return masks[:n_layers]
