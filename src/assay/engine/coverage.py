"""Has the coverage of a method in use drifted? Exact tests on newly labelled rows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import special, stats

from assay.core.errors import DataError
from assay.core.levels import conformal_rank, parse_alpha
from assay.data.schema import Notices
from assay.engine.fitted import FittedMethod
from assay.tasks import measures
from assay.tasks.groups import names_in

#: a column with more groups than this is no group column
_MOST_GROUPS = 200
#: logarithm of evidence beyond any threshold; keeps it finite
_MOST_LOG_EVIDENCE = 690.0


@dataclass(frozen=True)
class Part:
    """Coverage of a part of the rows.

    ``low`` and ``high`` are the exact (Clopper-Pearson) 95 % interval of its coverage; ``p`` is the exact
    two-sided p-value of the promised coverage, and ``adjusted`` the same after Holm's correction for
    having looked at all parts of the same kind.
    """

    kind: str
    name: str
    rows: int
    covered: int
    coverage: float
    low: float
    high: float
    p: float
    adjusted: float
    verdict: str


@dataclass(frozen=True)
class CoverageReport:
    """What newly labelled rows say of a fitted method's coverage.

    Attributes
    ----------
    parts : all rows first, then quintiles of size, then groups
    alpha, level : the promised miscoverage, and the level of the tests
    n_calib : calibration rows of the method; 0 where its promise does not rest on them
    mean_size : of the answers (width, volume, labels)
    notices : what was strange in the rows
    """

    parts: tuple[Part, ...]
    alpha: Fraction
    level: Fraction
    n_calib: int
    mean_size: float
    notices: tuple[str, ...]

    @property
    def drifted(self) -> bool:
        """Whether coverage over all rows is not what was promised, at the level."""
        return self.parts[0].verdict != "as promised"

    def table(self) -> pd.DataFrame:
        """One row a part."""
        return pd.DataFrame([asdict(part) for part in self.parts])


def check(fitted: FittedMethod, data: Any, *, group: str | None = None, level: Any = 0.05) -> CoverageReport:
    """Test whether a fitted method still covers what it promised, on labelled rows it has not seen.

    Rows are tested against the exact distribution of the number of covered ones if they are exchangeable
    with the calibration rows: beta-binomial, for with n calibration rows the coverage that was reached is
    itself random. A method without calibration rows is tested against 1 - alpha: the number is then
    binomial. Parts are tested likewise; where the method calibrated each group by itself, a group with the
    number of its own calibration rows. Parts have no promise of their own (unless the method gives one): a
    part that is below says where to look.

    Parameters
    ----------
    fitted : FittedMethod
    data : path, DataFrame
        With the feature columns and the target.
    group : str, optional
        A column whose values divide the rows.
    level : level, default 0.05
        Chance of calling a coverage drifted that has not.

    Raises
    ------
    DataError
        No row has an outcome; a column is missing or holds something else; too many groups.
    """
    notices = Notices()
    covered, sizes, names = covered_rows(fitted, data, notices, group=group)
    alpha, at = fitted.alpha, parse_alpha(level)
    n_calib = int(fitted.about["n_calib"])
    parts = [part_of("all", "all rows", len(covered), int(covered.sum()), alpha, at, n_calib)]
    order = np.column_stack([sizes, sizes])
    quintiles = [
        (f"size {sizes[rows].min():.4g} to {sizes[rows].max():.4g}", covered[rows])
        for rows in measures.width_groups(order, width=sizes)
    ]
    if len(quintiles) > 1:  # one part is all rows once more
        parts += _adjusted("size", quintiles, alpha, at, [n_calib] * len(quintiles))
    if names is not None:
        found = np.unique(names)
        if len(found) > _MOST_GROUPS:
            raise DataError(
                f"the column {group!r} has {len(found):,} values; at most {_MOST_GROUPS} are groups"
            )
        own = fitted.about["calib_by_group"] if group == fitted.about["group"] else {}
        counts = [int(own.get(str(v), n_calib)) for v in found]
        groups = [(f"{group} {v}", covered[names == v]) for v in found]
        parts += _adjusted("group", groups, alpha, at, counts)
    return CoverageReport(tuple(parts), alpha, at, n_calib, float(sizes.mean()), notices.lines())


def covered_rows(
    fitted: FittedMethod, data: Any, notices: Notices, *, group: str | None = None
) -> tuple[NDArray[np.bool_], NDArray[np.float64], NDArray[Any] | None]:
    """(covered, sizes, groups) of all labelled rows that the method was not fitted on.

    Raises
    ------
    DataError
        No row has an outcome; a column is missing or holds something else.
    """
    task = fitted.task
    covered: list[NDArray[np.bool_]] = []
    sizes: list[NDArray[np.float64]] = []
    names: list[NDArray[Any]] = []
    for frame, table in fitted.labelled(data, notices):
        if group is not None:
            if group not in frame.columns:
                raise DataError(f"no column {group!r} to group by; there are: {', '.join(frame.columns)}")
            names.append(names_in(frame[group]))
        if len(table):
            hit, size = task.covered(fitted.asked(table.frame, frame), task.outcomes(table))
            covered.append(hit)
            sizes.append(size)
    if not covered:
        said = "; ".join(notices.lines())
        raise DataError(
            f"no new row with an outcome in {fitted.target}: nothing to check{said and f' ({said})'}"
        )
    return np.concatenate(covered), np.concatenate(sizes), np.concatenate(names) if names else None


def part_of(kind: str, name: str, n: int, k: int, alpha: Fraction, level: Fraction, n_calib: int = 0) -> Part:
    """The coverage of n rows of which k are covered, tested at the level."""
    p = two_sided(k, n, alpha, n_calib)
    interval = stats.binomtest(k, n).proportion_ci(0.95, method="exact")
    verdict = _verdict(k / n, alpha, p, level)
    return Part(kind, name, n, k, k / n, float(interval.low), float(interval.high), p, p, verdict)


def _verdict(coverage: float, alpha: Fraction, p: float, level: Fraction) -> str:
    if p > level:
        return "as promised"
    return "below" if coverage < 1 - alpha else "above"


def two_sided(k: int, n: int, alpha: Fraction, n_calib: int = 0) -> float:
    """Exact p-value of k covered of n rows: twice the smaller tail, at most 1.

    Binomial with 1 - alpha; with ``n_calib`` calibration rows beta-binomial, which is exact for
    exchangeable rows with distinct scores.
    """
    rank = conformal_rank(n_calib, alpha)
    if n_calib and rank > n_calib:  # too few calibration rows: the sets are everything
        return 1.0 if k == n else 0.0
    law = stats.betabinom(n, rank, n_calib + 1 - rank) if n_calib else stats.binom(n, float(1 - alpha))
    below = law.pmf(np.arange(k + 1)).sum()
    above = law.pmf(np.arange(k, n + 1)).sum()  # not 1 minus the other, which leaves nothing of small ones
    return float(min(1.0, 2 * min(below, above)))


def evidence(k: int, n: int, alpha: Fraction, n_calib: int = 0) -> float:
    """How many times likelier k covered of n rows are if the coverage is unknown than if it is as promised.

    The likelihood of the rows in their order, under a coverage drawn from Beta(1/2, 1/2), over that under
    the law of :func:`two_sided`. Where nothing has drifted this is a nonnegative martingale that starts at
    1: the chance that it ever reaches 1 / level is at most the level (Ville), however often one looks.
    """
    rank = conformal_rank(n_calib, alpha)
    if n_calib and rank > n_calib:  # the sets are everything: a row that is not covered cannot be
        return 1.0 if k == n else math.inf
    unknown = special.betaln(k + 0.5, n - k + 0.5) - special.betaln(0.5, 0.5)
    if n_calib:
        b = n_calib + 1 - rank
        promised = special.betaln(rank + k, b + n - k) - special.betaln(rank, b)
    else:
        promised = special.xlogy(k, float(1 - alpha)) + special.xlogy(n - k, float(alpha))
    return float(np.exp(np.minimum(unknown - promised, _MOST_LOG_EVIDENCE)))


def _adjusted(
    kind: str,
    parts: list[tuple[str, NDArray[np.bool_]]],
    alpha: Fraction,
    level: Fraction,
    n_calib: list[int],
) -> Iterator[Part]:
    """Parts of one kind, with p-values corrected by Holm for their number."""
    found = [
        part_of(kind, name, len(c), int(c.sum()), alpha, level, n)
        for (name, c), n in zip(parts, n_calib, strict=True)
    ]
    order = np.argsort([part.p for part in found], kind="stable")
    worst = 0.0
    adjusted = {}
    for place, i in enumerate(order):
        worst = max(worst, min(1.0, (len(found) - place) * found[i].p))
        adjusted[int(i)] = worst
    for i, part in enumerate(found):
        verdict = _verdict(part.coverage, alpha, adjusted[i], level)
        yield Part(**{**asdict(part), "adjusted": adjusted[i], "verdict": verdict})
