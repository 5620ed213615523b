"""The public calls: a question in the user's words becomes a plan, and its answer a comparison."""

from __future__ import annotations

import contextlib
import inspect
import numbers
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
from sklearn.base import is_classifier, is_regressor

from assay.core.cards import Card, all_cards, get_card, import_object
from assay.core.errors import MethodError, TaskError
from assay.core.levels import parse_alpha
from assay.data.probabilities import as_probability_table
from assay.data.read import as_table
from assay.data.shifted import with_shifted
from assay.data.table import Table
from assay.engine.bench import load_model, load_task
from assay.engine.comparison import Comparison
from assay.engine.memory import default_limit
from assay.engine.plan import Limits, MethodSpec, Question
from assay.engine.run import Interrupted, ProgressEvent, run_question
from assay.engine.store import Store
from assay.tasks import Task
from assay.tasks.infer import choose_task
from assay.tasks.splitting import PART

#: a table of trials must fit into memory, and no question needs more splits
_MOST_SEEDS = 10_000
_BACKENDS = ("local", "ray")


def compare(
    data: Any,
    target: str | Sequence[str] | None = None,
    *,
    methods: Sequence[Any] | None = None,
    model: Any = None,
    seeds: int | Sequence[int] = 5,
    alpha: Any = 0.1,
    task: str = "auto",
    workers: int | None = None,
    timeout: float | None = None,
    memory_limit: int | None = None,
    store: str | Path | Store | None = None,
    in_process: bool = False,
    backend: str = "local",
    address: str | None = None,
    retry_failed: bool = False,
    progress: Callable[[ProgressEvent], None] | None = None,
    name: str | None = None,
    drop: Sequence[str] = (),
    time: str | None = None,
    group: str | None = None,
    horizon: int = 1,
    forecast: str | None = None,
    radius: float | None = None,
    noise_scale: float | None = None,
    proba: bool = False,
    shifted: Any = None,
    command: str = "",
) -> Comparison:
    """Compare methods on your data: the same splits for each, a row for each trial.

    Parameters
    ----------
    data : path, DataFrame, (X, y), built-in name or Table
        What :func:`assay.data.read.as_table` takes; with ``proba`` class probabilities.
    target : str or list of str, optional
        The column to predict, or several (also "a,b").
    methods : list, optional
        Ids of cards, ``"package.module:Class"``, classes, unfitted objects, or ``(name, method)``
        pairs. By default all methods of the task that are in the menu, the reference first.
    model : "package.module:Class" or unfitted estimator, optional
        The model inside the methods; the task's own by default. An open random state (None) is
        set from the seed.
    seeds : int or sequence of int
        Number of random splits, or the seeds themselves.
    alpha : level, default 0.1
        Miscoverage.
    task : str
        "auto" decides: "online" where there is a ``time``, "region" for several targets, else
        "interval" or "label-set" from the target's values.
    workers : int, optional
        Processes that run trials; the numbers do not depend on it. By default one, with Ray one a CPU
        of the cluster.
    timeout : float, optional
        Seconds of wall clock after which a trial is killed; importing the method and preparing
        its rows do not count.
    memory_limit : int, optional
        Bytes that a trial may allocate beyond what its process holds at the start. By default
        about 80 % of the memory that is free now, divided by the workers (on a node: by its CPUs).
    store : path or Store, optional
        Keeps each row as soon as its trial ends, and gives back rows of the same identity.
    in_process : bool
        Run everything in this process, for debugging: no limits, and a crash is yours.
    backend : "local" or "ray", default "local"
        Where trials run: on this machine, or on the nodes of a Ray cluster.
    address : str, optional
        Of the cluster: "auto" or HOST:PORT. By default that to which the program is connected, else
        Ray is started on this machine, for this comparison.
    retry_failed : bool
        Run rows of the store that are not ``ok`` again.
    progress : callable, optional
        Receives a :class:`~assay.engine.run.ProgressEvent` at the start and after each trial.
    name : str, optional
        What to call the data.
    drop : column names
        Columns to leave out.
    time : str, optional
        The column that orders the rows of a series.
    group : str, optional
        The column that names the series of each row (with ``time``), or a group of rows: coverage and
        size are then measured in each group too. It stays a feature unless it is in ``drop``.
    horizon : int, default 1
        How many steps ahead a forecast is made (only with ``time``).
    forecast : str, optional
        The column that holds forecasts made ``horizon`` steps before, in place of a ``model``'s.
    radius, noise_scale : float, optional
        How far rows may be moved, and the deviation of the noise against it, in standard deviations of the
        features (only with ``task="attack"``).
    proba : bool
        ``data`` are class probabilities of labelled rows: (proba, y), (proba, y, groups) or an NPZ file
        with arrays of these names (:func:`assay.data.probabilities.as_probability_table`). No model
        is trained; half of the rows calibrates the label-set methods and half tests them.
    shifted : path, DataFrame, array or "permute", optional
        Only with the task "predictive": rows with the features of ``data`` on which a method should be less
        sure, or the test rows with each feature shuffled by itself; how well each method tells them from
        the test rows is measured.
    command : str
        The command line, kept with the run.

    Returns
    -------
    Comparison

    Raises
    ------
    DataError, TaskError, MethodError, StoreError, MissingDependency
        Before anything runs: the data, the question, a method or the store cannot be used, or Ray is
        asked for and not installed.
    Interrupted
        (a KeyboardInterrupt) on Ctrl-C; its ``comparison`` holds what is done.
    """
    level = parse_alpha(alpha)
    chosen_seeds = _seeds(seeds)
    _check_backend(backend, address, in_process)
    limits = _limits(workers, timeout, memory_limit, in_process, backend)
    with importable_from_here(methods, model):
        options: dict[str, Any] = {"horizon": horizon} if horizon != 1 else {}
        given = {"forecast": forecast, "radius": radius, "noise_scale": noise_scale}
        options |= {option: value for option, value in given.items() if value is not None}
        if shifted is not None:
            options["shifted"] = str(shifted) if isinstance(shifted, str | Path) else "a table"
        if proba:
            not_bare = {"target": target, "model": model, "time": time, "group": group, "drop": drop or None}
            _check_bare(not_bare | options)
            table, options = as_probability_table(data, name), {"proba": True}
            if task == "auto":
                task_name, why = "label-set", "label-set: class probabilities are given, no model is trained"
            else:
                task_name, why = choose_task(table, task, options=options)
        else:
            series = task == "online"
            table = as_table(data, target, name=name, drop=drop, time=time, group=group, series=series)
            task_name, why = choose_task(table, task, options=options)
            if shifted is not None and options["shifted"] != "permute":
                table = with_shifted(table, shifted)
        the_task = load_task(task_name, options)
        if decided := the_task.decided(table):
            options |= decided
            the_task = load_task(task_name, options)
        check_model(model, the_task)
        the_task = the_task.with_model(load_model(model))
        _check_seeds(chosen_seeds, the_task)
        the_task.check(table, level)
        table = replace(table, notes=(*table.notes, *the_task.notes(table), *_unused_group(table, the_task)))
        specs = choose_methods(methods, the_task, table)
        question = Question(
            table=table,
            task=task_name,
            alpha=level,
            methods=specs,
            model=model,
            seeds=chosen_seeds,
            limits=limits,
            why_task=why,
            command=command,
            options=options,
        )
        with _opened(store) as kept:
            try:
                info, results = run_question(
                    question,
                    workers=workers,
                    in_process=in_process,
                    store=kept,
                    retry_failed=retry_failed,
                    progress=progress,
                    backend=backend,
                    address=address,
                )
            except Interrupted as stop:
                stop.comparison = Comparison(stop.info, stop.results)
                raise
    return Comparison(info, results)


def methods(task: str | None = None) -> pd.DataFrame:
    """Every method, one row each: id, name, task, family, role, in_menu, needs, summary, paper, year.

    Parameters
    ----------
    task : str, optional
        Only the methods of this task ("interval", "label-set").
    """
    if task is not None:
        load_task(task)
    rows = [
        {
            "id": card.id,
            "name": card.name,
            "task": card.task,
            "family": card.family,
            "role": card.role,
            "in_menu": card.in_menu,
            "needs": install_line(card) or "",
            "summary": card.summary,
            "paper": card.paper.get("title", ""),
            "year": card.paper.get("year"),
        }
        for card in all_cards().values()
        if task is None or card.task == task
    ]
    columns = ["id", "name", "task", "family", "role", "in_menu", "needs", "summary", "paper", "year"]
    return pd.DataFrame(rows, columns=columns)


def install_line(card: Card) -> str | None:
    """The command that installs what a method lacks; None if it lacks nothing."""
    return f"pip install 'assay[{','.join(card.missing)}]'" if card.missing else None


def choose_methods(asked: Sequence[Any] | None, task: Task, table: Table) -> tuple[MethodSpec, ...]:
    """The competitors, with distinct names, each found to meet the task's contract.

    Raises
    ------
    MethodError
        An unknown id or path, something that is no method, or none at all.
    TaskError
        A method of another task, or one that lacks what the task asks for.
    """
    if asked is None:
        cards = [card for card in all_cards().values() if card.task == task.name and card.in_menu]
        cards = [card for card in cards if not card.needs_groups or table.group is not None]
        cards = [card for card in cards if _of_kind(card, task)]
        cards = [card for card in cards if not (task.bare and card.of_one_model)]  # each would stand twice
        cards.sort(key=lambda card: card.id != task.reference)
        specs = [_of_card(card, task, table, by_name=False) for card in cards]
    else:
        if isinstance(asked, str) or not isinstance(asked, Sequence):
            raise MethodError(f"methods is {asked!r}; give a list, such as ['split', 'mypkg.mymod:MyClass']")
        specs = [_of_item(item, task, table) for item in asked]
    if not specs:
        raise MethodError(f"no methods are given; `assay methods --task {task.name}` lists them")
    return tuple(_with_distinct_names(specs))


def _of_item(item: Any, task: Task, table: Table) -> MethodSpec:
    if isinstance(item, tuple):
        if len(item) != 2 or not isinstance(item[0], str):
            raise MethodError(f"{item!r} is no (name, method) pair")
        if not item[0].strip() or not item[0].isprintable():
            raise MethodError(f"the name {item[0]!r} of a method is empty or cannot be printed")
        return replace(_of_item(item[1], task, table), name=item[0])
    if isinstance(item, str) and ":" not in item:
        return _of_card(get_card(item), task, table, by_name=True)
    if isinstance(item, str):
        target = import_object(item)
        name = item.rpartition(":")[2]
    else:
        target = item
        name = item.__name__ if inspect.isclass(item) else type(item).__name__
    lack = task.accepts(target)
    if lack is not None:
        raise TaskError(f"{name} cannot take part in the task {task.name!r}: {lack}")
    return MethodSpec(name=name, target=item)


def _of_card(card: Card, task: Task, table: Table, *, by_name: bool) -> MethodSpec:
    if card.task != task.name:
        there = ", ".join(other.id for other in all_cards().values() if other.task == task.name)
        raise TaskError(
            f"{card.id} is a method of the task {card.task!r}, this is {task.name!r}; its methods: {there}"
        )
    skip = None
    training_rows = len(table) - len(table) // PART
    if card.missing:
        skip = f"needs: {install_line(card)}"
    elif card.needs_groups and table.group is None:
        skip = "it works on groups of rows: name their column as group (--group COLUMN)"
    elif not _of_kind(card, task):
        skip = f"it is for {card.only_for} only"
    elif task.bare and (lack := task.accepts(card.load())) is not None:
        skip = lack
    elif card.max_rows is not None and training_rows > card.max_rows and not by_name:
        skip = (
            f"{training_rows:,} training rows are more than the {card.max_rows:,} up to which it is "
            f"run unasked; name it to run it (methods: {card.id})"
        )
    return MethodSpec(name=card.id, target=card.cls, params=dict(card.defaults), card=card.id, skip=skip)


def _of_kind(card: Card, task: Task) -> bool:
    """Whether the method can take the kind of target, where the task has several kinds."""
    return card.only_for in ("", getattr(task, "likelihood", card.only_for))


def _with_distinct_names(specs: Sequence[MethodSpec]) -> Iterator[MethodSpec]:
    """The second of two methods called x becomes x-2."""
    taken: set[str] = set()
    for spec in specs:
        name, number = spec.name, 1
        while name in taken:
            number += 1
            name = f"{spec.name}-{number}"
        taken.add(name)
        yield replace(spec, name=name)


def _check_bare(given: Mapping[str, Any]) -> None:
    """Raise TaskError for an argument that has no meaning where probabilities are given."""
    for argument, value in given.items():
        if value is not None:
            hint = "; the groups of rows go into data: (proba, y, groups)" if argument == "group" else ""
            raise TaskError(f"{argument} has no meaning where class probabilities are given (proba){hint}")


def _unused_group(table: Table, task: Task) -> tuple[str, ...]:
    if table.group is None or task.by_group or task.over_time:
        return ()
    return (f"the task {task.name!r} does not look at groups: {table.group} is a column like any other",)


def check_model(model: Any, task: Task) -> None:
    """Raise MethodError where the model is none, or is a classifier where numbers are predicted."""
    if model is None:
        return
    if isinstance(model, str) and ":" not in model:
        hint = f"; did you mean {':'.join(model.rsplit('.', 1))}?" if "." in model else ""
        raise MethodError(f"model {model!r} is not of the form package.module:Class{hint}")
    found = load_model(model)
    name = type(found).__name__
    if inspect.isclass(found):
        raise MethodError(f"the model is the class {found.__name__}; give an object: {found.__name__}()")
    if task.over_time and callable(getattr(found, "forecast", None)):
        return
    if not callable(getattr(found, "fit", None)):
        raise MethodError(f"the model {name} has no fit(X, y); give an unfitted estimator")
    default = task.default_model()
    for is_a, other, wanted in (
        (is_classifier, is_regressor, "predicts numbers: give a regressor"),
        (is_regressor, is_classifier, "predicts classes: give a classifier"),
    ):
        if is_a(found) and other(default):
            raise MethodError(
                f"the model {name} is a {'classifier' if is_classifier(found) else 'regressor'}, but the "
                f"task {task.name!r} {wanted}, such as {type(default).__name__}"
            )


def _seeds(seeds: Any) -> tuple[int, ...]:
    if _is_whole(seeds):
        if not 1 <= seeds <= _MOST_SEEDS:
            raise TaskError(f"seeds is {seeds}; give a number of splits from 1 to {_MOST_SEEDS:,}")
        return tuple(range(int(seeds)))
    if isinstance(seeds, (str, bool)) or not hasattr(seeds, "__iter__"):
        raise TaskError(f"seeds is {seeds!r}; give a number of splits, or a list of whole numbers")
    given = tuple(seeds)
    bad = [seed for seed in given if not _is_whole(seed) or not 0 <= seed < 2**32]
    if bad:
        raise TaskError(f"seed {bad[0]!r} is not a whole number from 0 to 2**32 - 1")
    if len(set(given)) < len(given) or not given:
        raise TaskError(f"seeds must be distinct, and at least one: got {list(given)}")
    return tuple(int(s) for s in given)


def _check_seeds(seeds: Sequence[int], task: Task) -> None:
    """Raise TaskError for a seed that the task does not have."""
    if task.max_seeds is not None and max(seeds) >= task.max_seeds:
        raise TaskError(
            f"the task {task.name!r} has {task.max_seeds} seeds, 0 to {task.max_seeds - 1}: stretches of "
            f"time, not random splits; {max(seeds)} was asked for"
        )


def _is_whole(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _check_backend(backend: str, address: str | None, in_process: bool) -> None:
    """Raise TaskError for a place to run trials that is none, or that contradicts itself."""
    if backend not in _BACKENDS:
        raise TaskError(f"backend is {backend!r}; there are: {', '.join(_BACKENDS)}")
    if backend != "local" and in_process:
        raise TaskError(
            f"in_process runs trials in this process, and backend {backend!r} elsewhere; give one"
        )
    if address is not None and backend != "ray":
        raise TaskError(f"address {address!r} is that of a Ray cluster: it needs backend 'ray'")


def _limits(workers: Any, timeout: Any, memory: Any, in_process: bool, backend: str) -> Limits:
    if workers is not None and (not _is_whole(workers) or workers < 1):
        raise TaskError(f"workers is {workers!r}; give a whole number from 1")
    if timeout is not None and not timeout > 0:
        raise TaskError(f"timeout is {timeout!r} seconds; give a number above 0, or None for no limit")
    if memory is not None and not memory > 0:
        raise TaskError(f"memory_limit is {memory!r} bytes; give a number above 0, or None for the default")
    if in_process:
        given = {
            "workers": (workers or 1) > 1,
            "timeout": timeout is not None,
            "memory_limit": memory is not None,
        }
        for argument, is_given in given.items():
            if is_given:
                raise TaskError(
                    f"{argument} needs processes of their own for the trials, which in_process does without"
                )
        return Limits()
    if memory is None and backend == "local":  # on a cluster each node knows its own
        memory = default_limit(int(workers or 1))
    return Limits(None if timeout is None else float(timeout), None if memory is None else int(memory))


@contextlib.contextmanager
def importable_from_here(asked: Any, model: Any) -> Iterator[None]:
    """While a comparison with ``module:Class`` runs, modules of the current folder can be imported.

    Last on the path, so that no file there takes the place of an installed module.
    """
    items = list(asked) if isinstance(asked, Sequence) and not isinstance(asked, str) else []
    items = [item[1] if isinstance(item, tuple) and len(item) == 2 else item for item in items]
    typed = any(isinstance(item, str) and ":" in item for item in [*items, model])
    here = os.getcwd()
    if not typed or here in sys.path or "" in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)


@contextlib.contextmanager
def _opened(store: str | Path | Store | None) -> Iterator[Store | None]:
    """The store; closed afterwards if it was opened here."""
    if store is None or isinstance(store, Store):
        yield store
    else:
        with Store(store) as opened:
            yield opened
