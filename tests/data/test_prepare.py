"""Preparation: numbers from every kind of column, learnt from the training rows alone."""

import time
import warnings

import numpy as np
import pandas as pd

from assay.data.prepare import MAX_CATEGORIES, FrequencyEncoder, feature_names, preparation


def fitted(train, *others):
    step = preparation(train)
    out = [step.fit_transform(train), *(step.transform(other) for other in others)]
    for X in out:
        assert X.dtype == np.float64
        assert np.isfinite(X).all()
        assert X.shape[1] == len(feature_names(step))
    return feature_names(step), out


def test_numbers_are_filled_marked_and_scaled():
    train = pd.DataFrame({"a": [1.0, 2.0, np.nan, 6.0], "i": [1, 2, 3, 4]})
    names, (X, T) = fitted(train, pd.DataFrame({"a": [np.nan], "i": [10]}))
    assert names == ("a", "i", "missingindicator_a")
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(X.std(axis=0), 1)
    assert T[0, 0] == X[2, 0]  # the median of the training rows
    assert T[0, 2] == X[2, 2]
    np.testing.assert_allclose(T[0, 1], (10 - 2.5) / np.std([1, 2, 3, 4]))


def test_a_column_constant_in_training_keeps_its_scale():
    train = pd.DataFrame({"a": [5.0] * 6, "b": np.arange(6.0)})
    _, (X, T) = fitted(train, pd.DataFrame({"a": [5.0, 7.0], "b": [0.0, 1.0]}))
    assert (X[:, 0] == 0).all()
    assert T[:, 0].tolist() == [0.0, 2.0]


def test_text_missing_in_all_training_rows_is_no_matter_for_pandas():
    train = pd.DataFrame({"t": pd.Series([None] * 6, dtype="str"), "c": pd.Categorical([None] * 6, ["a"])})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, (X, T) = fitted(train, pd.DataFrame({"t": ["a"], "c": pd.Categorical(["a"])}))
    assert X.shape == (6, 2)
    assert T.shape == (1, 2)


def test_a_column_missing_in_all_training_rows_stays():
    train = pd.DataFrame({"a": [np.nan] * 4, "b": np.arange(4.0)})
    names, (_, T) = fitted(train, pd.DataFrame({"a": [3.0], "b": [1.0]}))
    assert names[:2] == ("a", "b")
    assert T.shape == (1, 3)


def test_float32_with_a_large_offset_loses_nothing():
    values = np.float32(2.0**23) + np.arange(8, dtype=np.float32)
    _, (X,) = fitted(pd.DataFrame({"a": values}))
    np.testing.assert_allclose(X[:, 0], (np.arange(8) - 3.5) / np.arange(8).std(), rtol=1e-9)


def test_categories_rare_missing_and_unknown():
    train = pd.DataFrame({"c": ["a"] * 10 + ["b"] * 8 + [None] * 6 + ["x", "y", "z", "z"]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        names, (X, T) = fitted(train, pd.DataFrame({"c": ["a", None, "x", "never seen"]}))
    assert names == ("c_(missing)", "c_a", "c_b", "c_(other)")
    assert X.sum(axis=0).tolist() == [6, 10, 8, 4]
    assert T.tolist() == [[0, 1, 0, 0], [1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 0, 1]]


def test_unknown_category_without_rare_ones_is_all_zero():
    train = pd.DataFrame({"c": ["a"] * 10 + ["b"] * 8})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, (_, T) = fitted(train, pd.DataFrame({"c": ["never seen"]}))
    assert T.tolist() == [[0, 0]]


def test_categories_of_numbers_and_booleans():
    train = pd.DataFrame({"k": pd.Categorical([1, 2] * 6), "b": [True, False] * 6})
    names, (X,) = fitted(train)
    assert names == ("b", "k_1", "k_2")
    assert X[0].tolist() == [1, 1, 0]


def test_crowded_text_is_bounded_and_counted():
    rng = np.random.default_rng(0)
    city = [f"city {i}" for i in np.minimum(rng.geometric(0.02, 3000), 200)]
    train = pd.DataFrame({"city": city})
    names, (X, T) = fitted(train, pd.DataFrame({"city": ["city 1", "nowhere"]}))
    assert X.shape[1] == MAX_CATEGORIES + 1
    assert names[-1] == "city.frequency"
    assert T[0, -1] == X[city.index("city 1"), -1]
    assert T[1, -1] < X[:, -1].min()


def test_frequency_is_the_log_of_the_count():
    encoder = FrequencyEncoder().fit(pd.DataFrame({"c": ["a", "a", "b", None]}))
    out = encoder.transform(pd.DataFrame({"c": ["a", "b", None, "q"]}))
    np.testing.assert_allclose(out[:, 0], np.log1p([2, 1, 1, 0]))


def test_dates_become_parts_and_days():
    train = pd.DataFrame(
        {"d": pd.to_datetime(["1970-01-02 06:00", "2024-02-29 12:00", None, "2000-12-31 00:00"])}
    )
    step = preparation(train)
    parts = step.fit(train).named_transformers_["dates"].named_steps["parts"].transform(train)
    assert parts[0].tolist() == [1970, 1, 2, 4, 6, 1.25]
    assert parts[1].tolist()[:5] == [2024, 2, 29, 3, 12]
    assert np.isnan(parts[2]).all()
    assert feature_names(step)[:6] == ("d.year", "d.month", "d.day", "d.weekday", "d.hour", "d.days")
    assert np.isfinite(step.transform(train)).all()


def test_nothing_is_learnt_from_other_rows():
    rng = np.random.default_rng(0)
    data = pd.DataFrame({"n": rng.normal(size=60), "c": rng.choice(list("abcd"), 60)})
    other = data.iloc[40:].assign(n=1e6, c="new")
    a = preparation(data.iloc[:40]).fit(data.iloc[:40])
    np.testing.assert_array_equal(a.transform(data.iloc[:40]), a.fit_transform(data.iloc[:40]))
    assert a.transform(other).shape == (20, a.transform(data.iloc[:40]).shape[1])


def test_ten_thousand_columns():
    d = 10_000
    data = pd.DataFrame(np.random.default_rng(0).normal(size=(60, d)), columns=[f"x{i}" for i in range(d)])
    start = time.process_time()
    _, (X,) = fitted(data)
    assert X.shape == (60, d)
    assert time.process_time() - start < 20
