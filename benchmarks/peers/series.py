"""Streams beside MAPIE and TorchCP: ACI on absolute scores, EnbPI's quantiles of the last residuals."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import online
from online import ALPHA
from runner import Case

STEPS = 1000
ACI_WINDOW, ENBPI_WINDOW = 500, 100


def residuals(window: int, steps: int = STEPS) -> Any:
    """Normal errors of a forecast of 0 whose spread doubles half way."""
    rng = np.random.default_rng(3)
    out = rng.normal(size=window + steps)
    out[window + steps // 2 :] *= 2
    return out


def aci_started(errors: Any) -> Any:
    """A tracker with a full window whose level has not moved yet, where the peers begin."""
    from assay.conformal.aci import AdaptiveTracker

    first = np.abs(errors[:ACI_WINDOW])
    tracker = AdaptiveTracker(ALPHA, gamma=0.005, window=ACI_WINDOW)
    tracker.run(first)
    state = tracker.get_state()
    state["levels"][:] = ALPHA
    state["threshold"][:] = np.sort(first)[int(np.ceil((1 - ALPHA) * (ACI_WINDOW + 1))) - 1]
    return tracker.set_state(state)


def aci_assay(errors: Any) -> Any:
    """This package, one update a step."""
    tracker = aci_started(errors)
    out = np.empty((len(errors) - ACI_WINDOW, 2))
    for t, score in enumerate(np.abs(errors[ACI_WINDOW:])):
        out[t] = -tracker.threshold_, tracker.threshold_
        tracker.update(score)
    return out


def aci_assay_run(errors: Any) -> Any:
    """This package, all steps in one call."""
    thresholds = aci_started(errors).run(np.abs(errors[ACI_WINDOW:]))
    return np.column_stack([-thresholds, thresholds])


def aci_mapie(errors: Any) -> Any:
    """MAPIE with one absolute score in place of its two one-sided ones."""
    from mapie.conformity_scores import AbsoluteConformityScore

    return online.mapie_aci(errors, ACI_WINDOW, conformity_score=AbsoluteConformityScore(sym=True))


def aci_torchcp(errors: Any) -> Any:
    """TorchCP's ACI on absolute scores."""
    return online.torchcp_aci(errors, ACI_WINDOW)


def enbpi_assay(errors: Any) -> Any:
    """This package, equal sides, one interval and one update a step."""
    from assay.conformal.enbpi import EnbPI

    method = EnbPI(past_window=ENBPI_WINDOW, fixed_beta=ALPHA / 2).fit(errors[:ENBPI_WINDOW])
    out = np.empty((len(errors) - ENBPI_WINDOW, 2))
    for t, error in enumerate(errors[ENBPI_WINDOW:]):
        out[t] = method.predict_interval(0.0, alpha=ALPHA)
        method.update(error)
    return out


def enbpi_mapie(errors: Any) -> Any:
    """MAPIE's EnbPI around a trained model, equal sides (its default)."""
    model = online.mapie_series("enbpi", errors, ENBPI_WINDOW)
    X, out = np.zeros((len(errors), 1)), np.empty((len(errors) - ENBPI_WINDOW, 2))
    for t in range(ENBPI_WINDOW, len(errors)):
        out[t - ENBPI_WINDOW] = model.predict(X[t : t + 1], confidence_level=1 - ALPHA)[1][0, :, 0]
        model.update(X[t : t + 1], errors[t : t + 1])
    return out


def agree(ours: Any, theirs: Any) -> str:
    """How many steps have the same ends, and the ratio of mean widths where some have not."""
    same = np.isclose(ours, theirs, rtol=1e-6, atol=1e-6).all(axis=1)
    if same.all():
        return "equal"
    lower, upper = np.isclose(ours, theirs, rtol=1e-6, atol=1e-6).mean(axis=0)
    finite = np.isfinite(ours).all(axis=1) & np.isfinite(theirs).all(axis=1)
    ratio = np.ptp(theirs[finite], axis=1).mean() / np.ptp(ours[finite], axis=1).mean()
    ends = f"lower ends equal at {lower:.0%} of steps, upper at {upper:.0%}"
    return f"{ends}; mean width {ratio:.3f} times ours"


CASES = [
    Case(
        f"ACI, {STEPS:,} steps, the last {ACI_WINDOW} scores",
        partial(residuals, ACI_WINDOW),
        {
            "assay": aci_assay,
            "assay, one call": aci_assay_run,
            "MAPIE": aci_mapie,
            "TorchCP": aci_torchcp,
        },
        3,
        agree,
        tiny=partial(residuals, ACI_WINDOW, 10),
        notes={"TorchCP": "weighs recent misses more when it moves the level"},
    ),
    Case(
        f"EnbPI, {STEPS:,} steps, the last {ENBPI_WINDOW} residuals",
        partial(residuals, ENBPI_WINDOW),
        {"assay": enbpi_assay, "MAPIE": enbpi_mapie},
        3,
        agree,
        tiny=partial(residuals, ENBPI_WINDOW, 10),
        notes={"MAPIE": "takes ranks among n + 1: the 96th of 100 residuals where the paper takes the 95th"},
    ),
]
