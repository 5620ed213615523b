"""The contract between a comparison and a kind of task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from assay.core.checks import FloatArray
from assay.core.errors import TaskError
from assay.data.table import Table

Direction = Literal["lower", "higher", "target", "info"]


@dataclass(frozen=True)
class Metric:
    """A number by which a method is judged.

    ``direction``: "lower" or "higher" is better, "target" is best near the nominal value,
    "info" is no judgement. ``unit`` may be "target" (the unit of the target column). ``of_groups``: there
    is one only where the table has a group column.
    """

    name: str
    label: str
    unit: str
    direction: Direction
    description: str
    of_groups: bool = False


@dataclass(frozen=True)
class Split:
    """One random split of a table, prepared as numbers; the preparation saw the training rows only.

    X are (n, d) float64 arrays; y are (n,) float64 targets, (n, q) for several, or (n,) labels for
    classes. ``classes`` are the sorted labels of a classification. ``test_rows`` are positions in the table.
    ``groups_train``, ``groups_calib`` and ``groups_test`` are (n,) names of the rows' groups, where the
    task looks at groups and the table has some.
    """

    X_train: NDArray[np.float64]
    y_train: NDArray[Any]
    X_calib: NDArray[np.float64]
    y_calib: NDArray[Any]
    X_test: NDArray[np.float64]
    y_test: NDArray[Any]
    feature_names: tuple[str, ...]
    test_rows: NDArray[np.intp]
    seed: int
    classes: NDArray[Any] | None = None
    groups_train: NDArray[Any] | None = None
    groups_calib: NDArray[Any] | None = None
    groups_test: NDArray[Any] | None = None
    #: the fitted transformer that made X of the table's columns
    preparation: Any = None
    #: rows from elsewhere, prepared like the test rows
    X_shifted: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class Asked:
    """A fitted method and the prepared rows that it is asked about, with the level and the rows' groups.

    ``targets`` are the names of what it predicts.
    """

    method: Any
    X: FloatArray
    alpha: Fraction
    targets: tuple[str, ...]
    groups: NDArray[Any] | None = None


@dataclass(frozen=True)
class Outcome:
    """What a trial measured: one number a metric, and JSON-able material for the report's pictures."""

    metrics: Mapping[str, float]
    detail: Mapping[str, Any] = field(default_factory=dict)
    notices: tuple[str, ...] = ()


class Task(ABC):
    """A kind of question: its split, the contract that a method must meet, its metrics."""

    name: ClassVar[str]
    #: the method to which others are compared, by card id
    reference: ClassVar[str]
    metrics: tuple[Metric, ...]
    #: metric of size (the recommended method is the smallest of the valid ones)
    size_metric: ClassVar[str]
    #: None: no level is promised, and the recommended method is the one of least size metric, a score
    coverage_metric: ClassVar[str | None]
    #: further metrics that the short table shows, after size and difference
    columns: tuple[str, ...] = ()
    #: whether it predicts several targets at once, and whether it needs a column that orders the rows
    several_targets: ClassVar[bool] = False
    over_time: ClassVar[bool] = False
    #: whether it looks at groups of rows, and whether methods are given bare predictions instead of rows
    by_group: ClassVar[bool] = False
    bare: bool = False
    #: seeds 0 .. max_seeds - 1 exist; None is any number
    max_seeds: ClassVar[int | None] = None
    #: metrics that the short table shows beside the coverage
    beside_coverage: ClassVar[tuple[str, ...]] = ()
    #: what it can be asked beside the level: arguments of its constructor, each with a default
    options: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def check(self, table: Table, alpha: Fraction) -> None:
        """Raise DataError or TaskError, with numbers, where the table cannot answer the question."""

    @abstractmethod
    def split(self, table: Table, seed: int) -> Any:
        """What a trial of that seed works on, the same for every method: a :class:`Split` for most tasks."""

    @abstractmethod
    def default_model(self) -> Any:
        """The model inside the methods when the user names none (an unfitted estimator)."""

    def default_quantile_model(self) -> Any:
        """The same for methods whose card says that the model learns quantiles."""
        return self.default_model()

    def fitting(self, model: Any) -> Any:
        """The user's model in the form in which this task's methods can use it; the model itself here."""
        return model

    @abstractmethod
    def accepts(self, method: Any) -> str | None:
        """None if the method (a class or an object) meets this task's contract, else what it lacks."""

    @abstractmethod
    def evaluate(self, method: Any, split: Any, alpha: Fraction) -> Outcome:
        """Fit and calibrate the method on the split, predict the test rows, measure.

        A method whose ``fit`` takes ``X_calib`` gets training and calibration rows apart; one
        with ``calibrate`` is fitted on the training rows, then calibrated; any other is fitted
        on both together. Where the split has groups, a method whose ``fit`` names ``groups`` gets them.
        """

    def final_split(self, table: Table, seed: int) -> Split:
        """All rows shared out for use: two thirds train, one third calibrates, none tests.

        Raises
        ------
        TaskError
            Methods of this task are not fitted once and kept.
        """
        raise TaskError(f"methods of the task {self.name!r} are not fitted once and kept")

    def answers(self, asked: Asked) -> dict[str, Any]:
        """Columns of what a fitted method says of prepared rows, n values each: name -> array or list."""
        raise NotImplementedError

    def covered(self, asked: Asked, y: NDArray[Any]) -> tuple[NDArray[np.bool_], FloatArray]:
        """(n,) which answers hold their target, and (n,) the sizes of the answers."""
        raise NotImplementedError

    def outcomes(self, table: Table) -> NDArray[Any]:
        """(n,) or (n, q) targets of a table in the form in which methods of this task get them."""
        raise NotImplementedError

    def requirement(self) -> str:
        """What a recommended method must be beside covering, as in "that are small"; "" for nothing else."""
        return ""

    def lacks(self, means: Mapping[str, float]) -> str | None:
        """None if a method with those mean metrics meets the requirement, else what it lacks."""
        return None

    def with_model(self, model: Any) -> Self:
        """The task for a question with that model (None: the task's own); most splits do not depend on it."""
        return self

    def decided(self, table: Table) -> Mapping[str, Any]:
        """Options that were not asked for and that the table decides."""
        return {}

    def notes(self, table: Table) -> tuple[str, ...]:
        """What the user should know of how the table is used, a line each."""
        return ()
