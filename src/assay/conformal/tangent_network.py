"""A trained torch module seen through its tangent: outputs and Jacobians in float64, row by row."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from assay.core.checks import FloatArray, refuse_infinite, refuse_nan, to_float, to_numpy
from assay.core.errors import DataError, MethodError
from assay.core.models import import_torch
from assay.networks.selection import Selection, selected_names

_ROWS_COMPARED = 4
_SAME = 1e-6


class TangentNetwork:
    """A float64 copy of a module in evaluation mode, with the derivative of its output by its weights.

    The user's module keeps its weights, dtype, mode and gradients. Dropout is off and BatchNorm uses
    its running statistics; a module whose output for a row still depends on the other rows is refused
    by :meth:`check_rows`, since it has no Jacobian of a row.

    Parameters
    ----------
    module : torch.nn.Module
        (n, ...) to (n, 1) or (n,); with ``n_outputs`` K above 1 to (n, K).
    params : "all", "last_layer" or callable, default "all"
        All parameters with ``requires_grad``; those of the module that was registered last among the
        ones that have such; or those for which ``params(name, parameter)`` is true.
    batch_size : int, default 256
        Rows whose Jacobians are computed at once.
    n_outputs : int, default 1
    """

    def __init__(
        self, module: Any, params: Selection = "all", batch_size: int = 256, n_outputs: int = 1
    ) -> None:
        self._module = copy.deepcopy(module).double().eval()
        self.n_outputs = n_outputs
        self.batch_size = int(batch_size)
        if self.batch_size < 1:
            raise MethodError(f"batch_size must be at least 1, got {batch_size!r}")
        self.names = selected_names(self._module, params)
        own = dict(self._module.named_parameters())
        #: (P,) weights that count
        self.theta = np.concatenate([to_numpy(own[name]).ravel() for name in self.names])
        #: weights of each parameter in ``names``
        self.sizes = [own[name].numel() for name in self.names]
        self._device = own[self.names[0]].device

    def _batches(self, X: FloatArray) -> Iterator[Any]:
        torch = import_torch("a network under Gauss-Newton intervals")
        for start in range(0, len(X), self.batch_size):
            # a copy: torch takes neither read-only arrays nor negative strides
            yield torch.as_tensor(X[start : start + self.batch_size].copy(), device=self._device)

    def values(self, X: FloatArray) -> FloatArray:
        """(n,) outputs; (n, K) of a module with K above 1."""
        torch = import_torch("a network under Gauss-Newton intervals")
        k = self.n_outputs
        with threadpool_limits(1), torch.no_grad():
            parts = [_outputs(to_numpy(self._module(batch)), len(batch), k) for batch in self._batches(X)]
        return np.concatenate(parts) if parts else np.empty((0, k) if k > 1 else 0)

    def values_and_jacobian(self, X: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(n,) outputs and their (n, P) derivatives by the weights that count; (n, K) and (n, K, P)."""
        torch = import_torch("a network under Gauss-Newton intervals")
        k = self.n_outputs
        weights = {name: value.detach() for name, value in self._module.named_parameters()}
        chosen = {name: weights.pop(name) for name in self.names}
        rest = {**weights, **dict(self._module.named_buffers())}

        def output(parameters: Any, row: Any) -> Any:
            value = torch.func.functional_call(self._module, {**parameters, **rest}, (row[None],))
            return value.reshape(k), value.reshape(k)

        # few outputs, many weights: reverse mode takes one pass an output
        rows = torch.func.vmap(torch.func.jacrev(output, has_aux=True), in_dims=(None, 0))
        values, jacobian = np.empty((len(X), k)), np.empty((len(X), k, len(self.theta)))
        start = 0
        with threadpool_limits(1):
            for batch in self._batches(X):
                rows_here = slice(start, start + len(batch))
                gradients, out = rows(chosen, batch)
                values[rows_here] = to_numpy(out)
                at = 0
                for name in self.names:
                    block = to_numpy(gradients[name]).reshape(len(batch), k, -1)
                    jacobian[rows_here, :, at : at + block.shape[2]] = block
                    at += block.shape[2]
                start += len(batch)
        return (values, jacobian) if k > 1 else (values[:, 0], jacobian[:, 0])

    def check_rows(self, X: FloatArray) -> None:
        """Refuse a module that gives no single number a row, or whose rows depend on each other."""
        few = X[:_ROWS_COMPARED]
        together = self.values(few)
        try:
            alone = np.concatenate([self.values(few[i : i + 1]) for i in range(len(few))])
        except (ValueError, RuntimeError) as error:
            raise MethodError(f"the module takes {len(few)} rows but no single one: {error}") from error
        for array in (together, alone):
            refuse_nan(array, "the module's output")
            refuse_infinite(array, "the module's output")
        size = max(1.0, float(np.abs(together).max()))
        if np.abs(together - alone).max() > _SAME * size or (
            np.abs(self.values(few[::-1])[::-1] - together).max() > _SAME * size
        ):
            raise MethodError(
                "the module's output for a row depends on the other rows even in evaluation mode (BatchNorm "
                "without running statistics, attention over rows, noise); it has no Jacobian of a row"
            )


def _outputs(values: Any, n: int, k: int) -> FloatArray:
    """(n,) or (n, k) float64 outputs, or a MethodError with the shapes."""
    if values.shape != (n, k) and not (k == 1 and values.shape == (n,)):
        raise MethodError(
            f"the module gives shape {values.shape} for {n} rows; ({n}, {k}) is expected, one column a target"
        )
    out = np.asarray(values, dtype=np.float64)
    return out if k > 1 else out.reshape(n)


def check_rows_given(X: Any, shape: tuple[int, ...] | None) -> FloatArray:
    """(n, ...) float64 rows without NaN or infinite values; ``shape`` is that of a row in fit, if known."""
    table = to_float(to_numpy(X), "X")
    if table.ndim < 2:
        raise DataError(f"X has shape {table.shape}; Expected 2D array, got 1D array: one row a sample")
    if shape is not None and table.shape[1:] != shape:
        raise DataError(f"a row of X has shape {table.shape[1:]}, expected {shape} as in fit")
    refuse_nan(table, "X")
    refuse_infinite(table, "X")
    return table
