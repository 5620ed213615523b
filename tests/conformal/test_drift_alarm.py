"""The alarm: Ville's bound by simulation, the delay under a drift, lanes, and the rule over a fleet."""

import numpy as np
import pytest

from assay.conformal.drift_alarm import DriftAlarm
from assay.core.errors import MethodError

_ALPHA = 0.1


def first_alarms(alarm, misses):
    """Step of each series' first alarm, -1 where there is none; misses (n, T)."""
    n, steps = misses.shape
    state, every = alarm.fresh(n), np.arange(n)
    found = np.full(n, -1)
    for t in range(steps):
        loud = alarm.learn(state, every, misses[:, t])
        found[loud & (found < 0)] = t
    return found


@pytest.mark.parametrize("side", ["above", "both"])
@pytest.mark.parametrize("level", [0.2, 0.02])
def test_false_alarms_stay_below_the_level(side, level):
    n = 20_000
    misses = np.random.default_rng(1).random((n, 800)) < _ALPHA
    rate = (first_alarms(DriftAlarm(_ALPHA, level, side=side), misses) >= 0).mean()
    assert rate <= level + 3 * np.sqrt(level / n)
    assert rate > level / 20  # the bound is not kept by never speaking


def test_the_level_holds_for_misses_that_depend_on_the_past():
    # the chance of a miss moves with the last outcome, and is never above alpha
    rng = np.random.default_rng(2)
    n, level = 20_000, 0.05
    misses = np.zeros((n, 600), bool)
    for t in range(600):
        chance = np.where(misses[:, t - 1], _ALPHA, 0.06) if t else _ALPHA
        misses[:, t] = rng.random(n) < chance
    assert (first_alarms(DriftAlarm(_ALPHA, level), misses) >= 0).mean() <= level


@pytest.mark.parametrize(("rate", "calm", "longest"), [(0.6, 500, 45), (0.25, 500, 300), (0.25, 5000, 350)])
def test_a_drift_is_found_soon_however_long_the_calm(rate, calm, longest):
    rng = np.random.default_rng(3)
    n = 500
    misses = np.concatenate([rng.random((n, calm)) < _ALPHA, rng.random((n, 800)) < rate], axis=1)
    delay = first_alarms(DriftAlarm(_ALPHA, 0.001), misses) - calm
    assert (delay >= -calm).all()
    assert np.median(delay) < longest


def test_both_sides_find_intervals_that_are_too_wide():
    misses = np.random.default_rng(4).random((200, 2000)) < 0.01
    assert (first_alarms(DriftAlarm(_ALPHA, 0.001, side="both"), misses) >= 0).all()
    assert (first_alarms(DriftAlarm(_ALPHA, 0.001), misses) < 0).all()


def test_overlapping_forecasts_need_lanes():
    # misses h steps ahead come in runs of h: one test of all of them cries, h lanes do not
    h, n, level = 12, 4000, 0.02
    runs = np.repeat(np.random.default_rng(5).random((n, 60)) < _ALPHA, h, axis=1)
    one = (first_alarms(DriftAlarm(_ALPHA, level), runs) >= 0).mean()
    lanes = (first_alarms(DriftAlarm(_ALPHA, level, lanes=h), runs) >= 0).mean()
    assert one > 0.3
    assert lanes <= level


def test_evidence_by_hand():
    alarm = DriftAlarm(0.1, 0.5)
    state = alarm.fresh(1)
    here = np.zeros(1, np.int64)
    wealth = np.zeros(3)
    for t, missed in enumerate([True, False, True], 1):
        wealth = (wealth + 1 / (t * (t + 1))) * (1 + alarm.bets * (missed - 0.1))
        alarm.learn(state, here, np.array([missed]))
        assert state["evidence"][0] == pytest.approx(wealth.mean(), rel=1e-14)
    assert (state["tested"][0], state["tested_misses"][0]) == (3, 2)
    alarm.restart(state, here)
    assert all(not array.any() for array in state.values())


def test_no_bet_can_lose_more_than_there_is():
    for alpha in (0.001, 0.1, 0.5, 0.999):
        alarm = DriftAlarm(alpha, 0.01, side="both")
        assert (1 - alarm.bets * alpha >= 0).all()
        assert (1 + alarm.bets * (1 - alpha) >= 0).all()


def test_long_runs_of_misses_stay_finite():
    alarm = DriftAlarm(0.001, 0.01, "fleet")
    state = alarm.fresh(1)
    for _ in range(2000):
        alarm.learn(state, np.zeros(1, np.int64), np.ones(1, bool))
    assert np.isfinite(state["evidence"]).all()


def test_the_rule_over_a_fleet_by_hand():
    alarm = DriftAlarm(0.1, 0.1, "fleet")
    # of 5 series: k largest, each with at least 5 / (0.1 k)
    assert alarm.discoveries(np.array([1.0, 49.0, 1.0, 0.0, 2.0])).tolist() == []
    assert alarm.discoveries(np.array([1.0, 50.0, 1.0, 0.0, 2.0])).tolist() == [1]
    assert sorted(alarm.discoveries(np.array([25.0, 30.0, 1.0, 0.0, 2.0])).tolist()) == [0, 1]
    assert alarm.discoveries(np.array([])).tolist() == []


def test_of_those_flagged_in_a_fleet_few_are_false():
    rng = np.random.default_rng(6)
    n, drifted, level = 2000, 100, 0.1
    shares = []
    for _ in range(10):
        alarm = DriftAlarm(_ALPHA, level, "fleet")
        state, every = alarm.fresh(n), np.arange(n)
        for t in range(300):
            chance = np.where((every < drifted) & (t >= 200), 0.5, _ALPHA)
            assert not alarm.learn(state, every, rng.random(n) < chance).any()
        found = alarm.discoveries(state["evidence"])
        assert len(found) > 80
        shares.append((found >= drifted).mean())
    assert np.mean(shares) <= level


@pytest.mark.parametrize("bad", [0, 1, -0.1, "x", float("nan")])
def test_a_level_outside_0_and_1_is_refused(bad):
    with pytest.raises(MethodError):
        DriftAlarm(0.1, bad)
    with pytest.raises(MethodError, match="alarm_scope"):
        DriftAlarm(0.1, 0.1, "planet")
    with pytest.raises(MethodError, match="alarm_side"):
        DriftAlarm(0.1, 0.1, side="below")
