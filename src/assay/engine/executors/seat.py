"""A place for trials on a node of a cluster: a local executor of one worker process.

The process on the node that hosts a seat runs no trial itself, so limits, isolation and the rows of
crashes are those of the local executor.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from assay.core.errors import AssayError
from assay.engine.environment import Environment
from assay.engine.executors.local import LocalExecutor
from assay.engine.executors.packing import Packed
from assay.engine.memory import default_limit
from assay.engine.plan import MethodSpec, Trial, TrialResult

_MIB = 2**20


class Seat:
    """Carries out one trial at a time; made on the node by Ray.

    Parameters
    ----------
    packed : Packed
        The question.
    environment : Environment
        What its numbers rest on where it was asked.
    path : list of str
        Where the asking process finds modules.
    """

    def __init__(self, packed: Packed, environment: Environment, path: list[str]) -> None:
        self._packed = packed
        self._environment = environment
        sys.path.extend(entry for entry in path if entry not in sys.path)

    def open(self) -> list[str]:
        """Start the worker process, unless this node differs: the answer says how.

        Without a limit of memory, a trial gets its part of what is free on the node.
        """
        differences = self._environment.differences()
        if differences:
            return differences
        packed = self._packed
        self._is_own_limit = packed.limits.memory is None
        if self._is_own_limit:
            packed = replace(packed, limits=replace(packed.limits, memory=default_limit(_seats_here())))
        self._memory = packed.limits.memory
        self._executor = LocalExecutor(packed, workers=1)
        self._executor.__enter__()
        return []

    def run(self, method: str, seed: int, identity: str) -> TrialResult:
        """The row of one trial, given by the name of its method."""
        rows = list(self._executor.run([Trial(MethodSpec(method, None), seed, identity)]))
        if len(rows) != 1:
            raise AssayError(f"{len(rows)} rows came back for one trial of {method}")
        return self._told(rows[0])

    def close(self) -> None:
        """End the worker process and remove its files."""
        self._executor.__exit__(None, None, None)

    def _told(self, row: TrialResult) -> TrialResult:
        """Without a limit of the user's, memory that is short says something of the node alone."""
        if row.status != "out of memory" or not self._is_own_limit:
            return row
        share = "" if self._memory is None else f" of {self._memory // _MIB:,} MiB"
        error = f"{row.error}\nthis node's part{share} was too small; a limit of your own holds on all nodes"
        detail: dict[str, Any] = {**row.detail, "ended_from_outside": True}
        return replace(row, error=error, detail=detail)


def _seats_here() -> int:
    """How many seats this node has room for: each takes one CPU."""
    import ray

    here = ray.get_runtime_context().get_node_id()
    nodes: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call, unused-ignore]
    return next((int(node["Resources"].get("CPU", 1)) for node in nodes if node["NodeID"] == here), 1)
