"""A trained network and a weight posterior as one deterministic pass with mean and variance (SUQ)."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar

import assay.bayes.moment_attention
import assay.bayes.moment_decoders  # noqa: F401  (importing them registers their rules)
from assay.bayes.curvature import inputs_of, refuse_not_finite, refuse_shared, working_copy
from assay.bayes.latent import latent_nlpd, probit
from assay.bayes.moment_rules import Scope, propagate, unknown
from assay.bayes.posterior import GaussianPosterior
from assay.core.checks import FloatArray, to_numpy
from assay.core.errors import AssayWarning, DataError, MethodError
from assay.core.models import import_torch

torch = import_torch("SUQ")

_LOG_SCALES = (math.log(1e-4), math.log(1e6))
_GRID = 41
#: rows of the first piece, and bytes of the largest layer's variances in the others
_FIRST_ROWS, _PIECE = 16, 2**21


class StreamlinedModel:
    """A network with a weight posterior that predicts in one pass; made by :func:`streamline`.

    Attributes
    ----------
    scale_ : float
        Latent variances are divided by it; 1 until :meth:`fit_scale`.
    module, posterior, structure, likelihood, noise_std
    """

    def __init__(
        self,
        module: Any,
        posterior: GaussianPosterior,
        structure: str,
        likelihood: str,
        noise_std: float | None,
    ) -> None:
        self.module = module
        self.posterior = posterior
        self.structure = structure
        self.likelihood = likelihood
        self.noise_std = noise_std
        self.scale_ = 1.0
        self._scope = Scope(module, posterior, structure)
        self._like = next(module.parameters())

    def forward_latent(self, x: Any) -> tuple[Any, Any]:
        """Mean and variance of the network's outputs: tensors of the output's shape.

        With ``structure="kron"`` the second is the covariance, (n, K, K).

        Parameters
        ----------
        x : (n, ...) array or tensor, as the module takes it; whole numbers are tokens
        """
        rows = np.asarray(x) if isinstance(x, list | tuple) else to_array(x)
        (given,) = inputs_of(self.module, rows, self._like)
        with torch.no_grad():
            parts = [self._pass(rows) for rows in self._pieces(given)]
        if len(parts) == 1:
            return parts[0]
        means, variances = zip(*parts, strict=True)
        return torch.cat(means), torch.cat(variances)

    def _pieces(self, rows: Any) -> Iterator[Any]:
        """Rows in pieces whose layers stay in the processor's cache; the first tells how large a row is."""
        start = 0
        while start < max(len(rows), 1):
            of_row = self._scope.footprint["row"]
            size = max(_FIRST_ROWS, int(_PIECE // of_row)) if of_row else _FIRST_ROWS
            yield rows[start : start + size]
            start += size

    def _pass(self, rows: Any) -> tuple[Any, Any]:
        mean, variance = propagate(self._scope, rows, None)
        if variance is None:
            shape = (*mean.shape, mean.shape[-1]) if self.structure == "kron" else mean.shape
            variance = mean.new_zeros(shape)
        return mean, variance / self.scale_ if self.scale_ != 1 else variance

    def latent(self, x: Any) -> tuple[FloatArray, FloatArray]:
        """Mean and variance (the diagonal of a covariance) of the outputs as float64 arrays."""
        mean, variance = self.forward_latent(x)
        if self.structure == "kron":
            variance = variance.diagonal(dim1=-2, dim2=-1)
        return to_numpy(mean).astype(np.float64), to_numpy(variance).astype(np.float64)

    def predict_proba(self, x: Any) -> FloatArray:
        """(n, K) class probabilities, ``softmax(m / sqrt(1 + pi/8 v))``; (n, places, K) of a sequence."""
        if self.likelihood != "classification":
            raise MethodError("predict_proba is there for likelihood='classification' only")
        return probit(*self.latent(x))

    def predict(self, x: Any, return_std: bool = False) -> Any:
        """(n,) class numbers, or (n,) predicted numbers; (n, q) of several outputs.

        With ``return_std`` also the predictive sd of the numbers, ``sqrt(v + noise_std^2)``; for classes
        the latent sd of the predicted one.
        """
        mean, variance = self.latent(x)
        if self.likelihood == "classification":
            best = probit(mean, variance).argmax(-1)
            if not return_std:
                return best
            return best, np.sqrt(np.take_along_axis(variance, best[..., None], -1)[..., 0])
        std = np.sqrt(variance + float(self.noise_std or 0.0) ** 2)
        if mean.ndim > 1 and mean.shape[-1] == 1:
            mean, std = mean[..., 0], std[..., 0]
        return (mean, std) if return_std else mean

    def nlpd(self, x: Any, y: Any) -> float:
        """Mean negative log predictive density or probability of targets y, in nats."""
        return self._nlpd(self._judged(x, y))

    def fit_scale(self, data: Any, y: Any = None) -> StreamlinedModel:
        """Divide latent variances by the c > 0 that minimises the NLPD of held-out rows.

        One pass over the rows; then a search over log c between 1e-4 and 1e6, by a grid and a bounded
        scalar search between the best point's neighbours.

        Parameters
        ----------
        data : rows with their targets in ``y``, or batches (x, y) such as a DataLoader
        y : (n,) class numbers or numbers; (n, 1) means the same

        Returns
        -------
        the model itself, with ``scale_``

        Raises
        ------
        DataError
            No rows, targets that do not fit the outputs, NaN or infinite targets or outputs.
        """
        before, self.scale_ = self.scale_, 1.0
        try:
            pairs = [(data, y)] if y is not None else _pairs(data)
            parts = [self._judged(rows, target) for rows, target in pairs]
            if not sum(len(mean) for mean, _, _ in parts):
                raise DataError("fit_scale needs at least one row with its target")
            mean, variance, target = (np.concatenate(column) for column in zip(*parts, strict=True))
            for given, name in ((target, "y"), (mean, "the output for x"), (variance, "its variance")):
                refuse_not_finite(torch.as_tensor(given), name)
            joined = (mean, variance, target)
            grid = np.linspace(*_LOG_SCALES, _GRID)
            values = [self._nlpd(joined, math.exp(point)) for point in grid]
            best = int(np.argmin(values))
            bounds = (grid[max(best - 1, 0)], grid[min(best + 1, _GRID - 1)])
            found = minimize_scalar(
                lambda point: self._nlpd(joined, math.exp(point)), bounds=bounds, method="bounded"
            )
            before = math.exp(found.x)
        finally:
            self.scale_ = before
        if best in (0, _GRID - 1):
            warnings.warn(
                f"the scale lies at the end of its range, {self.scale_:.3g}: the latent variances hardly "
                "change the NLPD of these rows, or are far from what they should be",
                AssayWarning,
                stacklevel=2,
            )
        return self

    def _judged(self, x: Any, y: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Latent mean and variance (m, K) and targets (m,) or (m, q), places of sequences as rows."""
        mean, variance = self.latent(x)
        shape = mean.shape
        mean, variance = mean.reshape(-1, shape[-1]), variance.reshape(-1, shape[-1])
        target = to_numpy(y)
        if self.likelihood == "classification":
            if target.ndim == len(shape) and target.shape[-1] == 1:
                target = target[..., 0]
            if target.shape != shape[:-1]:
                raise DataError(
                    f"y has shape {target.shape}, class numbers of shape {shape[:-1]} are expected"
                )
            codes = target.reshape(-1)
            if codes.dtype.kind not in "iub" or (
                len(codes) and not 0 <= codes.min() <= codes.max() < shape[-1]
            ):
                raise DataError(f"y must hold class numbers 0 .. {shape[-1] - 1}")
            return mean, variance, codes.astype(np.float64)
        if target.size != mean.size or len(target) != shape[0]:
            raise DataError(f"y has shape {target.shape}, numbers of shape {shape} are expected")
        return mean, variance, target.astype(np.float64).reshape(mean.shape)

    def _nlpd(self, judged: tuple[FloatArray, FloatArray, FloatArray], scale: float = 1.0) -> float:
        mean, variance, target = judged
        return latent_nlpd(mean, variance / scale, target, self.likelihood, self.noise_std)


def streamline(
    module: Any,
    posterior: GaussianPosterior,
    structure: str = "diag",
    likelihood: str = "classification",
    noise_std: float | None = None,
    *,
    example_input: Any = None,
) -> StreamlinedModel:
    """Carry mean and variance of a Gaussian weight posterior through a trained module in one pass.

    The module is copied; the copy is put into evaluation mode (dropout off, running statistics), whatever
    the mode of the module, and computes in float32 where the weights are narrower, with a warning.

    Each layer is taken with independent inputs and weights, an activation as linear at its mean, attention
    weights and statistics of norms as constants, the two arms of a residual as independent (Li et al.
    2025). Query and key weights count as fixed. ``structure="kron"`` carries full covariances from layer
    to layer.

    Parameters
    ----------
    module : torch.nn.Module
        Of types with a rule, see :func:`~assay.bayes.moment_rules.register_rule`: Linear, convolutions,
        norms, activations, pooling, Sequential, attention and transformer blocks of torch, of
        :mod:`assay.bayes.transformer`, and GPT-2 and Llama of transformers. What comes before the first
        random weight may be of any type.
    posterior : GaussianPosterior
        Of this module's parameters or some of them; the rest is fixed.
    structure : "diag" or "kron", default "diag"
    likelihood : "classification" or "regression", default "classification"
    noise_std : float, optional
        sd of the noise, in the units of the output; needed for regression.
    example_input : optional
        A batch to try the whole pass on at once; without it, modules are looked at, not run.

    Raises
    ------
    MethodError
        A module without a rule, shared weights, a posterior of another architecture, regression without
        its noise: each by name.

    References
    ----------
    Li, Klasson, Solin, Trapp (2025), Streamlining prediction in Bayesian deep learning, ICLR.
    """
    if structure not in ("diag", "kron"):
        raise MethodError(f"structure must be 'diag' or 'kron', got {structure!r}")
    if likelihood not in ("classification", "regression"):
        raise MethodError(f"likelihood must be 'classification' or 'regression', got {likelihood!r}")
    if likelihood == "regression" and (noise_std is None or not 0 < noise_std < math.inf):
        raise MethodError(f"regression needs noise_std, the sd of the noise, above 0; got {noise_std!r}")
    copied = working_copy(module)
    posterior.check(copied)
    refuse_shared(copied, posterior.names)
    for parameter in copied.parameters():
        parameter.requires_grad_(False)
    model = StreamlinedModel(copied, posterior, structure, likelihood, noise_std)
    _refuse_unknown(model._scope)
    if example_input is not None:
        model.forward_latent(example_input)
    return model


def _refuse_unknown(scope: Scope, reached: bool = False) -> None:
    """Refuse the first module that no rule knows and that variance reaches, as far as can be seen.

    Those with random weights below them, and in a Sequential what comes after one of these (``reached``).
    """
    if not scope.random and not reached:
        return
    if scope.rule() is None:
        raise unknown(scope)
    in_turn = isinstance(scope.module, torch.nn.Sequential)
    for name, _ in scope.module.named_children():
        child = scope.child(name)
        # a list of modules is no module that runs; its owner's rule runs the members
        if isinstance(child.module, torch.nn.ModuleList | torch.nn.ModuleDict):
            for inner, _ in child.module.named_children():
                _refuse_unknown(scope.child(f"{name}.{inner}"))
        else:
            _refuse_unknown(child, in_turn and reached)
            reached = reached or child.random


def to_array(x: Any) -> Any:
    """A tensor as it is, anything else as an array."""
    return x if isinstance(x, torch.Tensor) else to_numpy(x)


def _pairs(data: Any) -> Iterable[tuple[Any, Any]]:
    for batch in data:
        if not isinstance(batch, tuple | list) or len(batch) < 2:
            raise DataError("fit_scale needs targets: give fit_scale(rows, y), or batches (x, y)")
        yield batch[0], batch[1]
