"""A validated table: what every task reads."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd

from assay.core.errors import DataError


@dataclass(frozen=True)
class Table:
    """The columns of a question, as the user gave them, and the role of each.

    ``frame`` holds all columns, one row a sample; ``targets`` are those to predict. ``time`` is the
    column that orders the rows of a series; ``group`` names the series there, and a group of rows
    where there is no time. Rows without a target are already left out, except in a table with
    ``time``, where an outcome that is missing is part of the series. ``fingerprint`` is a hash of
    all values, the schema and the roles; ``notes`` say in one line each what was done to the data
    (rows left out, columns dropped).
    """

    name: str
    frame: pd.DataFrame
    targets: tuple[str, ...]
    fingerprint: str
    source: str
    notes: tuple[str, ...] = field(default=())
    time: str | None = None
    group: str | None = None
    #: whether methods see the group column among the features (never in a series)
    group_is_feature: bool = True
    #: feature columns of rows from elsewhere, on which methods should be less sure; in the fingerprint too
    shifted: pd.DataFrame | None = None

    @property
    def target(self) -> str:
        """The targets as a label: "price", or "lat, price"."""
        return ", ".join(self.targets)

    @property
    def features(self) -> tuple[str, ...]:
        """Feature columns: neither a target nor the time, nor a group that is no feature."""
        hidden = self.time is not None or not self.group_is_feature
        others = {*self.targets, self.time, self.group if hidden else None}
        return tuple(name for name in self.frame.columns if name not in others)

    @property
    def X(self) -> pd.DataFrame:
        """Feature columns."""
        return self.frame[list(self.features)]

    @property
    def y(self) -> pd.Series:
        """The target column of a table that has one target."""
        if len(self.targets) != 1:
            raise DataError(f"one target is needed here; {len(self.targets)} are given: {self.target}")
        return self.frame[self.targets[0]]

    @property
    def Y(self) -> pd.DataFrame:
        """The target columns, (n, q), in the order in which they were named."""
        return self.frame[list(self.targets)]

    def __len__(self) -> int:
        return len(self.frame)
