"""Kinds of task: how rows are split, what a method must offer, how it is judged."""

from __future__ import annotations

import importlib
from typing import Any

from assay.core.errors import TaskError
from assay.tasks.base import Metric, Outcome, Split, Task

#: name on the command line -> class
_TASKS = {
    "attack": "assay.tasks.attack:AttackTask",
    "interval": "assay.tasks.interval:IntervalTask",
    "label-set": "assay.tasks.label_set:LabelSetTask",
    "online": "assay.tasks.online:OnlineTask",
    "poisoning": "assay.tasks.poisoning:PoisoningTask",
    "predictive": "assay.tasks.predictive:PredictiveTask",
    "region": "assay.tasks.region:RegionTask",
}


def task_names() -> tuple[str, ...]:
    """The names of all tasks."""
    return tuple(_TASKS)


def get_task(name: str, **options: Any) -> Task:
    """The task of that name.

    ``options`` are what this task can be asked beside the level, such as a forecast's horizon.

    Raises
    ------
    TaskError
        No such task, or an option that it does not know.
    """
    cls = _task_class(name)
    for option in options:
        if option not in cls.options:
            knowing = [other for other in _TASKS if option in _task_class(other).options]
            those = f"tasks that do: {', '.join(knowing)}" if knowing else "no task does"
            raise TaskError(f"the task {name!r} takes no {option}; {those}")
    return cls(**options)


def _task_class(name: str) -> type[Task]:
    if name not in _TASKS:
        raise TaskError(f"no task {name!r}; there are: {', '.join(_TASKS)}")
    module, _, attribute = _TASKS[name].partition(":")
    found: type[Task] = getattr(importlib.import_module(module), attribute)
    return found


__all__ = ["Metric", "Outcome", "Split", "Task", "get_task", "task_names"]
