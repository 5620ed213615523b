"""Kinds of task: how rows are split, what a method must offer, how it is judged."""

from __future__ import annotations

import importlib

from assay.core.errors import TaskError
from assay.tasks.base import Metric, Outcome, Split, Task

#: name on the command line -> class
_TASKS = {
    "interval": "assay.tasks.interval:IntervalTask",
    "label-set": "assay.tasks.label_set:LabelSetTask",
}


def task_names() -> tuple[str, ...]:
    """The names of all tasks."""
    return tuple(_TASKS)


def get_task(name: str) -> Task:
    """The task of that name."""
    if name not in _TASKS:
        raise TaskError(f"no task {name!r}; there are: {', '.join(_TASKS)}")
    module, _, attribute = _TASKS[name].partition(":")
    task: Task = getattr(importlib.import_module(module), attribute)()
    return task


__all__ = ["Metric", "Outcome", "Split", "Task", "get_task", "task_names"]
