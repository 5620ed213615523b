"""Statistics over repeated splits: means, intervals, paired differences.

The test parts of repeated random splits overlap, so the variance of a mean over J seeds is not s^2 / J.
The corrected resampled variance of Nadeau and Bengio, ``(1/J + n_test/n_train) s^2``, allows for that.
Test parts that do not overlap (stretches of time) need no such term: their variance is s^2 / J, as far as
what happens in one stretch says nothing of the next.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
from scipy import special

from assay.core.errors import DataError
from assay.core.levels import lower_rank, parse_alpha
from assay.engine.plan import RunInfo, TrialResult
from assay.tasks.base import Metric

CONFIDENCE = 0.95

STATUSES = ("ok", "failed", "timed out", "out of memory", "skipped")
FAILURES = frozenset({"failed", "timed out", "out of memory"})

Basis = Literal["corrected t", "t", "exact binomial", ""]


class Judge(Protocol):
    """What the statistics need of a task."""

    @property
    def metrics(self) -> tuple[Metric, ...]: ...
    @property
    def reference(self) -> str: ...
    @property
    def size_metric(self) -> str: ...
    @property
    def coverage_metric(self) -> str | None: ...
    @property
    def beside_coverage(self) -> tuple[str, ...]: ...
    @property
    def columns(self) -> tuple[str, ...]: ...
    def requirement(self) -> str: ...
    def lacks(self, means: Mapping[str, float]) -> str | None: ...


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds with its 95 % interval.

    ``low`` and ``high`` are None where there is no interval: one seed, an infinite value, or trials
    that do not say how many rows they used. ``basis`` names how the interval was computed. ``seeds``
    are those averaged, ``undefined`` those whose value is NaN and is left out, ``infinite`` the
    number of infinite values among those averaged (the mean is then infinite).
    """

    mean: float
    low: float | None = None
    high: float | None = None
    basis: Basis = ""
    seeds: tuple[int, ...] = ()
    undefined: tuple[int, ...] = ()
    infinite: int = 0


@dataclass(frozen=True)
class Rows:
    """Rows of one split; ``disjoint``: no two splits test the same row.

    Over time ``test`` is the number of steps, and ``targets`` that of what was judged in all series.
    """

    train: int
    calib: int
    test: int
    disjoint: bool = False
    targets: int = 0

    @property
    def ratio(self) -> float:
        """The share that Nadeau and Bengio add to 1/J; none where the test parts do not overlap.

        Where nothing is trained, the calibration rows are those that a method learns from.
        """
        return 0.0 if self.disjoint else self.test / (self.train or self.calib)

    @property
    def total(self) -> int:
        return self.train + self.calib + self.test

    def tested(self, seeds: int) -> int:
        """Rows behind a mean over seeds: all of the table, where every split draws from all of it."""
        return seeds * self.targets if self.disjoint else self.total

    @property
    def deciding(self) -> int:
        """Rows that decide what is covered: those that calibrate, or all that train where none does."""
        return self.calib or self.train


@dataclass(frozen=True)
class MethodSummary:
    """All that the trials of one method say together; ``counts`` has every status and "not run"."""

    name: str
    counts: Mapping[str, int]
    trials: int
    seeds: tuple[int, ...]
    rows: Rows | None
    expected: tuple[float, float] | None
    estimates: Mapping[str, Estimate]
    differences: Mapping[str, Estimate]

    @property
    def failures(self) -> int:
        """Trials that were started and did not finish."""
        return sum(self.counts[status] for status in FAILURES)

    @property
    def outcome(self) -> str:
        """The counts in words: "4 ok, 1 timed out"."""
        return ", ".join(f"{n} {status}" for status, n in self.counts.items() if n) or "no trials"


def corrected_error(values: Sequence[float], ratio: float) -> float:
    """Standard error of the mean of J values over repeated splits: sqrt((1/J + ratio) s^2)."""
    return math.sqrt(1 / len(values) + ratio) * float(np.std(values, ddof=1))


def binomial_error(target: float, rows: Rows, seeds: int) -> float:
    """The least standard error of a mean coverage: the binomial one of all rows that were tested.

    Nearly equal values on every seed would otherwise make a tiny shortfall significant.
    """
    return math.sqrt(target * (1 - target) / rows.tested(seeds))


def coverage_error(values: Sequence[float], rows: Rows, target: float) -> float:
    """Standard error of the mean of J coverages, by which they are judged and around which they are shown."""
    return max(corrected_error(values, rows.ratio), binomial_error(target, rows, len(values)))


def corrected_interval(
    values: Sequence[float], ratio: float, confidence: float = CONFIDENCE
) -> tuple[float, float]:
    """t interval with J - 1 degrees of freedom around the mean of J >= 2 finite values.

    ``ratio`` is n_test / n_train of a split.
    """
    return _t_interval(values, corrected_error(values, ratio), confidence)


def _t_interval(values: Sequence[float], error: float, confidence: float) -> tuple[float, float]:
    mean = float(np.mean(values))
    half = float(special.stdtrit(len(values) - 1, (1 + confidence) / 2)) * error
    return mean - half, mean + half


def binomial_interval(successes: int, n: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Exact (Clopper-Pearson) interval of a probability from ``successes`` of ``n``."""
    tail = (1 - confidence) / 2
    low = 0.0 if successes == 0 else float(special.betaincinv(successes, n - successes + 1, tail))
    high = 1.0 if successes == n else float(special.betaincinv(successes + 1, n - successes, 1 - tail))
    return low, high


def valid_coverage_quantile(alpha: Any, n_calib: int, n_test: int, probability: float) -> float:
    """Quantile of the test coverage of an exactly valid split-conformal method.

    With l = floor(alpha (n_calib + 1)) the number of covered test rows is beta-binomial with
    parameters (n_calib + 1 - l, l). l = 0 means an infinite threshold, which covers every row.
    For a method without a calibration part n_calib is the number of its training rows.
    """
    missed = lower_rank(n_calib, alpha)
    if missed == 0:
        return 1.0
    k = np.arange(n_test + 1)
    choose = special.gammaln(n_test + 1) - special.gammaln(k + 1) - special.gammaln(n_test - k + 1)
    a, b = n_calib + 1 - missed, missed
    log_mass = choose + special.betaln(k + a, n_test - k + b) - special.betaln(a, b)
    cumulated = np.cumsum(np.exp(log_mass))
    # the sum meets a probability such as one half only up to rounding
    return min(int(np.searchsorted(cumulated, probability - 1e-12)), n_test) / n_test


class Summary:
    """The statistics of a comparison; each part is computed when it is first asked for.

    Parameters
    ----------
    info : RunInfo
    results : trials, at most one a method and seed
    task : anything with ``metrics``, ``reference``, ``size_metric`` and ``coverage_metric``

    Raises
    ------
    DataError
        Two results for the same method and seed: they would be counted twice.
    """

    def __init__(self, info: RunInfo, results: Sequence[TrialResult], task: Judge) -> None:
        self.info = info
        self.task = task
        self._trials: dict[str, dict[int, TrialResult]] = {str(m["name"]): {} for m in info.methods}
        for result in results:
            of_method = self._trials.setdefault(result.method, {})
            if result.seed in of_method:
                raise DataError(f"two results of {result.method!r} with seed {result.seed}; one is expected")
            of_method[result.seed] = result
        self.seeds = tuple(info.seeds) or tuple(sorted({result.seed for result in results}))
        self.target = float(1 - parse_alpha(info.alpha))

    def trials(self, method: str) -> list[TrialResult]:
        """The method's results in the order of the seeds."""
        return [result for _, result in sorted(self._trials[method].items())]

    def ok(self, method: str) -> dict[int, TrialResult]:
        """The method's finished trials by seed."""
        return {result.seed: result for result in self.trials(method) if result.status == "ok"}

    @cached_property
    def metrics(self) -> tuple[Metric, ...]:
        """The task's metrics, then any other that the trials report."""
        known = {metric.name for metric in self.task.metrics}
        seen = dict.fromkeys(
            name for of_method in self._trials.values() for r in of_method.values() for name in r.metrics
        )
        stated = (m for m in self.task.metrics if self.info.group is not None or not m.of_groups)
        extra = (Metric(name, name.replace("_", " "), "", "info", "") for name in seen if name not in known)
        return (*stated, *extra)

    @property
    def columns(self) -> tuple[str, ...]:
        """Further metrics of the short table, those that some trial has."""
        return tuple(name for name in self.task.columns if any(f.estimates[name].seeds for f in self.methods))

    @cached_property
    def reference(self) -> str | None:
        """The task's reference if it takes part, else the first method that finished a trial."""
        if self._trials.get(self.task.reference):
            return self.task.reference
        by_card = [str(m["name"]) for m in self.info.methods if m.get("card") == self.task.reference]
        return next(iter([*by_card, *(name for name in self._trials if self.ok(name))]), None)

    @cached_property
    def methods(self) -> tuple[MethodSummary, ...]:
        """One summary a method, in the order in which they were named."""
        return tuple(self._summarise(name) for name in self._trials)

    @cached_property
    def compared_seeds(self) -> tuple[int, ...]:
        """Seeds of which every method that was not skipped has a trial, finished or failed."""
        started = [set(self._trials[m.name]) for m in self.methods if m.counts["skipped"] < m.trials]
        return tuple(seed for seed in self.seeds if started and all(seed in s for s in started))

    def label(self, metric: str) -> str:
        """The metric's label, for use within a sentence."""
        label = next((m.label for m in self.metrics if m.name == metric), metric)
        return label if label[:2].isupper() else label[:1].lower() + label[1:]

    def method(self, name: str) -> MethodSummary:
        """The summary of one method."""
        return next(m for m in self.methods if m.name == name)

    def _summarise(self, name: str) -> MethodSummary:
        trials, ok = self.trials(name), self.ok(name)
        counts = Counter(str(result.status) for result in trials)
        skipped = next((bool(m.get("skip")) for m in self.info.methods if m["name"] == name), False)
        absent = len(set(self.seeds) - {result.seed for result in trials})
        counts["skipped" if skipped and not trials else "not run"] += absent
        rows, expected = _rows(ok.values()), _expected(ok.values())
        ratio = rows.ratio if rows else None
        estimates = {}
        differences = {}
        for metric, unit in ((m.name, m.unit) for m in self.metrics):
            values = {seed: r.metrics[metric] for seed, r in ok.items() if metric in r.metrics}
            of = estimate(values, ratio)
            if metric == self.task.coverage_metric and rows is not None:
                of = self._interval_of_coverage(of, values, rows)
            estimates[metric] = _bounded(of, unit, list(values.values()))
            if self.reference not in (None, name):
                gap = self.paired(name, str(self.reference), metric)
                if gap.seeds or gap.undefined:
                    differences[metric] = gap
        every = (*STATUSES, "not run")
        return MethodSummary(
            name=name,
            counts={status: counts[status] for status in every},
            trials=sum(counts.values()),
            seeds=tuple(ok),
            rows=rows,
            expected=expected,
            estimates=estimates,
            differences=differences,
        )

    def _interval_of_coverage(self, of: Estimate, values: Mapping[int, float], rows: Rows) -> Estimate:
        """With the error by which coverage is judged; one seed gets the exact interval of its test part."""
        if len(of.seeds) == 1:
            low, high = binomial_interval(round(of.mean * rows.test), rows.test)
            return replace(of, low=low, high=high, basis="exact binomial")
        if of.low is None:
            return of
        kept = [values[seed] for seed in of.seeds]
        low, high = _t_interval(kept, coverage_error(kept, rows, self.target), CONFIDENCE)
        return replace(of, low=low, high=high)

    def paired(self, name: str, base: str, metric: str) -> Estimate:
        """Mean of ``name`` minus ``base`` over the seeds on which both finished, with its interval."""
        mine, theirs = self.ok(name), self.ok(base)
        values = {
            seed: _difference(mine[seed].metrics[metric], theirs[seed].metrics[metric])
            for seed in mine
            if seed in theirs and metric in mine[seed].metrics and metric in theirs[seed].metrics
        }
        rows = [_rows(trials.values()) for trials in (mine, theirs)]
        # a method without a calibration part learns from more rows; the larger ratio is the careful one
        return estimate(values, max((r.ratio for r in rows if r), default=None))


def estimate(values: Mapping[int, float], ratio: float | None) -> Estimate:
    """Mean over seeds and its corrected 95 % interval; NaN values are counted and left out.

    ``values`` maps a seed to its value; ``ratio`` is n_test / n_train, 0 where test parts do not overlap,
    None if it is not known.
    """
    undefined = tuple(seed for seed, value in values.items() if math.isnan(value))
    kept = {seed: float(value) for seed, value in values.items() if not math.isnan(value)}
    if not kept:
        return Estimate(math.nan, undefined=undefined)
    numbers = list(kept.values())
    infinite = sum(math.isinf(value) for value in numbers)
    if infinite:
        signs = {value for value in numbers if math.isinf(value)}
        mean = signs.pop() if len(signs) == 1 else math.nan
        return Estimate(mean, seeds=tuple(kept), undefined=undefined, infinite=infinite)
    mean = float(np.mean(numbers))
    if len(numbers) < 2 or ratio is None:
        return Estimate(mean, seeds=tuple(kept), undefined=undefined)
    low, high = corrected_interval(numbers, ratio)
    return Estimate(mean, low, high, "corrected t" if ratio else "t", tuple(kept), undefined)


def _bounded(of: Estimate, unit: str, values: Sequence[float]) -> Estimate:
    """The interval without what the mean cannot be: a share lies in [0, 1], a size is not negative.

    The logarithm of a density can be.
    """
    free = unit in ("", "nats of density") or any(value < 0 for value in values)
    if of.low is None or of.high is None or free:
        return of
    return replace(of, low=max(of.low, 0.0), high=min(of.high, 1.0) if unit == "share" else of.high)


def _difference(a: float, b: float) -> float:
    """a - b; two infinities of one sign differ by no number."""
    return math.nan if math.isinf(a) and a == b else float(a - b)


def _rows(trials: Iterable[TrialResult]) -> Rows | None:
    """Rows of a split, from the first trial that says so (they are the same for every seed)."""
    for result in trials:
        detail = result.detail
        if detail.get("n_test") and (detail.get("n_train") or detail.get("n_calib")):
            return Rows(
                int(detail.get("n_train", 0)),
                int(detail.get("n_calib", 0)),
                int(detail["n_test"]),
                bool(detail.get("disjoint", False)),
                int(detail.get("n_targets", detail["n_test"])),
            )
    return None


def _expected(trials: Iterable[TrialResult]) -> tuple[float, float] | None:
    for result in trials:
        band = result.detail.get("expected_coverage")
        if band is not None:
            return float(band[0]), float(band[1])
    return None
