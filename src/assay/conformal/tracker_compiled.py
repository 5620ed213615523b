"""Step functions written once: NumPy runs them on all series together, Numba on one series at a time.

A step is a function ``step(p, c, s, q, spread, k)``, or ``step(p, c, s, q, pvalue, n)``, of numbers ``p``
(a NamedTuple of floats), columns ``c``, a score and the threshold that was in force for it. In NumPy ``c``
is (m, n_series) and the others are (n_series,); in compiled code ``c`` is (m,) and the others are numbers.
Choices between values are written with :func:`pick`, so that both readings are the same text. In NumPy a
column that was read is a view: what needs its old value is computed before the column is written.

The compiled path is taken wherever Numba is installed (extra ``fast``), whatever the size of a call: the
same series then gives the same bits however its scores are divided into calls.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Hashable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

Step = Callable[..., Any]

#: class of the parameters -> the step that they are for
_STEPS: dict[type, Step] = {}
#: function -> what Numba compiles in its place
_TWINS: dict[Callable[..., Any], Callable[..., Any]] = {}


def step_for(parameters: type) -> Callable[[Step], Step]:
    """Decorator: the function is the step of trackers with parameters of this class."""

    def register(step: Step) -> Step:
        _STEPS[parameters] = step
        return step

    return register


def advance(p: Any, c: Any, s: Any, q: Any, spread: Any, k: Any) -> None:
    """The step that belongs to the class of ``p``; compiled code finds it by type."""
    _STEPS[type(p)](p, c, s, q, spread, k)


def advance_levels(p: Any, c: Any, s: Any, q: Any, pvalue: Any, n: Any) -> None:
    """The same for trackers of levels; Numba wants the names of the step's parameters."""
    _STEPS[type(p)](p, c, s, q, pvalue, n)


def compiled_as(twin: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: a function that works on arrays, with the one that works on numbers for Numba."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        _TWINS[function] = twin
        return function

    return register


def _pick_one(condition: Any, a: Any, b: Any) -> Any:
    return a if condition else b


@compiled_as(_pick_one)
def pick(condition: Any, a: Any, b: Any) -> Any:
    """a where the condition holds, else b."""
    return np.where(condition, a, b)


@cache
def has_numba() -> bool:
    """Whether compiled code is used."""
    return importlib.util.find_spec("numba") is not None


@cache
def compiled(build: Callable[[str], Callable[..., Any]], parameters: Hashable) -> Any:
    """The driver that ``build`` defines, compiled for trackers with parameters of this class.

    Numba keeps compiled code on disk and looks only at the file of the driver to see whether it is
    still right. So ``build(digest)`` must define a function that closes over ``digest``: what a
    function closes over is part of its key, and the digest covers the files that it calls into.
    """
    numba: Any = importlib.import_module("numba")
    _extend_numba()
    for function in tuple(_TWINS):  # of every tracker imported by now
        _extend_with(function)
    driver = build(_digest(_STEPS.get(parameters, build)))  # type: ignore[call-overload]
    options = {"error_model": "numpy", "nogil": True}
    try:
        return numba.njit(driver, cache=True, **options)
    except RuntimeError:  # no folder can be written: compiled again in each process
        return numba.njit(driver, **options)


@cache
def _extend_numba() -> None:
    """Tell Numba how it finds the step of a tracker."""
    overload: Any = importlib.import_module("numba.extending").overload
    options = {"error_model": "numpy"}

    def find_step(p: Any, c: Any, s: Any, q: Any, spread: Any, k: Any) -> Any:
        return _STEPS[p.instance_class]

    def find_level_step(p: Any, c: Any, s: Any, q: Any, pvalue: Any, n: Any) -> Any:
        return _STEPS[p.instance_class]

    overload(advance, jit_options=options)(find_step)
    overload(advance_levels, jit_options=options)(find_level_step)


@cache
def _extend_with(function: Callable[..., Any]) -> None:
    """Tell Numba of a function with a twin."""
    overload: Any = importlib.import_module("numba.extending").overload
    overload(function, jit_options={"error_model": "numpy"})(_always(_TWINS[function]))


def _always(twin: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the parameters of ``twin`` that gives ``twin`` for all types."""

    def choose(*_types: Any) -> Callable[..., Any]:
        return twin

    choose.__signature__ = inspect.signature(twin)  # type: ignore[attr-defined]
    return choose


def _digest(step: Step) -> str:
    """Of the file of the step and of the parts that trackers share."""
    own = getattr(sys.modules[step.__module__], "__file__", None)
    files = {*Path(__file__).parent.glob("tracker_*.py"), *([Path(own)] if own else [])}
    content = b"".join(path.read_bytes() for path in sorted(files))
    return hashlib.sha256(content).hexdigest()
