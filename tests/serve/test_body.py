"""What may stand in the body of a request, and what is said of the rest."""

import json

import pytest

pytest.importorskip("fastapi")

from assay.core.errors import DataError
from assay.serve.body import MOST_OTHERS, TooLarge, read_rows


def read(content, known=("a", "b"), most=10):
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return read_rows(body, known, most)


def test_records_and_columns_are_the_same_rows():
    rows = read({"rows": [{"a": 1, "b": "x", "c": 3}, {"b": None, "a": 2.5}]})
    columns = read({"columns": {"c": [[], {}], "a": [1, 2.5], "b": ["x", None]}})
    for frame in (rows, columns):
        assert sorted(frame.columns) == ["a", "b", "c"]
        assert frame["a"].tolist() == [1, 2.5]
        assert frame["b"].isna().tolist() == [False, True]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"[]", "the body must be"),
        (b'{"rows": [{}], "columns": {}}', "nothing beside"),
        (b'{"row": []}', "the body must be"),
        (b'{"rows": {}}', "must be a list of objects"),
        (b'{"rows": []}', "there is no row"),
        (b'{"columns": {"a": []}}', "there is no row"),
        (b'{"rows": [{"a": 1}, 3]}', "row 1 is no object"),
        (b'{"columns": {"a": 1}}', "object of lists"),
        (b'{"columns": {"a": [1], "b": [1, 2]}}', r"different numbers of values: 1 \('a'\), 2 \('b'\)"),
        (b'{"rows": [{"a": 1, "a": 2}]}', "duplicated column name: 'a'"),
        (b'{"rows": [{"a": 1}, {"b": 1}, {"b": 2}]}', "'a' is missing in 2 of 3 rows, first in row 1"),
        (b'{"rows": [{"a": NaN}]}', "NaN is no JSON; write null"),
        (b'{"rows": [{"a": -Infinity}]}', "-Infinity is no JSON"),
        (b'{"rows": [{"a": 1e999}]}', "1e999 is too large"),
        (b'{"rows": [{"a": ' + b"9" * 5000 + b"}]}", "too large"),
        (b'{"rows": [{"a": "\xff"}]}', "not UTF-8"),
        (b'{"rows": [{"a": "\\ud800"}]}', "not UTF-8"),
        (b"[" * 200_000, "nested too deeply"),
    ],
)
def test_what_cannot_be_read_is_said(content, said):
    with pytest.raises(DataError, match=said):
        read(content)


def test_whole_numbers_of_64_bits_are_exact_and_larger_ones_the_nearest_float():
    frame = read({"rows": [{"a": 2**63 - 1, "b": 2**70}]})
    assert frame["a"].item() == 2**63 - 1
    assert frame["b"].item() == float(2**70)


def test_too_many_rows_or_columns():
    with pytest.raises(TooLarge, match="11 rows in one request; this service takes 10"):
        read({"columns": {"a": [1] * 11}})
    others = {f"c{i}": 1 for i in range(MOST_OTHERS + 1)}
    with pytest.raises(DataError, match=r"101 columns are none of the method's, such as 'c0'"):
        read({"rows": [{"a": 1, **others}]})
    with pytest.raises(DataError, match="101 columns"):  # each row may bring its own
        read({"rows": [{"a": 1, **dict.fromkeys([name])} for name in others]}, most=200)
