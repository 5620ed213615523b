"""A saved method over HTTP: rows a second and latency, beside the same calls in process.

    python benchmarks/serve.py --json serve.json

Starts `assay serve` on this machine and asks it over keep-alive connections, a thread of this process each;
the answers are compared with those in process. Client and service share the cores. Processor time is that of
the service alone, from Linux. The ways take turns.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd

import assay
from assay.data.schema import Notices

ROWS = (1, 8, 64, 1024)
CONNECTIONS = (1, 8)
ROUNDS = 5
#: of a round
SECONDS = 1.0


class Round(NamedTuple):
    """Latencies, and time by the clock and of the processor that is asked."""

    seconds: list[float]
    clock: float
    cpu: float


class Served:
    """The service as a process of its own."""

    def __init__(self, folder: Path, threads: int) -> None:
        command = [
            sys.executable,
            "-m",
            "assay",
            "serve",
            "m.assay",
            "--port",
            "0",
            "--threads",
            str(threads),
        ]
        self._process = subprocess.Popen(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        self.port = int(re.findall(r":(\d+)$", self._process.stdout.readline())[0])

    def cpu(self) -> float:
        """Seconds of the processor so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)


def table(n: int, seed: int = 0) -> pd.DataFrame:
    """Eight columns of numbers, two of categories, and a target."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 8)), columns=[f"x{i}" for i in range(8)])
    frame["town"] = rng.choice(["Ulm", "Bonn", "Kiel"], n)
    frame["kind"] = rng.choice(list("abcdef"), n)
    frame["y"] = frame["x0"] + frame["x1"] * (frame["town"] == "Ulm") + rng.normal(size=n)
    return frame


def in_process(fitted: Any, pieces: list[pd.DataFrame]) -> Round:
    """A round of calls of predict."""
    seconds: list[float] = []
    cpu, start = time.process_time(), time.perf_counter()
    while (begun := time.perf_counter()) < start + SECONDS:
        fitted.predict(pieces[len(seconds) % len(pieces)], notices=Notices())
        seconds.append(time.perf_counter() - begun)
    return Round(seconds, time.perf_counter() - start, time.process_time() - cpu)


def over_http(service: Served, bodies: list[bytes], connections: int) -> Round:
    """A round of requests of so many connections that ask without pause."""
    seconds: list[list[float]] = [[] for _ in range(connections)]
    cpu, start = service.cpu(), time.perf_counter()

    def ask(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", service.port)
        while (begun := time.perf_counter()) < start + SECONDS:
            post(connection, bodies[(number + len(seconds[number])) % len(bodies)])
            seconds[number].append(time.perf_counter() - begun)
        connection.close()

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(connections)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Round([s for own in seconds for s in own], time.perf_counter() - start, service.cpu() - cpu)


def post(connection: http.client.HTTPConnection, body: bytes) -> bytes:
    """The answer to a request, which must be good."""
    connection.request("POST", "/predict", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"status {answer.status}: {content[:200]!r}")
    return content


def measure(folder: Path, threads: int) -> list[dict[str, Any]]:
    """One record a number of rows and way of asking."""
    fitted = assay.fit(table(4000), "y", method="split")
    fitted.save(folder / "m.assay")
    with Served(folder, threads) as service:
        found = []
        for rows in ROWS:
            pieces = [table(rows, seed).drop(columns="y") for seed in range(1, 21)]
            bodies = [json.dumps({"rows": piece.to_dict("records")}).encode() for piece in pieces]
            check(service.port, bodies[0], fitted.predict(pieces[0], notices=Notices()))
            ways: dict[str, Callable[[], Round]] = {"in process": partial(in_process, fitted, pieces)}
            for connections in CONNECTIONS:
                ways[f"HTTP, {connections} at a time"] = partial(over_http, service, bodies, connections)
            rounds: dict[str, list[Round]] = {way: [] for way in ways}
            for _ in range(ROUNDS):  # in turn: what else the machine does falls on all of them
                for way, run in ways.items():
                    rounds[way].append(run())
            found += [summary(rows, way, rounds[way], rounds["in process"]) for way in ways]
        return found


def summary(rows: int, way: str, rounds: list[Round], alone: list[Round]) -> dict[str, Any]:
    """Rows a second, quantiles of latency, processor time of a request, and ratios to calls in process."""
    latency = np.concatenate([r.seconds for r in rounds])
    p50, p95, p99 = (np.quantile(latency, [0.5, 0.95, 0.99]) * 1000).tolist()
    return {
        "rows": rows,
        "way": way,
        "rows_a_second": rows * median(len(r.seconds) / r.clock for r in rounds),
        "p50_ms": p50,
        "p95_ms": p95,
        "p99_ms": p99,
        "cpu_ms": 1000 * median(r.cpu / len(r.seconds) for r in rounds),
        "latency_ratio": median(
            median(r.seconds) / median(a.seconds) for r, a in zip(rounds, alone, strict=True)
        ),
        "cpu_ratio": median(
            r.cpu / len(r.seconds) / (a.cpu / len(a.seconds)) for r, a in zip(rounds, alone, strict=True)
        ),
    }


def check(port: int, body: bytes, expected: pd.DataFrame) -> None:
    """The same bits."""
    got = pd.DataFrame(json.loads(post(http.client.HTTPConnection("127.0.0.1", port), body))["answers"])
    if got.to_numpy().tobytes() != expected.to_numpy().tobytes():
        raise RuntimeError("the service answers otherwise than predict")


def main() -> int:
    """Print the numbers; --json writes them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--json", type=Path)
    parser.add_argument("--threads", type=int, default=min(4, os.cpu_count() or 1))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="serve-benchmark-") as folder:
        found = measure(Path(folder), arguments.threads)
    print(pd.DataFrame(found).round(2).to_string(index=False))
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
