"""From a question to its rows: what is known is taken from the store, the rest is run and kept."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from assay.core.errors import AssayError
from assay.engine.bench import load_task
from assay.engine.executors import Executor
from assay.engine.executors.inline import InlineExecutor
from assay.engine.executors.local import LocalExecutor
from assay.engine.identity import Identities, library_versions, method_libraries
from assay.engine.plan import Limits, Question, RunInfo, Trial, TrialResult
from assay.engine.store import Store


@dataclass(frozen=True)
class ProgressEvent:
    """How far a comparison is.

    ``done`` of ``total`` trials have a row, ``reused`` of them from the store; ``result`` is the
    row that has just come, None in the first event.
    """

    done: int
    total: int
    result: TrialResult | None
    reused: int


class Interrupted(KeyboardInterrupt):
    """The user stopped a comparison (Ctrl-C); what was done by then is in ``comparison``.

    Finished trials are in the store if there is one, so the same call goes on from here. Trials
    that did not finish are rows with status ``skipped``.
    """

    def __init__(self, info: RunInfo, results: Sequence[TrialResult], unfinished: int) -> None:
        super().__init__(f"interrupted: {unfinished} of {len(results)} trials have not run")
        self.info = info
        self.results = tuple(results)
        self.unfinished = unfinished
        self.comparison: Any = None


#: what the row of a trial says that Ctrl-C came before
_NOT_REACHED = "interrupted before it had finished; the same command goes on from here"

Progress = Callable[[ProgressEvent], None]


def plan_trials(question: Question) -> list[Trial]:
    """The trials of a question, all seeds of the first method first."""
    identities = Identities(question, load_task(question.task, question.options))
    return [
        Trial(method, seed, identities.of(method, seed))
        for method in question.methods
        for seed in question.seeds
    ]


def run_question(
    question: Question,
    *,
    workers: int | None = None,
    in_process: bool = False,
    store: Store | None = None,
    retry_failed: bool = False,
    progress: Progress | None = None,
    backend: str = "local",
    address: str | None = None,
) -> tuple[RunInfo, list[TrialResult]]:
    """Answer a question: one row a trial, in the order of :func:`plan_trials`.

    Parameters
    ----------
    question : Question
    workers : int, optional
        Number of processes, at most one a trial; the numbers do not depend on it. By default
        one, or with Ray one a CPU of the cluster.
    in_process : bool
        Run the trials in this process, without limits.
    store : Store, optional
        Rows found there are taken by the rule of :func:`is_final`; new ones are kept there at once.
    retry_failed : bool
        Run everything again that is not ``ok``.
    progress : callable, optional
        Receives a :class:`ProgressEvent` at the start and after each trial.
    backend : "local" or "ray"
        Processes of this machine, or of a Ray cluster at ``address``.
    address : str, optional
        See :class:`assay.engine.executors.ray.RayExecutor`.

    Raises
    ------
    Interrupted
        On Ctrl-C, with what is done.
    MissingDependency
        Ray is asked for and not installed.
    AssayError
        Worker processes cannot be started, or the store cannot be written.
    """
    trials = plan_trials(question)
    info = _describe(question, trials)
    rows = _Rows(question, trials, store, retry_failed, progress)
    if store is not None:
        store.put_run(info, [trial.identity for trial in trials])
    start = time.perf_counter()
    rows.take_known()
    rows.report(None)
    try:
        if open_trials := rows.unfinished():
            executor: Executor
            if in_process:
                executor = InlineExecutor(question)
            elif backend == "ray":
                from assay.engine.executors.ray import RayExecutor

                executor = RayExecutor(question, trials=len(open_trials), workers=workers, address=address)
            else:
                executor = LocalExecutor(question, workers=min(workers or 1, len(open_trials)))
            with executor:
                for result in executor.run(rows.waiting()):
                    rows.add(result)
    except KeyboardInterrupt:
        info = _finish(info, start, trials, store)
        raise Interrupted(info, rows.complete(), len(rows.unfinished())) from None
    missing = len(rows.unfinished())
    if missing:
        raise AssayError(f"{missing} of {len(trials)} trials came back without a row")
    return _finish(info, start, trials, store), rows.complete()


def is_final(result: TrialResult, ran_under: Limits, limits: Limits, retry_failed: bool) -> bool:
    """Whether a row of the store answers its trial, so that it need not run again.

    ``ok`` always does. ``failed`` does, unless a signal from outside ended it (SIGKILL of the
    out-of-memory killer, a shutdown): that says nothing about the method. ``timed out`` and ``out
    of memory`` do while the present limit is not larger than the one they met. With
    ``retry_failed`` only ``ok`` does.
    """
    if result.status == "ok":
        return True
    if retry_failed or result.detail.get("ended_from_outside"):
        return False
    if result.status == "timed out":
        return _not_larger(limits.seconds, ran_under.seconds)
    if result.status == "out of memory":
        return _not_larger(limits.memory, ran_under.memory)
    return True


def _not_larger(present: float | None, recorded: float | None) -> bool:
    return recorded is None or (present is not None and present <= recorded)


class _Rows:
    """The rows of a run as they come."""

    def __init__(
        self,
        question: Question,
        trials: Sequence[Trial],
        store: Store | None,
        retry_failed: bool,
        progress: Progress | None,
    ) -> None:
        self._trials = trials
        self._limits = question.limits
        self._store = store
        self._retry_failed = retry_failed
        self._progress = progress
        self._found: dict[str, TrialResult] = {}
        self._reused = 0

    def take_known(self) -> None:
        """Rows of methods that are skipped, and those that the store holds."""
        for trial in self._trials:
            if trial.method.skip is not None and trial.identity not in self._found:
                row = _skipped(trial, trial.method.skip)
                self._found[trial.identity] = row if self._store is None else self._store.put(row)
            else:
                self._take_from_store(trial)

    def waiting(self) -> Iterator[Trial]:
        """Trials without a row, seed by seed, so that a prepared split serves all methods.

        Another process that shares the store may have run one in the meantime.
        """
        seeds = list(dict.fromkeys(trial.seed for trial in self._trials))
        handed_out: set[str] = set()
        for trial in sorted(self._trials, key=lambda trial: seeds.index(trial.seed)):
            if trial.identity in self._found or trial.identity in handed_out:
                continue
            if self._take_from_store(trial):
                self.report(self._found[trial.identity])
                continue
            handed_out.add(trial.identity)
            yield trial

    def add(self, result: TrialResult) -> None:
        """A row that has just been run: kept before anybody hears of it."""
        if self._store is not None:
            result = replace(self._store.put(result, self._limits), method=result.method)
        self._found[result.identity] = result
        self.report(result)

    def report(self, result: TrialResult | None) -> None:
        """Tell the caller how far the run is."""
        if self._progress is not None:
            done = len(self._trials) - len(self.unfinished())
            self._progress(ProgressEvent(done, len(self._trials), result, self._reused))

    def unfinished(self) -> list[Trial]:
        """Trials without a row."""
        return [trial for trial in self._trials if trial.identity not in self._found]

    def complete(self) -> list[TrialResult]:
        """One row a trial, in the order of the trials; those that did not run say so."""
        rows = []
        for trial in self._trials:
            row = self._found.get(trial.identity)
            if row is None:
                row = _skipped(trial, _NOT_REACHED)
            rows.append(replace(row, method=trial.method.name))
        return rows

    def _take_from_store(self, trial: Trial) -> bool:
        found = self._store.find(trial.identity) if self._store is not None else None
        if found is None or not is_final(*found, self._limits, self._retry_failed):
            return False
        if trial.identity not in self._found:
            self._reused += sum(other.identity == trial.identity for other in self._trials)
        self._found[trial.identity] = replace(found[0], method=trial.method.name)
        return True


def _skipped(trial: Trial, reason: str) -> TrialResult:
    return TrialResult(trial.identity, trial.method.name, trial.seed, "skipped", {}, 0.0, reason)


def _describe(question: Question, trials: Sequence[Trial]) -> RunInfo:
    table = question.table
    started = datetime.now(UTC).isoformat(timespec="microseconds")
    key = "\n".join([started, question.command, *(trial.identity for trial in trials)])
    return RunInfo(
        id=hashlib.sha256(key.encode()).hexdigest()[:12],
        dataset=table.name,
        source=table.source,
        fingerprint=table.fingerprint,
        target=table.target,
        task=question.task,
        why_task=question.why_task,
        alpha=f"{float(question.alpha):g}",
        n_rows=len(table),
        n_features=len(table.features),
        notes=table.notes,
        methods=tuple(
            {
                "name": method.name,
                "card": method.card,
                "params": {key: _shown(value) for key, value in method.params.items()},
                "skip": method.skip,
                "target": _shown(method.target),
            }
            for method in question.methods
        ),
        model=_model_name(question),
        seeds=question.seeds,
        limits={"seconds": question.limits.seconds, "memory": question.limits.memory},
        command=question.command,
        versions=library_versions(method_libraries(question)),
        started=started,
        targets=table.targets,
        time=table.time,
        group=table.group,
        options=dict(question.options),
    )


def _model_name(question: Question) -> str:
    if question.options.get("proba"):
        return "none: the probabilities are given"
    return "the default of the task" if question.model is None else str(_shown(question.model))


def _shown(value: Any) -> Any:
    """A value of JSON's types, or how Python prints it; a class by its path."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, type):
        return f"{value.__module__}:{value.__qualname__}"
    return repr(value)


def _finish(info: RunInfo, start: float, trials: Sequence[Trial], store: Store | None) -> RunInfo:
    info = replace(info, seconds=time.perf_counter() - start)
    if store is not None:
        store.put_run(info, [trial.identity for trial in trials])
    return info
