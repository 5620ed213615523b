"""The same work by assay and by other libraries, in an environment of its own, into benchmarks/peers.json.

    make peers                  # python benchmarks/peers, then the table of README.md

Builds the environment (BENCH_ENV, or .bench-env) by benchmarks/environment.sh where there is none. A peer
that is not there or fails is recorded as such; only what fails in assay itself ends this with an error.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COMMAND = "make peers"
THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def inside(argv: list[str]) -> int:
    """Run this file by the interpreter of the environment, which is built if need be."""
    folder = ROOT / os.environ.get("BENCH_ENV", ".bench-env")
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run(["bash", str(HERE.parent / "environment.sh"), sys.executable], check=True)
    environment = {**os.environ, **THREADS, "ASSAY_PEERS_INSIDE": "1", "PYTHONWARNINGS": "ignore"}
    return subprocess.run([str(python), str(HERE), *argv], env=environment, check=False).returncode


def machine() -> dict[str, Any]:
    """Cores and memory that this process may use, and the kind of processor."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    group = Path("/sys/fs/cgroup/memory.max")
    if group.exists() and (limit := group.read_text().strip()) != "max":
        limits.append(int(limit))
    return {
        "kind": platform.machine(),
        "system": platform.system(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(min(limits) / 2**30),
        "threads": 1,
    }


def peers() -> list[dict[str, str]]:
    """Each peer: version, how it was installed, and why it cannot be used, if so."""
    from who import PEERS

    return [
        {
            "name": peer.name,
            "version": peer.version() or "",
            "installed": peer.installed,
            "trouble": peer.trouble(),
        }
        for peer in PEERS
    ]


def record(argv: list[str]) -> int:
    """Run the cases, print the table, write the file."""
    parser = argparse.ArgumentParser(prog="python benchmarks/peers", description=__doc__)
    parser.add_argument("--only", help="run the cases whose name contains this; needs --json elsewhere")
    parser.add_argument("--json", type=Path, default=HERE.parent / "peers.json")
    arguments = parser.parse_args(argv)
    if arguments.only and arguments.json == HERE.parent / "peers.json":
        parser.error("--only gives a part of the table; name another file with --json")
    warnings.simplefilter("ignore")
    sys.path[:0] = [str(HERE), str(HERE.parent)]
    import runner
    from cases import CASES
    from who import NOTHING_ALIKE, STACK

    start, results = time.monotonic(), {}
    for case in CASES:
        if arguments.only is None or arguments.only in case.name:
            print(f"# {case.name}", file=sys.stderr, flush=True)
            results[case.name] = runner.measure(case, module="cases")
    print(runner.table(results))
    payload = {
        "date": datetime.date.today().isoformat(),
        "command": COMMAND,
        "seconds": round(time.monotonic() - start),
        "machine": machine(),
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in STACK},
        "peers": peers(),
        "nothing_alike": NOTHING_ALIKE,
        "results": {name: [vars(row) for row in rows] for name, rows in results.items()},
    }
    arguments.json.write_text(json.dumps(payload, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    here = os.environ.get("ASSAY_PEERS_INSIDE") == "1"
    sys.exit(record(sys.argv[1:]) if here else inside(sys.argv[1:]))
