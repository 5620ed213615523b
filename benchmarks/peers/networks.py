"""Laplace posteriors beside laplace-torch, one streamlined pass beside suq."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import streamline
from runner import Case

BATCH = 500
STRUCTURES = {
    "diagonal, all weights": ("all", "diag"),
    "Kronecker factors, all weights": ("all", "kron"),
    "Kronecker factors, last layer": ("last_layer", "kron"),
}


def inputs(n: int = 2000) -> Any:
    """(network 20-64-64-5 in float64, n training rows, their classes, n / 2 test rows)."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(20, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5)).double()
    X, test = torch.randn(n, 20).double(), torch.randn(n // 2, 20).double()
    return net.eval(), X, torch.randint(0, 5, (n,)), test


def assay_glm(data: Any, subset: str, structure: str) -> Any:
    """This package: posterior, variances of the outputs, probabilities."""
    import torch

    from assay.bayes.latent import glm_variance, probit
    from assay.bayes.posterior import GaussianPosterior

    net, X, _, test = data
    make = {"diag": GaussianPosterior.from_diag_ggn, "kron": GaussianPosterior.from_kron_ggn}[structure]
    posterior = make(net, X, 1.0, "classification", params=subset)
    with torch.no_grad():
        mean = net(test).numpy()
    return probit(mean, glm_variance(net, posterior, test))


def laplace_fitted(data: Any, subset: str, structure: str) -> Any:
    """laplace-torch, fitted on the training rows in batches."""
    import torch
    from laplace import Laplace
    from laplace.curvature import BackPackGGN

    net, X, y, _ = data
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), batch_size=BATCH)
    # it leaves hooks on the module
    la = Laplace(copy.deepcopy(net), "classification", subset, structure, backend=BackPackGGN)
    la.fit(loader)
    return la


def laplace_glm(data: Any, subset: str, structure: str) -> Any:
    """laplace-torch: the same by batches of test rows."""
    import torch

    la = laplace_fitted(data, subset, structure)
    parts = [la(rows, pred_type="glm", link_approx="probit") for rows in torch.split(data[3], BATCH)]
    return torch.cat(parts).detach().numpy()


def assay_evidence(data: Any) -> float:
    """The prior precision of largest evidence of the diagonal, by this package."""
    from assay.bayes.posterior import GaussianPosterior

    return float(GaussianPosterior.from_diag_ggn(data[0], data[1], "marglik").prior_precision or np.nan)


def laplace_evidence(data: Any) -> float:
    """The same by laplace-torch: 100 steps of its optimiser, its default."""
    la = laplace_fitted(data, "all", "diag")
    la.optimize_prior_precision(method="marglik")
    return float(la.prior_precision)


def same_probabilities(ours: Any, theirs: Any) -> str:
    """How far another library's probabilities are from ours."""
    gap = float(np.abs(ours - theirs).max())
    return "equal" if gap < 1e-9 else f"probabilities differ by up to {gap:.1g}"


def same_precision(ours: float, theirs: float) -> str:
    """The two precisions, where they differ."""
    return "equal" if abs(ours - theirs) < 1e-3 * ours else f"{theirs:.4g}, ours {ours:.4g}"


def same_moments(ours: Any, theirs: Any) -> str:
    """How far means and variances are from ours, in parts of the largest."""
    pairs = zip(ours, theirs, strict=True)
    gaps = [float(np.abs(own - other).max() / np.abs(own).max()) for own, other in pairs]
    if max(gaps) < 1e-5:
        return "equal"
    return f"means differ by up to {gaps[0]:.1g}, variances by {gaps[1]:.1g} of the largest"


def _glm(subset: str, structure: str) -> dict[str, Any]:
    return {
        "assay": lambda data: assay_glm(data, subset, structure),
        "laplace-torch": lambda data: laplace_glm(data, subset, structure),
    }


CASES = [
    *(
        Case(f"Laplace, {name}", inputs, _glm(*kind), 5, same_probabilities, tiny=lambda: inputs(20))
        for name, kind in STRUCTURES.items()
    ),
    Case(
        "Laplace, diagonal, prior precision by evidence",
        inputs,
        {"assay": assay_evidence, "laplace-torch": laplace_evidence},
        5,
        same_precision,
        tiny=lambda: inputs(20),
        notes={"laplace-torch": "stops after 100 steps of Adam, its default; ours is the maximum"},
    ),
    Case(
        "SUQ, MLP 784-128-64-10, 256 rows",
        streamline.mlp,
        {"assay": streamline.suq, "suq": streamline.published},
        15,
        same_moments,
        tiny=lambda: streamline.mlp(2),
    ),
]
