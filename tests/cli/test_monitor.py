"""``assay monitor``: killed, stopped, fed twice, fed rubbish; every row counts once."""

import csv
import io
import json
import os
import random
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from assay.cli.main import run
from assay.core.durable import read_checkpoint

_TRACKER = "assay.conformal.eci:ErrorQuantifiedTracker"
_HEADER = "series_id,time,forecast,actual\n"


def made(path, n=5, steps=40, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.normal(size=(steps, n))
    with path.open("w") as file:
        file.write(_HEADER)
        for t in range(steps):
            file.writelines(f"s{i},{t},0.5,{float(y[t, i])!r}\n" for i in range(n))
    return path


def argv(source, state, *more):
    return ["monitor", str(source), "--state", str(state), "--tracker", _TRACKER, "--quiet", *map(str, more)]


def ok(*given):
    assert run(argv(*given)) == 0


def newest(state):
    """The newest checkpoint's arrays, as bytes."""
    last = max(path.name for path in state.glob("checkpoint-*") if path.suffix != ".damaged")
    record = read_checkpoint(state / last)
    return record.number, {name: (a.dtype, a.shape, a.tobytes()) for name, a in record.arrays.items()}


def process(given, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "assay", *given],
        stdin=options.pop("stdin", subprocess.DEVNULL),
        stdout=options.pop("stdout", subprocess.DEVNULL),
        stderr=options.pop("stderr", subprocess.PIPE),
        text=True,
        **options,
    )


def killed_many_times(source, state, out, kills, seed, *more):
    """Run the command, killing it when its output has grown to random lengths; then to the end."""
    rng = random.Random(seed)
    size = source.stat().st_size
    marks = sorted(rng.uniform(0, 2.5) * size for _ in range(kills))
    done = 0
    for mark in marks:
        child = process(argv(source, state, "--out", out, *more))
        while child.poll() is None and (not out.exists() or out.stat().st_size < mark):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.01))
        if child.poll() is None:
            child.send_signal(signal.SIGKILL)
            done += 1
        child.communicate()
    child = process(argv(source, state, "--out", out, *more))
    _, err = child.communicate()
    assert child.returncode == 0, err
    return done


def check_kills(tmp_path, n, steps, kills, batch):
    source = made(tmp_path / "rows.csv", n, steps)
    ok(source, tmp_path / "plain", "--out", tmp_path / "plain.csv", "--batch", batch)
    done = killed_many_times(source, tmp_path / "killed", tmp_path / "killed.csv", kills, 1, "--batch", batch)
    assert done >= kills // 2
    assert newest(tmp_path / "killed") == newest(tmp_path / "plain")
    assert (tmp_path / "killed.csv").read_bytes() == (tmp_path / "plain.csv").read_bytes()
    with (tmp_path / "plain.csv").open() as file:
        assert sum(1 for _ in file) == n * steps + 1


def test_kills_at_random_moments_end_in_the_same_state_and_output(tmp_path):
    check_kills(tmp_path, n=100, steps=60, kills=3, batch=40)


@pytest.mark.slow
def test_ten_kills_over_a_thousand_series(tmp_path):
    check_kills(tmp_path, n=1000, steps=500, kills=10, batch=1000)


def test_what_is_written_is_what_the_fleet_says(tmp_path, capsys):
    from assay.conformal import Fleet
    from assay.conformal.eci import ErrorQuantifiedTracker

    source = tmp_path / "rows.csv"
    source.write_text(_HEADER + 'a,1,2,3\nb,1,2,\na,2,2,1\nb,1,,5\n"x,y",1,0,0\na,2,9,9\na,1,9,9\n')
    assert run([*argv(source, tmp_path / "s", "--lr", "0.5", "--set", "window=7")]) == 0
    out, err = capsys.readouterr()
    rows = list(csv.DictReader(io.StringIO(out)))
    fleet = Fleet(ErrorQuantifiedTracker(lr=0.5, window=7), alpha=0.1)
    nan = np.nan
    step = fleet.update(["a", "b", "a", "b", "x,y"], [1, 1, 2, 1, 1], [2, 2, 2, nan, 0], [3, nan, 1, 5, 0])
    assert [(row["series_id"], row["time"]) for row in rows] == [
        ("a", "1"), ("b", "1"), ("a", "2"), ("b", "1"), ("x,y", "1"),
    ]  # fmt: skip
    np.testing.assert_array_equal([[float(r["lower"]), float(r["upper"])] for r in rows], step.interval)
    assert [row["covered"] for row in rows] == ["0", "", "0", "0", "1"]
    assert [row["forecast"] for row in rows] == ["2.0"] * 4 + ["0.0"]
    assert {row["batch"] for row in rows} == {"1"}
    assert not err


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_the_same_rows_in_each_form_give_the_same_state(tmp_path, form):
    source = made(tmp_path / "rows.csv")
    ok(source, tmp_path / "csv", "--out", tmp_path / "csv.csv")
    frame = pd.read_csv(source)
    path = tmp_path / f"rows.{form}"
    if form == "jsonl":
        lines = [json.dumps(row) for row in frame.to_dict("records")]
        path.write_text("\n".join(lines))
    elif form == "parquet":
        frame.to_parquet(path)
    ok(path, tmp_path / "s", "--out", tmp_path / "out.jsonl")
    assert newest(tmp_path / "s") == newest(tmp_path / "csv")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert len(rows) == 200
    assert rows[0] == {
        "batch": 1, "series_id": "s0", "time": rows[0]["time"], "forecast": 0.5, "lower": 0.5, "upper": 0.5,
        "covered": False, "alarm": False,
    }  # fmt: skip
    assert rows[0]["time"] in (0, "0")


def test_standard_input_fed_twice_counts_once(tmp_path):
    source = made(tmp_path / "rows.csv")
    ok(source, tmp_path / "plain", "--out", tmp_path / "plain.csv")
    state, outputs = tmp_path / "s", []
    lines = source.read_text().splitlines(keepends=True)
    for part in (lines[:101], lines):
        child = process(argv("-", state)[:-1], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        out, err = child.communicate("".join(part))
        assert child.returncode == 0, err
        outputs.append(out)
    assert "100 learned" in err
    assert "5 repeated, 95 late" in err
    merged = outputs[0] + outputs[1].split("\n", 1)[1]
    one, two = (list(csv.DictReader(io.StringIO(t))) for t in (merged, (tmp_path / "plain.csv").read_text()))
    assert [{k: v for k, v in row.items() if k != "batch"} for row in one] == [
        {k: v for k, v in row.items() if k != "batch"} for row in two
    ]


def test_a_grown_file_goes_on_where_it_was(tmp_path):
    source = made(tmp_path / "rows.csv")
    whole = source.read_text()
    ok(source, tmp_path / "plain", "--out", tmp_path / "plain.csv", "--batch", 50)
    source.write_text("".join(whole.splitlines(keepends=True)[:101]))
    ok(source, tmp_path / "s", "--out", tmp_path / "out.csv", "--batch", 50)
    source.write_text(whole)
    ok(source, tmp_path / "s", "--out", tmp_path / "out.csv", "--batch", 50)
    assert newest(tmp_path / "s") == newest(tmp_path / "plain")
    assert (tmp_path / "out.csv").read_text() == (tmp_path / "plain.csv").read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_following_ends_by_a_signal_with_everything_kept(tmp_path, number):
    source = made(tmp_path / "rows.csv", steps=10)
    whole = source.read_text()
    ok(source, tmp_path / "plain", "--out", tmp_path / "plain.csv", "--batch", 25)
    source.write_text("".join(whole.splitlines(keepends=True)[:26]))
    out = tmp_path / "out.csv"
    child = process(argv(source, tmp_path / "s", "--out", out, "--follow", "--batch", 25, "--wait", "0.1"))
    length = (tmp_path / "plain.csv").stat().st_size

    def wait_for(size):
        deadline = time.monotonic() + 60
        while (not out.exists() or out.stat().st_size < size) and child.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    wait_for(length * 2 // 5)
    with source.open("a") as file:
        file.write(whole[source.stat().st_size :])
    wait_for(length)
    child.send_signal(number)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert f"stopped by {signal.Signals(number).name} after batch 2" in err
    assert newest(tmp_path / "s") == newest(tmp_path / "plain")
    assert out.read_bytes() == (tmp_path / "plain.csv").read_bytes()


def test_a_full_disk_stops_and_nothing_is_lost(tmp_path):
    source = made(tmp_path / "rows.csv", n=20, steps=60)
    ok(source, tmp_path / "plain", "--out", tmp_path / "plain.csv", "--batch", 100)

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))

    given = argv(source, tmp_path / "s", "--out", tmp_path / "out.csv", "--batch", 100)
    child = process(given, preexec_fn=limited, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    _, err = child.communicate()
    assert child.returncode == 2, err
    assert "File too large" in err
    ok(*given[1:2], tmp_path / "s", "--out", tmp_path / "out.csv", "--batch", 100)
    assert newest(tmp_path / "s") == newest(tmp_path / "plain")
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "plain.csv").read_bytes()


def test_bad_rows_are_named_and_counted_or_stop_everything(tmp_path, capsys):
    source = tmp_path / "rows.csv"
    bad = "a,2,x,1\na,soon,1,1\na,3\nb,1,,4\n" + "a,4,nan,1\n" + "a,7,x,1\n" * 9
    source.write_text(_HEADER + "a,1,2,3\n" + bad + "a,5,2,3\n")
    assert run(argv(source, tmp_path / "s")[:-1]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 3
    assert "refused: line 3: forecast 'x' is not a number" in err
    assert "refused: line 4: time 'soon'" in err
    assert err.count("refused: line") == 5
    assert "14 refused" in err
    assert run([*argv(source, tmp_path / "t"), "--bad-rows", "stop"]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert "error: line 3: forecast 'x' is not a number (12 such rows in this batch" in err
    assert newest(tmp_path / "t")[0] == 0
    source.write_text(_HEADER + "a,1,2,3\nb,1,,4\n")
    assert run([*argv(source, tmp_path / "u"), "--bad-rows", "stop"]) == 2
    assert "line 3: no forecast for series 'b' at that time" in capsys.readouterr().err
    assert newest(tmp_path / "u")[0] == 0


def test_alarms_go_to_stderr_their_column_and_their_file(tmp_path, capsys):
    source = tmp_path / "rows.csv"
    rng = np.random.default_rng(0)
    with source.open("w") as file:
        file.write(_HEADER)
        for t in range(200):
            day = f"2024-01-01T{t // 60:02d}:{t % 60:02d}:00"
            for name, jump in (("calm", 0.0), ("wild", 9.0 * (t >= 150) * 2.0 ** (t - 150))):
                file.write(f"{name},{day},0,{float(rng.normal() + jump)!r}\n")
    alarms = tmp_path / "alarms.jsonl"
    assert run(argv(source, tmp_path / "s", "--alarms", alarms, "--out", tmp_path / "out.csv")) == 0
    err = capsys.readouterr().err
    found = [json.loads(line) for line in alarms.read_text().splitlines()]
    assert found
    assert {alarm["series_id"] for alarm in found} == {"wild"}
    assert found[0]["time"].startswith("2024-01-01T02:3")
    assert err.startswith("alarm: series wild at 2024-01-01T02:3")
    rows = csv.DictReader((tmp_path / "out.csv").open())
    assert sum(row["alarm"] == "1" for row in rows) == len(found)
    assert run(argv(source, tmp_path / "t", "--alarm-level", "none")) == 0
    assert "alarm:" not in capsys.readouterr().err


def test_a_state_of_another_question_a_damaged_one_and_restoring_it(tmp_path, capsys):
    source = made(tmp_path / "rows.csv")
    state = tmp_path / "s"
    ok(source, state)
    assert run(argv(source, state, "--alpha", "0.2")) == 2
    assert "tracker alpha is 0.05 in the state and 0.1 here" in capsys.readouterr().err
    last = max(state.glob("checkpoint-*"))
    content = bytearray(last.read_bytes())
    content[len(content) // 2] ^= 1
    last.write_bytes(content)
    assert run(argv(source, state)) == 2
    assert "restore it (--restore)" in capsys.readouterr().err
    assert run(argv(source, state, "--restore")) == 0
    assert "restored the state after batch 1; damaged:" in capsys.readouterr().err
    ok(source, tmp_path / "plain")
    assert newest(state) == newest(tmp_path / "plain")


def test_an_output_that_is_not_ours_is_left_alone(tmp_path, capsys):
    source = made(tmp_path / "rows.csv")
    out = tmp_path / "out.csv"
    out.write_text("mine\n")
    assert run(argv(source, tmp_path / "s", "--out", out)) == 2
    assert "is there already and not of this state" in capsys.readouterr().err
    assert out.read_text() == "mine\n"
    out.unlink()
    ok(source, tmp_path / "s", "--out", out)
    out.write_text("cut")
    assert run(argv(source, tmp_path / "s", "--out", out)) == 2
    assert "it was changed since" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--tracker", "split"], "split is no tracker of a stream"),
        (["--tracker", "nothing"], "no method 'nothing'"),
        (["--set", "speed=3"], "does not take speed"),
        (["--set", "speed"], "not of the form name=value"),
        (["--set", "lr=1", "--set", "lr=2"], "given twice"),
        (["--lr", "-1"], "lr must be a finite number above 0"),
        (["--alpha", "2"], "alpha must lie in [0, 1)"),
        (["--alarm-level", "0"], "alarm_level must lie in (0, 1)"),
        (["--columns", "id=x"], "not of the form role=name"),
        (["--columns", "time=series_id"], "the same column"),
        (["--columns", "time=when"], "no column 'when'"),
        (["--format", "parquet"], "Parquet file cannot be read"),
        (["--out", "no/folder/out.csv"], "cannot be written"),
    ],
)
def test_questions_that_cannot_be_answered(tmp_path, monkeypatch, more, message, capsys):
    monkeypatch.chdir(tmp_path)
    source = made(tmp_path / "rows.csv")
    assert run(argv(source, tmp_path / "s", *more)) == 2
    out, err = capsys.readouterr()
    assert not out
    assert message in err
    assert err.count("\n") == 1


def test_a_reader_that_leaves_costs_nothing(tmp_path):
    source = made(tmp_path / "rows.csv", n=100, steps=40)
    ok(source, tmp_path / "plain", "--out", tmp_path / "plain.csv", "--batch", 500)
    given = argv(source, tmp_path / "s", "--batch", 500)
    child = process(given, stdout=subprocess.PIPE)
    child.stdout.readline()
    child.stdout.close()
    child.wait()
    child.stderr.close()
    ok(source, tmp_path / "s", "--batch", 500)
    assert newest(tmp_path / "s") == newest(tmp_path / "plain")
