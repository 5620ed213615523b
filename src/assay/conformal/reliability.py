"""How many poisoned rows each label set survives: certificates over grids of radii."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.conformal.majority import MajorityRule
from assay.conformal.poisoning_certificates import VotePairs, VoteScore
from assay.core.errors import MethodError

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
Codes = NDArray[np.intp]

KINDS = ("robust", "coverage", "size")


@dataclass(frozen=True)
class Radii:
    """(n,) numbers of poisoned rows that each set survives, from 0 to the number of parts.

    ``coverage_radius``: no label leaves the set. ``size_radius``: none enters. ``robust_radius``: neither.
    The number of parts means that no poison at all can do it, as no label can leave an empty set.
    """

    coverage_radius: IntArray
    size_radius: IntArray

    @property
    def robust_radius(self) -> IntArray:
        """The smaller of the two."""
        return np.minimum(self.coverage_radius, self.size_radius)


@dataclass(frozen=True)
class Certificate:
    """What is certified for n label sets against poisoned training and calibration rows.

    A row that is added, taken away or whose label changes counts as one poisoned row; one whose features
    change as two (it leaves one part and enters another).

    Attributes
    ----------
    coverage, size : (R + 1, n)
        With 0, 1, ... R poisoned training rows: the most poisoned calibration rows for which no label
        leaves, or enters, the set; -1 where training rows alone may do it. R is 0 without a vote of
        members trained on parts. Beyond R nothing is certified, unless ``complete`` is false.
    largest_train : (R + 1, n)
        The most labels that the set can have with 0, 1, ... R poisoned training rows.
    largest_calib : (n_calibration_partitions + 1, n)
        The same for 0, 1, ... poisoned calibration rows.
    n_partitions, n_calibration_partitions : int
    complete : bool
        Whether larger training radii than R were looked at and certify nothing.
    """

    coverage: IntArray
    size: IntArray
    largest_train: IntArray
    largest_calib: IntArray
    n_partitions: int
    n_calibration_partitions: int
    complete: bool = True

    @property
    def calibration(self) -> Radii:
        """Radii against poisoned calibration rows, the training rows being clean."""
        return Radii(self.coverage[0], self.size[0])

    @property
    def training(self) -> Radii:
        """Radii against poisoned training rows, the calibration rows being clean."""
        return Radii(*(np.count_nonzero(found >= 0, axis=0) - 1 for found in (self.coverage, self.size)))

    def reliable(self, r_train: int = 0, r_calib: int = 0, kind: str = "robust") -> BoolArray:
        """(n,) whether each set survives so many poisoned rows of both kinds together.

        ``kind``: "coverage" (no label leaves), "size" (none enters) or "robust" (neither).
        """
        if kind not in KINDS:
            raise MethodError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}")
        if r_train < 0 or r_calib < 0:
            raise MethodError(f"a radius is at least 0, got r_train={r_train!r} and r_calib={r_calib!r}")
        if r_train >= len(self.coverage):
            if not self.complete:
                raise MethodError(
                    f"training radii up to {len(self.coverage) - 1} were computed, {r_train} was asked for"
                )
            return np.zeros(self.coverage.shape[1], dtype=np.bool_)
        kept = self.coverage[r_train] >= r_calib
        out = self.size[r_train] >= r_calib
        return np.asarray(kept if kind == "coverage" else out if kind == "size" else kept & out)

    def grid(self, r_train: Sequence[int], r_calib: Sequence[int], kind: str = "robust") -> FloatArray:
        """(len(r_train), len(r_calib)) share of the sets that survive both radii."""
        return np.array([[self.reliable(t, c, kind).mean() for c in r_calib] for t in r_train])


@dataclass(frozen=True)
class CalibrationParts:
    """Which calibration row belongs to which part, and the rank of each part's threshold."""

    codes: Codes
    sizes: IntArray
    #: (k_c,) rank of the threshold among the scores of a part in ascending order; 0: +inf
    ranks: IntArray

    def thresholds(self, scores: FloatArray) -> FloatArray:
        """(k_c,) thresholds of nonconformity scores: a part holds a label whose score is at most its own."""
        ranked = scores[np.lexsort((scores, self.codes))]
        at = np.cumsum(self.sizes) - self.sizes + self.ranks - 1
        out = np.full(len(self.sizes), np.inf)
        finite = self.ranks > 0
        out[finite] = ranked[at[finite]]
        return out


def holding(thresholds: FloatArray, scores: FloatArray) -> IntArray:
    """How many of the (k_c,) thresholds each score does not exceed, in the shape of the scores."""
    ranked = np.sort(thresholds)
    return np.asarray(len(ranked) - np.searchsorted(ranked, scores, side="left"))


def certificate_of_scores(scores: FloatArray, thresholds: FloatArray, rule: MajorityRule) -> Certificate:
    """Calibration radii from (n, K) scores of one model and (k_c,) thresholds."""
    n, k = scores.shape
    held = holding(thresholds, scores).ravel()
    inside = held > rule.threshold
    starts = np.arange(n) * k
    ones = np.ones(len(held), dtype=np.int64)
    coverage, size = _radii(rule, inside, held, held, starts)
    return Certificate(
        coverage[None],
        size[None],
        _largest(rule, held, starts, ones, [0]),
        _largest(rule, held, starts, ones, range(rule.n_parts + 1)),
        n_partitions=1,
        n_calibration_partitions=rule.n_parts,
    )


def vote_thresholds(
    score: VoteScore, votes: IntArray, codes: Codes, parts: CalibrationParts, most: int
) -> tuple[FloatArray, FloatArray]:
    """((most + 1, k_c) lowest, and highest, thresholds with 0 .. most changed votes at every row."""
    lowest, highest = [], []
    bounds = VotePairs.of_labels(votes, codes).bounds(score)
    for _ in range(most + 1):
        best, worst = next(bounds)
        lowest.append(parts.thresholds(best))
        highest.append(parts.thresholds(worst))
    return np.array(lowest), np.array(highest)


def certificate_of_votes(
    score: VoteScore,
    votes: IntArray,
    thresholds: tuple[FloatArray, FloatArray],
    rule: MajorityRule,
) -> Certificate:
    """Radii of the sets of (n, K) votes, from the thresholds of :func:`vote_thresholds`.

    Training radii from 0 on, up to the first at which no set is certified in any direction.
    """
    pairs = VotePairs.every(votes)
    n, k = votes.shape
    starts = pairs.starts
    ends = np.append(pairs.slot[1:], 0)
    ends[np.append(starts[1:], len(ends)) - 1] = k
    multiplicity = ends - pairs.slot
    inside: Any = None
    coverage: list[IntArray] = []
    size: list[IntArray] = []
    largest: list[IntArray] = []
    largest_calib = np.empty((0, n), dtype=np.int64)
    for lowest, highest, (best, worst) in zip(*thresholds, pairs.bounds(score), strict=False):
        certain, possible = holding(lowest, worst), holding(highest, best)
        if inside is None:
            inside = certain > rule.threshold
            largest_calib = _largest(rule, certain, starts, multiplicity, range(rule.n_parts + 1))
        here = _radii(rule, inside, certain, possible, starts)
        if max(here[0].max(initial=-1), here[1].max(initial=-1)) < 0 and coverage:
            break
        coverage.append(here[0])
        size.append(here[1])
        largest.append(_largest(rule, possible, starts, multiplicity, [0])[0])
    complete = len(coverage) < len(thresholds[0]) or len(thresholds[0]) > score.n_partitions
    return Certificate(
        np.array(coverage),
        np.array(size),
        np.array(largest),
        largest_calib,
        n_partitions=score.n_partitions,
        n_calibration_partitions=rule.n_parts,
        complete=complete,
    )


def _radii(
    rule: MajorityRule, inside: BoolArray, certain: IntArray, possible: IntArray, starts: Codes
) -> tuple[IntArray, IntArray]:
    """(n,) coverage and size radii of rows from their labels or pairs, which begin at ``starts``."""
    if len(starts) == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    counts = np.arange(rule.n_parts + 1)
    kept = np.where(inside, rule.coverage_radius(counts)[certain], rule.n_parts)
    out = np.where(inside, rule.n_parts, rule.size_radius(counts)[possible])
    return np.minimum.reduceat(kept, starts), np.minimum.reduceat(out, starts)


def _largest(
    rule: MajorityRule, possible: IntArray, starts: Codes, multiplicity: IntArray, radii: Sequence[int]
) -> IntArray:
    """(len(radii), n) number of labels that may be in the set after so many poisoned calibration rows."""
    out = np.zeros((len(radii), len(starts)), dtype=np.int64)
    if len(starts):
        lowest = np.minimum.accumulate(rule.lowest)
        for i, r in enumerate(radii):
            out[i] = np.add.reduceat(multiplicity * (possible + r > lowest[r]), starts)
    return out


def joined(blocks: Sequence[Certificate], n_classes: int) -> Certificate:
    """One certificate of the rows of several blocks.

    Radii at which nothing in a block is certified were not computed there: its sets may then have any label.
    """
    if len(blocks) == 1:
        return blocks[0]
    most = max(len(block.coverage) for block in blocks)
    first = blocks[0]
    return Certificate(
        np.concatenate([_padded(b.coverage, most, -1) for b in blocks], axis=1),
        np.concatenate([_padded(b.size, most, -1) for b in blocks], axis=1),
        np.concatenate([_padded(b.largest_train, most, n_classes) for b in blocks], axis=1),
        np.concatenate([b.largest_calib for b in blocks], axis=1),
        first.n_partitions,
        first.n_calibration_partitions,
        all(b.complete for b in blocks),
    )


def _padded(values: IntArray, length: int, fill: int) -> IntArray:
    return np.concatenate([values, np.full((length - len(values), values.shape[1]), fill)])
