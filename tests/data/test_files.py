"""Reading files: every separator and encoding, and one clear line for each that cannot be read."""

import bz2
import gzip
import lzma

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import DataError
from assay.data.files import read_file, sniff_separator
from assay.data.read import as_table

ROWS = [(i, i % 7 + 0.5, "abc"[i % 3]) for i in range(40)]


def text_of(separator=",", rows=ROWS, header=("y", "x", "c")):
    lines = [separator.join(map(str, row)) for row in [header, *rows]]
    return "\n".join(lines) + "\n"


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def assert_plain(path):
    table = as_table(path, "y")
    assert [str(kind) for kind in table.frame.dtypes[:2]] == ["int64", "float64"]
    assert list(table.frame.itertuples(index=False, name=None)) == ROWS
    assert table.notes == ()
    return table


@pytest.mark.parametrize("separator", [",", ";", "\t", "|", ":", " "])
def test_any_separator(write, separator):
    assert_plain(write("a.csv", text_of(separator)))


@pytest.mark.parametrize("end", ["\r\n", "\r"])
def test_line_ends(write, end):
    assert_plain(write("a.csv", text_of().replace("\n", end)))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks(write, encoding):
    assert_plain(write("a.csv", text_of().encode(encoding)))


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_whatever_the_name(write, pack):
    assert_plain(write("a.data", pack(text_of().encode())))


def test_same_values_same_fingerprint_in_every_format(write, tmp_path):
    table = assert_plain(write("a.csv", text_of()))
    frame = table.frame
    frame.to_parquet(tmp_path / "a.parquet")
    frame.to_feather(tmp_path / "a.feather")
    for name in ("a.parquet", "a.feather"):
        assert assert_plain(tmp_path / name).fingerprint == table.fingerprint


def test_spaces_around_cells_and_question_marks(write):
    rows = [(f" {i}", f" {'?' if i == 3 else i}", f"  {'abc?'[i % 4]} ") for i in range(40)]
    frame, _ = read_file(write("a.csv", text_of(rows=rows, header=("y", " x ", "c"))))
    assert list(frame.columns) == ["y", "x", "c"]
    assert frame["x"].dtype.kind == "f"
    assert frame["x"].isna().sum() == 1
    assert set(frame["c"].dropna()) == set("abc")
    assert frame["c"].isna().sum() == 10


def test_decimal_comma_where_the_separator_is_another(write):
    rows = [(f"{i},5", f"{i}", "a,b") for i in range(40)]
    frame, notes = read_file(write("a.csv", text_of(";", rows)))
    assert frame["y"].tolist() == [i + 0.5 for i in range(40)]
    assert frame["c"].tolist() == ["a,b"] * 40
    assert notes == ["decimal commas read as points in: y"]


def test_comma_stays_text_where_other_columns_have_points(write):
    rows = [("1,234", "0.5", "a")] * 5
    frame, notes = read_file(write("a.csv", text_of(";", rows)))
    assert frame["y"].tolist() == ["1,234"] * 5
    assert notes == []


def test_quoted_separators_quotes_and_line_ends(write):
    frame, _ = read_file(write("a.csv", 'y,c\n1,"a\nb"\n2,"x,y"\n3,"he said ""hi"""\n'))
    assert frame["c"].tolist() == ["a\nb", "x,y", 'he said "hi"']


def test_dates_and_times_of_day(write):
    rows = [(i, f"2024-02-{i % 28 + 1:02d}", f"10:{i:02d}:00") for i in range(40)]
    table = as_table(write("a.csv", text_of(rows=rows)), "y")
    assert table.frame["x"].dtype == "datetime64[us]"
    assert table.frame["c"].iloc[1] == 10 * 3600 + 60
    assert table.notes == ("c: times of day read as seconds",)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", r"a\.csv is empty \(0 bytes\)"),
        ("a.csv", "\n \n", r"a\.csv is empty: no header, no rows"),
        ("a.csv", "y,x\n", r"a\.csv has a header \(2 columns\) but no rows"),
        ("a.csv", "y,x\n" * 1 + "1,2\n" * 15 + "1,caf\xe9\n", None),
        ("a.csv", "y,x,x\n1,2,3\n", r"duplicated column name: 'x' \(columns 2, 3\)"),
        ("a.csv", text_of() + "1,2\n1,2\n", r"line 42 has 2 fields where the header has 3 \(2 such lines\)"),
        ("a.csv", "\n\n" + text_of() + "1,2,3,4\n", r"line 44 has 4 fields where the header has 3; the sep"),
        ("a.csv", 'y,x,c\n1,2,"a\nb"\n2,3\n', r"line 4 has 2 fields where the header has 3"),
        ("a.gz", b"\x1f\x8bgarbage", r"compressed file is damaged"),
        ("a.parquet", b"PAR1garbage", r"the Parquet file cannot be read"),
        ("a.feather", b"ARROW1garbage", r"the Feather file cannot be read"),
        ("a.npz", b"PK\x03\x04junk", r"the file is damaged"),
        ("a.pkl", b"\x80\x04\x95\x00\x00", r"is no table that can be read; text \(CSV\), Parquet"),
    ],
)
def test_refused_files(write, name, content, message):
    if message is None:
        content, message = content.encode("latin-1"), r"line 17 is not UTF-8 \(byte 0xe9; 1 such line\(s\)\)"
    with pytest.raises(DataError, match=message):
        as_table(write(name, content), "y")


def test_file_not_there_names_a_near_one(write, tmp_path):
    write("houses.csv", text_of())
    with pytest.raises(DataError, match=r"house\.csv: no such file; did you mean .*houses\.csv\?"):
        as_table(tmp_path / "house.csv", "y")
    with pytest.raises(DataError, match=r"the folder .*nowhere does not exist either"):
        as_table(str(tmp_path / "nowhere" / "house.csv"), "y")
    with pytest.raises(DataError, match="is a folder"):
        as_table(tmp_path, "y")


def test_npz_matrix_and_named_arrays(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2, 2))
    np.savez(tmp_path / "a.npz", X=X, y=np.arange(12), extra=np.zeros(3))
    table = as_table(tmp_path / "a.npz")
    assert table.target == "y"
    np.testing.assert_array_equal(table.X.to_numpy(), X.reshape(12, 4))
    assert table.notes == ("arrays left out, not one value a row: extra",)
    np.savez(tmp_path / "b.npz", a=np.arange(12) ** 2, b=rng.normal(size=12))
    assert list(as_table(tmp_path / "b.npz", "a").X) == ["b"]


def test_npz_never_unpickles(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.array([{}, 1], dtype=object), y=np.arange(2))
    with pytest.raises(DataError, match="no pickles"):
        as_table(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", X=np.zeros((4, 2)), y=np.zeros(3))
    with pytest.raises(
        DataError, match=r"y does not have one row for each of the 4 rows: X \(4, 2\), y \(3,\)"
    ):
        as_table(tmp_path / "b.npz")


def test_excel_workbook_is_named(tmp_path):
    import zipfile

    with zipfile.ZipFile(tmp_path / "a.xlsx", "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")
    with pytest.raises(DataError, match="Excel workbook; save the sheet as CSV"):
        as_table(tmp_path / "a.xlsx", "y")


cells = st.one_of(
    st.integers(-1000, 1000).map(str),
    st.floats(-1e6, 1e6).map(repr),
    st.text(alphabet='abc ,;|\t"\n.é', max_size=6),
)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=12),
    separator=st.sampled_from([",", ";", "\t", "|"]),
)
def test_separator_is_found_whatever_the_quoted_cells_hold(rows, separator):
    frame = pd.DataFrame(rows, columns=["alpha", "beta", "gamma"])
    assert sniff_separator(frame.to_csv(index=False, sep=separator)) == separator


ARFF = """% made by hand
@relation weather

@attribute 'temp' numeric
@attribute sky {sunny, rain}
@attribute y real

@data
1.5,sunny,2
?,rain,3
4,?,5
"""


def test_arff_is_read_with_its_types(tmp_path):
    (tmp_path / "a.arff.gz").write_bytes(gzip.compress(ARFF.encode()))
    table = as_table(tmp_path / "a.arff.gz", "y")
    assert list(table.frame) == ["temp", "sky", "y"]
    assert table.name == "a"
    assert table.frame["sky"].isna().tolist() == [False, False, True]
    np.testing.assert_array_equal(table.frame["temp"], [1.5, np.nan, 4])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("y real", "y string", r"ARFF with .*numbers, dates and nominal values are read"),
        ("1.5,sunny,2", "{0 1.5}", r"sparse rows is not read"),
        ("1.5,sunny,2", "1.5,fog,2", r"the ARFF file cannot be read: .*fog"),
        ("1.5,sunny,2", "1.5\r,sunny,2", r"the ARFF file cannot be read: .*new-line"),
        (ARFF[ARFF.index("1.5,") :], "", r"has no rows after @data"),
    ],
)
def test_arff_that_cannot_be_read(tmp_path, old, new, message):
    (tmp_path / "a.arff").write_text(ARFF.replace(old, new), newline="")
    with pytest.raises(DataError, match=message):
        as_table(tmp_path / "a.arff", "y")
