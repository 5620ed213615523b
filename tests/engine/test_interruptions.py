"""Drivers that are killed, stopped by Ctrl-C, or share a store; real processes throughout."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

DRIVER = Path(__file__).with_name("driver.py")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kill -9 and process groups")


class Driver:
    """One run of driver.py, with a mark in its environment that its workers inherit."""

    def __init__(self, folder, *arguments):
        self.mark = f"{random.randrange(10**12)}"
        environment = {**os.environ, "ASSAY_TEST_MARK": self.mark, "TMPDIR": str(folder)}
        self.process = subprocess.Popen(
            [sys.executable, DRIVER, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            start_new_session=True,
        )

    def wait_for(self, word):
        """Whether the driver says that word before it ends."""
        return any(line.startswith(word) for line in self.process.stdout)

    def end(self, timeout=90):
        out, err = self.process.communicate(timeout=timeout)
        return out, err

    def rows(self):
        out, err = self.end()
        assert self.process.returncode == 0, err
        return json.loads(out.splitlines()[-1])

    def left(self):
        """Processes of this driver that are still there (Linux)."""
        wanted = f"ASSAY_TEST_MARK={self.mark}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if wanted in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
            except OSError:
                continue
        return found

    def assert_nothing_left(self):
        if sys.platform != "linux":
            return
        deadline = time.monotonic() + 10
        while self.left() and time.monotonic() < deadline:
            time.sleep(0.05)
        assert self.left() == []


def kill_and_resume(folder, kills, seeds, longest):
    """Rows after ``kills`` drivers were killed at random moments; each goes on where the last was.

    Every second one is killed soon after it has told of a row, so that some die in the middle
    however slow the machine is.
    """
    path = folder / "runs.db"
    rng = random.Random(0)
    counts = []
    for i in range(kills):
        driver = Driver(folder, path, 1 + i % 2, seeds)
        driver.wait_for("row" if i % 2 else "ready")
        time.sleep(rng.uniform(0, 0.2 if i % 2 else longest))
        driver.process.kill()
        driver.end()
        driver.assert_nothing_left()
        counts.append(kept(path))
    assert counts == sorted(counts), "a finished trial was lost"
    driver = Driver(folder, path, 2, seeds)
    rows = driver.rows()
    assert [name for name in os.listdir(folder) if name.startswith("assay-")] == []
    return rows, counts


def kept(path):
    if not path.exists():
        return 0
    db = sqlite3.connect(path)
    try:
        return db.execute("SELECT count(*) FROM trials").fetchone()[0]
    except sqlite3.OperationalError:
        return 0
    finally:
        db.close()


def test_ten_kills_and_a_resumption_equal_an_uninterrupted_run(tmp_path):
    seeds = 20
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    uninterrupted = Driver(tmp_path / "a", tmp_path / "a" / "runs.db", 1, seeds).rows()
    rows, counts = kill_and_resume(tmp_path / "b", 10, seeds, longest=1.5)
    assert rows == uninterrupted
    assert len(rows) == 3 * seeds == kept(tmp_path / "b" / "runs.db")
    assert len(set(counts)) > 1, f"no kill fell into the run: {counts}"


@pytest.mark.slow
def test_a_long_campaign_of_kills(tmp_path):
    seeds = 60
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    uninterrupted = Driver(tmp_path / "a", tmp_path / "a" / "runs.db", 2, seeds).rows()
    rows, _ = kill_and_resume(tmp_path / "b", 60, seeds, longest=3.0)
    assert rows == uninterrupted
    assert kept(tmp_path / "b" / "runs.db") == 3 * seeds


def test_two_drivers_on_one_store_count_nothing_twice(tmp_path):
    path = tmp_path / "runs.db"
    drivers = [Driver(tmp_path, path, 1, 8) for _ in range(2)]
    first, second = (driver.rows() for driver in drivers)
    assert first == second
    assert len(first) == 24 == kept(path)
    db = sqlite3.connect(path)
    assert db.execute("SELECT count(*) FROM runs").fetchone() == (2,)
    db.close()


def test_ctrl_c_ends_cleanly_and_the_next_run_goes_on(tmp_path):
    path = tmp_path / "runs.db"
    driver = Driver(tmp_path, path, 2, 2, "Mean", "Sleeps")
    driver.wait_for("row")
    driver.wait_for("row")
    start = time.monotonic()
    os.killpg(driver.process.pid, signal.SIGINT)  # as a terminal does: to the whole group
    out, err = driver.end()
    assert time.monotonic() - start < 20
    assert driver.process.returncode == 130
    assert out.splitlines()[-1] == "interrupted: 2 of 4 trials have not run"
    assert "Traceback" not in err
    driver.assert_nothing_left()
    assert kept(path) == 2
    assert [name for name in os.listdir(tmp_path) if name.startswith("assay-")] == []
    again = Driver(tmp_path, path, 1, 2, "Mean")
    out, _ = again.end()
    assert "row" not in out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_request_to_end_is_obeyed_and_leaves_nothing(tmp_path, number):
    path = tmp_path / "runs.db"
    driver = Driver(tmp_path, path, 1, 1, "Mean", "Sleeps")
    driver.wait_for("row")
    driver.process.send_signal(number)
    _, err = driver.end(timeout=30)
    assert driver.process.returncode == -number
    assert "Traceback" not in err
    driver.assert_nothing_left()
    assert kept(path) == 1
    assert [name for name in os.listdir(tmp_path) if name.startswith("assay-")] == []


def test_ctrl_c_at_any_moment_ends_the_driver(tmp_path):
    rng = random.Random(1)
    for i in range(2):
        driver = Driver(tmp_path, tmp_path / f"runs{i}.db", 2, 60, "Brief")
        driver.wait_for("row")
        time.sleep(rng.uniform(0, 0.1))
        os.killpg(driver.process.pid, signal.SIGINT)
        out, err = driver.end(timeout=30)
        assert driver.process.returncode == 130
        assert "Traceback" not in err
        driver.assert_nothing_left()
        assert out.splitlines()[-1].startswith("interrupted")
