"""Times callables in one process in turn (A B A B ...), their memory each in a fresh process.

A benchmark file defines cases::

    CASES = [Case("split, 1M + 1M", make_inputs, {"assay": run_assay, "crepes": run_crepes})]

``make_inputs()`` gives the data; a contender is a function of it that returns the answer, or raises
:class:`Unavailable`. ``main(CASES)`` prints a table of ratios (first contender = 1) and writes JSON.
Machines differ and are shared: ratios of one run are quoted, never seconds.

Where memory comes from weighs as much as the arithmetic: whether an array falls on pages that the
process holds already is a matter of what ran before. So the allocator is told to keep what it is
given back, the same for all; with ``--fresh-pages`` it gives everything back before each run, so
that all pay the kernel for every page, as the first call of a process does.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import importlib
import json
import multiprocessing
import os
import platform
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MIB = 2**20


class Unavailable(Exception):
    """A contender cannot run here; the message says why and stands in the table."""


@dataclass(frozen=True)
class Case:
    """One question put to several contenders; the first is the one the ratios refer to.

    ``agree(reference, other)`` gives a line on how the answers compare. ``output_bytes`` of the
    answer are subtracted from the peak memory, which is measured above the inputs. ``tiny()`` gives
    small inputs of the same kind: a contender runs on them before its memory is measured, so that
    imports do not count; a contender that is an object may have ``warm_up()`` for the same end.
    """

    name: str
    inputs: Callable[[], Any]
    contenders: Mapping[str, Callable[[Any], Any]]
    repeats: int = 7
    agree: Callable[[Any, Any], str] | None = None
    tiny: Callable[[], Any] | None = None
    notes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """Median seconds, extra MiB above inputs and answer, or the reason why there is none.

    ``seconds`` are of the clock, ``cpu_seconds`` of this process's processor time: on a machine that
    others use too, the second is the steadier one for code of a single thread.
    """

    contender: str
    seconds: float | None
    cpu_seconds: float | None
    ratio: float | None
    cpu_ratio: float | None
    extra_mib: float | None
    agreement: str = ""
    note: str = ""


def _allocator() -> Any:
    """The C library where it is glibc, whose allocator can be told what to keep; else None."""
    if platform.libc_ver()[0] != "glibc":
        return None
    return ctypes.CDLL(None)


def _hold_memory() -> None:
    """Blocks up to 32 MiB come from the heap, and the heap is not given back to the system."""
    library = _allocator()
    if library is not None:
        library.mallopt(-3, 32 * MIB)  # M_MMAP_THRESHOLD
        library.mallopt(-1, 2**31 - 1)  # M_TRIM_THRESHOLD


def _drop_memory() -> None:
    library = _allocator()
    if library is not None:
        library.malloc_trim(0)


def _size(answer: Any) -> int:
    if isinstance(answer, (tuple, list)):
        return sum(_size(part) for part in answer)
    return int(getattr(answer, "nbytes", 0))


def _resident() -> int:
    with open("/proc/self/statm") as handle:
        return int(handle.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _reset_peak() -> bool:
    """Set the kernel's high-water mark of this process back to what it holds now."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return False
    return True


def _peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel gives no VmHWM")


class _Sampler:
    """Peak resident memory by looking every millisecond, where the kernel's mark cannot be reset."""

    def __enter__(self) -> _Sampler:
        self.peak, self._stop = _resident(), threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()
        return self

    def _look(self) -> None:
        while not self._stop.wait(0.001):
            self.peak = max(self.peak, _resident())

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


def _memory_worker(module: str, case_name: str, contender: str, queue: Any) -> None:
    warnings.simplefilter("ignore")
    case = next(c for c in importlib.import_module(module).CASES if c.name == case_name)
    run = case.contenders[contender]
    try:
        if case.tiny is not None:
            run(case.tiny())
        warm = getattr(run, "warm_up", None)
        if warm is not None:
            warm()
        data = case.inputs()
        gc.collect()
        before = _resident()
        if _reset_peak():
            answer = run(data)
            peak = _peak()
        else:
            with _Sampler() as sampler:
                answer = run(data)
            peak = sampler.peak
        queue.put(max(0.0, (peak - before - _size(answer)) / MIB))
    except Unavailable as error:
        queue.put(str(error))


def extra_memory(module: str, case: str, contender: str) -> float | None:
    """Peak MiB above inputs and answer, in a fresh process; None if the process died."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=_memory_worker, args=(module, case, contender, queue))
    process.start()
    process.join()
    if process.exitcode != 0 or queue.empty():
        return None
    value = queue.get()
    return value if isinstance(value, float) else None


def measure(
    case: Case, *, module: str, memory: bool = True, repeats: int | None = None, fresh_pages: bool = False
) -> list[Measured]:
    """All contenders of a case: timed in turn, then each one's memory."""
    if not fresh_pages:
        _hold_memory()
    data = case.inputs()
    alive: dict[str, Callable[[Any], Any]] = {}
    why: dict[str, str] = {}
    answers: dict[str, Any] = {}
    for name, run in case.contenders.items():
        try:
            answers[name] = run(data)
            alive[name] = run
        except Unavailable as error:
            why[name] = str(error)
    first = next(iter(case.contenders))
    agreement = {
        name: case.agree(answers[first], answer)
        for name, answer in answers.items()
        if case.agree is not None and name != first and first in answers
    }
    answers.clear()
    clock: dict[str, list[float]] = {name: [] for name in alive}
    cpu: dict[str, list[float]] = {name: [] for name in alive}
    for _ in range(repeats or case.repeats):
        for name, run in alive.items():
            gc.collect()
            if fresh_pages:
                _drop_memory()
            start, cpu_start = time.perf_counter(), time.process_time()
            answer = run(data)
            clock[name].append(time.perf_counter() - start)
            cpu[name].append(time.process_time() - cpu_start)
            del answer
    seconds = {name: statistics.median(values) for name, values in clock.items()}
    cpu_seconds = {name: statistics.median(values) for name, values in cpu.items()}
    del data
    out = []
    for name in case.contenders:
        out.append(
            Measured(
                contender=name,
                seconds=seconds.get(name),
                cpu_seconds=cpu_seconds.get(name),
                ratio=_ratio(seconds, name, first),
                cpu_ratio=_ratio(cpu_seconds, name, first),
                extra_mib=extra_memory(module, case.name, name) if memory and name in alive else None,
                agreement=agreement.get(name, ""),
                note=why.get(name, case.notes.get(name, "")),
            )
        )
    return out


def _ratio(seconds: Mapping[str, float], name: str, reference: str) -> float | None:
    if name not in seconds or not seconds.get(reference):
        return None
    return seconds[name] / seconds[reference]


def table(results: Mapping[str, Sequence[Measured]]) -> str:
    """A Markdown table of ratios, memory and agreement."""
    lines = [
        "| case | library | time, ratio | processor time, ratio | extra memory, MiB | answer | note |",
        "|---|---|--:|--:|--:|---|---|",
    ]
    for case, rows in results.items():
        for row in rows:
            cells = [
                case,
                row.contender,
                "" if row.ratio is None else f"{row.ratio:.2f}",
                "" if row.cpu_ratio is None else f"{row.cpu_ratio:.2f}",
                "" if row.extra_mib is None else f"{row.extra_mib:.0f}",
                row.agreement,
                row.note,
            ]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main(cases: Sequence[Case], module: str, argv: Sequence[str] | None = None) -> int:
    """Command line of a benchmark file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", help="run the cases whose name contains this")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--no-memory", action="store_true")
    parser.add_argument("--fresh-pages", action="store_true", help="no memory is held between runs")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    arguments = parser.parse_args(argv)
    warnings.simplefilter("ignore")
    chosen = [case for case in cases if arguments.only is None or arguments.only in case.name]
    results: dict[str, list[Measured]] = {}
    for case in chosen:
        print(f"# {case.name}", file=sys.stderr, flush=True)
        results[case.name] = measure(
            case,
            module=module,
            memory=not arguments.no_memory,
            repeats=arguments.repeats,
            fresh_pages=arguments.fresh_pages,
        )
    print(table(results))
    if arguments.json is not None:
        payload = {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "results": {name: [vars(row) for row in rows] for name, rows in results.items()},
        }
        arguments.json.write_text(json.dumps(payload, indent=1) + "\n")
    return 0
