"""Files that stand for the reader's own in the commands of the documents.

The documents say ``housing.csv`` where the reader has a file of their own. So that these commands can be
run as they are printed, real data that packages ship is written under such names and columns: small, since
they show that a command works, and not what comes out on real houses.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

import assay
from assay.data import builtin

_ROWS = 200


def write(folder: Path) -> None:
    """All of them, into a folder."""
    for name, frame in _tables().items():
        save = {".csv": _csv, ".parquet": _parquet, ".jsonl": _json_lines}[Path(name).suffix]
        save(frame, folder / name)
    _write_probabilities(folder / "probs.npz")
    (folder / "rows").mkdir()
    _parquet(_homes()[_ROWS:], folder / "rows" / "part-0.parquet")
    assay.fit(folder / "housing.csv", "price", method="split").save(folder / "price.assay")


def _tables() -> dict[str, pd.DataFrame]:
    homes = _homes()
    people = builtin.load("breast-cancer").frame
    survey = builtin.load("fair").frame
    ill = people.rename(columns={"diagnosis": "y"})
    left = people.rename(columns={"diagnosis": "churn"})
    weather = builtin.load("delhi-climate").frame
    return {
        "housing.csv": homes[:_ROWS],
        "new.csv": homes[_ROWS : 2 * _ROWS].drop(columns="price"),
        "labelled.csv": homes[2 * _ROWS : 3 * _ROWS],
        "house.csv": homes[:_ROWS].drop(columns=["id", "town"]),
        "churn.parquet": people.rename(columns={"diagnosis": "left"})[:_ROWS],
        "march.csv": left[:_ROWS],
        "april.csv": left[_ROWS : 2 * _ROWS].drop(columns="churn"),
        "data.csv": ill[:_ROWS],
        "survey.csv": survey[: 4 * _ROWS].rename(columns={"educ": "education"}),
        "load.csv": _load(weather),
        "shops.csv": _shops(weather),
        "one-line-a-shop.csv": _one_line_a_shop(weather),
        "forecasts.parquet": _forecasts(weather),
        "forecasts.jsonl": _forecasts(weather),
    }


def _homes() -> pd.DataFrame:
    stones = builtin.load("diamonds").frame
    names = {"carat": "area", "x": "lat", "cut": "town"}
    return stones.rename(columns=names).assign(id=[f"h-{i}" for i in range(len(stones))])


def _load(weather: pd.DataFrame) -> pd.DataFrame:
    frame = weather.rename(columns={"meantemp": "load", "date": "timestamp"})[["timestamp", "load"]][:600]
    return frame.assign(planned=frame["load"].shift(24).bfill())


def _shops(weather: pd.DataFrame) -> pd.DataFrame:
    days = weather[["date", "meantemp", "humidity"]][:400].rename(columns={"date": "day"})
    return days.melt("day", var_name="shop", value_name="sales")


def _one_line_a_shop(weather: pd.DataFrame) -> pd.DataFrame:
    shops = _shops(weather)
    shops["day"] = [f"day-{day}" for day in shops.groupby("shop").cumcount()]
    return shops.pivot(index="shop", columns="day", values="sales").reset_index()


def _forecasts(weather: pd.DataFrame) -> pd.DataFrame:
    """That tomorrow will be as today."""
    series = _shops(weather).rename(columns={"day": "time", "shop": "series_id", "sales": "actual"})
    series["time"] = series["time"].astype(str).str[:10]
    return series.assign(forecast=series.groupby("series_id")["actual"].shift(1)).dropna()


def _write_probabilities(path: Path) -> None:
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    X, y = load_digits(return_X_y=True)
    model = LogisticRegression(max_iter=100, tol=1e-2).fit(X[:600] / 16, y[:600])
    np.savez(path, proba=model.predict_proba(X[600:] / 16), y=y[600:])


def _csv(frame: pd.DataFrame, path: Path) -> None:
    frame.to_csv(path, index=False)


def _parquet(frame: pd.DataFrame, path: Path) -> None:
    frame.to_parquet(path, index=False)


def _json_lines(frame: pd.DataFrame, path: Path) -> None:
    frame.to_json(path, orient="records", lines=True)
