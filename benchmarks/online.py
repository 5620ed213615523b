"""Trackers of a stream beside plain Python loops and the ACI of MAPIE and TorchCP; fleets; memory.

Ratios are of processor time in one process, in turn; medians. The plain loops keep their window in a deque
or a sorted list and do what one writes first. TorchCP is measured where it is installed:
`pip install --no-deps torchcp` and tqdm beside torch.
"""

import argparse
import bisect
import collections
import importlib
import importlib.machinery
import json
import math
import pickle
import statistics
import sys
import time
import types

import numpy as np

from assay.conformal.aci import AdaptiveTracker
from assay.conformal.eci import ErrorQuantifiedTracker
from assay.conformal.ogd import OnlineGradientTracker

ALPHA = 0.1


def seconds(call, repeats=5):
    """Median processor time of a call."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        call()
        times.append(time.process_time() - start)
    return statistics.median(times)


def loop_ogd(scores, lr=0.1):
    """Quantile tracking, one float at a time."""
    q, out = 0.0, []
    for s in scores:
        out.append(q)
        q += lr * ((s > q) - ALPHA)
    return out


def loop_eci(scores, lr=0.1, window=100):
    """ECI with the range looked up in the last scores at every step."""
    base = q = 0.0
    last, out = collections.deque(maxlen=window), []
    for s in scores:
        out.append(q)
        eta = lr * (max(last) - min(last)) if last else lr
        x = s - q
        e = math.exp(-abs(x))
        base += eta * ((x > 0) - ALPHA)
        q = base + eta * x * e / (1 + e) ** 2
        last.append(s)
    return out


def loop_aci(scores, gamma=0.005, window=500, keep_sorted=False):
    """ACI; the last scores are sorted at each step, or kept sorted by bisection (C inside)."""
    level, order, last, out = ALPHA, [], collections.deque(), []
    q = math.inf
    for s in scores:
        out.append(q)
        level += gamma * (ALPHA - (s > q))
        if len(last) == window:
            gone = last.popleft()
            if keep_sorted:
                del order[bisect.bisect_left(order, gone)]
        last.append(s)
        if keep_sorted:
            bisect.insort(order, s)
        else:
            order = sorted(last)
        n = len(order)
        rank = n + 1 - min(math.floor(level * (n + 1) + 1e-9), n)
        q = math.inf if level <= 0 or rank > n else -math.inf if level >= 1 else order[rank - 1]
    return out


def mapie_series(method, scores, window, **options):
    """MAPIE's regressor for series around a model that forecasts 0, fitted on the first scores."""
    from mapie.regression import TimeSeriesRegressor

    class Zero:
        fitted_ = True

        def fit(self, X, y):
            return self

        def predict(self, X):
            return np.zeros(len(X))

        def __sklearn_is_fitted__(self):
            return True

    return TimeSeriesRegressor(Zero(), method=method, cv="prefit", **options).fit(
        np.zeros((window, 1)), scores[:window]
    )


def mapie_aci(scores, window=500, **options):
    """MAPIE's ACI: predict, adapt, take the score up, at each step; (steps, 2) intervals."""
    model = mapie_series("aci", scores, window, **options)
    X, out = np.zeros((len(scores), 1)), np.empty((len(scores) - window, 2))
    for t in range(window, len(scores)):
        x, s = X[t : t + 1], scores[t : t + 1]
        ends = model.predict(x, confidence_level=1 - ALPHA, allow_infinite_bounds=True)[1]
        model.adapt_conformal_inference(x, s, gamma=0.005, confidence_level=1 - ALPHA)
        model.update(x, s)
        out[t - window] = ends[0, :, 0]
    return out


def _import_torchcp():
    """TorchCP, without what it imports for graphs and for sorting where that is not there."""
    try:
        importlib.import_module("torchcp")
    except ImportError:
        spec = importlib.machinery.PathFinder.find_spec("torchcp")
        if spec is None:
            raise
        package = types.ModuleType("torchcp")
        package.__path__ = list(spec.submodule_search_locations)
        sys.modules["torchcp"] = package


def torchcp_aci(scores, window=500):
    """TorchCP's ACI around a model that forecasts 0: at each step it looks back at the last scores."""
    import torch

    _import_torchcp()
    from torchcp.regression.predictor import ACIPredictor
    from torchcp.regression.score import ABS

    class Zero(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.level = torch.nn.Parameter(torch.zeros(()), requires_grad=False)

        def forward(self, x):
            return x * self.level

    X, y = torch.zeros((len(scores), 1)), torch.as_tensor(scores, dtype=torch.float32)
    model = ACIPredictor(ABS(), Zero(), gamma=0.005, alpha=ALPHA)
    # train would fit a network first; what follows is its second half
    rows = torch.utils.data.TensorDataset(X[:window], y[:window])
    model._model = Zero()
    model.calibrate(torch.utils.data.DataLoader(rows, batch_size=window), ALPHA)
    model.alpha_t, model.train_indicate = ALPHA, True
    before = model.predict(X[:window])

    out = np.empty((len(scores) - window, 2))
    for t in range(window, len(scores)):
        back = slice(t - window, t)
        after = model.predict(X[t : t + 1], X[back], y[back], before)
        before = torch.cat([before[1:], after])
        out[t - window] = after[0, 0]
    return out


def one_series(rows, n):
    """n scores: the compiled run beside the loop on a twentieth of them, per step."""
    scores = np.random.default_rng(0).normal(size=n)
    some = scores[: n // 20].tolist()
    head = scores[: n // 20]
    for name, make, loop in (
        ("OGD", lambda: OnlineGradientTracker(ALPHA, 0.1), loop_ogd),
        ("ECI", lambda: ErrorQuantifiedTracker(ALPHA, 0.1), loop_eci),
        ("ACI, last 500", lambda: AdaptiveTracker(ALPHA), loop_aci),
        ("ACI, bisection", lambda: AdaptiveTracker(ALPHA), lambda s: loop_aci(s, keep_sorted=True)),
    ):
        np.testing.assert_allclose(make().run(head), loop(some), atol=1e-9, err_msg=name)
        ours = seconds(lambda make=make: make().run(scores)) / n
        plain = seconds(lambda loop=loop: loop(some), 3) / len(some)
        rows.append((name, "ns a step", ours * 1e9))
        rows.append((name, "plain Python loop, ratio", plain / ours))
    growing = seconds(lambda: AdaptiveTracker(ALPHA, window=None).run(scores), 1) / n
    rows.append(("ACI, all scores", "ns a step", growing * 1e9))
    ours = seconds(lambda: AdaptiveTracker(ALPHA).run(scores)) / n
    for name, peer in (("MAPIE's ACI", mapie_aci), ("TorchCP's ACI", torchcp_aci)):
        try:
            peer(scores[:510])
            each = seconds(lambda peer=peer: peer(scores[:1500]), 1) / 1000
        except ImportError as error:
            rows.append((name, f"cannot run: {error}", math.nan))
            continue
        rows.append((name, "microseconds a step", each * 1e6))
        rows.append((name, "a step, ratio to ACI's run", each / ours))
    tracker = AdaptiveTracker(ALPHA)
    tracker.update(0.0)
    single = seconds(lambda: [tracker.update(0.5) for _ in range(5000)], 3) / 5000
    rows.append(("ACI", "one update from Python, microseconds", single * 1e6))


def fleets(rows, n_series):
    """One update of many series in one call, state, and going on from it."""
    rng = np.random.default_rng(1)
    tracker = ErrorQuantifiedTracker(ALPHA, 0.1).start(n_series)
    for start in range(0, 150, 50):
        tracker.run(rng.normal(size=(n_series, 50)) + start)
    scores = rng.normal(size=n_series)
    rows.append(
        ("fleet, ECI", "million updates a second", n_series / seconds(lambda: tracker.update(scores)) / 1e6)
    )
    state = tracker.get_state()
    rows.append(("fleet, ECI", "state, MB", sum(array.nbytes for array in state.values()) / 1e6))
    fresh = ErrorQuantifiedTracker(ALPHA, 0.1)
    rows.append(("fleet, ECI", "set_state, seconds", seconds(lambda: fresh.set_state(state), 3)))


def memory(rows):
    """Size of the object after 1,000 and after 100,000 steps."""
    for name, tracker in (("ECI", ErrorQuantifiedTracker()), ("ACI, last 500", AdaptiveTracker())):
        rng = np.random.default_rng(2)
        sizes = []
        for steps in (1000, 99_000):
            tracker.run(rng.normal(size=steps))
            sizes.append(len(pickle.dumps(tracker)))
        rows.append((name, "bytes after 1,000 steps", sizes[0]))
        rows.append((name, "bytes after 100,000 steps", sizes[1]))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--series", type=int, default=100_000)
    parser.add_argument("--json")
    options = parser.parse_args()
    for tracker in (OnlineGradientTracker(), ErrorQuantifiedTracker(), AdaptiveTracker()):
        tracker.run(np.zeros(100))  # compiled or read from the cache
    AdaptiveTracker(window=None).run(np.zeros(100))
    rows = []
    one_series(rows, options.steps)
    fleets(rows, options.series)
    memory(rows)
    for name, what, value in rows:
        print(f"{name:18} {what:40} {value:12.4g}")
    if options.json:
        with open(options.json, "w") as handle:
            json.dump([{"case": a, "what": b, "value": c} for a, b, c in rows], handle, indent=1)


if __name__ == "__main__":
    main()
