"""Values and derivatives of activations, in closed form where there is one."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from assay.core.models import import_torch

torch = import_torch("propagation of variances")
nn, functional = torch.nn, torch.nn.functional

#: (module, x) -> (value, derivative), both new tensors
Slope = Callable[[Any, Any], tuple[Any, Any]]


def _relu(module: Any, x: Any) -> tuple[Any, Any]:
    return torch.relu(x), (x > 0).to(x.dtype)


def _leaky_relu(module: Any, x: Any) -> tuple[Any, Any]:
    return module(x), torch.where(x > 0, 1.0, module.negative_slope).to(x.dtype)


def _gelu(module: Any, x: Any) -> tuple[Any, Any]:
    if getattr(module, "approximate", "none") == "tanh":
        return _tanh_gelu(module, x)
    below = torch.erf(x / math.sqrt(2)).add_(1).mul_(0.5)
    density = torch.exp(x.square().mul_(-0.5)).mul_(1 / math.sqrt(2 * math.pi))
    return x * below, density.mul_(x).add_(below)


def _tanh_gelu(module: Any, x: Any) -> tuple[Any, Any]:
    a, b = math.sqrt(2 / math.pi), 0.044715
    square = x.square()
    t = torch.tanh(square.mul(b).add_(1).mul_(x).mul_(a))
    half = t.add(1).mul_(0.5)
    inner = square.mul_(3 * b).add_(1).mul_(0.5 * a)
    return x * half, (1 - t.square()).mul_(inner).mul_(x).add_(half)


def _tanh(module: Any, x: Any) -> tuple[Any, Any]:
    value = torch.tanh(x)
    return value, 1 - value.square()


def _sigmoid(module: Any, x: Any) -> tuple[Any, Any]:
    value = torch.sigmoid(x)
    return value, value * (1 - value)


def _silu(module: Any, x: Any) -> tuple[Any, Any]:
    gate = torch.sigmoid(x)
    value = x * gate
    return value, gate + value * (1 - gate)


def _elu(module: Any, x: Any) -> tuple[Any, Any]:
    value = module(x)
    return value, torch.where(x > 0, torch.ones_like(x), value + module.alpha)


def _softplus(module: Any, x: Any) -> tuple[Any, Any]:
    linear = x * module.beta > module.threshold
    return module(x), torch.where(linear, torch.ones_like(x), torch.sigmoid(x * module.beta))


#: closed forms; a name is a type of a package that is not imported here
_SLOPES: dict[Any, Slope] = {
    nn.ReLU: _relu,
    nn.LeakyReLU: _leaky_relu,
    nn.GELU: _gelu,
    nn.Tanh: _tanh,
    nn.Sigmoid: _sigmoid,
    nn.SiLU: _silu,
    nn.ELU: _elu,
    nn.Softplus: _softplus,
    "transformers.activations:NewGELUActivation": _tanh_gelu,
    "transformers.activations:GELUActivation": _gelu,
    "transformers.activations:SiLUActivation": _silu,
    "transformers.activations:GELUTanh": _tanh_gelu,
}
_BY_JVP = (
    nn.ReLU6, nn.SELU, nn.CELU, nn.Mish, nn.Hardtanh, nn.Hardswish, nn.Hardsigmoid, nn.Softsign,
    nn.Tanhshrink, nn.LogSigmoid, nn.Softshrink, nn.Hardshrink, nn.Threshold,
    "transformers.activations:QuickGELUActivation", "transformers.activations:FastGELUActivation",
)  # fmt: skip
#: every activation with a rule
ACTIVATIONS: tuple[Any, ...] = (*_SLOPES, *_BY_JVP)


def slope(module: Any, x: Any) -> tuple[Any, Any]:
    """Value and derivative of an elementwise module at x; without a closed form by ``torch.func.jvp``."""
    for kind in type(module).__mro__:
        found = _SLOPES.get(kind) or _SLOPES.get(f"{kind.__module__}:{kind.__qualname__}")
        if found is not None:
            return found(module, x)
    value, derivative = torch.func.jvp(module, (x,), (torch.ones_like(x),))
    return value, derivative.clone()
