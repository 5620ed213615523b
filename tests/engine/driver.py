"""A program that answers a question with a store: ``driver.py STORE WORKERS SEEDS [METHOD ...]``.

The variable ASSAY_TEST_RAY holds the address of a Ray cluster to run it on, or "own".
Prints "ready" before it starts, a line a trial, and at the end the rows as JSON.
"""

import json
import os
import sys
from fractions import Fraction
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import trivial_methods

from assay.engine.plan import MethodSpec, Question
from assay.engine.run import Interrupted, run_question
from assay.engine.store import Store

path, workers, seeds, *names = sys.argv[1:]
methods = tuple(MethodSpec(name, f"trivial_methods:{name}") for name in names or ["Brief", "Mean", "Raises"])
question = Question(
    trivial_methods.table(), trivial_methods.TASK, Fraction(1, 10), methods, None, tuple(range(int(seeds)))
)


def progress(event):
    if event.result is not None:
        print("row", event.result.method, event.result.seed, flush=True)


print("ready", flush=True)
with Store(path) as store:
    try:
        address = os.environ.get("ASSAY_TEST_RAY")
        place = {"backend": "ray", "address": None if address == "own" else address} if address else {}
        _, rows = run_question(question, workers=int(workers), store=store, progress=progress, **place)
    except Interrupted as stop:
        print(stop)
        sys.exit(130)
shown = [
    (row.method, row.seed, row.status, row.metrics.get("error"), row.error.splitlines()[:1]) for row in rows
]
print(json.dumps(shown))
