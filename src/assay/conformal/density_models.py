"""Conditional density models: the protocol, and checked calls of the user's sampler and density."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from sklearn.utils import _safe_indexing

from assay.core.checks import (
    FloatArray,
    check_vector,
    refuse_infinite,
    refuse_nan,
    row_count,
    to_float,
    to_numpy,
)
from assay.core.errors import DataError, MethodError


@runtime_checkable
class ConditionalSampler(Protocol):
    """What a model must do to be calibrated: draw targets given features.

    ``sample`` returns (n, n_samples, q) draws, or (n, n_samples) for one output, the same ones
    for the same ``random_state`` (an int). A model whose draws for a row depend on nothing but
    the row and ``random_state`` says so with ``samples_by_row = True``: predictions are then the
    same however the rows are batched, and long inputs are drawn in pieces.

    Optional: ``log_prob(X, y) -> (n,)``; ``log_prob_samples(X, Y) -> (n, m)`` for Y of shape
    (n, m, q), which saves evaluating the model anew for each draw; ``hdr_log_threshold(X, alpha)``,
    the exact log density that 1 - alpha of the mass exceeds, or None where there is no closed form.
    """

    def sample(self, X: Any, n_samples: int, random_state: int) -> Any:
        """(n, n_samples, q) draws of the target given each row of X."""


def check_outputs(y: Any, name: str = "y", *, length: int | None = None) -> FloatArray:
    """(n, q) finite float64 targets; (n,) is one output."""
    array = to_numpy(y)
    if array.ndim == 1:
        array = array[:, None]
    if array.ndim != 2 or array.shape[1] == 0:
        raise DataError(f"{name} has shape {np.shape(y)}; give (n,) for one output or (n, q) for several")
    out = to_float(array, name)
    if length is not None and len(out) != length:
        raise DataError(f"{name} has {len(out)} rows, {length} are expected")
    refuse_nan(out, name)
    refuse_infinite(out, name)
    return out


def check_draws(draws: Any, n: int, name: str = "samples") -> FloatArray:
    """(n, m, q) finite float64 draws; (n, m) is one output."""
    array = to_numpy(draws)
    if array.ndim == 2:
        array = array[:, :, None]
    if array.ndim != 3 or len(array) != n or 0 in array.shape[1:]:
        raise DataError(f"{name} have shape {array.shape}; expected ({n}, draws, outputs)")
    out = to_float(array, name)
    refuse_nan(out, name)
    refuse_infinite(out, name)
    return out


def draw(model: Any, X: Any, n_samples: int, seed: int, outputs: int) -> FloatArray:
    """(n, n_samples, outputs) checked draws of the model; zero rows never reach it."""
    if not hasattr(model, "sample"):
        raise MethodError(
            f"{type(model).__name__} has no sample(X, n_samples, random_state); give a conditional density "
            "model, for example MixtureDensityNetwork"
        )
    n = row_count(X)
    if n == 0:
        return np.empty((0, n_samples, outputs))
    draws = check_draws(model.sample(X, n_samples, seed), n, "the model's samples")
    if draws.shape != (n, n_samples, outputs):
        raise DataError(f"the model's samples have shape {draws.shape}, expected {(n, n_samples, outputs)}")
    return draws


def log_density(model: Any, X: Any, y: FloatArray) -> FloatArray:
    """(n,) log densities of targets y (n, q); -inf is legal (the model rules the value out)."""
    if not hasattr(model, "log_prob"):
        raise MethodError(f"{type(model).__name__} has no log_prob(X, y): density level sets need it")
    n = len(y)
    if n == 0:
        return np.empty(0)
    target = y[:, 0] if y.shape[1] == 1 else y
    return check_vector(model.log_prob(X, target), "the model's log density", length=n)


def log_density_of_draws(model: Any, X: Any, draws: FloatArray) -> FloatArray:
    """(n, m) log densities of (n, m, q) draws of the same rows."""
    n, m, q = draws.shape
    if n == 0:
        return np.empty((0, m))
    if hasattr(model, "log_prob_samples"):
        out = to_float(to_numpy(model.log_prob_samples(X, draws)), "the model's log density")
        if out.shape != (n, m):
            raise DataError(f"the model's log densities have shape {out.shape}, expected {(n, m)}")
        refuse_nan(out, "the model's log density")
        return out
    rows = np.repeat(np.arange(n), m)
    return log_density(model, _safe_indexing(X, rows), draws.reshape(n * m, q)).reshape(n, m)
