"""Comparisons of every kind that the report must draw."""

import sys
from pathlib import Path

# the made-up results are shared with the tests one folder up
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tasks"))

from made_up import FAKES, Fake, info, interval_results, label_set_results, result
from series_toys import Constant, Gradient, hourly, many

import assay
from assay.engine.comparison import Comparison

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
}
