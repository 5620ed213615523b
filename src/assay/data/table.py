"""A validated table: what every task reads."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd


@dataclass(frozen=True)
class Table:
    """Features and target of a question, as the user gave them.

    ``frame`` holds features and target, one row a sample, rows without a target already left
    out; ``fingerprint`` is a hash of all values and the schema; ``notes`` say in one line each
    what was done to the data (rows left out, columns dropped).
    """

    name: str
    frame: pd.DataFrame
    target: str
    fingerprint: str
    source: str
    notes: tuple[str, ...] = field(default=())

    @property
    def X(self) -> pd.DataFrame:
        """Feature columns."""
        return self.frame.drop(columns=[self.target])

    @property
    def y(self) -> pd.Series:
        """The target column."""
        return self.frame[self.target]

    def __len__(self) -> int:
        return len(self.frame)
