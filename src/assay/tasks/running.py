"""Fitting a method on a split by what it offers, and timing its predictions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from fractions import Fraction
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from assay.core.checks import to_numpy
from assay.core.errors import MethodError
from assay.tasks.base import Asked, Split

_T = TypeVar("_T")


def takes(function: Any, name: str) -> bool:
    """Whether the function names that parameter."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def has(method: Any, name: str) -> bool:
    """Whether the object has a method of that name."""
    return callable(getattr(method, name, None))


def lacks(method: Any, predict: str) -> str | None:
    """Which of ``fit(X, y)`` and the named prediction a class or object has not; None if it has both."""
    named = method.__name__ if inspect.isclass(method) else type(method).__name__
    for attribute, call in (("fit", "fit(X, y)"), (predict, f"{predict}(X)")):
        if not callable(getattr(method, attribute, None)):
            return f"{named} has no {call}"
    return None


def calibrates(method: Any) -> bool:
    """Whether the method keeps calibration rows apart from its training rows."""
    return takes(method.fit, "X_calib") or callable(getattr(method, "calibrate", None))


def rows(method: Any, split: Split) -> tuple[int, int]:
    """(rows that train the method, rows that calibrate it): 0 of the latter where it trains on both."""
    train, calib = len(split.y_train), len(split.y_calib)
    return (train, calib) if calibrates(method) else (train + calib, 0)


def takes_groups(method: Any) -> bool:
    """Whether the method works on groups of rows: its ``fit`` names ``groups``."""
    return takes(method.fit, "groups")


def fit(method: Any, split: Split) -> float:
    """Fit, and calibrate, the method on the split; the seconds it took.

    Where the split has groups and ``fit`` names ``groups``, it gets those of its rows, as ``groups_calib``
    those of X_calib; a ``calibrate`` gets ``groups`` too.
    """
    groups: dict[str, Any] = {}
    groups_calib: dict[str, Any] = {}
    known = split.groups_train is not None and split.groups_calib is not None and takes_groups(method)
    if known:
        groups, groups_calib = {"groups": split.groups_train}, {"groups": split.groups_calib}
    start = perf_counter()
    if takes(method.fit, "X_calib"):
        if known:
            groups["groups_calib"] = split.groups_calib
        method.fit(split.X_train, split.y_train, X_calib=split.X_calib, y_calib=split.y_calib, **groups)
    elif callable(getattr(method, "calibrate", None)):
        method.fit(split.X_train, split.y_train, **groups)
        method.calibrate(split.X_calib, split.y_calib, **groups_calib)
    else:
        X = np.concatenate([split.X_train, split.X_calib])
        if known:
            groups = {"groups": np.concatenate([groups["groups"], groups_calib["groups"]])}
        method.fit(X, np.concatenate([split.y_train, split.y_calib]), **groups)
    return perf_counter() - start


def timed(call: Callable[..., _T], *arguments: Any) -> tuple[_T, float]:
    """What a call returns, and the seconds it took."""
    start = perf_counter()
    answer = call(*arguments)
    return answer, perf_counter() - start


def has_alpha(method: Any) -> bool:
    """Whether alpha is an argument of the constructor, and so was set by the comparison."""
    return takes(type(method).__init__, "alpha")


def predict(method: Any, name: str, split: Split, alpha: Fraction) -> tuple[Any, float, tuple[str, ...]]:
    """(what ``method.name`` says of the test rows, seconds, notices)."""
    start = perf_counter()
    answer, notices = ask(method, name, split.X_test, alpha, split.groups_test)
    return answer, perf_counter() - start, notices


def answer(asked: Asked, name: str) -> Any:
    """What the method says by the call of that name."""
    return ask(asked.method, name, asked.X, asked.alpha, asked.groups)[0]


def centre(asked: Asked) -> dict[str, Any]:
    """``prediction`` (n,), where the method has one."""
    return {"prediction": to_numpy(asked.method.predict(asked.X))} if has(asked.method, "predict") else {}


def ask(method: Any, name: str, X: Any, alpha: Fraction, groups: Any = None) -> tuple[Any, tuple[str, ...]]:
    """(what ``method.name`` says of rows, notices); it gets the level and the groups where it takes them."""
    call: Callable[..., Any] = getattr(method, name)
    options: dict[str, Any] = {}
    notices: tuple[str, ...] = ()
    if not has_alpha(method):
        if takes(call, "alpha"):
            options["alpha"] = float(alpha)
        else:
            notices = (f"takes no alpha, neither its constructor nor {name}: it ran at its own level",)
    if groups is not None and takes_groups(method):
        options["groups"] = groups
    answer = call(X, **options)
    if answer is None:
        raise MethodError(f"{name} returned nothing; {len(X)} rows were asked for")
    return answer, notices
