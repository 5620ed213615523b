"""Evidence for K levels or classes as a Dirichlet distribution: the head of a network, and its loss.

Evidence e_k >= 0 gives the concentrations alpha_k = e_k + 1 with sum S; the mean probability is alpha / S and
the vacuity K / S, which is 1 without any evidence.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.core.errors import DataError, MethodError


class EvidentialHead(nn.Module):
    """A linear layer whose softplus is evidence: (n, in_dim) features to (n, n_levels) concentrations.

    Softplus keeps evidence above 0; a rectifier would die and leave the vacuity at 1 for good.

    Vacuity after training is only weakly tied to how much data there was: it is no detector of inputs that
    are unlike the training rows.

    Parameters
    ----------
    in_dim : int
    n_levels : int, default 5
        Levels 1 .. n_levels of :meth:`expected_level`; labels of the loss are 0 .. n_levels - 1.
    """

    def __init__(self, in_dim: int, n_levels: int = 5) -> None:
        super().__init__()
        if in_dim < 1 or n_levels < 2:
            raise MethodError(
                f"in_dim must be at least 1 and n_levels at least 2, got {in_dim} and {n_levels}"
            )
        self.linear = nn.Linear(in_dim, n_levels)

    def evidence(self, features: Tensor) -> Tensor:
        """(n, K) evidence, at least 0."""
        return functional.softplus(self.linear(features))

    def alpha(self, features: Tensor) -> Tensor:
        """(n, K) concentrations, at least 1."""
        return self.evidence(features) + 1

    def forward(self, features: Tensor) -> Tensor:
        """The concentrations."""
        return self.alpha(features)

    def expected_level(self, features: Tensor) -> Tensor:
        """(n,) expected level, between 1 and K."""
        return expected_level(self.alpha(features))

    def vacuity(self, features: Tensor) -> Tensor:
        """(n,) vacuity, in (0, 1]."""
        return vacuity(self.alpha(features))


def expected_level(alpha: Tensor) -> Tensor:
    """(...,) expected level sum_k k alpha_k / S with levels 1 .. K, of (..., K) concentrations."""
    levels = torch.arange(1, alpha.shape[-1] + 1, dtype=alpha.dtype, device=alpha.device)
    return (alpha * levels).sum(-1) / alpha.sum(-1)


def vacuity(alpha: Tensor) -> Tensor:
    """(...,) vacuity K / S of (..., K) concentrations."""
    return alpha.shape[-1] / alpha.sum(-1)


def dirichlet_kl(alpha: Tensor) -> Tensor:
    """(...,) Kullback-Leibler divergence of Dirichlet(alpha) from the uniform Dirichlet(1, ..., 1)."""
    total = alpha.sum(-1, keepdim=True)
    count = torch.tensor(float(alpha.shape[-1]), dtype=alpha.dtype, device=alpha.device)
    logs = torch.lgamma(total).squeeze(-1) - torch.lgamma(alpha).sum(-1) - torch.lgamma(count)
    return logs + ((alpha - 1) * (torch.digamma(alpha) - torch.digamma(total))).sum(-1)


def kl_weight(epoch: float, n_epochs: int = 10) -> float:
    """Annealed weight of the divergence: min(1, epoch / n_epochs).

    10 epochs are those of the original loss; from the start in full it drives all evidence to 0.
    """
    return min(1.0, epoch / n_epochs)


def evidential_loss(
    alpha: Tensor, labels: Tensor, *, weight: float = 1.0, form: str = "cross_entropy"
) -> Tensor:
    """(n,) losses of (n, K) concentrations: expected loss under the Dirichlet plus a weighted divergence.

    The expected cross-entropy is psi(S) - psi(alpha_y); the expected squared error is
    sum_k (y_k - p_k)^2 + p_k (1 - p_k) / (S + 1). The divergence is that of the evidence for wrong classes,
    with alpha_y set to 1, from none.

    Parameters
    ----------
    alpha : (n, K) concentrations of at least 1
    labels : (n,) integers 0 .. K - 1
    weight : float, default 1
        Of the divergence; see :func:`kl_weight`.
    form : {"cross_entropy", "squared"}, default "cross_entropy"

    Raises
    ------
    DataError
        Labels that are not among the K, named with their row.
    MethodError
        An unknown form.
    """
    k = alpha.shape[-1]
    wrong = (labels < 0) | (labels >= k)
    if bool(wrong.any()):
        row = int(wrong.int().argmax())
        raise DataError(
            f"label {int(labels[row])} at row {row} is outside the {k} levels 0 .. {k - 1}; "
            f"{int(wrong.sum())} of {len(labels)} rows are"
        )
    hot = functional.one_hot(labels.long(), k).to(alpha.dtype)
    total = alpha.sum(-1, keepdim=True)
    if form == "cross_entropy":
        fit = (hot * (torch.digamma(total) - torch.digamma(alpha))).sum(-1)
    elif form == "squared":
        mean = alpha / total
        fit = ((hot - mean) ** 2 + mean * (1 - mean) / (total + 1)).sum(-1)
    else:
        raise MethodError(f"form must be 'cross_entropy' or 'squared', got {form!r}")
    if weight == 0:
        return fit
    return fit + weight * dirichlet_kl(hot + (1 - hot) * alpha)
