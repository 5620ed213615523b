"""torch, where a method that needs it is used."""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager
from typing import Any

from threadpoolctl import ThreadpoolController


def one_thread() -> AbstractContextManager[Any]:
    """Linear algebra on one thread, for answers that can be repeated; torch must be loaded by now."""
    return _libraries().limit(limits=1)  # type: ignore[no-any-return]


@functools.cache
def _libraries() -> ThreadpoolController:
    # looking for loaded libraries takes milliseconds, longer than a pass of a small network
    return ThreadpoolController()
