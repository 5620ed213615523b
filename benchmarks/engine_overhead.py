"""What the engine adds to the methods' own time: 200 trivial trials with 2 workers and a store.

    python benchmarks/engine_overhead.py [--trials 200] [--workers 2] [--repeats 3]

Prints, for the median of the repeats, the seconds of the whole run (workers started, each row
durable on disk, workers ended), the seconds inside the trials, and the difference. The bound of
the project is 10 s.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from fractions import Fraction
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "engine"))

BOUND = 10.0


def measure(trials: int, workers: int) -> tuple[float, float, float]:
    """(seconds of the run, seconds inside trials divided by workers, seconds of a repeat from the store)."""
    import trivial_methods

    from assay.engine.plan import MethodSpec, Question
    from assay.engine.run import run_question
    from assay.engine.store import Store

    methods = tuple(MethodSpec(f"mean-{i}", "trivial_methods:Mean", {"shift": float(i)}) for i in range(10))
    question = Question(
        table=trivial_methods.table(),
        task=trivial_methods.TASK,
        alpha=Fraction(1, 10),
        methods=methods,
        model=None,
        seeds=tuple(range(-(-trials // len(methods)))),
    )
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "runs.db") as store:
        start = time.perf_counter()
        _, rows = run_question(question, workers=workers, store=store)
        run = time.perf_counter() - start
        assert all(row.status == "ok" for row in rows), rows
        start = time.perf_counter()
        run_question(question, workers=workers, store=store)
        again = time.perf_counter() - start
    return run, sum(row.seconds for row in rows) / workers, again


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    runs = sorted(measure(options.trials, options.workers) for _ in range(options.repeats))
    run, inside, _ = runs[len(runs) // 2]
    again = statistics.median(again for _, _, again in runs)
    overhead = run - inside
    print(f"{options.trials} trivial trials, {options.workers} workers, median of {options.repeats}:")
    print(f"  whole run              {run:6.2f} s")
    print(f"  inside the trials      {inside:6.2f} s a worker")
    print(f"  overhead               {overhead:6.2f} s   (bound {BOUND:g} s: {overhead / BOUND:.2f} of it)")
    print(f"  per trial              {1000 * overhead / options.trials:6.1f} ms")
    print(f"  the same, all reused   {again:6.2f} s")
    return 0 if overhead < BOUND else 1


if __name__ == "__main__":
    sys.exit(main())
