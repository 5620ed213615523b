"""The online task: what it refuses, what a stretch holds, that nothing looks ahead, what it measures."""

import time
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from series_toys import Constant, Gradient, hourly, many

import assay
from assay.conformal.aci import AdaptiveTracker
from assay.conformal.online import OnlineConformalRegressor
from assay.core.errors import DataError, MethodError, TaskError
from assay.data.read import as_table
from assay.tasks import get_task, measures
from assay.tasks.online import OnlineTask
from assay.tasks.stretches import STRETCHES, parts

TENTH = Fraction(1, 10)


def one(frame=None, **options):
    return as_table(hourly(600) if frame is None else frame, "load", time="when", **options)


def group(frame=None):
    return as_table(many() if frame is None else frame, "value", time="step", group="name")


# --- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"load": list("ab") * 100}, TaskError, r"'load' is text \('a', 'b'\); an interval needs numbers"),
        ({"load": np.r_[np.inf, np.arange(199.0)]}, DataError, r"infinite in 1 of 200 rows, first at row 0"),
        ({"load": np.r_[np.nan, np.full(199, 3.0)]}, DataError, r"constant: 3 in all 199 rows"),
        (
            {"when": [*range(199), 7]},
            DataError,
            r"repeats an earlier one in 1 of 200 rows, first 7 in rows 7 and",
        ),
    ],
)
def test_tables_that_cannot_be_forecast(change, error, message):
    with pytest.raises(error, match=message):
        OnlineTask().check(one(hourly(200).assign(**change)), TENTH)


def test_series_too_short():
    with pytest.raises(TaskError, match=r"80 steps are too few at alpha 0\.1 and horizon 1: at least 100"):
        OnlineTask().check(one(hourly(80)), TENTH)
    with pytest.raises(TaskError, match=r"200 steps .* horizon 24: at least 480"):
        OnlineTask(horizon=24).check(one(hourly(200)), TENTH)
    with pytest.raises(TaskError, match=r"alpha 0\.01 .*: at least 990"):
        OnlineTask().check(one(), Fraction(1, 100))
    OnlineTask().check(one(hourly(100)), TENTH)


@pytest.mark.parametrize("horizon", [0, -1, 1.5, True, "2"])
def test_horizons(horizon):
    with pytest.raises(TaskError, match=r"horizon is .*; give a whole number of steps from 1"):
        OnlineTask(horizon=horizon)


def test_a_column_of_forecasts_leaves_no_room_for_a_model():
    task = get_task("online", forecast="wind")
    with pytest.raises(TaskError, match="forecasts are the column 'wind', so a model has no use"):
        task.with_model(object())
    with pytest.raises(DataError, match="no column 'sun' of forecasts; there are: wind"):
        get_task("online", forecast="sun").check(one(), TENTH)


# --- stretches ------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [100, 333, 600, 5842, 45_312])
def test_stretches_part_the_steps(n):
    history, size, burn_in = parts(n)
    assert history + STRETCHES * size <= n < history + STRETCHES * (size + 1)
    assert burn_in == min(500, n // 10)
    assert history - burn_in >= n // 10


def test_stretches_follow_one_another():
    table, task = one(), OnlineTask()
    splits = [task.split(table, k) for k in range(STRETCHES)]
    load = hourly(600)["load"].to_numpy()
    at = splits[0].first
    for k, split in enumerate(splits):
        assert (split.first, split.seed, split.burn_in) == (at, k, 60)
        origin = at - split.burn_in
        np.testing.assert_array_equal(split.y[0], load[origin : origin + split.y.shape[1]])
        at += split.y.shape[1] - split.burn_in
    assert at == 600
    with pytest.raises(TaskError, match=r"there are 5 stretches of time, seeds 0 to 4; got 5"):
        task.split(table, 5)


def test_nothing_in_a_stretch_depends_on_what_comes_later():
    frame = hourly(600)
    whole = OnlineTask(horizon=3).split(one(frame), 1)
    end = whole.first + 40
    cut = frame.copy()
    cut.loc[end:, ["load", "wind"]] = np.nan
    seen = OnlineTask(horizon=3).split(one(cut), 1)
    known = end - whole.first + whole.burn_in
    np.testing.assert_array_equal(seen.forecasts[:, : known + 3], whole.forecasts[:, : known + 3])
    intervals = [Gradient(horizon=3).run(s.y[0], s.forecasts[0])[: known + 3] for s in (seen, whole)]
    np.testing.assert_array_equal(*intervals)


def test_missing_targets_stay_missing():
    frame = hourly(600)
    frame.loc[[300, 301, 450], "load"] = np.nan
    table, task = one(frame), OnlineTask()
    gaps = sum(int(np.isnan(task.split(table, k).y[:, 60:]).sum()) for k in range(STRETCHES))
    assert gaps == 3
    split = task.split(table, 1)
    outcome = task.evaluate(Gradient(), split, TENTH)
    assert outcome.detail["n_test"] == np.isfinite(split.y[:, 60:]).sum()


def test_the_users_forecasts_are_taken():
    frame = hourly(600)
    frame["guess"] = frame["load"] + 1
    frame.loc[200, "guess"] = np.nan
    split = get_task("online", forecast="guess").split(one(frame), 0)
    difference = (split.forecasts - split.y)[0]
    gap = np.isnan(difference)
    np.testing.assert_allclose(difference[~gap], 1)
    assert np.flatnonzero(gap).tolist() == [200 - split.first + split.burn_in]
    assert split.notices == ("1 steps of stretch 0 have no forecast and are left out",)
    assert np.isfinite(split.forecasts).all()


def test_series_that_begin_or_end_within():
    frame = many((400, 400, 400, 150))
    late = many((400, 60))[lambda f: f["name"] == "s1"].assign(name="late")
    late["step"] += 340
    table, task = group(pd.concat([frame, late], ignore_index=True)), OnlineTask()
    by_stretch = [task.split(table, k) for k in range(STRETCHES)]
    assert "s3" in by_stretch[0].series
    assert "s3" not in by_stretch[4].series
    assert "late" not in by_stretch[4].series
    assert by_stretch[4].notices == (
        "1 series are left out of stretch 4: too little of their burn-in is known",
    )
    assert all(np.isfinite(s.forecasts).all() for s in by_stretch)


def test_no_series_is_left():
    frame = hourly(400)
    frame.loc[150:, "load"] = np.nan
    with pytest.raises(
        DataError, match=r"no series has targets and forecasts .* stretch 3 \(steps 280 to 339\)"
    ):
        OnlineTask().split(one(frame), 3)


# --- what is measured ---------------------------------------------------------------------------------


def test_metrics_by_hand():
    table, task = one(), OnlineTask()
    split = task.split(table, 2)
    outcome = task.evaluate(Constant(half=2.0), split, TENTH)
    error = np.abs(split.y - split.forecasts)[0, split.burn_in :]
    hits = error <= 2
    assert outcome.metrics["coverage"] == hits.mean()
    assert outcome.metrics["mean_width"] == pytest.approx(4)
    assert outcome.metrics["median_width"] == pytest.approx(4)
    assert outcome.metrics["coverage_deviation"] == pytest.approx(abs(hits.mean() - 0.9))
    expected = 4 + 20 * np.maximum(error - 2, 0).mean()
    assert outcome.metrics["interval_score"] == pytest.approx(expected)
    assert np.isnan(outcome.metrics["rolling_100_gap"])
    assert "no rolling coverage over 100 and 500 steps: a stretch has 90" in task.notes(table)
    assert outcome.notices == ("takes no alpha in its constructor: it ran at its own level",)
    assert "worst_series_coverage" not in outcome.metrics
    assert {m.name for m in task.metrics} >= set(outcome.metrics)


def test_many_series_are_weighed_alike():
    """Widths are in each series' own unit: a series a thousand times larger counts the same."""
    frame = many((300, 300))
    base = frame["value"][frame["name"] == "s0"].to_numpy()
    frame.loc[frame["name"] == "s1", "value"] = 1000 * base
    task = OnlineTask()
    split = task.split(group(frame), 0)

    class OwnScale(Constant):
        def run(self, y, forecasts):
            half = np.array([2.0, 2000.0])[:, None]
            return np.stack([forecasts - half, forecasts + half], axis=-1)

    outcome = task.evaluate(OwnScale(), split, TENTH)
    change = np.abs(np.diff(base[: split.first])).mean()
    assert outcome.metrics["mean_width"] == pytest.approx(4 / change)
    assert outcome.metrics["median_width"] == pytest.approx(4 / change)
    assert outcome.metrics["worst_series_coverage"] == pytest.approx(outcome.metrics["coverage"])
    assert outcome.detail["stretch"]["n_series"] == 2


def test_a_method_without_run_gets_a_copy_a_series():
    task = OnlineTask()
    split = task.split(group(), 0)
    outcome = task.evaluate(Constant(half=1e9), split, TENTH)
    assert outcome.metrics["coverage"] == 1.0


def test_infinite_widths_count():
    class Endless(Constant):
        def predict_interval(self, forecast):
            return -np.inf, forecast

    outcome = OnlineTask().evaluate(Endless(), OnlineTask().split(one(), 0), TENTH)
    assert outcome.metrics["mean_width"] == np.inf
    assert outcome.metrics["share_infinite"] == 1.0
    assert outcome.detail["series"]["lower"][0] is None


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda y: None, "run gave nothing"),
        (lambda y: np.zeros((len(y), 3)), r"the intervals have shape \(90, 3\); \(90, 2\) is expected"),
        (lambda y: np.full((len(y), 2), "a"), r"are no numbers \(dtype <U1\)"),
        (
            lambda y: np.where(np.arange(len(y)) == 5, np.nan, 0)[:, None] * [1, 1],
            "1 of 90 intervals have a NaN end, f",
        ),
    ],
)
def test_answers_that_are_none(answer, message):
    class Odd:
        def run(self, y, forecasts):
            return answer(y)

    with pytest.raises(MethodError, match=message):
        OnlineTask().evaluate(Odd(), OnlineTask().split(one(), 0), TENTH)


def test_methods_that_would_look_ahead_are_refused():
    task = OnlineTask(horizon=4)
    split = task.split(one(), 0)
    with pytest.raises(MethodError, match="Constant takes no horizon: with forecasts 4 steps ahead"):
        task.evaluate(Constant(), split, TENTH)
    task.evaluate(Gradient(horizon=4), split, TENTH)


def test_what_a_method_lacks():
    class Half:
        def predict_interval(self, forecast):
            return 0, 1

    task = OnlineTask()
    assert task.accepts(Half) == "Half has no run(y, forecasts), and no update(y)"
    assert task.accepts(Gradient) is None
    assert task.accepts(Constant()) is None


def test_what_a_method_compiles_is_not_counted_as_its_time():
    class Compiled(Gradient):
        def warm_up(self):
            time.sleep(0.3)

    task, table = OnlineTask(), one()
    metrics = task.evaluate(Compiled(), task.split(table, 0), TENTH).metrics
    assert metrics["fit_seconds"] < 0.2
    regressor = OnlineConformalRegressor(AdaptiveTracker(window=None))
    regressor.warm_up()
    assert not hasattr(regressor, "tracker_")


def test_rows_in_order_without_a_column_of_times_are_a_series():
    frame = hourly(300)[["load"]]
    frame.loc[40:42, "load"] = np.nan
    found = assay.compare(frame, "load", task="online", methods=[Gradient], seeds=1, in_process=True)
    assert not found.failed
    assert "3 of 300 rows: the target 'load' is missing there; the series keeps them" in found.info.notes
    assert any(note.startswith("300 steps: ") for note in found.info.notes)


def test_a_shift_is_marked_where_errors_double():
    frame = hourly(1000).assign(load=np.random.default_rng(0).normal(size=1000))
    at = 500
    frame.loc[at:, "load"] *= 5
    task = get_task("online", forecast="wind")
    frame["wind"] = 0.0
    frame.loc[0, "wind"] = 1e-9
    table = one(frame)
    found = [task.evaluate(Gradient(), task.split(table, k), TENTH).detail["shift"] for k in range(STRETCHES)]
    marked = [s for s in found if s]
    assert len(marked) == 1
    assert abs(marked[0]["step"] - at) <= 3
    assert marked[0]["factor"] > 3


def test_rolling_gap_on_a_small_case():
    hits = np.array([[1, 1, 0, 0, 1, 1], [1, 1, 1, 1, 1, 1]], dtype=bool)
    judged = np.ones_like(hits)
    assert measures.rolling_coverage(hits[0], 2).tolist() == [1, 0.5, 0, 0.5, 1]
    assert measures.rolling_gap(hits[:1], judged[:1], 2, TENTH) == pytest.approx(0.9)
    assert measures.rolling_gap(hits, judged, 2, TENTH) == pytest.approx((0.9 + 0.1) / 2)
    assert np.isnan(measures.rolling_gap(hits, judged, 7, TENTH))
    judged[0, 2:4] = False
    assert measures.rolling_gap(hits[:1], judged[:1], 2, TENTH) == pytest.approx(0.1)


def test_binomial_range():
    low, high = measures.binomial_coverage(1000, TENTH)
    assert (low, high) == (0.881, 0.918)
