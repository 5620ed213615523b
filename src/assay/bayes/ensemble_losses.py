"""Losses of an ensemble's mean prediction: the values to average, and the loss of their mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.checks import FloatArray

#: probabilities below this are raised to it in the negative log-likelihood
CLIP = 1e-12


@dataclass(frozen=True)
class Loss:
    """What a member contributes, and what the mean over members costs.

    ``squared``: the values are errors and the loss is the squared norm of their mean, for which the
    forecast is exact.
    """

    name: str
    squared: bool

    def width(self, n_columns: int) -> int:
        """Values a row, of that many columns of a member."""
        return n_columns

    def values(self, block: FloatArray, truth: NDArray[Any]) -> FloatArray:
        """(r, q) values of (r, K) predictions; the array may be the input, changed."""
        raise NotImplementedError

    def of_mean(self, mean: FloatArray, truth: NDArray[Any]) -> FloatArray:
        """(r,) losses of mean values."""
        return np.asarray(np.einsum("ij,ij->i", mean, mean))


@dataclass(frozen=True)
class Brier(Loss):
    """Sum over the classes of (p_k - [k is true])^2; the values are the errors p - onehot."""

    name: str = "brier"
    squared: bool = True

    def values(self, block: FloatArray, truth: NDArray[Any]) -> FloatArray:
        block[np.arange(len(block)), truth] -= 1
        return block


@dataclass(frozen=True)
class TargetBrier(Loss):
    """(1 - p_y)^2 of the true class alone."""

    name: str = "brier_target"
    squared: bool = True

    def width(self, n_columns: int) -> int:
        return 1

    def values(self, block: FloatArray, truth: NDArray[Any]) -> FloatArray:
        return _true(block, truth) - 1


@dataclass(frozen=True)
class NegativeLogLikelihood(Loss):
    """-log p_y, natural; p_y below ``CLIP`` is raised to it."""

    name: str = "nll"
    squared: bool = False

    def width(self, n_columns: int) -> int:
        return 1

    def values(self, block: FloatArray, truth: NDArray[Any]) -> FloatArray:
        return _true(block, truth)

    def of_mean(self, mean: FloatArray, truth: NDArray[Any]) -> FloatArray:
        return np.asarray(-np.log(np.maximum(mean[:, 0], CLIP)))


@dataclass(frozen=True)
class ErrorRate(Loss):
    """1 where the most probable class (the first of several) is not the true one."""

    name: str = "error"
    squared: bool = False

    def values(self, block: FloatArray, truth: NDArray[Any]) -> FloatArray:
        return block

    def of_mean(self, mean: FloatArray, truth: NDArray[Any]) -> FloatArray:
        return np.asarray(mean.argmax(axis=1) != truth, dtype=np.float64)


@dataclass(frozen=True)
class SquaredError(Loss):
    """Squared error of a regression, summed over the outputs."""

    name: str = "squared"
    squared: bool = True

    def values(self, block: FloatArray, truth: NDArray[Any]) -> FloatArray:
        return np.asarray(block - truth)


LOSSES: dict[str, Loss] = {
    loss.name: loss for loss in (Brier(), TargetBrier(), NegativeLogLikelihood(), ErrorRate(), SquaredError())
}


def harden(block: FloatArray) -> FloatArray:
    """One-hot rows at the most probable class: predictions as if members had collapsed."""
    out = np.zeros_like(block)
    out[np.arange(len(block)), block.argmax(axis=1)] = 1
    return out


def _true(block: FloatArray, truth: NDArray[Any]) -> FloatArray:
    return np.asarray(block[np.arange(len(block)), truth][:, None])
