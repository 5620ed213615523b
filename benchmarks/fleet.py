"""A fleet of 100,000 series: updates a second, size of the state, restart; `assay monitor` on lines of CSV.

    python benchmarks/fleet.py --json fleet.json

Processor time of one process, medians; a restart is the clock, in a fresh process, with the file in the
cache of the system. Learning rates: one that is fixed, and "auto", which weighs four.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from assay.conformal.eci import ErrorQuantifiedTracker
from assay.conformal.fleet import Fleet
from assay.conformal.fleet_store import DurableFleet

SERIES = 100_000
WINDOW = 100


Rate = float | str

#: the fixed one is that of the speed question, the other the default of ``assay monitor``
RATES: tuple[Rate, ...] = (0.1, "auto")


def tracker(lr: Rate = 0.1) -> ErrorQuantifiedTracker:
    """ECI with a window of 100."""
    return ErrorQuantifiedTracker(lr=lr, window=WINDOW)


def fleet(lr: Rate = 0.1, **options: Any) -> Fleet:
    """Signed intervals at 90 %, alarms on."""
    return Fleet(tracker(lr), alpha=0.1, **options)


def rate(call: Callable[[int], Any], rows: int, repeats: int = 15) -> dict[str, float]:
    """Rows a second of ``call(t)`` by processor time and by the clock, after one call that compiles."""
    call(0)
    cpu, clock = [], []
    for t in range(1, repeats + 1):
        start, cpu_start = time.perf_counter(), time.process_time()
        call(t)
        clock.append(time.perf_counter() - start)
        cpu.append(time.process_time() - cpu_start)
    return {"cpu": rows / statistics.median(cpu), "clock": rows / statistics.median(clock)}


def memory_rates(rng: np.random.Generator) -> dict[str, Any]:
    """Updates a second of the tracker alone, and of the fleet in batches of several shapes."""
    y = rng.normal(size=(SERIES, 20))
    forecasts, ids = np.zeros(SERIES), [f"series-{i}" for i in range(SERIES)]
    out: dict[str, Any] = {}
    for lr in RATES:
        alone = tracker(lr).start(SERIES)
        out[f"lr {lr}: tracker, 100,000 scores a call"] = rate(
            lambda t, alone=alone: alone.update(y[:, t]), SERIES
        )
        whole = fleet(lr, alarm_after=0)
        out[f"lr {lr}: fleet, all series once"] = rate(
            lambda t, whole=whole: whole.update(ids, np.full(SERIES, t), forecasts, y[:, t]), SERIES
        )
    both = tracker().start(2 * SERIES)
    out["tracker, both sides of 100,000"] = rate(lambda t: both.update(np.repeat(y[:, t], 2)), SERIES)
    for name, options in (("with alarms", {}), ("without alarms", {"alarm_level": None})):
        one = fleet(alarm_after=0, **options)
        out[f"fleet, all series once, {name}"] = rate(
            lambda t, one=one: one.update(ids, np.full(SERIES, t), forecasts, y[:, t]), SERIES
        )
    mixed = fleet()
    mixed.update(ids, np.zeros(SERIES, np.int64), forecasts, y[:, 0])
    orders = [rng.permutation(SERIES) for _ in range(16)]
    shuffled = [[ids[i] for i in order] for order in orders]
    out["fleet, all series in a new order each time"] = rate(
        lambda t: mixed.update(shuffled[t], np.full(SERIES, t + 1), forecasts, y[:, t]), SERIES
    )
    some = fleet()
    some.update(ids, np.zeros(SERIES, np.int64), forecasts, y[:, 0])
    out["fleet, 1,000 of 100,000 series"] = rate(
        lambda t: some.update(shuffled[t][:1000], np.full(1000, t + 1), forecasts[:1000], y[:1000, t]), 1000
    )
    few = fleet()
    names = [f"s{i}" for i in range(1000)] * 100
    times = np.repeat(np.arange(100), 1000)
    out["fleet, 100 rows of each of 1,000 series"] = rate(
        lambda t: few.update(names, times + 100 * t, forecasts, y[:, t]), SERIES
    )
    return out


#: opens the state in a fresh process; with rows to learn it goes on and keeps a checkpoint
_REOPEN = """
import sys, time
sys.path.insert(0, sys.argv[1])
import fleet, numpy as np
from pathlib import Path

def peak():
    # of this program alone: getrusage counts the process that it was forked from
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

made, before = fleet.fleet(sys.argv[3] if sys.argv[3] == "auto" else float(sys.argv[3])), peak()
start = time.perf_counter()
state = fleet.DurableFleet(made, Path(sys.argv[2]))
seconds, opened = time.perf_counter() - start, peak() - before
if int(sys.argv[4]):
    n = len(made.series)
    for t in range(3):
        state.update(made.series, np.full(n, 10_000 + t), np.zeros(n), np.ones(n))
    state.checkpoint()
print(seconds, opened, peak() - before)
state._folder.close()
"""


def reopened(folder: Path, lr: Rate, learn: bool = False) -> list[float]:
    """Seconds to open the state in a fresh process, MiB that it took, MiB with three batches more."""
    arguments = [str(Path(__file__).parent), str(folder), str(lr), str(int(learn))]
    done = subprocess.run(
        [sys.executable, "-c", _REOPEN, *arguments], capture_output=True, text=True, check=True
    )
    return [float(number) for number in done.stdout.split()]


def durable_rates(rng: np.random.Generator, folder: Path, lr: Rate) -> dict[str, Any]:
    """Batches on the disk: rows a second, size of state, restart, memory."""
    ids, path = [f"series-{i}" for i in range(SERIES)], folder / f"state-{lr}"
    state = DurableFleet(fleet(lr), path)
    y = rng.normal(size=(SERIES, 110))
    for t in range(100):  # fill the windows
        state.fleet.update(ids, np.full(SERIES, t), np.zeros(SERIES), y[:, t])
    out: dict[str, Any] = {
        "durable, batches of 100,000": rate(
            lambda t: state.update(ids, np.full(SERIES, 100 + t), np.zeros(SERIES), y[:, 100]), SERIES, 6
        )
    }
    start = time.perf_counter()
    out["checkpoint, MB"] = state.checkpoint() / 1e6
    out["checkpoint, seconds"] = time.perf_counter() - start
    out["state, MB"] = sum(array.nbytes for array in state.fleet.state_views().values()) / 1e6
    state.close()
    found = [reopened(path, lr) for _ in range(5)]
    out["restart, seconds"], out["restart, MiB"] = (
        statistics.median(one[i] for one in found) for i in range(2)
    )
    state = DurableFleet(fleet(lr), path)
    for t in range(4):
        state.update(ids, np.full(SERIES, 200 + t), np.zeros(SERIES), y[:, 100])
    state._folder.close()  # as a kill leaves it
    out["restart with 400,000 rows of journal, seconds"] = statistics.median(
        reopened(path, lr)[0] for _ in range(5)
    )
    out["restart, three batches, checkpoint, MiB"] = reopened(path, lr, learn=True)[2]
    shutil.rmtree(path)
    return {f"lr {lr}: {name}": value for name, value in out.items()}


def command_rate(rng: np.random.Generator, folder: Path) -> dict[str, Any]:
    """Rows a second of the whole command on CSV: 1,000 series x 500 steps."""
    source = folder / "rows.csv"
    y = rng.normal(size=(500, 1000))
    with source.open("w") as file:
        file.write("series_id,time,forecast,actual\n")
        for t in range(500):
            file.writelines(f"s{i},{t},0.5,{value:.6f}\n" for i, value in enumerate(y[t]))
    clock, cpu = [], []
    for turn in range(3):
        argv = ["monitor", str(source), "--state", str(folder / f"m{turn}"), "--quiet"]
        argv += ["--lr", "0.1", "--out", str(folder / f"m{turn}.csv")]
        start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "assay", *argv], check=True)
        clock.append(time.perf_counter() - start)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    rates = {"cpu": 500_000 / statistics.median(cpu), "clock": 500_000 / statistics.median(clock)}
    return {"assay monitor, 500,000 lines of CSV": rates}


def main() -> int:
    """Print the numbers; --json writes them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    folder = Path(tempfile.mkdtemp(prefix="fleet-benchmark-"))
    try:
        found = memory_rates(rng)
        for lr in RATES:
            found |= durable_rates(rng, folder, lr)
        found |= command_rate(rng, folder)
    finally:
        shutil.rmtree(folder)
    for name, value in found.items():
        if isinstance(value, dict):
            text = ", ".join(f"{count / 1e6:.2f} million a second ({kind})" for kind, count in value.items())
        else:
            text = f"{value:.2f}"
        print(f"{name}: {text}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
