"""New rows brought to the columns of training, or refused by name."""

import numpy as np
import pandas as pd
import pytest

from assay.core.errors import DataError
from assay.data.schema import Notices, Schema

TRAIN = pd.DataFrame(
    {
        "area": [50.0, 70.0, np.nan, 90.0],
        "rooms": [1, 2, 3, 4],
        "garden": [True, False, True, False],
        "town": ["Ulm", "Bonn", "Ulm", None],
        "code": ["7", "8", "7", "9"],
        "sold": pd.to_datetime(["2020-01-01", "2020-02-01", "2020-03-01", "2020-04-01"]),
    }
)


@pytest.fixture
def schema():
    return Schema.of(TRAIN)


def conform(schema, frame, **options):
    notices = Notices()
    return schema.conform(frame, notices, **options), notices.lines()


def test_training_rows_pass_without_a_word(schema):
    got, lines = conform(schema, TRAIN)
    assert list(got.columns) == list(TRAIN.columns)
    assert lines == ()
    assert got["area"].isna().sum() == 1


def test_order_and_further_columns_do_not_matter(schema):
    shuffled = TRAIN[list(TRAIN.columns[::-1])].assign(colour="red", price=1.0)
    got, lines = conform(schema, shuffled, known=["price"])
    expected, _ = conform(schema, TRAIN)
    pd.testing.assert_frame_equal(got, expected)
    assert lines == ("colour: column not used: it was no feature in training",)


def test_missing_columns_are_named_with_what_they_may_be(schema):
    with pytest.raises(DataError, match=r"2 columns are missing: 'area', 'town'; is it 'Area' for 'area'"):
        conform(schema, TRAIN.rename(columns={"area": "Area"}).drop(columns="town"))


def test_duplicated_columns_are_refused(schema):
    with pytest.raises(DataError, match="duplicated column name: 'area'"):
        conform(schema, pd.concat([TRAIN, TRAIN[["area"]]], axis=1))


def test_text_from_a_csv_becomes_what_it_was(schema):
    text = TRAIN.astype(str).replace({"nan": None, "None": None})
    got, lines = conform(schema, text)
    expected, _ = conform(schema, TRAIN)
    pd.testing.assert_frame_equal(got[["area", "rooms"]], expected[["area", "rooms"]])
    assert got["garden"].tolist() == [True, False, True, False]
    assert (got["sold"] == TRAIN["sold"]).all()
    assert lines == ()


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("area", "12 m2", r"'area' was numbers in training and holds text in 1 of 4 rows, first in row 12"),
        ("rooms", "four", "'rooms' was numbers in training and holds text in 1 of 4"),
        ("garden", "maybe", "'garden' was true or false in training and holds text in 1 of 4"),
        ("garden", 2, "'garden' was true or false"),
        ("garden", None, "'garden' was true or false in training and holds missing values in 1 of 4"),
        ("sold", "soon", "'sold' was dates in training and holds text in 1 of 4"),
    ],
)
def test_other_kinds_are_refused_with_row_and_count(schema, column, value, words):
    frame = TRAIN.astype({column: str}).astype({column: object})
    frame.loc[2, column] = value
    with pytest.raises(DataError, match=words):
        conform(schema, frame, first_row=10)


def test_dates_in_place_of_text_and_numbers_in_place_of_dates_are_refused(schema):
    with pytest.raises(DataError, match="'town' was text in training and holds dates"):
        conform(schema, TRAIN.assign(town=TRAIN["sold"]))
    with pytest.raises(DataError, match="'sold' was dates in training and holds numbers"):
        conform(schema, TRAIN.assign(sold=1.5))


def test_codes_that_became_numbers_are_known(schema):
    got, lines = conform(schema, TRAIN.assign(code=[7.0, 8.0, np.nan, 9.0]))
    assert got["code"].tolist() == ["7", "8", None, "9"]
    assert lines == ("code: 1 row without a value, which no training row was",)


def test_what_is_strange_is_counted_over_batches(schema):
    notices = Notices()
    strange = TRAIN.assign(town=["Rom", "Ulm", "Rom", "Oslo"], area=[10.0, 60.0, 1e200, 500.0])
    for _ in range(2):
        schema.conform(strange, notices)
    lines = notices.lines()
    assert "area: 4 rows beyond the training rows' 50 to 90, such as '10', '500'" in lines
    assert any(line.startswith("town: 6 rows with a value that was not in the training") for line in lines)


def test_decimal_commas_are_read(schema):
    got, _ = conform(schema, TRAIN.assign(area=["50,5", "60", None, "70,25"]))
    assert got["area"].tolist()[:2] == [50.5, 60.0]


def test_a_schema_survives_json(schema):
    import json

    assert Schema.from_list(json.loads(json.dumps(schema.to_list()))) == schema
