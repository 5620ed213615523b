"""A question and the trials that answer it: pure data, nothing runs here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal

from assay.data.table import Table

Status = Literal["ok", "failed", "timed out", "out of memory", "skipped"]


@dataclass(frozen=True)
class MethodSpec:
    """One competitor: a card's id or "package.module:Class", its class path and its arguments.

    ``target`` is an importable path, or the class or unfitted object itself (Python API).
    ``skip`` is the reason why it will not run, None if it will.
    """

    name: str
    target: Any
    params: Mapping[str, Any] = field(default_factory=dict)
    card: str | None = None
    skip: str | None = None


@dataclass(frozen=True)
class Limits:
    """Bounds of one trial: seconds of wall clock and bytes of memory; None is no bound."""

    seconds: float | None = None
    memory: int | None = None


@dataclass(frozen=True)
class Question:
    """Everything that a comparison asks; two equal questions have equal answers.

    ``model`` is an importable path, an unfitted estimator, or None for the task's default;
    ``options`` are those of the task that differ from its defaults.
    """

    table: Table
    task: str
    alpha: Fraction
    methods: tuple[MethodSpec, ...]
    model: Any
    seeds: tuple[int, ...]
    limits: Limits = Limits()
    why_task: str = ""
    command: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """One method x seed of a question; ``identity`` is its key in the store."""

    method: MethodSpec
    seed: int
    identity: str


@dataclass(frozen=True)
class RunInfo:
    """What is kept of a question beside its trials: JSON-able, enough to draw the report again.

    ``methods`` holds one mapping a method: name, card (id or None), params, skip, target (a string).
    ``alpha`` is the level as a decimal string; ``started`` is ISO 8601 in UTC. ``target`` is the label
    of the ``targets``; ``time``, ``group`` and ``options`` are as in the table and the question.
    """

    id: str
    dataset: str
    source: str
    fingerprint: str
    target: str
    task: str
    why_task: str
    alpha: str
    n_rows: int
    n_features: int
    notes: tuple[str, ...]
    methods: tuple[Mapping[str, Any], ...]
    model: str
    seeds: tuple[int, ...]
    limits: Mapping[str, float | None]
    command: str
    versions: Mapping[str, str]
    started: str
    seconds: float = 0.0
    targets: tuple[str, ...] = ()
    time: str | None = None
    group: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class TrialResult:
    """One row per trial, whatever happened."""

    identity: str
    method: str
    seed: int
    status: Status
    metrics: Mapping[str, float]
    seconds: float
    error: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
