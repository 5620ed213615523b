"""Series of a table: order, spacing, repeats and gaps each have a clear answer."""

import numpy as np
import pandas as pd
import pytest
from series_toys import hourly, many

from assay.core.errors import DataError
from assay.data.read import as_table
from assay.tasks.series import make_panel, show_time


def panel_of(frame, **roles):
    return make_panel(frame, roles.pop("target", "load"), roles.pop("time", "when"), roles.pop("group", None))


def test_one_series_in_order():
    frame = hourly(50)
    panel = panel_of(frame)
    assert (panel.n_series, panel.n_steps, panel.step, panel.notes) == (1, 50, 3600, ())
    np.testing.assert_array_equal(panel.y[0], frame["load"])
    np.testing.assert_array_equal(panel.rows[0], np.arange(50))
    assert list(panel.frame.columns) == ["wind"]


def test_shuffled_rows_give_the_same_series_with_a_notice():
    frame = hourly(50)
    shuffled = frame.sample(frac=1, random_state=1).reset_index(drop=True)
    panel = panel_of(shuffled)
    np.testing.assert_array_equal(panel.y, panel_of(frame).y)
    assert panel.notes == ("the rows were not in order of 'when': sorted",)
    np.testing.assert_array_equal(shuffled["load"].to_numpy()[panel.rows[0]], frame["load"])


def test_without_times_the_order_of_rows_counts():
    panel = panel_of(hourly(50), time=None)
    assert panel.n_steps == 50
    assert "when" in panel.frame
    assert "no column of times" in panel.notes[0]


def test_missing_steps_of_a_regular_series_are_put_in():
    frame = hourly(100).drop(index=[10, 11, 40]).reset_index(drop=True)
    panel = panel_of(frame)
    assert panel.n_steps == 100
    assert np.flatnonzero(panel.rows[0] < 0).tolist() == [10, 11, 40]
    assert np.isnan(panel.y[0, [10, 11, 40]]).all()
    assert panel.notes == ("3 of 100 steps of 1 hour have no row: put in",)


def test_irregular_times_are_rows_with_a_notice():
    days = pd.bdate_range("2024-01-01", periods=60)
    panel = panel_of(pd.DataFrame({"when": days, "load": np.arange(60.0)}))
    assert panel.n_steps == 60
    assert np.isnan(panel.step)
    assert "11 of 59 steps are not 1 day (shortest 1 day, longest 3 days): steps are rows" in panel.notes[0]


@pytest.mark.parametrize("freq", ["MS", "ME"])
def test_months_are_regular(freq):
    frame = pd.DataFrame(
        {"when": pd.date_range("2000-01-01", periods=60, freq=freq), "load": np.arange(60.0)}
    )
    assert panel_of(frame).notes == ()


def test_repeated_times_name_their_rows():
    frame = hourly(40)
    frame.loc[30, "when"] = frame.loc[12, "when"]
    with pytest.raises(
        DataError, match=r"in 1 of 40 rows, first 2024-01-01 12:00 in rows 12 and 30; leave one"
    ):
        panel_of(frame)


def test_repeated_times_of_several_series_name_their_column():
    frame = many()
    with pytest.raises(DataError, match=r"repeats .* in 540 of 840 rows, .* tells them apart: 'name'"):
        panel_of(frame, target="value", time="step")
    again = pd.concat([frame, frame.iloc[[7]]], ignore_index=True)
    with pytest.raises(DataError, match=r"of the series 's0' in 1 of 841 rows, first 8 in rows 7 and 840"):
        panel_of(again, target="value", time="step", group="name")


def test_clocks_put_back_are_named():
    zoned = pd.date_range("2023-10-01", periods=24 * 40, freq="h", tz="Europe/Berlin")
    local = pd.DataFrame({"when": zoned.tz_localize(None), "load": np.arange(960.0)})
    with pytest.raises(DataError, match="clocks are put back: give times with their offset"):
        panel_of(local)
    panel = panel_of(as_table(local.assign(when=zoned), "load").frame)
    assert (panel.step, panel.notes) == (3600, ())


def test_offsets_of_several_zones_are_one_time():
    frame = hourly(60)
    offsets = [0 if i % 2 else 5 for i in range(60)]
    text = [
        f"{(t + pd.Timedelta(hours=h)).isoformat()}+0{h}:00"
        for t, h in zip(frame["when"], offsets, strict=True)
    ]
    panel = panel_of(as_table(frame.assign(when=text), "load").frame)
    np.testing.assert_array_equal(panel.y, panel_of(frame).y)
    assert panel.notes == ()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["01/02/2024"] * 40, r"the time 'when' is text, such as '01/02/2024': dates are read as YYYY-MM-DD"),
        (["monday", "tuesday"] * 20, r"is text, such as 'monday': give dates as YYYY-MM-DD HH:MM, or whole"),
        ([*map(float, range(39)), np.inf], r"infinite in 1 of 40 rows, first at row 39"),
        ([0.0, np.nan, *map(float, range(38))], r"missing in 1 of 40 rows, first at row 1"),
    ],
)
def test_times_that_order_nothing_are_refused(values, message):
    with pytest.raises(DataError, match=message):
        panel_of(hourly(40).assign(when=values))


def test_numbers_that_are_dates():
    days = pd.date_range("2024-01-25", periods=40)
    frame = pd.DataFrame({"when": days.strftime("%Y%m%d").astype(int), "load": np.arange(40.0)})
    panel = panel_of(frame)
    assert (panel.dates, panel.step) == (True, 86_400)
    assert panel.notes == ("when holds numbers such as 20240125: read as dates",)


def test_many_series_on_common_times():
    frame = many()
    panel = panel_of(frame.sample(frac=1, random_state=0), target="value", time="step", group="name")
    assert panel.y.shape == (3, 300)
    at = panel.series.index("s2")
    assert np.isfinite(panel.y[at]).sum() == 240
    np.testing.assert_array_equal(panel.y[at, :240], frame["value"][frame["name"] == "s2"])
    assert np.isnan(panel.y[at, 240:]).all()


def test_series_without_common_times_end_together():
    frame = many((100, 80))
    frame["step"] = frame["step"] + np.where(frame["name"] == "s1", 10_000, 0)
    panel = panel_of(frame, target="value", time="step", group="name")
    assert panel.y.shape == (2, 100)
    assert np.isnan(panel.y[1, :20]).all()
    assert np.isfinite(panel.y[1, 20:]).all()
    assert panel.time[1, 20] == 10_001
    assert "do not share their times" in panel.notes[0]


def test_missing_names_of_series():
    frame = many()
    frame.loc[3, "name"] = None
    with pytest.raises(
        DataError, match=r"'name', which names the series, is missing in 1 of 840 rows, first at row 3"
    ):
        panel_of(frame, target="value", time="step", group="name")


def test_times_for_reading():
    assert show_time(np.datetime64("2024-01-02T00:00", "us")) == "2024-01-02"
    assert show_time(np.datetime64("2024-01-02T03:30", "us")) == "2024-01-02 03:30"
    assert show_time(np.datetime64("2024-01-02T03:30:05", "us")) == "2024-01-02 03:30:05"
    assert (show_time(np.datetime64("NaT", "us")), show_time(7.0), show_time(np.nan)) == ("", "7", "")
