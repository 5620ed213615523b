"""Splits: a function of table and seed alone, nothing leaks, every class is trained on."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.core.errors import TaskError
from assay.data.read import as_table
from assay.tasks import get_task
from assay.tasks.splitting import check_row_count, random_parts, stratified_parts


@settings(max_examples=60, deadline=None)
@given(n=st.integers(0, 300), seed=st.integers(0, 100))
def test_random_parts_share_out_all_rows(n, seed):
    train, calib, test = random_parts(n, seed)
    assert sorted([*train, *calib, *test]) == list(range(n))
    assert len(calib) == len(test) == n // 4


@settings(max_examples=80, deadline=None)
@given(counts=st.lists(st.integers(2, 30), min_size=2, max_size=12), seed=st.integers(0, 100))
def test_stratified_parts_have_every_class_in_training(counts, seed):
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(counts)), counts))
    parts = stratified_parts(labels, seed)
    assert sorted(np.concatenate(parts)) == list(range(len(labels)))
    per_part = np.array([np.bincount(labels[part], minlength=len(counts)) for part in parts])
    assert (per_part[0] >= 1).all()
    for calib_or_test in per_part[1:]:
        assert (calib_or_test >= np.array(counts) // 4).all()
        assert (calib_or_test <= np.array(counts) // 4 + 3).all()


def test_calibration_and_test_rows_of_a_rare_class_are_exchangeable():
    labels = np.repeat([0, 1], [40, 3])
    seen = np.zeros(3)
    for seed in range(3000):
        seen += [np.isin(part, [40, 41, 42]).sum() for part in stratified_parts(labels, seed)]
    share = seen / 3000
    assert share[0] == pytest.approx(2, abs=0.06)
    assert share[1] == pytest.approx(0.5, abs=0.06)
    assert share[2] == pytest.approx(0.5, abs=0.06)


@pytest.mark.parametrize(("task", "name"), [("interval", "diabetes"), ("label-set", "wine")])
def test_split_depends_on_the_seed_and_not_on_the_world(task, name):
    table, task = as_table(name), get_task(task)
    np.random.seed(5)  # noqa: NPY002
    a, b, c = task.split(table, 3), task.split(table, 3), task.split(table, 4)
    np.testing.assert_array_equal(a.test_rows, b.test_rows)
    np.testing.assert_array_equal(a.X_train, b.X_train)
    assert sorted(a.test_rows) != sorted(c.test_rows)
    np.testing.assert_array_equal(a.y_test, table.y.to_numpy()[a.test_rows])
    assert a.X_train.shape[1] == len(a.feature_names)


def test_preparation_saw_the_training_rows_only():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"x": rng.normal(size=80), "y": rng.normal(size=80)})
    split = get_task("interval").split(as_table(frame, "y"), 0)
    np.testing.assert_allclose(split.X_train.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(split.X_train.std(axis=0), 1)
    changed = frame.copy()
    changed.loc[split.test_rows, "x"] *= 1000
    again = get_task("interval").split(as_table(changed, "y"), 0)
    np.testing.assert_array_equal(split.X_train, again.X_train)
    np.testing.assert_array_equal(split.X_calib, again.X_calib)


@pytest.mark.parametrize(
    ("n", "alpha", "message"),
    [
        (
            35,
            "0.1",
            r"35 rows are too few at alpha 0\.1: .* 8 rows each; 9 are needed, that is at least 36 rows",
        ),
        (75, "0.05", r"19 are needed, that is at least 76 rows in all \(or alpha 0\.06\)"),
        (395, "0.01", r"99 are needed, that is at least 396 rows in all \(or alpha 0\.02\)"),
        (31, "0.5", r"8 are needed, that is at least 32 rows"),
        (10**6, "0", r"alpha 0 asks for sets that contain everything"),
    ],
)
def test_too_few_rows_says_how_many_are_needed(n, alpha, message):
    with pytest.raises(TaskError, match=message):
        check_row_count(n, Fraction(alpha))


@pytest.mark.parametrize(("n", "alpha"), [(36, "0.1"), (76, "0.05"), (396, "0.01"), (32, "0.5")])
def test_the_rows_that_are_asked_for_suffice(n, alpha):
    check_row_count(n, Fraction(alpha))
