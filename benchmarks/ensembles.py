"""Forecast of an ensemble's Brier score from many members: streamed, against all of them in memory.

    python benchmarks/ensembles.py

Members come one by one, as they would from files or models (here from eight arrays in turn, float32, so that
making them costs nothing). "streamed" is EnsembleForecast with its interval: 200 draws of the rows and the
jackknife over ten groups of members. "stacked" puts the members into one array and takes mean and variance
of it; where the case says so it also leaves out each member in turn and averages 200 draws of the rows.
"subsets" measures the mean loss of 200 random subsets of each of eight sizes: the curve that the law
replaces.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from runner import Case, main

from assay.bayes.ensemble_forecast import EnsembleForecast

_POOL, _DRAWS, _SUBSETS = 8, 200, 200
_SIZES = (1, 2, 3, 5, 10, 20, 50, 100)


@dataclass(frozen=True)
class Inputs:
    """A few members that are given again and again, and the labels of their rows."""

    pool: NDArray[np.float32]
    y: NDArray[np.intp]
    m: int

    def members(self) -> Iterator[NDArray[np.float32]]:
        """(n, K) probabilities of m members, one after the other."""
        return (self.pool[i % _POOL] for i in range(self.m))


def inputs(m: int, n: int, k: int) -> Inputs:
    """Members around common probabilities."""
    rng = np.random.default_rng(0)
    base = rng.random((n, k)) + 0.1
    pool = base * np.exp(0.3 * rng.normal(size=(_POOL, n, k)))
    pool /= pool.sum(axis=2, keepdims=True)
    return Inputs(pool.astype(np.float32), rng.integers(k, size=n), m)


def streamed(data: Inputs) -> NDArray[np.float64]:
    """(asymptote, variance), and the interval at 20 members beside them."""
    found = EnsembleForecast(n_bootstrap=_DRAWS, random_state=0).fit(data.members(), data.y)
    return np.array([found.asymptote_, found.variance_, *found.predict(20)[1:]])


def _moments(proba: NDArray[Any], y: NDArray[np.intp]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """(n,) asymptote and variance of each row."""
    mean = proba.mean(axis=0, dtype=np.float64)
    spread = proba.var(axis=0, ddof=1, dtype=np.float64).sum(axis=1)
    mean[np.arange(len(y)), y] -= 1
    return (mean**2).sum(axis=1) - spread / len(proba), spread


def stacked(data: Inputs) -> NDArray[np.float64]:
    """All members in one array, without an interval."""
    return np.array([part.mean() for part in _moments(np.stack(list(data.members())), data.y)])


def stacked_interval(data: Inputs) -> NDArray[np.float64]:
    """The same, with draws of the rows and without each member in turn."""
    proba = np.stack(list(data.members()))
    rows = np.stack(_moments(proba, data.y))
    rng = np.random.default_rng(0)
    law = np.array([1, 1 / 20])
    drawn = [law @ rows[:, rng.integers(len(data.y), size=len(data.y))].mean(axis=1) for _ in range(_DRAWS)]
    left = [law @ np.stack(_moments(np.delete(proba, i, axis=0), data.y)).mean(axis=1) for i in range(data.m)]
    spread = np.var(drawn, ddof=1) + (data.m - 1) * np.var(left)
    centre = law @ rows.mean(axis=1)
    return np.array([*rows.mean(axis=1), centre - 2 * spread**0.5, centre + 2 * spread**0.5])


def subsets(data: Inputs) -> NDArray[np.float64]:
    """The measured curve, regressed on one over the size."""
    proba = np.stack(list(data.members()))
    rng, at = np.random.default_rng(0), np.arange(len(data.y))
    losses = []
    for size in _SIZES:
        found = []
        for _ in range(_SUBSETS if size < data.m else 1):
            mean = proba[rng.choice(data.m, size, replace=False)].mean(axis=0, dtype=np.float64)
            mean[at, data.y] -= 1
            found.append((mean**2).sum(axis=1).mean())
        losses.append(np.mean(found))
    slope, asymptote = np.polyfit(1 / np.array(_SIZES), losses, 1, w=np.sqrt(_SIZES))
    return np.array([asymptote, slope])


def agree(ours: NDArray[Any], other: NDArray[Any]) -> str:
    """Largest difference in asymptote and variance."""
    return f"differs by {np.abs(ours[:2] - other[:2]).max():.0e}"


CASES = [
    *(
        Case(
            f"{m} members, 100,000 x 10",
            partial(inputs, m, 100_000, 10),
            {"streamed": streamed, **({"stacked": stacked} if m <= 100 else {})},
            repeats=3,
            agree=agree,
            tiny=partial(inputs, 4, 50, 10),
        )
        for m in (20, 100, 400)
    ),
    Case(
        "100 members, 5,000 x 10, with interval",
        partial(inputs, 100, 5_000, 10),
        {"streamed": streamed, "stacked": stacked_interval, "subsets": subsets},
        repeats=3,
        agree=agree,
        tiny=partial(inputs, 100, 50, 10),
    ),
]

if __name__ == "__main__":
    raise SystemExit(main(CASES, "ensembles"))
