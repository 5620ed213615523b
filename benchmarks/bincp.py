"""BinCP: running counts in place of stored samples, many radii for the price of one; CAS beside a loop.

The model is a softmax of 16 features and 100 classes, so cheap that noise and sums are most of the cost. The
loop for CAS takes each label of each row by itself: its distribution function on the grid, the certificate of
each point, the mean.

    .bench-env/bin/python benchmarks/bincp.py
"""

import numpy as np
from runner import Case, main
from scipy.special import softmax
from scipy.stats import norm

from assay.conformal.bincp import BinCP
from assay.conformal.cas import CAS
from assay.conformal.smoothed_sets import SmoothedSetClassifier

FEATURES, CLASSES, RADIUS = 16, 100, 0.25
WEIGHTS = 3 * np.random.default_rng(1).standard_normal((FEATURES, CLASSES))
GRID = tuple(np.linspace(0, 0.5, 20))


def chances(X):
    """(n, K) probabilities."""
    return softmax((X @ WEIGHTS).astype(np.float32), axis=1)


def rows(n, m, n_calib=300):
    """(calibrated method, test rows)."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n + n_calib, FEATURES))
    y = (chances(X).cumsum(axis=1) < rng.random((len(X), 1))).sum(axis=1).clip(0, CLASSES - 1)
    method = SmoothedSetClassifier(BinCP(), chances, radius=RADIUS, n_samples=m, random_state=0)
    method.calibrate(X[:n_calib], y[:n_calib], classes=list(range(CLASSES)))
    return method, X[n_calib:]


def one_radius(data):
    """Sets at one radius."""
    method, X = data
    return method.certified_sets(X, [RADIUS])


def many_radii(data):
    """Sets at 20 radii."""
    method, X = data
    return method.certified_sets(X, GRID)


def stored(n=400, classes=10, m=150):
    """(calibrated CAS, samples of test rows)."""
    rng = np.random.default_rng(0)
    level = rng.dirichlet(np.full(classes, 0.2), size=n)[:, :, None]
    samples = np.clip(level + 0.1 * rng.standard_normal((n, classes, m)), 0, 1)
    rule = CAS(radius=RADIUS / 4)
    rule.calibrate(samples[: n // 2], samples[: n // 2].mean(axis=2).argmax(axis=1))
    return rule, samples[n // 2 :]


def vectorised(data):
    """Sets of the library."""
    rule, samples = data
    return rule.predict_set(samples)


def looped(data):
    """Sets of the same rule, label by label."""
    rule, samples = data
    grid = np.linspace(0, 1, rule.n_bins + 1)
    error = rule._error
    rank = int(rule.thresholds(rule.levels()[0])[0])
    threshold = np.sort(rule.means_ - error)[rank - 1]
    out = np.empty(samples.shape[:2], dtype=bool)
    for i, row in enumerate(samples):
        for k, scores in enumerate(row):
            below = np.searchsorted(np.sort(scores), grid[:-1], side="right") / len(scores)
            lower = norm.cdf(norm.ppf(np.maximum(below - error, 0)) - rule.radius / rule.certificate.scale)
            out[i, k] = 1 - (np.diff(grid) * lower).sum() >= threshold
    return out


def agree(first, other):
    """How many memberships differ, where the answers are of the same question."""
    if first.shape != other.shape:
        return f"{other.shape[0]} radii"
    differ = int((first != other).sum())
    return "equal sets" if differ == 0 else f"{differ} memberships differ"


CASES = [
    Case(
        name="20 radii beside one, n = 1,000, K = 100, m = 300",
        inputs=lambda: rows(1_000, 300),
        contenders={"one radius": one_radius, "20 radii": many_radii},
        repeats=5,
        agree=agree,
        tiny=lambda: rows(50, 20),
    ),
    Case(
        name="running counts, n = 10,000, K = 100, m = 1,000",
        inputs=lambda: rows(10_000, 1_000, 30),
        contenders={"20 radii": many_radii},
        repeats=1,
        tiny=lambda: rows(50, 20),
    ),
    Case(
        name="CAS, n = 200, K = 10, m = 150, 200 steps",
        inputs=stored,
        contenders={"assay": vectorised, "loop over rows and labels": looped},
        repeats=3,
        agree=agree,
        tiny=lambda: stored(60, 3, 20),
    ),
]

if __name__ == "__main__":
    raise SystemExit(main(CASES, "bincp"))
