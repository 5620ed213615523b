"""``assay serve`` as a process: it starts, says where, answers, stops after the requests at hand."""

import importlib.util
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import contextmanager

import numpy as np
import pandas as pd
import pytest

import assay
from assay.cli.main import run
from assay.cli.serve import _listening

needs_extra = pytest.mark.skipif(importlib.util.find_spec("uvicorn") is None, reason="the extra serve")

#: a model that takes its time, in a package of the user
_SLOW = """
import time
from sklearn.linear_model import LinearRegression

class Slow(LinearRegression):
    def predict(self, X):
        if len(X) == 1 and X[0, 0] > 900:
            print("predicting", flush=True)
            time.sleep(1)
        return super().predict(X)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("serve")
    (path / "slow_model.py").write_text(_SLOW)
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=300)})
    frame["y"] = 2 * frame["x"] + rng.normal(size=300)
    sys.path.insert(0, str(path))
    assay.fit(frame, "y", method="split", model="slow_model:Slow").save(path / "y.assay")
    sys.path.remove(str(path))
    assay.save(assay.load(path / "y.assay", trusted=["slow_model.Slow"]).method, path / "bare.assay")
    return path


@contextmanager
def serving(folder, *options):
    """(process, port) of a service; it is stopped at the end, by then or now."""
    command = [sys.executable, "-m", "assay", "serve", "y.assay", "--port", "0", "--trust", "slow_model.Slow"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *filter(None, sys.path)])}
    process = subprocess.Popen(
        [*command, *options],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        line = process.stdout.readline()
        found = re.search(r":(\d+)\n", line)
        assert found, (line, process.stderr.read())
        yield process, int(found[1])
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def ask(port, path, content=None):
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}{path}",
        None if content is None else json.dumps(content).encode(),
        {"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


@needs_extra
def test_signals_stop_it_after_the_requests_at_hand_and_feedback_survives(folder):
    with serving(folder, "--state", "kept") as (process, port):
        assert ask(port, "/ready") == {"status": "ready"}
        assert ask(port, "/feedback", {"columns": {"x": [0, 1], "y": [0, 500]}})["covered"] == 1
        answers = []
        asking = threading.Thread(
            target=lambda: answers.append(ask(port, "/predict", {"rows": [{"x": 950}]}))
        )
        asking.start()
        assert process.stdout.readline() == "predicting\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        asking.join()
        assert answers[0]["answers"][0]["lower"] > 1000
        assert process.stderr.read() == ""
    with serving(folder, "--state", "kept", "--host", "0.0.0.0") as (process, port):
        said = ask(port, "/coverage")
        assert (said["rows"], said["covered"], said["kept"]) == (2, 1, "on disk")
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
        assert "warning: 0.0.0.0 can be reached from other machines" in process.stderr.read()


@needs_extra
def test_what_cannot_be_served_is_status_2(folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert run(["serve", "y.assay", "--port", port]) == 2
        assert f"cannot listen on 127.0.0.1 port {port}: Address already in use" in capsys.readouterr().err
    assert run(["serve", "nothing.assay", "--port", "0"]) == 2
    assert "nothing.assay" in capsys.readouterr().err
    assert run(["serve", "y.assay", "--port", "0"]) == 2
    assert "slow_model" in capsys.readouterr().err
    assert run(["serve", "bare.assay", "--port", "0", "--trust", "slow_model.Slow"]) == 2
    assert "without its columns" in capsys.readouterr().err
    assert run(["serve", "y.assay", "--port", "0", "--level", "2"]) == 2


def test_connections_send_at_once():
    """The head and the body of an answer are two packets; the second must not wait for the first."""
    with _listening("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_without_the_extra_the_command_says_what_to_install(capsys, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert run(["serve", "y.assay"]) == 2
    assert "pip install 'assay[serve]'" in capsys.readouterr().err
