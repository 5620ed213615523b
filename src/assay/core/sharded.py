"""The k-th smallest of scores that lie on many machines: exact in two passes, or from one sketch.

A summary of each shard is made where the shard is; summaries are small, and two are merged into one in
any order. :class:`RankSearch` finds exactly the k-th smallest; :class:`RankSketch` passes over the data
once and gives a threshold that is not below it, with a probability that is chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.core.checks import FloatArray, check_scores
from assay.core.errors import DataError, MethodError
from assay.core.levels import conformal_rank, parse_alpha, warn_infinite
from assay.core.seeds import derive_seed

#: values that the highest level of a sketch holds, one MiB: two passes do for 10**9 scores
CAPACITY = 1 << 17
_SMALLEST_CAPACITY = 64
#: a level below holds this part of the one above it, but not fewer than so many
_SHRINKS = 2 / 3
_SMALLEST_LEVEL = 4096
_PIECE = 1 << 20
#: chance that a pass of the exact search must be repeated on another stretch
_MISS = 1e-3


class RankSketch:
    """Weighted values that stand for many, in bounded memory; two sketches are merged into one.

    Values are kept in levels; one of level h stands for ``2**h``. A level that is full is sorted, and of
    each pair of neighbours a coin for all keeps the first or the second, one level up. Such a step moves
    the rank of a given value by ``2**h`` up, or down, or not at all. The sketch counts its own steps,
    those of merged sketches among them: with ``S`` the sum of their ``4**h``, the rank that it gives is
    too large by more than t with probability at most ``exp(-t**2 / (2 S))`` (Hoeffding), for any data,
    and by more than the sum of the ``2**h`` never.

    Parameters
    ----------
    capacity : int, default 131072
        Values of the highest level. Up to here all are kept and every answer is exact; beyond, about
        three times as many are held, and 4096 a level.
    random_state : int, optional
        Of the coins. Sketches that are to be merged must not share it; by default from the system.

    Attributes
    ----------
    n : values seen
    worst_error : how far a rank can be off
    maximum : the largest value; -inf without any

    References
    ----------
    Manku, Rajagopalan, Lindsay (1999), Random sampling techniques for space efficient online computation
    of order statistics of large datasets. Karnin, Lang, Liberty (2016), Optimal quantile approximation in
    streams.
    """

    def __init__(self, capacity: int = CAPACITY, random_state: int | None = None) -> None:
        if capacity < _SMALLEST_CAPACITY:
            raise MethodError(f"capacity is {capacity}; give at least {_SMALLEST_CAPACITY}")
        self.capacity = capacity
        self.n = 0
        self.maximum = -math.inf
        self.worst_error = 0
        self._squares = 0
        self._coins = np.random.default_rng(random_state)
        self._levels: list[FloatArray] = [np.empty(0)]

    @property
    def is_exact(self) -> bool:
        """Whether all values are still there."""
        return len(self._levels) == 1

    def update(self, scores: ArrayLike) -> Self:
        """Take in values, shape (n,); thousands at a time are taken in quickly.

        Raises
        ------
        DataError
            NaN, or something else than numbers.
        """
        values = check_scores(scores)
        for start in range(0, len(values), _PIECE):
            piece = values[start : start + _PIECE]
            self._levels[0] = np.concatenate([self._levels[0], piece])
            self.n += len(piece)
            self.maximum = max(self.maximum, float(piece.max()))
            self._compress()
        return self

    def merge(self, other: RankSketch) -> Self:
        """Take in what another sketch of the same capacity has seen; that one stays as it is."""
        if other.capacity != self.capacity:
            raise MethodError(f"sketches of capacities {self.capacity} and {other.capacity} cannot be merged")
        self._levels.extend(np.empty(0) for _ in range(len(other._levels) - len(self._levels)))
        for level, values in enumerate(other._levels):
            self._levels[level] = np.concatenate([self._levels[level], values])
        self.n += other.n
        self.maximum = max(self.maximum, other.maximum)
        self.worst_error += other.worst_error
        self._squares += other._squares
        self._compress()
        return self

    def error(self, failure: float) -> int:
        """How far the rank of one value is too large at most, except with probability ``failure``."""
        if not 0 < failure < 1:
            raise MethodError(f"failure is {failure!r}; give a probability between 0 and 1")
        return min(self.worst_error, math.ceil(math.sqrt(2 * self._squares * math.log(1 / failure))))

    def select(self, rank: int) -> float:
        """The smallest value kept whose rank in the sketch reaches ``rank``: from 1 to n."""
        if not 1 <= rank <= self.n:
            raise MethodError(f"rank is {rank}; there are {self.n} values")
        values, ranks = self._ranked
        return float(values[np.searchsorted(ranks, rank)])

    def threshold(self, alpha: Any, failure: float = 1e-6) -> float:
        """A threshold of conformal prediction with coverage at least 1 - alpha, the coins counted in.

        Coverage is lost where the sketch puts the threshold below the k-th smallest score. To lose none,
        k is that of the level ``(alpha - failure) / (1 - failure)``, and ``error(failure)`` ranks are
        added: the k-th smallest of n is not missed with probability ``1 - failure``, and
        ``(1 - failure) (1 - (alpha - failure) / (1 - failure)) = 1 - alpha``. What is paid is size: the
        coverage exceeds that of the exact threshold by about ``2 error(failure) / n + failure`` at most.

        Parameters
        ----------
        alpha : level
        failure : float, default 1e-6
            Below alpha. A sketch that is exact, or whose ``worst_error`` is not larger, needs none.

        Returns
        -------
        float
            +inf, with an InfiniteSetWarning, where n scores are too few.
        """
        level = parse_alpha(alpha)
        error = self.error(failure)
        if error < self.worst_error:
            chance = parse_alpha(failure)
            if chance >= level:
                raise MethodError(f"failure is {failure!r}; it must be below alpha, {float(level):g}")
            level = (level - chance) / (1 - chance)
        rank = conformal_rank(self.n, level)
        if rank > self.n:
            warn_infinite(self.n, level)
            return math.inf
        # the largest score is known, and is never below the k-th
        return self.maximum if rank + error >= self.n else self.select(rank + error)

    @property
    def _ranked(self) -> tuple[FloatArray, NDArray[np.int64]]:
        """All values kept, ascending, and the weight of those up to each."""
        values = np.concatenate(self._levels)
        weights = np.repeat(1 << np.arange(len(self._levels)), [len(level) for level in self._levels])
        order = np.argsort(values, kind="stable")
        return values[order], np.cumsum(weights[order])

    def _compress(self) -> None:
        """Halve levels that are full, from the lowest up; which ones depends on numbers of values alone."""
        level = 0
        while level < len(self._levels):
            top = len(self._levels) - 1
            room = max(int(self.capacity * _SHRINKS ** (top - level)), min(_SMALLEST_LEVEL, self.capacity))
            if len(self._levels[level]) > room:
                if level == top:
                    self._levels.append(np.empty(0))
                self._halve(level)
            level += 1

    def _halve(self, level: int) -> None:
        values = np.sort(self._levels[level])
        paired = len(values) // 2 * 2
        kept = values[int(self._coins.integers(2)) : paired : 2]
        self._levels[level] = values[paired:].copy()
        self._levels[level + 1] = np.concatenate([self._levels[level + 1], kept])
        self.worst_error += 1 << level
        self._squares += 1 << 2 * level


@dataclass
class Summary:
    """What one pass keeps of some shards: counts around a window, and a sketch of what is inside."""

    n: int
    below: int
    at_low: int
    at_high: int
    inside: RankSketch

    def merge(self, other: Summary) -> Self:
        """Take in the summary of other shards."""
        self.n += other.n
        self.below += other.below
        self.at_low += other.at_low
        self.at_high += other.at_high
        self.inside.merge(other.inside)
        return self


@dataclass(frozen=True)
class Window:
    """What a pass asks of each shard: values strictly between ``low`` and ``high``; None is no bound.

    A few bytes to send; :meth:`summarise` runs where the shard is.
    """

    low: float | None
    high: float | None
    capacity: int
    number: int

    def summarise(self, pieces: Iterable[ArrayLike], shard: int = 0) -> Summary:
        """The summary of a shard, given as arrays (n,) that need not be in memory at the same time.

        ``shard`` is its number, by which coins are drawn: any number, but another one for each shard.
        """
        inside = RankSketch(self.capacity, derive_seed(shard, f"window {self.number}"))
        summary = Summary(0, 0, 0, 0, inside)
        for piece in pieces:
            scores = check_scores(piece, f"scores of shard {shard}")
            summary.n += len(scores)
            keep = np.ones(len(scores), dtype=bool)
            if self.low is not None:
                summary.below += int(np.count_nonzero(scores < self.low))
                summary.at_low += int(np.count_nonzero(scores == self.low))
                keep &= scores > self.low
            if self.high is not None:
                if self.high != self.low:
                    summary.at_high += int(np.count_nonzero(scores == self.high))
                keep &= scores < self.high
            inside.update(scores[keep])
        return summary


class RankSearch:
    """Finds the k-th smallest of all scores, exactly, a pass over the shards at a time.

    While ``is_done`` is False: make ``window.summarise(shard)`` of every shard, wherever it is, merge the
    summaries, and give them to :meth:`update`. The first pass finds a window of a few ranks around k, the
    second takes what is in it; more are needed only with more than about ``capacity**2 / 12`` scores, or
    with a probability below one in a hundred.

    Parameters
    ----------
    rank : callable
        From the number of scores to k, which the first pass counts; k > n gives +inf.
    capacity : int, default 131072
        Of the sketches; memory and the size of a summary go with it, the answer does not.

    Attributes
    ----------
    window : what the next pass asks
    is_done : whether ``value`` is there
    value : the k-th smallest
    n, passes : scores (None before the first pass), and passes over them so far
    """

    def __init__(self, rank: Callable[[int], int], capacity: int = CAPACITY) -> None:
        self.rank = rank
        self.capacity = capacity
        self.is_done = False
        self.value = math.nan
        self.n: int | None = None
        self.passes = 0
        self._go_on(None, None)
        self._outer = self.window

    def update(self, summary: Summary) -> Self:
        """Learn from the merged summaries of one pass.

        Raises
        ------
        DataError
            The shards do not hold as many scores as in the pass before.
        """
        if self.n is not None and summary.n != self.n:
            raise DataError(
                f"pass {self.passes + 1} met {summary.n:,} scores, the first {self.n:,}; shards must give "
                "the same scores each time"
            )
        self.n = summary.n
        self.passes += 1
        rank = self.rank(self.n)
        if rank < 1:
            raise MethodError(f"rank is {rank}; it counts from 1")
        if rank > self.n:
            return self._found(math.inf)
        low, high, inside = self.window.low, self.window.high, summary.inside
        within = rank - summary.below - summary.at_low
        if within <= -summary.at_low:
            return self._go_on(self._outer.low, low)
        if within <= 0:
            return self._found(low)
        if within > inside.n + summary.at_high:
            return self._go_on(high, self._outer.high)
        if within > inside.n:
            return self._found(high)
        if inside.is_exact:
            return self._found(inside.select(within))
        margin = min(inside.error(_MISS), inside.n // 4) + 1
        self._outer = self.window
        return self._go_on(
            inside.select(within - margin) if within > margin else low,
            inside.select(within + margin) if within + margin <= inside.n else high,
        )

    def _found(self, value: float | None) -> Self:
        self.value = math.nan if value is None else value
        self.is_done = True
        return self

    def _go_on(self, low: float | None, high: float | None) -> Self:
        self.window = Window(low, high, self.capacity, self.passes)
        return self


def sharded_quantile(
    shards: Callable[[], Iterable[ArrayLike]], alpha: Any, *, capacity: int = CAPACITY
) -> float:
    """Exactly :func:`assay.core.quantiles.conformal_quantile` of scores that do not fit into memory.

    Parameters
    ----------
    shards : callable
        Called once a pass, in most cases twice: gives the arrays (n,) of scores, one after the other.
    alpha : level
        Miscoverage.
    capacity : int, default 131072
        Values in memory: about four times as many, and one array of scores.

    Returns
    -------
    float
        +inf, with an InfiniteSetWarning, where the scores are too few.

    Raises
    ------
    DataError
        NaN, or other scores in the second pass than in the first.
    """
    level = parse_alpha(alpha)
    search = RankSearch(lambda n: conformal_rank(n, level), capacity)
    while not search.is_done:
        search.update(search.window.summarise(shards()))
    n = search.n or 0
    if conformal_rank(n, level) > n:
        warn_infinite(n, level)
    return search.value
