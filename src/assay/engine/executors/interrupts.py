"""Ctrl-C at moments of our choosing, and an orderly end where the system asks for one.

A KeyboardInterrupt may be raised between any two instructions of the main thread, also inside the
locks of the standard library: one that hits ``Condition.notify`` loses a wake-up, and the pool's
threads then wait for ever. While a pool is at work the interrupt is therefore noted and raised by
the executor's own loop, a tenth of a second later at most. SIGTERM and SIGHUP would end the
program with its temporary files left behind: they are noted as well, and sent again afterwards.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any


class InterruptNote:
    """Notes the first signal that asks for an end; the second one acts at once, for who will not wait.

    Does nothing outside the main thread, or where the program has a handler of its own. The
    handlers that were there are put back by ``restore``.
    """

    def __init__(self) -> None:
        self._noted: int | None = None
        self._to_pass_on: int | None = None
        self._installed: dict[int, Any] = {}

    def install(self) -> None:
        """Take over the signals that have their default handlers."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number, default in _defaults().items():
            if signal.getsignal(number) is default:
                signal.signal(number, self._handle)
                self._installed[number] = default

    def restore(self) -> None:
        """Put the default handlers back; a noted SIGTERM or SIGHUP then ends the program."""
        for number, default in self._installed.items():
            signal.signal(number, default)
        self._installed.clear()
        if self._to_pass_on is not None:
            signal.raise_signal(self._to_pass_on)

    def check(self) -> None:
        """Raise KeyboardInterrupt if a signal has been noted since the last check."""
        if self._noted is not None:
            self._noted = None
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> Any:
        if self._noted is not None:
            signal.signal(number, self._installed[number])
            signal.raise_signal(number)
        self._noted = number
        if number != signal.SIGINT:
            self._to_pass_on = number


def _defaults() -> dict[int, Any]:
    """The signals by which a program is asked to end, and what is there where nobody has set a handler."""
    found: dict[int, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }
    if sys.platform != "win32":
        found[signal.SIGHUP] = signal.SIG_DFL
    return found
