"""Words and numbers of a comparison: formatting, the question, the verdict, the rows of the short table."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Sequence

from assay.engine.choice import Choice
from assay.engine.plan import RunInfo
from assay.engine.stats import Estimate, MethodSummary, Summary
from assay.engine.wording import (
    NONE,
    decimals_for,
    duration,
    estimate_text,
    mean,
    number,
    plural,
    share,
    signed,
)

#: task -> (what a method gives, superlative of a small one, comparative)
_NOUNS = {
    "interval": ("prediction intervals", "narrowest", "narrower", "wider"),
    "region": ("prediction regions", "smallest", "smaller", "larger"),
    "label-set": ("label sets", "smallest", "smaller", "larger"),
    "attack": ("robust label sets", "smallest", "smaller", "larger"),
    "poisoning": ("label sets", "smallest", "smaller", "larger"),
    "online": ("prediction intervals", "narrowest", "narrower", "wider"),
    "predictive": ("predictive distributions", "best", "better", "worse"),
}

_OUR_WARNING = re.compile(r"^(Assay|InfiniteSet)Warning: ")
_NUMBER = re.compile(r"\d[\d.,]*")
#: share of empty sets from which the answer explains them
_MANY_EMPTY = 0.01

# control characters, surrogates and direction overrides would corrupt the page or its reading order
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def esc(value: object) -> str:
    """Any text from data, made safe inside HTML elements and quoted attributes."""
    return html.escape(_UNSAFE.sub("\N{REPLACEMENT CHARACTER}", str(value)), quote=True)


def nouns(task: str) -> tuple[str, str, str, str]:
    """What methods of a task give, and the words narrowest, narrower and wider for it."""
    return _NOUNS.get(task, ("answers", "smallest", "smaller", "larger"))


def over_time(task: object) -> bool:
    """Whether the seeds of the task are stretches of time."""
    return bool(getattr(task, "over_time", False))


def expected_words(task: object) -> str:
    """What the expected range of coverage is."""
    if over_time(task):
        return (
            "95 % of the stretches of a method whose misses come alone and by chance, alpha of the time, lie "
            "in that range; misses of real series come together, so good methods may lie outside."
        )
    return "95 % of the single splits of an exactly valid split-conformal method lie in that range."


def question(info: RunInfo) -> str:
    """The question of a comparison as one sentence."""
    what, best, _, _ = nouns(info.task)
    target = 100 * (1 - float(info.alpha))
    columns = plural(info.n_features, "feature")
    if info.options.get("proba"):
        columns = f"probabilities of {plural(info.n_features, 'class', 'classes')}"
    rows = f"{plural(info.n_rows, 'row')}, {columns}"
    if info.task == "predictive":
        of = f"{info.target} in {info.dataset} ({rows})"
        if len(info.methods) == 1:
            return f"How good are the {what} that {info.methods[0]['name']} gives for {of}?"
        return f"Which of {plural(len(info.methods), 'method')} gives the {best} {what} for {of}?"
    if len(info.methods) == 1:
        return (
            f"Which {what} does {info.methods[0]['name']} give for {info.target} in {info.dataset} ({rows}), "
            f"and do they cover {target:g} % of {_to_come(info)}?"
        )
    return (
        f"Which of {plural(len(info.methods), 'method')} gives the {best} {what} for {info.target} in "
        f"{info.dataset} ({rows}) that still cover {target:g} % of {_to_come(info)}?"
    )


def _to_come(info: RunInfo) -> str:
    return {"online": "the steps to come", "attack": "new rows under attack"}.get(info.task, "new rows")


def relative(summary: Summary, method: str, metric: str) -> Estimate | None:
    """Paired difference to the reference in percent of the reference's mean on the same seeds.

    Infinite where the difference is; None where there is no pair or the reference's mean is zero. The
    interval of numbers that are never negative ends at -100.
    """
    of = summary.method(method).differences.get(metric)
    if of is None or summary.reference is None or not of.seeds or math.isnan(of.mean):
        return None
    if math.isinf(of.mean):
        return of
    base = summary.ok(summary.reference)
    whole = sum(base[seed].metrics[metric] for seed in of.seeds) / len(of.seeds)
    if whole == 0 or not math.isfinite(whole):
        return None
    scale = 100 / abs(whole)
    low = None if of.low is None else of.low * scale
    high = None if of.high is None else of.high * scale
    both = (base, summary.ok(method))
    if low is not None and all(ok[seed].metrics[metric] >= 0 for ok in both for seed in of.seeds):
        low = max(low, -100.0)
    return Estimate(of.mean * scale, low, high, of.basis, of.seeds, of.undefined, of.infinite)


def verdict(summary: Summary, choice: Choice) -> str:
    """The outcome in one or two sentences."""
    what, best_word, smaller, larger = nouns(summary.info.task)
    if choice.method is None:
        return choice.reason
    best = choice.method
    found = summary.method(best)
    size = summary.task.size_metric
    if summary.task.coverage_metric is None:
        return _verdict_of_scores(summary, choice, best)
    coverage = found.estimates[summary.task.coverage_metric]
    reached = coverage.mean >= summary.target
    label = summary.label(summary.task.coverage_metric)
    keep = "that keep to the level" if reached else f"whose {label} is not shown to fall short"
    requirement = summary.task.requirement()
    keep = f"{requirement} and {keep}" if requirement else keep
    text = (
        f"The {best_word} {what} {keep} come from {best}: {summary.label(size)} "
        f"{mean(found.estimates[size])} at {label} {share(coverage.mean)}, "
        f"where {summary.target:g} was asked"
    )
    gap = relative(summary, best, size)
    if gap is not None and math.isfinite(gap.mean):
        text += (
            f"; {number(abs(gap.mean), 1)} % {smaller if gap.mean < 0 else larger} than {summary.reference}"
        )
        if gap.low is not None and gap.high is not None:
            ends = f"{signed(gap.low, 1)} to {signed(gap.high, 1)} %"
            text += f" (95 % interval of the difference {ends})"
    text += "."
    gaps = [(summary.label(name), found.estimates[name], decimals) for name, decimals in group_gaps(summary)]
    if gaps and all(of.seeds for _, of, _ in gaps):
        listed = " and ".join(f"a {label} of {mean(of, decimals)}" for label, of, decimals in gaps)
        text += f" Between {groups_of(summary.info)} it has {listed}."
    return text + _close(summary, choice, best)


def _close(summary: Summary, choice: Choice, best: str) -> str:
    """Which methods the seeds cannot tell from the best."""
    close = [
        v.method for v in choice.verdicts if v.qualifies and _not_clearly_larger(summary, v.method, best)
    ]
    worse = nouns(summary.info.task)[3]
    return f" These seeds do not show {_listed(close)} to be {worse}." if close else ""


def _verdict_of_scores(summary: Summary, choice: Choice, best: str) -> str:
    """The outcome of a task that promises no level."""
    what, best_word, _, _ = nouns(summary.info.task)
    size = summary.task.size_metric
    label = summary.label(size)
    text = f"The {best_word} {what} come from {best}: {label} {mean(summary.method(best).estimates[size])}"
    gap = summary.method(best).differences.get(size)
    if gap is not None and gap.seeds and math.isfinite(gap.mean):
        text += f", {number(abs(gap.mean))} {'less' if gap.mean < 0 else 'more'} than {summary.reference}"
        if gap.low is not None and gap.high is not None:
            text += f" (95 % interval of the difference {signed(gap.low)} to {signed(gap.high)})"
    return f"{text}.{_close(summary, choice, best)}"


def _not_clearly_larger(summary: Summary, method: str, best: str) -> bool:
    gap = summary.paired(method, best, summary.task.size_metric)
    return method != best and (gap.low is None or gap.low <= 0)


def _listed(names: Sequence[str], most: int = 3) -> str:
    if len(names) > most + 1:
        names = [*names[:most], f"{len(names) - most} others"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def seconds_of(found: MethodSummary) -> float | None:
    """Mean seconds to fit and to predict."""
    parts = (found.estimates.get(name) for name in ("fit_seconds", "predict_seconds"))
    known = [of.mean for of in parts if of is not None and not math.isnan(of.mean)]
    return sum(known) if known else None


def difference_text(summary: Summary, found: MethodSummary) -> str:
    """The paired difference of the size to the reference, in percent where that is defined."""
    if found.name == summary.reference:
        return "reference"
    if summary.task.coverage_metric is None:
        return signed_text(found.differences.get(summary.task.size_metric))
    gap = relative(summary, found.name, summary.task.size_metric)
    if gap is not None and math.isfinite(gap.mean):
        ends = "" if gap.low is None else f" [{signed(gap.low, 1)}, {signed(gap.high, 1)}]"
        return f"{signed(gap.mean, 1)} %{ends}"
    of = found.differences.get(summary.task.size_metric)
    return NONE if of is None or math.isnan(of.mean) else signed(of.mean)


def signed_text(of: Estimate | None) -> str:
    """A difference and its interval, with signs."""
    if of is None or math.isnan(of.mean):
        return NONE
    decimals = decimals_for(of)
    ends = "" if of.low is None else f" [{signed(of.low, decimals)}, {signed(of.high, decimals)}]"
    return f"{signed(of.mean, decimals)}{ends}"


def column_text(summary: Summary, found: MethodSummary, metric: str) -> str:
    """A further metric of the short table: shares with three decimals."""
    of = found.estimates[metric]
    unit = next(m.unit for m in summary.metrics if m.name == metric)
    return mean(of, 3) if unit == "share" else number(of.mean)


def table_rows(summary: Summary, choice: Choice) -> list[tuple[str, ...]]:
    """The short table for a terminal: the header, then one row a method.

    Method, coverage with its 95 % interval, what the task shows beside it, the range expected of an
    exactly valid method on one split (neither where the task promises no level), mean size with its
    interval, paired difference of the size to the reference, the task's further columns, seconds to fit and
    predict, trials finished of all; with groups of rows also the gaps of coverage and of size between them.
    ``*`` marks the choice, ``!`` a coverage that is
    significantly too low.
    """
    size = summary.label(summary.task.size_metric)
    promised = summary.task.coverage_metric
    header = (
        "method",
        *((f"{summary.label(promised)} [95 %]",) if promised else ()),
        *(summary.label(metric) for metric in summary.task.beside_coverage),
        *(("expected",) if promised else ()),
        f"{size} [95 %]",
        f"vs {summary.reference or 'reference'} [95 %]",
        *(summary.label(metric) for metric in summary.columns),
        *(summary.label(metric) for metric, _ in group_gaps(summary)),
        "time",
        "trials",
    )
    rows: list[tuple[str, ...]] = [header]
    for found in summary.methods:
        low = choice.verdict(found.name).low
        coverage = estimate_text(found.estimates.get(promised or ""), 3)
        rows.append(
            (
                f"{found.name} *" if found.name == choice.method else found.name,
                *((f"{coverage} !" if low else coverage,) if promised else ()),
                *(mean_of(found, metric) for metric in summary.task.beside_coverage),
                *((expected_text(found.expected),) if promised else ()),
                estimate_text(found.estimates.get(summary.task.size_metric)),
                difference_text(summary, found),
                *(column_text(summary, found, metric) for metric in summary.columns),
                *(mean(found.estimates[metric], decimals) for metric, decimals in group_gaps(summary)),
                duration(seconds_of(found)),
                f"{found.counts['ok']}/{found.trials}",
            )
        )
    return rows


def mean_of(found: MethodSummary, metric: str) -> str:
    """The mean share of a method with three decimals."""
    of = found.estimates.get(metric)
    return NONE if of is None else share(of.mean)


def groups_of(info: RunInfo) -> str:
    """The groups of rows in words; of bare probabilities the column has no name of the user's."""
    return "the groups" if info.options.get("proba") else f"the groups of {info.group}"


def group_gaps(summary: Summary) -> tuple[tuple[str, int | None], ...]:
    """The gaps between groups of rows and their decimals; of coverage and of size, or none."""
    known = {metric.name for metric in summary.metrics if metric.of_groups}
    pair = (("coverage_gap", 3), ("size_gap", None))
    return pair if {name for name, _ in pair} <= known else ()


def _of_groups(summary: Summary) -> list[str]:
    """What the two gaps say and do not say."""
    if not group_gaps(summary):
        return []
    return [
        f"Gaps are between {groups_of(summary.info)} (largest minus smallest). Neither is enough "
        "alone: where groups differ in difficulty, sets that cover all groups alike differ in size, and sets "
        "of one size cover the groups unequally. Even an exact method shows some gap on few test rows."
    ]


def expected_text(band: Sequence[float] | None) -> str:
    """The range of coverage of an exactly valid method."""
    return NONE if band is None else f"{share(band[0])} to {share(band[1])}"


def notices(summary: Summary) -> list[str]:
    """What methods warned of, once each, with the number of trials that said it.

    Notices that differ in their numbers alone count as one, and the first is shown.
    """
    said: dict[tuple[str, str], tuple[str, int]] = {}
    for found in summary.methods:
        for trial in summary.trials(found.name):
            for kind, line in {_NUMBER.sub("#", line): line for line in reversed(trial.notices)}.items():
                first, count = said.get((found.name, kind), (line, 0))
                said[found.name, kind] = (first, count + 1)
    return [
        f"{method} ({plural(n, 'trial')}): {_OUR_WARNING.sub('', first)}"
        for (method, _), (first, n) in said.items()
    ]


def _lacking(summary: Summary) -> list[str]:
    """Which methods are not recommended for what their task asks beside coverage."""
    kept: dict[str, list[str]] = {}
    for found in summary.methods:
        means = {metric: of.mean for metric, of in found.estimates.items()}
        lacking = summary.task.lacks(means) if found.seeds else None
        if lacking:
            kept.setdefault(lacking, []).append(found.name)
    return [f"Not recommended: {', '.join(names)}: {why}." for why, names in kept.items()]


def _empty_sets(summary: Summary) -> list[str]:
    """What empty sets are, where some method gives more than a few."""
    what = nouns(summary.info.task)[0]
    shares = {
        m.name: m.estimates["share_empty"].mean for m in summary.methods if "share_empty" in m.estimates
    }
    listed = [f"{name} {100 * of:.1f} %" for name, of in shares.items() if of >= _MANY_EMPTY]
    if not listed:
        return []
    text = f"Empty {what}: {', '.join(listed)} of the test rows; each is a miss."
    if any(m.estimates["mean_size"].mean < 1 for m in summary.methods if "mean_size" in m.estimates):
        text += (
            f" Where the mean size is below 1, the most probable label alone usually covers more than "
            f"{100 * summary.target:g} %; a smaller alpha asks for more."
        )
    return [text]


def _infinite_regions(summary: Summary) -> list[str]:
    """How many regions have no end, where the size in the table does not show it."""
    size = summary.task.size_metric
    listed = [
        f"{m.name} {100 * m.estimates['share_infinite'].mean:.1f} %"
        for m in summary.methods
        if "share_infinite" in m.estimates
        and m.estimates["share_infinite"].mean > 0
        and math.isfinite(m.estimates[size].mean)
    ]
    what = nouns(summary.info.task)[0]
    return [f"Infinite {what}, not seen in the {summary.label(size)}: {', '.join(listed)}."] if listed else []


def _unit_of_volume(summary: Summary) -> list[str]:
    """What a volume of 1 is, in the targets' own units."""
    for found in summary.methods:
        for trial in summary.ok(found.name).values():
            if sds := trial.detail.get("target_sd"):
                pairs = zip(summary.info.targets, sds, strict=True)
                listed = [f"{target} {number(sd)}" for target, sd in list(pairs)[:4]]
                more = f" × {len(sds) - 4} more" if len(sds) > 4 else ""
                return [
                    "Volumes are in units of the product of the targets' standard deviations on the training "
                    f"rows: 1 is {' × '.join(listed)}{more} on seed {trial.seed}."
                ]
    return []


def table_notes(summary: Summary, choice: Choice) -> list[str]:
    """What must be said under the short table, a sentence each."""
    notes = []
    skipped: dict[str, list[str]] = {}
    for spec in summary.info.methods:
        if spec.get("skip"):
            skipped.setdefault(str(spec["skip"]), []).append(str(spec["name"]))
    notes += [f"Skipped: {', '.join(names)}: {reason}." for reason, names in skipped.items()]
    few = [m for m in summary.methods if m.counts["ok"] + m.counts["skipped"] < m.trials]
    if few:
        notes.append("Not finished: " + "; ".join(f"{m.name}: {m.outcome}" for m in few) + ".")
    if summary.reference is None:
        notes.append("No method finished a trial, so there is no reference for differences.")
    elif len(summary.methods) > 1:
        text = f"Differences are paired: only seeds on which both the method and {summary.reference} finished"
        partial = [
            f"{m.name} {len(m.differences[summary.task.size_metric].seeds)} of {len(summary.seeds)}"
            for m in summary.methods
            if summary.task.size_metric in m.differences
            and len(m.differences[summary.task.size_metric].seeds) < len(summary.seeds)
        ]
        text += f" ({', '.join(partial)})." if partial else "."
        if not summary.ok(summary.reference):
            text = f"No differences: the reference {summary.reference} finished no trial."
        notes.append(text)
    undefined: dict[str, list[str]] = {}
    for found in summary.methods:
        for name, of in found.estimates.items():
            if of.undefined and of.seeds:  # undefined on every seed shows as a dash
                part = f"{found.name} {len(of.undefined)} of {len(found.seeds)}"
                undefined.setdefault(summary.label(name), []).append(part)
    if undefined:
        listed = "; ".join(f"{label} ({', '.join(parts)})" for label, parts in undefined.items())
        notes.append(f"Undefined on some seeds and left out of the mean: {listed}.")
    notes += [
        *_lacking(summary),
        *_of_groups(summary),
        *_empty_sets(summary),
        *_infinite_regions(summary),
        *_unit_of_volume(summary),
    ]
    if len(summary.seeds) == 1:
        notes.append(
            "One seed shows no spread between splits: the interval of the coverage is the exact binomial one "
            "of its test part, other numbers have none."
        )
    if any(v.low for v in choice.verdicts):
        notes.append(f"! marks a coverage significantly below {summary.target:g}.")
    return notes
