"""Roles of a table's columns: several targets, a time, a group."""

import numpy as np
import pandas as pd
import pytest

from assay.core.errors import DataError, TaskError
from assay.data.read import as_table
from assay.tasks import get_task
from assay.tasks.infer import choose_task


def frame(n=40, **columns):
    rng = np.random.default_rng(0)
    made = {
        "a": rng.normal(size=n),
        "b": rng.normal(size=n) * 9,
        "x": rng.normal(size=n),
        "g": ["u", "v"] * (n // 2),
    }
    return pd.DataFrame({**made, **columns})


@pytest.mark.parametrize("target", ["a,b", "a, b", ["a", "b"], ("a", "b"), np.array(["a", "b"])])
def test_several_targets_however_they_are_named(target):
    table = as_table(frame(), target)
    assert (table.targets, table.target, list(table.X), list(table.Y)) == (
        ("a", "b"),
        "a, b",
        ["x", "g"],
        ["a", "b"],
    )
    with pytest.raises(DataError, match="one target is needed here; 2 are given: a, b"):
        _ = table.y


def test_a_comma_in_a_name_is_part_of_the_name():
    data = frame().rename(columns={"a": "price, EUR", "x": "x,y"})
    assert as_table(data, "price, EUR").targets == ("price, EUR",)
    assert as_table(data, "b,price, EUR").targets == ("b", "price, EUR")
    assert as_table(data, "price, EUR,x,y").targets == ("price, EUR", "x,y")


def test_pairs_name_several_targets():
    X, Y = np.random.default_rng(1).normal(size=(2, 30, 2))
    assert as_table((X, Y)).targets == ("y0", "y1")
    assert as_table((X, Y), "lat,price").targets == ("lat", "price")
    assert as_table((X, Y[:, :1]), ["z"]).targets == ("z",)
    own = as_table((X, pd.DataFrame(Y, columns=["p", "q"])), "q,p")
    assert own.targets == ("q", "p")
    np.testing.assert_array_equal(own.Y, Y[:, ::-1])
    with pytest.raises(DataError, match="y has 2 columns and target names 1: p"):
        as_table((X, Y), "p")


def test_arrays_of_a_file_name_several_targets(tmp_path):
    X, Y = np.random.default_rng(1).normal(size=(2, 30, 2))
    np.savez(tmp_path / "a.npz", X=X, y=Y)
    table = as_table(tmp_path / "a.npz")
    assert (table.targets, list(table.X)) == (("y0", "y1"), ["x0", "x1"])


def test_rows_without_every_target_are_left_out():
    data = frame()
    data.loc[[0, 1], "a"] = np.nan
    data.loc[[1, 2], "b"] = np.nan
    table = as_table(data, "a,b")
    assert len(table) == 37
    assert "3 of 40 rows left out: a target is ('a' 2, 'b' 2) missing there" in table.notes


def test_a_series_keeps_its_rows_its_time_and_its_names():
    data = frame(t=pd.date_range("2024-01-01", periods=40), g=[f"series {i}" for i in range(40)])
    data.loc[3, "a"] = np.nan
    table = as_table(data, "a", time="t", group="g")
    assert (len(table), table.time, table.group, list(table.X)) == (40, "t", "g", ["b", "x"])
    assert np.isnan(table.y[3])
    assert "1 of 40 rows: the target 'a' is missing there; the series keeps them" in table.notes
    alone = as_table(data[["t", "a"]], "a", time="t")
    assert list(alone.X) == []
    counted = as_table(data.assign(index=range(40)), "a", time="index")
    assert counted.time == "index"


def test_a_group_without_time_is_a_feature():
    table = as_table(frame(), "a", group="g")
    assert (table.group, list(table.X)) == ("g", ["b", "x", "g"])
    assert as_table(frame(g=["u"] * 40), "a", group="g").X["g"].eq("u").all()


def test_roles_of_a_table_are_kept_or_changed():
    table = as_table(frame(), "a,b", group="g")
    assert as_table(table) is table
    assert as_table(table, ["a", "b"], group="g") is table
    other = as_table(table, "a", time="x")
    assert (other.targets, other.time, other.group) == (("a",), "x", "g")


def test_roles_are_part_of_the_fingerprint():
    data = frame()
    found = {
        as_table(data, "a").fingerprint,
        as_table(data, "a,b").fingerprint,
        as_table(data, "b,a").fingerprint,
        as_table(data, "a", group="g").fingerprint,
        as_table(data, "a", time="x").fingerprint,
        as_table(data, "a", time="x", group="g").fingerprint,
    }
    assert len(found) == 6


@pytest.mark.parametrize(
    ("columns", "roles", "message"),
    [
        ({}, {"target": "a,bb"}, r"no target column 'bb'; did you mean 'b'\?"),
        ({}, {"target": "a,a"}, r"the target 'a' is named twice as a target; give each column one role"),
        ({}, {"target": "a,,b"}, r"no target column ''"),
        ({}, {"target": []}, r"which column is the target"),
        ({}, {"target": "a", "time": "tt"}, r"no time column 'tt'; there are"),
        ({}, {"target": "a", "time": "a"}, r"the time column 'a' is also the target"),
        ({}, {"target": "a", "time": "x", "group": "x"}, r"the group column 'x' is also the time"),
        ({}, {"target": "a", "time": "x", "drop": ["x"]}, r"time column 'x' is among the columns to drop"),
        ({}, {"target": "a", "time": "g"}, r"the time column 'g' is text, such as 'u'; dates are read as"),
        ({"t": ["1.2.2024"] * 40}, {"target": "a", "time": "t"}, r"is text.*dates are read as YYYY-MM-DD"),
        ({"t": [np.nan] + [1.0] * 39}, {"target": "a", "time": "t"}, r"in 1 of 40 rows, first at row 0"),
        ({"t": [np.inf] + [1.0] * 39}, {"target": "a", "time": "t"}, r"holds infinite numbers"),
        ({"a": [1.0, np.nan] * 20, "b": [np.nan, 1.0] * 20}, {"target": "a,b"},
         r"in all 40 rows a target is \('a' 20, 'b' 20\) missing; name fewer targets"),
    ],
)  # fmt: skip
def test_refused_roles(columns, roles, message):
    with pytest.raises(DataError, match=message):
        as_table(frame(**columns), **roles)


@pytest.mark.parametrize(
    ("roles", "task", "message"),
    [
        ({"target": "a,b"}, "interval", r"'interval' takes one target; 2 are given: a, b. --task region"),
        ({"target": "a", "time": "x"}, "interval", r"has no use for the time column 'x'.*--task online"),
    ],
)
def test_a_task_says_which_roles_it_takes(roles, task, message):
    with pytest.raises(TaskError, match=message):
        choose_task(as_table(frame(), **roles), task)


def test_options_that_a_task_does_not_know():
    with pytest.raises(TaskError, match="the task 'interval' takes no horizon"):
        get_task("interval", horizon=3)
    with pytest.raises(TaskError, match="the task 'interval' takes no horizon"):
        choose_task(as_table(frame(), "a"), options={"horizon": 3})
