"""A saved method over HTTP: rows a second and latency, beside the same calls in process.

    python benchmarks/serve.py --json serve.json

Starts `assay serve` on this machine, with keep-alive connections of one client process that has a thread for
each. The answers are compared with those in process. By the clock: a service waits, so processor time of
the client alone says little; client and service share the cores.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import assay
from assay.data.schema import Notices

ROWS = (1, 8, 64, 1024)
CONNECTIONS = (1, 8)
SECONDS = 4.0


def table(n: int, seed: int = 0) -> pd.DataFrame:
    """Eight columns of numbers, two of categories, and a target."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 8)), columns=[f"x{i}" for i in range(8)])
    frame["town"] = rng.choice(["Ulm", "Bonn", "Kiel"], n)
    frame["kind"] = rng.choice(list("abcdef"), n)
    frame["y"] = frame["x0"] + frame["x1"] * (frame["town"] == "Ulm") + rng.normal(size=n)
    return frame


def in_process(fitted: Any, pieces: list[pd.DataFrame]) -> list[float]:
    """Seconds of each call of predict."""
    seconds: list[float] = []
    end = time.perf_counter() + SECONDS
    while (start := time.perf_counter()) < end:
        fitted.predict(pieces[len(seconds) % len(pieces)], notices=Notices())
        seconds.append(time.perf_counter() - start)
    return seconds


def over_http(port: int, bodies: list[bytes], connections: int) -> tuple[list[float], float]:
    """(seconds of each request, seconds in all) of so many connections that ask without pause."""
    seconds: list[list[float]] = [[] for _ in range(connections)]
    end = time.perf_counter() + SECONDS

    def ask(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        while (start := time.perf_counter()) < end:
            post(connection, bodies[(number + len(seconds[number])) % len(bodies)])
            seconds[number].append(time.perf_counter() - start)
        connection.close()

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(connections)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [s for own in seconds for s in own], time.perf_counter() - start


def post(connection: http.client.HTTPConnection, body: bytes) -> bytes:
    """The answer to a request, which must be good."""
    connection.request("POST", "/predict", body, {"content-type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"status {answer.status}: {content[:200]!r}")
    return content


def quantiles(seconds: list[float]) -> dict[str, float]:
    """Milliseconds."""
    found = np.quantile(seconds, [0.5, 0.95, 0.99]) * 1000
    return dict(zip(("p50_ms", "p95_ms", "p99_ms"), map(float, found), strict=True))


def measure(folder: Path, threads: int) -> list[dict[str, Any]]:
    """One record a number of rows and way of asking."""
    fitted = assay.fit(table(4000), "y", method="split")
    fitted.save(folder / "m.assay")
    command = [sys.executable, "-m", "assay", "serve", "m.assay", "--port", "0", "--threads", str(threads)]
    service = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert service.stdout is not None
    try:
        port = int(re.findall(r":(\d+)$", service.stdout.readline())[0])
        found = []
        for rows in ROWS:
            pieces = [table(rows, seed).drop(columns="y") for seed in range(1, 21)]
            bodies = [json.dumps({"rows": piece.to_dict("records")}).encode() for piece in pieces]
            check(port, bodies[0], fitted.predict(pieces[0], notices=Notices()))
            calls = in_process(fitted, pieces)
            alone = statistics.median(calls)
            rate = rows / statistics.mean(calls)
            found.append({"rows": rows, "way": "in process", "rows_a_second": rate, **quantiles(calls)})
            for connections in CONNECTIONS:
                seconds, total = over_http(port, bodies, connections)
                served = rows * len(seconds) / total
                found.append(
                    {
                        "rows": rows,
                        "way": f"HTTP, {connections} at a time",
                        "rows_a_second": served,
                        **quantiles(seconds),
                        "latency_ratio": statistics.median(seconds) / alone,
                        "rate_ratio": served / rate,
                    }
                )
        return found
    finally:
        service.send_signal(signal.SIGTERM)
        service.wait(30)
        service.stdout.close()


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
