"""Equalised set size beside marginal and Mondrian sets, on survey answers and on short texts.

``fair`` comes with statsmodels. The texts lie in ``intent-text`` in the folder that ASSAY_DATA names; no text
with groups of people is at hand, so their groups are by length: a property known for new rows, not a
protected one.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.conformal.equalized_size import EqualizedSetSize
from assay.conformal.lac import LACClassifier
from assay.conformal.mondrian import MondrianConformal
from assay.conformal.set_fairness import ALL, GAP, set_fairness_report
from assay.core.errors import MissingDependency
from assay.core.overlap import draws_own_splits
from assay.core.seeds import derive_seed

_ALPHA = 0.1
_TRAIN, _CALIB = 1500, 2400
_FAIR_ROWS = 6366
_TEXT_TRAIN, _TEXT_CALIB, _TEXT_ROWS = 2500, 4000, 13083
#: test rows to those that a method learns from: it trains on some and calibrates on others
_FAIR_RATIO = (_FAIR_ROWS - _TRAIN - _CALIB) / (_TRAIN + _CALIB)
_TEXT_RATIO = (_TEXT_ROWS - _TEXT_TRAIN - _TEXT_CALIB) / (_TEXT_TRAIN + _TEXT_CALIB)
#: words up to which a text is short, and up to which it is of middle length
_LENGTHS = (8, 14)

Measured = Mapping[str, Mapping[str, float]]


@draws_own_splits(_FAIR_RATIO)
def education_by_religiousness(seed: int) -> Measured:
    """``educ`` (6 classes) of the survey, groups by ``religious`` (4)."""
    return _fair(seed, "educ", "religious")


@draws_own_splits(_FAIR_RATIO)
def marriage_by_occupation(seed: int) -> Measured:
    """``rate_marriage`` (5 classes), groups by ``occupation`` (6)."""
    return _fair(seed, "rate_marriage", "occupation")


@draws_own_splits(_FAIR_RATIO)
def occupation_by_religiousness(seed: int) -> Measured:
    """``occupation`` (6 classes), groups by ``religious`` (4)."""
    return _fair(seed, "occupation", "religious")


def _fair(seed: int, target: str, group: str) -> Measured:
    """Multinomial logistic regression on 1,500 rows, 2,400 that calibrate, the others test."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    try:
        from statsmodels.datasets import fair
    except ModuleNotFoundError as error:
        raise MissingDependency("the survey comes with statsmodels: pip install 'assay[audit]'") from error
    frame = fair.load_pandas().data
    X = frame.drop(columns=target).to_numpy(dtype=np.float64)
    y = frame[target].to_numpy().astype(str)
    order = np.random.default_rng(derive_seed(seed, target)).permutation(len(y))
    parts = np.split(order, [_TRAIN, _TRAIN + _CALIB])
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(X[parts[0]], y[parts[0]])
    proba = model.predict_proba(X)
    return _measured(proba, y, frame[group].to_numpy().astype(str), model.classes_, parts[1], parts[2])


@draws_own_splits(_TEXT_RATIO)
def intents_by_length(seed: int) -> Measured:
    """77 intents of messages to a bank, groups by length (up to 8 words, up to 14, longer).

    Logistic regression on TF-IDF of 2,500 messages, 4,000 calibrate, the others test.
    """
    import pandas as pd
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    folder = os.environ.get("ASSAY_DATA")
    paths = [Path(folder or "") / "intent-text" / f"banking77_{part}.csv.gz" for part in ("train", "test")]
    if not folder or not all(path.is_file() for path in paths):
        raise MissingDependency(f"this check reads intent-text/{paths[0].name} in the folder of ASSAY_DATA")
    frame = pd.concat([pd.read_csv(path) for path in paths], ignore_index=True)
    y = frame["category"].to_numpy(dtype=str)
    length = np.searchsorted(_LENGTHS, [len(text.split()) for text in frame["text"]])
    order = np.random.default_rng(derive_seed(seed, "intents")).permutation(len(y))
    train, calib, test = np.split(order, [_TEXT_TRAIN, _TEXT_TRAIN + _TEXT_CALIB])
    model = make_pipeline(
        TfidfVectorizer(min_df=2, sublinear_tf=True), LogisticRegression(C=10.0, max_iter=1000)
    ).fit(frame["text"].iloc[train], y[train])
    proba = model.predict_proba(frame["text"])
    return _measured(proba, y, length, model[-1].classes_, calib, test)


def _measured(
    proba: NDArray[Any],
    y: NDArray[Any],
    groups: NDArray[Any],
    classes: NDArray[Any],
    calib: NDArray[Any],
    test: NDArray[Any],
) -> Measured:
    """``coverage``, ``mean_size``, ``coverage_gap`` and ``size_gap`` of each method; all with the LAC score.

    A class that no training row has is in no set.
    """
    methods: dict[str, Any] = {
        "lac": LACClassifier(alpha=_ALPHA),
        "mondrian": MondrianConformal(label_score="lac", alpha=_ALPHA),
        "equalized-size": EqualizedSetSize(label_score="lac", alpha=_ALPHA),
    }
    every = np.unique(y)
    if len(every) > len(classes):
        wide = np.zeros((len(proba), len(every)))
        wide[:, np.searchsorted(every, classes)] = proba
        proba, classes = wide, every
    out: dict[str, dict[str, float]] = {}
    for name, method in methods.items():
        marginal = name == "lac"
        method.calibrate_proba(
            proba[calib], y[calib], classes=classes, groups=None if marginal else groups[calib]
        )
        sets = method.predict_set_proba(proba[test], groups=None if marginal else groups[test])
        report = set_fairness_report(sets, y[test], groups[test], classes=classes.tolist())
        over_all, gap = report.loc[ALL].to_dict(), report.loc[GAP].to_dict()
        values = {
            "coverage": over_all["coverage"],
            "mean_size": over_all["mean_size"],
            "coverage_gap": gap["coverage"],
            "size_gap": gap["mean_size"],
        }
        for metric, value in values.items():
            out.setdefault(metric, {})[name] = float(value)
    return out
