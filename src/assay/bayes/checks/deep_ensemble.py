"""Forecasts of an ensemble's loss against what ensembles lose, on pixels, a table and texts.

Each check divides its set once and for all; its seeds are new members. 24 members are the ensemble whose loss
is foretold from 60 draws of two and of five among them. Another 24, of which no forecast knows, are the
ensemble that "unseen" metrics are measured on: the first 24 meet the mean of all forecasts of their own pairs
by construction, so that their bias tells of the number of draws alone.
"""

from __future__ import annotations

import gzip
import os
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits

from assay.bayes.checks.many_members import member_probabilities
from assay.bayes.ensemble_equivalence import distributional_equivalence
from assay.bayes.ensemble_forecast import EnsembleForecast
from assay.bayes.ensemble_losses import LOSSES
from assay.core.checks import FloatArray
from assay.core.errors import AssayWarning, MissingDependency
from assay.core.overlap import draws_own_splits

Measured = Mapping[str, Mapping[str, float]]
Codes = NDArray[np.intp]
Rows = tuple[FloatArray, Codes]

MEMBERS, DRAWS = 24, 60
_TRAIN = 300


def digits(seed: int) -> Measured:
    """300 images train, 1,497 test; 300 epochs, and for ``ks`` also 40.

    See :func:`forecasts`. ``ks`` is the largest statistic between two of 24 members, of "epochs-40" and
    "epochs-300".
    """
    return _digits(0, seed)


@draws_own_splits((1797 - _TRAIN) / _TRAIN)
def digits_divided_anew(seed: int) -> Measured:
    """The same with another division of the images for each seed."""
    return _digits(seed, seed)


def _digits(division: int, seed: int) -> Measured:
    (X, y), (X_test, truth) = _divide(load_digits(return_X_y=True), _TRAIN, division)
    found = member_probabilities(X, y, X_test, n_members=2 * MEMBERS, epochs=(40, 300), seed=seed)
    ks = {
        f"epochs-{epochs}": distributional_equivalence(proba[:MEMBERS], truth).attrs["largest_ks"]
        for epochs, proba in found.items()
    }
    return {**forecasts(found[300], truth, seed), "ks": ks}


def breast_cancer(seed: int) -> Measured:
    """The table of 569 tumours, two classes: 200 train, 369 test; 300 epochs. See :func:`forecasts`."""
    (X, y), (X_test, truth) = _divide(load_breast_cancer(return_X_y=True), 200, 0)
    found = member_probabilities(X, y, X_test, n_members=2 * MEMBERS, epochs=(300,), seed=seed)
    return {**forecasts(found[300], truth, seed), "ks": _ks(found[300], truth)}


def questions(seed: int, data: str | Path | None = None) -> Measured:
    """Questions of TREC, six classes, as TF-IDF of 500 words: 1,000 train, 4,452 test; 60 epochs.

    See :func:`forecasts`. The folder ``data`` ($ASSAY_DATA by default) holds ``text-classification``.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    folder = data or os.environ.get("ASSAY_DATA")
    path = Path(folder or ".") / "text-classification" / "TREC.train.all.gz"
    if folder is None or not path.exists():
        raise MissingDependency(
            f"this check reads text-classification/{path.name} in the folder of ASSAY_DATA"
        )
    with gzip.open(path, "rt", encoding="latin-1") as handle:
        pairs = [line.rstrip("\n").split(" ", 1) for line in handle]
    labels, texts = np.array([int(label) for label, _ in pairs]), np.array([text for _, text in pairs])
    order = np.random.default_rng(0).permutation(len(labels))
    train, test = order[:1000], order[1000:]
    words = TfidfVectorizer(max_features=500).fit(texts[train])
    # rows of TF-IDF have length 1; times 10 their entries are of the size of standardised features
    X, X_test = (10 * words.transform(texts[rows]).toarray() for rows in (train, test))
    found = member_probabilities(X, labels[train], X_test, n_members=2 * MEMBERS, epochs=(60,), seed=seed)
    return {**forecasts(found[60], labels[test], seed), "ks": _ks(found[60], labels[test])}


def forecasts(proba: FloatArray, truth: Codes, seed: int) -> Measured:
    """How far forecasts of 24 members are off; the naive one is the loss of the members there are.

    ``bias`` is |mean forecast - loss of the 24| over the draws, ``unseen_bias`` the same of the other 24,
    ``unseen_error`` the mean of |forecast - loss of the other 24| over the draws: all of the Brier score.
    ``nll_error`` and ``error_rate_error`` are the like of the two-point law. Each of "forecast-2", "naive-2",
    "forecast-5" and "naive-5". ``gain`` is what the 24 lose less than one of them.
    """
    rng = np.random.default_rng([seed, 2])
    draws = {m: [rng.choice(MEMBERS, m, replace=False) for _ in range(DRAWS)] for m in (2, 5)}
    out: dict[str, dict[str, float]] = {}
    for loss, name in (("brier", "unseen_error"), ("nll", "nll_error"), ("error", "error_rate_error")):
        own, unseen = (_loss(loss, part, truth) for part in (proba[:MEMBERS], proba[MEMBERS:]))
        errors = out.setdefault(name, {})
        for m, chosen in draws.items():
            found = {
                f"forecast-{m}": np.array([_foretell(loss, proba[rows], truth) for rows in chosen]),
                f"naive-{m}": np.array([_loss(loss, proba[rows], truth) for rows in chosen]),
            }
            for contender, values in found.items():
                errors[contender] = float(np.abs(values - unseen).mean())
                if loss == "brier":
                    out.setdefault("bias", {})[contender] = abs(float(values.mean()) - own)
                    out.setdefault("unseen_bias", {})[contender] = abs(float(values.mean()) - unseen)
        if loss == "brier":
            single = float(np.mean([_loss(loss, proba[i : i + 1], truth) for i in range(MEMBERS)]))
            out["gain"] = {"deep-ensembles": single - own}
    return out


def _foretell(loss: str, proba: Iterable[FloatArray], truth: Codes) -> float:
    law = "exact" if loss == "brier" else "inverse_m"
    with warnings.catch_warnings():
        # two members say so, and so do probabilities of zero: both are part of what is measured
        warnings.simplefilter("ignore", AssayWarning)
        found = EnsembleForecast(loss, law, n_bootstrap=2, random_state=0).fit(proba, truth)
        return float(found.predict(MEMBERS)[0])


def _loss(name: str, proba: FloatArray, truth: Codes) -> float:
    loss = LOSSES[name]
    mean = loss.values(proba.mean(axis=0), truth)
    return float(loss.of_mean(mean, truth).mean())


def _ks(proba: FloatArray, truth: Codes) -> Mapping[str, float]:
    return {"deep-ensembles": distributional_equivalence(proba[:MEMBERS], truth).attrs["largest_ks"]}


def _divide(table: Rows, n_train: int, division: int) -> tuple[Rows, Rows]:
    """Training and test rows, standardised by the first."""
    X, y = table
    order = np.random.default_rng(division).permutation(len(y))
    train, test = order[:n_train], order[n_train:]
    spread = X[train].std(axis=0)
    Z = (X - X[train].mean(axis=0)) / np.where(spread > 0, spread, 1)
    return (Z[train], y[train]), (Z[test], y[test])
