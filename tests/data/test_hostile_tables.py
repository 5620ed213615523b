"""Table files that are damaged, swollen or meant to harm: one clear error, in bounded memory and time."""

import bz2
import contextlib
import csv
import gzip
import io
import lzma
import subprocess
import sys
import zipfile

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assay.core.errors import DataError
from assay.data.batches import read_batches
from assay.data.read import as_table


def both(path, words):
    """Read a file as a whole and in batches: refused by both, with the words."""
    for read in (lambda: as_table(str(path), "y"), lambda: list(read_batches(path))):
        with pytest.raises(DataError, match=words) as caught:
            read()
        assert len(str(caught.value)) < 1000


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


def claimed(shape):
    """An NPZ file with an array that says to be of that shape, and holds nothing."""
    header, buffer = io.BytesIO(), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("y.npy", header.getvalue())
    return buffer.getvalue()


BOMBS = {
    "columns": (b",".join(b"c%d" % i for i in range(60_000)) + b",y\n", "60,001 columns; at most 50,000"),
    "field in the header": (b"a" * 200_000 + b",y\n1,2\n", "field larger than field limit"),
    "field": (b"x,y\n1,2\n" + b"a" * (40 << 20) + b",3\n", r"record is longer than 16 MiB|field limit"),
    "quote that never ends": (b'x,y\n1,2\n"' + b"a\n" * (20 << 20), r"longer than 16 MiB|field limit"),
    "arrays": (npz(X=np.zeros((5 * 10**7, 1)), y=np.zeros(10)), "would become more than"),
    "shape": (claimed((10**12,)), "cannot be read"),
    "shape beyond all": (claimed((10**18, 10**18)), "cannot be read"),
}


@pytest.mark.parametrize(("content", "words"), BOMBS.values(), ids=BOMBS)
def test_bombs(tmp_path, content, words):
    path = tmp_path / "bomb"
    path.write_bytes(content)
    both(path, words)


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress])
def test_packed_bombs(tmp_path, pack, monkeypatch):
    monkeypatch.setattr("assay.data.files._SMALL_BYTES", 1 << 20)
    path = tmp_path / "bomb"
    path.write_bytes(pack(b"x,y\n" + b"1,2\n" * 10**6))
    with pytest.raises(DataError, match=r"would become more than 1,.* unpack it first"):
        as_table(str(path), "y")
    assert sum(len(frame) for _, frame in read_batches(path)) == 10**6  # a batch at a time it does no harm


def test_deep_quotes_are_text(tmp_path):
    path = tmp_path / "quotes.csv"
    path.write_bytes(b"x,y\n" + b'"' * 100_000 + b",3\n1,2\n")
    frames = [frame for _, frame in read_batches(path)]
    assert [len(cell or "") for cell in frames[0]["x"]] == [49_999, 1]


def test_reading_arff_leaves_the_limit_of_csv_fields(tmp_path):
    path = tmp_path / "t.arff"
    path.write_bytes(FILES["arff"])
    before = csv.field_size_limit()
    as_table(str(path), "y")
    assert csv.field_size_limit() == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["columns", "field", "packed"])
def test_bombs_in_full_size(tmp_path, kind):
    """A million columns, a field of 1 GB, 4 GB packed: refused with less than the file and 1 GB on top."""
    path = tmp_path / "bomb"
    with path.open("wb") as file:
        if kind == "columns":
            file.write(b",".join(b"c%d" % i for i in range(10**6)) + b",y\n" + b",".join([b"1"] * 1_000_001))
        elif kind == "field":
            file.write(b"x,y\n1,2\n")
            for _ in range(1000):
                file.write(b"a" * 10**6)
            file.write(b",3\n")
    if kind == "packed":
        with lzma.open(path, "wb", preset=0) as file:
            for _ in range(1000):
                file.write(b"1,2\n" * 10**6)
    code = (
        "import resource, sys, pathlib\n"
        "from assay.core.errors import DataError\n"
        "from assay.data.batches import read_batches\n"
        "from assay.data.files import read_file\n"
        "path = pathlib.Path(sys.argv[1])\n"
        "try:\n"
        "    list(read_batches(path)) if sys.argv[2] == 'field' else read_file(path)\n"
        "except DataError:\n"
        "    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path, kind], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 1500


@pytest.mark.slow
def test_ten_million_rows_in_bounded_memory(tmp_path):
    path = tmp_path / "rows.csv"
    with path.open("wb") as file:
        file.write(b"x,y\n")
        for _ in range(100):
            file.write(b"1.5,2\n" * 100_000)
    code = (
        "import resource, sys, pathlib\n"
        "from assay.data.batches import read_batches\n"
        "print(sum(len(frame) for _, frame in read_batches(pathlib.Path(sys.argv[1]))))\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)"
    )
    done = subprocess.run([sys.executable, "-c", code, path], capture_output=True, text=True, check=True)
    rows, memory = map(int, done.stdout.split())
    assert rows == 10**7
    assert memory < 1024


# -------------------------------------------------------------------------------------------- fuzzing

_RNG = np.random.default_rng(0)
_FRAME = pd.DataFrame(
    {
        "x": _RNG.normal(size=30).round(2),
        "t": _RNG.choice(["a", "é"], 30),
        "d": pd.date_range("2020", periods=30),
        "b": _RNG.random(30) > 0.5,
        "y": range(30),
    }
)


def _whole_files():
    text = _FRAME.to_csv(index=False)
    files = {"text": text.encode(), "utf-16": text.encode("utf-16")}
    files |= {f"text {pack.__module__}": pack(text.encode()) for pack in (gzip.compress, bz2.compress)}
    files["semicolons"] = text.replace(",", ";").replace(".", ",").encode()
    files["arrays"] = npz(x=np.arange(9.0), y=np.arange(9))
    files["arff"] = b"@relation r\n@attribute x numeric\n@attribute y {a,b}\n@data\n1,a\n2,b\n?,a\n"
    for name, write in (("parquet", _FRAME.to_parquet), ("feather", _FRAME.to_feather)):
        buffer = io.BytesIO()
        write(buffer)
        files[name] = buffer.getvalue()
    return files


FILES = _whole_files()
_BYTES = st.sampled_from([b'"', b"\n", b",", b"\0", b";", b"'", b"\r", b"\xff", b"1e400", b"{", b"-", b"@"])


@st.composite
def mutants(draw):
    """A file of some kind with a few bytes flipped, cut, put in or repeated."""
    content = bytearray(FILES[draw(st.sampled_from(sorted(FILES)))])
    for _ in range(draw(st.integers(1, 6))):
        at = draw(st.integers(0, max(len(content) - 1, 0)))
        kind = draw(st.sampled_from(["flip", "flip", "flip", "put", "cut", "repeat", "end"]))
        if kind == "flip" and content:
            content[at] ^= 1 << draw(st.integers(0, 7))
        elif kind == "put":
            content[at:at] = draw(_BYTES)
        elif kind == "cut":
            del content[at : at + draw(st.integers(1, 9))]
        elif kind == "repeat":
            content[at:at] = content[max(0, at - draw(st.integers(1, 40))) : at]
        elif kind == "end":
            del content[at:]
    return bytes(content)


def read_or_refuse(path, content):
    path.write_bytes(content)
    with contextlib.suppress(DataError):
        as_table(str(path), "y")
    with contextlib.suppress(DataError):
        for start, frame in read_batches(path, 7):
            assert start >= 0
            assert len(frame.columns) == len(set(frame.columns))


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_text_that_is_no_utf_8_is_refused_by_its_column(tmp_path, ending):
    import pyarrow as pa
    import pyarrow.feather
    import pyarrow.parquet

    raw = pa.array([b"good", b"\xc1\xc1"] * 8, type=pa.binary())
    text = pa.StringArray.from_buffers(16, *raw.buffers()[1:])
    table = pa.table({"words": text, "y": list(range(16))})
    path = tmp_path / f"t.{ending}"
    {"parquet": pa.parquet.write_table, "feather": pa.feather.write_feather}[ending](table, path)
    with pytest.raises(DataError, match="the column 'words' is damaged"):
        as_table(str(path), "y")
    with pytest.raises(DataError, match="the column 'words' is damaged"):
        list(read_batches(path, 7))


FEW = settings(max_examples=200, deadline=20_000, suppress_health_check=list(HealthCheck))


@FEW
@given(content=mutants())
def test_any_file_is_a_table_or_refused(tmp_path, content):
    read_or_refuse(tmp_path / "t", content)


@pytest.mark.slow
@settings(FEW, max_examples=20_000)
@given(content=mutants())
def test_any_file_is_a_table_or_refused_in_full(tmp_path, content):
    read_or_refuse(tmp_path / "t", content)


@given(content=st.binary(max_size=300))
@settings(FEW, max_examples=100)
def test_noise_is_refused_or_a_table(tmp_path, content):
    read_or_refuse(tmp_path / "t", content)
