"""Compiled code: kept on disk between processes, keyed by the sources it calls into, and optional."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import assay
from assay.conformal.tracker_compiled import has_numba

SRC = Path(assay.__file__).parents[1]


def in_a_new_interpreter(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SRC), **environment},
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_numba_trackers_run():
    """None in sys.modules is how Python says that a module is not there."""
    code = (
        "import importlib.util as u\nfind = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'numba' else find(name, *a)\n"
        "import sys\nsys.modules['numba'] = None\n"
        "from assay.conformal.eci import ErrorQuantifiedTracker\n"
        "t = ErrorQuantifiedTracker(0.1, 1.0, proportional_lr=False)\n"
        "t.run([1, 2, 0.5])\nprint(round(t.threshold_, 6))"
    )
    assert in_a_new_interpreter(code) == "1.476401"


@pytest.mark.skipif(not has_numba(), reason="needs: pip install 'assay[fast]'")
def test_compiled_code_is_read_from_disk(tmp_path):
    code = (
        "from assay.conformal.eci import ErrorQuantifiedTracker, _Numbers\n"
        "from assay.conformal import tracker_compiled as tc, tracker_steps as ts\n"
        "ErrorQuantifiedTracker().run([1.0, 2.0])\n"
        "stats = tc.compiled(ts.build_driver, _Numbers).stats\n"
        "print(sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))"
    )
    assert in_a_new_interpreter(code, NUMBA_CACHE_DIR=str(tmp_path)) == "0 1"
    assert in_a_new_interpreter(code, NUMBA_CACHE_DIR=str(tmp_path)) == "1 0"


@pytest.mark.skipif(not has_numba(), reason="needs: pip install 'assay[fast]'")
def test_importing_a_tracker_does_not_import_numba():
    code = "import sys, assay.conformal.online, assay.conformal.eci\nprint('numba' in sys.modules)"
    assert in_a_new_interpreter(code) == "False"


@pytest.mark.skipif(not has_numba(), reason="needs: pip install 'assay[fast]'")
def test_a_tracker_imported_after_another_was_compiled_runs(tmp_path):
    """Its module brings a function of its own that compiled code calls."""
    code = (
        "from assay.conformal.ogd import OnlineGradientTracker\n"
        "OnlineGradientTracker().run([1.0, 2.0])\n"
        "from assay.conformal.saocp import StronglyAdaptiveTracker\n"
        "print(len(StronglyAdaptiveTracker().run([1.0, 2.0, 3.0])))"
    )
    assert in_a_new_interpreter(code, NUMBA_CACHE_DIR=str(tmp_path)) == "3"
