"""The house network, and the modules that users give in its place."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from assay.core.errors import AssayWarning, MethodError
from assay.core.models import import_torch

#: widths of the hidden layers of the house network
HIDDEN = (64, 32)


def build_mlp(n_features: int, n_outputs: int, hidden: Sequence[int] = HIDDEN, dropout: float = 0.0) -> Any:
    """``nn.Sequential`` of Linear, ReLU and, for a rate above 0, Dropout after each hidden layer.

    Weights are torch's own start, from its global random state: seed that first.
    """
    nn = import_torch("a network").nn
    layers: list[Any] = []
    widths = [int(n_features), *map(int, hidden)]
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        if dropout > 0:
            layers.append(nn.Dropout(dropout))
    return nn.Sequential(*layers, nn.Linear(widths[-1], int(n_outputs)))


def fresh_module(module: Any, n_features: int, n_outputs: int, dropout: float = 0.0) -> Any:
    """A float32 module of our own to train: the house network, what a factory makes, or a copy of a module.

    Parameters
    ----------
    module : None, torch.nn.Module or callable (n_features, n_outputs) -> torch.nn.Module
    n_features, n_outputs : int
        Columns of the standardised rows that it takes, and of what it gives.
    dropout : float
        Of the house network.

    Raises
    ------
    MethodError
        Neither of these, no weights to train, or the wrong number of outputs: the shape is named.
    """
    torch = import_torch("a network")
    if module is None:
        made = build_mlp(n_features, n_outputs, dropout=dropout)
    elif isinstance(module, torch.nn.Module):
        made = copy.deepcopy(module)
    elif callable(module):
        made = module(n_features, n_outputs)
    else:
        made = module
    if not isinstance(made, torch.nn.Module):
        raise MethodError(
            f"module must be a torch.nn.Module or a function (n_features, n_outputs) -> torch.nn.Module, "
            f"got {type(made).__name__}"
        )
    if not any(parameter.requires_grad for parameter in made.parameters()):
        raise MethodError("the module has no weights to train: no parameter has requires_grad")
    narrow = {str(p.dtype).removeprefix("torch.") for p in made.parameters() if p.dtype.itemsize < 4}
    if narrow:
        warnings.warn(
            f"the module holds {', '.join(sorted(narrow))} weights; it is trained and run in float32",
            AssayWarning,
            stacklevel=2,
        )
    made = made.float()
    modes = [(part, part.training) for part in made.modules()]
    try:
        with torch.no_grad():
            shape = tuple(made.eval()(torch.zeros(2, n_features)).shape)
    except (RuntimeError, ValueError) as error:
        raise MethodError(f"the module cannot take rows of {n_features} features: {error}") from error
    finally:
        for part, training in modes:
            part.training = training
    if shape != (2, n_outputs):
        raise MethodError(
            f"the module gives shape {shape} for 2 rows of {n_features} features; (2, {n_outputs}) is "
            "expected: one column a class for classification, one for regression"
        )
    return made
