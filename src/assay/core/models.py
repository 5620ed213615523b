"""Calling the user's model: a scikit-learn estimator, a torch module or a plain function."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from assay.core.checks import FloatArray, refuse_nan, row_count, to_float, to_numpy
from assay.core.errors import DataError, MethodError, MissingDependency
from assay.core.probabilities import is_probability, softmax
from assay.core.seeds import derive_seed

_TORCH_BATCH = 8192
#: (model, rows, kind of answer), by identity -> (model, rows, answer), inside of asked_once
_answers: ContextVar[dict[tuple[int, int, str], tuple[Any, Any, Any]] | None] = ContextVar(
    "answers", default=None
)


@contextlib.contextmanager
def asked_once() -> Iterator[None]:
    """Inside, a model is asked once for the same rows (the same object), whoever wants the answer again.

    A prediction and the interval around it then cost one call of the model. Nothing is kept afterwards;
    inside, rows and answers must not be written into.
    """
    token = _answers.set({})
    try:
        yield
    finally:
        _answers.reset(token)


def _once(model: Any, X: Any, kind: str, ask: Callable[[Any], Any]) -> Any:
    """``ask(X)``, or inside of :func:`asked_once` what it gave before."""
    known = _answers.get()
    if known is None:
        return ask(X)
    key = (id(model), id(X), kind)
    if key not in known:
        known[key] = (model, X, ask(X))  # both are held, so that their ids stay theirs
    return known[key][2]


def is_torch_module(model: Any) -> bool:
    """Whether the model is a torch.nn.Module; never imports torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def untrained(model: Any, what: str, seed: int | None = None) -> Any:
    """A clone of the user's model for ``fit`` to train; with ``seed``, one without a seed gets its own.

    Raises
    ------
    MethodError
        It is no scikit-learn style estimator; ``what`` is what the message calls it.
    """
    if not (hasattr(model, "fit") and hasattr(model, "get_params")):
        raise MethodError(
            f"fit trains a clone of the {what}, but {type(model).__name__} is no scikit-learn style "
            "estimator; train it yourself and use calibrate"
        )
    copy = clone(model)
    if seed is not None and copy.get_params().get("random_state", seed) is None:
        copy.set_params(random_state=derive_seed(seed, what))
    return copy


def import_torch(what: str) -> Any:
    """The module torch, or one line that installs it for ``what``."""
    try:
        import torch
    except ImportError:
        raise MissingDependency(f"{what} needs: pip install 'assay[torch]'") from None
    return torch


def run_torch(model: Any, X: Any) -> NDArray[Any]:
    """Outputs of a torch module on the rows of X, in evaluation mode and in batches.

    The input goes to the module's own device and dtype; modes and gradients are as before afterwards.
    """
    torch = sys.modules["torch"]
    parameter = next(model.parameters(), None)
    device = parameter.device if parameter is not None else "cpu"
    dtype = parameter.dtype if parameter is not None else torch.float32
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        with torch.no_grad():
            tensor = X if isinstance(X, torch.Tensor) else torch.as_tensor(np.asarray(to_numpy(X)))
            outputs = [
                model(tensor[i : i + _TORCH_BATCH].to(device=device, dtype=dtype)).cpu()
                for i in range(0, len(tensor), _TORCH_BATCH)
            ]
    finally:
        for module, training in modes:
            module.training = training
    return to_numpy(torch.cat(outputs)) if outputs else np.empty((0,))


def predict_values(model: Any, X: Any, *, columns: int = 1) -> FloatArray:
    """Predictions of a fitted regressor as float64: (n,) for one column, (n, columns) otherwise.

    ``model`` has ``predict``, is a torch module, or is a function of X. Zero rows give zero rows
    without calling the model.

    Raises
    ------
    MethodError
        The model can do none of the three.
    DataError
        Its predictions have the wrong shape or contain NaN.
    """
    n = row_count(X)
    empty = (0,) if columns == 1 else (0, columns)
    if n == 0:
        return np.empty(empty)
    raw: Any
    if hasattr(model, "predict"):
        raw = _once(model, X, "predict", model.predict)
    elif is_torch_module(model):
        raw = _once(model, X, "module", lambda rows: run_torch(model, rows))
    elif callable(model):
        raw = _once(model, X, "call", model)
    else:
        raise MethodError(
            f"{type(model).__name__} has no predict and cannot be called; give a fitted scikit-learn "
            "estimator, a torch module or a function of X"
        )
    out = to_float(to_numpy(raw), "the model's prediction")
    if columns == 1 and out.ndim == 2 and out.shape[1] == 1:
        out = out[:, 0]
    expected = (n,) if columns == 1 else (n, columns)
    if out.shape != expected:
        raise DataError(f"the model's prediction has shape {out.shape}, expected {expected}")
    refuse_nan(out, "the model's prediction")
    return out


def as_predictor(model: Any) -> Callable[[Any], FloatArray]:
    """A function of X for any model that :func:`predict_values` takes."""
    return lambda X: predict_values(model, X)


def predict_probabilities(model: Any, X: Any, outputs: str | None = None) -> tuple[NDArray[Any], str]:
    """Class probabilities of a fitted classifier, and how its outputs were read.

    ``model`` has ``predict_proba`` or ``decision_function``, is a torch module, or is a function of
    X that gives probabilities. Decision values are read as logits. What a torch module gives is
    decided by ``outputs``: "probabilities" or "logits" (softmax); None looks at the rows of X and
    takes them for logits unless every row is a probability. Keep the answer of that look for later
    calls. A single column of a torch module or a function belongs to the second of two classes.

    Parameters
    ----------
    model : classifier, torch module or function
    X : (n, d) table of at least one row
    outputs : str, optional

    Returns
    -------
    (n, K) array and "probabilities" or "logits"; the probabilities themselves are not checked.

    Raises
    ------
    MethodError
        The model can do none of these.
    DataError
        Its outputs have the wrong shape.
    """
    raw: Any
    two_columns = not hasattr(model, "predict_proba")
    if not two_columns:
        raw, outputs = _once(model, X, "predict_proba", model.predict_proba), "probabilities"
    elif hasattr(model, "decision_function"):
        raw, outputs = _once(model, X, "decision_function", model.decision_function), "logits"
    elif is_torch_module(model):
        raw = _once(model, X, "module", lambda rows: run_torch(model, rows))
    elif callable(model) and not hasattr(model, "predict"):
        raw, outputs = _once(model, X, "call", model), "probabilities"
    else:
        raise MethodError(
            f"{type(model).__name__} gives no probabilities; give a fitted scikit-learn classifier with "
            "predict_proba or decision_function, a torch module or a function of X"
        )
    out = to_numpy(raw)
    n = row_count(X)
    if out.ndim not in (1, 2) or len(out) != n:
        raise DataError(f"the model's output has shape {out.shape}, expected {n} rows and one column a class")
    if out.dtype.kind != "f":
        out = to_float(out, "the model's output")
    if outputs is None:
        outputs = "probabilities" if is_probability(out) else "logits"
    if outputs == "logits":
        refuse_nan(out, "the model's output")
        return softmax(out), outputs
    if two_columns and (out.ndim == 1 or out.shape[1] == 1):
        positive = out.reshape(-1)
        out = np.stack([1 - positive, positive], axis=1)
    return out, outputs
