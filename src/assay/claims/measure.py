"""Measuring claims: those that ask the same question share its trials."""

from __future__ import annotations

import inspect
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from assay.claims.claim import Claim
from assay.core.cards import all_cards, import_object
from assay.core.errors import AssayError, MissingDependency
from assay.core.levels import parse_alpha
from assay.core.overlap import own_ratio
from assay.data.table import Table
from assay.engine.api import compare
from assay.engine.identity import library_versions
from assay.engine.run import ProgressEvent
from assay.tasks import get_task

#: called with (units done, units in all, what was measured last)
Tick = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Measured:
    """Values of one question: ``values[metric][method][seed]``.

    ``ratio`` is n_test / n_train of a split (a check that draws its own says its own), 0 for
    independent repetitions; ``failures`` counts trials that did not finish by method (calls of a
    check under ""); ``skip`` is why nothing was measured; ``target_sd`` is the standard deviation of
    the target.
    """

    values: Mapping[str, Mapping[str, Mapping[int, float]]] = field(default_factory=dict)
    ratio: float = 0.0
    failures: Mapping[str, int] = field(default_factory=dict)
    errors: tuple[str, ...] = ()
    skip: str = ""
    target_sd: float = 1.0
    versions: Mapping[str, str] = field(default_factory=dict)

    def of(self, metric: str, method: str) -> Mapping[int, float]:
        """Value by seed; empty where nothing was measured."""
        return self.values.get(metric, {}).get(method, {})


@dataclass(frozen=True)
class Question:
    """Claims that are measured together."""

    claims: tuple[Claim, ...]
    seeds: tuple[int, ...]

    @property
    def methods(self) -> tuple[str, ...]:
        """Everything that has to be run, once each."""
        return tuple(dict.fromkeys(method for claim in self.claims for method in claim.methods))

    @property
    def units(self) -> int:
        """Trials of a comparison, or calls of a check."""
        return len(self.seeds) * (1 if self.claims[0].check else len(self.methods))


def group(claims: Sequence[Claim], seeds: int | Sequence[int] | None) -> list[Question]:
    """Claims by what has to be run for them; ``seeds`` overrides their own number."""
    groups: dict[Any, list[Claim]] = {}
    for claim in claims:
        key = (claim.dataset, claim.check, claim.task, claim.alpha, claim.seeds if seeds is None else seeds)
        groups.setdefault(repr(key), []).append(claim)
    found = []
    for together in groups.values():
        chosen = together[0].seeds if seeds is None else seeds
        found.append(
            Question(tuple(together), tuple(range(chosen)) if isinstance(chosen, int) else tuple(chosen))
        )
    return found


def measure(question: Question, data: Any, workers: int, tick: Callable[[str], None]) -> Measured:
    """Run what a question needs; a set of data or an extra that is not there skips it, with the reason.

    ``data`` is the folder of sets that come in no package; a check with a parameter ``data`` is given it
    too. ``tick`` is called after each unit.
    """
    first = question.claims[0]
    cards = [all_cards()[method] for method in question.methods if method in all_cards()]
    if missing := [card for card in cards if card.missing]:
        return Measured(skip=f"{missing[0].id} needs: pip install 'assay[{','.join(missing[0].missing)}]'")
    table = None
    if first.dataset is not None:
        from assay.data.builtin import load

        try:
            table = load(first.dataset, data)
        except MissingDependency as error:
            return Measured(skip=str(error))
    if first.check is not None:
        return _measure_check(question, table, data, tick)
    if table is None:
        raise AssayError(f"{first.name}: a comparison needs a dataset")
    return _measure_comparison(question, table, workers, tick)


def _measure_comparison(
    question: Question, table: Table, workers: int, tick: Callable[[str], None]
) -> Measured:
    first = question.claims[0]

    def report(event: ProgressEvent) -> None:
        if event.result is not None:
            tick(f"{table.name}: {event.result.method}, seed {event.result.seed}")

    comparison = compare(
        table,
        methods=list(question.methods),
        seeds=question.seeds,
        alpha=first.alpha,
        task=first.task,
        workers=workers,
        progress=report,
    )
    values: dict[str, dict[str, dict[int, float]]] = {}
    for trial in comparison.results:
        for metric, value in trial.metrics.items():
            values.setdefault(metric, {}).setdefault(trial.method, {})[trial.seed] = float(value)
    ratios = [of.rows.ratio for of in comparison.statistics.methods if of.rows is not None]
    failures = {name: sum(trial.method == name for trial in comparison.failed) for name in question.methods}
    return Measured(
        values,
        ratio=max(ratios, default=0.0),
        failures=failures,
        errors=tuple(
            f"{t.method}, seed {t.seed}: {t.error.strip().splitlines()[-1]}" for t in comparison.failed
        ),
        target_sd=float(np.std(table.y.to_numpy(dtype=np.float64))) if first.task == "interval" else 1.0,
        versions=comparison.info.versions,
    )


def _measure_check(
    question: Question, table: Table | None, data: Any, tick: Callable[[str], None]
) -> Measured:
    first = question.claims[0]
    check = import_object(str(first.check))
    task = get_task(first.task)
    named = {"data": data} if "data" in inspect.signature(check).parameters else {}
    if table is not None:
        task.check(table, parse_alpha(first.alpha))
    values: dict[str, dict[str, dict[int, float]]] = {}
    errors: list[str] = []
    ratios = [0.0]
    for seed in question.seeds:
        try:
            if table is None:
                found = check(seed, **named)
            else:
                split = task.split(table, seed)
                ratios.append(len(split.y_test) / len(split.y_train))
                found = check(seed, split, **named)
        except MissingDependency as error:  # nothing was measured, and nothing failed
            return Measured(skip=str(error))
        except Exception as error:  # one failed repetition is a row of the ledger, not the end of it
            errors.append(f"seed {seed}: {type(error).__name__}: {error}")
            found = {}
        for metric, by_method in found.items():
            for method, value in by_method.items():
                values.setdefault(metric, {}).setdefault(method, {})[seed] = float(value)
        tick(f"{first.check}{'' if table is None else f' on {table.name}'}, seed {seed}")
    extras = {
        extra for card in all_cards().values() if card.id in question.methods for extra in card.requires
    }
    return Measured(
        values,
        ratio=max(ratios) if (own := own_ratio(check)) is None else own,
        failures={"": len(errors)},
        errors=tuple(errors),
        versions=library_versions(extras),
    )


def spread(values: Mapping[int, float]) -> float:
    """Standard deviation over seeds; NaN for fewer than two."""
    return statistics.stdev(values.values()) if len(values) > 1 else float("nan")
