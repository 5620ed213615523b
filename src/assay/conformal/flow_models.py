"""Conditional flows: the protocol, and checked calls of the user's flow."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from sklearn.utils import _safe_indexing

from assay.conformal.density_models import check_draws, check_outputs
from assay.core.checks import FloatArray, row_count, to_float, to_numpy
from assay.core.errors import DataError, MethodError
from assay.core.models import predict_values
from assay.core.seeds import seed_of


@runtime_checkable
class ConditionalFlow(Protocol):
    """A bijection between outputs y and a standard normal z for each row of features.

    Arrays or torch tensors may be returned. Optional: ``inverse_points(Y, X) -> (Z, logdet)`` and
    ``forward_points(Z, X) -> (Y, logdet)`` for m values a row, (n, m, q) and (n, m), which saves
    evaluating the features anew for each value; their ``logdet`` is that of the map they apply.
    """

    def inverse(self, y: Any, x: Any) -> tuple[Any, Any]:
        """z (n, q) of outputs y (n, q), and log|det dz/dy| (n,)."""

    def forward(self, z: Any, x: Any) -> Any:
        """y (n, q) of latent values z (n, q): the inverse of ``inverse``."""


def check_flow(flow: Any) -> None:
    """Refuse what is no conditional flow."""
    if not (callable(getattr(flow, "inverse", None)) and callable(getattr(flow, "forward", None))):
        raise MethodError(
            f"{type(flow).__name__} is no conditional flow: it needs inverse(y, x) -> (z, logdet) and "
            "forward(z, x) -> y, as FlowDensityRegressor has them"
        )


def to_latent(flow: Any, X: Any, Y: FloatArray) -> tuple[FloatArray, FloatArray]:
    """z (n, m, q) and log|det dz/dy| (n, m) of m values a row, Y (n, m, q); NaN passes."""
    n, m, q = Y.shape
    if n == 0 or m == 0:
        return np.empty((n, m, q)), np.empty((n, m))
    if hasattr(flow, "inverse_points"):
        z, logdet = flow.inverse_points(Y, X)
    else:
        z, logdet = flow.inverse(Y.reshape(n * m, q), _repeated(X, n, m))
    return _shaped(z, (n, m, q), "latent values"), _shaped(logdet, (n, m), "log determinants")


def from_latent(flow: Any, X: Any, Z: FloatArray) -> tuple[FloatArray, FloatArray]:
    """y (n, m, q) and log|det dy/dz| (n, m) of m latent values a row, Z (n, m, q).

    Raises
    ------
    DataError
        Values that are not finite: a flow maps every latent value to an output.
    """
    n, m, q = Z.shape
    if n == 0 or m == 0:
        return np.empty((n, m, q)), np.empty((n, m))
    if hasattr(flow, "forward_points"):
        y, logdet = flow.forward_points(Z, X)
    else:
        rows = _repeated(X, n, m)
        y = to_numpy(flow.forward(Z.reshape(n * m, q), rows))
        logdet = -to_numpy(flow.inverse(y, rows)[1])
    outputs = _shaped(y, (n, m, q), "outputs")
    if not np.isfinite(outputs).all():
        bad = ~np.isfinite(outputs).all(axis=(1, 2))
        raise DataError(
            f"the flow maps latent values to outputs that are not finite in {int(bad.sum())} of {n} rows, "
            f"first at row {int(bad.argmax())}"
        )
    return outputs, _shaped(logdet, (n, m), "log determinants")


def _repeated(X: Any, n: int, m: int) -> Any:
    return X if m == 1 else _safe_indexing(X, np.repeat(np.arange(n), m))


def _shaped(values: Any, shape: tuple[int, ...], what: str) -> FloatArray:
    array = to_float(to_numpy(values), f"the flow's {what}")
    if array.size != np.prod(shape) or array.ndim not in (len(shape), len(shape) - 1):
        raise DataError(f"the flow's {what} have shape {array.shape}, expected {shape}")
    return array.reshape(shape)


def _rows_at_once(max_bytes: int, points: int, outputs: int) -> int:
    """Rows that are worked on at once so that a few arrays of their points fit into ``max_bytes``."""
    return max(1, int(max_bytes) // (8 * 6 * max(points, 1) * max(outputs, 1)))


def latent_scores(
    flow: Any, X: Any, Y: FloatArray, score: str, max_bytes: int = 2**24
) -> tuple[FloatArray, int]:
    """(n,) scores of outputs Y (n, q), larger is stranger, and how many were NaN (now +inf)."""
    n, q = Y.shape
    out = np.empty(n)
    step = _rows_at_once(max_bytes, 1, q)
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        piece = X if step >= n else _safe_indexing(X, np.arange(start, rows.stop))
        z, logdet = to_latent(flow, piece, Y[rows, None, :])
        out[rows] = score_of(z, logdet, score)[:, 0]
    bad = np.isnan(out)
    out[bad] = np.inf
    return out, int(bad.sum())


def score_of(z: FloatArray, logdet: FloatArray, score: str) -> FloatArray:
    """Scores of latent values (..., q) with log|det dz/dy|: the norm, or minus the log density."""
    with np.errstate(invalid="ignore", over="ignore"):
        if score == "latent_linf":
            return np.asarray(np.abs(z).max(axis=-1))
        if score == "latent_l2":
            return np.asarray(np.sqrt((z**2).sum(axis=-1)))
        return np.asarray(0.5 * (z**2).sum(axis=-1) + 0.5 * z.shape[-1] * np.log(2 * np.pi) - logdet)


SCORES = ("latent_l2", "latent_linf", "log_density")


class FlowSampler:
    """Density and draws of any conditional flow, as density level sets and balls around draws need them.

    What the flow does by itself (``sample``, ``predict``) is left to it. Else draws are images of
    the same latent draws for every row.

    Parameters
    ----------
    flow : conditional flow
    n_outputs : int
    """

    samples_by_row = True

    def __init__(self, flow: Any, n_outputs: int) -> None:
        self.flow = flow
        self.n_outputs = n_outputs

    def log_prob(self, X: Any, y: Any) -> FloatArray:
        """(n,) log densities of y, (n,) or (n, q); -inf where the flow gives NaN."""
        return -latent_scores(self.flow, X, check_outputs(y), "log_density")[0]

    def log_prob_samples(self, X: Any, Y: Any) -> FloatArray:
        """(n, m) log densities of m values a row, Y of shape (n, m, q)."""
        z, logdet = to_latent(self.flow, X, np.asarray(Y, dtype=np.float64))
        return np.nan_to_num(-score_of(z, logdet, "log_density"), nan=-np.inf, posinf=np.inf, neginf=-np.inf)

    def sample(self, X: Any, n_samples: int = 1, random_state: Any = None) -> FloatArray:
        """(n, n_samples, q) draws."""
        if hasattr(self.flow, "sample"):
            return check_draws(
                self.flow.sample(X, n_samples, random_state), row_count(X), "the flow's samples"
            )
        z = np.random.default_rng(seed_of(random_state)).normal(size=(n_samples, self.n_outputs))
        return from_latent(self.flow, X, np.broadcast_to(z, (row_count(X), *z.shape)))[0]

    def predict(self, X: Any, single: bool = False) -> FloatArray:
        """(n, q) point predictions, (n,) if ``single``: the flow's own, or the image of z = 0."""
        if hasattr(self.flow, "predict"):
            out = predict_values(self.flow, X, columns=self.n_outputs).reshape(-1, self.n_outputs)
        else:
            out = from_latent(self.flow, X, np.zeros((row_count(X), 1, self.n_outputs)))[0][:, 0]
        return out[:, 0] if single else out
