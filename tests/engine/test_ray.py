"""Trials on a Ray cluster of two nodes: the local executor's rows, also when a node is lost midway."""

import logging
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_interruptions import Driver, kept
from test_run import numbers, question

import assay
from assay.core.errors import AssayError, MissingDependency, TaskError
from assay.core.quantiles import conformal_quantile
from assay.engine.api import compare
from assay.engine.environment import Environment
from assay.engine.executors import seat
from assay.engine.executors.packing import pack
from assay.engine.plan import Limits, MethodSpec
from assay.engine.ray_data import BatchPredictor
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
    pytest.importorskip("ray")
    path = os.environ.get("PYTHONPATH", "")
    os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), path])
    try:
        made = Nodes(2)
    finally:
        os.environ["PYTHONPATH"] = path
    yield made
    made.cluster.shutdown()


@pytest.fixture
def connected(nodes):
    """Ray, for tests that use it themselves beside us."""
    import ray

    ray.init(address=nodes.address, log_to_driver=False, logging_level=logging.CRITICAL)
    yield ray
    ray.shutdown()


def parent(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def own_folders():
    return {name for name in os.listdir("/tmp") if name.startswith("assay-ray-")}


def rerun(asked, **arguments):
    """(methods of which a trial is run anew, how many rows the store had)."""
    events = []
    run_question(asked, progress=events.append, **arguments)
    return [event.result.method for event in events[1:]], events[0].done


def test_rows_are_those_of_local_processes(nodes, tmp_path, capfd):
    names = ["Mean", "Least", "ChangesItsProcess", "SaysWhatItMeets", "Raises", "KillsItself"]
    limits = Limits(seconds=4.0, memory=150 * MIB)
    asked = question(*names, "HoldsTheLock", "AllocatesArrays", seeds=(0,), limits=limits)
    local = run_question(asked, workers=2)[1]
    assert [row.status for row in local[6:]] == ["timed out", "out of memory"]
    with Store(tmp_path / "runs.db") as store:
        rows = run_question(asked, backend="ray", address=nodes.address, store=store)[1]
        assert numbers(rows) == numbers(local)
        assert [row.identity for row in rows] == [row.identity for row in local]
        assert [row.error for row in rows] == [row.error for row in local]
        assert [len(row.notices) for row in rows] == [len(row.notices) for row in local]
        # a row is a row wherever it was made: only what was ended from outside runs again
        assert rerun(asked, store=store) == (["KillsItself"], 7)
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_a_trial_that_takes_its_host_along_is_one_row(nodes):
    asked = question("KillsItsHost", "Mean", seeds=(0,))
    rows = run_question(asked, backend="ray", address=nodes.address)[1]
    assert [row.status for row in rows] == ["failed", "ok"]
    assert rows[0].error.startswith("its node or the process that hosts it was lost 3 times")
    assert rows[0].detail["ended_from_outside"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
def test_a_saved_method_predicts_a_data_set_of_ray_and_the_connection_stays(connected, tmp_path):
    data = pytest.importorskip("ray.data")
    data.DataContext.get_current().enable_progress_bars = False
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"a": rng.normal(size=600), "town": rng.choice(["Ulm", "Bonn"], 600)})
    fitted = assay.fit(table.assign(y=table["a"] + rng.normal(size=600)), "y", method="split")
    fitted.save(tmp_path / "a.assay")
    table.assign(id=range(600)).to_parquet(tmp_path / "rows.parquet")
    answers = data.read_parquet(str(tmp_path / "rows.parquet")).map_batches(
        BatchPredictor,
        fn_constructor_args=((tmp_path / "a.assay").read_bytes(),),
        fn_constructor_kwargs={"keep": ["id"]},
        batch_format="pandas",
        batch_size=100,
        concurrency=1,
    )
    got = answers.to_pandas().set_index("id").sort_index()
    expected = fitted.predict(table)
    assert list(got.columns) == list(expected.columns)
    np.testing.assert_array_equal(got.to_numpy(), expected.to_numpy())
    assert run_question(question("Mean", seeds=(0,)), backend="ray")[1][0].status == "ok"
    assert connected.is_initialized()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
def test_what_the_page_says_of_ray_runs(connected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"a": rng.normal(size=300), "y": rng.normal(size=300)})
    assay.fit(rows, "y", method="split").save("price.assay")
    (tmp_path / "rows").mkdir()
    rows.drop(columns="y").assign(id=range(300)).to_parquet("rows/part.parquet")
    parts = [rng.exponential(size=5000) for _ in range(5)]
    names = {"parts": 5, "scores_of": lambda part: [parts[part]]}
    page = (HERE.parents[1] / "docs" / "many-machines.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for block in blocks:
        exec(block.replace("concurrency=4", "concurrency=1").replace("/data/", f"{tmp_path}/"), names)
    assert len(blocks) == 2
    assert names["q"] == conformal_quantile(np.concatenate(parts), 0.1)
    assert sorted(pd.read_parquet("answers")["id"]) == list(range(300))


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
        arguments = {"backend": "ray", "address": nodes.address, "progress": progress}
        rows = run_question(asked, store=store, **arguments)[1]
    assert len(nodes.nodes) == 1
    assert len(note.read_text().splitlines()) > 16, "the node had no trial when it was lost"
    assert kept(tmp_path / "runs.db") == 16
    assert numbers(rows) == numbers(run_question(asked, in_process=True)[1])
    assert capfd.readouterr() == ("", "")


def test_ctrl_c_on_a_cluster_of_ones_own_leaves_what_is_done_and_nothing_else(tmp_path, monkeypatch):
    pytest.importorskip("ray")
    path = tmp_path / "runs.db"
    monkeypatch.setenv("ASSAY_TEST_RAY", "own")
    before = own_folders()
    driver = Driver(tmp_path, path, 1, 24)
    assert driver.wait_for("row")
    os.killpg(driver.process.pid, signal.SIGINT)
    out, err = driver.end()
    assert (driver.process.returncode, err) == (130, "")
    assert "of 72 trials have not run" in out.splitlines()[-1]
    driver.assert_nothing_left()
    assert own_folders() <= before
    assert os.listdir(tmp_path) == ["runs.db"]
    done = kept(path)
    assert 1 <= done < 72
    with Store(path) as store:
        asked = question("Brief", "Mean", "Raises", seeds=tuple(range(24)))
        ran, reused = rerun(asked, store=store)
        assert (len(ran), reused) == (72 - done, done)
        assert kept(path) == 72


@pytest.mark.slow
def test_a_driver_that_is_killed_leaves_the_cluster_free(connected, nodes, tmp_path, monkeypatch):
    path = tmp_path / "runs.db"
    monkeypatch.setenv("ASSAY_TEST_RAY", nodes.address)
    driver = Driver(tmp_path, path, 2, 60)
    assert driver.wait_for("row")
    driver.process.kill()
    driver.end()
    done = kept(path)
    assert 1 <= done < 180
    deadline = time.monotonic() + 30
    while connected.available_resources().get("CPU", 0) < 2 and time.monotonic() < deadline:
        time.sleep(0.1)
    assert connected.available_resources()["CPU"] == 2, "seats are left of a driver that is gone"
    with Store(path) as store:
        asked = question("Brief", "Mean", "Raises", seeds=tuple(range(60)))
        assert rerun(asked, store=store, backend="ray")[1] == done
        rows = run_question(asked, store=store)[1]
        assert numbers(rows) == numbers(run_question(asked, in_process=True)[1])


def test_a_node_that_differs_is_refused_by_name(nodes, monkeypatch):
    real = Environment.of(question("Mean"))
    facts = {**real.facts, "numpy": "1.0", "the sources of assay": "others"}
    monkeypatch.setattr(Environment, "of", lambda asked: replace(real, facts=facts))
    with pytest.raises(AssayError, match=r"differs(.|\n)*numpy: 2\S+, and 1.0 where it was asked\n.*sources"):
        run_question(question("Mean"), backend="ray", address=nodes.address)


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
    with pytest.raises(AssayError, match=r"no Ray cluster at 127.0.0.1:1: .*; `ray start --head` starts"):
        compare("diabetes", methods=["split"], backend="ray", address="127.0.0.1:1")
    with pytest.raises(TaskError, match="neither auto nor HOST:PORT"):
        compare("diabetes", methods=["split"], backend="ray", address="here")
    with pytest.raises(TaskError, match="on a node of the cluster"):
        compare("diabetes", methods=["split"], backend="ray", address="ray://host:10001")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependency, match=r"pip install 'assay\[ray\]'"):
        compare("diabetes", methods=["split"], backend="ray")


def test_ray_is_imported_only_when_asked_for():
    code = "import sys, assay.cli.main, assay.engine.api, assay.engine.run; assert 'ray' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
