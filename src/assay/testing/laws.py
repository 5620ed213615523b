"""The names of the laws, and what a check is."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeVar
from unittest import SkipTest

#: slug -> what a method that keeps the law does; the order is that of CONFORMANCE
LAWS = {
    "exact-rank": "The threshold is the exact ceil((1 - alpha)(n + 1))-th smallest score, infinite beyond n.",
    "batching": "The answer for a row does not depend on the rows that are asked for with it.",
    "order": "Permuting calibration rows, test rows or classes changes nothing but the order of the answer.",
    "types": "Lists, tables, tensors, float16 to float64, (n,) and (n, 1), one row and no row all work.",
    "labels": "Labels may be integers, text or booleans; classes may be absent; probabilities are checked.",
    "nan-inf": "NaN is refused with its input, first row and count, and never becomes a quiet number.",
    "alpha": "Every spelling of a level gives the same answer; levels outside [0, 1) are refused.",
    "unseen-groups": "A group or class without calibration rows gets everything, with a warning.",
    "streams": "A stream goes on when its level leaves [0, 1] or an outcome is missing, in constant memory.",
    "one-rule": "A label or value is in the set exactly when its score is at most the threshold.",
    "one-distribution": "Density, cdf, quantiles, moments, draws and predictions are of one distribution.",
    "nothing-global": "Warning filters, random states, threads, inputs and the user's model stay.",
    "object-life": "clone, pickle, deepcopy, set_params, refit and other processes give the same answer.",
    "saving": "A fitted object that is saved and loaded gives the same answer to the bit.",
    "memory": "The working set is bounded, and results do not depend on the bound.",
    "error-numbers": "Errors and warnings say what, where, how many, and what would work.",
}


class LawBroken(AssertionError):
    """A method does not keep a law; the message says what was expected and what came."""


class NotApplicable(SkipTest):
    """A check has nothing to test on this method; the message says why. Test runners show it as skipped."""


CheckFunction = Callable[[Any, Any], None]
_F = TypeVar("_F", bound=CheckFunction)


def law(slug: str, *, verbs: tuple[str, ...] = (), forms: str = "all") -> Callable[[_F], _F]:
    """Mark a function ``check(contract, subject)`` as a check of one law.

    ``verbs`` are methods that the class must have for the check to mean anything. ``forms`` says
    which contracts it is for: "model" (those that train), "bare" (those from predictions), "all", or one
    form by its name.
    """
    if slug not in LAWS:
        raise KeyError(f"no law {slug!r}; the laws are {sorted(LAWS)}")

    def mark(function: _F) -> _F:
        function.__law__ = slug  # type: ignore[attr-defined]
        function.__verbs__ = verbs  # type: ignore[attr-defined]
        function.__forms__ = forms  # type: ignore[attr-defined]
        return function

    return mark


def checks_of(module: ModuleType, form: str) -> Iterator[tuple[str, str, tuple[str, ...], CheckFunction]]:
    """(name, law, verbs, function) of each check that a module has for a form, in the order of the file."""
    for name, function in vars(module).items():
        slug = getattr(function, "__law__", None)
        if not inspect.isfunction(function) or slug is None or function.__module__ != module.__name__:
            continue
        if getattr(function, "__forms__", "all") in ("all", "bare" if form else "model", form):
            yield f"{slug}/{name.replace('_', '-')}", slug, getattr(function, "__verbs__", ()), function


def require(condition: Any, message: str) -> None:
    """Raise LawBroken with the message unless the condition holds."""
    if not condition:
        raise LawBroken(message)
