"""A file gives the same prepared numbers, to the bit, as a whole in training and in batches afterwards."""

import numpy as np
import pandas as pd
import pytest

import assay
from assay.data.read import as_table
from assay.data.schema import Notices
from assay.engine.coverage import check

N = 120
RNG = np.random.default_rng(0)
X = RNG.normal(size=N)
DAYS = pd.date_range("2020-01-05", periods=N, freq="7h", tz="Europe/Berlin")


def pick(*values):
    return [values[i] for i in RNG.integers(len(values), size=N)]


COLUMNS = {
    "17 digits": [repr(float(v * 10.0 ** int(e))) for v, e in zip(X, RNG.integers(-20, 20, N), strict=True)],
    "integers beyond 64 bits": [str(int(abs(v) * 10**22)) for v in X],
    "integers beyond 53 bits": [str(int(abs(v) * 10**18)) for v in X],
    "true and false": pick("True", "False"),
    "true, false and missing": pick("true", "false", ""),
    "times of day": pick("07:30", "12:00", "23:59"),
    "times with seconds": pick("07:30:01", "12:00:59", ""),
    "dates": [str(day)[:10] for day in DAYS],
    "dates with a zone": [day.isoformat() for day in DAYS],
    "dates in UTC": [day.strftime("%Y-%m-%dT%H:%M:%SZ") for day in DAYS],
    "far dates": pick("9999-12-31", "2020-01-01", "0001-01-01", ""),
    "words for no number": pick("1.5", "NAN", "inf", "-inf", "Infinity", "1e999", "nan", "2"),
    "hexadecimal": [hex(int(abs(v) * 1000)) for v in X],
    "plus signs": [f"+{abs(v):.2f}" for v in X],
    "zeros in front": pick("007", "008", "010"),
    "codes": pick("007", "8", "10.0", "A"),
    "minus zero": pick("-0", "1", "-1"),
    "spaces around": [f"  {v} " for v in X],
    "spaced booleans": pick(" True", " False"),
    "quotes": pick('"a ""q"" b"', '"a,b"', '"line 1\nline 2"', "x"),
    "words for missing": pick("None", "NA", "#N/A", "a"),
}


def written(column, sep=",", end="\n", encoding="utf-8"):
    lines = [sep.join(["c", "x", "y"])]
    lines += [sep.join([str(c), f"{v:.3f}", f"{v * v:.3f}"]) for c, v in zip(column, X, strict=True)]
    return (end.join(lines) + end).encode(encoding)


def same(path, content):
    path.write_bytes(content)
    fitted = assay.fit(path, "y", method="split")
    notices = Notices()
    rows = [fitted.prepare(fitted._features(f, i, notices, ())) for i, f in fitted._batches(path, 50)]
    expected = fitted.prepare(as_table(path, "y").X)
    assert np.vstack(rows).tobytes() == expected.tobytes()
    with pytest.raises(assay.core.errors.DataError, match=f"{N} rows that it was fitted on"):
        check(fitted, path)  # rows are known again by their values
    return fitted


@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS)
def test_columns(tmp_path, column):
    same(tmp_path / "t.csv", written(column))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"], ids=["LF", "CRLF", "CR"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_encodings_and_line_ends(tmp_path, encoding, end):
    same(tmp_path / "t.csv", written(pick("é", "ü", "€"), end=end, encoding=encoding))


def test_utf_16_of_either_order_and_beyond_the_first_plane(tmp_path):
    for mark, encoding in ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        same(tmp_path / "t.csv", mark + written(pick("😀", "ü", "z"), encoding=encoding))


def test_decimal_commas(tmp_path):
    content = written([f"{v:.2f}" for v in X], sep=";").replace(b".", b",")
    same(tmp_path / "t.csv", content)
