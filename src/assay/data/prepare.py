"""From a table's columns to numbers: a scikit-learn ColumnTransformer, fitted on training rows alone.

Nothing here sees the target.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from assay.data.columns import kind_of

#: columns that one text or category column becomes at most; the rarest values share the last one
MAX_CATEGORIES = 32
#: a category in fewer training rows than this shares a column with the other rare ones
MIN_CATEGORY_ROWS = 5
_MISSING = "(missing)"
_DATE_PARTS = ("year", "month", "day", "weekday", "hour", "days")


def preparation(frame: pd.DataFrame) -> ColumnTransformer:
    """An unfitted transformer for the feature columns of a table; (n, d) float64 out.

    Steps: ``numbers`` (median for missing ones and a column that marks them, then mean 0 and
    deviation 1; a constant column keeps deviation 1), ``booleans`` (0 or 1), ``dates`` (year,
    month, day, weekday, hour and days since 1970, then as numbers), ``categories`` (one column a
    value, at most ``MAX_CATEGORIES``; missing is a value of its own; values in fewer than
    ``MIN_CATEGORY_ROWS`` training rows and, where there are such, unknown ones share a column),
    ``frequencies`` (for columns with more values than that: in how many training rows, as a logarithm).
    """
    kinds: dict[str, list[str]] = {"number": [], "bool": [], "date": [], "category": [], "text": []}
    for name in frame.columns:
        kinds[kind_of(frame[name])].append(name)
    labels = kinds["category"] + kinds["text"]
    crowded = [name for name in labels if frame[name].nunique() > MAX_CATEGORIES]
    steps: list[tuple[str, Any, list[str]]] = [
        ("numbers", _numbers(), kinds["number"]),
        ("booleans", FunctionTransformer(_to_float, feature_names_out="one-to-one"), kinds["bool"]),
        (
            "dates",
            Pipeline(
                [
                    ("parts", FunctionTransformer(_date_parts, feature_names_out=_date_names)),
                    *_numbers().steps,
                ]
            ),
            kinds["date"],
        ),
        (
            "categories",
            Pipeline(
                [
                    ("text", FunctionTransformer(_to_text, feature_names_out="one-to-one")),
                    (
                        "one_hot",
                        OneHotEncoder(
                            handle_unknown="infrequent_if_exist",
                            min_frequency=MIN_CATEGORY_ROWS,
                            max_categories=MAX_CATEGORIES,
                            sparse_output=False,
                            dtype=np.float64,
                        ),
                    ),
                ]
            ),
            labels,
        ),
        ("frequencies", Pipeline([("count", FrequencyEncoder()), ("scale", StandardScaler())]), crowded),
    ]
    return ColumnTransformer(
        [(name, step, columns) for name, step, columns in steps if columns], sparse_threshold=0.0
    )


def feature_names(fitted: ColumnTransformer) -> tuple[str, ...]:
    """Names of the columns of a fitted preparation, without the names of its steps."""
    return tuple(
        str(name).partition("__")[2].replace("infrequent_sklearn", "(other)")
        for name in fitted.get_feature_names_out()
    )


def _numbers() -> Pipeline:
    return Pipeline(
        [
            ("float", FunctionTransformer(_to_float, feature_names_out="one-to-one")),
            ("missing", SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)),
            ("scale", StandardScaler()),
        ]
    )


def _to_float(X: Any) -> NDArray[np.float64]:
    return np.asarray(X, dtype=np.float64)


def as_text(values: pd.Series[Any]) -> NDArray[Any]:
    """(n,) the text by which a value of a text or category column is known."""
    return values.astype(object).where(values.notna(), _MISSING).map(str).to_numpy(object)


def _to_text(X: pd.DataFrame) -> NDArray[Any]:
    return np.column_stack([as_text(X[name]) for name in X])


def _date_parts(X: pd.DataFrame) -> NDArray[np.float64]:
    parts = []
    for name in X:
        date = X[name].dt
        days = X[name].to_numpy().astype("datetime64[us]").astype(np.int64) / 86_400e6
        gone = X[name].isna().to_numpy()
        columns = [date.year, date.month, date.day, date.day_of_week, date.hour]
        parts += [column.to_numpy(np.float64, na_value=np.nan) for column in columns]
        parts.append(np.where(gone, np.nan, days))
    return np.column_stack(parts)


def _date_names(_: Any, names: Any) -> NDArray[Any]:
    return np.array([f"{name}.{part}" for name in names for part in _DATE_PARTS], dtype=object)


class FrequencyEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """log(1 + number of training rows with the same value), one column each; unseen values give 0."""

    def fit(self, X: pd.DataFrame, y: Any = None) -> Self:
        self.feature_names_in_ = np.array(list(X.columns), dtype=object)
        text = _to_text(X)
        self.counts_ = [dict(zip(*np.unique(column, return_counts=True), strict=True)) for column in text.T]
        return self

    def transform(self, X: pd.DataFrame) -> NDArray[np.float64]:
        text = _to_text(X)
        columns = [
            np.log1p([float(counts.get(value, 0)) for value in column])
            for counts, column in zip(self.counts_, text.T, strict=True)
        ]
        return np.column_stack(columns)

    def get_feature_names_out(self, _: Any = None) -> NDArray[Any]:
        return np.array([f"{name}.frequency" for name in self.feature_names_in_], dtype=object)
