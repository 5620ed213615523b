"""Ctrl-C at moments of our choosing.

A KeyboardInterrupt may be raised between any two instructions of the main thread, also inside the
locks of the standard library: one that hits ``Condition.notify`` loses a wake-up, and the pool's
threads then wait for ever. While a pool is at work the interrupt is therefore noted and raised by
the executor's own loop, a tenth of a second later at most.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any


class InterruptNote:
    """Notes the first SIGINT; the second one raises at once, for who will not wait.

    Does nothing outside the main thread, or where the program has a handler of its own. The
    handler that was there is put back by ``restore``.
    """

    def __init__(self) -> None:
        self._noted = False
        self._installed = False

    def install(self) -> None:
        """Take over SIGINT from Python's default handler."""
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)
            self._installed = True

    def restore(self) -> None:
        """Give SIGINT back to the default handler."""
        if self._installed:
            self._installed = False
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def check(self) -> None:
        """Raise KeyboardInterrupt if one has been noted since the last check."""
        if self._noted:
            self._noted = False
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> Any:
        if self._noted:
            signal.default_int_handler(number, frame)
        self._noted = True
