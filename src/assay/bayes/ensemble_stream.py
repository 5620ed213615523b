"""What is kept of members that go by: moments, a score of each, and what is wrong with them."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.bayes.ensemble_losses import CLIP, Loss, harden
from assay.bayes.ensemble_members import MemberReader
from assay.bayes.ensemble_moments import GroupMoments
from assay.core.checks import FloatArray
from assay.core.errors import AssayWarning, DataError

#: members that differ by more standard errors than this were not made by one recipe
HOMOGENEOUS = 5.0


@dataclass
class MemberStream:
    """What is kept of the members that went by."""

    reader: MemberReader
    loss: Loss
    method: str
    n_groups: int
    scores: list[float] = field(default_factory=list)
    score_errors: list[float] = field(default_factory=list)
    n_clipped: int = 0

    @property
    def n_members(self) -> int:
        """Members that went by."""
        return len(self.scores)

    def check(self, member: Any, labels: Any) -> None:
        """Raise whatever :meth:`add` would, before anything is changed."""
        for _ in self.reader.read(member, labels, self.n_members).blocks():
            pass

    def add(self, member: Any, labels: Any) -> None:
        """Take the predictions of one member."""
        read = self.reader.read(member, labels, self.n_members)
        if self.n_members == 0:
            self.moments = GroupMoments(self.reader.n_rows, self.loss.width(read.n_columns), self.n_groups)
            self.single_rows = np.zeros(self.reader.n_rows)
            self.single_groups = np.zeros(self.n_groups)
        group = self.moments.open()
        total = squares = 0.0
        for rows, block in read.blocks():
            truth = self.reader.truth[rows]
            score = self._score(block, truth)
            total += float(score.sum())
            squares += float(score @ score)
            values = self.loss.values(harden(block) if self.method == "collapse" else block, truth)
            self.moments.add(group, rows, values)
            if self.method == "inverse_m":
                single = self.loss.of_mean(values, truth)
                self.single_rows[rows] += single
                self.single_groups[group] += single.sum()
            if self.loss.name == "nll":
                self.n_clipped += int((values < CLIP).sum())
        n = self.reader.n_rows
        self.scores.append(total / n)
        variance = squares / n - (total / n) ** 2
        if not self.reader.numbers:
            # of few rows all may be right: one more hit and one more miss keep that from being certain
            accuracy = (total + 1) / (n + 2)
            variance = accuracy * (1 - accuracy)
        self.score_errors.append(math.sqrt(max(variance, 0.0) / n))

    def _score(self, block: FloatArray, truth: NDArray[Any]) -> FloatArray:
        if self.reader.numbers:
            return np.asarray(((block - truth) ** 2).sum(axis=1))
        return np.asarray(block.argmax(axis=1) == truth, dtype=np.float64)

    def refuse(self, loss: str, method: str, force: bool) -> None:
        """Raise where these members allow no forecast."""
        if self.n_members < 2:
            raise DataError(
                f"{self.n_members} member{'s' * (self.n_members != 1)}: how much members differ takes at "
                "least 2, alike but for their seeds; give an array (m, n, K) or an iterable of (n, K)"
            )
        if (loss, method) == ("error", "collapse") and len(self.reader.classes) != 2:
            raise DataError(
                f"the majority law is for 2 classes, these are {len(self.reader.classes)}; "
                "use method='inverse_m'"
            )
        high, low = int(np.argmax(self.scores)), int(np.argmin(self.scores))
        gap = self.scores[high] - self.scores[low]
        error = math.hypot(self.score_errors[high], self.score_errors[low])
        if gap > HOMOGENEOUS * error and not force:
            what = "mean squared errors" if self.reader.numbers else "accuracies"
            raise DataError(
                f"{what} of members {low} and {high} are {self.scores[low]:.4g} and {self.scores[high]:.4g}, "
                f"more than {HOMOGENEOUS:g} standard errors ({error:.2g}) apart: a forecast is of members "
                "of one recipe that differ by their seed alone; leave out the others, or give force=True"
            )

    def warn(self, variance: float) -> None:
        """Say what makes a forecast doubtful."""
        said = []
        right = 0.0 if self.reader.numbers else 1.0
        if all(score == right for score in self.scores):
            said.append("every member is right on every row: are these the rows that they were trained on?")
        elif self.loss.name != "error" and abs(variance) < 1e-14:
            said.append(
                "all members predict the same, so more of them gain nothing: were their seeds the same?"
            )
        if self.n_clipped:
            said.append(
                f"{self.n_clipped} of {self.n_members * self.reader.n_rows} probabilities of the true class "
                f"were below {CLIP:g} and are raised to it; their logarithms decide the forecast"
            )
        if self.n_members == 2:
            said.append(
                "with 2 members the interval covers the chance of the rows alone, not that of the members; "
                "3 or more allow for both"
            )
        for text in said:
            warnings.warn(text, AssayWarning, stacklevel=4)
