"""Linear layers that are called once for each row: what goes in, and what is pulled back to what comes out.

With both, curvatures of such networks need no Jacobian of a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from assay.core.errors import MethodError
from assay.core.models import import_torch

torch = import_torch("a weight posterior")


def output_tensor(out: Any) -> Any:
    """The logits or last hidden state where a model answers with an object, else the answer itself."""
    for name in ("logits", "last_hidden_state"):
        if getattr(out, name, None) is not None:
            return getattr(out, name)
    return out


def linear_layers(net: Any, names: list[str]) -> dict[str, Any]:
    """The Linear layers that hold the named parameters, by path.

    Raises
    ------
    MethodError
        A parameter belongs to something else.
    """
    layers: dict[str, Any] = {}
    for name in names:
        path = name.rpartition(".")[0]
        layer = net.get_submodule(path)
        if not isinstance(layer, torch.nn.Linear):
            raise MethodError(
                f"Kronecker factors are there for Linear layers; {name!r} belongs to a "
                f"{type(layer).__name__}: leave it out with params=, or use the diagonal"
            )
        layers[path] = layer
    return layers


def linear_pass(
    net: Any, layers: dict[str, Any], x: Any, times_root: Callable[[Any, Any], Any]
) -> tuple[dict[str, Any], Iterator[dict[str, Any]]]:
    """Inputs (n, d) of Linear layers by path, and what each column of the root of L pulls back to them.

    Raises
    ------
    MethodError
        The module is not from (n, d) to (n, K), or a layer has other inputs or is not called once.
    """
    calls: dict[str, list[tuple[Any, Any]]] = {path: [] for path in layers}

    def keeper(path: str) -> Any:
        def keep(layer: Any, inputs: Any, output: Any) -> Any:
            calls[path].append((inputs[0].detach().to(torch.float64, copy=True), output))
            return output.clone()  # what follows may write into it: ReLU(inplace=True)

        return keep

    hooks = [layer.register_forward_hook(keeper(path)) for path, layer in layers.items()]
    try:
        with torch.enable_grad():
            f = output_tensor(net(x))
    finally:
        for hook in hooks:
            hook.remove()
    if f.ndim != 2 or any(a.ndim != 2 for made in calls.values() for a, _ in made):
        raise MethodError(
            "Kronecker factors are there for modules from (n, d) to (n, K) whose layers take "
            "(n, d) inputs; use the diagonal"
        )
    for path, made in calls.items():
        if len(made) != 1:
            raise MethodError(
                f"Kronecker factors are there for layers that are called once; {path!r} is called "
                f"{len(made)} times for an output: use the diagonal"
            )

    def pulled() -> Iterator[dict[str, Any]]:
        units = torch.eye(f.shape[1], dtype=f.dtype, device=f.device)
        for c, unit in enumerate(units):
            column = times_root(f.detach(), unit.expand_as(f))
            ends = [made[0][1] for made in calls.values()]
            back = torch.autograd.grad(
                f, ends, column, retain_graph=c + 1 < len(units), materialize_grads=True
            )
            yield {path: d.double() for path, d in zip(calls, back, strict=True)}

    return {path: made[0][0] for path, made in calls.items()}, pulled()


def layerwise_squares(
    net: Any, names: list[str], x: Any, times_root: Callable[[Any, Any], Any], chunk: int
) -> dict[str, Any]:
    """The diagonal of Linear layers, each called once: squares of inputs times squares of pull-backs.

    Raises
    ------
    MethodError
        The module is another one.
    """
    layers = linear_layers(net, names)
    found = {name: torch.zeros_like(net.get_parameter(name), dtype=torch.float64) for name in names}
    for start in range(0, len(x), chunk):
        taken, pulled = linear_pass(net, layers, x[start : start + chunk], times_root)
        squared = {path: a.square() for path, a in taken.items()}
        for columns in pulled:
            for name in names:
                path, _, kind = name.rpartition(".")
                back = columns[path].square()
                found[name] += back.T @ squared[path] if kind == "weight" else back.sum(0)
    return found


def is_layerwise(
    net: Any,
    names: list[str],
    rows: Any,
    times_root: Callable[[Any, Any], Any],
    exact: Callable[[Any], dict[str, Any]],
) -> bool:
    """Whether :func:`layerwise_squares` gives on a few rows what one Jacobian a row gives.

    A weight may also be used outside of its layer, which only the numbers tell.
    """
    try:
        found = layerwise_squares(net, names, rows, times_root, len(rows))
    except (MethodError, RuntimeError):  # also what autograd does not follow, and torch.func may
        return False
    expected = exact(rows)
    scale = max(float(value.abs().max()) for value in expected.values())
    tolerance = 1e-3 if next(net.parameters()).element_size() < 8 else 1e-9
    return all(torch.allclose(found[n], expected[n], rtol=tolerance, atol=tolerance * scale) for n in names)
