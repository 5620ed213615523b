"""The end of the report: what failed, how the data was used, how to repeat it, what the methods are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assay.core.cards import Card, all_cards
from assay.engine.plan import RunInfo, TrialResult
from assay.engine.report.text import esc, notices
from assay.engine.stats import FAILURES, Summary
from assay.engine.wording import NONE, duration, memory, plural

_MAX_ERROR = 2000


def failed(summary: Summary) -> str:
    """Failed and skipped trials; equal errors of one method in one row."""
    groups: dict[tuple[str, str, str], list[TrialResult]] = {}
    for found in summary.methods:
        for result in summary.trials(found.name):
            if result.status in FAILURES or result.status == "skipped":
                groups.setdefault((result.method, result.status, result.error), []).append(result)
    rows = []
    for (method, status, error), results in groups.items():
        seeds = ", ".join(str(result.seed) for result in results)
        longest = max(result.seconds for result in results)
        text = error or "no message"
        cut = f"\n… {len(text) - _MAX_ERROR:,} more characters" if len(text) > _MAX_ERROR else ""
        rows.append(
            f'<tr><th scope="row">{esc(method)}</th><td>{esc(status)}</td><td>{esc(seeds)}</td>'
            f'<td class="n">{esc(NONE if status == "skipped" else duration(longest))}</td>'
            f'<td class="error">{esc(text[:_MAX_ERROR] + cut)}</td></tr>'
        )
    for spec in summary.info.methods:
        if spec.get("skip") and not summary.trials(str(spec["name"])):
            rows.append(
                f'<tr><th scope="row">{esc(spec["name"])}</th><td>skipped</td><td>all</td>'
                f'<td class="n">{NONE}</td><td class="error">{esc(spec["skip"])}</td></tr>'
            )
    absent = sum(found.counts["not run"] for found in summary.methods)
    note = f"<p>{plural(absent, 'trial')} of the plan did not run.</p>" if absent else ""
    if not rows:
        return note or "<p>None: every trial finished.</p>"
    names = ("Method", "Status", "Seeds", "After at most", "What happened")
    heads = "".join(f'<th scope="col">{name}</th>' for name in names)
    return (
        f'{note}<div class="scroll" tabindex="0" role="region" aria-label="Failed trials">'
        f"<table><thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def notes(summary: Summary) -> str:
    """What is said of the data and of how its rows were used."""
    info = summary.info
    rows = next((found.rows for found in summary.methods if found.rows), None)
    promised = summary.task.coverage_metric is not None
    facts: list[tuple[str, str]] = [
        ("Data", info.source),
        ("Rows and features", f"{info.n_rows:,} rows, {info.n_features:,} features, target {info.target}"),
        ("Time", info.time or ""),
        ("Group", info.group or ""),
        ("Task", info.why_task or info.task),
        (
            "Level",
            f"alpha {info.alpha}: {summary.target:g} of new rows are to be covered" if promised else "",
        ),
    ]
    if rows:
        training = f"{rows.train:,} to train, " if rows.train else ""
        split = f"{training}{rows.calib:,} to calibrate, {rows.test:,} to test, on each seed"
        if not promised:
            split = f"{rows.train + rows.calib:,} to train, {rows.test:,} to test, on each seed"
        if rows.disjoint:
            split = f"{rows.test:,} steps a stretch, after a burn-in of {rows.calib:,}"
        facts.append(("Split", split))
    lines = [esc(note) for note in [*info.notes, *notices(summary)]]
    return _definitions(facts) + (
        f'<ul class="notes">{"".join(f"<li>{text}</li>" for text in lines)}</ul>' if lines else ""
    )


def _definitions(facts: Sequence[tuple[str, str]]) -> str:
    return (
        '<dl class="plain">' + "".join(f"<dt>{esc(k)}</dt><dd>{esc(v)}</dd>" for k, v in facts if v) + "</dl>"
    )


def python_call(info: RunInfo) -> str:
    """The call of the Python API that asks the same question."""
    names = [str(spec.get("target") if spec.get("card") is None else spec["name"]) for spec in info.methods]
    asked = f"methods={names!r}, seeds={list(info.seeds)!r}, alpha={info.alpha}"
    if info.options.get("proba"):
        return f"assay.compare({info.source!r}, proba=True, {asked})"
    target = list(info.targets) if len(info.targets) > 1 else info.target
    roles = {"time": info.time, "group": info.group, **info.options}
    more = "".join(f", {key}={value!r}" for key, value in roles.items() if value is not None)
    return (
        f"assay.compare({info.source!r}, target={target!r}, methods={names!r}, model={info.model!r}, "
        f"seeds={list(info.seeds)!r}, alpha={info.alpha}, task={info.task!r}{more})"
    )


def repeat(summary: Summary) -> str:
    """The command or call, and all that its answer depends on."""
    info = summary.info
    limits = ", ".join(
        f"memory {memory(value)}" if key == "memory" else f"time {duration(value)}"
        for key, value in info.limits.items()
        if value is not None
    )
    facts = [
        ("Model", info.model),
        ("Seeds", ", ".join(map(str, info.seeds))),
        ("Limits of a trial", limits or "none"),
        ("Data fingerprint", info.fingerprint),
        ("Run", info.id),
        ("Started", f"{info.started[:16].replace('T', ' ')} UTC"),
        ("Took", duration(info.seconds)),
        ("Versions", ", ".join(f"{name} {version}" for name, version in info.versions.items())),
    ]
    command = info.command or python_call(info)
    return f"<pre><code>{esc(command)}</code></pre>{_definitions(facts)}"


def methods(summary: Summary) -> str:
    """The card of each method."""
    cards = all_cards()
    blocks = []
    for spec in summary.info.methods:
        name = str(spec["name"])
        card = cards.get(str(spec.get("card")))
        body = (
            card_html(card)
            if card
            else f"<p>A method of your own: <code>{esc(spec.get('target'))}</code></p>"
        )
        params: Mapping[str, Any] = spec.get("params") or {}
        if params:
            listed = ", ".join(f"{key} = {value}" for key, value in params.items())
            body += f"<p>Parameters: <code>{esc(listed)}</code></p>"
        title = f"{name}: {card.name}" if card and card.name != name else name
        blocks.append(f'<article class="panel card"><h3>{esc(title)}</h3>{body}</article>')
    return f'<div class="cards">{"".join(blocks)}</div>'


def card_html(card: Card) -> str:
    """What a card says, and its paper."""
    lines = [("", card.summary), ("For: ", card.use_for), ("Fails when: ", card.fails_when)]
    lines += [("Guarantee: ", card.guarantee), ("Cost: ", card.cost)]
    text = "".join(f"<p>{'<strong>' * bool(k)}{k}{'</strong>' * bool(k)}{esc(v)}</p>" for k, v in lines if v)
    paper = card.paper
    if paper.get("title"):
        url = str(paper.get("url", ""))
        title = esc(paper["title"])
        if url.startswith(("https://", "http://")):
            title = f'<a href="{esc(url)}" rel="noreferrer">{title}</a>'
        rest = ", ".join(str(paper[key]) for key in ("venue", "year") if paper.get(key))
        text += f'<p class="cite">{esc(paper.get("authors", ""))}. <cite>{title}</cite>. {esc(rest)}</p>'
    return text
