"""Running means and spreads of members that arrive one by one, in a bounded number of groups of members."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from assay.core.checks import FloatArray


class GroupMoments:
    """Mean and sum of squared deviations over members, of q values a row, by group of members (Welford).

    Members go to the groups in turn. Up to ``n_groups`` members each is a group of its own; beyond that
    memory stands still: ``n_groups`` arrays (n, q).

    Attributes
    ----------
    counts : (n_groups,) members a group
    """

    def __init__(self, n_rows: int, n_values: int, n_groups: int) -> None:
        self.shape = n_rows, n_values
        self.n_groups = n_groups
        self.counts = np.zeros(n_groups, dtype=np.intp)
        self._means: list[FloatArray] = []
        self._squares: list[FloatArray] = []

    @property
    def n_members(self) -> int:
        """Members seen."""
        return int(self.counts.sum())

    @property
    def used(self) -> int:
        """Groups with a member."""
        return len(self._means)

    def open(self) -> int:
        """Count one more member; the group that its rows go to."""
        group = self.n_members % self.n_groups
        if group == self.used:
            self._means.append(np.zeros(self.shape))
            self._squares.append(np.zeros(self.shape[0]))
        self.counts[group] += 1
        return group

    def add(self, group: int, rows: slice, values: FloatArray) -> None:
        """Some rows' (r, q) values of the member that was opened last."""
        mean, count = self._means[group][rows], self.counts[group]
        if count == 1:
            mean[:] = values
            return
        step = values - mean
        mean += step / count
        self._squares[group][rows] += np.einsum("ij,ij->i", step, values - mean)

    def mean(self, groups: NDArray[np.intp] | None = None) -> FloatArray:
        """(n, q) mean over the members of some groups, or of all."""
        chosen = np.arange(self.used) if groups is None else groups
        weights = self.counts[chosen] / self.counts[chosen].sum()
        out = np.zeros(self.shape)
        for weight, group in zip(weights, chosen, strict=True):
            out += weight * self._means[group]
        return out

    def variance(self) -> FloatArray:
        """(n,) variance over all members, divisor m - 1, summed over the q values of a row."""
        mean, squares, count = self._means[0].copy(), self._squares[0].copy(), int(self.counts[0])
        for group in range(1, self.used):
            more = int(self.counts[group])
            step = self._means[group] - mean
            squares += self._squares[group]
            squares += np.einsum("ij,ij->i", step, step) * (count * more / (count + more))
            count += more
            mean += step * (more / count)
        return squares / (count - 1)

    def leave_group_out(self) -> Iterator[tuple[int, float, float]]:
        """For each group the members of the others, and their estimates of the asymptote and the variance.

        The values are errors: the asymptote is the mean over rows of a squared mean error, unbiased, and
        the variance that of :meth:`variance`, averaged over rows.
        """
        n, used = self.shape[0], self.used
        counts = self.counts[:used].astype(np.float64)
        products = np.empty((used, used))
        for i in range(used):
            for j in range(i + 1):
                products[i, j] = products[j, i] = np.vdot(self._means[i], self._means[j]) / max(n, 1)
        within = np.array([squares.sum() / max(n, 1) for squares in self._squares])
        for left in range(used):
            keep = np.arange(used) != left
            m = counts[keep].sum()
            alone = (within[keep] + counts[keep] * np.diag(products)[keep]).sum()
            together = counts[keep] @ products[np.ix_(keep, keep)] @ counts[keep]
            asymptote = (together - alone) / (m * (m - 1))
            yield int(m), float(asymptote), float(alone / m - asymptote)
