"""A fleet gives what single streams give; each row counts once, in whatever batches and order it comes."""

import datetime

import numpy as np
import pytest

from assay.conformal import Fleet
from assay.conformal.eci import ErrorQuantifiedTracker
from assay.conformal.fleet import STATUS
from assay.conformal.ogd import OnlineGradientTracker
from assay.conformal.online import OnlineConformalRegressor
from assay.core.cards import all_cards, build_argument
from assay.core.errors import AssayError, DataError, MethodError

_NAN = np.nan


def made(horizon=1, **options):
    tracker = ErrorQuantifiedTracker(lr=0.3, window=8)
    return Fleet(tracker, alpha=0.1, horizon=horizon, alarm_after=20, **options)


def stream(n=6, steps=60, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, steps)), rng.normal(size=(n, steps)) * 0.2


def statuses(step):
    return [STATUS[code] for code in step.status]


def same_state(one, two, *, but=()):
    a, b = one.get_state(), two.get_state()
    assert set(a) == set(b)
    for name in set(a) - set(but):
        np.testing.assert_array_equal(a[name], b[name], err_msg=name)


@pytest.fixture(params=["signed", "absolute"])
def score(request):
    return request.param


@pytest.mark.parametrize("horizon", [1, 3])
def test_intervals_are_those_of_single_streams(score, horizon):
    y, forecasts = stream()
    tracker = ErrorQuantifiedTracker(lr=0.3, window=8)
    expected = OnlineConformalRegressor(tracker, score=score, alpha=0.1, horizon=horizon).run(y, forecasts)
    n, steps = y.shape
    by_step, at_once, sparse = (made(horizon, score=score) for _ in range(3))
    ids = [f"s{i}" for i in range(n)]
    for t in range(steps):
        ahead = by_step.predict(ids, forecasts[:, t])
        step = by_step.update(ids, [t] * n, forecasts[:, t], y[:, t])
        np.testing.assert_array_equal(step.interval, expected[:, t])
        np.testing.assert_array_equal(ahead, expected[:, t])
        inside = (expected[:, t, 0] <= y[:, t]) & (y[:, t] <= expected[:, t, 1])
        np.testing.assert_array_equal(step.covered, inside)
        for i in range(n):
            sparse.update([ids[i]], [t], forecasts[i : i + 1, t], y[i : i + 1, t])
    step = at_once.update(np.repeat(ids, steps), np.tile(np.arange(steps), n), forecasts.ravel(), y.ravel())
    np.testing.assert_array_equal(step.interval.reshape(expected.shape), expected)
    same_state(by_step, at_once, but=("id_text", "id_bytes"))
    same_state(by_step, sparse)


_TRACKERS = {card.id: card.defaults["tracker"] for card in all_cards().values() if "tracker" in card.defaults}


@pytest.mark.parametrize("horizon", [1, 3])
@pytest.mark.parametrize("name", _TRACKERS)
def test_every_tracker_of_a_card_gives_the_same_in_a_fleet(name, horizon):
    y, forecasts = stream(n=10, steps=40)
    n, steps = y.shape
    expected = OnlineConformalRegressor(build_argument(_TRACKERS[name]), alpha=0.2, horizon=horizon).run(
        y, forecasts
    )
    whole, sparse, ahead = (
        Fleet(build_argument(_TRACKERS[name]), alpha=0.2, horizon=horizon) for _ in range(3)
    )
    ids, nothing = np.arange(n), np.full(n, _NAN)
    for t in range(steps + horizon - 1):
        known = t - horizon + 1
        if t < steps:
            step = whole.update(ids, np.full(n, t), forecasts[:, t], y[:, t])
            np.testing.assert_array_equal(step.interval, expected[:, t])
            one = t % n
            parts = [sparse.update([i], [t], forecasts[i : i + 1, t], y[i : i + 1, t]) for i in (one,)]
            rest = np.delete(ids, one)
            parts.append(sparse.update(rest, np.full(n - 1, t), forecasts[rest, t], y[rest, t]))
            np.testing.assert_array_equal(parts[0].interval[0], expected[one, t])
            np.testing.assert_array_equal(parts[1].interval, expected[rest, t])
            issued = ahead.update(ids, np.full(n, t), forecasts[:, t], nothing)
            np.testing.assert_array_equal(issued.interval, expected[:, t])
        if known >= 0:
            ahead.update(ids, np.full(n, known), nothing, y[:, known])
    same_state(whole, ahead, but=("counts", "waiting_rows"))
    other = Fleet(build_argument(_TRACKERS[name]), alpha=0.2, horizon=horizon).set_state(whole.get_state())
    same_state(whole, other)
    np.testing.assert_array_equal(whole.predict(ids, y[:, 0]), other.predict(ids, y[:, 0]))


def test_rows_of_a_batch_may_come_in_any_order():
    y, forecasts = stream()
    n, steps = y.shape
    ids, times = np.repeat(np.arange(n), steps), np.tile(np.arange(steps), n)
    shuffled = np.random.default_rng(1).permutation(len(ids))
    plain, mixed = made(), made()
    one = plain.update(ids, times, forecasts.ravel(), y.ravel())
    two = mixed.update(ids[shuffled], times[shuffled], forecasts.ravel()[shuffled], y.ravel()[shuffled])
    np.testing.assert_array_equal(one.interval[shuffled], two.interval)
    np.testing.assert_array_equal(one.alarm[shuffled], two.alarm)
    assert plain.coverage() == mixed.coverage()


@pytest.mark.parametrize("horizon", [1, 2, 5])
def test_forecasts_issued_ahead_get_the_intervals_of_complete_rows(score, horizon):
    y, forecasts = stream()
    n, steps = y.shape
    tracker = ErrorQuantifiedTracker(lr=0.3, window=8)
    expected = OnlineConformalRegressor(tracker, score=score, alpha=0.1, horizon=horizon).run(y, forecasts)
    fleet = made(horizon, score=score)
    ids, nothing = np.arange(n), np.full(n, _NAN)
    for t in range(steps + horizon - 1):
        if t < steps:
            if t:
                np.testing.assert_array_equal(fleet.predict(ids, forecasts[:, t]), expected[:, t])
            step = fleet.update(ids, np.full(n, t), forecasts[:, t], nothing)
            assert set(statuses(step)) == {"issued"}
            np.testing.assert_array_equal(step.interval, expected[:, t])
        if (known := t - horizon + 1) >= 0:
            step = fleet.update(ids, np.full(n, known), nothing, y[:, known])
            assert set(statuses(step)) == {"learned"}
            np.testing.assert_array_equal(step.interval, expected[:, known])
            np.testing.assert_array_equal(step.forecast, forecasts[:, known])
    complete = made(horizon, score=score)
    for t in range(steps):
        complete.update(ids, np.full(n, t), forecasts[:, t], y[:, t])
    same_state(fleet, complete, but=("counts", "waiting_rows"))


def test_repeated_and_late_rows_change_nothing():
    y, forecasts = stream()
    n, steps = y.shape
    once, twice = made(), made()
    ids = np.arange(n)
    for t in range(steps):
        row = ids, np.full(n, t), forecasts[:, t], y[:, t]
        once.update(*row)
        twice.update(*row)
        again = twice.update(*row)
        assert set(statuses(again)) == {"repeated"}
        assert np.isnan(again.interval).all()
        assert (again.covered == -1).all()
        if t:
            late = twice.update(ids, np.full(n, t - 1), forecasts[:, t], y[:, t] + 100)
            assert set(statuses(late)) == {"late"}
    same_state(once, twice, but=("counts",))
    assert twice.counts["repeated"] == n * steps
    assert twice.counts["late"] == n * (steps - 1)
    # within one batch too
    both = made()
    doubled = [np.tile(values, 2) for values in (np.repeat(ids, steps), np.tile(np.arange(steps), n))]
    step = both.update(*doubled, np.tile(forecasts.ravel(), 2), np.tile(y.ravel(), 2))
    assert statuses(step) == ["learned"] * (n * steps) + ["repeated"] * (n * steps)
    assert both.coverage() == once.coverage()


def test_a_row_without_outcome_gets_an_interval_and_the_outcome_may_follow():
    fleet, plain = made(), made()
    for t, y in [(1, 3.0), (2, -1.0)]:
        fleet.update(["a"], [t], [0.0], [y])
        plain.update(["a"], [t], [0.0], [y])
    before = fleet.get_state()
    step = fleet.update(["a"], [3], [0.5], [_NAN])
    assert statuses(step) == ["issued"]
    np.testing.assert_array_equal(step.interval, plain.predict(["a"], [0.5]))
    after = fleet.get_state()
    for name in before:
        if name.startswith("tracker.") or name in ("last", "outcomes", "misses"):
            np.testing.assert_array_equal(before[name], after[name])
    assert statuses(fleet.update(["a"], [3], [0.7], [_NAN])) == ["repeated"]
    # the forecast that was issued counts, whatever the later row says
    step = fleet.update(["a"], [3], [99.0], [1.0])
    assert (statuses(step), step.forecast.tolist()) == (["learned"], [0.5])
    plain.update(["a"], [3], [0.5], [1.0])
    same_state(fleet, plain, but=("counts", "waiting_rows"))
    assert statuses(fleet.update(["a"], [3], [_NAN], [1.0])) == ["repeated"]


def test_an_outcome_that_comes_after_a_later_one_is_late():
    fleet = made()
    fleet.update(["a"], [1], [0.0], [_NAN])
    fleet.update(["a"], [2], [0.0], [1.0])
    assert statuses(fleet.update(["a"], [1], [_NAN], [1.0])) == ["late"]
    assert fleet.counts["given up"] == 1


def test_no_more_forecasts_wait_than_the_horizon():
    fleet = made(3)
    for t in range(10):
        fleet.update(["a"], [t], [float(t)], [_NAN])
    assert fleet.counts["given up"] == 7
    assert fleet.get_state()["waiting"].shape == (1, 3)
    assert statuses(fleet.update(["a"], [6], [_NAN], [0.0])) == ["no forecast"]
    assert statuses(fleet.update(["a"], [6], [6.0], [_NAN])) == ["late"]
    step = fleet.update(["a", "a", "a"], [9, 7, 8], [_NAN] * 3, [0.0] * 3)
    assert statuses(step) == ["learned"] * 3
    assert step.forecast.tolist() == [9.0, 7.0, 8.0]


def test_rows_that_cannot_be_used_are_named_and_bring_no_series():
    fleet = made()
    step = fleet.update(
        ["a", "b", "c", "d", "e"],
        [1] * 5,
        [_NAN, np.inf, 0.0, _NAN, 1.0],
        [1.0, 1.0, -np.inf, _NAN, 1.0],
    )
    assert statuses(step) == ["no forecast", "not finite", "not finite", "no forecast", "learned"]
    assert fleet.series == ["e"]
    assert fleet.counts["not finite"] == 2


def test_series_come_one_by_one_or_many_at_once():
    y, forecasts = stream(n=40)
    grown, reserved = made(), made()
    ids = [f"s{i}" for i in range(40)]
    reserved.update(ids, [0] * 40, forecasts[:, 0], y[:, 0])
    for i in range(40):
        grown.update(ids[i : i + 1], [0], forecasts[i : i + 1, 0], y[i : i + 1, 0])
    for t in range(1, 30):
        for fleet in (grown, reserved):
            fleet.update(ids, [t] * 40, forecasts[:, t], y[:, t])
    same_state(grown, reserved)


def test_a_state_goes_on_in_another_fleet(score):
    y, forecasts = stream()
    n, steps = y.shape
    through = made(2, score=score)
    first = made(2, score=score)
    ids = [f"sérïes {i}" for i in range(n)]
    for t in range(steps):
        if t == steps // 2:
            first.update(ids, [t] * n, forecasts[:, t], [_NAN] * n)
            through.update(ids, [t] * n, forecasts[:, t], [_NAN] * n)
            second = made(2, score=score).set_state(first.get_state())
            first.update(ids, [t] * n, forecasts[:, t], y[:, t])  # has no say any more
            first = second
        for fleet in (through, first):
            fleet.update(ids, [t] * n, forecasts[:, t], y[:, t])
    same_state(through, first)
    assert first.series == ids


def test_an_empty_state_and_an_empty_batch():
    fleet = made().set_state(made().get_state())
    step = fleet.update([], [], [], [])
    assert step.interval.shape == (0, 2)
    fleet.update(["a"], [1], [0.0], [1.0])
    assert fleet.coverage() == {"a": (1, 1)}


def test_a_state_that_does_not_fit_is_refused():
    fleet = made()
    fleet.update(["a", "b"], [1, 1], [0.0, 0.0], [1.0, 1.0])
    state = fleet.get_state()
    with pytest.raises(DataError, match="tracker's state has the arrays"):
        Fleet(OnlineGradientTracker()).set_state({k: v for k, v in state.items() if k != "tracker.base"})
    for change in (
        {"last": state["last"][:1]},
        {"misses": state["misses"].astype(float)},
        {"tracker.window": state["tracker.window"][..., :3]},
        {"id_bytes": state["id_bytes"][:1]},
    ):
        with pytest.raises(DataError):
            made().set_state({**state, **change})
    with pytest.raises(DataError, match="has the arrays"):
        made().set_state({name: array for name, array in state.items() if name != "issued"})


def test_dates_with_and_without_a_zone_are_one_time():
    fleet = made()
    noon = datetime.datetime(2024, 5, 1, 12)
    fleet.update(["a"], np.array(["2024-05-01T12:00"], "datetime64[m]"), [0.0], [1.0])
    zone = datetime.timezone(datetime.timedelta(hours=2))
    again = [noon, noon.replace(tzinfo=datetime.UTC), datetime.datetime(2024, 5, 1, 14, tzinfo=zone)]
    assert statuses(fleet.update(["a"] * 3, again, [0.0] * 3, [1.0] * 3)) == ["repeated"] * 3
    assert fleet.time_kind == "date"
    with pytest.raises(DataError, match="times are numbers, but those before were dates"):
        fleet.update(["a"], [1], [0.0], [1.0])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((["a"], [1.5], [0.0], [1.0]), "not whole"),
        ((["a"], [_NAN], [0.0], [1.0]), "missing"),
        ((["a"], ["soon"], [0.0], [1.0]), "neither whole numbers nor dates"),
        ((["a"], [2**63], [0.0], [1.0]), "too large"),
        ((["a"], np.array(["NaT"], "datetime64[s]"), [0.0], [1.0]), "missing"),
        (([1.5], [1], [0.0], [1.0]), "neither text nor whole numbers"),
        (([None], [1], [0.0], [1.0]), "neither text nor whole numbers"),
        (([True], [1], [0.0], [1.0]), "neither text nor whole numbers"),
        ((["a"], [1, 2], [0.0], [1.0]), "1 ids, but 2 times"),
        ((["a"], [1], [0.0, 1.0], [1.0]), "2 rows"),
        ((["a"], [1], [0.0], ["x"]), "not numbers"),
        (("a", [1], [0.0], [1.0]), "must be a sequence"),
    ],
)
def test_what_is_no_batch_is_refused_and_changes_nothing(rows, message):
    fleet = made()
    before = fleet.get_state()
    with pytest.raises(DataError, match=message):
        fleet.update(*rows)
    after = fleet.get_state()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_a_prediction_needs_a_finite_forecast_and_knows_new_series():
    fleet = made()
    with pytest.raises(DataError, match="1 of 2 forecasts are not finite"):
        fleet.predict(["a", "b"], [0.0, _NAN])
    fleet.update(["a"], [1], [0.0], [5.0])
    got = fleet.predict(["new", "a"], [1.0, 1.0])
    assert got[0].tolist() == [1.0, 1.0]
    assert got[1, 1] > 1.0
    assert fleet.series == ["a"]


def test_alarms_come_with_the_row_that_raised_them():
    rng = np.random.default_rng(0)
    n, steps = 30, 200
    fleet = Fleet(OnlineGradientTracker(lr=0.02), alpha=0.1, alarm_level=0.001, alarm_after=100)
    ids = [f"s{i}" for i in range(n)]
    drifts = []
    for t in range(steps):
        scale = np.where((np.arange(n) < 3) & (t >= 150), 30.0, 0.05)
        step = fleet.update(ids, [t] * n, np.zeros(n), rng.normal(size=n) * scale)
        assert step.alarm.sum() == len(step.drifts)
        drifts += step.drifts
    assert {drift.series_id for drift in drifts} == {"s0", "s1", "s2"}
    assert all(drift.time >= 150 and drift.evidence >= 1000 for drift in drifts)
    assert fleet.get_state()["alarms"].sum() == len(drifts)


def test_alarms_over_the_fleet_and_none_at_all():
    fleet = made(alarm_scope="fleet", alarm_level=0.1)
    quiet = made(alarm_level=None)
    drifts = []
    for t in range(60):
        y = np.array([0.0, 2.0**t, 0.0])
        step = fleet.update(["a", "b", "c"], [t] * 3, np.zeros(3), y)
        drifts += step.drifts
        assert step.alarm.tolist() == [False, bool(step.drifts), False]
        assert not quiet.update(["a", "b", "c"], [t] * 3, np.zeros(3), y).drifts
    assert {drift.series_id for drift in drifts} == {"b"}
    assert "wealth" not in quiet.get_state()


def test_a_tracker_must_be_one():
    with pytest.raises(MethodError, match="must be an unfitted tracker"):
        Fleet("eci")
    with pytest.raises(AssayError):
        Fleet(ErrorQuantifiedTracker(), score="both")
    with pytest.raises(MethodError, match="alarm_after"):
        made_late(-1)


def made_late(after):
    return Fleet(ErrorQuantifiedTracker(), alarm_after=after)


@pytest.mark.parametrize("waits", [True, False])
def test_a_residual_without_bounds_does_not_spoil_its_series(waits):
    fleet, plain = made(), made()
    for t, (forecast, y) in enumerate(
        [(0.0, 1.0), (1e308, -1e308), (-1e308, 1e308), (0.0, 2.0), (0.0, -1.0)]
    ):
        if waits:
            fleet.update(["a"], [t], [forecast], [_NAN])
        step = fleet.update(["a"], [t], [_NAN if waits else forecast], [y])
        assert statuses(step) == ["not finite" if abs(forecast) > 1 else "learned"]
        if abs(forecast) < 1:
            plain.update(["a"], [t], [forecast], [y])
    same_state(fleet, plain, but=("counts", "waiting_rows", "issued"))
    assert np.isfinite(fleet.predict(["a"], [0.0])).all()


def test_the_clocks_of_a_fleet():
    fleet = Fleet(ErrorQuantifiedTracker(lr=0.1), alpha=0.1)
    assert fleet.newest is None
    fleet.update(["a", "b", "b"], [3, 1, 7], [0, 0, 0], [1, 1, np.nan])
    assert fleet.newest == 7
    assert fleet.clock("a") == (3, 3)
    assert fleet.clock("b") == (1, 7)
    with pytest.raises(DataError, match="no series 'c' in this fleet of 2"):
        fleet.clock("c")
