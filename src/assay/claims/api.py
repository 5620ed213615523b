"""`assay.verify`: run claims again and let code write the verdicts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from assay.claims.claim import Claim, select
from assay.claims.ledger import Ledger, Row
from assay.claims.measure import Measured, Question, group, measure, spread
from assay.claims.verdict import judge
from assay.core.errors import MethodError


@dataclass(frozen=True)
class ClaimEvent:
    """How far a verification is: ``done`` of ``total`` trials, what ran last, the rows just judged."""

    done: int
    total: int
    what: str
    rows: tuple[Row, ...] = ()


def verify(
    methods: Iterable[str] | None = None,
    seeds: int | Sequence[int] | None = None,
    data: str | Path | None = None,
    progress: Callable[[ClaimEvent], None] | None = None,
    *,
    workers: int = 1,
    long: bool = False,
    record: bool = False,
    command: str = "",
) -> Ledger:
    """Measure what papers claim, beside the baselines, and judge it.

    Claims that ask the same question (data, methods, seeds) share its trials.

    Parameters
    ----------
    methods : ids of cards, optional
        Whose claims; all by default.
    seeds : int or sequence of int, optional
        In place of the number that each claim names.
    data : folder, optional
        Of the papers' data sets; $ASSAY_DATA by default. A claim whose data are not there is
        ``skipped`` with the reason.
    progress : callable, optional
        Receives a :class:`ClaimEvent` after each trial and after each group of claims.
    workers : int, default 1
        Processes that run the trials of comparisons.
    long : bool
        Also run the claims that are marked long; they are ``skipped`` otherwise.
    record : bool
        Put the rows into the ledgers beside the cards.
    command : str
        The command line, kept with each row; the Python call by default.

    Returns
    -------
    Ledger
        One row a claim. ``holds`` if the 95 % interval of the paired gain lies at or above what is
        claimed (above zero where it is only "better"), ``does not hold`` if it lies below, else
        ``undecided``.

    Raises
    ------
    MethodError
        An unknown method, one without claims, or a claim that is not well-formed.
    """
    if isinstance(methods, str):
        raise MethodError(f"methods is {methods!r}; give a list, such as [{methods!r}]")
    claims = select(methods)
    now = [claim for claim in claims if long or not claim.long]
    questions = group(now, seeds)
    total = sum(question.units for question in questions)
    done = 0
    rows: dict[str, Row] = {}
    for claim in claims:
        if claim not in now:
            rows[claim.name] = _row(claim, verdict="skipped", reason="it takes long; ask for long claims")

    def report(what: str, judged: tuple[Row, ...] = ()) -> None:
        if progress is not None:
            progress(ClaimEvent(done, total, what, judged))

    for question in questions:
        at = done

        def tick(what: str, at: int = at, question: Question = question) -> None:
            nonlocal done
            done = min(done + 1, at + question.units)
            report(what)

        start = time.perf_counter()
        measured = measure(question, data, workers, tick)
        seconds = time.perf_counter() - start
        done = at + question.units
        said = command or f"assay.verify({sorted({c.card for c in question.claims})!r})"
        judged = tuple(_judged(claim, measured, question.seeds, seconds, said) for claim in question.claims)
        rows.update((row.claim, row) for row in judged)
        report(question.claims[0].dataset or str(question.claims[0].check), judged)
    ledger = Ledger(rows[claim.name] for claim in claims)
    if record:
        ledger.record()
    return ledger


def _row(claim: Claim, *, verdict: str, reason: str = "") -> Row:
    versus = f"{claim.versus:g}" if isinstance(claim.versus, float) else claim.versus
    return Row(
        claim=claim.name,
        method=claim.card,
        statement=claim.statement,
        where=claim.where,
        expectation=claim.expectation,
        paper=claim.paper,
        dataset=claim.dataset or "",
        metric=claim.metric,
        unit=claim.unit,
        versus=versus,
        verdict=verdict,
        reason=reason,
    )


def _judged(claim: Claim, measured: Measured, seeds: Sequence[int], seconds: float, command: str) -> Row:
    if measured.skip:
        return _row(claim, verdict="skipped", reason=measured.skip)
    scale = measured.target_sd if claim.unit == "target sd" else 1.0
    ours = {seed: value / scale for seed, value in measured.of(claim.metric, claim.method).items()}
    if isinstance(claim.versus, float):
        versus: Mapping[int, float] = dict.fromkeys(ours, claim.versus)
    else:
        versus = {seed: value / scale for seed, value in measured.of(claim.metric, claim.versus).items()}
    failures = sum(measured.failures.get(method, 0) for method in ("", *claim.methods))
    verdict = judge(claim, ours, versus, measured.ratio, failures, seeds)
    reason = "; ".join([verdict.reason, *measured.errors[:1]] if failures else [verdict.reason])
    per_seed = {str(seed): {"ours": ours[seed], "baseline": versus[seed]} for seed in ours if seed in versus}
    base = _row(claim, verdict=verdict.outcome, reason=reason)
    if not per_seed:
        return base
    return Row(
        **{
            **vars(base),
            "ours": sum(ours.values()) / len(ours),
            "baseline": sum(versus.values()) / len(versus),
            "ours_sd": spread(ours),
            "baseline_sd": spread(versus),
            "gain": verdict.gain.mean,
            "low": verdict.gain.low,
            "high": verdict.gain.high,
            "seeds": len(per_seed),
            "per_seed": per_seed,
            "date": datetime.now(UTC).date().isoformat(),
            "versions": dict(measured.versions),
            "command": command,
            "seconds": round(seconds, 1),
        }
    )
