"""The verdict on a claim, from the values of each seed. Never written by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from assay.claims.claim import Claim
from assay.engine.stats import Estimate, estimate

Outcome = Literal["holds", "does not hold", "undecided", "skipped"]


@dataclass(frozen=True)
class Verdict:
    """What the seeds say: the outcome, why, and the gain with its 95 % interval."""

    outcome: Outcome
    reason: str
    gain: Estimate


def judge(
    claim: Claim,
    ours: Mapping[int, float],
    versus: Mapping[int, float],
    ratio: float,
    failures: int = 0,
    seeds: Iterable[int] = (),
) -> Verdict:
    """Whether the paired gain lies on the side that the claim says.

    ``holds`` if the whole 95 % interval of the mean gain is at or above the margin, ``does not hold``
    if the whole of it is below, else ``undecided``; also ``undecided`` where trials failed or values
    are missing or infinite: an interval over the seeds that went well would flatter. With margin 0
    the claim is that one is better, so no difference at all on every seed does not hold.

    Parameters
    ----------
    ours, versus : seed -> value
    ratio : float
        n_test / n_train of overlapping splits (Nadeau and Bengio); 0 for independent repetitions.
    failures : int
        Trials that did not finish.
    seeds
        All that were asked for; one without a value on either side is missing.
    """
    sign = 1 if claim.better == "higher" else -1
    shared = [seed for seed in ours if seed in versus]
    every = {*seeds, *ours, *versus}
    gain = estimate({seed: sign * (ours[seed] - versus[seed]) for seed in shared}, ratio)
    if claim.exact and math.isfinite(gain.mean):
        # the same on every seed: the value is its own interval
        gain = replace(gain, low=gain.mean, high=gain.mean)
    if failures:
        return Verdict("undecided", f"{failures} trials did not finish", gain)
    if not shared:
        return Verdict("undecided", f"nothing was measured as {claim.metric}", gain)
    if missing := len(every) - len(shared) + len(gain.undefined):
        return Verdict("undecided", f"no value on {missing} of {len(every)} seeds", gain)
    if gain.low is None or gain.high is None:
        infinite = math.isinf(gain.mean) or gain.infinite
        return Verdict("undecided", "infinite values" if infinite else "too few seeds", gain)
    if gain.low > claim.margin or (gain.low == claim.margin and claim.margin != 0):
        return Verdict("holds", "", gain)
    if gain.high < claim.margin or (gain.high == claim.margin == 0):
        return Verdict("does not hold", "", gain)
    return Verdict("undecided", f"the 95 % interval of the gain holds {claim.margin:g}", gain)
