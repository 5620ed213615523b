"""Trials in local worker processes: a warm pool, limits that hold, and a row for every death."""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import connection
from pathlib import Path
from typing import Any, Self

from pebble import ProcessExpired, ProcessPool

from assay.core.errors import AssayError
from assay.engine import worker
from assay.engine.bench import failure, mentions_memory
from assay.engine.executors.interrupts import InterruptNote
from assay.engine.executors.packing import Packed, pack
from assay.engine.executors.spawn import ENDED_WITH_ZERO, WorkerContext
from assay.engine.memory import oom_kills
from assay.engine.plan import Question, Trial, TrialResult
from assay.engine.worker import Job

_TICK = 0.1
_LOADING_SECONDS = 120.0
_LOST_AFTER = 1.0
_BREAKS_IN_A_ROW = 3
_LAST_LINES = 8
_LINE_LENGTH = 300
_LAST_BYTES = 65536
_PREFIX = "assay-"
#: signals that the world outside sends, rather than a fault in the method
_FROM_OUTSIDE = {"SIGKILL", "SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT"}


class LocalExecutor:
    """A pool of ``workers`` processes that are reused from trial to trial and replaced when they die.

    A trial beyond ``limits.seconds`` is killed; one that allocates more than ``limits.memory``
    bytes beyond what its worker had at the start is refused. Both count from the moment when the
    method is loaded and its rows are prepared; a method that is not loaded after
    ``limits.seconds`` and ``_LOADING_SECONDS`` more is killed as well.
    """

    def __init__(self, question: Question | Packed, *, workers: int) -> None:
        packed = question if isinstance(question, Packed) else pack(question)
        self._workers = workers
        self._limits = packed.limits
        self._places = packed.places
        self._packed = packed.contents
        self._table = packed.table
        self._interrupt = InterruptNote()
        self._number = 0

    def __enter__(self) -> Self:
        _remove_leftovers()
        self._interrupt.install()
        self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        try:
            (self._folder / worker.QUESTION).write_bytes(self._packed)
            with (self._folder / worker.TABLE).open("wb") as handle:
                pickle.dump(self._table, handle, protocol=5)
            self._oom_kills = oom_kills()
            self._open_pool()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._interrupt.restore()
            raise
        return self

    def __exit__(self, *exception: Any) -> None:
        try:
            self._close_pool()
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._interrupt.restore()
        if exception[0] is None:
            self._interrupt.check()

    def run(self, trials: Iterable[Trial]) -> Iterator[TrialResult]:
        """Rows of the trials, in the order in which they end."""
        source = iter(trials)
        again: deque[Trial] = deque()
        flight: dict[Any, _Flight] = {}
        breaks = 0
        while True:
            self._interrupt.check()
            broken = False
            while len(flight) < self._workers and not broken:
                trial = again.popleft() if again else next(source, None)
                if trial is None:
                    break
                self._number += 1  # not from one again in the next call: files of the dead bear it
                future = self._submit(trial, self._number)
                if future is None:
                    again.appendleft(trial)
                    broken = True
                else:
                    flight[future] = _Flight(trial, self._number)
            if not flight and not broken:
                return
            rows = []
            done, _ = concurrent.futures.wait(flight, _TICK, concurrent.futures.FIRST_COMPLETED)
            for future, entry in flight.items():
                if future not in done and self._is_over_time(entry):
                    future.cancel()  # the pool ends the worker, at a moment when it holds no lock
            for future in list(flight):
                if future in done and self._is_given_back(future, flight[future]):
                    again.append(flight.pop(future).trial)
                    continue
                row = self._settle(future, flight[future]) if future in done else self._lost(flight[future])
                if row is not None:
                    rows.append(row)
                    del flight[future]
                elif future in done:
                    broken = True
            if broken:
                again.extend(entry.trial for entry in flight.values())
                flight.clear()
                breaks = 0 if rows else breaks + 1
                self._replace_pool(breaks)
            elif rows:
                breaks = 0
            yield from rows

    def _submit(self, trial: Trial, number: int) -> Any:
        """The future of a trial, or None where the pool has broken."""
        place = self._places[trial.method.name]
        job = Job(number, place, trial.seed, trial.identity, self._limits.memory)
        try:
            return self._pool.schedule(worker.run_job, args=(str(self._folder), job))
        except RuntimeError:
            return None

    def _is_over_time(self, entry: _Flight) -> bool:
        """Whether a trial has met its time limit; the clock starts when its mark is first seen."""
        limit = self._limits.seconds
        if limit is None or entry.ended:
            return bool(entry.ended)
        words = self._mark(entry)
        if not words:
            return False
        now = time.monotonic()
        if len(words) == 2 and entry.begun is None:
            entry.begun = now
        if entry.seen is None:
            entry.seen = now
        if entry.begun is not None and now - entry.begun > limit:
            entry.ended = f"killed at the time limit of {limit:g} s"
        elif entry.begun is None and now - entry.seen > limit + _LOADING_SECONDS:
            entry.ended = f"killed while it was being loaded, after {limit + _LOADING_SECONDS:g} s"
        return bool(entry.ended)

    def _is_given_back(self, future: Any, entry: _Flight) -> bool:
        """Whether a worker has ended itself instead of taking the trial up; its children end too."""
        death = None if future.cancelled() else future.exception()
        if not isinstance(death, ProcessExpired) or death.exitcode != worker.SPENT or self._mark(entry):
            return False
        _end_group(death.pid)
        return True

    def _settle(self, future: Any, entry: _Flight) -> TrialResult | None:
        """The row of a trial whose future is done; None where it has to run again."""
        try:
            result: TrialResult = future.result()
            return result
        except concurrent.futures.CancelledError:
            return self._timed_out(entry)
        except ProcessExpired as death:
            return self._died(entry, death.exitcode, death.pid)
        except BrokenProcessPool:
            process = self._context.process(self._pid(entry) or -1)
            if process is not None and process.exitcode is not None:
                return self._died(entry, process.exitcode, process.pid)
            return None
        except Exception as error:
            row = failure(entry.trial.identity, entry.trial.method.name, entry.trial.seed, error)
            return replace(row, seconds=self._elapsed(entry))

    def _timed_out(self, entry: _Flight) -> TrialResult:
        _end_group(self._pid(entry))
        return self._row(entry, "timed out", entry.ended, self._elapsed(entry))

    def _lost(self, entry: _Flight) -> TrialResult | None:
        """The row of a trial whose process is gone without the pool noticing that it was busy."""
        pid = self._pid(entry)
        process = self._context.process(pid) if pid is not None else None
        if process is None or not connection.wait([process.sentinel], 0):
            return None
        if entry.gone_since is None:
            entry.gone_since = time.monotonic()
        if time.monotonic() - entry.gone_since < _LOST_AFTER:
            return None
        return self._timed_out(entry) if entry.ended else self._died(entry, process.exitcode, pid)

    def _died(self, entry: _Flight, code: int | None, pid: int | None) -> TrialResult:
        """The row of a trial that took its process with it."""
        _end_group(pid)
        words = self._last_words(pid)
        detail: dict[str, Any] = {}
        status: Any = "out of memory" if mentions_memory(words) else "failed"
        if code is not None and code < 0:
            name = _signal_name(-code)
            text = f"the process of the trial was ended by {name}"
            if name == "SIGKILL":
                kills = oom_kills()
                if kills is not None and self._oom_kills is not None and kills > self._oom_kills:
                    status = "out of memory"
                    text += ": the system ended processes for want of memory during this comparison"
                    self._oom_kills = kills
                else:
                    text += ", not by assay: the usual reason is the system's out-of-memory killer"
            if name in _FROM_OUTSIDE:
                detail["ended_from_outside"] = True
        elif code is None or code == ENDED_WITH_ZERO:
            text = "the process of the trial ended itself with exit status 0 before the trial was over"
        else:
            text = f"the process of the trial ended itself with exit status {code}"
        if words:
            text += f"; its last output:\n{words}"
        return self._row(entry, status, text, self._elapsed(entry), detail)

    def _row(
        self, entry: _Flight, status: Any, error: str, seconds: float, detail: dict[str, Any] | None = None
    ) -> TrialResult:
        trial = entry.trial
        return TrialResult(
            trial.identity, trial.method.name, trial.seed, status, {}, seconds, error, detail or {}
        )

    def _pid(self, entry: _Flight) -> int | None:
        """The process that took the trial up; None before that."""
        words = self._mark(entry)
        return int(words[0]) if words else None

    def _mark(self, entry: _Flight) -> list[str]:
        """What the worker has written about the trial: nothing yet, its process id, or that and "begun"."""
        try:
            return worker.started_file(self._folder, entry.number).read_text().split()
        except OSError:
            return []

    def _elapsed(self, entry: _Flight) -> float:
        try:
            return max(0.0, time.time() - worker.started_file(self._folder, entry.number).stat().st_mtime)
        except OSError:
            return 0.0

    def _last_words(self, pid: int | None) -> str:
        """The last lines that a dead worker printed; from faulthandler's report on, if it made one."""
        if pid is None:
            return ""
        try:
            with worker.output_file(self._folder, pid).open("rb") as handle:
                handle.seek(max(0, handle.seek(0, os.SEEK_END) - _LAST_BYTES))
                text = handle.read().decode("utf-8", "replace")
        except OSError:
            return ""
        _, fault, report = text.rpartition("Fatal Python error")
        # its frames begin with the innermost; the list of loaded modules at its end says nothing
        lines = (fault + report.partition("Extension modules:")[0]).splitlines()
        shown = [line[:_LINE_LENGTH] for line in lines if line.strip()]
        return "\n".join(shown[:_LAST_LINES] if fault else shown[-_LAST_LINES:])

    def _open_pool(self) -> None:
        self._context = WorkerContext()
        self._pool: Any = ProcessPool(
            max_workers=self._workers,
            initializer=worker.initialise,
            initargs=(str(self._folder), os.getpid()),
            context=self._context,
        )

    def _close_pool(self) -> None:
        running = [process.pid for process in self._context.processes if process.exitcode is None]
        self._pool.stop()
        self._pool.join()
        for pid in running:
            _end_group(pid)

    def _replace_pool(self, breaks: int) -> None:
        """A new pool for one that broke: an idle worker died, or workers die while they start."""
        dead = [process.pid for process in self._context.processes if process.exitcode is not None]
        self._close_pool()
        if breaks >= _BREAKS_IN_A_ROW:
            words = next(filter(None, map(self._last_words, reversed(dead))), "(they printed nothing)")
            raise AssayError(f"worker processes die while they start, {breaks} times in a row:\n{words}")
        self._open_pool()


class _Flight:
    """A trial that has been handed to the pool."""

    def __init__(self, trial: Trial, number: int) -> None:
        self.trial = trial
        self.number = number
        self.seen: float | None = None
        self.begun: float | None = None
        self.gone_since: float | None = None
        self.ended = ""


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _end_group(pid: int | None) -> None:
    """Kill what is left of a worker's process group: processes that its trial started."""
    if pid is not None and hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def _remove_leftovers() -> None:
    """Remove the folders of drivers that were killed: those whose process is gone."""
    if sys.platform == "win32":  # os.kill(pid, 0) is no question there, but an end
        return
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = folder.name.split("-")[1]
        if not owner.isdigit() or not (folder / worker.QUESTION).is_file():
            continue
        try:
            os.kill(int(owner), 0)
        except ProcessLookupError:
            shutil.rmtree(folder, ignore_errors=True)
        except (PermissionError, OverflowError):
            continue
