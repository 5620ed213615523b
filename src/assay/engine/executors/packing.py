"""A question as it travels to other processes and machines."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cloudpickle

from assay.core.errors import MethodError
from assay.data.table import Table
from assay.engine.plan import Limits, Question


@dataclass(frozen=True)
class Packed:
    """A question in parts: all but its table as bytes, the table, and the place of each method by name."""

    contents: bytes
    table: Table
    places: Mapping[str, int]
    limits: Limits


def pack(question: Question) -> Packed:
    """Pack a question; each method apart so that one cannot spoil the others.

    Classes of a script or notebook travel by value.

    Raises
    ------
    MethodError
        A method or the model cannot be pickled.
    """
    methods = []
    for method in question.methods:
        methods.append((method.name, _dump(method, f"method {method.name!r}")))
    contents = {
        "task": question.task,
        "options": dict(question.options),
        "alpha": question.alpha,
        "model": _dump(question.model, "the model"),
        "methods": methods,
        "path": list(sys.path),
    }
    places = {method.name: i for i, method in enumerate(question.methods)}
    return Packed(pickle.dumps(contents), question.table, places, question.limits)


def _dump(value: Any, what: str) -> bytes:
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        raise MethodError(
            f"{what} cannot be sent to a worker process: {type(error).__name__}: {error}; "
            "run with in_process=True, or define it so that it can be pickled"
        ) from error
