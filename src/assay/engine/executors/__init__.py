"""Where trials run: in this process, or each isolated in a local worker process.

An executor is a context manager with ``run(trials)``: it takes trials from the iterable as it
has room for them and yields one row a trial, in the order in which they end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, Self

if TYPE_CHECKING:
    from assay.engine.plan import Trial, TrialResult


class Executor(Protocol):
    """What ``run_question`` asks of the place where trials run."""

    def __enter__(self) -> Self: ...

    def run(self, trials: Iterable[Trial]) -> Iterator[TrialResult]:
        """Rows of the trials, in the order in which they end."""
        ...

    def __exit__(self, *exception: Any) -> None: ...
