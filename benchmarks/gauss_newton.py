"""ACP-GN's exact solver beside interval objects of the same mathematics; its memory and its cost law.

The interval-object solver keeps the line as pieces, each an object with a count, and cuts them by
every training row's set in turn: what one writes first, and quadratic in the number of rows.
"""

import math
import statistics
import sys
import time
from dataclasses import dataclass

import numpy as np
import runner
from runner import Case, Unavailable

from assay.conformal.full_conformal import full_conformal_interval, ridge_residual_coefficients
from assay.conformal.tangent_leverage import TangentLeverage

ALPHA = 0.1
N, P = 900, 50


@dataclass(frozen=True)
class Interval:
    """An interval of the line; ends closed or open."""

    low: float
    high: float
    low_closed: bool
    high_closed: bool

    @property
    def empty(self):
        """Whether nothing lies in it."""
        return self.low > self.high or (self.low == self.high and not (self.low_closed and self.high_closed))

    def cut(self, other):
        """(the part inside the other, the parts outside it), without empty ones."""
        low, low_closed = max((self.low, not self.low_closed), (other.low, not other.low_closed))
        high, high_closed = min((self.high, self.high_closed), (other.high, other.high_closed))
        inside = Interval(low, high, not low_closed, high_closed)
        if inside.empty:
            return None, [self]
        rest = [
            Interval(self.low, low, self.low_closed, low_closed),
            Interval(high, self.high, not high_closed, self.high_closed),
        ]
        return inside, [part for part in rest if not part.empty]


def sets_of_rows(a, b, a_star, b_star):
    """Each training row's set {y : |a + b y| >= |a_star + b_star y|} as disjoint intervals."""
    for a_i, b_i in zip(a.tolist(), b.tolist(), strict=True):
        if b_i < 0:
            a_i, b_i = -a_i, -b_i
        p = -(a_i + a_star) / (b_i + b_star)
        if b_i == b_star:
            up = [Interval(p, math.inf, True, False)]
            down = [Interval(-math.inf, p, False, True)]
            yield (
                up
                if a_star < a_i
                else down
                if a_star > a_i
                else [Interval(-math.inf, math.inf, False, False)]
            )
            continue
        low, high = sorted((p, (a_i - a_star) / (b_star - b_i)))
        if b_i < b_star:
            yield [Interval(low, high, True, True)]
        elif low == high:
            yield [Interval(-math.inf, math.inf, False, False)]
        else:
            yield [Interval(-math.inf, low, False, True), Interval(high, math.inf, True, False)]


def by_interval_objects(data):
    """(m, 2) hulls, one test row after the other."""
    out = []
    for a, b, a_star, b_star in zip(*data, strict=True):
        pieces = [(Interval(-math.inf, math.inf, False, False), 1)]
        for parts in sets_of_rows(a, b, float(a_star), float(b_star)):
            for part in parts:
                cut = []
                for piece, count in pieces:
                    inside, outside = piece.cut(part)
                    if inside is not None:
                        cut.append((inside, count + 1))
                    cut.extend((rest, count) for rest in outside)
                pieces = cut
        kept = [piece for piece, count in pieces if count > ALPHA * (len(a) + 1) + 1e-9]
        out.append([min(piece.low for piece in kept), max(piece.high for piece in kept)])
    return np.array(out)


def by_assay(data):
    """(m, 2) hulls of the library."""
    return full_conformal_interval(*data, ALPHA)


def coefficients(n, p, rows):
    """Residual coefficients of a ridge regression with n training rows, standard score."""
    rng = np.random.default_rng(0)
    J, beta = rng.normal(size=(n, p)), rng.normal(size=p)
    y = J @ beta + rng.normal(size=n)
    leverage = TangentLeverage(J, 0.1)
    theta = leverage.solve(J.T @ y)
    own, cross = leverage.cross(rows)
    return ridge_residual_coefficients(y - J @ theta, rows @ theta, own, cross, leverage.own, "standard")


def near_row(n=N):
    """One new row like the training rows."""
    return coefficients(n, P, np.random.default_rng(1).normal(size=(1, P)))


def far_row(n=N):
    """One new row so far out that some training rows weigh more than 1."""
    far = np.zeros((1, P))
    far[0, 0] = 450
    return coefficients(n, P, far)


def agree(ours, theirs):
    """How far the ends differ, relative to the width."""
    return f"ends differ by {np.abs(ours - theirs).max() / np.diff(ours).max():.0e} of the width"


def many_rows():
    """A fitted method with 5,000 training rows and 501 weights, and 100,000 rows to ask about."""
    return _network_and_rows(5_000, 100_000)


def _network_and_rows(n, m):
    try:
        import torch
    except ImportError:
        raise Unavailable("torch is not installed") from None
    from assay.conformal.gauss_newton import GaussNewtonConformal

    rng = np.random.default_rng(0)
    X, X_test = rng.normal(size=(n, 8)), rng.normal(size=(m, 8))
    module = torch.nn.Sequential(torch.nn.Linear(8, 50), torch.nn.GELU(), torch.nn.Linear(50, 1))
    return GaussNewtonConformal(module, 1.0).fit(X, X[:, 0] + rng.normal(size=n)), X_test


def predict(data):
    """All intervals of the rows."""
    method, X = data
    return method.predict_interval(X, ALPHA)


CASES = [
    Case(f"one row, N = {N}", near_row, {"assay": by_assay, "interval objects": by_interval_objects},
         repeats=3, agree=agree, tiny=lambda: near_row(60)),
    Case(f"one far row, N = {N}", far_row, {"assay": by_assay, "interval objects": by_interval_objects},
         repeats=3, agree=agree, tiny=lambda: far_row(60)),
    Case("100,000 rows, N = 5,000, P = 501", many_rows, {"assay": predict}, repeats=1,
         tiny=lambda: _network_and_rows(100, 100)),
]  # fmt: skip


def cost_law():
    """Processor time over three sizes of each of N, M and P, the first of each = 1."""
    print("\n| part | sizes | processor time, ratio |\n|---|---|--:|")
    rng = np.random.default_rng(0)

    def seconds(call, repeats=5):
        taken = []
        for _ in range(repeats):
            start = time.process_time()
            call()
            taken.append(time.process_time() - start)
        return statistics.median(taken)

    def report(part, sizes, calls):
        first, *others = [seconds(call) for call in calls]
        ratios = ", ".join(["1.0", *(f"{other / first:.1f}" for other in others)])
        print(f"| {part} | {sizes} | {ratios} |", flush=True)

    def solver(n, m):
        data = coefficients(n, P, rng.normal(size=(m, P)))
        return lambda: full_conformal_interval(*data, ALPHA)

    report("solver, M = 400", "N = 1000, 2000, 4000", [solver(n, 400) for n in (1000, 2000, 4000)])
    report("solver, N = 1000", "M = 400, 800, 1600", [solver(1000, m) for m in (400, 800, 1600)])

    def factor(n, p):
        J = rng.normal(size=(n, p))
        return lambda: TangentLeverage(J, 1.0)

    report("factor, N = 8000", "P = 200, 400, 800", [factor(8000, p) for p in (200, 400, 800)])
    report("factor, P = 400", "N = 4000, 8000, 16000", [factor(n, 400) for n in (4000, 8000, 16000)])

    def cross(n, p):
        leverage, rows = factor(n, p)(), rng.normal(size=(1000, p))
        return lambda: leverage.cross(rows)

    report(
        "hat values, M = 1000, P = 400", "N = 2000, 4000, 8000", [cross(n, 400) for n in (2000, 4000, 8000)]
    )
    report("hat values, M = 1000, N = 4000", "P = 200, 400, 800", [cross(4000, p) for p in (200, 400, 800)])


if __name__ == "__main__":
    status = runner.main(CASES, "gauss_newton")
    if "--only" not in sys.argv:
        cost_law()
    sys.exit(status)
