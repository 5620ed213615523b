"""Files a batch at a time give the rows that they give as a whole."""

import gzip
import json

import numpy as np
import pandas as pd
import pytest

from assay.core.errors import DataError
from assay.data.batches import AnswerWriter, read_batches

FRAME = pd.DataFrame({"n": np.arange(10), "x": np.arange(10) / 4, "t": list("abcdefghij")})


def whole(path, rows=4):
    starts, frames = zip(*read_batches(path, rows), strict=True)
    assert list(starts) == list(np.cumsum([0, *map(len, frames)])[:-1])
    return pd.concat(frames, ignore_index=True)


@pytest.mark.parametrize("ending", ["parquet", "feather", "csv", "csv.gz", "tsv"])
def test_every_kind_of_file(tmp_path, ending):
    path = tmp_path / f"t.{ending}"
    if ending == "parquet":
        FRAME.to_parquet(path)
    elif ending == "feather":
        FRAME.to_feather(path)
    else:
        FRAME.to_csv(path, index=False, sep="\t" if ending == "tsv" else ",")
    got = whole(path)
    assert got["t"].tolist() == FRAME["t"].tolist()
    assert got["x"].astype(float).tolist() == FRAME["x"].tolist()


def test_text_with_all_its_oddities(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b'\xef\xbb\xbf\r\n a ;"b;c";\r\n1; x ;NA\r\n\r\n2;"q\r\nz";3,5\r\n')
    got = whole(path)
    assert list(got.columns) == ["a", "b;c", "column 3"]
    assert got["b;c"].tolist() == ["x", "q\r\nz"]
    assert got["column 3"].isna().tolist() == [True, False]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a,b\n1,2\n3\n", "cannot be read"),
        (b"a,a\n1,2\n", "duplicated column name"),
        (b"", "empty"),
        (b"a,b\n\xff\xfe,1\n", "UTF-8|UTF8"),
        (gzip.compress(b"a,b\n1,2\n", mtime=0)[:-6], "cannot be read"),
        (b"PAR1garbage", "Parquet"),
    ],
)
def test_damaged_files_are_one_line(tmp_path, content, words):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=words):
        list(read_batches(path))


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        list(read_batches(tmp_path / "none.csv"))


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl"])
def test_answers_are_written_in_order(tmp_path, ending):
    path = tmp_path / f"out.{ending}"
    with AnswerWriter(path) as writer:
        for _, frame in read_batches(_saved(tmp_path), 3):
            writer.write(frame.assign(set=[["a", "b"]] * len(frame)))
    if ending == "parquet":
        got = pd.read_parquet(path)
    elif ending == "csv":
        got = pd.read_csv(path)
    else:
        got = pd.DataFrame([json.loads(line) for line in path.read_text().splitlines()])
    assert got["n"].tolist() == list(range(10))
    assert len(got["set"][0]) in (2, 10)


def _saved(tmp_path):
    path = tmp_path / "in.parquet"
    FRAME.to_parquet(path)
    return path


def test_a_failure_half_way_leaves_nothing(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text("before")
    broken = [FRAME, None]
    with pytest.raises(AttributeError), AnswerWriter(path) as writer:
        list(map(writer.write, broken))
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]


def test_formulas_are_made_harmless_in_text_only(tmp_path):
    frame = pd.DataFrame({"=name": ["=1+1", "+x", "-x", "@x", "ok"], "n": [-1.5, 2, 3, 4, -5]})
    text, table = tmp_path / "o.csv", tmp_path / "o.parquet"
    for path in (text, table):
        with AnswerWriter(path) as writer:
            writer.write(frame)
    lines = text.read_text().splitlines()
    assert lines[0] == "'=name,n"
    assert lines[1] == "'=1+1,-1.5"
    assert pd.read_parquet(table)["=name"].tolist() == frame["=name"].tolist()


def test_infinite_and_missing_numbers_in_json(tmp_path):
    path = tmp_path / "o.jsonl"
    with AnswerWriter(path) as writer:
        writer.write(pd.DataFrame({"a": [np.inf, -np.inf, np.nan, 0.1]}))
    assert [json.loads(line)["a"] for line in path.read_text().splitlines()] == ["inf", "-inf", None, 0.1]
