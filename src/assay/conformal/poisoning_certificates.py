"""What poisoned rows can do to votes, to thresholds and to a majority of sets: exact worst cases.

One poisoned row touches one part of the training rows, and so one vote at every point; or one part of
the calibration rows, and so one of the sets that the majority is taken over.

Votes. A class with v of k votes among classes with ``v_j`` has the nonconformity
``A = sum_{j != y} W(v_j) / W(v)`` with ``W(v) = exp(v / k)``: the smoothed score of the paper is
``1 / (1 + A)``. W is rounded to whole numbers below 2**53 / K. It stays convex and increasing, which is all
that the worst cases need; sums are exact in any order and a quotient is rounded monotonically, so equal
votes give equal scores to the last bit and no bound is wrong by rounding.

Best and worst case of r changed votes (silent members are votes for nobody):

- best for y: y gains one vote a step, from the class that has the most then, from nobody at last;
- worst for y: the largest other class gains one vote a step: from y while y has any, then from
  nobody, then from the smallest class that has any.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from assay.core.checks import to_numpy
from assay.core.errors import DataError, MethodError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Codes = NDArray[np.intp]


@dataclass(frozen=True)
class VoteScore:
    """Nonconformity of classes from (n, K) votes of ``n_partitions`` members.

    ``smoothing`` "softmax" is the rule above; None is the share of votes that the class did not get,
    with only ``n_partitions + 1`` values.
    """

    n_partitions: int
    n_classes: int
    smoothing: str | None = "softmax"

    def __post_init__(self) -> None:
        if self.smoothing not in ("softmax", None):
            raise MethodError(f"smoothing must be 'softmax' or None, got {self.smoothing!r}")
        most = int(2 ** ((self._bits - 2) / 2))
        if self.smoothing and self.n_partitions > most:
            raise MethodError(
                f"{self.n_partitions} partitions with {self.n_classes} classes: smoothed scores are exact "
                f"up to {most}; take fewer, or smoothing=None"
            )

    @property
    def _bits(self) -> int:
        return 51 - int(np.ceil(np.log2(max(self.n_classes, 2))))

    @cached_property
    def weights(self) -> FloatArray:
        """(n_partitions + 1,) W of 0, 1, ... votes: whole numbers."""
        shares = np.arange(self.n_partitions + 1) / self.n_partitions
        return np.rint(np.exp(shares) * 2.0**self._bits)

    def of(self, others: FloatArray, own: IntArray) -> FloatArray:
        """Nonconformity from the sum of W over the other classes and the class's own votes."""
        if self.smoothing is None:
            return 1.0 - own / self.n_partitions
        return np.asarray(others / self.weights[own])

    def all(self, votes: IntArray) -> FloatArray:
        """(n, K) nonconformities of all classes."""
        weights = self.weights[votes]
        return self.of(weights.sum(axis=1, keepdims=True) - weights, votes)

    def conformity(self, scores: FloatArray) -> FloatArray:
        """The paper's score, high = fits, of nonconformities."""
        return np.asarray(1.0 - scores if self.smoothing is None else 1.0 / (1.0 + scores))


@dataclass(frozen=True)
class VotePairs:
    """Distinct (row, own votes) pairs: classes of a row with equally many votes share all their bounds.

    ``ranked`` (n, K) are the votes of each row in descending order. Pair i belongs to row ``row[i]`` and
    to classes with ``own[i]`` votes, the first of which is at ``slot[i]`` of the ranked votes. Pairs stand
    in the order of the rows.
    """

    ranked: IntArray
    row: Codes
    own: IntArray
    slot: Codes

    @classmethod
    def every(cls, votes: IntArray) -> VotePairs:
        """All pairs of (n, K) votes."""
        ranked = -np.sort(-votes, axis=1)
        row, slot = np.nonzero(_first_of_run(ranked))
        return cls(ranked, row, ranked[row, slot], slot)

    @classmethod
    def of_labels(cls, votes: IntArray, codes: Codes) -> VotePairs:
        """One pair a row: that of the class ``codes``."""
        ranked = -np.sort(-votes, axis=1)
        rows = np.arange(len(votes))
        own = votes[rows, codes]
        return cls(ranked, rows, own, np.count_nonzero(ranked > own[:, None], axis=1))

    def spread(self, votes: IntArray, values: FloatArray) -> FloatArray:
        """(n, K) values of the classes from values of all pairs of those votes."""
        order = np.argsort(-votes, axis=1, kind="stable")
        pair = (np.cumsum(_first_of_run(self.ranked).ravel()) - 1).reshape(votes.shape)
        out = np.empty(votes.shape)
        np.put_along_axis(out, order, values[pair], axis=1)
        return out

    @cached_property
    def starts(self) -> Codes:
        """(n,) where the pairs of each row begin."""
        return np.searchsorted(self.row, np.arange(len(self.ranked)))

    def bounds(self, score: VoteScore) -> Iterator[tuple[FloatArray, FloatArray]]:
        """(smallest, largest) nonconformity of each pair after 0, 1, 2, ... changed votes, without end."""
        W, k = score.weights, score.n_partitions
        row, own, ranked = self.row, self.own, self.ranked
        steps = np.diff(W, prepend=0.0)  # steps[v] = W(v) - W(v - 1)
        at_least = _counts_at_least(ranked, k)
        sums = W[ranked].sum(axis=1)[row] - W[own]
        cast = ranked.sum(axis=1)
        silent = (k - cast)[row]

        # best case: the votes of the others are taken from the highest level downwards
        best_sum = sums.copy()
        level = ranked[row, np.where(self.slot == 0, 1, 0)]
        at_level = at_least[row, level] - (own >= level)
        left = cast[row] - own

        # worst case: the largest other class gains; the smallest loses when y and nobody have none left
        worst_sum = sums
        top = level.copy()
        top_slot = np.where(self.slot == 0, 1, 0)
        smallest = at_least[row, 1] - 1
        smallest -= smallest == self.slot
        spare = np.where(smallest > top_slot, ranked[row, np.maximum(smallest, 0)], 0)

        radius = 0
        while True:
            yield (
                score.of(best_sum, np.minimum(own + radius, k)),
                score.of(worst_sum, np.maximum(own - radius, 0)),
            )
            radius += 1
            taken = left > 0
            if taken.any():
                best_sum = best_sum - np.where(taken, steps[level], 0.0)
                left = left - taken
                at_level = at_level - taken
                down = np.flatnonzero(taken & (at_level == 0) & (left > 0))
                level = level.copy()
                level[down] -= 1
                at_level[down] = at_least[row[down], level[down]] - (own[down] >= level[down])
            bare = own + silent < radius
            gains = ~bare | (spare > 0)
            rising = np.where(gains, np.minimum(top + 1, k), 0)
            worst_sum = worst_sum + np.where(gains, steps[rising], 0.0)
            top = top + gains
            losing = np.flatnonzero(bare & gains)
            if len(losing):
                worst_sum[losing] -= steps[spare[losing]]
                spare[losing] -= 1
                empty = losing[spare[losing] == 0]
                smallest[empty] -= 1
                smallest[empty] -= smallest[empty] == self.slot[empty]
                more = empty[smallest[empty] > top_slot[empty]]
                spare[more] = ranked[row[more], smallest[more]]


def _first_of_run(ranked: IntArray) -> NDArray[np.bool_]:
    first = np.ones(ranked.shape, dtype=np.bool_)
    np.not_equal(ranked[:, 1:], ranked[:, :-1], out=first[:, 1:])
    return first


def _counts_at_least(ranked: IntArray, k: int) -> IntArray:
    """(n, k + 1) number of classes of each row with at least 0, 1, ..., k votes."""
    n = len(ranked)
    flat = (np.arange(n)[:, None] * (k + 1) + ranked).ravel()
    counts = np.bincount(flat, minlength=n * (k + 1)).reshape(n, k + 1)
    return np.asarray(counts[:, ::-1].cumsum(axis=1)[:, ::-1])


def check_votes(votes: object, n_partitions: int, n_classes: int | None = None) -> IntArray:
    """(n, K) whole votes of at most ``n_partitions`` members, K at least 2.

    Raises
    ------
    DataError
        Another shape, votes that are no whole numbers from 0, or rows with more votes than members.
    """
    array = to_numpy(votes)
    if array.ndim != 2 or array.shape[1] < 2 or n_classes not in (None, array.shape[1]):
        wanted = "(n, K) with two classes or more" if n_classes is None else f"(n, {n_classes})"
        raise DataError(f"votes has shape {array.shape}; {wanted} is expected")
    if array.dtype.kind not in "iuf" or not ((array >= 0) & (array == np.floor(array))).all():
        raise DataError("votes must be whole numbers from 0: how many members say each class")
    total = array.sum(axis=1)
    if len(array) and total.max() > n_partitions:
        at = int(np.argmax(total > n_partitions))
        raise DataError(
            f"row {at} has {int(total[at])} votes of {n_partitions} members; "
            f"{int((total > n_partitions).sum())} of {len(array)} rows have too many"
        )
    return array.astype(np.int64)


def worst_case_vote_scores(
    votes: object,
    radius: int,
    side: str,
    n_partitions: int | None = None,
    smoothing: str | None = "softmax",
) -> FloatArray:
    """The lowest or highest score of each class that ``radius`` changed votes can give.

    Parameters
    ----------
    votes : (n, K) number of members that say each class
    radius : int
        Members that may say something else.
    side : "lower" or "upper"
    n_partitions : int, optional
        Number of members; the largest sum of a row if not given.
    smoothing : "softmax" or None

    Returns
    -------
    (n, K) float64 scores, high = fits: the softmax of vote shares, or the shares themselves.

    Raises
    ------
    DataError, MethodError
        No votes, a negative radius, another side.
    """
    array = to_numpy(votes)
    if n_partitions is None:
        n_partitions = int(array.sum(axis=1).max()) if array.ndim == 2 and len(array) else 1
    checked = check_votes(array, n_partitions)
    if side not in ("lower", "upper") or radius < 0:
        raise MethodError(
            f"side must be 'lower' or 'upper' and radius at least 0, got {side!r} and {radius!r}"
        )
    score = VoteScore(n_partitions, checked.shape[1], smoothing)
    pairs = VotePairs.every(checked)
    bounds = pairs.bounds(score)
    for _ in range(min(radius, n_partitions)):
        next(bounds)
    best, worst = next(bounds)
    return score.conformity(pairs.spread(checked, worst if side == "lower" else best))
