"""What a trial leaves behind in its process, where the next trial would meet it.

A worker carries out many trials. One that changes an environment variable, sets an option of
numpy or replaces one of its functions, or leaves a thread running, would change the numbers of
those that come after it: such a process is not used again.
"""

from __future__ import annotations

import gc
import locale
import os
import signal
import sys
import threading
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import sklearn

#: packages whose functions and classes must stay what they are
_WATCHED = ("numpy", "sklearn", "random")
_NAMES_SHOWN = 5


class Footprint:
    """Remembers a process as it is; ``left`` tells what has changed since.

    Functions are remembered on creation, settings when ``begin`` is called: importing a method may
    change settings (torch does), but must not replace functions of others.
    """

    def __init__(self) -> None:
        self._functions = _functions()
        self._settings: dict[str, Any] | None = None

    def begin(self) -> None:
        """Remember the settings."""
        self._settings = _settings()

    def left(self) -> list[str]:
        """What is not as it was: names of settings, and of functions that were replaced."""
        now = _settings()
        changed = [name for name, value in (self._settings or {}).items() if now[name] != value]
        return changed + _replaced(self._functions)


def _settings() -> dict[str, Any]:
    found = {
        "environment variables": dict(os.environ),
        "current folder": _or_none(os.getcwd),
        "sys.path": list(sys.path),
        "standard output": [(stream, stream is None or stream.closed) for stream in (sys.stdout, sys.stderr)],
        "file descriptors 0 to 2": [_or_none(lambda fd=fd: os.fstat(fd)[1:3]) for fd in (0, 1, 2)],
        "file mode mask": _umask(),
        "signal handlers": [signal.getsignal(number) for number in sorted(signal.valid_signals())],
        "locale": locale.setlocale(locale.LC_ALL),
        "recursion limit": sys.getrecursionlimit(),
        "garbage collection": gc.isenabled(),
        "running threads": set(threading.enumerate()),
        "running processes": _children(),
        "resource limits": _limits(),
        "numpy.seterr": np.geterr(),
        "sklearn.set_config": sklearn.get_config(),
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        found["torch.set_default_dtype"] = torch.get_default_dtype()
        found["torch.use_deterministic_algorithms"] = torch.are_deterministic_algorithms_enabled()
        found["torch.set_grad_enabled"] = torch.is_grad_enabled()
    return found


def _or_none(call: Any) -> Any:
    with suppress(OSError):
        return call()
    return None


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _children() -> set[str]:
    """Processes that this one has started and that still run, where the system lists them."""
    found: set[str] = set()
    with suppress(OSError):
        for task in Path("/proc/self/task").iterdir():
            found.update((task / "children").read_text().split())
    return found


def _limits() -> list[tuple[int, int]]:
    if sys.platform == "win32":
        return []
    import resource

    return [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if name[:7] == "RLIMIT_"]


def _functions() -> dict[str, tuple[Any, dict[str, Any]]]:
    """Names and values of the watched modules, and of the classes that they define."""
    found: dict[str, tuple[Any, dict[str, Any]]] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in _WATCHED and isinstance(module, types.ModuleType):
            found[name] = module, dict(vars(module))
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name:
                    found[f"{name}.{value.__qualname__}"] = value, dict(vars(value))
    return found


def _replaced(before: dict[str, tuple[Any, dict[str, Any]]]) -> list[str]:
    names = []
    for holder, (value, attributes) in before.items():
        now = vars(value)
        for name, old in attributes.items():
            if now.get(name) is not old and callable(old):
                names.append(f"{holder}.{name}")
    more = [f"{len(names) - _NAMES_SHOWN} more functions"] if len(names) > _NAMES_SHOWN else []
    return names[:_NAMES_SHOWN] + more
