"""Forecasters: nothing looks ahead, seasons are found, and the numbers are right on small cases."""

import numpy as np
import pandas as pd
import pytest
from series_toys import hourly, many
from sklearn.linear_model import LinearRegression
from sklearn.tree import DecisionTreeRegressor

from assay.core.errors import DataError, TaskError
from assay.tasks.forecasting import (
    AR,
    ETS,
    ColumnForecaster,
    LagForecaster,
    SeasonalNaive,
    Theta,
    as_forecaster,
    season_lengths,
)
from assay.tasks.series import make_panel

ORIGIN, STOP = 300, 380


def one(frame=None):
    return make_panel(hourly(400) if frame is None else frame, "load", "when")


def group(frame=None):
    return make_panel(many() if frame is None else frame, "value", "step", "name")


def blinded(frame, names, after):
    """The same table with target and other columns unknown from a step on."""
    out = frame.copy()
    late = out.groupby("name").cumcount() >= after if "name" in out else np.arange(len(out)) >= after
    out.loc[late, names] = np.nan
    return out


@pytest.mark.parametrize("horizon", [1, 5, 30])
@pytest.mark.parametrize(
    "forecaster",
    [LagForecaster(), LagForecaster(DecisionTreeRegressor(max_depth=4, random_state=0)), SeasonalNaive()],
    ids=["ridge", "tree", "naive"],
)
def test_nothing_looks_ahead(forecaster, horizon):
    frame = hourly(400)
    whole = forecaster.forecast(one(frame), ORIGIN, STOP, horizon)
    assert whole.shape == (1, STOP - ORIGIN)
    for t in (ORIGIN, ORIGIN + 1, ORIGIN + 40, STOP - 1):
        past = blinded(frame, ["load", "wind"], t - horizon + 1)
        seen = forecaster.forecast(one(past), ORIGIN, STOP, horizon)
        np.testing.assert_array_equal(seen[:, : t - ORIGIN + 1], whole[:, : t - ORIGIN + 1])


@pytest.mark.parametrize("horizon", [1, 4])
@pytest.mark.parametrize("forecaster", [AR(), Theta(), ETS()], ids=["ar", "theta", "ets"])
def test_statsforecast_does_not_look_ahead(forecaster, horizon):
    pytest.importorskip("statsforecast")
    frame = hourly(140)
    whole = forecaster.forecast(one(frame), 120, 126, horizon)
    assert np.isfinite(whole).all()
    past = blinded(frame, ["load", "wind"], 123 - horizon + 1)
    # what is carried over the missing part is only seen later
    np.testing.assert_array_equal(forecaster.forecast(one(past), 120, 124, horizon), whole[:, :4])


def test_statsforecast_ar_is_its_own_forecast():
    models = pytest.importorskip("statsforecast.models")
    frame = hourly(130)
    y = frame["load"].to_numpy()
    expected = models.ARIMA(order=(3, 0, 0)).fit(y[:120]).predict(h=1)["mean"]
    assert AR().forecast(one(frame), 120, 121)[0] == pytest.approx(expected, rel=1e-9)


def test_nothing_looks_ahead_in_many_series():
    frame = many()
    whole = LagForecaster().forecast(group(frame), 200, 240, 2)
    past = blinded(frame, ["value"], 219)
    seen = LagForecaster().forecast(group(past), 200, 240, 2)
    np.testing.assert_array_equal(seen[:, :21], whole[:, :21])


def test_lagged_model_by_hand():
    """Without season, calendar or other columns: least squares of the scaled change on the scaled level."""
    y = np.cumsum(np.random.default_rng(3).normal(size=60))
    panel = make_panel(pd.DataFrame({"load": y}), "load")
    got = LagForecaster(LinearRegression(), lags=1, seasons=()).forecast(panel, 50, 60)
    change, level = np.diff(y[:50]), y[:49] - y[:50].mean()
    slope, start = np.polyfit(level, change, 1)
    expected = y[49:59] + start + slope * (y[49:59] - y[:50].mean())
    np.testing.assert_allclose(got[0], expected, rtol=1e-10)


def test_learns_a_season_and_a_trend():
    t = np.arange(400)
    frame = hourly(400).assign(load=0.5 * t + 10 * np.sin(2 * np.pi * t / 24))
    panel = one(frame)
    for model in (LagForecaster(), LagForecaster(DecisionTreeRegressor(random_state=0))):
        error = np.abs(model.forecast(panel, ORIGIN, STOP, 24) - panel.y[:, ORIGIN:STOP]).mean()
        naive = np.abs(SeasonalNaive(1).forecast(panel, ORIGIN, STOP, 24) - panel.y[:, ORIGIN:STOP]).mean()
        assert naive == pytest.approx(12.0)
        assert error < 0.5


def test_uses_the_other_columns_at_the_last_known_step_only():
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    lagged = hourly(400).assign(load=np.r_[0.0, x[:-1]] + rng.normal(size=400) / 10, wind=x)
    same = hourly(400).assign(load=x + rng.normal(size=400) / 10, wind=x)
    errors = [
        np.abs(LagForecaster().forecast(one(f), ORIGIN, STOP) - f["load"].to_numpy()[ORIGIN:STOP]).mean()
        for f in (lagged, same)
    ]
    assert errors[0] < 0.2
    assert errors[1] > 0.5


def test_seasonal_naive_on_a_small_case():
    y = np.array([1.0, 2, 3, 4, np.nan, 6, 7, 8, 9])
    panel = make_panel(pd.DataFrame({"y": y}), "y")
    np.testing.assert_array_equal(SeasonalNaive(2).forecast(panel, 4, 9), [[3, 4, 6, 6, 7]])
    # three steps ahead at season 2: four steps back; y[4] is missing, so the last known by then is carried
    np.testing.assert_array_equal(SeasonalNaive(2).forecast(panel, 6, 9, 3), [[3, 4, 6]])
    assert np.isnan(SeasonalNaive(2).forecast(panel, 0, 1)).all()


def test_scales_do_not_mix():
    """A series that is another one times a thousand gets forecasts times a thousand."""
    frame = many((300, 300))
    base = frame["value"][frame["name"] == "s0"].to_numpy()
    frame.loc[frame["name"] == "s1", "value"] = 1000 * base
    out = LagForecaster().forecast(group(frame), 200, 300)
    np.testing.assert_allclose(out[1], 1000 * out[0], rtol=1e-8)


def test_column_of_forecasts():
    frame = hourly(60).assign(f=np.arange(60.0), g=["a"] * 60)
    panel = one(frame.drop(index=[30]).sample(frac=1, random_state=0))
    expected = np.arange(20.0, 40)
    expected[10] = np.nan
    np.testing.assert_array_equal(ColumnForecaster("f").forecast(panel, 20, 40), [expected])
    with pytest.raises(DataError, match=r"no column 'h' of forecasts; there are: wind, f, g"):
        ColumnForecaster("h").forecast(panel, 20, 40)
    with pytest.raises(DataError, match=r"forecasts 'g' is no numbers"):
        ColumnForecaster("g").forecast(panel, 20, 40)


@pytest.mark.parametrize(
    ("freq", "season"),
    [("h", (24, 168)), ("30min", (48,)), ("D", (7,)), ("W", (52,)), ("MS", (12,)), ("QS", (4,)), ("7h", ())],
)
def test_seasons_of_the_calendar(freq, season):
    n = 500
    frame = pd.DataFrame(
        {"when": pd.date_range("1950-01-01", periods=n, freq=freq), "load": np.arange(n) % 9.0}
    )
    found = season_lengths(one(frame), n)
    assert found == (season or (9,))


def test_seasons_found_in_the_values():
    rng = np.random.default_rng(0)
    t = np.arange(600)
    wave = make_panel(pd.DataFrame({"y": np.sin(2 * np.pi * t / 37) + 0.03 * rng.normal(size=600)}), "y")
    walk = make_panel(pd.DataFrame({"y": np.cumsum(rng.normal(size=600))}), "y")
    assert season_lengths(wave, 600) == (37,)
    assert season_lengths(walk, 600) == ()
    assert season_lengths(wave, 60) == ()


def test_nothing_to_learn_from():
    y = np.r_[np.full(50, np.nan), np.arange(50.0)]
    panel = make_panel(pd.DataFrame({"y": y}), "y")
    with pytest.raises(TaskError, match="no step of the first 40 has both a target and a value"):
        LagForecaster().forecast(panel, 40, 60)


def test_what_a_model_stands_for():
    regressor = LinearRegression()
    assert as_forecaster(regressor).estimator is regressor
    assert isinstance(as_forecaster(None), LagForecaster)
    naive = SeasonalNaive(3)
    copy = as_forecaster(naive)
    assert copy is not naive
    assert copy.season == 3


def test_a_series_far_above_its_past_is_still_forecast_beside_a_column_that_moves_with_it():
    """The column stops at four deviations; the level must stop with it, or their difference runs away."""
    n, rng = 1200, np.random.default_rng(0)
    fair = np.exp(np.cumsum(rng.normal(0.004, 0.02, size=n)))
    price = fair * (1 + rng.normal(0, 0.02, size=n))  # the next price lies around the fair one
    frame = pd.DataFrame({"t": np.arange(n), "price": price, "fair": fair})
    panel = make_panel(frame, "price", "t")
    forecast = LagForecaster().forecast(panel, 700, n)[0]
    naive = np.abs(np.diff(price[699:])).mean()
    assert np.abs(price[700:] - forecast).mean() < 1.2 * naive


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("exponent", [-990, -530, 500, 980])
def test_forecasts_of_any_size_are_scaled_to_the_bit(exponent):
    frame = hourly(400)
    expected = LagForecaster().forecast(one(frame), ORIGIN, STOP)
    frame["load"] = frame["load"] * 2.0**exponent
    got = LagForecaster().forecast(one(frame), ORIGIN, STOP)
    np.testing.assert_array_equal(got, expected * 2.0**exponent)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("exponent", [-990, 980])
def test_seasons_of_values_of_any_size(exponent):
    y = np.sin(2 * np.pi * np.arange(400) / 12) + 0.1 * np.random.default_rng(0).normal(size=400)
    frame = pd.DataFrame({"step": np.arange(400), "y": y * 2.0**exponent})
    assert season_lengths(make_panel(frame, "y", "step"), ORIGIN) == (12,)


def test_targets_beyond_all_sums_are_refused():
    frame = hourly(400)
    frame.loc[3, "load"] = 1e301
    with pytest.raises(DataError, match="1 of 400 targets are beyond 1e"):
        LagForecaster().forecast(one(frame), ORIGIN, STOP)
