"""Rules that carry mean and variance through a module, by its type; users register their own types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay.bayes.moment_activations import ACTIVATIONS, slope
from assay.bayes.posterior import GaussianPosterior
from assay.core.errors import MethodError
from assay.core.models import import_torch

torch = import_torch("propagation of variances")
nn, functional = torch.nn, torch.nn.functional

#: mean and variance of a layer's output; variance None is certainty
Moments = tuple[Any, Any]
#: (mean, variance or None, module, scope) -> moments of the module's output
Rule = Callable[..., Moments]

_RULES: dict[str, dict[Any, Rule]] = {"diag": {}, "kron": {}}
#: types that cannot be called with their input alone
_DEPENDENT: set[Any] = set()


class Scope:
    """A module's place in the network: what its rule may ask of the posterior, and its children.

    A rule asks for the moments of its parameters, and runs its children with
    ``scope.run("name", mean, variance)``. What is derived from weights is kept from call to call.
    """

    def __init__(
        self,
        module: Any,
        posterior: GaussianPosterior,
        structure: str,
        path: str = "",
        footprint: dict[str, float] | None = None,
    ) -> None:
        self.module = module
        #: the largest bytes of one row's variances seen at any place of the network
        self.footprint = {"row": 0.0} if footprint is None else footprint
        self.path = path
        self.structure = structure
        self._posterior = posterior
        self._children: dict[str, Scope] = {}
        self._kept: dict[str, Any] = {}
        prefix, named = f"{path}." if path else "", set(posterior.names)
        self._own = {
            name: prefix + name
            for name, _ in module.named_parameters(recurse=False)
            if prefix + name in named
        }
        #: whether a parameter at or below this place is random
        self.random = any(prefix + name in named for name, _ in module.named_parameters())

    def keep(self, key: str, make: Callable[[], Any]) -> Any:
        """What ``make`` gives, made once."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def variance(self, name: str) -> Any:
        """Variances of a parameter of this module, in its shape; None where it is fixed."""
        if name not in self._own:
            return None
        return self.keep(f"variance {name}", lambda: self._variance(name))

    def _variance(self, name: str) -> Any:
        weights = self.module.get_parameter(name)
        return self._posterior.variance(self._own[name]).to(weights).reshape(weights.shape)

    def second(self, name: str) -> Any:
        """Second moment of a parameter: its square plus its variance."""
        return self.keep(f"second {name}", lambda: self._second(name))

    def _second(self, name: str) -> Any:
        square = self.module.get_parameter(name).detach().square()
        variance = self.variance(name)
        return square if variance is None else square + variance

    def block(self, name: str) -> Any:
        """The Kronecker block of a parameter in the dtype of its weights; None where it has none."""
        if name not in self._own or self._own[name] not in self._posterior.blocks:
            return None
        weights = self.module.get_parameter(name)
        return self.keep(f"block {name}", lambda: self._posterior.blocks[self._own[name]].to(weights))

    def child(self, name: str) -> Scope:
        """The place of a submodule, by its dotted name."""
        if name not in self._children:
            path = f"{self.path}.{name}" if self.path else name
            module = self.module.get_submodule(name)
            self._children[name] = Scope(module, self._posterior, self.structure, path, self.footprint)
        return self._children[name]

    def run(self, name: str, mean: Any, variance: Any, **context: Any) -> Moments:
        """Moments after a submodule; ``context`` goes to its rule."""
        return propagate(self.child(name), mean, variance, **context)

    def free(self, module: Any) -> Scope:
        """The place of a module without weights that is no child here."""
        path = f"{self.path}.<{type(module).__name__}>"
        return Scope(module, self._posterior, self.structure, path, self.footprint)

    def rule(self) -> Rule | None:
        """The rule of this module's type, or of the nearest type whose ``forward`` it has inherited."""
        kind, rule = self.nearest()
        return rule if kind is not None and kind.forward is type(self.module).forward else None

    def nearest(self) -> tuple[Any, Rule | None]:
        """The nearest type among this module's own and those that it is derived from with a rule."""
        table = _RULES[self.structure]
        for kind in type(self.module).__mro__:
            for key in _keys(kind):
                if key in table:
                    return kind, table[key]
        return None, None

    @property
    def standalone(self) -> bool:
        """Whether the module can be called with its input alone."""
        return not any(key in _DEPENDENT for kind in type(self.module).__mro__ for key in _keys(kind))

    def refuse(self, why: str) -> MethodError:
        """An error that names this place."""
        return MethodError(f"{self.where}: {why}")

    @property
    def where(self) -> str:
        """Path and type of the module, for messages."""
        return f"{type(self.module).__name__} at {self.path!r}" if self.path else type(self.module).__name__


def _keys(kind: type) -> tuple[type, str]:
    """What a type may be registered as."""
    return kind, f"{kind.__module__}:{kind.__qualname__}"


def register_rule(
    module_type: type | str, fn: Rule, *, structure: str = "diag", standalone: bool = True
) -> None:
    """Say how mean and variance go through a type of module.

    What is derived from it without a ``forward`` of its own has the same rule.

    ``fn(mean, variance, module, scope) -> (mean, variance)``. ``variance`` is None where the input is
    certain, and may be None in the answer. Modules of modules run their children with
    ``scope.run("child", mean, variance)``; parameters are asked for with ``scope.variance("weight")``
    (None where fixed) and ``scope.second("weight")``. A later rule replaces an earlier one.

    Parameters
    ----------
    module_type : type, or "package.module:Class" of one that is not to be imported
    fn : callable
    structure : "diag" or "kron", default "diag"
        Whether ``variance`` has the shape of the mean, or is a covariance (n, d, d).
    standalone : bool, default True
        Whether ``module(mean)`` is its output, so that it is simply called where nothing is random yet. False
        for modules that take more than one input or answer with an object: their rule always runs.
    """
    if structure not in _RULES:
        raise MethodError(f"structure must be 'diag' or 'kron', got {structure!r}")
    _RULES[structure][module_type] = fn
    (_DEPENDENT.discard if standalone else _DEPENDENT.add)(module_type)


def propagate(scope: Scope, mean: Any, variance: Any, **context: Any) -> Moments:
    """Moments after a module; where nothing is random the module itself is called.

    Raises
    ------
    MethodError
        No rule for the module's type: its path is named, and how to register one.
    """
    if variance is None and not scope.random and scope.standalone:
        return scope.module(mean), None
    rule = scope.rule()
    if rule is None:
        raise unknown(scope)
    out, spread = rule(mean, variance, scope.module, scope, **context)
    if spread is not None and len(spread):
        scope.footprint["row"] = max(scope.footprint["row"], spread.nbytes / len(spread))
    return out, spread


def unknown(scope: Scope) -> MethodError:
    """The error for a type without a rule."""
    kind = type(scope.module).__name__
    inside = ", ".join(dict(scope.module.named_children())) or "none"
    kron = scope.structure == "kron"
    base, _ = scope.nearest()
    own = "" if base is None else f"; it derives from {base.__name__} with a forward of its own"
    return MethodError(
        f"no rule carries a {'covariance' if kron else 'variance'} through {scope.where} "
        f"(children: {inside}{own}); "
        "write one, def rule(mean, variance, module, scope): return mean, variance, and call "
        f"assay.bayes.moment_rules.register_rule({kind}, rule{', structure=' + repr('kron') if kron else ''})"
    )


def linear_moments(
    mean: Any, variance: Any, weight: Any, bias: Any, weight_variance: Any, second: Any, bias_variance: Any
) -> Moments:
    """``W x + b`` of independent entries: mean ``M m + b``, variance ``V m^2 + (M^2 + V) v + v_b``."""
    out = functional.linear(mean, weight, bias)
    spread = None
    if weight_variance is not None:
        spread = functional.linear(mean.square(), weight_variance, bias_variance)
    if variance is not None:
        if spread is None:
            spread = functional.linear(variance, second, bias_variance)
        else:
            flat = spread.view(-1, spread.shape[-1])
            flat.addmm_(variance.reshape(-1, variance.shape[-1]), second.T)
    if spread is None and bias_variance is not None:
        spread = bias_variance.expand_as(out)
    return out, spread


def _linear(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    second = None if variance is None else scope.second("weight")
    moments = (scope.variance("weight"), second, scope.variance("bias"))
    return linear_moments(mean, variance, module.weight, module.bias, *moments)


def _transposed_linear(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    """Conv1D of transformers: a linear layer that holds its weight as (in, out)."""
    weight_variance, second = scope.variance("weight"), scope.second("weight")
    weight_variance = None if weight_variance is None else weight_variance.T
    moments = (weight_variance, second.T, scope.variance("bias"))
    return linear_moments(mean, variance, module.weight.T, module.bias, *moments)


def _convolution(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    def run(x: Any, weight: Any, bias: Any) -> Any:
        # padding, stride and groups as the module has them
        return module._conv_forward(x, weight, bias)

    out = module(mean)
    weight_variance, bias_variance = scope.variance("weight"), scope.variance("bias")
    spread = None
    if weight_variance is not None:
        spread = run(mean.square(), weight_variance, bias_variance)
    if variance is not None:
        more = run(variance, scope.second("weight"), bias_variance if spread is None else None)
        spread = more if spread is None else spread.add_(more)
    if spread is None and bias_variance is not None:
        spread = bias_variance.reshape(-1, *[1] * (out.ndim - 2)).expand_as(out)
    return out, spread


def _embedding(tokens: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    if variance is not None:
        raise scope.refuse("its input is uncertain; tokens are given, not predicted")
    table = scope.variance("weight")
    return module(tokens), None if table is None else functional.embedding(tokens, table)


def affine_variance(
    normalised: Any, variance: Any, inverse: Any, scope: Scope, weight: Any, shape: Any = None
) -> Any:
    """Variance of ``gamma z + beta`` with z normalised by statistics that are taken as constants.

    ``inverse`` is 1 / (spread^2 + eps), so that z has variance ``v inverse``.
    """

    def fit(values: Any) -> Any:
        return values if values is None or shape is None else values.reshape(shape)

    gamma_variance, beta_variance = fit(scope.variance("weight")), fit(scope.variance("bias"))
    spread = None
    if variance is not None:
        spread = variance * inverse
        if weight is not None:
            spread = spread * fit(scope.second("weight"))
    if gamma_variance is not None:
        extra = normalised().square() * gamma_variance
        spread = extra if spread is None else spread + extra
    if beta_variance is not None:
        spread = beta_variance + (0 if spread is None else spread)
    return spread


def _layer_norm(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    # one pass gives the output and the statistics
    out, centre, root = torch.native_layer_norm(
        mean, module.normalized_shape, module.weight, module.bias, module.eps
    )
    spread = affine_variance(lambda: (mean - centre) * root, variance, root.square(), scope, module.weight)
    return out, None if spread is None else spread.expand_as(out)


def rms_norm(mean: Any, variance: Any, module: Any, scope: Scope, eps: float) -> Moments:
    """``gamma m / sqrt(mean(m^2) + eps)`` over the last axis."""
    inverse = 1 / (mean.square().mean(-1, keepdim=True) + eps)
    out = module(mean)
    spread = affine_variance(lambda: mean * inverse.sqrt(), variance, inverse, scope, module.weight)
    return out, None if spread is None else spread.expand_as(out)


def _rms_norm(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    if len(module.normalized_shape) != 1:
        raise scope.refuse("RMSNorm is carried over the last axis only")
    eps = torch.finfo(mean.dtype).eps if module.eps is None else module.eps
    return rms_norm(mean, variance, module, scope, eps)


def _group_norm(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    grouped = mean.reshape(len(mean), module.num_groups, -1)
    inverse = 1 / (grouped.var(-1, correction=0, keepdim=True) + module.eps)
    wide = inverse.expand_as(grouped).reshape(mean.shape)

    def normalised() -> Any:
        return ((grouped - grouped.mean(-1, keepdim=True)) * inverse.sqrt()).reshape(mean.shape)

    shape = (-1, *[1] * (mean.ndim - 2))
    spread = affine_variance(normalised, variance, wide, scope, module.weight, shape)
    return module(mean), None if spread is None else spread.expand_as(mean)


def _batch_norm(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    if module.running_var is None:
        raise scope.refuse("BatchNorm without running statistics makes rows depend on each other")
    shape = (-1, *[1] * (mean.ndim - 2))
    inverse = (1 / (module.running_var + module.eps)).reshape(shape)

    def normalised() -> Any:
        return (mean - module.running_mean.reshape(shape)) * inverse.sqrt()

    spread = affine_variance(normalised, variance, inverse, scope, module.weight, shape)
    return module(mean), None if spread is None else spread.expand_as(mean)


def _activation(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    if variance is None:
        return module(mean), None
    value, derivative = slope(module, mean)
    return value, derivative.square_().mul_(variance)


def _same(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    return mean, variance


def _reshape(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    return module(mean), None if variance is None else module(variance)


def _sequential(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    for name, _ in module.named_children():
        mean, variance = scope.run(name, mean, variance)
    return mean, variance


def _max_pool(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    if variance is None:
        return module(mean), None
    dims = 1 if isinstance(module, nn.MaxPool1d) else 2
    pool = functional.max_pool1d if dims == 1 else functional.max_pool2d
    how = (module.kernel_size, module.stride, module.padding, module.dilation, module.ceil_mode)
    out, where = pool(mean, *how, return_indices=True)
    # linearised at the mean: the largest entry hands on its variance
    return out, variance.flatten(-dims).gather(-1, where.flatten(-dims)).reshape(out.shape)


def _average_pool(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    if variance is None:
        return module(mean), None
    if module.ceil_mode or getattr(module, "divisor_override", None) is not None:
        raise scope.refuse("average pooling with ceil_mode or divisor_override has no rule")
    dims = 1 if isinstance(module, nn.AvgPool1d) else 2
    kernel = module.kernel_size if isinstance(module.kernel_size, tuple) else (module.kernel_size,) * dims
    size = 1
    for edge in kernel:
        size *= int(edge)
    share = torch.full_like(mean[:1], 1 / size)
    if not module.count_include_pad:
        pool = functional.avg_pool1d if dims == 1 else functional.avg_pool2d
        how = (module.kernel_size, module.stride, module.padding)
        share = 1 / (size * pool(torch.ones_like(mean[:1]), *how, count_include_pad=True))
    else:
        share = share.new_tensor(1 / size)
    return module(mean), module(variance) * share


def _adaptive_average_pool(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    out = module(mean)
    if variance is None:
        return out, None
    size = 1
    for dim in range(1, 2 if isinstance(module, nn.AdaptiveAvgPool1d) else 3):
        whole, parts = mean.shape[-dim], out.shape[-dim]
        if whole % parts:
            raise scope.refuse(
                f"adaptive pooling of {whole} places into {parts} has windows of several sizes"
            )
        size *= whole // parts
    return out, module(variance) / size


def _kron_linear(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    """``E[W]`` and covariance ``sum_i Q_i Q_i' (D (Q_A' m)^2)_i + M S M' + (the same of S)`` + that of b."""
    if mean.ndim != 2:
        raise scope.refuse(f"covariances are carried for inputs (n, d), got shape {tuple(mean.shape)}")
    out, weight = module(mean), module.weight
    spread = None if variance is None else weight @ variance @ weight.T
    block = scope.block("weight")
    if block is not None:
        turned = (mean @ block.in_vectors).square()
        if variance is not None:
            turned = turned + ((variance @ block.in_vectors) * block.in_vectors).sum(1)
        scaled = (turned @ block.variance.T)[:, None, :] * block.out_vectors
        own = scaled @ block.out_vectors.T
        spread = own if spread is None else spread + own
    elif scope.variance("weight") is not None:
        turned = mean.square()
        if variance is not None:
            turned = turned + variance.diagonal(dim1=-2, dim2=-1)
        own = torch.diag_embed(functional.linear(turned, scope.variance("weight")))
        spread = own if spread is None else spread + own
    if scope.variance("bias") is not None:
        bias = scope.keep("bias covariance", lambda: _bias_covariance(scope))
        spread = bias.expand(len(mean), -1, -1) if spread is None else spread + bias
    return out, spread


def _bias_covariance(scope: Scope) -> Any:
    block = scope.block("bias")
    if block is None:
        return torch.diag(scope.variance("bias"))
    return (block.out_vectors * block.variance[:, 0]) @ block.out_vectors.T


def _kron_activation(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    if variance is None:
        return module(mean), None
    value, derivative = slope(module, mean)
    return value, variance * derivative[:, :, None] * derivative[:, None, :]


def _kron_scaling(rule: Rule) -> Rule:
    """A normalisation with fixed weights scales each entry: S becomes s s' * S."""

    def scaled(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
        if scope.random:
            raise scope.refuse("its weights must be fixed where covariances are carried; leave them out")
        if mean.ndim != 2:
            raise scope.refuse(f"covariances are carried for inputs (n, d), got shape {tuple(mean.shape)}")
        if variance is None:
            return module(mean), None
        out, square = rule(mean, torch.ones_like(mean), module, scope)
        size = square.sqrt()
        return out, variance * size[:, :, None] * size[:, None, :]

    return scaled


def _kron_flatten(mean: Any, variance: Any, module: Any, scope: Scope) -> Moments:
    if variance is not None and mean.ndim != 2:
        raise scope.refuse(f"covariances are carried for inputs (n, d), got shape {tuple(mean.shape)}")
    return module(mean), variance


register_rule(nn.Linear, _linear)
register_rule("transformers.pytorch_utils:Conv1D", _transposed_linear)
register_rule(nn.Conv1d, _convolution)
register_rule(nn.Conv2d, _convolution)
register_rule(nn.Embedding, _embedding)
register_rule(nn.LayerNorm, _layer_norm)
register_rule(nn.RMSNorm, _rms_norm)
register_rule(nn.GroupNorm, _group_norm)
register_rule(nn.MaxPool1d, _max_pool)
register_rule(nn.MaxPool2d, _max_pool)
register_rule(nn.AvgPool1d, _average_pool)
register_rule(nn.AvgPool2d, _average_pool)
register_rule(nn.AdaptiveAvgPool1d, _adaptive_average_pool)
register_rule(nn.AdaptiveAvgPool2d, _adaptive_average_pool)
register_rule(nn.Linear, _kron_linear, structure="kron")
register_rule(nn.Flatten, _reshape)
register_rule(nn.Unflatten, _reshape)
register_rule(nn.Flatten, _kron_flatten, structure="kron")
register_rule(nn.LayerNorm, _kron_scaling(_layer_norm), structure="kron")
for _kind in (nn.BatchNorm1d, nn.BatchNorm2d):
    register_rule(_kind, _batch_norm)
register_rule(nn.BatchNorm1d, _kron_scaling(_batch_norm), structure="kron")
for _structure in ("diag", "kron"):
    register_rule(nn.Sequential, _sequential, structure=_structure)
    for _kind in (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.AlphaDropout):
        register_rule(_kind, _same, structure=_structure)
for _kind in ACTIVATIONS:
    register_rule(_kind, _activation)
    register_rule(_kind, _kron_activation, structure="kron")
