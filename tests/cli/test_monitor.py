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
    check_kills(tmp_path, n=80, steps=40, kills=2, batch=40)


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
        path.write_text("\n".join(lines))  # the last without a line end
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


def fed(text, given):
    """Run the command on a pipe, which must hold the whole text at once."""
    reader, writer = os.pipe()
    kept = os.dup(0)
    try:
        os.write(writer, text.encode())
        os.close(writer)
        os.dup2(reader, 0)
        return run(given)
    finally:
        os.dup2(kept, 0)
        os.close(kept)
        os.close(reader)


def test_standard_input_fed_twice_counts_once(tmp_path, capsys):
    source = made(tmp_path / "rows.csv")
    ok(source, tmp_path / "plain", "--out", tmp_path / "plain.csv")
    state, outputs = tmp_path / "s", []
    lines = source.read_text().splitlines(keepends=True)
    for part in (lines[:101], lines):
        assert fed("".join(part), argv("-", state)[:-1]) == 0
        out, err = capsys.readouterr()
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


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
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
    assert "alpha is 0.1 in the state and 0.2 here" in capsys.readouterr().err
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
    written = out.read_text()
    for other in ("cut", written[:-2] + "9\n", "of another, and longer" * 1000):
        out.write_text(other)
        assert run(argv(source, tmp_path / "s", "--out", out)) == 2
        assert "it was changed since" in capsys.readouterr().err
        assert out.read_text() == other
    out.write_text(written + "half of a line")
    ok(source, tmp_path / "s", "--out", out)
    assert out.read_text() == written


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
        (["--out", "/dev/null"], "no file that can be cut"),
        (["--out", "x.csv", "--alarms", "./x.csv"], "are one file"),
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


@pytest.mark.parametrize("number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_a_silent_pipe_ends_by_a_signal(tmp_path, number):
    child = process(argv("-", tmp_path / "s"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    child.stdin.write(_HEADER + "a,1,2,3\n")
    child.stdin.flush()
    child.stdout.readline()
    child.stdout.readline()
    child.send_signal(number)
    assert child.wait(timeout=60) == 130
    name = signal.Signals(number).name
    assert child.stderr.read() == f"stopped by {name} after batch 1; the same command goes on\n"
    for pipe in (child.stdin, child.stdout, child.stderr):
        pipe.close()


def test_ids_cannot_write_to_the_terminal_or_break_a_line(tmp_path, capsys):
    source = tmp_path / "rows.jsonl"
    name = "a\x1b[2J\rb"
    with source.open("w") as file:
        for t in range(120):
            row = {"series_id": name, "time": t, "forecast": 0, "actual": 3.0**t}
            file.write(json.dumps(row) + "\n")
    out = tmp_path / "out.csv"
    assert run(argv(source, tmp_path / "s", "--out", out, "--alarm-after", "5")) == 0
    err = capsys.readouterr().err
    assert "alarm: series 'a\\x1b[2J\\rb' at" in err
    assert "\x1b" not in err
    with out.open(newline="") as file:
        assert {row["series_id"] for row in csv.DictReader(file)} == {name}


class Killed(BaseException):
    """The process is gone."""


def test_a_kill_between_the_first_answer_and_its_record(tmp_path, monkeypatch):
    source = made(tmp_path / "rows.csv")
    ok(source, tmp_path / "plain", "--out", tmp_path / "plain.csv")

    def killed(*_given):
        raise Killed

    given = argv(source, tmp_path / "s", "--out", tmp_path / "out.csv", "--alarms", tmp_path / "alarms.jsonl")
    with monkeypatch.context() as patched:
        patched.setattr("assay.core.durable.Journal.append", killed)
        with pytest.raises(Killed):
            run(given)
    assert (tmp_path / "out.csv").stat().st_size > 0
    assert run(given) == 0
    assert newest(tmp_path / "s") == newest(tmp_path / "plain")
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "plain.csv").read_bytes()
    # a run that writes no files leaves them known
    source.write_text(source.read_text() + "s1,40,0.5,1\n")
    ok(source, tmp_path / "s")
    assert run(given) == 0
    # the answers are moved away, and the next are cut by a kill
    rows = source.read_text()
    source.write_text(rows + "s0,40,0.5,1\n")
    (tmp_path / "out.csv").rename(tmp_path / "old.csv")
    with monkeypatch.context() as patched:
        patched.setattr("assay.core.durable.Journal.append", killed)
        with pytest.raises(Killed):
            run(given)
    assert run(given) == 0
    assert (tmp_path / "out.csv").read_text().count("\n") == 2


def test_the_tracker_is_named_with_the_reason_where_it_is_the_default(tmp_path, capsys):
    source = made(tmp_path / "rows.csv", steps=3)
    plain = ["monitor", str(source), "--out", str(tmp_path / "out.csv")]
    assert run([*plain, "--state", str(tmp_path / "s")]) == 0
    err = capsys.readouterr().err
    assert err.startswith("tracker: eci (lr='auto'), the default: no learning rate to choose")
    assert "--tracker" in err.splitlines()[0]
    other = ["--state", str(tmp_path / "t"), "--tracker", "aci", "--out", str(tmp_path / "o.csv")]
    assert run([*plain[:2], *other, "--set", "window=20"]) == 0
    err = capsys.readouterr().err
    assert err.splitlines()[0].startswith("tracker: aci (")
    assert "window=20" in err.splitlines()[0]
    assert "the default" not in err
    assert run([*plain[:2], "--state", str(tmp_path / "u"), "--quiet"]) == 0
    assert not capsys.readouterr().err
    assert run(["monitor", "--help"]) == 0
    help_text = " ".join(capsys.readouterr().out.split())
    assert "[default: eci]" in help_text
    assert "no learning rate to choose" in help_text


def lines_of(path, text):
    path.write_text(_HEADER + text)
    return path


def test_a_time_far_ahead_is_named_once_its_series_has_come_late_to_the_end(tmp_path, capsys):
    source = lines_of(
        tmp_path / "rows.csv",
        "a,1,0,1\nb,1,0,1\na,99999,0,1\n" + "".join(f"a,{t},0,1\nb,{t},0,1\n" for t in range(2, 7)),
    )
    given = ["monitor", str(source), "--state", str(tmp_path / "t"), "--batch", "3"]
    capsys.readouterr()
    assert run(given) == 0
    err = capsys.readouterr().err
    assert "5 late" in err
    assert "series a stands at 99999 and takes only later times: its last 5 rows came late, the newest" in err
    assert "--max-ahead" in err
    assert "series b" not in err


def test_rows_fed_again_or_a_few_late_ones_are_no_notice(tmp_path, capsys):
    text = "".join(f"a,{t},0,1\n" for t in range(20))
    source = lines_of(tmp_path / "rows.csv", text + "a,3,0,1\na,4,0,1\n")
    given = ["monitor", str(source), "--state", str(tmp_path / "s"), "--batch", "7"]
    assert run(given) == 0
    other = lines_of(tmp_path / "again.csv", text)
    assert run([*given[:1], str(other), *given[2:]]) == 0
    err = capsys.readouterr().err
    assert "19 late" in err
    assert "takes only later times" not in err


@pytest.mark.parametrize("batch", [1, 3, 1000])
@pytest.mark.parametrize("dates", [False, True])
def test_a_row_too_far_ahead_is_refused_and_sets_no_clock(tmp_path, capsys, batch, dates):
    def stamp(t):
        return f"2024-01-{1 + t // 24:02d}T{t % 24:02d}:00" if dates else t

    good = [f"{name},{stamp(t)},0,1\n" for t in range(40) for name in "ab"]
    far = "2099-01-01" if dates else 99999
    clean = lines_of(tmp_path / "clean.csv", "".join(good))
    rows = lines_of(
        tmp_path / "rows.csv", "".join(good[:21]) + f"a,{far},0,1\nc,{far},0,\n" + "".join(good[21:])
    )
    ahead = "2h" if dates else "2"
    ok(clean, tmp_path / "clean", "--max-ahead", ahead)
    ok(rows, tmp_path / "s", "--max-ahead", ahead, "--batch", batch, "--out", tmp_path / "out.csv")
    err = capsys.readouterr().err
    assert f"refused: line 23: the time {far} is more than {ahead} after" in err
    assert "--max-ahead" in err
    assert newest(tmp_path / "s")[1] == newest(tmp_path / "clean")[1]
    # a stream that was silent goes on with a longer one, or without
    late = lines_of(tmp_path / "late.csv", f"a,{far},0,1\n")
    ok(late, tmp_path / "s", "--max-ahead", "40000d" if dates else "1000000")
    assert "refused" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("ahead", "message"),
    [("soon", "no time"), ("-1", "no time"), ("2h", "times are whole numbers"), ("0", "no time")],
)
def test_max_ahead_that_means_nothing(tmp_path, capsys, ahead, message):
    source = made(tmp_path / "rows.csv")
    assert run(argv(source, tmp_path / "s", "--max-ahead", ahead)) == 2
    assert message in capsys.readouterr().err


def test_a_misspelt_key_of_json_lines_is_named_once(tmp_path, capsys):
    source = tmp_path / "rows.jsonl"
    with source.open("w") as file:
        for t in range(5):
            file.write(json.dumps({"series_id": "a", "time": t, "forecast": 1, "actul": 2}) + "\n")
    given = [
        "monitor",
        str(source),
        "--state",
        str(tmp_path / "s"),
        "--batch",
        "2",
        "--out",
        str(tmp_path / "o"),
    ]
    assert run(given) == 0
    err = capsys.readouterr().err
    assert err.count("actul") == 2
    assert "line 1 has no 'actual', but 'actul', which is left alone" in err
    assert "--columns actual=actul" in err
    # an outcome that is to come, beside columns of the user's own, is no mistake
    with source.open("w") as file:
        for t in range(5):
            row = {"series_id": "a", "time": t, "forecast": 1, "shop": "x"} | ({"actual": 2} if t < 3 else {})
            file.write(json.dumps(row) + "\n")
    given[3] = str(tmp_path / "t")
    given[-1] = str(tmp_path / "p")
    assert run(given) == 0
    assert "left alone" not in capsys.readouterr().err


def test_a_misspelt_column_of_csv_or_parquet_is_refused_by_name(tmp_path, capsys):
    frame = pd.DataFrame({"series_id": ["a"], "time": [1], "forecast": [1.0], "actul": [2.0]})
    frame.to_csv(tmp_path / "rows.csv", index=False)
    frame.to_parquet(tmp_path / "rows.parquet")
    for form in ("csv", "parquet"):
        assert run(argv(tmp_path / f"rows.{form}", tmp_path / form)) == 2
        err = capsys.readouterr().err
        assert "no column 'actual'" in err
        assert "actul" in err


def test_forecasts_far_ahead_make_later_forecasts_late_too(tmp_path, capsys):
    source = lines_of(
        tmp_path / "rows.csv", "a,1,0,1\na,500,0,\n" + "".join(f"a,{t},0,\n" for t in range(2, 6))
    )
    assert run(["monitor", str(source), "--state", str(tmp_path / "s"), "--batch", "2"]) == 0
    assert "series a stands at 500 and takes only later times: its last 4 rows" in capsys.readouterr().err
