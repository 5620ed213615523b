"""The online contract, one forecast and outcome at a time, and its checks."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.testing.laws import LawBroken, NotApplicable, law, require
from assay.testing.saving_laws import read, written
from assay.testing.subject import Contract, Subject, require_close

_STEPS = 300
_LONG = 100_000


class Streams(Contract):
    """``predict_interval(forecast)``, ``update(y)``, ``run(y, forecasts) -> (T, 2)``."""

    task = "online"
    predict = "run"
    shared = False

    def applies(self, subject: Subject) -> bool:
        return subject.has("predict_interval", "update", "run")

    def rows(self, n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """(forecasts, outcomes) of a series whose noise doubles half way."""
        rng = np.random.default_rng(seed)
        forecasts = np.sin(np.arange(n) / 10)
        return forecasts, forecasts + rng.normal(size=n) * np.where(np.arange(n) < n // 2, 1.0, 2.0)

    def covers(self, method: Any, X: Any, y: Any) -> NDArray[np.bool_]:
        ends = np.asarray(method.run(y, X))
        return np.asarray((ends[:, 0] <= y) & (y <= ends[:, 1]))

    def unbounded(self, answer: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((answer[..., 0] == -np.inf) & (answer[..., 1] == np.inf))

    def require_same(self, got: Any, expected: Any, what: str) -> None:
        require_close(got, expected, what)


CONTRACTS = (Streams(),)


def _by_hand(method: Any, forecasts: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """(T, 2) intervals asked for and answered one step at a time."""
    out = np.empty((len(y), 2))
    for t in range(len(y)):
        out[t] = np.asarray(method.predict_interval(forecasts[t])).reshape(2)
        method.update(y[t])
    return out


@law("batching")
def run_is_step_by_step(contract: Streams, subject: Subject) -> None:
    """A whole series at once, in two parts and step by step give one answer."""
    forecasts, y = contract.rows(_STEPS, seed=0)
    whole = np.asarray(subject.make().run(y, forecasts))
    require(whole.shape == (_STEPS, 2), f"run gives shape {whole.shape}, expected {(_STEPS, 2)}")
    contract.require_same(
        _by_hand(subject.make(), forecasts, y), whole, "step by step against the whole series"
    )
    method = subject.make()
    parts = [method.run(y[:90], forecasts[:90]), method.run(y[90:], forecasts[90:])]
    contract.require_same(np.concatenate(parts), whole, "in two parts against the whole series")


@law("streams")
def goes_on_beyond_every_level(contract: Streams, subject: Subject) -> None:
    """Long runs of misses and of hits drive an adaptive level out of [0, 1]; the stream goes on."""
    y = np.concatenate([np.geomspace(1, 1e6, 200) * np.where(np.arange(200) % 2, 1, -1), np.zeros(2000)])
    ends = np.asarray(subject.make().run(y, np.zeros(len(y))))
    require(ends.shape == (len(y), 2), f"{len(y)} steps give shape {ends.shape}")
    require(
        not np.isnan(ends).any(), f"{int(np.isnan(ends).any(axis=1).sum())} of {len(y)} intervals are NaN"
    )
    again = np.asarray(subject.make().run(np.concatenate([y, [0.5]]), np.zeros(len(y) + 1)))
    contract.require_same(again[:-1], ends, "the same series with one more step")


@law("streams")
def missing_outcomes_change_nothing(contract: Streams, subject: Subject) -> None:
    """A NaN outcome leaves the state as it was: the next interval is the one before."""
    forecasts, y = contract.rows(50, seed=1)
    method = subject.make()
    _by_hand(method, forecasts, y)
    before = np.asarray(method.predict_interval(0.0))
    method.update(np.nan)
    contract.require_same(method.predict_interval(0.0), before, "after a missing outcome")
    require(not np.isnan(before).any(), "the interval is NaN")


@law("streams")
def constant_memory(contract: Streams, subject: Subject) -> None:
    """After 100,000 steps the state is no larger than after 2,000."""
    forecasts, y = contract.rows(_LONG, seed=2)
    sizes = []
    method = subject.make()
    for start, stop in ((0, 2_000), (2_000, _LONG)):
        method.run(y[start:stop], forecasts[start:stop])
        sizes.append(len(pickle.dumps(method)))
    require(
        sizes[1] <= 1.1 * sizes[0] + 1024,
        f"the object takes {sizes[0]} bytes after 2,000 steps and {sizes[1]} after {_LONG:,}",
    )


@law("object-life")
def state_can_be_moved(contract: Streams, subject: Subject) -> None:
    """A copy, an unpickled object, and one with the state of get_state go on as the original does."""
    forecasts, y = contract.rows(_STEPS, seed=3)
    method = subject.make()
    method.run(y[:100], forecasts[:100])
    others = {"deepcopy": copy.deepcopy(method), "pickle": pickle.loads(pickle.dumps(method))}
    if subject.has("get_state", "set_state"):
        others["set_state"] = subject.make()
        others["set_state"].set_state(method.get_state())
    expected = method.run(y[100:], forecasts[100:])
    for name, other in others.items():
        contract.require_same(other.run(y[100:], forecasts[100:]), expected, f"after {name}")


@law("nan-inf")
def missing_forecasts_are_refused(contract: Streams, subject: Subject) -> None:
    """A NaN forecast gives a ValueError, never a NaN interval."""
    try:
        ends = np.asarray(subject.make().predict_interval(np.nan))
    except ValueError:
        return
    require(not np.isnan(ends).any(), "a NaN forecast becomes a NaN interval")


@law("alpha")
def stream_levels_outside_are_refused(contract: Streams, subject: Subject) -> None:
    """A level outside [0, 1) is a ValueError that names alpha, at the latest at the first interval."""
    if not subject.takes("alpha"):
        raise NotApplicable("it takes no alpha")
    for level in (1, -0.1, 1.5, float("nan")):
        try:
            subject.make(alpha=level).predict_interval(0.0)
        except ValueError as error:
            require("alpha" in str(error), f"alpha = {level}: the error must name alpha, and says: {error}")
        else:
            raise LawBroken(f"alpha = {level}: accepted")


@law("saving")
def saved_and_loaded_goes_on(contract: Streams, subject: Subject) -> None:
    """A stream that is saved half way and loaded goes on with the same bits."""
    forecasts, y = contract.rows(_STEPS, seed=0)
    method = subject.make()
    method.run(y[:200], forecasts[:200])
    loaded = read(*written(method))
    got, expected = (np.asarray(m.run(y[200:], forecasts[200:])) for m in (loaded, method))
    require(np.array_equal(got, expected, equal_nan=True), "its intervals have other bits")
