"""Fitted state that is whole or not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def all_or_nothing(method: Any) -> Iterator[None]:
    """Put the attributes of ``method`` back as they were if the block raises.

    A fit that fails leaves an unfitted object unfitted, and a fitted one with its former fit whole.
    """
    before = dict(vars(method))
    try:
        yield
    except BaseException:
        vars(method).clear()
        vars(method).update(before)
        raise
