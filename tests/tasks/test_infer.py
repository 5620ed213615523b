"""Which task a target asks for, and the sentence that says why."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from assay.core.errors import DataError, TaskError
from assay.data.read import as_table
from assay.tasks.infer import choose_task

BOTH = " (--task interval takes it as a number)"


def table(y):
    return as_table(pd.DataFrame({"x": np.arange(len(y)) % 17, "price": y}), "price")


@pytest.mark.parametrize(
    ("y", "sentence"),
    [
        (np.arange(3012) / 8, "interval: price is numeric with 3,012 distinct values"),
        (np.arange(3012), "interval: price is numeric with 3,012 distinct values"),
        (np.arange(84) % 21, "interval: price is numeric with 21 distinct values"),
        (np.arange(80) % 20, "label-set: price is whole numbers with only 20 distinct values{BOTH}"),
        (np.arange(80) % 2 * 1.0, "label-set: price is whole numbers with only 2 distinct values{BOTH}"),
        (np.arange(80) % 2 + 0.5, "label-set: price is numeric with only 2 distinct values{BOTH}"),
        (np.arange(80) % 3 + 0.5, "interval: price is numeric with 3 distinct values"),
        (np.arange(80) % 3 == 0, "label-set: price is true or false"),
        (list("abcd") * 20, "label-set: price is text with 4 distinct values"),
        (pd.Categorical(list("abcd") * 20), "label-set: price is a category with 4 distinct values"),
        ([f"label {i}" for i in range(150)] * 4, "label-set: price is text with 150 distinct values"),
    ],
)  # fmt: skip
def test_decision_and_reason(y, sentence):
    name, why = choose_task(table(y))
    assert why == sentence.format(BOTH=BOTH)
    assert name == sentence.partition(":")[0]


def test_what_was_asked_for_wins():
    assert choose_task(table(np.arange(80) % 5), "interval") == ("interval", "interval: asked for")
    with pytest.raises(TaskError, match="no task 'intervals'; there are: attack, interval, label-set"):
        choose_task(table(np.arange(80)), "intervals")


@pytest.mark.parametrize(
    ("y", "error", "message"),
    [
        (np.full(80, 2.0), DataError, r"'price' is constant: 2\.0 in all 80 rows"),
        (["a"] * 80, DataError, r"'price' is constant: a in all 80 rows"),
        (
            [f"text {i}" for i in range(80)],
            TaskError,
            r"text with 80 distinct values in 80 rows, too many for classes",
        ),
        (pd.date_range("2020", periods=80), TaskError, r"'price' is dates"),
    ],
)
def test_refused(y, error, message):
    with pytest.raises(error, match=message):
        choose_task(table(y))


def test_with_a_level_the_table_is_checked_too():
    choose_task(table(np.arange(80.0)), "auto", Fraction(1, 10))
    with pytest.raises(TaskError, match="text"):
        choose_task(table(list("ab") * 40), "interval", Fraction(1, 10))
