"""Gaussian weight posteriors: diagonal variances by parameter name, or Kronecker factors."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from assay.bayes.curvature import (
    Curvature,
    DiagonalCurvature,
    KroneckerFactor,
    diag_ggn,
    eigen,
    kron_ggn,
    marginal_likelihood_precision,
)
from assay.core.errors import AssayWarning, MethodError
from assay.core.models import import_torch
from assay.networks.selection import Selection, selected_names

torch = import_torch("a weight posterior")


@dataclass(frozen=True)
class KroneckerBlock:
    """Covariance of one parameter as a matrix W (out, in): ``Q_out W' Q_in`` has independent entries.

    ``variance`` (out, in) are their variances; where it is an outer product b a', the covariance of vec W
    is the Kronecker product of ``Q_out diag(b) Q_out'`` and ``Q_in diag(a) Q_in'``.
    """

    out_vectors: Any
    in_vectors: Any
    variance: Any

    @classmethod
    def from_factors(cls, B: Any, A: Any) -> Self:
        """Covariance ``B (x) A`` with B (out, out) and A (in, in), both symmetric and not negative."""
        out_values, out_vectors = eigen(torch.as_tensor(B))
        in_values, in_vectors = eigen(torch.as_tensor(A))
        return cls(out_vectors, in_vectors, torch.outer(out_values, in_values))

    def diagonal(self) -> Any:
        """(out, in) variances of the entries of W."""
        return self.out_vectors.square() @ self.variance @ self.in_vectors.square().T

    def to(self, like: Any) -> Self:
        """The same in the dtype and on the device of a tensor."""
        parts = (self.out_vectors, self.in_vectors, self.variance)
        return type(self)(*(part.to(like) for part in parts))


class GaussianPosterior:
    """Gaussian around the weights of a trained module; parameters that it does not name are fixed.

    Parameters
    ----------
    variances : mapping
        Variances by parameter name, each of the parameter's shape. Negative ones become 0, with a
        warning that counts them.
    blocks : mapping, optional
        :class:`KroneckerBlock` by parameter name, in place of variances.
    curvature : optional
        What the posterior was made of; :meth:`with_prior_precision` needs it.
    prior_precision : float, optional

    Raises
    ------
    MethodError
        NaN or infinite variances, by name; a parameter named twice; no parameter.
    """

    def __init__(
        self,
        variances: Mapping[str, Any],
        blocks: Mapping[str, KroneckerBlock] | None = None,
        *,
        curvature: Curvature | None = None,
        prior_precision: float | None = None,
    ) -> None:
        self.blocks = dict(blocks or {})
        self.variances: dict[str, Any] = {}
        self.curvature = curvature
        self.prior_precision = prior_precision
        negative, total, first = 0, 0, ""
        for name, given in variances.items():
            values = torch.as_tensor(given).detach()
            if not torch.isfinite(values).all():
                bad = int((~torch.isfinite(values)).sum())
                raise MethodError(f"{bad} of {values.numel()} variances of {name!r} are NaN or infinite")
            below = int((values < 0).sum())
            first = first or (name if below else "")
            negative, total = negative + below, total + values.numel()
            self.variances[name] = values.clamp(min=0) if below else values
        if negative:
            warnings.warn(
                f"{negative} of {total} posterior variances are negative (first in {first!r}); they are "
                "taken as 0, as if those weights were known",
                AssayWarning,
                stacklevel=2,
            )
        if twice := sorted(set(self.blocks) & set(self.variances)):
            raise MethodError(f"{twice[0]!r} has both variances and a Kronecker block")
        if not self.names:
            raise MethodError("a posterior needs the variances of at least one parameter")

    @property
    def names(self) -> list[str]:
        """Parameters that are random."""
        return [*self.variances, *self.blocks]

    @property
    def structure(self) -> str:
        """ "kron" where there are Kronecker blocks, else "diag"."""
        return "kron" if self.blocks else "diag"

    def variance(self, name: str) -> Any:
        """Variances of a parameter's entries: (out, in) of a block, else of the parameter's shape."""
        return self.variances[name] if name in self.variances else self.blocks[name].diagonal()

    def check(self, module: Any) -> None:
        """Refuse a module of another architecture, naming the first parameter that differs."""
        own = {name: tuple(value.shape) for name, value in module.named_parameters()}
        for name in self.names:
            shape = tuple(self.variance(name).shape)
            if name not in own:
                raise MethodError(
                    f"the posterior is of another architecture: it has {name!r} {shape}, the module has no "
                    f"such parameter; its own are {', '.join(list(own)[:4])}, ..."
                )
            if own[name] != shape and (name in self.variances or int(np.prod(own[name])) != np.prod(shape)):
                raise MethodError(
                    f"the posterior is of another architecture: {name!r} is {shape} in the posterior and "
                    f"{own[name]} in the module"
                )

    def sample(self, module: Any, generator: Any) -> dict[str, Any]:
        """One draw of the random parameters by name, around the module's weights, in their dtype."""
        drawn = {}
        for name in self.names:
            mean = module.get_parameter(name).detach()
            noise = torch.randn(self.variance_shape(name), generator=generator, dtype=torch.float64)
            if name in self.variances:
                shift = self.variances[name].cpu().double().sqrt() * noise
            else:
                block = self.blocks[name].to(noise)
                shift = block.out_vectors @ (block.variance.sqrt() * noise) @ block.in_vectors.T
            drawn[name] = mean + shift.reshape(mean.shape).to(mean)
        return drawn

    def variance_shape(self, name: str) -> tuple[int, ...]:
        """Shape of the independent variances of a parameter."""
        held = self.variances[name] if name in self.variances else self.blocks[name].variance
        return tuple(held.shape)

    def with_prior_precision(self, prior_precision: float) -> GaussianPosterior:
        """The same curvature with another prior precision.

        Raises
        ------
        MethodError
            The posterior was not made of a curvature, or the precision is not above 0.
        """
        if self.curvature is None:
            raise MethodError(
                "the prior precision of a posterior given by its variances cannot be changed; make it "
                "with from_diag_ggn or from_kron_ggn"
            )
        return posterior_of(self.curvature, prior_precision)

    @classmethod
    def from_diag_ggn(
        cls,
        model: Any,
        data: Any,
        prior_precision: float | str = "marglik",
        likelihood: str = "classification",
        *,
        noise_std: float | None = None,
        params: Selection = "all",
        sketches: int | None = None,
    ) -> GaussianPosterior:
        """Laplace approximation with the exact Gauss-Newton diagonal: variances ``1 / (h + t)``.

        Parameters
        ----------
        model, data, likelihood, noise_std, params, sketches
            See :func:`~assay.bayes.curvature.diag_ggn`.
        prior_precision : float or "marglik", default "marglik"
            t; "marglik" maximises the evidence, which is closed for a diagonal.
        """
        curvature = diag_ggn(model, data, likelihood, noise_std=noise_std, params=params, sketches=sketches)
        return posterior_of(curvature, prior_precision)

    @classmethod
    def from_kron_ggn(
        cls,
        model: Any,
        data: Any,
        prior_precision: float | str = "marglik",
        likelihood: str = "classification",
        *,
        noise_std: float | None = None,
        params: Selection = "all",
        damping: bool = False,
    ) -> GaussianPosterior:
        """Laplace approximation with Kronecker factors, see :func:`~assay.bayes.curvature.kron_ggn`.

        The prior precision t is added exactly in the product eigenbasis; ``damping=True`` takes
        ``(l_B + sqrt t)(l_A + sqrt t)``, a Kronecker product and an approximation, as in Li et al. (2025).
        """
        curvature = kron_ggn(model, data, likelihood, noise_std=noise_std, params=params, damping=damping)
        return posterior_of(curvature, prior_precision)

    @classmethod
    def from_laplace(cls, la: Any) -> GaussianPosterior:
        """The posterior of a fitted laplace-torch object: all weights or the last layer, diag or kron.

        Raises
        ------
        MethodError
            It is not fitted, or of another structure (its class is named).
        """
        kind = type(la).__name__
        if getattr(la, "H", None) is None:
            raise MethodError(f"{kind} is not fitted: call la.fit(loader) first")
        names, shapes = _laplace_parameters(la)
        prior = float(la.prior_precision.detach().reshape(-1)[0]) if la.prior_precision.numel() == 1 else None
        if "Diag" in kind:
            flat = la.posterior_variance.detach()
            sizes = [int(np.prod(shape)) for shape in shapes]
            if sum(sizes) != flat.numel():
                raise MethodError(f"{kind} has {flat.numel()} variances for {sum(sizes)} weights")
            parts = torch.split(flat, sizes)
            return cls(
                {n: part.reshape(shape) for n, part, shape in zip(names, parts, shapes, strict=True)},
                prior_precision=prior,
            )
        if "Kron" not in kind:
            raise MethodError(f"{kind}: diagonal and Kronecker posteriors can be taken over")
        decomposed = la.posterior_precision
        blocks = {}
        parts = (decomposed.eigenvalues, decomposed.eigenvectors, decomposed.deltas)
        for name, values, vectors, delta in zip(names, *parts, strict=True):
            one = values[0].new_ones(1)
            in_values, in_vectors = (values[1], vectors[1]) if len(values) > 1 else (one, one[:, None])
            held = (values[0], vectors[0], in_values, in_vectors)
            out_values, out_vectors, *inside = (part.detach() for part in held)
            factor = KroneckerFactor(out_values, out_vectors, inside[0], inside[1], len(values) == 1)
            blocks[name] = _block(factor, float(delta), bool(decomposed.damping))
        return cls({}, blocks, prior_precision=prior)

    @classmethod
    def from_ivon(cls, opt: Any, model: Any) -> GaussianPosterior:
        """Mean-field posterior of the IVON optimiser: variances ``1 / (ess (hess + weight_decay))``.

        The model's weights are the optimiser's means as long as it is not inside ``sampled_params``.

        Raises
        ------
        MethodError
            A parameter of the optimiser that the model does not have.
        """
        names = {id(value): name for name, value in model.named_parameters()}
        variances = {}
        for group in opt.param_groups:
            at, flat = 0, 1 / (group["ess"] * (group["hess"] + group["weight_decay"]))
            for value in group["params"]:
                if id(value) not in names:
                    raise MethodError(
                        f"the optimiser holds a parameter of shape {tuple(value.shape)} that the model "
                        "does not have; give the model that it trained"
                    )
                variances[names[id(value)]] = flat[at : at + value.numel()].reshape(value.shape)
                at += value.numel()
        return cls(variances)


def posterior_of(curvature: Curvature, prior_precision: float | str = "marglik") -> GaussianPosterior:
    """The Laplace posterior of a curvature with a prior precision, or "marglik"."""
    if prior_precision == "marglik":
        prior_precision = marginal_likelihood_precision(curvature)
    if isinstance(prior_precision, str) or not 0 < prior_precision < np.inf:
        raise MethodError(f"prior_precision must be above 0 or 'marglik', got {prior_precision!r}")
    t = float(prior_precision)
    if isinstance(curvature, DiagonalCurvature):
        variances = {name: 1 / (values + t) for name, values in curvature.diagonal.items()}
        return GaussianPosterior(variances, curvature=curvature, prior_precision=t)
    blocks = {name: _block(factor, t, curvature.damping) for name, factor in curvature.factors.items()}
    return GaussianPosterior({}, blocks, curvature=curvature, prior_precision=t)


def _block(factor: KroneckerFactor, prior_precision: float, damping: bool) -> KroneckerBlock:
    variance = 1 / factor.precision(prior_precision, damping)
    return KroneckerBlock(factor.out_vectors, factor.in_vectors, variance)


def _laplace_parameters(la: Any) -> tuple[list[str], list[tuple[int, ...]]]:
    model = la.model
    layer = getattr(model, "last_layer", None)
    if layer is None:
        module, prefix = model, ""
    else:
        module, prefix = layer, f"{model._last_layer_name}."
    names = selected_names(module, "all")
    return [prefix + name for name in names], [tuple(module.get_parameter(n).shape) for n in names]
