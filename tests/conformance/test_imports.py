"""Importing assay loads nothing heavy, changes nothing, and imports go one way."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import assay

SRC = Path(assay.__file__).parents[1]
HEAVY = ("numpy", "scipy", "pandas", "sklearn", "torch", "matplotlib", "pyarrow", "polars", "rich")


def in_a_new_interpreter(code):
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "code",
    [
        "import assay; dir(assay)",
        "from assay.core.cards import all_cards; assert all_cards()",
        "import assay.conformal; dir(assay.conformal)",
        "import assay.core.errors",
    ],
)
def test_light_imports_load_nothing_heavy(code):
    report = in_a_new_interpreter(
        "import sys, json, time\nstart = time.process_time()\n"
        f"{code}\n"
        "print(json.dumps([time.process_time() - start, sorted(sys.modules)]))"
    )
    seconds, modules = json.loads(report.splitlines()[-1])
    assert not [name for name in HEAVY if name in modules]
    # measured .05 to .1 s; processor time, so that a busy machine does not fail it
    assert seconds < 0.3


def test_cards_import_no_method():
    report = in_a_new_interpreter(
        "import sys, json\nfrom assay.core.cards import all_cards\n"
        "modules = {card.cls.partition(':')[0] for card in all_cards().values()}\n"
        "print(json.dumps(sorted(modules & set(sys.modules))))"
    )
    assert json.loads(report) == []


def test_importing_every_module_changes_nothing_and_prints_nothing():
    report = in_a_new_interpreter(
        "import os, pkgutil, random, sys, warnings, importlib, json\n"
        "import numpy as np, pandas, sklearn.base, sklearn.linear_model, scipy.stats, joblib, pytest\n"
        "import threadpoolctl\n"
        "try:\n    import torch\nexcept ImportError:\n    torch = None\n"
        "def state():\n"
        "    pools = {p['filepath']: p['num_threads'] for p in threadpoolctl.threadpool_info()}\n"
        "    own = torch and [torch.get_num_threads(), str(torch.get_default_dtype()),\n"
        "        torch.is_grad_enabled(), torch.random.get_rng_state().tolist()]\n"
        "    return [repr(warnings.filters), repr(np.random.get_state()[1].tolist()),\n"
        "        repr(random.getstate()), dict(os.environ), np.geterr(), pools, own]\n"
        "before = state()\n"
        "import assay\n"
        "for info in pkgutil.walk_packages(assay.__path__, 'assay.'):\n"
        "    if not info.name.endswith('__main__'):\n"
        "        importlib.import_module(info.name)\n"
        "print(json.dumps([b == a for b, a in zip(before, state())]))"
    )
    assert len(report.splitlines()) == 1, report
    assert all(json.loads(report)), report


def test_imports_go_one_way():
    root = SRC.parent
    done = subprocess.run(
        ["lint-imports", "--no-cache"],
        capture_output=True,
        text=True,
        cwd=root,
        check=False,
        env={**os.environ, "PYTHONPATH": str(SRC), "NO_COLOR": "1"},
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout
