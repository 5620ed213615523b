"""SPCI: quantiles of the next residual from a forest on the residuals before it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.ensemble import RandomForestRegressor

from assay.conformal.enbpi import whole_window
from assay.conformal.residual_base import ResidualIntervals
from assay.conformal.shortest_interval import beta_levels, shortest_of
from assay.core.checks import FloatArray
from assay.core.errors import DataError
from assay.core.seeds import derive_seed, seed_of

_TOLERANCE = 1e-12
_BLOCK = 1 << 20
#: largest residuals for which the forest needs no other unit: it takes values that differ by 1e-7 as equal
_USUAL = (1e-3, 1e12)
#: in units of the forest, well within 32 bits
_FARTHEST = 1e30


class SPCI(ResidualIntervals):
    """The shortest interval between conditional quantiles of a forest, given the last residuals.

    A regression forest predicts each residual from the ``window`` before it. A past residual weighs, for
    the next one, its share of the leaf in which both windows lie, averaged over trees; the weighted
    quantiles at beta and 1 - alpha + beta are the interval, beta chosen for the shortest.

    Parameters
    ----------
    window : int
        Default 100, from the authors' code (300 for their electricity data).
    n_trees, max_depth : int
        Default 10 and 2, from the authors' code.
    n_beta : int
        Number of beta tried from 0 to alpha. Default 5, from the authors' code.
    fixed_beta : float, optional
        One beta and no search.
    history : int, optional
        How many residuals the forest is trained on; default as many as were fitted.
    refit_every : int
        Steps between trainings. Default 1, as in the paper; it is what a step costs.
    random_state : int, Generator, RandomState or None

    References
    ----------
    Xu, Xie: Sequential predictive conformal inference for time series. ICML 2023.
    Meinshausen: Quantile regression forests. JMLR 2006.

    Examples
    --------
    >>> import numpy as np
    >>> residuals = np.random.default_rng(0).normal(size=300)
    >>> SPCI(window=10, random_state=0).fit(residuals).predict_interval(5.0).shape
    (2,)
    """

    def __init__(
        self,
        window: int = 100,
        n_trees: int = 10,
        max_depth: int = 2,
        n_beta: int = 5,
        fixed_beta: float | None = None,
        history: int | None = None,
        refit_every: int = 1,
        random_state: Any = None,
    ) -> None:
        self.window = window
        self.n_trees = n_trees
        self.max_depth = max_depth
        self.n_beta = n_beta
        self.fixed_beta = fixed_beta
        self.history = history
        self.refit_every = refit_every
        self.random_state = random_state

    def _capacity(self, n: int) -> int:
        self._rows = n if self.history is None else whole_window(self.history, "history")
        # the forest in use was trained up to refit_every - 1 steps ago, and must be found again
        return self._rows + whole_window(self.refit_every, "refit_every") - 1

    def _learn(self, learned: Mapping[str, float] | None) -> None:
        width = whole_window(self.window, "window")
        if learned is not None:
            self._rows = int(learned["rows"])
        if min(len(self.history_), self._rows) <= width + 1:
            raise DataError(
                f"{min(len(self.history_), self._rows)} residuals remembered with windows of {width}: "
                f"more than {width + 1} are needed"
            )
        self._since = 0 if learned is None else int(learned["since"])
        self._seed = seed_of(self.random_state) if learned is None else int(learned["seed"])
        self._forest: _Forest | None = None

    def _learned(self) -> dict[str, float]:
        return {"since": self._since, "seed": self._seed, "rows": self._rows}

    def _follow(self) -> None:
        self._since += 1
        if self._since >= self.refit_every:
            self._since, self._forest = 0, None

    def _trained(self) -> _Forest:
        if self._forest is None:
            stop = len(self.history_) - self._since
            rows = slice(max(0, stop - self._rows), stop)
            seed = derive_seed("spci", self._seed, self.history_.seen - self._since)
            self._forest = _Forest(
                self.history_.values[rows], self.history_.segments[rows], int(self.window), self, seed
            )
        return self._forest

    def _offsets(self, level: Fraction) -> FloatArray:
        last = self.history_.values[-int(self.window) :]
        levels = beta_levels(level, self.n_beta, self.fixed_beta)
        return shortest_of(self._trained().quantiles(last[None], levels)[0])

    def _stream(self, residuals: FloatArray, levels: Sequence[Fraction]) -> FloatArray:
        grids = [beta_levels(level, self.n_beta, self.fixed_beta) for level in levels]
        out = np.empty((len(levels), len(residuals), 2))
        start, width = 0, int(self.window)
        while start < len(residuals):
            stop = min(start + self.refit_every - self._since, len(residuals))
            # all steps until the next training ask one forest, each about the residuals before it
            known = np.concatenate([self.history_.values[-width:], residuals[start : stop - 1]])
            asked = sliding_window_view(known, width)
            forest = self._trained()
            found = forest.quantiles(asked, np.concatenate(grids))
            for i, part in enumerate(np.split(found, len(levels), axis=1)):
                out[i, start:stop] = [shortest_of(row) for row in part]
            for residual in residuals[start:stop]:
                self._take(float(residual))
            start = stop
        return out


class _Forest:
    """Conditional quantiles of what follows a window."""

    def __init__(self, values: FloatArray, segments: Any, width: int, settings: SPCI, seed: int) -> None:
        windows = sliding_window_view(values[:-1], width)
        whole = segments[width:] == segments[:-width]
        order = np.argsort(values[width:][whole], kind="stable")
        X, self.targets = windows[whole][order], values[width:][whole][order]
        self._unit = _unit(values)
        X = self._scaled(X)
        self._model = RandomForestRegressor(
            settings.n_trees, max_depth=settings.max_depth, random_state=seed
        ).fit(X, self.targets / self._unit)
        self._leaves = self._model.apply(X)
        self._shares = np.empty(self._leaves.shape)
        for tree, leaves in enumerate(self._leaves.T):
            self._shares[:, tree] = 1 / (np.bincount(leaves)[leaves] * self._leaves.shape[1])

    def _scaled(self, windows: FloatArray) -> FloatArray:
        """In the unit of the forest, which holds numbers of 32 bits; further away is as far away."""
        return np.clip(windows / self._unit, -_FARTHEST, _FARTHEST)

    def quantiles(self, windows: FloatArray, levels: FloatArray) -> FloatArray:
        """(m, L) weighted quantiles for m windows."""
        asked = self._model.apply(self._scaled(windows))
        n = len(self.targets)
        out = np.empty((len(windows), len(levels)))
        rows = max(1, _BLOCK // n)
        for start in range(0, len(windows), rows):
            part = asked[start : start + rows]
            weights = np.zeros((len(part), n))
            for tree in range(self._leaves.shape[1]):
                same = part[:, tree, None] == self._leaves[None, :, tree]
                weights += same * self._shares[:, tree]
            mass = np.cumsum(weights, axis=1)
            mass /= mass[:, -1:]
            for i, row in enumerate(mass):
                at = np.minimum(np.searchsorted(row, levels - _TOLERANCE), n - 1)
                out[start + i] = self.targets[at]
        return out


def _unit(values: FloatArray) -> float:
    """1 for residuals of a usual size, else the power of two near the largest, by which division is exact."""
    largest = float(np.abs(values).max())
    return 1.0 if largest == 0 or _USUAL[0] <= largest <= _USUAL[1] else 2.0 ** math.frexp(largest)[1] / 2
