"""The recommended method: the smallest of those whose coverage is not significantly below 1 - alpha.

Of a task that promises no level it is the method with the best score: the least mean of its size metric.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from assay.engine.stats import (
    MethodSummary,
    Rows,
    Summary,
    binomial_error,
    coverage_error,
    valid_coverage_quantile,
)
from assay.engine.wording import interval, mean, number, share, signed

#: level of the one-sided test that a method covers too little
SIGNIFICANCE = 0.05
#: fewer seeds than this say too little about their own spread to test with
MIN_SEEDS_FOR_T = 3
#: over stretches of time: more misses than this times those asked for are too many, however they are spread
MISSES_TOLERATED = 1.2
#: over time, with many series, a shortfall may be certain and still nothing: fewer misses are let pass
MISSES_IGNORED = 1.05


@dataclass(frozen=True)
class Verdict:
    """Whether a method qualifies, and why (not). ``low``: it covers significantly too little."""

    method: str
    qualifies: bool
    low: bool
    why: str


@dataclass(frozen=True)
class Choice:
    """The recommended method (None if none qualifies), the rule that chose it, and the reason.

    ``str()`` is the reason as a sentence.
    """

    method: str | None
    rule: str
    reason: str
    verdicts: tuple[Verdict, ...]

    def __str__(self) -> str:
        return self.reason

    def verdict(self, method: str) -> Verdict:
        """What was found about one method."""
        return next(v for v in self.verdicts if v.method == method)


def coverage_test(summary: Summary, method: str) -> tuple[bool, str]:
    """Whether a method covers significantly less than 1 - alpha, and the numbers of that test.

    Three seeds or more: one-sided t-test at 5 % with the corrected variance. Its standard error, from which
    the 95 % interval of the coverage is made too, is not taken below ``sqrt(alpha (1 - alpha) / n)``, the
    binomial error of all n rows of the table, so that nearly equal values on every seed do not make a tiny
    shortfall significant.

    One or two seeds: the mean lies under the 5 % quantile of the coverage of an exactly valid
    method on a single split (beta-binomial in the calibration and test rows; in the training rows where
    a method has no calibration part). Where the seeds are stretches of time, the correction is nought, n the
    number of targets tested in all series (how alike these are shows in how much stretches differ), and that
    quantile the binomial one of the steps of a stretch. There a shortfall counts only with more than
    ``MISSES_IGNORED`` times the misses asked for. And a method is also
    too low whose misses in all are more than ``MISSES_TOLERATED`` times those asked for and beyond chance:
    good coverage in one stretch and bad in the next is the method's doing, not a matter of the draw.
    """
    found = summary.method(method)
    name = summary.task.coverage_metric
    if name is None:
        return False, "no level is asked for"
    coverage, rows = found.estimates[name], found.rows
    if rows is None:
        return False, "the trials do not say how many rows they used, so coverage is not tested"
    J = len(coverage.seeds)
    if J < MIN_SEEDS_FOR_T:
        bound = _bound(summary, rows)
        low = coverage.mean < bound
        return low, f"{'under' if low else 'not under'} {bound:.3f}"
    ok = summary.ok(method)
    values = [ok[seed].metrics[name] for seed in coverage.seeds]
    error = coverage_error(values, rows, summary.target)
    critical = float(special.stdtrit(J - 1, SIGNIFICANCE))
    shortfall = coverage.mean - summary.target
    if error == 0:  # alpha = 0, and the same coverage on every seed
        return shortfall < 0, "the same on every seed"
    t = shortfall / error
    words = "under" if t < critical else "not under"
    said = f"t = {signed(t, 2)}, {words} {number(critical, 2)}"
    if rows.disjoint and t < critical and shortfall >= (1 - MISSES_IGNORED) * (1 - summary.target):
        return False, f"{said}, but at most {MISSES_IGNORED:g} times the misses asked for"
    if rows.disjoint and t >= critical and (factor := _excess(coverage.mean, summary.target, rows.test * J)):
        return True, f"{said}, but {number(factor)} times the misses asked for"
    return t < critical, said


def _bound(summary: Summary, rows: Rows) -> float:
    """The 5 % quantile of the coverage of an exactly valid method on one split."""
    if rows.disjoint:
        return _least_by_chance(rows.test, summary.target)
    return valid_coverage_quantile(summary.info.alpha, rows.deciding, rows.test, SIGNIFICANCE)


def _excess(coverage: float, target: float, n: int) -> float | None:
    """Misses in units of those asked for, where they are too many for n independent steps, else None."""
    factor = (1 - coverage) / (1 - target)
    return factor if factor > MISSES_TOLERATED and coverage < _least_by_chance(n, target) else None


def _least_by_chance(n: int, target: float) -> float:
    """The 5 % quantile of the coverage of n independent steps."""
    return float(stats.binom.ppf(SIGNIFICANCE, n, target)) / n


def judge(summary: Summary, found: MethodSummary) -> Verdict:
    """Whether one method qualifies for the recommendation."""
    name = found.name
    if not found.seeds:
        return Verdict(name, False, False, f"no trial finished ({found.outcome})")
    label = summary.label(summary.task.size_metric)
    size = found.estimates[summary.task.size_metric]
    if summary.task.coverage_metric is None:
        coverage, low, measured = size, False, f"{label} {number(size.mean)}"
    else:
        coverage = found.estimates[summary.task.coverage_metric]
        low, numbers = coverage_test(summary, name) if coverage.seeds else (False, "")
        measured = f"coverage {coverage.mean:.3f} ({numbers})"
    shortfall = f"significantly below {summary.target:g}: {measured}"
    if found.failures:
        why = f"{found.failures} of {found.trials} trials did not finish ({found.outcome})"
        return Verdict(name, False, low, f"{why}; {shortfall}" if low else why)
    undefined = {*coverage.undefined, *size.undefined}
    if undefined or not coverage.seeds or not size.seeds:
        words = f"on {len(undefined)} of {len(found.seeds)} seeds" if undefined else "on every seed"
        what = "coverage or size" if summary.task.coverage_metric else label
        return Verdict(name, False, low, f"{what} is undefined {words}")
    if low:
        return Verdict(name, False, True, shortfall)
    lacking = summary.task.lacks({metric: of.mean for metric, of in found.estimates.items()})
    if lacking:
        return Verdict(name, False, False, lacking)
    if not set(summary.compared_seeds) <= set(found.seeds):
        return Verdict(name, False, False, f"not every trial ran ({found.outcome})")
    if size.infinite:
        return Verdict(name, False, False, f"infinite {label} on {size.infinite} of {len(size.seeds)} seeds")
    return Verdict(name, True, False, measured)


def choose(summary: Summary) -> Choice:
    """The choice among all methods of a comparison."""
    verdicts = tuple(judge(summary, found) for found in summary.methods)
    seeds, size = summary.compared_seeds, summary.task.size_metric
    sizes = {
        v.method: float(np.mean([summary.ok(v.method)[seed].metrics[size] for seed in seeds]))
        for v in verdicts
        if v.qualifies and seeds
    }
    # min keeps the first of equals: ties go to the method named first
    best = min(sizes, key=lambda name: sizes[name], default=None)
    return Choice(best, rule(summary), _reason(summary, best, sizes, verdicts), verdicts)


def rule(summary: Summary) -> str:
    """The rule as a sentence, with the numbers of this comparison."""
    if summary.task.coverage_metric is None:
        return _rule_of_scores(summary)
    J, planned = len(summary.compared_seeds), len(summary.seeds)
    every = list(dict.fromkeys(m.rows for m in summary.methods if m.rows))
    if J >= MIN_SEEDS_FOR_T:
        test = f"one-sided t-test at the 5 % level over {J} seeds"
        if every:
            widest = max(every, key=lambda rows: rows.ratio)
            factor = f"1/{J} + {widest.test}/{widest.train or widest.calib} = {1 / J + widest.ratio:.3f}"
            less = " (less where a method trains on more rows)" if len(every) > 1 else ""
            tested = widest.tested(J)
            floor = binomial_error(summary.target, widest, J)
            if not widest.disjoint:
                test += f", variance times {factor}{less} after Nadeau and Bengio"
            test += f", standard error at least {floor:.4f}, the binomial error of {tested:,} rows"
            if widest.disjoint:
                test += (
                    f", with more than {MISSES_IGNORED:g} times the misses asked for; or more than "
                    f"{MISSES_TOLERATED:g} times the misses asked for in all"
                )
    else:
        test = "mean coverage under the 5 % quantile of an exactly valid method on one split"
        for rows in every:
            of = "calibration" if rows.calib else "training"
            drawn = "" if rows.disjoint else f"{rows.deciding} {of} and "
            test += f", {_bound(summary, rows):.3f} with {drawn}{rows.test} test rows"
    coverage = summary.label(summary.task.coverage_metric)
    requirement = summary.task.requirement()
    also = f"{requirement}, " if requirement else ""
    text = (
        f"The smallest {summary.label(summary.task.size_metric)} among the methods of which no trial failed, "
        f"{also}whose size is finite on every seed and whose {coverage} is not significantly "
        f"below {summary.target:g} ({test}). Ties go to the method named first."
    )
    return text + _only_some(J, planned)


def _only_some(J: int, planned: int) -> str:
    if planned <= J:
        return ""
    return f" Only {J} of {planned} seeds have a trial of every method; those are compared."


def _rule_of_scores(summary: Summary) -> str:
    """The rule where no level is promised."""
    J = len(summary.compared_seeds)
    label = summary.label(summary.task.size_metric)
    text = (
        f"The smallest mean {label} among the methods of which no trial failed and whose {label} is a finite "
        "number on every seed. "
    )
    rows = max((m.rows for m in summary.methods if m.rows), key=lambda rows: rows.ratio, default=None)
    if J > 1 and rows is not None:
        text += (
            f"Differences are paired over {J} seeds, with a 95 % t interval of variance times 1/{J} + "
            f"{rows.test}/{rows.train} = {1 / J + rows.ratio:.3f} after Nadeau and Bengio. "
        )
    return f"{text}Ties go to the method named first.{_only_some(J, len(summary.seeds))}"


def _reason(
    summary: Summary, best: str | None, sizes: Mapping[str, float], verdicts: tuple[Verdict, ...]
) -> str:
    out = "; ".join(f"{v.method}: {v.why}" for v in verdicts if not v.qualifies)
    if best is None:
        if not summary.compared_seeds:
            out = "no seed has a trial of every method" + (f"; {out}" if out else "")
        return f"No method qualifies: {out}."
    among = (
        f"of the {len(sizes)} methods that qualify" if len(sizes) > 1 else "as the only one that qualifies"
    )
    text = (
        f"{best} has the smallest {summary.label(summary.task.size_metric)}, {number(sizes[best])}, {among}"
    )
    if summary.task.coverage_metric is not None:
        coverage = summary.method(best).estimates[summary.task.coverage_metric]
        text += f", at {summary.label(summary.task.coverage_metric)} {share(coverage.mean)}"
    text += "."
    others = {name: size for name, size in sizes.items() if name != best}
    if others:
        text += " " + _runner_up(summary, best, min(others, key=lambda name: others[name]), sizes)
    return f"{text} Not qualified: {out}." if out else text


def _runner_up(summary: Summary, best: str, second: str, sizes: Mapping[str, float]) -> str:
    gap = summary.paired(second, best, summary.task.size_metric)
    text = f"Next is {second} with {number(sizes[second])}"
    if sizes[second] == sizes[best]:
        return f"{text}, the same."
    if gap.low is None or gap.high is None:
        return f"{text}; with so few seeds nobody can say whether the difference is more than chance."
    clear = "" if gap.low > 0 else ", which these seeds cannot tell from none"
    return f"{text}: larger by {mean(gap)} {interval(gap)}{clear}."
