"""Runs every benchmark in the environment that holds the peers; builds that environment if need be."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYTHON = HERE.parent / ".bench-env" / "bin" / "python"
FILES = (
    "engine_overhead.py",
    "intervals.py",
    "label_sets.py",
    "gauss_newton.py",
    "cp2.py",
    "flow_regions.py",
    "kernel_weighted.py",
    "online.py",
    "rps.py",
    "bincp.py",
    "fleet.py",
    "saved.py",
    "serve.py",
    "streamline.py",
    "ensembles.py",
)


def main() -> int:
    """Exit status of the first that fails, else 0."""
    if not PYTHON.exists():
        subprocess.run(["bash", str(HERE / "environment.sh"), sys.executable], check=True)
    for name in FILES:
        print(f"\n== benchmarks/{name}", flush=True)
        status = subprocess.run([str(PYTHON), str(HERE / name)], check=False).returncode
        if status:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
