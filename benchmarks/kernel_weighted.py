"""KOWCPI: the reweighting beside an optimiser, and what a step costs as the history grows.

The optimiser minimises ``-sum log(1 + lam g)`` by L-BFGS-B within the bounds of lam: once with sums
in NumPy and the gradient given, once row by row in Python with an infinite barrier and differences
for the gradient, as a public port does. (Without the bounds the port's line search meets the
barrier and stops at lam = 0 on half of these problems, which gives other quantiles.)
"""

import math
import statistics
import sys
import time
from fractions import Fraction

import numpy as np
import runner
from runner import Case
from scipy.optimize import minimize

from assay.conformal.kernel_weights import rnw_multiplier
from assay.conformal.kowcpi import KernelWeightedResidualInterval

N, WINDOW, ALPHA = 2_750, 5, Fraction(1, 10)
LEVELS = np.array([0.0, 0.025, 0.05, 0.075, 0.1, 0.9, 0.925, 0.95, 0.975, 1.0])
QUERIES = 20


def residuals(n):
    """A stream with memory in its level and its spread."""
    rng = np.random.default_rng(0)
    out, noise = np.empty(n), rng.normal(size=n)
    last = 0.0
    for t in range(n):
        last = 0.8 * last + noise[t] * (1 + 0.3 * abs(last))
        out[t] = last
    return out


def kernel_problems(n=N):
    """(g, K, sorted order, sorted targets) of the steps that follow n residuals."""
    x = residuals(n + QUERIES)
    out = []
    for t in range(n, n + QUERIES):
        windows = np.lib.stride_tricks.sliding_window_view(x[t - n : t], WINDOW)[:, ::-1]
        squared = ((windows[:-1] - windows[-1]) ** 2).sum(axis=1)
        K = np.maximum(1 - squared / (0.8**2 * np.median(squared)), 0)
        targets = x[t - n + WINDOW : t]
        order = np.argsort(targets, kind="stable")
        out.append(((windows[:-1, 0] - windows[-1, 0]) * K, K, order, targets[order]))
    return out


def with_multiplier(solve):
    """The weighted quantiles of each problem, the multiplier found by ``solve``."""

    def run(problems):
        out = []
        for g, K, order, targets in problems:
            weights = K / (1 + solve(g) * g)
            mass = np.cumsum(weights[order])
            at = np.searchsorted(mass / mass[-1], LEVELS - 1e-12)
            out.append(targets[np.minimum(at, len(targets) - 1)])
        return np.array(out)

    return run


def one_sign(g):
    """Whether the condition cannot be met, so that the multiplier is 0."""
    return g.min() >= 0 or g.max() <= 0


def scaled(g):
    """g divided by its largest size, that size, and the bounds of the multiplier."""
    scale = np.abs(g).max()
    u = g / scale
    inside = 1 - 1 / np.count_nonzero(u)
    return u, scale, [(-inside / u.max(), -inside / u.min())]


def by_optimiser(g):
    """L-BFGS-B on NumPy sums."""
    if one_sign(g):
        return 0.0
    u, scale, bounds = scaled(g)

    def objective(lam):
        inside = 1 + lam[0] * u
        return -np.log(inside).sum(), np.array([-(u / inside).sum()])

    options = {"ftol": 1e-16, "gtol": 1e-10}
    return (
        minimize(objective, [0.0], jac=True, method="L-BFGS-B", bounds=bounds, options=options).x[0] / scale
    )


def by_optimiser_in_python(g):
    """L-BFGS-B on a sum row by row."""
    if one_sign(g):
        return 0.0
    u, scale, bounds = scaled(g)
    rows = u.tolist()

    def objective(lam):
        total, at = 0.0, float(lam[0])
        for value in rows:
            inside = 1 + at * value
            if inside <= 0:
                return math.inf
            total -= math.log(inside)
        return total

    options = {"ftol": 1e-16, "gtol": 1e-8}
    return minimize(objective, [0.0], method="L-BFGS-B", bounds=bounds, options=options).x[0] / scale


def agree(ours, theirs):
    """How far the quantiles differ."""
    return f"quantiles differ by {np.abs(ours - theirs).max():.0e}"


def stream(method, x, n, steps):
    """Seconds of processor time of each step after n residuals."""
    method.fit(x[:n])
    taken = []
    for residual in x[n : n + steps]:
        start = time.process_time()
        method._offsets(ALPHA)
        method.update(residual)
        taken.append(time.process_time() - start)
    return taken


CASES = [
    Case(
        f"reweighting, n = {N}",
        kernel_problems,
        {
            "assay": with_multiplier(rnw_multiplier),
            "L-BFGS-B, NumPy": with_multiplier(by_optimiser),
            "L-BFGS-B, Python": with_multiplier(by_optimiser_in_python),
        },
        repeats=5,
        agree=agree,
        tiny=lambda: kernel_problems(60),
    )
]


def multiplier_alone():
    """The reweighting without the quantiles that both then take."""
    problems = [g for g, *_ in kernel_problems()]
    print(f"\n| multiplier of n = {N} windows | processor time, ratio |\n|---|--:|")
    contenders = {
        "assay": rnw_multiplier, "L-BFGS-B, NumPy": by_optimiser, "L-BFGS-B, Python": by_optimiser_in_python
    }  # fmt: skip
    seconds = {name: [] for name in contenders}
    for _ in range(5):
        for name, solve in contenders.items():
            start = time.process_time()
            for g in problems:
                solve(g)
            seconds[name].append(time.process_time() - start)
    first = statistics.median(seconds["assay"])
    for name, values in seconds.items():
        print(f"| {name} | {statistics.median(values) / first:.1f} |", flush=True)


def cost_law():
    """Processor time of a step over three lengths of the history, and over three of the window."""
    print("\n| a step | sizes | processor time, ratio | microseconds |\n|---|---|--:|--:|")
    x = residuals(100_400)

    def report(part, sizes, methods):
        means = [statistics.fmean(stream(method, x, n, 200)) for n, method in methods]
        ratios = ", ".join(f"{mean / means[0]:.1f}" for mean in means)
        print(f"| {part} | {sizes} | {ratios} | {', '.join(f'{1e6 * m:.0f}' for m in means)} |", flush=True)

    def method(window):
        return KernelWeightedResidualInterval(window, bandwidth=2.0 * math.sqrt(window))

    sizes = (1_000, 10_000, 100_000)
    report("window 5", "n = 1,000, 10,000, 100,000", [(n, method(5)) for n in sizes])
    report("n = 10,000", "window = 5, 20, 80", [(10_000, method(w)) for w in (5, 20, 80)])


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    status = runner.main(CASES, "kernel_weighted")
    if "--only" not in sys.argv:
        multiplier_alone()
        cost_law()
    sys.exit(status)
