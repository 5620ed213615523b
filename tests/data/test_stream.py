"""Rows of a stream from CSV, JSON lines and Parquet: what is read, what is refused, where it goes on."""

import json
import math
import os

import numpy as np
import pandas as pd
import pytest

from assay.core.errors import DataError
from assay.data.stream import LONGEST_LINE, open_stream

_HEADER = "series_id,time,forecast,actual\n"


def stream(path, **options):
    return open_stream(path, **{"form": None, "follow": False, **options})


def written(tmp_path, content, name="rows.csv"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def read(path, size=100, **options):
    """All rows as tuples, and (line, reason) of the bad ones."""
    rows, bad = [], []
    source = stream(path, **options)
    for batch, _ in source.batches(size):
        rows += list(zip(batch.ids, batch.times, batch.forecasts, batch.actuals, strict=True))
        bad += [(row.line, row.reason) for row in batch.bad]
    source.close()
    return rows, bad


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_plain_csv(tmp_path, end, last, mark):
    text = mark + end.join(["series_id,time,forecast,actual", "a,1,2.5,3", "b_1,2,-1e3,"]) + end * last
    rows, bad = read(written(tmp_path, text))
    assert rows[0] == ("a", 1, 2.5, 3.0)
    assert rows[1][:3] == ("b_1", 2, -1000.0)
    assert math.isnan(rows[1][3])
    assert not bad


def test_columns_in_any_order_and_others_beside_them(tmp_path):
    path = written(tmp_path, "x;actual;time;store;forecast\n9;1;2;a;3\n")
    rows, _ = read(path, columns=("store", "time", "forecast", "actual"))
    assert rows == [("a", 2, 3.0, 1.0)]


def test_quotes_hold_separators(tmp_path):
    rows, bad = read(written(tmp_path, _HEADER + '"a,b ""c""",1,2,3\n"d,1,2,3\n'))
    assert rows == [('a,b "c"', 1, 2.0, 3.0)]
    assert bad == [(3, "the quotes of the line are not closed")]


def test_bad_rows_are_named_by_line_and_the_others_kept(tmp_path):
    lines = [
        (b"a,1,2,3", ""),
        (b"a,2,x,3", "forecast 'x' is not a number"),
        (b"a,3,2", "the line has 3 fields, the header 4"),
        (b",4,2,3", "the series '' is neither text nor a whole number"),
        (b"a,soon,2,3", "time 'soon' is neither a whole number nor an ISO date"),
        (b"a,5.5,2,3", "time '5.5' is neither a whole number nor an ISO date"),
        (b"", ""),
        (b"a,6,2,inf", "actual 'inf' is infinite"),
        (b"\xff,7,2,3", "the line is not UTF-8 (byte 0xff)"),
        (b"a,2024-01-01,2,3", "time '2024-01-01' is a date, those before were numbers"),
        (b"a,99999999999999999999,2,3", "does not fit 64 bits"),
        (b"a,8,1_000,3", "forecast '1_000' is not a number"),
        (b"a,9,NA,n/a", ""),
        (b"series_id,time,forecast,actual", ""),
        (b"x" * (LONGEST_LINE + 1), f"the line is longer than {LONGEST_LINE} bytes"),
        (b"a,10,2,3", ""),
    ]
    path = written(tmp_path, _HEADER.encode() + b"\n".join(line for line, _ in lines) + b"\n")
    expected = [(number, reason) for number, (_, reason) in enumerate(lines, 2) if reason]
    for size in (1, 2, 100):
        rows, bad = read(path, size)
        assert [row[1] for row in rows] == [1, 9, 10]
        assert [line for line, _ in bad] == [line for line, _ in expected]
        assert all(reason in found for (_, found), (_, reason) in zip(bad, expected, strict=True))


def test_long_lines_are_never_held_whole(tmp_path):
    path = written(tmp_path, _HEADER + "a,1,2,3\n" + "y" * 5_000_000 + "\na,2,2,3\n")
    source = stream(path)
    seen = [(len(rows), [row.line for row in rows.bad], place) for rows, place in source.batches(1)]
    assert [count for count, _, _ in seen] == [1, 0, 1]
    assert seen[1][1] == [3]
    assert seen[-1][2]["offset"] == path.stat().st_size
    assert len(source._feed._rest) == 0


def test_the_plain_way_and_the_careful_way_agree(tmp_path):
    rng = np.random.default_rng(0)
    lines = [
        f"s{i % 7},{i},{float(rng.normal())!r},{'' if i % 5 == 0 else repr(float(rng.normal()))}"
        for i in range(200)
    ]
    plain, _ = read(written(tmp_path, _HEADER + "\n".join(lines)))
    careful, bad = read(written(tmp_path, _HEADER + "\n".join([*lines, '"'])))
    assert len(bad) == 1
    np.testing.assert_array_equal([row[1:] for row in plain], [row[1:] for row in careful])
    assert [row[0] for row in plain] == [row[0] for row in careful]


def test_dates_are_microseconds_in_utc(tmp_path):
    lines = ["a,1970-01-01,1,1", "a,1970-01-01T00:00:01.5Z,1,1", "a,1970-01-01 02:00:02+02:00,1,1"]
    rows, bad = read(written(tmp_path, _HEADER + "\n".join(lines)))
    assert [row[1] for row in rows] == [0, 1_500_000, 2_000_000]
    assert not bad


def test_json_lines(tmp_path):
    lines = [
        json.dumps({"series_id": "a", "time": 1, "forecast": 1.5, "actual": None}),
        json.dumps({"series_id": 7, "time": 2, "forecast": "2", "actual": 1, "more": []}),
        json.dumps({"series_id": "a", "time": 3, "forecast": 2}),
        "[1]",
        "{",
        json.dumps({"series_id": "a", "forecast": 2}),
        json.dumps({"series_id": "a", "time": True, "forecast": 2}),
        json.dumps({"series_id": "a", "time": 4, "forecast": [2]}),
        json.dumps({"series_id": "a", "time": 4, "forecast": 10**400}),
    ]
    rows, bad = read(written(tmp_path, "\n".join(lines), "rows.jsonl"))
    assert [row[:3] for row in rows] == [("a", 1, 1.5), ("7", 2, 2.0), ("a", 3, 2.0)]
    assert [line for line, _ in bad] == [4, 5, 6, 7, 8, 9]
    reasons = " ".join(reason for _, reason in bad)
    for words in ("no JSON object", "not JSON", "no 'time'", "time True", "forecast [2] is not", "infinite"):
        assert words in reasons


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b\n1,2\n", "has no column 'series_id', 'time', 'forecast', 'actual'; it has"),
        ("series_id,time,time,forecast,actual\n", "more than one column 'time'"),
        ('"series_id,time\n', "quotes of the header are not closed"),
    ],
)
def test_headers_that_do_not_fit_are_refused(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        read(written(tmp_path, content))


def test_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        stream(tmp_path / "none.csv")
    with pytest.raises(DataError, match="is a folder"):
        stream(tmp_path)
    assert read(written(tmp_path, "")) == ([], [])
    assert read(written(tmp_path, "\n\n")) == ([], [])
    with pytest.raises(DataError, match="Parquet file cannot be read"):
        stream(written(tmp_path, b"PAR1 and no more", "x.parquet"))
    with pytest.raises(DataError, match="need CSV or JSON lines"):
        stream(written(tmp_path, b"PAR1", "x.parquet"), follow=True)


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl", "rows.parquet"])
def test_a_stream_goes_on_at_its_position_with_the_same_batches(tmp_path, name):
    frame = pd.DataFrame({"series_id": ["a", "b"] * 11, "time": range(22), "forecast": 1.0, "actual": 2.0})
    path = tmp_path / name
    if name.endswith("csv"):
        frame.to_csv(path, index=False)
    elif name.endswith("jsonl"):
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_parquet(path, row_group_size=4)
    source = stream(path)
    whole = [(list(rows.times), list(rows.lines), place) for rows, place in source.batches(5)]
    source.close()
    assert [len(times) for times, _, _ in whole] == [5, 5, 5, 5, 2]
    for done, (_, _, place) in enumerate(whole, 1):
        source = stream(path, position=place)
        rest = [(list(rows.times), list(rows.lines), at) for rows, at in source.batches(5)]
        source.close()
        assert rest == whole[done:]


def test_a_file_that_is_another_is_read_from_its_beginning(tmp_path):
    path = written(tmp_path, _HEADER + "a,1,2,3\na,2,2,3\n")
    source = stream(path)
    ((_, place),) = source.batches(10)
    source.close()
    said = []
    path.write_text(_HEADER + "a,1,2,3\na,2,2,3\na,3,2,3\n")
    assert [row[1] for row in read(path, position=place, say=said.append)[0]] == [3]
    assert not said
    path.write_text(_HEADER + "b,1,2,3\nb,2,2,3\nb,3,2,3\n")
    assert [row[1] for row in read(path, position=place, say=said.append)[0]] == [1, 2, 3]
    assert "not what was read before" in said[0]


def test_a_growing_file_is_followed_through_its_replacement(tmp_path):
    path = written(tmp_path, _HEADER + "a,1,2,3\na,2,2,")
    said, times = [], []
    source = stream(path, follow=True, stop=lambda: len(times) >= 5, say=said.append)
    steps = iter(
        [
            lambda: path.open("a").write("3\na,3,2,3\n"),
            lambda: path.rename(tmp_path / "rows.1"),
            lambda: path.write_text(_HEADER + "a,4,2,3\na,5,2,3\n"),
        ]
    )
    for rows, _ in source.batches(1, 0.0):
        times += rows.times
        if times in ([1], [1, 2, 3]):
            next(steps)()
            if times == [1, 2, 3]:
                next(steps)()
    source.close()
    assert times == [1, 2, 3, 4, 5]
    assert "was replaced or cut" in said[0]


def test_a_pipe_gives_what_there_is_when_no_more_comes(tmp_path):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writer = os.open(path, os.O_WRONLY)
    os.set_blocking(reader, True)
    source = stream(path)
    os.close(reader)
    os.write(writer, (_HEADER + "a,1,2,3\na,2").encode())
    batches = source.batches(10, 0.01)
    rows, _ = next(batches)
    assert rows.times == [1]
    os.write(writer, b",2,3\n")
    os.close(writer)
    rows, _ = next(batches)
    assert rows.times == [2]
    assert list(batches) == []
    source.close()


def test_parquet_kinds(tmp_path):
    path = tmp_path / "x.parquet"
    frame = pd.DataFrame(
        {
            "series_id": pd.Categorical(["a", "b", None]),
            "time": pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-03"]).tz_localize("Europe/Berlin"),
            "forecast": [1.0, np.nan, 3.0],
            "actual": pd.array([1, None, 3], dtype="Int64"),
        }
    )
    frame.to_parquet(path)
    rows, bad = read(path)
    assert [row[0] for row in rows] == ["a", "b"]
    assert rows[1][1] - rows[0][1] == 86_400_000_000
    assert math.isnan(rows[1][2])
    assert math.isnan(rows[1][3])
    assert [line for line, _ in bad] == [3]
    frame.drop(columns="time").to_parquet(path)
    with pytest.raises(DataError, match="has no column 'time'"):
        stream(path)
