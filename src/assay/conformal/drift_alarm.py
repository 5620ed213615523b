"""An alarm for coverage that has drifted, with a level for false ones that holds at any time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.conformal.tracker_base import one_of, whole_number
from assay.core.checks import FloatArray
from assay.core.errors import MethodError
from assay.core.levels import parse_alpha

State = dict[str, NDArray[Any]]

SCOPES = ("series", "fleet")
SIDES = ("above", "both")
#: shares of the way from alpha to 1, and from alpha to 0, that the bets are made for
_ABOVE = (1 / 16, 1 / 6, 1 / 2)
_BELOW = (1 / 2, 9 / 10)
_OWN = ("wealth", "evidence", "tested", "tested_misses")
#: evidence beyond any threshold; keeps long runs of misses finite
_MOST = 1e300


class DriftAlarm:
    """Bets on the misses of each series; an alarm when the winnings could hardly be luck.

    The evidence of a series after t outcomes is a mean over bets b of

        E_t = (E_{t-1} + 1 / (t (t + 1))) (1 + b (miss_t - alpha)),    E_0 = 0:

    wealth that is put up bit by bit, so that a drift that begins late is found without first making good
    the losses of the calm before it. Each bet is the best against one miss rate p,
    ``b = (p - alpha) / (alpha (1 - alpha))``.

    *What is tested.* The null hypothesis is that each outcome, given all before it, is missed with a
    probability of at most alpha (side "above") or of exactly alpha (side "both"). Then ``E_t`` plus what
    has not been put up is a nonnegative supermartingale that starts at 1, and by Ville's inequality
    ``P(E_t >= 1 / level for some t) <= level``, whatever the length of the stream.

    *What that means for a tracker.* Its threshold falls after hits and rises after misses, so that even
    where nothing has changed the probability of the next miss goes up and down around alpha. The null
    holds exactly for a threshold that is right and stands still. Around a tracker the misses of a calm
    stream are spread more evenly than chance would, which makes false alarms rarer, but a step size so
    large that one hit drops the threshold far can break the null. A slow drift that the tracker follows
    widens the intervals and raises no alarm: coverage is then as promised.

    *Warm-up.* A new tracker starts from nothing and misses much until it has found its height. The first
    ``after`` outcomes of a series are not bet on.

    *Horizon.* Forecasts h steps ahead overlap, and so do their misses. Outcomes are dealt out in turn to h
    tests, each of outcomes h apart, at level / h each.

    *After an alarm* the test of that series begins anew. Under the null the chance of k alarms of a series
    is at most ``level ** k``, and the expected number at most ``level / (1 - level)``.

    Parameters
    ----------
    alpha : float
        Miss rate that is promised.
    level : level in (0, 1) or None
        Of false alarms; None: no alarms.
    scope : "series" or "fleet", default "series"
        "series": the chance that a series whose null holds is ever flagged is at most the level; among N
        such series up to N x level are expected to be. "fleet": at the end of each batch the e-BH rule is
        applied to all N series: the k with the largest evidence are flagged if each has at least
        ``N / (k level)``. Of those flagged at one time, the expected share of false ones is at most the
        level, however the series depend on each other.
    side : "above" or "both", default "above"
        "both" also looks for coverage above 1 - alpha.
    lanes : int
        The horizon h.
    after : int
        Outcomes of a series before its test begins.

    References
    ----------
    Ville (1939), Étude critique de la notion de collectif.
    Shin, Ramdas, Rinaldo (2024), E-detectors: a nonparametric framework for sequential change detection.
    Wang, Ramdas (2022), False discovery rate control with e-values.
    """

    def __init__(
        self,
        alpha: float,
        level: Any,
        scope: str = "series",
        side: str = "above",
        *,
        lanes: int = 1,
        after: int = 0,
    ) -> None:
        self.level = None if level is None else float(parse_alpha(level))
        if self.level == 0:
            raise MethodError("alarm_level must lie in (0, 1), or be None for no alarms")
        self.scope = one_of(scope, "alarm_scope", SCOPES)
        rates = [alpha + (1 - alpha) * share for share in _ABOVE]
        if one_of(side, "alarm_side", SIDES) == "both":
            rates += [alpha * (1 - share) for share in _BELOW]
        self.bets = (np.array(rates) - alpha) / (alpha * (1 - alpha))
        self.lanes = lanes
        self.after = whole_number(after, "alarm_after", 0)
        self._factors = np.stack([1 - self.bets * alpha, 1 + self.bets * (1 - alpha)])

    def fresh(self, n_series: int) -> State:
        """Arrays of n series without outcomes."""
        if self.level is None:
            return {}
        return {
            "wealth": np.zeros((n_series, self.lanes, len(self.bets))),
            "evidence": np.zeros(n_series),
            "tested": np.zeros(n_series, np.int64),
            "tested_misses": np.zeros(n_series, np.int64),
        }

    def learn(self, state: State, series: NDArray[np.int64], missed: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Learn one outcome of each of these series (k,), no series twice; (k,) who is above 1 / level.

        With scope "fleet" nobody is; ask :meth:`discoveries` at the end of the batch.
        """
        before = state["tested"][series]
        lane, t = before % self.lanes, before // self.lanes + 1.0
        wealth = state["wealth"][series, lane]
        wealth += (1.0 / (t * (t + 1.0)))[:, None]
        wealth *= self._factors[missed.astype(np.intp)]
        np.minimum(wealth, _MOST, out=wealth)
        state["wealth"][series, lane] = wealth
        state["tested"][series] = before + 1
        state["tested_misses"][series] += missed
        if self.lanes == 1:
            evidence = wealth.mean(axis=1)
        else:
            evidence = state["wealth"][series].mean(axis=2).max(axis=1) / self.lanes
        state["evidence"][series] = evidence
        if self.level is None or self.scope == "fleet":
            return np.zeros(len(series), np.bool_)
        return np.asarray(evidence >= 1.0 / self.level)

    def discoveries(self, evidence: FloatArray) -> NDArray[np.int64]:
        """Series that the e-BH rule flags among all n, given the evidence (n,) of each."""
        if self.level is None:
            return np.empty(0, np.int64)
        n = len(evidence)
        some = np.flatnonzero(evidence >= 1.0 / self.level)
        order = some[np.argsort(-evidence[some], kind="stable")]
        enough = evidence[order] * np.arange(1, len(order) + 1) >= n / self.level
        return order[: int(np.flatnonzero(enough).max(initial=-1)) + 1]

    def restart(self, state: State, series: NDArray[np.int64]) -> None:
        """Begin the tests of these series anew."""
        for name in _OWN:
            state[name][series] = 0
