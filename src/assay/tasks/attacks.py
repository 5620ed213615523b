"""Moves of test rows within a radius that try to drive the true label out of its set."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.models import is_torch_module
from assay.core.probabilities import is_probability

FloatArray = NDArray[np.float64]
#: noisy copies of a row over which the attacker averages
_COPIES = 8
#: the same where slopes are estimated
_SLOPE_COPIES = 4
#: directions in which a slope is measured; all of them where features are fewer
_DIRECTIONS = 64
#: steps of the search: down the slope from each start, then at random; and of projected gradients
DESCENT_STEPS = 4
RANDOM_STEPS = 12
GRADIENT_STEPS = 20
#: of all rows of the other classes, so many are looked through for the nearest
_NEIGHBOURS = 2000


def on_sphere(moves: FloatArray, radius: float) -> FloatArray:
    """The moves (n, d) with l2 norm ``radius`` each; a move of zero stays."""
    norms = np.linalg.norm(moves, axis=1, keepdims=True)
    return np.asarray(moves * (radius / np.where(norms > 0, norms, 1)))


def random_moves(X: FloatArray, radius: float, rng: np.random.Generator) -> FloatArray:
    """X moved by ``radius`` in a random direction each."""
    return np.asarray(X + on_sphere(rng.standard_normal(X.shape), radius))


def search(
    chance: Callable[[FloatArray], FloatArray],
    X: FloatArray,
    radius: float,
    noise_scale: float,
    rng: np.random.Generator,
    towards: FloatArray | None = None,
) -> FloatArray:
    """X moved by ``radius`` so that the true label's chance is small; needs nothing but the chances.

    Descent along slopes that are estimated from finite differences, averaged over a few noisy copies, from a
    random direction and from the one ``towards`` given rows; the best move found then goes on by random
    steps, which is what is left where chances are constant near by, as those of trees are.

    Parameters
    ----------
    chance : function of (n * copies, d) rows, each copy's rows together, giving their labels' chances
    X : (n, d)
    radius, noise_scale : float
        Of the ball, and of the noise that the attacker expects; 0 for none.
    towards : (n, d), optional
        Rows of another class.
    """
    if radius == 0:
        return X.copy()
    copies = _COPIES if noise_scale > 0 else 1
    noise = noise_scale * rng.standard_normal((copies, *X.shape))

    def of(moves: FloatArray, n_copies: int = copies) -> FloatArray:
        values = chance((X + moves + noise[:n_copies]).reshape(-1, X.shape[1]))
        return np.asarray(values.reshape(n_copies, len(X)).mean(axis=0))

    def slopes(moves: FloatArray) -> FloatArray:
        d = X.shape[1]
        directions = np.linalg.qr(rng.standard_normal((d, min(d, _DIRECTIONS))))[0].T
        few = min(copies, _SLOPE_COPIES)
        here = of(moves, few)
        out = np.zeros_like(X)
        for direction in directions:
            out += np.outer(of(moves + radius / 4 * direction, few) - here, direction)
        return out

    best_moves = on_sphere(rng.standard_normal(X.shape), radius)
    best = of(best_moves)

    def keep_better(tried: FloatArray) -> None:
        values = of(tried)
        lower = values < best
        best_moves[lower], best[lower] = tried[lower], values[lower]

    starts = [best_moves.copy()] if towards is None else [best_moves.copy(), on_sphere(towards - X, radius)]
    for moves in starts:
        keep_better(moves)
        for _ in range(DESCENT_STEPS):
            step = on_sphere(slopes(moves), 2.5 * radius / DESCENT_STEPS)
            moves = on_sphere(moves - step, radius)
            keep_better(moves)
    for step_number in range(RANDOM_STEPS):
        length = radius * (0.8 - 0.6 * step_number / RANDOM_STEPS)
        keep_better(on_sphere(best_moves + on_sphere(rng.standard_normal(X.shape), length), radius))
    return np.asarray(X + best_moves)


def projected_gradient(
    module: Any,
    X: FloatArray,
    codes: NDArray[np.intp],
    radius: float,
    noise_scale: float,
    rng: np.random.Generator,
    steps: int = GRADIENT_STEPS,
) -> FloatArray:
    """X moved by at most ``radius`` along the gradient of the true label's loss, averaged over noise (PGD).

    ``module`` is a torch module that gives logits or probabilities; its mode and gradients stay as they are.
    """
    torch = sys.modules["torch"]
    parameter = next(module.parameters(), None)
    kind = {} if parameter is None else {"device": parameter.device, "dtype": parameter.dtype}
    copies = _COPIES if noise_scale > 0 else 1
    rows = torch.as_tensor(X, **kind)
    labels = torch.as_tensor(codes, device=rows.device).repeat(copies)
    shape = (len(X), *[1] * (X.ndim - 1))
    moves = torch.as_tensor(_unit(rng.standard_normal(X.shape)) * radius * rng.random(shape), **kind)
    modes = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            are_chances = is_probability(module(rows).cpu().numpy())
        for _ in range(steps):
            noise = torch.as_tensor(noise_scale * rng.standard_normal((copies, *X.shape)), **kind)
            moves = moves.detach().requires_grad_(True)
            with torch.enable_grad():
                outputs = module((rows + moves + noise).reshape(-1, *X.shape[1:]))
                logs = outputs.clamp_min(1e-30).log() if are_chances else outputs.log_softmax(dim=1)
                loss = -logs[torch.arange(len(logs), device=logs.device), labels].sum()
                (gradient,) = torch.autograd.grad(loss, moves)
            moves = moves.detach() + 2.5 * radius / steps * gradient / _norms(gradient).clamp_min(1e-30)
            moves = moves * (radius / _norms(moves).clamp_min(1e-30)).clamp_max(1)
    finally:
        for part, training in modes:
            part.training = training
    return np.asarray(X + moves.cpu().numpy().astype(np.float64))


def _norms(moves: Any) -> Any:
    return moves.flatten(1).norm(dim=1).reshape(-1, *[1] * (moves.ndim - 1))


def _unit(moves: FloatArray) -> FloatArray:
    return on_sphere(moves.reshape(len(moves), -1), 1.0).reshape(moves.shape)


def nearest_of_others(
    X: FloatArray, y: NDArray[Any], rows: FloatArray, labels: NDArray[Any], rng: np.random.Generator
) -> FloatArray:
    """(n, d) for each row of X the nearest of (at most 2,000 of) the given rows that has another label."""
    if len(rows) > _NEIGHBOURS:
        some = rng.choice(len(rows), _NEIGHBOURS, replace=False)
        rows, labels = rows[some], labels[some]
    distance = (X**2).sum(axis=1)[:, None] - 2 * X @ rows.T + (rows**2).sum(axis=1)
    distance[y[:, None] == labels] = np.inf
    return np.asarray(rows[np.argmin(distance, axis=1)])


def torch_module(method: Any) -> Any:
    """The torch module in a fitted method (its model, or the model's ``module_``); None if none."""
    model = getattr(method, "estimator_", None)
    for found in (model, getattr(model, "module_", None)):
        if is_torch_module(found):
            return found
    return None


class Calls:
    """Number of rows that a model has been asked about."""

    rows = 0


@contextlib.contextmanager
def counted(model: Any) -> Iterator[Calls | None]:
    """Count the rows a fitted model is asked about; None for a model that cannot be watched."""
    calls = Calls()
    if is_torch_module(model):

        def seen(_: Any, inputs: Any) -> None:
            calls.rows += len(inputs[0])

        handle = model.register_forward_pre_hook(seen)
        try:
            yield calls
        finally:
            handle.remove()
        return
    verb = next((name for name in ("predict_proba", "decision_function") if hasattr(model, name)), None)
    if verb is None or not hasattr(model, "__dict__"):
        yield None
        return
    asked = getattr(model, verb)

    def watched(X: Any) -> Any:
        calls.rows += len(X)
        return asked(X)

    setattr(model, verb, watched)
    try:
        yield calls
    finally:
        delattr(model, verb)
