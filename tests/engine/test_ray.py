"""Trials on a Ray cluster of two nodes: the local executor's rows, also when a node is lost midway."""

import logging
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from test_interruptions import Driver, kept
from test_run import numbers, question

from assay.core.errors import AssayError, MissingDependency, TaskError
from assay.engine.api import compare
from assay.engine.environment import Environment
from assay.engine.executors import seat
from assay.engine.executors.packing import pack
from assay.engine.plan import Limits, MethodSpec
from assay.engine.run import plan_trials, run_question
from assay.engine.store import Store

HERE = Path(__file__).resolve().parent
MIB = 2**20
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="process groups")


class Nodes:
    """A cluster of processes of this machine: a head without CPUs, and nodes of one CPU."""

    def __init__(self, n):
        from ray.cluster_utils import Cluster

        settings = {"health_check_initial_delay_ms": 0, "health_check_period_ms": 1000}
        head = {"num_cpus": 0, "include_dashboard": False, "_system_config": settings}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.nodes = [self.cluster.add_node(num_cpus=1) for _ in range(n)]
        self.cluster.wait_for_nodes()
        self.address = self.cluster.address

    def kill_node_of(self, process):
        """End the node, without farewell, on which a worker process of a seat runs."""
        raylet = parent(parent(process))
        [node] = [node for node in self.nodes if node.all_processes["raylet"][0].process.pid == raylet]
        self.nodes.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)


@pytest.fixture(scope="module")
def nodes():
    ray = pytest.importorskip("ray")
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), path])
    try:
        made = Nodes(2)
    finally:
        os.environ["PYTHONPATH"] = path
    ray.init(address=made.address, log_to_driver=False, logging_level=logging.CRITICAL)
    yield made
    ray.shutdown()
    made.cluster.shutdown()


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def rerun(asked, **arguments):
    """The methods of which a trial is run, rather than taken from the store."""
    events = []
    run_question(asked, progress=events.append, **arguments)
    new = events[0].done
    return [event.result.method for event in events[1:]], new


def test_rows_equal_those_of_local_processes(nodes, tmp_path, capfd):
    names = ["Mean", "Least", "Writes", "ChangesItsProcess", "SaysWhatItMeets", "Raises", "KillsItself"]
    asked = question(*names)
    local = run_question(asked)[1]
    with Store(tmp_path / "runs.db") as store:
        rows = run_question(asked, backend="ray", store=store)[1]
        assert numbers(rows) == numbers(local)
        assert [row.identity for row in rows] == [row.identity for row in local]
        assert [row.error for row in rows] == [row.error for row in local]
        assert [len(row.notices) for row in rows] == [len(row.notices) for row in local]
        # a row is a row wherever it was made: only what was ended from outside runs again
        assert rerun(asked, store=store) == (["KillsItself"] * 2, 12)
        assert rerun(asked, store=store, backend="ray", address=nodes.address) == (["KillsItself"] * 2, 12)
    assert capfd.readouterr() == ("", "")


def test_limits_hold_and_a_trial_that_takes_its_host_along_is_one_row(nodes):
    limits = Limits(seconds=2.0, memory=150 * MIB)
    asked = question("HoldsTheLock", "AllocatesArrays", "KillsItsHost", "Mean", seeds=(0,), limits=limits)
    rows = run_question(asked, backend="ray")[1]
    assert [row.status for row in rows] == ["timed out", "out of memory", "failed", "ok"]
    assert rows[0].error == "killed at the time limit of 2 s"
    assert "ended_from_outside" not in rows[1].detail
    assert rows[2].error.startswith("its node or the process that hosts it was lost 3 times")
    assert rows[2].detail["ended_from_outside"]


def test_drivers_that_are_killed_or_stopped_are_gone_on_from(nodes, tmp_path, monkeypatch):
    import ray

    path = tmp_path / "runs.db"
    monkeypatch.setenv("ASSAY_TEST_RAY", nodes.address)
    first = Driver(tmp_path, path, 2, 30)
    assert first.wait_for("row")
    first.process.kill()
    first.end()
    after_kill = kept(path)
    second = Driver(tmp_path, path, 2, 30)
    assert second.wait_for("row")
    os.killpg(second.process.pid, signal.SIGINT)
    out, err = second.end()
    assert second.process.returncode == 130
    assert err == ""
    assert "have not run" in out
    assert 1 <= after_kill < kept(path) < 90
    asked = question("Brief", "Mean", "Raises", seeds=tuple(range(30)))
    with Store(path) as store:
        done = kept(path)
        ran, reused = rerun(asked, store=store, workers=2)
        assert (len(ran), reused) == (90 - done, done)
        assert kept(path) == 90
        assert numbers(run_question(asked, store=store)[1]) == numbers(
            run_question(asked, in_process=True)[1]
        )
    deadline = time.monotonic() + 30
    while ray.available_resources().get("CPU", 0) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert ray.available_resources()["CPU"] == 2, "seats are left of a driver that is gone"


def test_a_node_that_is_lost_midway_loses_nothing_and_repeats_nothing(nodes, tmp_path, capfd):
    note = tmp_path / "begun"
    method = MethodSpec("Notes", "trivial_methods:Notes", {"note": str(note)})
    asked = question(method, seeds=tuple(range(16)))
    finished = set()

    def progress(event):
        if event.result is not None:
            finished.add(event.result.seed)
        process = in_flight() if finished else None
        if process is not None and len(nodes.nodes) == 2:
            nodes.kill_node_of(process)

    def in_flight():
        """The process of a trial that has begun and is not over."""
        begun = dict(map(int, line.split()) for line in note.read_text().splitlines())
        return next((process for seed, process in begun.items() if seed not in finished), None)

    with Store(tmp_path / "runs.db") as store:
        rows = run_question(asked, backend="ray", store=store, progress=progress)[1]
    assert len(nodes.nodes) == 1
    assert len(note.read_text().splitlines()) > 16, "the node had no trial when it was lost"
    assert kept(tmp_path / "runs.db") == 16
    assert numbers(rows) == numbers(run_question(asked, in_process=True)[1])
    assert capfd.readouterr() == ("", "")


def test_a_cluster_of_ones_own_is_silent_and_leaves_nothing(tmp_path):
    pytest.importorskip("ray")
    command = [sys.executable, "-m", "assay", "compare", "diabetes", "--methods", "split", "--seeds", "1"]
    command += ["--store", "runs.db", "--report", "r.html", "--backend", "ray", "--workers", "1", "--quiet"]
    environment = {**os.environ, "TMPDIR": "/tmp"}
    before = set(os.listdir("/tmp"))
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Which prediction intervals does split give")
    new = [name for name in set(os.listdir("/tmp")) - before if name.startswith("assay-ray-")]
    assert new == []


def test_a_node_that_differs_is_refused_by_name(nodes, monkeypatch):
    real = Environment.of(question("Mean"))
    facts = {**real.facts, "numpy": "1.0", "the sources of assay": "others"}
    monkeypatch.setattr(Environment, "of", lambda asked: replace(real, facts=facts))
    with pytest.raises(AssayError, match=r"differs(.|\n)*numpy: 2\S+, and 1.0 where it was asked\n.*sources"):
        run_question(question("Mean"), backend="ray")


def test_an_environment_knows_what_is_not_there():
    here = Environment.of(question("Mean"))
    assert here.differences() == []
    assert {"python", "numpy", "scikit-learn", "the sources of trivial_methods"} <= set(here.facts)
    there = replace(here, modules=("no_such_module_here",), facts={"the sources of no_such_module_here": "x"})
    assert any("no_such_module_here: not there, and x" in text for text in there.differences())


def test_a_nodes_own_part_of_the_memory_says_nothing_of_the_method(monkeypatch):
    monkeypatch.setattr(seat, "_seats_here", lambda: 1)
    monkeypatch.setattr(seat, "default_limit", lambda seats: 150 * MIB // seats)
    asked = question("AllocatesArrays", seeds=(0,))
    trial = plan_trials(asked)[0]
    place = seat.Seat(pack(asked), Environment.of(asked), [])
    assert place.open() == []
    try:
        row = place.run("AllocatesArrays", 0, trial.identity)
    finally:
        place.close()
    assert (row.status, row.identity) == ("out of memory", trial.identity)
    assert row.error.endswith("part of 150 MiB was too small; a limit of your own holds on all nodes")
    assert row.detail["ended_from_outside"]


def test_what_cannot_be_asked(monkeypatch):
    with pytest.raises(TaskError, match="there are: local, ray"):
        compare("diabetes", backend="dask")
    with pytest.raises(TaskError, match="needs backend 'ray'"):
        compare("diabetes", address="auto")
    with pytest.raises(TaskError, match="give one"):
        compare("diabetes", backend="ray", in_process=True)
    with pytest.raises(TaskError, match="on a node of the cluster"):
        compare("diabetes", methods=["split"], backend="ray", address="ray://host:10001")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency, match=r"pip install 'assay\[ray\]'"):
        compare("diabetes", methods=["split"], backend="ray")


def test_ray_is_imported_only_when_asked_for():
    code = "import sys, assay.cli.main, assay.engine.api, assay.engine.run; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
