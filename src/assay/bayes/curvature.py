"""Generalised Gauss-Newton curvature of a trained module: its exact diagonal, and Kronecker factors."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

from assay.bayes.linear_layers import (
    is_layerwise,
    layerwise_squares,
    linear_layers,
    linear_pass,
    output_tensor,
)
from assay.core.errors import AssayWarning, DataError, MethodError
from assay.core.models import import_torch
from assay.networks.selection import Selection, selected_names

torch = import_torch("a weight posterior")

#: bound on the bytes of Jacobians held at once
MAX_MEMORY = 64 * 2**20
#: prior precisions that are looked at: 100 points of 1e-4 .. 1e4
PRECISIONS = np.logspace(-4, 4, 100)
_NO_ROWS = "there are no rows to take the curvature from"


@dataclass(frozen=True)
class DiagonalCurvature:
    """``diag(sum_n J' L J)`` by parameter name, float64; ``squared_norm`` is that of the same weights."""

    diagonal: dict[str, Any]
    squared_norm: float

    @property
    def n_weights(self) -> int:
        """Weights in all."""
        return sum(values.numel() for values in self.diagonal.values())

    def log_det(self, prior_precision: float) -> float:
        """log det of curvature plus prior precision."""
        return sum(float((values + prior_precision).log().sum()) for values in self.diagonal.values())


@dataclass(frozen=True)
class KroneckerFactor:
    """Curvature ``B (x) A`` of one parameter seen as a matrix (out, in): eigenvalues and eigenvectors.

    A ``vector`` (a bias) has B alone, and A is the number 1.
    """

    out_values: Any
    out_vectors: Any
    in_values: Any
    in_vectors: Any
    vector: bool = False

    def precision(self, prior_precision: float, damping: bool) -> Any:
        """(out, in) posterior precision in the eigenbasis: ``l_B l_A + t``, or the product form."""
        # one factor is no product to split the prior precision over
        if damping and not self.vector:
            root = float(np.sqrt(prior_precision))
            return torch.outer(self.out_values + root, self.in_values + root)
        return torch.outer(self.out_values, self.in_values) + prior_precision


@dataclass(frozen=True)
class KroneckerCurvature:
    """Kronecker factors by parameter name; a bias is a matrix of one column."""

    factors: dict[str, KroneckerFactor]
    squared_norm: float
    damping: bool = False

    @property
    def n_weights(self) -> int:
        """Weights in all."""
        return sum(f.out_values.numel() * f.in_values.numel() for f in self.factors.values())

    def log_det(self, prior_precision: float) -> float:
        """log det of curvature plus prior precision."""
        return sum(
            float(f.precision(prior_precision, self.damping).log().sum()) for f in self.factors.values()
        )


Curvature = DiagonalCurvature | KroneckerCurvature


def marginal_likelihood_precision(curvature: Curvature) -> float:
    """The prior precision t that maximises Laplace's evidence of the weights that are random.

    ``P/2 log t - t/2 |theta|^2 - 1/2 log det(H + t I)``, exact for the curvature as it is; the best of
    100 points in 1e-4 .. 1e4, refined between its neighbours.
    """

    def minus(log_t: float) -> float:
        t = float(np.exp(log_t))
        evidence = curvature.n_weights * log_t - t * curvature.squared_norm - curvature.log_det(t)
        return -0.5 * evidence

    grid = np.log(PRECISIONS)
    best = int(np.argmin([minus(point) for point in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)]
    found = minimize_scalar(minus, bounds=(low, high), method="bounded", options={"xatol": 1e-6})
    return float(np.exp(found.x))


def refuse_shared(module: Any, names: Iterable[str] | None = None) -> None:
    """Refuse parameters that two places share, and modules with parameters that stand in two places.

    Only sharing that touches ``names`` counts, if they are given: fixed weights may be tied.

    Raises
    ------
    MethodError
        Both places are named.
    """
    chosen = None if names is None else {id(module.get_parameter(name)) for name in names}
    first: dict[int, str] = {}
    modules: dict[int, str] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        own = [id(p) for p in part.parameters(recurse=False)]
        if own and (chosen is None or chosen.intersection(own)):
            if id(part) in modules:
                raise MethodError(
                    f"the module at {path!r} is that at {modules[id(part)]!r}, used twice; a posterior "
                    "needs a module of its own in each place: copy.deepcopy it, or leave its weights out"
                )
            modules[id(part)] = path
        for name, value in part.named_parameters(recurse=False):
            full = f"{path}.{name}" if path else name
            if (chosen is None or id(value) in chosen) and first.setdefault(id(value), full) != full:
                raise MethodError(
                    f"the parameter {full!r} is tied to {first[id(value)]!r}; a posterior needs weights "
                    f"of their own: torch.nn.Parameter({full}.detach().clone()), or leave it out"
                )


def working_copy(module: Any, stacklevel: int = 3) -> Any:
    """A copy in evaluation mode; the module stays as it is.

    It is in float32 where the weights are narrower, with a warning at ``stacklevel``.
    """
    if not isinstance(module, torch.nn.Module):
        raise MethodError(f"a torch.nn.Module is expected, got {type(module).__name__}")
    # what a backward pass left behind in attributes cannot be copied, nor does it belong to the network
    left = [value for part in module.modules() for value in _attributes(part) if not value.is_leaf]
    copied = copy.deepcopy(module, {id(value): value.detach() for value in left}).eval()
    for part in copied.modules():
        # hooks on gradients are the business of whoever set them (BackPACK leaves some), and stop torch.func
        part._backward_hooks.clear()
        part._backward_pre_hooks.clear()
    if any(p.is_floating_point() and p.element_size() < 4 for p in copied.parameters()):
        kinds = sorted({str(p.dtype).removeprefix("torch.") for p in copied.parameters()})
        warnings.warn(
            f"the module holds {', '.join(kinds)} weights; mean and variance are computed in float32",
            AssayWarning,
            stacklevel=stacklevel,
        )
        copied = copied.float()
    return copied


def plain_attention() -> Any:
    """A context in which attention is plain arithmetic, which ``torch.func`` can batch."""
    return torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)


def _attributes(part: Any) -> Iterator[Any]:
    """Tensors among a module's attributes, and in dicts, lists and tuples there."""
    for value in vars(part).values():
        inner = (
            value.values()
            if isinstance(value, dict)
            else value
            if isinstance(value, list | tuple)
            else [value]
        )
        yield from (item for item in inner if isinstance(item, torch.Tensor))


def inputs_of(module: Any, data: Any, like: Any) -> Iterator[Any]:
    """Batches of inputs of an array, a tensor, or batches ``x`` or ``(x, ...)`` such as a DataLoader's.

    Numbers take the dtype and device of the tensor ``like``; whole numbers stay where the module has an
    Embedding, whose tokens they may be.
    """
    tokens = any(isinstance(part, torch.nn.Embedding) for part in module.modules())
    batches: Iterable[Any] = [data] if hasattr(data, "shape") else data
    for batch in batches:
        x = batch[0] if isinstance(batch, tuple | list) else batch
        if isinstance(x, np.ndarray):
            # torch takes neither read-only arrays nor negative strides
            x = np.ascontiguousarray(x) if x.flags.writeable else x.copy()
        x = torch.as_tensor(x, device=like.device)
        yield x if tokens and not x.is_floating_point() else x.to(like.dtype)


def refuse_not_finite(values: Any, name: str) -> None:
    """Refuse rows (n, ...) with NaN or infinite values: their number, and the first."""
    bad = ~torch.isfinite(values).reshape(len(values), -1).all(1)
    if bad.any():
        raise DataError(
            f"{name} is NaN or infinite in {int(bad.sum())} of {len(bad)} rows, first at row "
            f"{int(bad.int().argmax())}; leave those rows out"
        )


def diag_ggn(
    module: Any,
    data: Any,
    likelihood: str = "classification",
    *,
    noise_std: float | None = None,
    params: Selection = "all",
    sketches: int | None = None,
    max_memory: int = MAX_MEMORY,
    random_state: int = 0,
) -> DiagonalCurvature:
    """Diagonal of ``H = sum_n J_n' L_n J_n`` over all rows (and places of a sequence).

    L is ``diag(p) - p p'`` for classes and ``I / noise_std^2`` for numbers. Exact by default: where all
    random weights are in Linear layers that are called once, from what goes into them and is pulled back to
    them (two rows are compared with the other way first), else with one Jacobian a row. ``sketches=S``
    replaces the sum over outputs by S random signs a row, unbiased, for networks with many outputs.

    Parameters
    ----------
    module : torch.nn.Module
        (n, ...) to (n, K) or (n, places, K), each row by itself.
    data : array, tensor, or batches of inputs (targets beside them are not looked at)
    likelihood : "classification" or "regression"
    noise_std : float
        sd of the noise, for regression.
    params : "all", "last_layer" or callable, default "all"
    sketches : int, optional
    max_memory : int, default 64 MiB
        Bound on the Jacobians held at once; it changes nothing but the last bits.
    random_state : int, default 0
        Of the sketches.

    Raises
    ------
    DataError
        Rows with NaN or infinite values.
    MethodError
        A likelihood without its noise, a module without weights to be random, or no rows.
    """
    net = working_copy(module)
    names = selected_names(net, params)
    refuse_shared(net, names)
    chosen, rest = split_weights(net, names)
    times_root = _output_root(likelihood, noise_std)
    total = {name: torch.zeros_like(chosen[name], dtype=torch.float64) for name in names}
    n_weights = sum(value.numel() for value in chosen.values())
    generator = torch.Generator(device=chosen[names[0]].device).manual_seed(random_state)

    def output(weights: Any, row: Any) -> Any:
        value = output_tensor(torch.func.functional_call(net, {**weights, **rest}, (row[None],)))
        return value.reshape(-1, value.shape[-1])

    def squares(weights: Any, row: Any, signs: Any) -> Any:
        f, pull = torch.func.vjp(lambda w: output(w, row), weights)
        # signs: (m, places, K), one pull-back each; exact: unit vectors of one place and class
        pulled = torch.func.vmap(lambda s: pull(times_root(f, s))[0])(signs)
        return {name: pulled[name].square().sum(0) for name in names}

    def row_by_row(x: Any) -> dict[str, Any]:
        with torch.no_grad():
            probe = output(chosen, x[0])
        places, k = probe.shape
        directions = places * k if sketches is None else int(sketches)
        chunk = max(1, int(max_memory // (8 * n_weights * directions)))
        found = {name: torch.zeros_like(chosen[name], dtype=torch.float64) for name in names}
        for start in range(0, len(x), chunk):
            rows = x[start : start + chunk]
            if sketches is None:
                signs = torch.eye(places * k, dtype=probe.dtype, device=probe.device)
                signs = signs.reshape(1, directions, places, k)
            else:
                shape = (len(rows), directions, places, k)
                signs = torch.randint(0, 2, shape, generator=generator, device=probe.device)
                signs = (2 * signs - 1).to(probe.dtype)
            pulled = torch.func.vmap(squares, in_dims=(None, 0, None if sketches is None else 0))
            with plain_attention():
                each = pulled(chosen, rows, signs[0] if sketches is None else signs)
            for name in names:
                found[name] += each[name].sum(0, dtype=torch.float64) / (
                    1 if sketches is None else directions
                )
        return found

    by_layer: bool | None = None if sketches is None else False  # unknown until there are rows
    seen = 0
    for x in inputs_of(net, data, chosen[names[0]]):
        if len(x) == 0:
            continue
        refuse_not_finite(x, "x")
        seen += len(x)
        if by_layer is None:
            by_layer = is_layerwise(net, names, x[:2], times_root, row_by_row)
        if by_layer:
            # a row takes no more than its values at all layers and their slopes
            found = layerwise_squares(net, names, x, times_root, max(1, int(max_memory // (8 * n_weights))))
        else:
            found = row_by_row(x)
        for name in names:
            total[name] += found[name]
    if seen == 0:
        raise MethodError(_NO_ROWS)
    return DiagonalCurvature(total, _squared_norm(chosen))


def kron_ggn(
    module: Any,
    data: Any,
    likelihood: str = "classification",
    *,
    noise_std: float | None = None,
    params: Selection = "all",
    damping: bool = False,
) -> KroneckerCurvature:
    """Kronecker factors of the Gauss-Newton matrix of each Linear layer (KFAC with exact output factors).

    ``A = mean a a'`` over rows and ``B = sum d d'`` over rows and the columns of the square root of L,
    with a the layer's input and d what is pulled back to its output; a bias has B alone.

    Parameters
    ----------
    As :func:`diag_ggn`; ``damping`` is the product form ``(l_B + sqrt t)(l_A + sqrt t)`` of the posterior.

    Raises
    ------
    MethodError
        A random parameter outside of Linear layers with (n, d) inputs (its path is named), or no rows.
    """
    net = working_copy(module)
    names = selected_names(net, params)
    refuse_shared(net, names)
    chosen, _ = split_weights(net, names)
    times_root = _output_root(likelihood, noise_std)
    layers = linear_layers(net, names)
    inner, outer = dict.fromkeys(layers, 0.0), dict.fromkeys(layers, 0.0)
    rows = 0
    for x in inputs_of(net, data, chosen[names[0]]):
        if len(x) == 0:
            continue
        refuse_not_finite(x, "x")
        rows += len(x)
        taken, pulled = linear_pass(net, layers, x, times_root)
        for columns in pulled:
            for path, d in columns.items():
                outer[path] = outer[path] + d.T @ d
        for path, a in taken.items():
            inner[path] = inner[path] + a.T @ a
    if rows == 0:
        raise MethodError(_NO_ROWS)
    factors: dict[str, KroneckerFactor] = {}
    for name in names:
        path, _, kind = name.rpartition(".")
        out_values, out_vectors = eigen(outer[path])
        if kind == "weight":
            factors[name] = KroneckerFactor(out_values, out_vectors, *eigen(inner[path] / rows))
        else:
            factors[name] = KroneckerFactor(out_values, out_vectors, *eigen(out_values.new_ones(1, 1)), True)
    return KroneckerCurvature(factors, _squared_norm(chosen), damping)


def eigen(matrix: Any) -> tuple[Any, Any]:
    """Eigenvalues (not below 0) and eigenvectors of a symmetric matrix."""
    values, vectors = torch.linalg.eigh((matrix + matrix.T) / 2)
    return values.clamp(min=0), vectors


def split_weights(net: Any, names: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(weights that are random, everything else), detached."""
    weights = {name: value.detach() for name, value in net.named_parameters()}
    chosen = {name: weights.pop(name) for name in names}
    return chosen, {**weights, **dict(net.named_buffers())}


def _squared_norm(chosen: dict[str, Any]) -> float:
    return sum(float(value.double().square().sum()) for value in chosen.values())


def _output_root(likelihood: str, noise_std: float | None) -> Callable[[Any, Any], Any]:
    """A function of outputs f (..., K) and s (..., K): R s, with R R' = L at f.

    R is never formed: with many classes it would be larger than all weights.
    """
    if likelihood == "classification":

        def times_root(f: Any, s: Any) -> Any:
            p = f.softmax(-1)
            r = p.sqrt()
            # (diag(r) - p r')(diag(r) - p r')' = diag(p) - p p', since r'r = 1
            return r * s - p * (r * s).sum(-1, keepdim=True)

        return times_root
    if likelihood != "regression":
        raise MethodError(f"likelihood must be 'classification' or 'regression', got {likelihood!r}")
    if noise_std is None or not noise_std > 0:
        raise MethodError(f"regression needs noise_std, the sd of the noise, above 0; got {noise_std!r}")
    return lambda f, s: s / noise_std
