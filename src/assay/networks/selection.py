"""Which parameters of a module are random or are differentiated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from assay.core.errors import MethodError

#: "all", "last_layer", or a function of (name, parameter)
Selection = str | Callable[[str, Any], bool]


def selected_names(module: Any, params: Selection) -> list[str]:
    """Names of the selected parameters with ``requires_grad``, in the order of ``named_parameters``.

    Raises
    ------
    MethodError
        An unknown selection, or one that leaves nothing.
    """
    trained = {name: value for name, value in module.named_parameters() if value.requires_grad}
    if params == "last_layer":
        layer = next((name.rpartition(".")[0] for name in reversed(trained)), "")
        names = [name for name in trained if name.rpartition(".")[0] == layer]
    elif params == "all":
        names = list(trained)
    elif callable(params):
        names = [name for name, value in trained.items() if params(name, value)]
    else:
        raise MethodError(f"params must be 'all', 'last_layer' or a function, got {params!r}")
    if not names:
        raise MethodError(
            f"no weights are left: {len(trained)} of the module's "
            f"{len(list(module.parameters()))} parameters have requires_grad, and params={params!r}"
        )
    return names
