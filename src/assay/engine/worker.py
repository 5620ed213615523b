"""What runs in a worker process: it prepares the process once, then carries out trial after trial.

Importing this module is light: the number of threads must be set before numpy is imported.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from assay.engine.bench import Bench
    from assay.engine.plan import TrialResult

QUESTION = "question.pickle"
TABLE = "table.pickle"
BEGUN = "begun"
_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "NUMBA_NUM_THREADS",
)
_PR_SET_PDEATHSIG = 1
#: exit status of a worker that gives a trial back because an earlier one has left traces in it
SPENT = 75


@dataclass(frozen=True)
class Job:
    """One trial as it travels to a worker: the method's place in the question, and its bounds."""

    number: int
    method: int
    seed: int
    identity: str
    memory: int | None


def started_file(folder: Path, number: int) -> Path:
    """The file that says which process has taken up a job: its id, and "begun" once the time runs."""
    return folder / f"started-{number}"


def output_file(folder: Path, pid: int) -> Path:
    """What a worker's trial has printed so far."""
    return folder / f"output-{pid}"


def initialise(folder: str, parent: int) -> None:
    """Prepare a fresh process: threads, signals, output; then import what every trial needs."""
    for name in _THREADS:
        os.environ[name] = "1"
    _die_with(parent)
    if hasattr(os, "setpgid"):
        # a group of its own: Ctrl-C reaches only the driver, and a trial's children end with it
        os.setpgid(0, 0)
        # the default action ends the process even inside a C function that never returns
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _redirect_output(output_file(Path(folder), os.getpid()))
    import assay.engine.bench  # noqa: F401


def run_job(folder: str, job: Job) -> TrialResult:
    """Carry out one trial; whatever it raises becomes its row.

    A process in which a trial has left traces takes up no other: it gives the next one back by its end.
    """
    global _spent
    if _spent:
        os._exit(SPENT)
    path = Path(folder)
    started = started_file(path, job.number)
    _write(started, f"{os.getpid()}")
    _forget_output()
    bench, methods = _load(path)
    name, blob = methods[job.method]
    from assay.engine.bench import failure
    from assay.engine.footprint import Footprint
    from assay.engine.plan import Trial

    footprint = Footprint()
    worker = os.getpid()

    def begin() -> None:
        footprint.begin()
        _write(started, f"{os.getpid()} {BEGUN}")

    try:
        method = pickle.loads(blob)
    except BaseException as error:
        result = failure(job.identity, name, job.seed, error)
    else:
        result = bench.run(Trial(method, job.seed, job.identity), job.memory, begin)
    if os.getpid() != worker:
        os._exit(1)  # a copy of the worker that the trial forked and did not end; the worker answers
    left = footprint.left()
    if left:
        _spent = True
        notice = f"left its process changed ({', '.join(left)}); the next trial got a new one"
        result = replace(result, notices=(*result.notices, notice))
    started.unlink()
    return result


_spent = False
_loaded: dict[Path, tuple[Bench, list[tuple[str, bytes]]]] = {}


def _load(folder: Path) -> tuple[Bench, list[tuple[str, bytes]]]:
    """The question in that folder, read once a process. The files are the driver's own."""
    if folder not in _loaded:
        from assay.engine.bench import Bench

        question: dict[str, Any] = pickle.loads((folder / QUESTION).read_bytes())
        sys.path.extend(entry for entry in question["path"] if entry not in sys.path)
        table = pickle.loads((folder / TABLE).read_bytes())
        model = pickle.loads(question["model"])
        bench = Bench(
            table,
            question["task"],
            question["alpha"],
            model,
            isolated=True,
            options=question["options"],
        )
        _loaded[folder] = bench, question["methods"]
    return _loaded[folder]


def _write(path: Path, text: str) -> None:
    """Replace a file at once, so that nobody reads half of it."""
    draft = path.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(path)


def _redirect_output(path: Path) -> None:
    """Send what trials print to a file: the terminal is the driver's; a crash's last words are kept."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    sys.stdout.flush()
    sys.stderr.flush()
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    faulthandler.enable(file=2)


def _forget_output() -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os.ftruncate(2, 0)


def _die_with(parent: int) -> None:
    """End this process when the driver ends, even by kill -9 and even inside a C function."""
    if sys.platform == "linux":
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) == 0:
            if os.getppid() != parent:
                os._exit(1)
            return
    from multiprocessing import connection, parent_process

    driver = parent_process()
    if driver is None:
        return

    def wait() -> None:
        connection.wait([driver.sentinel])
        os._exit(1)

    threading.Thread(target=wait, name="assay-driver-watch", daemon=True).start()
