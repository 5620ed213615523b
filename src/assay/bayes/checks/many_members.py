"""Many small networks of one recipe, trained at once: each has its own start and its own batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from assay.core.checks import FloatArray
from assay.core.models import import_torch
from assay.core.seeds import derive_seed

#: Adam with the rate and the penalty of scikit-learn's MLPClassifier
_RATE, _PENALTY, _BATCH = 1e-3, 1e-4, 32


def member_probabilities(
    X: FloatArray,
    y: NDArray[np.intp],
    X_test: FloatArray,
    *,
    n_members: int,
    epochs: tuple[int, ...],
    hidden: int = 24,
    seed: int = 0,
) -> Mapping[int, FloatArray]:
    """(m, n_test, K) probabilities of networks of one hidden layer after each of some numbers of epochs.

    The rate is constant, so that a network after 40 epochs is one that was stopped there. A sum over
    members of losses has for each member the gradient of its own, and Adam works on each weight alone:
    training at once is training one by one.
    """
    torch = import_torch("training many members")
    n, k = len(X), int(y.max()) + 1
    with threadpool_limits(1):
        generator = torch.Generator().manual_seed(derive_seed("many members", seed))
        rows, labels = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)
        test = torch.as_tensor(X_test, dtype=torch.float32)

        def start(fan_in: int, fan_out: int) -> list[Any]:
            bound = (6 / (fan_in + fan_out)) ** 0.5
            weights = torch.rand((n_members, fan_in, fan_out), generator=generator) * 2 * bound - bound
            return [weights.requires_grad_(), torch.zeros((n_members, 1, fan_out), requires_grad=True)]

        parameters = start(X.shape[1], hidden) + start(hidden, k)

        def logits(x: Any) -> Any:
            w1, b1, w2, b2 = parameters
            return torch.baddbmm(b2, torch.relu(torch.baddbmm(b1, x, w1)), w2)

        steps = torch.optim.Adam(parameters, lr=_RATE, weight_decay=_PENALTY)
        found: dict[int, FloatArray] = {}
        for epoch in range(1, max(epochs) + 1):
            order = torch.rand((n_members, n), generator=generator).argsort(dim=1)
            for at in range(0, n, _BATCH):
                batch = order[:, at : at + _BATCH]
                outputs = logits(rows[batch])
                loss = torch.nn.functional.cross_entropy(
                    outputs.flatten(0, 1), labels[batch].flatten(), reduction="sum"
                )
                steps.zero_grad(set_to_none=True)
                (loss / batch.shape[1]).backward()
                steps.step()
            if epoch in epochs:
                with torch.no_grad():
                    outputs = logits(test.expand(n_members, *test.shape))
                    found[epoch] = torch.softmax(outputs.double(), dim=2).numpy()
    return found
