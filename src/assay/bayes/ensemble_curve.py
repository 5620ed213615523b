"""The loss of M members as asymptote + variance / M: its two numbers, and what they would be on other rows or
without some of the members."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaln, gammaln

from assay.bayes.ensemble_losses import Loss
from assay.bayes.ensemble_moments import GroupMoments
from assay.core.checks import FloatArray

_SUBSETS = 200
#: beyond this many members the majority is that of infinitely many
_MANY = 10_000


@dataclass(frozen=True)
class Curve:
    """Estimates of (asymptote, variance): on all rows and members, and varied.

    Attributes
    ----------
    theta : (2,)
    resampled : (n_bootstrap, 2)
        On rows drawn with replacement.
    left_out : (g, 2)
        Without each group of members; empty for two members.
    shares : (g,)
        Members in all / members of the group that was left out.
    """

    theta: FloatArray
    resampled: FloatArray
    left_out: FloatArray
    shares: FloatArray


def exact_curve(moments: GroupMoments, n_bootstrap: int, rng: np.random.Generator) -> Curve:
    """Of squared errors: unbiased for any two or more members."""
    m = moments.n_members
    variance = moments.variance()
    mean = moments.mean()
    asymptote = np.einsum("ij,ij->i", mean, mean) - variance / m
    left = [(a, v) for members, a, v in moments.leave_group_out()] if m > 2 else []
    return _curve(np.stack([asymptote, variance]), left, moments, n_bootstrap, rng)


def inverse_size_curve(
    moments: GroupMoments,
    loss: Loss,
    truth: NDArray[Any],
    single_rows: FloatArray,
    single_groups: FloatArray,
    n_bootstrap: int,
    rng: np.random.Generator,
) -> Curve:
    """Least squares of L(j) on 1 / j with weights j, L(j) the mean loss of subsets of j members.

    ``single_rows`` (n,) and ``single_groups`` (g,) are losses of single members: summed over members for
    each row, and over rows and members for each group. Larger subsets are unions of groups: all of them,
    or 200 for each number of groups.
    """
    n, m = moments.shape[0], moments.n_members
    subsets = list(_subsets(moments, rng))
    sizes = np.array([1, *(moments.counts[subset].sum() for subset in subsets)])
    weights = _fit_weights(sizes)
    rows = np.outer(weights[:, 0], single_rows / m)
    losses = np.empty(len(sizes))
    losses[0] = single_rows.sum() / (n * m)
    for at, subset in enumerate(subsets, start=1):
        found = loss.of_mean(moments.mean(subset), truth)
        rows += np.outer(weights[:, at], found)
        losses[at] = found.mean()
    left = []
    for group in range(moments.used if m > 2 else 0):
        use = np.array([True, *(group not in subset for subset in subsets)])
        members = m - moments.counts[group]
        values = losses[use]
        values[0] = (single_groups.sum() - single_groups[group]) / (n * members)
        left.append(tuple(_fit_weights(sizes[use]) @ values))
    return _curve(rows, left, moments, n_bootstrap, rng)


def _subsets(moments: GroupMoments, rng: np.random.Generator) -> Iterator[NDArray[np.intp]]:
    """Sets of groups with two members or more together."""
    used = moments.used
    for size in range(1, used + 1):
        if math.comb(used, size) <= _SUBSETS:
            chosen = list(itertools.combinations(range(used), size))
        else:
            drawn = {tuple(sorted(rng.choice(used, size, replace=False).tolist())) for _ in range(_SUBSETS)}
            chosen = sorted(drawn)
        for groups in chosen:
            subset = np.array(groups, dtype=np.intp)
            if moments.counts[subset].sum() > 1:
                yield subset


def _fit_weights(sizes: NDArray[np.intp]) -> FloatArray:
    """(2, s): what each subset's loss adds to (asymptote, slope); subsets of one size share its weight."""
    distinct, at, counts = np.unique(sizes, return_inverse=True, return_counts=True)
    design = np.stack([np.ones(len(distinct)), 1 / distinct], axis=1)
    weighted = design.T * distinct
    return np.asarray((np.linalg.solve(weighted @ design, weighted) / counts)[:, at])


def _curve(
    rows: FloatArray,
    left: list[tuple[float, float]],
    moments: GroupMoments,
    n_bootstrap: int,
    rng: np.random.Generator,
) -> Curve:
    n = rows.shape[1]
    resampled = np.empty((n_bootstrap, 2))
    for i in range(n_bootstrap):
        times = np.bincount(rng.integers(n, size=n), minlength=n)
        resampled[i] = rows @ times / n
    counts = moments.counts[: moments.used]
    return Curve(
        theta=rows.mean(axis=1),
        resampled=resampled,
        left_out=np.array(left).reshape(-1, 2),
        shares=moments.n_members / counts,
    )


def jackknife_variance(value: FloatArray, left_out: FloatArray, shares: FloatArray) -> FloatArray:
    """Variance over members of (k,) values from their (g, k) leave-one-group-out values.

    The jackknife for groups of unequal size; for groups of one member the usual one.
    """
    pseudo = shares[:, None] * value - (shares[:, None] - 1) * left_out
    centre = (value - left_out).sum(axis=0) + (left_out / shares[:, None]).sum(axis=0)
    return np.asarray(((pseudo - centre) ** 2 / (shares[:, None] - 1)).mean(axis=0))


def inverse_law(theta: FloatArray, sizes: FloatArray) -> FloatArray:
    """(r, k) losses asymptote + variance / M for (r, 2) estimates and (k,) sizes, infinity allowed."""
    return theta[:, :1] + theta[:, 1:] / sizes


def majority_law(theta: FloatArray, sizes: FloatArray) -> FloatArray:
    """(r, k) error rates of the majority of M members of two classes that predict one of them for sure.

    The probability of a right answer is Beta over rows, with the mean a and the second moment r2 that the
    estimates imply: asymptote 1 - 2 a + r2 and variance a - r2. An even vote is right half of the time.
    """
    out = np.empty((len(theta), len(sizes)))
    for i, (asymptote, variance) in enumerate(theta):
        accuracy = min(max(1 - asymptote - variance, 0.0), 1.0)
        spread = accuracy - variance - accuracy**2
        for j, size in enumerate(sizes):
            out[i, j] = _majority_error(accuracy, max(variance, 0.0), spread, size)
    return out


def _majority_error(accuracy: float, variance: float, spread: float, size: float) -> float:
    if variance <= 1e-12 or accuracy in (0.0, 1.0):
        return 1 - accuracy
    # rows of one and the same probability are the limit of a very narrow Beta
    scale = variance / max(spread, 1e-9 * variance)
    good, bad = accuracy * scale, (1 - accuracy) * scale
    if size > _MANY:
        from scipy.stats import beta

        return float(beta.cdf(0.5, good, bad))
    votes = np.arange(int(size) + 1)
    log = betaln(votes + good, size - votes + bad) - betaln(good, bad)
    log += gammaln(size + 1) - gammaln(votes + 1) - gammaln(size - votes + 1)
    chance = np.exp(log)
    return float(chance[2 * votes < size].sum() + chance[2 * votes == size].sum() / 2)
