"""A saved method in use: rows from Parquet in bounded memory, and saving and loading beside a pickle.

    python benchmarks/saved.py [--rows 10000000] [--json saved.json]

Fits split conformal with the default model on 20,000 rows of six columns (two of them text), saves it, and
predicts ``--rows`` rows with the command line in a process of its own: seconds, peak memory of that process
(the bound of the project is 1 GiB for 10,000,000 rows), and what of the time the model and the preparation of
the columns take. Then saving and loading, medians of 5, as ratios to a joblib pickle of the same object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

import assay
from assay.data.schema import Notices

BOUND_MIB = 1024
_CHUNK = 500_000


def rows(n: int, seed: int) -> pd.DataFrame:
    """Six columns and a price."""
    rng = np.random.default_rng(seed)
    area, rooms = rng.uniform(20, 200, n).round(1), rng.integers(1, 8, n)
    frame = pd.DataFrame({"area": area, "rooms": rooms, "age": rng.integers(0, 120, n)})
    frame["lat"] = rng.normal(48, 1, n)
    frame["town"] = rng.choice(["Ulm", "Bonn", "Kiel", "Jena"], n)
    frame["heating"] = rng.choice(["gas", "oil", "pump"], n)
    frame["price"] = 3 * area + 10 * rooms + rng.normal(0, 20, n)
    return frame


def write(path: Path, n: int) -> None:
    """A Parquet file of n rows, a chunk at a time."""
    writer = None
    for seed, start in enumerate(range(0, n, _CHUNK)):
        table = pa.Table.from_pandas(rows(min(_CHUNK, n - start), seed).drop(columns="price"))
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


def predict(saved: Path, data: Path, out: Path) -> tuple[float, float]:
    """(seconds, peak MiB) of ``assay predict`` in a process of its own."""
    command = [sys.executable, "-m", "assay", "predict", str(saved), str(data), "-o", str(out), "--quiet"]
    start = time.perf_counter()
    child = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise RuntimeError(f"assay predict ended with status {status}")
    return time.perf_counter() - start, usage.ru_maxrss / (1 if sys.platform == "darwin" else 1024)


def seconds(run: Callable[[], Any], repeats: int = 5) -> float:
    """Median seconds of a call."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        fitted = assay.fit(rows(20_000, 99), "price", method="split")
        fitted.save(here / "m.assay")
        write(here / "new.parquet", options.rows)
        taken, peak = predict(here / "m.assay", here / "new.parquet", here / "out.parquet")
        answered = pq.read_metadata(here / "out.parquet").num_rows
        batch = rows(65_536, 1).drop(columns="price")
        X = fitted.prepare(fitted.schema.conform(batch, Notices()))
        parts = {
            "columns read as in training": seconds(lambda: fitted.schema.conform(batch, Notices())),
            "columns made numbers": seconds(lambda: fitted.prepare(batch)),
            "the model, once": seconds(lambda: fitted.method.predict(X)),
            "the whole answer": seconds(lambda: fitted.predict(batch, notices=Notices())),
        }
        times = {
            "save": seconds(lambda: fitted.save(here / "m.assay")),
            "load": seconds(lambda: assay.load(here / "m.assay")),
            "pickle": seconds(lambda: joblib.dump(fitted, here / "m.joblib")),
            "unpickle": seconds(lambda: joblib.load(here / "m.joblib")),
        }
        sizes = [(here / name).stat().st_size / 2**20 for name in ("m.assay", "m.joblib")]
    print(f"{answered:,} rows from Parquet: {taken:.0f} s, peak {peak:.0f} MiB (bound {BOUND_MIB})")
    for name, part in parts.items():
        print(f"  {name:30} {1000 * part:7.0f} ms for 65,536 rows")
    print(f"  save / pickle   {times['save'] / times['pickle']:.1f}  ({1000 * times['save']:.0f} ms)")
    print(f"  load / unpickle {times['load'] / times['unpickle']:.1f}  ({1000 * times['load']:.0f} ms)")
    print(f"  size            {sizes[0]:.2f} MiB, pickle {sizes[1]:.2f} MiB")
    if options.json is not None:
        content = {"rows": answered, "seconds": taken, "peak_mib": peak, "parts": parts, "times": times}
        options.json.write_text(json.dumps(content, indent=1))
    return 0 if answered == options.rows and peak < BOUND_MIB else 1


if __name__ == "__main__":
    sys.exit(main())
