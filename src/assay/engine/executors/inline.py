"""Trials in this process, one after the other: for debugging. No time limit, no memory limit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Self

from assay.engine.bench import Bench
from assay.engine.plan import Question, Trial, TrialResult


class InlineExecutor:
    """Runs each trial where the caller is; a crash or an endless loop takes the caller with it."""

    def __init__(self, question: Question) -> None:
        self._bench = Bench(
            question.table,
            question.task,
            question.alpha,
            question.model,
            isolated=False,
            options=question.options,
        )

    def __enter__(self) -> Self:
        return self

    def run(self, trials: Iterable[Trial]) -> Iterator[TrialResult]:
        """Rows in the order of the trials."""
        for trial in trials:
            yield self._bench.run(trial)

    def __exit__(self, *exception: Any) -> None:
        return None
