"""Equalised set size: one threshold on the mean set size that a score means in each group."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.conformal.group_sets import GroupSetClassifier
from assay.conformal.label_calibrators import LabelCalibrator, Unseen, warn_unseen
from assay.conformal.label_scores import LabelScore, get_score
from assay.conformal.set_base import MAX_MEMORY, BoolArray, CalibrationRows, Codes, FloatArray
from assay.core.errors import AssayWarning, DataError, MethodError
from assay.core.levels import conformal_rank, parse_levels, warn_infinite
from assay.core.probabilities import Probabilities, check_labels, distinct_labels, encode_labels

#: with fewer reference rows than this, a group's mean size is hardly known, and a warning says so
MIN_REFERENCE_ROWS = 20
_CRITERIA = ("mean_size", "singleton")


class EqualizedSetSize(GroupSetClassifier):
    """Label sets whose mean size is the same in every group, with coverage of 1 - alpha over all rows.

    From reference rows, of which the labels are not needed, comes the mean size that sets of a group g have
    at a threshold s on the score, ``A_g(s) = (1/n_g) sum_{x of g} #{y : S(x, y) <= s}``: a step function
    without interpolation. The score of a label is then ``u(x, y) = A_{g(x)}(S(x, y))``, one threshold kappa
    on u is calibrated for all rows, and the set is ``{y : u(x, y) <= kappa}``; kappa is the size that
    every group is to have on average. Where u is the same, S decides, so that a single group has exactly the
    sets of split conformal prediction.

    The paper argues that unequal sizes, not unequal coverage, make people who work with the sets serve
    groups unequally, and asks for equal sizes; it gives no way to calibrate for them. This one is ours.
    Equal sizes are bought with unequal coverage: always look at both.

    Parameters
    ----------
    estimator : classifier, default LogisticRegression(max_iter=1000)
        Cloned and trained by ``fit``; used as it is by ``calibrate``. There it may also be a torch
        module or a function of X that gives (n, K) probabilities.
    label_score : str or LabelScore, default "raps"
        "lac", "margin", "aps", "raps", "saps", "topk", or an object of
        :mod:`assay.conformal.label_scores`.
    alpha : level, default 0.1
        Miscoverage over all rows.
    reference : {"calibration", "split"} or pair, default "calibration"
        Where A_g comes from: the calibration rows' own features; half of them, which
        then serve for nothing else; or further rows without labels, as a pair (X, groups), for
        ``calibrate_proba`` (probabilities, groups).
    criterion : {"mean_size", "singleton"}, default "mean_size"
        What is made equal: the mean size, or how often a set has more than one label (then A_g counts
        the rows whose set at s has two labels or more).
    shrinkage : float, default 1.0
        From 0, one A for all groups and so the marginal sets, to 1, the groups' own:
        ``u = (1 - shrinkage) A(S) + shrinkage A_g(S)``.
    unseen : {"all", "marginal", "refuse"}, default "all"
        What a row of a group without reference rows gets: all labels, the A of all groups together, or
        an error; a warning counts such rows.
    randomised : bool, default False
        Whether a score that takes u gets one; see APS.
    calibration_size : float or int, default 0.5
        Part of the rows that ``fit`` sets aside for calibration.
    max_memory : int, default 64 MiB
        Bytes of working memory, beside input, output and the scores of all labels of the reference rows
        (8 bytes each), which are kept.
    random_state : int or None, default None
        Draws the calibration rows in ``fit``, the reference part, and u.

    Attributes
    ----------
    expected_size_ : float or (L,) array
        kappa, at the constructor's alpha; the share of sets with more than one label for "singleton".

    Notes
    -----
    With "split" and with further rows, u is a fixed function for the rows that calibrate, and the guarantee
    P(y in C) >= 1 - alpha is exact. With "calibration" it is not: those rows shape A_g and new rows do not.
    The effect falls with the number of calibration rows of a group. Sizes are equal up to the error of
    A_g, and in expectation only.

    References
    ----------
    Cresswell, Kumar, Sui, Belbahri (2025), Conformal prediction sets can cause disparate impact.
    """

    allow_empty = True
    without_groups = "all rows are one group, and the sets are those of one threshold"

    def __init__(
        self,
        estimator: Any = None,
        *,
        label_score: str | LabelScore = "raps",
        alpha: Any = 0.1,
        reference: Any = "calibration",
        criterion: str = "mean_size",
        shrinkage: float = 1.0,
        unseen: str = "all",
        randomised: bool = False,
        calibration_size: float | int = 0.5,
        max_memory: int = MAX_MEMORY,
        random_state: Any = None,
    ) -> None:
        self.estimator = estimator
        self.label_score = label_score
        self.alpha = alpha
        self.reference = reference
        self.criterion = criterion
        self.shrinkage = shrinkage
        self.unseen = unseen
        self.randomised = randomised
        self.calibration_size = calibration_size
        self.max_memory = max_memory
        self.random_state = random_state

    @property
    def expected_size_(self) -> Any:
        """kappa at the constructor's alpha: the mean size that every group's sets are to have."""
        levels, is_scalar = parse_levels(self.alpha)
        calibrator: EqualizedCalibrator = self.calibrator_
        sizes = np.array([size for size, _ in calibrator.cut(levels)])
        return float(sizes[0]) if is_scalar else sizes

    def _score(self) -> LabelScore:
        return get_score(self.label_score)

    def _choose_score(
        self, proba: Probabilities, codes: Codes, seed: int
    ) -> tuple[LabelScore, BoolArray | None]:
        self._checked_unseen()
        if self.criterion not in _CRITERIA:
            raise MethodError(f"criterion must be 'mean_size' or 'singleton', got {self.criterion!r}")
        if not 0 <= self.shrinkage <= 1:
            raise MethodError(f"shrinkage must lie in [0, 1], got {self.shrinkage!r}")
        named = isinstance(self.reference, str)
        if self.reference not in ("calibration", "split") if named else not _is_pair(self.reference):
            shown = repr(self.reference) if named else f"a {type(self.reference).__name__}"
            raise MethodError(
                f"reference must be 'calibration', 'split' or a pair (X, groups) of further rows, got {shown}"
            )
        return self._score(), None

    def _calibrator(
        self, score: LabelScore, scores: FloatArray, rows: CalibrationRows, seed: int
    ) -> LabelCalibrator:
        unseen, groups = self._checked_unseen(), rows.groups
        if groups is None:
            self._warn_without_groups()
            groups = np.zeros(len(scores), dtype=np.intp)
        if not isinstance(self.reference, str):
            X, given = self.reference
            proba = rows.further(X)
            reference_groups = check_labels(given, length=len(proba), name="the groups of reference")
            if rows.groups is None:
                reference_groups = np.zeros(len(proba), dtype=np.intp)
        elif self.reference == "split":
            part = self._reference_part(rows, seed)
            proba = Probabilities(rows.proba.values[part], rows.proba.name)
            reference_groups = groups[part]
            scores, groups = scores[~part], groups[~part]
        else:
            proba, reference_groups = rows.proba, groups
        if len(proba) == 0:
            raise DataError("there are 0 reference rows; give at least one of each group")
        names = distinct_labels(reference_groups)
        reference_codes = encode_labels(reference_groups, names)
        _warn_few(np.bincount(reference_codes, minlength=len(names)), names)
        events, of = self._events(score, proba, reference_codes, seed)
        curves = [
            size_curve(events, of, len(proba), np.bincount(reference_codes), g, self.shrinkage)
            for g in range(len(names))
        ]
        pooled = size_curve(events, of, len(proba), np.bincount(reference_codes), None, 0.0)
        codes = self._group_codes(groups, names)
        known = None if rows.groups is None else names
        return EqualizedCalibrator(scores, codes, known, tuple(curves), pooled, unseen)

    def _reference_part(self, rows: CalibrationRows, seed: int) -> BoolArray:
        """(n,) which half of the calibration rows becomes reference rows, whatever their order."""
        n = len(rows.codes)
        if n < 2:
            raise DataError(f"{n} calibration row: reference='split' needs at least two")
        order = np.argsort(self._part_uniforms(rows.proba, rows.codes, seed, "reference"), kind="stable")
        part = np.zeros(n, dtype=np.bool_)
        part[order[: n // 2]] = True
        return part

    def _events(
        self, score: LabelScore, proba: Probabilities, groups: Codes, seed: int
    ) -> tuple[FloatArray, Codes]:
        """(scores at which the count that is made equal rises by one, ascending; the group of each)."""
        found: list[FloatArray] = []
        of: list[Codes] = []
        for rows, block in proba.blocks(self._block_bytes()):
            every = score.all(block, self._uniforms(score, block, seed))
            if self.criterion == "singleton":
                second = 1 if block.shape[1] > 1 else 0
                every = np.partition(every, second, axis=1)[:, 1:2]
            found.append(every.ravel())
            of.append(np.repeat(groups[rows], every.shape[1]))
        events, groups = np.concatenate(found), np.concatenate(of)
        order = np.argsort(events, kind="stable")
        return events[order], groups[order]


def _is_pair(reference: Any) -> bool:
    return isinstance(reference, (tuple, list)) and len(reference) == 2


@dataclass(frozen=True, eq=False)
class SizeCurve:
    """A step function that never falls: ``values[i]`` from ``breaks[i - 1]`` on, the break included."""

    #: (B,) ascending
    breaks: FloatArray
    #: (B + 1,)
    values: FloatArray

    def __call__(self, s: Any) -> FloatArray:
        """The value at each s."""
        return np.asarray(self.values[np.searchsorted(self.breaks, s, side="right")])

    def last(self, value: float, tie: float) -> float:
        """The largest s at which the curve is below ``value``, or equal to it with ``s <= tie``."""
        reaches = int(np.searchsorted(self.values, value, side="left"))
        exceeds = int(np.searchsorted(self.values, value, side="right"))
        end = np.inf if exceeds == len(self.values) else _below(self.breaks, exceeds)
        begin = np.inf if reaches == len(self.values) else _below(self.breaks, reaches)
        return float(min(max(tie, begin), end))


def _below(breaks: FloatArray, index: int) -> float:
    """The largest number before the step to ``values[index]``."""
    return -np.inf if index == 0 else float(np.nextafter(breaks[index - 1], -np.inf))


def size_curve(
    events: FloatArray, groups: Codes, n: int, counts: NDArray[Any], group: int | None, shrinkage: float
) -> SizeCurve:
    """``(1 - shrinkage) A(s) + shrinkage A_g(s)``; A alone for ``group=None``.

    Parameters
    ----------
    events : (B,) scores at which a count rises by one, ascending
    groups : (B,) whose
    n : number of reference rows
    counts : (G,) reference rows of each group
    group : number of the group
    """
    if group is None or shrinkage == 0:
        rises = np.arange(1, len(events) + 1) / n
    else:
        own = groups == group
        if shrinkage == 1:
            events = events[own]
            rises = np.arange(1, len(events) + 1) / counts[group]
        else:
            pooled = np.arange(1, len(events) + 1) / n
            rises = (1 - shrinkage) * pooled + shrinkage * np.cumsum(own) / counts[group]
    # of equal scores the last one holds the value
    last = np.append(events[1:] != events[:-1], True)[: len(events)]
    return SizeCurve(events[last], np.concatenate([[0.0], rises[last]]))


@dataclass(frozen=True, eq=False)
class EqualizedCalibrator:
    """One threshold on u for all rows, turned into one threshold on the score for each group.

    ``scores`` are the true labels', ``codes`` the groups of their rows (-1: no reference rows);
    ``names`` is None where no groups are known.
    """

    scores: FloatArray
    codes: Codes
    names: NDArray[Any] | None
    curves: tuple[SizeCurve, ...]
    pooled: SizeCurve
    unseen: Unseen

    def cut(self, levels: Sequence[Fraction]) -> list[tuple[float, float]]:
        """(u, S) of the calibration row of conformal rank at each level; infinite where rows are too few."""
        u = np.full(len(self.scores), -np.inf)  # rows that get all labels are always covered
        for code, curve in self._by_code():
            mine = self.codes == code
            u[mine] = curve(self.scores[mine])
        order = np.lexsort((self.scores, u))
        found = []
        for level in levels:
            rank = conformal_rank(len(u), level)
            if rank > len(u):
                warn_infinite(len(u), level, stacklevel=7)
                found.append((np.inf, np.inf))
            else:
                at = order[rank - 1]
                found.append((float(u[at]), float(self.scores[at])))
        return found

    def thresholds(self, levels: Sequence[Fraction], groups: Codes | None = None) -> FloatArray:
        """(L, n, 1) thresholds on the score of rows with the given codes; (L, 1, 1) without groups."""
        cuts = self.cut(levels)
        out = np.full((len(levels), len(self.curves) + 1), np.inf)
        for code, curve in self._by_code():
            out[:, code] = [curve.last(value, tie) for value, tie in cuts]
        if groups is None:
            return out[:, :1, None]
        warn_unseen(groups, self.unseen, stacklevel=6)
        return out[:, groups, None]

    def _by_code(self) -> list[tuple[int, SizeCurve]]:
        last = [(-1, self.pooled)] if self.unseen == "marginal" else []
        return [*enumerate(self.curves), *last]


def _warn_few(counts: NDArray[Any], names: NDArray[Any]) -> None:
    few = np.flatnonzero(counts < MIN_REFERENCE_ROWS)
    if len(few) and len(names) > 1:
        listed = ", ".join(f"{names[g]} {counts[g]}" for g in few[:5]) + (", ..." if len(few) > 5 else "")
        warnings.warn(
            f"{len(few)} of {len(names)} groups have fewer than {MIN_REFERENCE_ROWS} reference rows "
            f"({listed}): their mean set size is hardly known, and sizes will differ",
            AssayWarning,
            stacklevel=6,
        )
