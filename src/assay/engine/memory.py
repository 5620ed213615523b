"""Memory of a trial: what it used at its peak, how much it may use, how much the machine has."""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Self

_MIB = 2**20
_GIB = 2**30
_SHARE = 0.8


class MemoryMeter:
    """Context that measures the peak of this process's resident memory above the start, in MiB.

    Linux keeps a high-water mark that can be reset (``reset``; only in a process of our own). Where
    it cannot be, a peak below the highest one so far is not known: NaN.
    """

    def __init__(self, *, reset: bool) -> None:
        self._reset = reset
        self.peak = math.nan

    def __enter__(self) -> Self:
        self._is_reset = self._reset and _reset_high_water()
        self._high = _high_water()
        # right after a reset the high-water mark is what is resident now
        self._start = self._high if self._is_reset else _resident()
        return self

    def __exit__(self, *_: object) -> None:
        high = _high_water()
        if high is not None and self._start is not None and (self._is_reset or high != self._high):
            self.peak = max(0.0, (high - self._start) / _MIB)


@contextlib.contextmanager
def memory_limit(extra: int | None) -> Iterator[None]:
    """Refuse allocations that take this process more than ``extra`` bytes beyond what it has now.

    Linux counts private writable memory (RLIMIT_DATA), other systems the address space.
    """
    if extra is None or sys.platform == "win32":
        yield
        return
    import resource

    if sys.platform == "linux":
        kind, now = resource.RLIMIT_DATA, _status("VmData") or 0
    else:
        kind, now = resource.RLIMIT_AS, 0
    soft, hard = resource.getrlimit(kind)
    wanted = now + extra
    resource.setrlimit(kind, (_smaller(wanted, hard), hard))
    try:
        yield
    finally:
        # the trial may have lowered the hard limit, which nobody can raise again
        _, hard = resource.getrlimit(kind)
        resource.setrlimit(kind, (_smaller(soft, hard), hard))


def _smaller(one: int, other: int) -> int:
    """The smaller of two limits, of which -1 is none."""
    finite = [limit for limit in (one, other) if limit >= 0]
    return min(finite, default=-1)


def default_limit(workers: int) -> int | None:
    """About 80 % of the memory that is free now, in equal parts for the workers.

    Rounded down to whole GiB (steps of 256 MiB below 4 GiB), so that two runs an hour apart have
    the same limit. None where the system does not say what it has.
    """
    free = available_memory()
    if free is None:
        return None
    share = int(free * _SHARE / workers)
    step = _GIB if share >= 4 * _GIB else 256 * _MIB
    return max(share // step * step, 256 * _MIB)


def available_memory() -> int | None:
    """Bytes that can be had without swapping, within the limit of this process's control group."""
    free = _kib("/proc/meminfo", "MemAvailable")
    for limit, usage, cache in _group_files():
        if limit is not None and usage is not None:
            room = max(0, limit - usage + cache)
            free = room if free is None else min(free, room)
    if free is None and sys.platform != "win32":
        import os

        with contextlib.suppress(ValueError, OSError):
            free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return free


def oom_kills() -> int | None:
    """How many processes the system has killed for want of memory so far; None if it does not say."""
    return _read_field(Path("/proc/vmstat"), "oom_kill ")


def _group_files() -> Iterator[tuple[int | None, int | None, int]]:
    """(limit, usage, cached files that can be dropped) of the control groups this process is in."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, name = line.split(":", 2)
            if not controllers:
                folder = Path("/sys/fs/cgroup") / name.lstrip("/")
                limit, usage, field = "memory.max", "memory.current", "inactive_file"
            elif "memory" in controllers.split(","):
                folder = Path("/sys/fs/cgroup/memory") / name.lstrip("/")
                limit, usage, field = "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            else:
                continue
            cache = _read_field(folder / "memory.stat", f"{field} ") or 0
            yield _read_number(folder / limit), _read_number(folder / usage), cache


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):  # not there, or "max"
        return None


def _read_field(path: Path, start: str) -> int | None:
    """The first number after ``start`` on the line that begins so; None without file or line."""
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            if line.startswith(start):
                return int(line[len(start) :].split()[0])
    return None


def _kib(path: str, field: str) -> int | None:
    number = _read_field(Path(path), f"{field}:")
    return None if number is None else number * 1024


def _status(field: str) -> int | None:
    """Bytes of one line of /proc/self/status; None where there is no such file."""
    return _kib("/proc/self/status", field)


def _reset_high_water() -> bool:
    if sys.platform != "linux":
        return False
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _resident() -> int | None:
    return _status("VmRSS")


def _high_water() -> int | None:
    high = _status("VmHWM")
    if high is not None or sys.platform == "win32":
        return high
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
