"""Training rows given as calibration rows are refused; rows that repeat by nature are not."""

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import LinearRegression

from assay.conformal.bincp import BinCP
from assay.conformal.ellipsoid import EllipsoidRegressor
from assay.conformal.lac import LACClassifier
from assay.conformal.mondrian import MondrianConformal
from assay.conformal.pcp import PCP
from assay.conformal.rps import ReliablePredictionSets
from assay.conformal.smoothed_sets import SmoothedSetClassifier
from assay.conformal.split import SplitConformalRegressor
from assay.core.errors import DataError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 2))
Y = X + RNG.normal(size=(80, 2))


class Draws(LinearRegression):
    def sample(self, X, n_samples=1, random_state=None):
        rng = np.random.default_rng(random_state)
        return self.predict(X)[:, None] + rng.normal(size=(len(X), n_samples, 2))


METHODS = {
    "region": (EllipsoidRegressor(), Y),
    "density": (PCP(Draws(), n_samples=5), Y),
    "interval": (SplitConformalRegressor(), Y[:, 0]),
}
LABEL_SETS = {
    "label set": LACClassifier(),
    "group": MondrianConformal(),
    "attack": SmoothedSetClassifier(BinCP(), n_samples=20),
    "poisoning": ReliablePredictionSets(n_partitions=3, n_calibration_partitions=1),
}


@pytest.mark.parametrize("kind", METHODS)
def test_training_rows_are_refused(kind):
    method, y = METHODS[kind]
    for rows in (slice(None), slice(10, 40), slice(None, None, -1)):
        with pytest.raises(DataError, match=f"all {len(y[rows])} calibration rows are training rows"):
            method.fit(X, y, X[rows], y[rows])
    other = RNG.normal(size=(30, 2))
    assert method.fit(X, y, other, (other if y.ndim == 2 else other[:, 0]) + 1) is method


@pytest.mark.parametrize("kind", LABEL_SETS)
def test_label_sets_refuse_training_rows(kind):
    method = LABEL_SETS[kind]
    y = np.where(Y[:, 0] > 0, "yes", "no")
    for rows in (slice(None), slice(10, 40), slice(None, None, -1)):
        with pytest.raises(DataError, match=f"all {len(y[rows])} calibration rows are training rows"):
            method.fit(X, y, X[rows], y[rows])
    method.fit(X[:60], y[:60], X[50:], y[50:])
    few = RNG.integers(0, 2, size=(80, 3)).astype(float)
    method.fit(few[:60], y[:60], few[60:], y[60:])


def test_the_same_table_of_text_is_refused():
    table = pd.DataFrame({"a": ["x", "y"] * 20})
    with pytest.raises(DataError, match="all 40 calibration rows"):
        EllipsoidRegressor().fit(table, Y[:40], table, Y[:40])


@pytest.mark.parametrize("kind", METHODS)
def test_some_rows_in_common_and_rows_that_repeat_are_accepted(kind):
    method, y = METHODS[kind]
    method.fit(X[:60], y[:60], X[50:], y[50:])
    few = RNG.integers(0, 2, size=(80, 4)).astype(float)
    targets = few[:, 2:] if y.ndim == 2 else few[:, 2]
    method.fit(few[:60, :2], targets[:60], few[60:, :2], targets[60:])
    # the same design with new outcomes
    method.fit(X, y, X, y + 1)


def test_sparse_rows():
    sparse = csr_array(X)
    SplitConformalRegressor().fit(sparse[:40], Y[:40, 0], sparse[40:], Y[40:, 0])
