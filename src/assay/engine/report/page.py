"""The report as one HTML page: what was asked, what came out, and how to repeat it."""

from __future__ import annotations

import math
import re

from assay.engine.choice import Choice
from assay.engine.report import (
    attack_figures,
    back_matter,
    example_figures,
    figures,
    group_figures,
    online_figures,
    part_figures,
    poisoning_figures,
    predictive_figures,
    region_figures,
)
from assay.engine.report.figures import Figure, Numbers
from assay.engine.report.online_figures import TimeFigure
from assay.engine.report.style import CHART_STYLE, PAGE_STYLE
from assay.engine.report.svg import Chart, marker
from assay.engine.report.text import (
    column_text,
    difference_text,
    esc,
    expected_text,
    expected_words,
    group_gaps,
    over_time,
    question,
    relative,
    seconds_of,
    table_notes,
    verdict,
)
from assay.engine.stats import Estimate, MethodSummary, Summary
from assay.engine.wording import (
    NONE,
    duration,
    estimate_text,
    interval,
    mean,
    plural,
    share,
    shorten,
    signed,
)

_CSP = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def render(summary: Summary, choice: Choice) -> str:
    """The whole page; opens offline, asks for nothing from any network, runs no script."""
    info = summary.info
    skipped = any(found.counts["skipped"] for found in summary.methods)
    wide = figures.overview(summary, choice)
    narrow = figures.overview(summary, choice, narrow=True)
    parts: list[tuple[str, str, str]] = [
        ("results", "Results", _results(summary, choice, numbered=bool(wide.note or narrow.note))),
        ("overview", wide.title, _overview(summary, choice, wide, narrow)),
        ("calibration", "Calibration", _figure(predictive_figures.calibration(summary, choice))),
        ("sharpness", "Sharpness", _figure(predictive_figures.sharpness(summary, choice), beside=True)),
        ("time", "Over time", _over_time(summary, choice)),
        (
            "differences",
            f"Differences to {shorten(summary.reference or 'reference', 40)}",
            _differences(summary, choice),
        ),
        ("attack", "Against the radius", _figure(attack_figures.certified_sizes(summary, choice))),
        ("poison", "Under poisoning", _poisoning(summary, choice)),
        ("row-groups", f"By {summary.info.group}", _figure(group_figures.by_row_group(summary, choice))),
        ("groups", "Where coverage is low", _groups(summary, choice)),
        ("examples", "Examples", _examples(summary, choice)),
        ("cost", "Time and memory", _figure(figures.costs(summary, choice))),
        ("failed", "Failed and skipped trials" if skipped else "Failed trials", back_matter.failed(summary)),
        ("notes", "Notes on the data", back_matter.notes(summary)),
        ("repeat", "To repeat this", back_matter.repeat(summary)),
        ("methods", "The methods", back_matter.methods(summary)),
    ]
    shown = [part for part in parts if part[2]]
    links = "".join(f'<li><a href="#{key}">{esc(title)}</a></li>' for key, title, _ in shown)
    sections = "".join(
        f'<section id="{key}" aria-labelledby="{key}-h"><h2 id="{key}-h">{esc(title)}</h2>{body}</section>'
        for key, title, body in shown
    )
    title = f"{info.target} in {info.dataset}: assay comparison"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta http-equiv="Content-Security-Policy" content="{_CSP}">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,">'
        f"<title>{esc(title)}</title><style>{PAGE_STYLE}\n{CHART_STYLE}</style></head><body>"
        f"<header>{_head(summary, choice)}"
        f'<nav aria-label="Contents"><ul>{links}</ul></nav></header><main>{sections}</main>'
        f"<footer>Written by assay {esc(info.versions.get('assay', ''))} for run {esc(info.id)}. "
        "This file needs no network.</footer></body></html>\n"
    )


def _head(summary: Summary, choice: Choice) -> str:
    info = summary.info
    eyebrow = f"assay comparison · {info.dataset} · {info.started[:10]}"
    failed = sum(found.failures for found in summary.methods)
    total = sum(found.trials for found in summary.methods)
    alert = ""
    if failed:
        alert = (
            f'<p class="alert"><strong>{failed} of {plural(total, "trial")} did not finish.</strong> '
            '<a href="#failed">Which ones, and why</a></p>'
        )
    css = "verdict" if choice.method else "verdict none"
    say = f'<p class="say">{esc(verdict(summary, choice))}</p>{_facts(summary, choice)}'
    return (
        f'<p class="eyebrow">{esc(eyebrow)}</p><h1>{esc(question(info))}</h1>'
        f'<div class="{css}">{say}</div>{alert}'
    )


def _facts(summary: Summary, choice: Choice) -> str:
    if choice.method is None:
        return ""
    found = summary.method(choice.method)
    size = found.estimates[summary.task.size_metric]
    facts = [(summary.label(summary.task.size_metric), mean(size), interval(size))]
    gap = relative(summary, choice.method, summary.task.size_metric)
    if summary.task.coverage_metric is not None:
        coverage = found.estimates[summary.task.coverage_metric]
        facts.insert(
            0, (summary.label(summary.task.coverage_metric), share(coverage.mean), interval(coverage, 3))
        )
    elif found.name != summary.reference:
        value, bracket, ends = difference_text(summary, found).partition(" [")
        facts.append((f"against {summary.reference}", value, bracket[1:] + ends))
    if summary.task.coverage_metric is not None and gap is not None and math.isfinite(gap.mean):
        ends = "" if gap.low is None else f"[{signed(gap.low, 1)}, {signed(gap.high, 1)}] %"
        facts.append((f"against {summary.reference}", f"{signed(gap.mean, 1)} %", ends))
    worst = _worst_metric(summary)
    if worst and found.estimates[worst].seeds:
        of = found.estimates[worst]
        facts.append((summary.label(worst), share(of.mean), interval(of, 3)))
    facts += [(summary.label(name), column_text(summary, found, name), "") for name in summary.columns]
    facts.append(("to fit and predict", duration(seconds_of(found)), plural(len(found.seeds), "seed")))
    cells = "".join(
        f"<div><dt>{esc(name)}</dt><dd>{esc(value)}<small>{esc(ends) or '&nbsp;'}</small></dd></div>"
        for name, value, ends in facts
    )
    return f'<dl class="facts">{cells}</dl>'


def _results(summary: Summary, choice: Choice, *, numbered: bool) -> str:
    """The table; rows are numbered where a chart names methods by their row."""
    task = summary.task
    gaps = group_gaps(summary)
    worst = None if gaps else _worst_metric(summary)  # with groups it is among the facts and the pictures
    expected = "of one stretch" if over_time(task) else "of one split"
    promised = task.coverage_metric
    coverages = [] if promised is None else [promised, *task.beside_coverage]
    heads = [
        ("Method", ""),
        *((_capital(summary.label(metric)), "[95 %]") for metric in coverages),
        *([("Expected", expected)] if coverages else []),
        (_capital(summary.label(task.size_metric)), "[95 %]"),
        (f"Against {shorten(summary.reference or 'reference', 16)}", "paired [95 %]"),
    ]
    if worst:
        heads.append((_capital(summary.label(worst)), "[95 %]"))
    heads += [(_capital(summary.label(metric)), "of groups [95 %]") for metric, _ in gaps]
    heads += [(_capital(summary.label(metric)), "") for metric in summary.columns]
    heads += [("Time", "fit and predict"), ("Trials", "finished")]
    head = "".join(
        f'<th scope="col"{" class=n" if i else ""}>{esc(name)}<small>{esc(sub)}</small></th>'
        for i, (name, sub) in enumerate(heads)
    )
    body = []
    for row, found in enumerate(summary.methods, 1):
        low = choice.verdict(found.name).low
        cells = [
            _cell(found.estimates.get(metric), 3, "bad" if low and metric == promised else "")
            for metric in coverages
        ]
        if coverages:
            cells.append(f'<td class="n">{esc(expected_text(found.expected))}</td>')
        cells += [
            _cell(found.estimates.get(task.size_metric)),
            _split_cell(difference_text(summary, found)),
        ]
        if worst:
            cells.append(_cell(found.estimates.get(worst), 3))
        cells += [_cell(found.estimates.get(metric), decimals) for metric, decimals in gaps]
        cells += [f'<td class="n">{esc(column_text(summary, found, name))}</td>' for name in summary.columns]
        done = f"{found.counts['ok']}/{found.trials}"
        if found.counts["ok"] < found.trials:
            done = f'<span class="bad">{done}</span>'
        cells.append(f'<td class="n">{esc(duration(seconds_of(found)))}</td><td class="n">{done}</td>')
        body.append(
            f'<tr{" class=best" if found.name == choice.method else ""}><th scope="row">'
            f"{f'<small>{row}</small>' if numbered else ''}{_breakable(found.name)}"
            f"{_tags(summary, choice, found)}</th>{''.join(cells)}</tr>"
        )
    notes = [
        f"Choice: {choice.reason}",
        f"Rule: {choice.rule}",
        *([f"Expected: {expected_words(task)}"] if figures.expected_band(summary) else []),
        *(note for note in table_notes(summary, choice) if not note.startswith("!")),
    ]
    plain = "".join(f"<li>{esc(note)}</li>" for note in notes)
    every = _numbers_html(_every_metric(summary))
    return (
        f'<p class="lede">{_lede(summary)}</p>'
        f'<div class="scroll" tabindex="0" role="region" aria-label="Results by method"><table class="main">'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
        f'<ul class="notes">{plain}</ul><details><summary>Every metric</summary>{every}</details>'
    )


def _lede(summary: Summary) -> str:
    count = len(summary.seeds)
    if over_time(summary.task):
        return (
            f"Mean over {count} stretch{'' if count == 1 else 'es'} of time; intervals are those of a t-test "
            "over the stretches, which do not overlap: how far other stretches like these would differ."
        )
    return (
        f"Mean over {plural(count, 'random split')}; intervals allow for the overlap of the splits "
        "(corrected resampled variance of Nadeau and Bengio)."
    )


def _worst_metric(summary: Summary) -> str | None:
    """The first metric of a worst case that some method has a value of."""
    # of groups of rows, if there are some, rather than of classes
    metrics = sorted(summary.metrics, key=lambda m: not m.of_groups)
    return next(
        (
            m.name
            for m in metrics
            if m.name.startswith("worst_") and any(f.estimates[m.name].seeds for f in summary.methods)
        ),
        None,
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _breakable(name: str) -> str:
    """A name that may break after dots and colons."""
    return re.sub(r"(?<=[.:_/])(?=\w)", "<wbr>", esc(name))


def _cell(of: Estimate | None, decimals: int | None = None, css: str = "") -> str:
    if of is None or math.isnan(of.mean):
        return f'<td class="n">{NONE}</td>'
    value, ends = esc(mean(of, decimals)), esc(interval(of, decimals))
    return f'<td class="n {css}">{value}{f"<small>{ends}</small>" if ends else ""}</td>'


def _split_cell(text: str) -> str:
    value, bracket, ends = text.partition(" [")
    return f'<td class="n">{esc(value)}{f"<small>{esc(bracket[1:] + ends)}</small>" if bracket else ""}</td>'


def _tags(summary: Summary, choice: Choice, found: MethodSummary) -> str:
    tags = []
    if found.name == choice.method:
        tags.append(("best", "recommended"))
    if choice.verdict(found.name).low:
        tags.append(("low", "covers too little"))
    if found.name == summary.reference:
        tags.append(("", "reference"))
    if figures.shape_of(summary, choice, found.name) == "diamond":
        tags.append(("", "paper"))
    return "<br>" * bool(tags) + "".join(f'<span class="tag {css}">{esc(text)}</span>' for css, text in tags)


def _every_metric(summary: Summary) -> Numbers:
    rows = []
    for metric in summary.metrics:
        unit = {"target": f"unit of {summary.info.target}", "": ""}.get(metric.unit, metric.unit)
        label = f"{metric.label}, {unit}" if unit else metric.label
        decimals = 3 if metric.unit == "share" else None
        values = (estimate_text(found.estimates.get(metric.name), decimals) for found in summary.methods)
        rows.append((label, *values))
    return Numbers(("metric [95 %]", *(found.name for found in summary.methods)), tuple(rows))


def _whole(cell: str) -> str:
    """A cell whose interval is not broken over two lines."""
    return re.sub(r"\[[^\]]*\]", lambda found: found[0].replace(" ", "&nbsp;"), esc(cell))


def _numbers_html(numbers: Numbers) -> str:
    head = "".join(f'<th scope="col">{esc(cell)}</th>' for cell in numbers.header)
    body = "".join(
        "<tr>"
        + f'<th scope="row">{esc(row[0])}</th>'
        + "".join(f"<td>{_whole(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in numbers.rows
    )
    return (
        '<div class="scroll" tabindex="0" role="region" aria-label="Numbers">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _figure(figure: Figure | None, heading: str = "", *, beside: bool = False) -> str:
    """Panels with their numbers; ``beside`` a single panel they are open to view."""
    if figure is None:
        return ""
    panels = "".join(f'<div class="panel">{chart.svg()}</div>' for chart in figure.charts)
    numbers = _numbers_html(figure.numbers)
    title = f"<h3>{esc(heading)}</h3>" if heading else ""
    if beside and len(figure.charts) == 1:
        body = f'<div class="pair">{panels}{numbers}</div>'
    else:
        body = f'<div class="panels">{panels}</div>{_closed(numbers)}'
    return f"{title}<figure><figcaption>{esc(figure.caption)}</figcaption>{body}</figure>"


def _closed(numbers: str) -> str:
    return f"<details><summary>The numbers</summary>{numbers}</details>"


def _key(shape: str, css: str, text: str) -> str:
    mark = marker(8, 7, shape, css, size=4.5)
    return f'<li><svg class="assay-chart" viewBox="0 0 16 14" aria-hidden="true">{mark}</svg>{esc(text)}</li>'


def _overview(summary: Summary, choice: Choice, wide: Chart, narrow: Chart) -> str:
    if not figures.finished(summary):
        return '<p class="lede">No trial finished, so there is nothing to draw.</p>'
    kinds = {figures.kind_of(choice, found.name) for found in figures.finished(summary)}
    shapes = {figures.shape_of(summary, choice, found.name) for found in figures.finished(summary)}
    keys = []
    if "best" in kinds:
        keys.append(_key("circle", "m-best", "recommended"))
    if "low" in kinds:
        keys.append(_key("square", "m-low", "covers significantly too little"))
    if "diamond" in shapes:
        keys.append(_key("diamond", "m-plain", "method of a paper"))
    keys.append(_key("circle", "m-plain", "baseline or other method"))
    if len(summary.seeds) > 1:
        keys.append(_key("circle", "s-plain", "one stretch" if over_time(summary.task) else "one seed"))
    caption = (
        "Up and to the left is better: small, and at or above the dashed line. Bars are 95 % intervals; bars "
        "without a cap go on beyond the frame. "
    )
    if summary.task.coverage_metric is None:
        label = summary.label(summary.task.size_metric)
        caption = (
            f"Down and to the left is better: a small {label} for little time, which is on a logarithmic "
            "axis where methods differ much. Bars are 95 % intervals; without a cap they go on. "
        )
    if figures.expected_band(summary):
        caption += f"The band: {expected_words(summary.task)} "
    if any(math.isinf(f.estimates[summary.task.size_metric].mean) for f in figures.finished(summary)):
        size = summary.label(summary.task.size_metric)
        caption += f"A triangle at the right edge is an infinite {size}. "
    caption += wide.note
    if narrow.note and not wide.note:
        caption += f"On a narrow screen: {narrow.note[:1].lower()}{narrow.note[1:]}"
    numbers = _closed(_numbers_html(figures.overview_numbers(summary)))
    drawings = wide.svg(css="wide") + narrow.svg(css="narrow")
    return (
        f"<figure><figcaption>{esc(caption)}</figcaption>"
        f'<div class="panel">{drawings}<ul class="key">{"".join(keys)}</ul></div>{numbers}</figure>'
    )


def _over_time(summary: Summary, choice: Choice) -> str:
    """Series with bands, rolling coverage and a close-up, where the task is one over time."""
    series, near = online_figures.series_with_bands(summary, choice), online_figures.close_up(summary, choice)
    rolling = _figure(online_figures.rolling_coverage(summary, choice), "Rolling coverage")
    return _time_figure(series) + rolling + _time_figure(near, "Close up")


def _time_figure(figure: TimeFigure | None, heading: str = "") -> str:
    if figure is None:
        return ""
    title = f"<h3>{esc(heading)}</h3>" if heading else ""
    panels = "".join(
        f'<div class="panel stacked">{wide.svg(css="wide")}{narrow.svg(css="narrow")}</div>'
        for wide, narrow in figure.charts
    )
    numbers = _closed(_numbers_html(figure.numbers))
    return f"{title}<figure><figcaption>{esc(figure.caption)}</figcaption>{panels}{numbers}</figure>"


def _poisoning(summary: Summary, choice: Choice) -> str:
    """Certified shares and sizes against the number of poisoned rows."""
    return "".join(
        _figure(poisoning_figures.certified_shares(summary, choice, side), f"Poisoned {word} rows")
        + _figure(poisoning_figures.certified_sizes(summary, choice, side), "Certified size")
        for side, word in (("train", "training"), ("calib", "calibration"))
    )


def _differences(summary: Summary, choice: Choice) -> str:
    return _figure(figures.differences(summary, choice))


def _groups(summary: Summary, choice: Choice) -> str:
    worst = _figure(figures.worst_cases(summary, choice), beside=True)
    blocks = [
        _figure(part_figures.by_part(summary, choice, key), title)
        for key, (title, _) in part_figures.PARTS.items()
    ]
    blocks.append(_figure(example_figures.sizes_of_sets(summary, choice), "Sizes of the sets"))
    body = worst + "".join(blocks)
    if not body:
        return ""
    lede = (
        "Coverage on average can hide rows that are covered too rarely. A method that adapts keeps to the "
        "level in every group."
    )
    return f'<p class="lede">{lede}</p>{body}'


def _examples(summary: Summary, choice: Choice) -> str:
    intervals = example_figures.example_intervals(summary, choice)
    drawn = [_figure(intervals), _figure(example_figures.example_sets(summary, choice))]
    drawn += [
        _figure(predictive_figures.likeliest_labels(summary, choice)),
        _figure(region_figures.planes(summary, choice), "In the plane of the targets"),
        _figure(region_figures.volumes(summary, choice), "Volumes", beside=True),
    ]
    return "".join(drawn)
