"""New rows as careless people have them: the same answer, a notice, or a refusal by name."""

import json
import os
import subprocess
import sys
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import assay
from assay.cli.main import run
from assay.core.errors import DataError
from assay.data.schema import Notices
from assay.engine.coverage import check

pytestmark = pytest.mark.filterwarnings("ignore::assay.core.errors.AssayWarning")
N = 400


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    x = rng.normal(size=N)
    out = pd.DataFrame({"x": x, "g": rng.integers(0, 3, N), "t": rng.choice(["a", "b"], N)})
    return out.assign(y=x + rng.normal(size=N), k=np.where(x + rng.normal(size=N) > 0, 1, 2))


@pytest.fixture(scope="module")
def fitted(frame):
    return assay.fit(frame[:300].drop(columns="k"), "y", method="split")


@pytest.fixture
def new(frame):
    return frame[300:].drop(columns=["y", "k"])


@pytest.fixture
def here(fitted, new, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fitted.save("y.assay")
    new.to_csv("new.csv", index=False)
    return tmp_path


def ask(fitted, rows):
    notices = Notices()
    return fitted.predict(rows, notices=notices), notices.lines()


@pytest.mark.parametrize("index", [[1] * 100, list(range(50)) * 2, range(99, -1, -1)])
def test_indexes_stay(fitted, new, index):
    got = fitted.predict(new.set_axis(index))
    assert list(got.index) == list(index)
    assert (got.to_numpy() == fitted.predict(new).to_numpy()).all()


def test_numbers_that_could_be_thousands_are_told(fitted, new):
    assert any("with a decimal comma" in line for line in ask(fitted, new.assign(x="1,234"))[1])


def test_infinite_codes_are_unknown_labels(fitted, new):
    assert any("not in the training rows" in line for line in ask(fitted, new.assign(t=np.inf))[1])


@pytest.mark.parametrize("hidden", [False, True])
@pytest.mark.parametrize("kind", ["int", "bool"])
def test_groups_are_known_by_value_whatever_their_type(frame, new, tmp_path, kind, hidden):
    rows, old = new, frame[:300].drop(columns="y")
    if kind == "bool":
        rows, old = rows.assign(g=rows["g"] > 0), old.assign(g=old["g"] > 0)
    fitted = assay.fit(old, "k", method="mondrian", group="g", drop=["g"] if hidden else [])
    expected = fitted.predict(rows)["set"].tolist()
    spellings = [rows["g"].astype(float), rows["g"].map(str), rows["g"].map(str).str.lower()]
    spellings += [rows["g"].astype(float).map(str)] if kind == "int" else []
    for spelling in spellings:
        assert fitted.predict(rows.assign(g=spelling))["set"].tolist() == expected
        rows.assign(g=spelling).to_csv(tmp_path / "g.csv", index=False)
        assert fitted.predict(tmp_path / "g.csv")["set"].tolist() == expected
    if kind == "int":
        got, lines = ask(fitted, rows.assign(g=rows["g"].astype(float).where(np.arange(100) > 0, 7.0)))
        assert got["set"].tolist()[1:] == expected[1:]
        assert any("g: 1 row of a group without training rows, such as '7'" in line for line in lines)


def test_labels_are_known_by_value_whatever_their_type(frame):
    old, rows = frame[:300].drop(columns="y"), frame[300:].drop(columns="y")
    fitted = assay.fit(old, "k", method="lac")
    expected = check(fitted, rows).parts[0].covered
    for spelling in (rows["k"].astype(str), rows["k"].astype(float), rows["k"].astype(float).map(str)):
        assert check(fitted, rows.assign(k=spelling)).parts[0].covered == expected
    words = assay.fit(old.assign(k=old["k"].map(str)), "k", method="lac")
    for spelling in (rows["k"], rows["k"].astype(float), rows["k"].astype("Int64")):
        assert check(words, rows.assign(k=spelling)).parts[0].covered == expected
    with pytest.raises(DataError, match="'k' was numbers in training and holds text in 100 of 100"):
        check(fitted, rows.assign(k="one"))


@pytest.mark.parametrize("gone", ["NA", np.inf, 1e200, "inf"])
def test_outcomes_that_are_none_are_left_out_and_told(fitted, frame, gone):
    rows = frame[300:].astype({"y": object})
    rows.loc[rows.index[:10], "y"] = gone
    found = check(fitted, rows)
    assert found.parts[0].rows == 90
    assert any("10 rows without an outcome, left out" in line for line in found.notices)


def test_a_level_is_kept_exactly(frame):
    for alpha, text in (("1/3", "1/3"), (0.1, "0.1"), (0.1234567, "1234567/10000000")):
        fitted = assay.fit(frame.drop(columns="k"), "y", method="split", alpha=alpha)
        assert fitted.about["alpha"] == text
        assert fitted.alpha == assay.core.levels.parse_alpha(alpha)


def parquet(new):
    return pa.Table.from_pandas(new, preserve_index=False)


@pytest.mark.parametrize(
    ("column", "make"),
    [
        ("t", lambda c: c.dictionary_encode()),
        ("t", lambda c: c.cast(pa.large_string())),
        ("t", lambda c: c.cast(pa.string_view())),
        ("g", lambda c: c.cast(pa.int8())),
        ("g", lambda c: c.cast(pa.decimal128(21, 2))),
        ("g", lambda c: c.cast(pa.string())),
    ],
)
def test_types_of_parquet(here, fitted, new, column, make):
    table = parquet(new)
    place = table.column_names.index(column)
    pq.write_table(table.set_column(place, column, make(table[column])), "p.parquet", row_group_size=7)
    got = fitted.predict(here / "p.parquet")
    assert (got.to_numpy() == fitted.predict(new).to_numpy()).all()


@pytest.mark.parametrize("values", [[[1.0]] * 100, [{"a": 1}] * 100, [b"a"] * 100])
def test_nested_columns_are_refused_by_name_and_left_alone_elsewhere(here, fitted, new, values):
    table = parquet(new)
    pq.write_table(table.set_column(0, "x", pa.array(values)), "p.parquet")
    with pytest.raises(DataError, match="column 'x' holds"):
        fitted.predict(here / "p.parquet")
    pq.write_table(table.append_column("further", pa.array(values)), "p.parquet")
    notices = Notices()
    assert len(fitted.predict(here / "p.parquet", notices=notices)) == 100


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_files_without_rows_give_files_without_rows(here, new, ending):
    pq.write_table(parquet(new[:0]), "p.parquet")
    (here / "h.csv").write_text("x,g,t\n")
    for source in ("p.parquet", "h.csv"):
        assert run(["predict", "y.assay", source, "-o", f"out.{ending}", "--keep", "t"]) == 0
        if ending == "csv":
            assert (here / "out.csv").read_text() == "t,prediction,lower,upper\n"
        elif ending == "parquet":
            assert pq.read_table("out.parquet").shape == (0, 4)


KEPT = {
    "none, then integers": [None] * 70_000 + list(range(70_000)),
    "large integers, some missing": [None, 2**60 + 1] * 70_000,
    "none, then true": [None] * 70_000 + [True] * 70_000,
    "none, then text": [None] * 70_000 + ["é"] * 70_000,
    "decimals": [Decimal("1.25")] * 70_000 + [Decimal("10000.20")] * 70_000,
}


@pytest.mark.parametrize("values", KEPT.values(), ids=KEPT)
def test_kept_columns_keep_their_values_over_batches(here, new, values):
    table = pa.concat_tables([parquet(new)] * 1400).append_column("id", pa.array(values))
    pq.write_table(table, "p.parquet")
    assert run(["predict", "y.assay", "p.parquet", "-o", "o.parquet", "--keep", "id", "--quiet"]) == 0
    got = pq.read_table("o.parquet")["id"].to_pylist()
    assert [got[0], got[-1]] == [values[0], values[-1] if values[-1] is not True else "true"]


def test_numbers_get_no_apostrophe_and_formulas_do(here, new):
    new.assign(n="-1.5", e="+2e-7", f="=1+1", m="-x", s="-").to_csv("n.csv", index=False)
    assert run(["predict", "y.assay", "n.csv", "-o", "o.csv", "--keep", "n,e,f,m,s"]) == 0
    assert (here / "o.csv").read_text().splitlines()[1].startswith("-1.5,+2e-7,'=1+1,'-x,-,")


def test_what_is_read_is_not_written_over(here, new, capsys):
    before = (here / "new.csv").read_bytes()
    os.symlink("new.csv", "link.csv")
    for out in ("new.csv", "link.csv", "./new.csv", "y.assay"):
        assert run(["predict", "y.assay", "new.csv", "-o", out]) == 2
        assert "would be lost" in capsys.readouterr().err
    assert run(["fit", "new.csv", "--target", "x", "-o", "new.csv"]) == 2
    assert run(["check", "y.assay", "new.csv", "--json", "new.csv"]) == 2
    assert (here / "new.csv").read_bytes() == before
    assay.load("y.assay")


@pytest.mark.skipif(os.name == "nt", reason="pipes")
def test_pipes_and_devices_are_refused(here, capsys):
    os.mkfifo("pipe")
    assert run(["predict", "y.assay", "new.csv", "-o", "pipe"]) == 2
    assert run(["predict", "y.assay", "pipe"]) == 2
    assert "can be read only once" in capsys.readouterr().err
    assert run(["predict", "y.assay", "new.csv", "-o", "/dev/null"]) == 2


def test_wide_rows_come_in_smaller_batches():
    from assay.data.batches import frame_batches

    wide = pd.DataFrame(np.zeros((3000, 10_000), dtype=np.int8))
    assert max(len(piece) for _, piece in frame_batches(wide)) * 10_000 <= 2**23


@pytest.mark.parametrize("columns", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_thousands_of_columns(columns):
    rng = np.random.default_rng(0)
    wide = pd.DataFrame(rng.normal(size=(60, columns)), columns=[f"c{i}" for i in range(columns)])
    wide["y"] = wide["c0"]
    from sklearn.linear_model import Ridge

    fitted = assay.fit(wide, "y", method="split", model=Ridge())
    assert len(fitted.predict(wide[wide.columns[::-1]])) == 60


def test_a_python_without_skops_says_what_to_install(here):
    code = (
        "import sys; sys.modules['skops'] = None; sys.modules['skops.io'] = None\n"
        "import assay; assay.load('y.assay')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'assay[save]'" in done.stderr


def test_answers_in_lines_are_json(here):
    assert run(["predict", "y.assay", "new.csv", "-o", "o.jsonl"]) == 0
    assert len([json.loads(line) for line in (here / "o.jsonl").read_text().splitlines()]) == 100


def test_ten_thousand_classes():
    from assay.conformal.lac import LACClassifier

    rng = np.random.default_rng(0)
    scores = rng.random((400, 10_000))
    y = rng.integers(0, 10_000, 400)
    scores[np.arange(400), y] += 300
    proba = scores / scores.sum(axis=1, keepdims=True)
    fitted = LACClassifier(alpha=0.1).calibrate_proba(proba[:200], y[:200])
    sets = fitted.predict_set_proba(proba[200:])
    least = np.sort(proba[np.arange(200), y[:200]])[::-1][180]  # rank ceil(.9 * 201) = 181
    assert sets.shape == (200, 10_000)
    assert (sets == (proba[200:] >= least)).all()
