"""Worker processes that start afresh and leave the user's script alone.

The standard "spawn" start imports the program's main module again in every child, so that a plain
script without a ``__main__`` guard would start itself over and over. These workers never do: what
they need of the script arrives by value. This module is imported in the child before the number of
threads is set, hence imports nothing heavy.
"""

from __future__ import annotations

import multiprocessing.context
import multiprocessing.process
import multiprocessing.spawn
import signal
import sys
import types
from typing import Any

#: exit code of a worker that ended itself with status 0 in the middle of a trial; the pool
#: takes a plain 0 for a regular end and would wait for that trial for ever
ENDED_WITH_ZERO = 1_000_000

if sys.platform == "win32":
    from multiprocessing.popen_spawn_win32 import Popen

    _LAUNCH = "__init__"
else:
    from multiprocessing.popen_spawn_posix import Popen

    _LAUNCH = "_launch"


class _SpawnWithoutMain:
    """``multiprocessing.spawn`` as a launch sees it, less the way to the main module."""

    def __getattr__(self, name: str) -> Any:
        return getattr(multiprocessing.spawn, name)

    @staticmethod
    def get_preparation_data(name: str) -> dict[str, Any]:
        data: dict[str, Any] = multiprocessing.spawn.get_preparation_data(name)
        data.pop("init_main_from_name", None)
        data.pop("init_main_from_path", None)
        return data


def _launch_without_main() -> Any:
    """The standard launch, with its own view of the ``spawn`` module: nothing global is replaced."""
    standard = getattr(Popen, _LAUNCH)
    view = {**standard.__globals__, "spawn": _SpawnWithoutMain()}
    return types.FunctionType(standard.__code__, view, standard.__name__, None, standard.__closure__)


# super() in the standard __init__ needs the class cell, which the copy keeps
_WorkerPopen = type("_WorkerPopen", (Popen,), {_LAUNCH: _launch_without_main()})


class WorkerProcess(multiprocessing.context.SpawnProcess):
    """A spawned process that does not import the main module and whose end is always told."""

    @staticmethod
    def _Popen(process_obj: Any) -> Any:
        if sys.platform == "win32":
            return _WorkerPopen(process_obj)
        # Ctrl-C goes to the whole terminal group: a child that is still starting must not see it
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return _WorkerPopen(process_obj)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    @property
    def exitcode(self) -> int | None:
        code = super().exitcode
        return ENDED_WITH_ZERO if code == 0 else code


class WorkerContext(multiprocessing.context.SpawnContext):
    """A multiprocessing context whose processes are :class:`WorkerProcess`, all remembered."""

    def __init__(self) -> None:
        super().__init__()
        self.processes: list[WorkerProcess] = []

    def Process(self, *args: Any, **kwargs: Any) -> WorkerProcess:  # type: ignore[override]
        process = WorkerProcess(*args, **kwargs)
        self.processes.append(process)
        return process

    def process(self, pid: int) -> WorkerProcess | None:
        """The process with that id, dead or alive."""
        return next((process for process in self.processes if process.pid == pid), None)
