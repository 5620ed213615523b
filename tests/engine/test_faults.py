"""Methods that sleep, allocate, crash, exit: a row each, and everything else as if they were not there."""

import os
import re
import time
from contextlib import suppress

import pytest
import trivial_methods
from test_run import numbers, question

from assay.engine.executors.local import LocalExecutor
from assay.engine.plan import Limits, MethodSpec
from assay.engine.run import run_question
from assay.engine.store import Store

MIB = 2**20
LIMITS = Limits(seconds=12.0, memory=150 * MIB)
SHORT = Limits(seconds=2.0, memory=150 * MIB)


def spec(name, **params):
    return MethodSpec(f"{name}{params or ''}", f"trivial_methods:{name}", params)


def is_alive(pid):
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def test_each_fault_is_one_row_and_the_others_are_right(tmp_path):
    faults = [
        (spec("Raises"), "failed", r"^ValueError: 3 of 20 rows are odd\n(.|\n)*in fit: raise ValueError"),
        (spec("WrongShape"), "failed", r"prediction has shape \(10, 2\), expected \(10,\)"),
        (spec("ExitsPolitely"), "failed", r"ended the program with status 3"),
        (spec("Interrupts"), "failed", r"^KeyboardInterrupt"),
        (spec("Exits"), "failed", r"ended itself with exit status 1$"),
        (spec("Exits", status=0), "failed", r"ended itself with exit status 0 before the trial was over"),
        (spec("KillsItself"), "failed", r"SIGKILL.*out-of-memory killer; its last output:\nlast words$"),
        (spec("SegmentationFault"), "failed", r"SIGSEGV.*\n.*Fatal Python error(.|\n)*in fit"),
        (spec("AllocatesArrays"), "out of memory", r"MemoryError"),
        (spec("AllocatesLists"), "out of memory", r"^MemoryError"),
        (MethodSpec("missing", "trivial_methods:Nowhere"), "failed", r"no 'Nowhere'"),
    ]
    asked = question("Mean", *(fault for fault, _, _ in faults), "Least", seeds=(0,), limits=LIMITS)
    with Store(tmp_path / "runs.db") as store:
        info, rows = run_question(asked, workers=2, store=store)
        assert info.limits == {"seconds": 12.0, "memory": 150 * MIB}
        for row, (fault, status, text) in zip(rows[1:-1], faults, strict=True):
            assert (row.method, row.status) == (fault.name, status), row
            assert re.search(text, row.error), row.error
            assert row.metrics == {}
        alone = run_question(question("Mean", "Least", seeds=(0,)), in_process=True)[1]
        assert numbers([rows[0], rows[-1]]) == numbers(alone)
        # the method's own faults stand; what a signal from outside ended is tried again
        again = []
        run_question(asked, workers=1, store=store, progress=lambda event: again.append(event.result))
        assert [row.method for row in again if row] == ["KillsItself"]


def test_a_time_limit_ends_what_sleeps_and_what_never_lets_go(tmp_path):
    note = tmp_path / "child"
    asked = question(
        "Sleeps", "HoldsTheLock", spec("LeavesChild", note=str(note)), "Mean", seeds=(0,), limits=SHORT
    )
    start = time.monotonic()
    _, rows = run_question(asked, workers=2)
    assert [row.status for row in rows] == ["timed out"] * 3 + ["ok"]
    assert rows[0].error == "killed at the time limit of 2 s"
    assert 2.0 <= rows[0].seconds < 4.0 or os.getloadavg()[0] > 2
    assert time.monotonic() - start < 60
    deadline = time.monotonic() + 10
    while is_alive(int(note.read_text())) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(int(note.read_text()))


def test_torch_cannot_allocate_without_end():
    pytest.importorskip("torch")
    asked = question("AllocatesTensors", seeds=(0,), limits=Limits(60.0, 600 * MIB))
    _, (row,) = run_question(asked, workers=1)
    assert row.status == "out of memory", row
    assert "allocate" in row.error


def test_a_method_that_cannot_travel_is_told_before_anything_runs():
    import threading

    from assay.core.errors import MethodError

    broken = MethodSpec("locked", trivial_methods.Mean(threading.Lock()))
    with pytest.raises(MethodError):
        LocalExecutor(question(broken), workers=1)


def test_workers_that_cannot_start_are_told(monkeypatch):
    from assay.core.errors import AssayError
    from assay.engine import worker

    monkeypatch.setattr(worker, "initialise", os.abort)
    with pytest.raises(AssayError, match="die while they start, 3 times in a row"):
        run_question(question("Mean", seeds=(0,)), workers=1)


def test_an_idle_worker_that_dies_is_replaced():
    import signal

    asked = question("Brief", seeds=(0, 1, 2), limits=LIMITS)

    with LocalExecutor(asked, workers=2) as executor:
        from assay.engine.run import plan_trials

        trials = plan_trials(asked)

        def slowly():
            yield trials[0]
            # no trial runs now: the pool takes a death for its end
            for process in executor._context.processes:
                os.kill(process.pid, signal.SIGKILL)
            yield from trials[1:]

        rows = []
        source = slowly()
        rows += executor.run([next(source)])
        rows += executor.run(source)
    assert [row.status for row in rows] == ["ok"] * 3


def test_what_a_trial_changes_in_its_process_reaches_no_other():
    asked = question("SaysWhatItMeets", "ChangesItsProcess", "Mean", seeds=(0, 1), limits=LIMITS)
    _, rows = run_question(asked, workers=1)
    assert [row.status for row in rows] == ["ok"] * 6, rows
    clean, changed = rows[:2], rows[2:4]
    for row in changed:
        notice = row.notices[-1]
        for trace in ("environment variables", "current folder", "file mode mask", "file descriptors"):
            assert trace in notice
        for trace in ("numpy.seterr", "numpy.median", "sklearn.set_config", "signal handlers"):
            assert trace in notice
        for trace in ("running threads", "running processes", "resource limits"):
            assert trace in notice
    assert clean[0].notices != clean[1].notices, "a process that was changed has been used again"
    assert rows[4].notices == rows[5].notices == ()


def test_a_copy_of_the_worker_reports_nothing():
    _, rows = run_question(question("Forks", "Mean", seeds=(0, 1), limits=LIMITS), workers=1)
    assert [row.status for row in rows] == ["ok"] * 4, rows


def test_a_process_that_nothing_was_left_in_is_used_again():
    _, rows = run_question(question("SaysWhatItMeets", seeds=(0, 1), limits=LIMITS), workers=1)
    assert [row.status for row in rows] == ["ok"] * 2
    assert rows[0].notices == rows[1].notices


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("in_process", [True, False])
def test_errors_that_cannot_be_printed_are_rows(tmp_path, in_process):
    asked = question("CannotBeSaid", "HalfACharacter", seeds=(0,))
    with Store(tmp_path / "runs.db") as store:
        info, rows = run_question(asked, workers=1, in_process=in_process, store=store)
        _, kept = store.run(info.id)
    assert kept == rows
    assert [row.status for row in rows] == ["failed", "failed"]
    assert rows[0].error.startswith("Unspeakable (its text raised SystemExit)\n")
    assert rows[1].error.startswith("ValueError: no file \\udcff.csv\n")
    assert rows[1].notices == ("UserWarning: cannot read \\udcff.csv",)
