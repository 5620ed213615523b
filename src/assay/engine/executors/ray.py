"""Trials on the nodes of a Ray cluster; rows come to this process, which alone writes to the store.

A seat (an actor of one CPU) carries out one trial at a time in a worker process of its own. When its
node or its process is lost, the trial goes to another seat: a row is made of what comes back, so that
a trial that ran twice has one row. A seat that is killed leaves its copy of the question in the temporary
folder of its node, where the next seat removes it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from typing import Any, Self

from assay.core.errors import AssayError, MissingDependency, TaskError
from assay.engine.environment import Environment
from assay.engine.executors.interrupts import InterruptNote
from assay.engine.executors.packing import pack
from assay.engine.executors.seat import Seat
from assay.engine.plan import Question, Trial, TrialResult

_TICK = 0.1
#: seconds without any seat after which the cluster is given up
_PATIENCE = 120.0
#: seconds that seats get to remove their files at the end
_FAREWELL = 5.0
#: seats that a trial may lose before it is a row itself: it may be what takes them down
_LOSSES = 3
_BREAKS_IN_A_ROW = 3
_KNOCK_SECONDS = 10.0
#: a longer path of the temporary folder has no room for the names of Ray's sockets
_LONGEST_PATH = 20


class RayExecutor:
    """Seats on a Ray cluster, one trial at a time each.

    Parameters
    ----------
    question : Question
    trials : int
        How many there are at most.
    workers : int, optional
        Number of seats, each of one CPU; by default as many as the cluster has CPUs.
    address : str, optional
        "auto" or HOST:PORT of a running cluster. By default the one to which the program is connected,
        else one of this machine that ends with the comparison.

    Raises
    ------
    MissingDependency
        Ray is not installed.
    TaskError
        The address is that of a Ray client.
    """

    def __init__(
        self, question: Question, *, trials: int, workers: int | None = None, address: str | None = None
    ) -> None:
        try:
            import ray
        except ImportError as error:
            raise MissingDependency("the backend ray needs Ray: pip install 'assay[ray]'") from error
        if address is not None and "://" in address:
            raise TaskError(
                f"address {address!r} is that of a Ray client; run the comparison on a node of the cluster, "
                "with address auto or HOST:PORT"
            )
        self._ray: Any = ray
        self._trials = trials
        self._workers = workers
        self._address = address
        self._packed = pack(question)
        self._environment = Environment.of(question)
        self._interrupt = InterruptNote()
        self._folder: str | None = None
        self._connected_here = False

    def __enter__(self) -> Self:
        self._interrupt.install()
        try:
            self._connect()
            cpus = int(self._ray.cluster_resources().get("CPU", 0))
            seats = min(self._workers or max(1, cpus), self._trials)
            self._seat_class = self._ray.remote(num_cpus=1, max_restarts=0)(Seat)
            self._question = self._ray.put(self._packed)
            self._idle: list[Any] = []
            self._opening: dict[Any, Any] = {}
            self._flight: dict[Any, tuple[Any, Trial]] = {}
            self._breaks = 0
            self._last_seated = time.monotonic()
            for _ in range(seats):
                self._open_seat()
        except BaseException:
            self._disconnect()
            self._interrupt.restore()
            raise
        return self

    def __exit__(self, *exception: Any) -> None:
        try:
            self._close_seats()
        finally:
            self._disconnect()
            self._interrupt.restore()
        if exception[0] is None:
            self._interrupt.check()

    def run(self, trials: Iterable[Trial]) -> Iterator[TrialResult]:
        """Rows of the trials, in the order in which they end."""
        source = iter(trials)
        again: deque[Trial] = deque()
        losses: Counter[str] = Counter()
        is_drained = False
        while True:
            self._interrupt.check()
            while self._idle and not (is_drained and not again):
                trial = again.popleft() if again else next(source, None)
                if trial is None:
                    is_drained = True
                else:
                    self._hand_over(trial)
            if is_drained and not again and not self._flight:
                return
            self._check_patience()
            ready, _ = self._ray.wait([*self._flight, *self._opening], timeout=_TICK)
            for ref in ready:
                if ref in self._opening:
                    self._take_in(ref)
                    continue
                seat, trial = self._flight.pop(ref)
                try:
                    row: TrialResult = self._fetch(ref)
                except self._ray.exceptions.RayError as error:
                    self._drop(seat)
                    self._open_seat()
                    losses[trial.identity] += 1
                    if losses[trial.identity] < _LOSSES:
                        again.append(trial)
                    else:
                        yield _lost(trial, error)
                else:
                    self._idle.append(seat)
                    yield row

    def _hand_over(self, trial: Trial) -> None:
        seat = self._idle.pop()
        self._flight[seat.run.remote(trial.method.name, trial.seed, trial.identity)] = seat, trial

    def _open_seat(self) -> None:
        """Ask for a seat; it comes when a node has a CPU for it."""
        seat = self._seat_class.remote(self._question, self._environment, list(sys.path))
        self._opening[seat.open.remote()] = seat

    def _take_in(self, ref: Any) -> None:
        """A seat that has opened, or could not."""
        seat = self._opening.pop(ref)
        try:
            differences: list[str] = self._fetch(ref)
        except self._ray.exceptions.RayError as error:
            self._drop(seat)
            self._breaks += 1
            if self._breaks >= _BREAKS_IN_A_ROW:
                text = f"no trial can be run on the cluster: {self._breaks} seats in a row did not open"
                raise AssayError(f"{text}:\n{error}") from None
            self._open_seat()
            return
        if differences:
            raise AssayError(
                "a node of the cluster differs from this machine, so that its numbers would not be those of "
                "this question; install the same on all:\n" + "\n".join(differences)
            )
        self._breaks = 0
        self._idle.append(seat)

    def _fetch(self, ref: Any) -> Any:
        """The answer of a seat; an error of ours as it was raised there."""
        try:
            return self._ray.get(ref)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, AssayError):
                raise error.cause from None
            raise

    def _drop(self, seat: Any) -> None:
        """Give a seat up; if only the way to it was lost, what runs there ends as well."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(seat)

    def _check_patience(self) -> None:
        now = time.monotonic()
        if self._idle or self._flight:
            self._last_seated = now
        elif now - self._last_seated > _PATIENCE:
            raise AssayError(
                f"the Ray cluster had no CPU for a trial for {_PATIENCE:g} s; it has "
                f"{self._ray.cluster_resources().get('CPU', 0):g}, free are "
                f"{self._ray.available_resources().get('CPU', 0):g}"
            )

    def _close_seats(self) -> None:
        """Idle seats remove their files; those with a trial are killed, and their node does it later."""
        farewell = [seat.close.remote() for seat in self._idle]
        if farewell:
            self._ray.wait(farewell, num_returns=len(farewell), timeout=_FAREWELL)
        busy = [seat for seat, _ in self._flight.values()]
        for seat in [*self._idle, *busy, *self._opening.values()]:
            self._drop(seat)
        self._idle, self._flight, self._opening = [], {}, {}
        del self._question

    def _connect(self) -> None:
        """Join the cluster, or start one here; a program that is connected stays so."""
        if self._ray.is_initialized():
            return
        if self._address is not None and self._address != "auto":
            _knock(self._address)
        quiet = {"log_to_driver": False, "logging_level": logging.CRITICAL}
        before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            if self._address is not None:
                self._ray.init(address=self._address, **quiet)
            else:
                self._folder = folder = _short_folder()
                # seats that are killed leave their files there, to be removed with it
                with _environment(RAY_USAGE_STATS_ENABLED="0", TMPDIR=folder):
                    self._ray.init(
                        address="local",
                        num_cpus=self._workers,
                        include_dashboard=False,
                        _temp_dir=folder,
                        **quiet,
                    )
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise AssayError(_no_cluster(self._address or "this machine", error)) from error
        finally:
            self._connected_here = self._ray.is_initialized()
            if self._connected_here:
                self._show_messages(False)
            for number, handler in before.items():
                _put_back(number, handler)

    def _show_messages(self, shown: bool) -> None:
        """Whether this process prints what the cluster says; log_to_driver leaves errors of nodes out."""
        self._ray._private.worker._worker_logs_enabled = shown

    def _disconnect(self) -> None:
        if self._connected_here:
            self._ray.shutdown()
            self._show_messages(True)
            self._connected_here = False
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _lost(trial: Trial, error: Exception) -> TrialResult:
    """The row of a trial whose seats were lost again and again."""
    text = f"its node or the process that hosts it was lost {_LOSSES} times; the last time Ray said:\n{error}"
    detail = {"ended_from_outside": True}
    return TrialResult(trial.identity, trial.method.name, trial.seed, "failed", {}, 0.0, text, detail)


def _knock(address: str) -> None:
    """Refuse an address at which nobody listens: Ray itself would wait there for minutes."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit():
        raise TaskError(f"address {address!r} is neither auto nor HOST:PORT, such as 10.0.0.1:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_KNOCK_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise AssayError(_no_cluster(address, error)) from error


def _no_cluster(address: str, error: Exception) -> str:
    return (
        f"no Ray cluster at {address}: {error}; `ray start --head` starts one, and without an address the "
        "comparison does so itself"
    )


def _short_folder() -> str:
    """A new temporary folder in which Ray can make sockets."""
    usual = tempfile.gettempdir()
    is_short = len(usual) <= _LONGEST_PATH or sys.platform == "win32"
    return tempfile.mkdtemp(prefix="assay-ray-", dir=usual if is_short else "/tmp")


def _put_back(number: int, handler: Any) -> None:
    """Undo what Ray does to signals; only the main thread may, and only there it did."""
    with contextlib.suppress(ValueError):
        if signal.getsignal(number) is not handler:
            signal.signal(number, handler)


@contextlib.contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Variables for the processes that are started meanwhile."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
