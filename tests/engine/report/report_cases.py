"""Comparisons of every kind that the report must draw."""

import sys
from fractions import Fraction
from pathlib import Path

# the made-up results are shared with the tests one folder up
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tasks"))

import numpy as np
from made_up import FAKES, Fake, info, interval_results, label_set_results, result
from region_toys import Boxes, BoxMethod, EllipseMethod
from series_toys import Constant, Gradient, hourly, many
from sklearn.linear_model import LinearRegression

import assay
from assay.data.read import as_table
from assay.engine.bench import plain
from assay.engine.comparison import Comparison
from assay.tasks.region import RegionTask

MARKUP = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'&{}"


def _hostile():
    name = f"mine:{MARKUP}"
    fakes = (Fake("split"), Fake(name, 0.9))
    spec = {"name": name, "target": MARKUP, "params": {MARKUP: MARKUP}}
    about = info(
        ["split", spec, {"name": "gone", "skip": MARKUP}],
        dataset=MARKUP,
        source=f"/data/{MARKUP}\u202e.csv",
        target=f"price {MARKUP}\x00",
        why_task=MARKUP,
        notes=(MARKUP,),
        model=MARKUP,
        command=f"assay compare '{MARKUP}'",
        versions={MARKUP: MARKUP},
        id=MARKUP,
        fingerprint=MARKUP,
    )
    results = [t for t in interval_results(fakes) if (t.method, t.seed) != ("split", 4)]
    for trial in results:
        trial.detail["slab"]["features"][0] = MARKUP
    results.append(result("split", 4, status="failed", error=f"{MARKUP} \ud800 " + "long " * 2000))
    return Comparison(about, results)


def _many():
    fakes = [Fake(f"mypackage.module{k}:Method{k}", 0.05 * k, 1 + 0.01 * k, 0.1 * 1.6**k) for k in range(20)]
    return Comparison(info([fake.name for fake in fakes]), interval_results(fakes))


def _all_failed():
    results = [
        result(name, seed, status="out of memory", error="limit 2 GiB")
        for name in ("split", "cqr")
        for seed in range(5)
    ]
    return Comparison(info(["split", "cqr"]), results)


def _infinite():
    fakes = (Fake("split"), Fake("cqr", 0.9), Fake("wide", infinite=True))
    return Comparison(info([fake.name for fake in fakes]), interval_results(fakes))


def _labels(classes):
    names = ["lac", "aps", "raps", "class-conditional"]
    return Comparison(
        info(names, task="label-set", target="digit", dataset="digits"), label_set_results(classes=classes)
    )


class _Unbounded(BoxMethod):
    """Every tenth region is the whole space; what it cannot do is draw them."""

    class region(Boxes):  # noqa: N801
        take = bounding_box = None

        def __init__(self, centre, half):
            super().__init__(centre, half.copy())
            self.half[::10] = np.inf


def _regions(q, targets=None, seeds=range(3)):
    methods = {"bonferroni-box": BoxMethod, "ellipse": EllipseMethod, "unbounded": _Unbounded}
    rng = np.random.default_rng(0)
    X = rng.normal(size=(480, 3))
    Y = (X @ rng.normal(size=(3, q)) + rng.normal(size=(480, q))) * np.resize([0.1, 4e5], q)
    targets = targets or [f"y{i}" for i in range(q)]
    task, results = RegionTask(), []
    for seed in seeds:
        split = task.split(as_table((X, Y)), seed)
        for name, method in methods.items():
            outcome = task.evaluate(method(LinearRegression()), split, Fraction(1, 10))
            metrics = {**outcome.metrics, "fit_seconds": 0.1, "predict_seconds": 0.02, "peak_memory": 3.0}
            results.append(result(name, seed, metrics, **plain(outcome.detail)))
    about = info(list(methods), seeds=seeds, task="region", target=", ".join(targets), targets=tuple(targets))
    return Comparison(about, results)


def _online():
    methods = [("ogd", Gradient()), ("fixed", Constant(0.5)), ("endless", Constant(float("inf")))]
    return assay.compare(hourly(1100), "load", time="when", methods=methods, in_process=True)


def _online_many():
    frame = many((200, 200, 150)).rename(columns={"name": MARKUP, "value": f"price {MARKUP}"})
    frame[MARKUP] = MARKUP + frame[MARKUP]
    roles = {"time": "step", "group": MARKUP, "horizon": 2, "seeds": [1, 4]}
    return assay.compare(
        frame, f"price {MARKUP}", methods=[(MARKUP, Gradient(horizon=2))], in_process=True, **roles
    )


CASES = {
    "online": _online,
    "online-many": _online_many,
    "interval": lambda: Comparison(
        info([{**fake.spec, "name": fake.name} for fake in FAKES]), interval_results()
    ),
    "label-set": lambda: _labels(10),
    "many-classes": lambda: _labels(60),
    "one-method-one-seed": lambda: Comparison(
        info(["split"], seeds=(0,)), interval_results(FAKES[:1], seeds=(0,))
    ),
    "one-infinite": lambda: Comparison(
        info(["wide"], seeds=(0,)), interval_results((Fake("wide", infinite=True),), seeds=(0,))
    ),
    "infinite": _infinite,
    "all-failed": _all_failed,
    "nothing": lambda: Comparison(info(["split", "cqr"]), []),
    "many": _many,
    "hostile": _hostile,
    "regions": lambda: _regions(2, ["lat", "price"]),
    "regions-of-three": lambda: _regions(3),
    "hostile-regions": lambda: _regions(2, [MARKUP, f"{MARKUP}, {MARKUP}"]),
}
