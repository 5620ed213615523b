"""The poisoning task: what is certified and what attacks change, with certificates and without."""

from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.naive_bayes import GaussianNB

from assay.data.builtin import load
from assay.tasks import get_task
from assay.tasks.poisoning import RADII, PoisoningTask, random_poison

ALPHA = Fraction(1, 10)


class MostLikely(BaseEstimator):
    """The most likely labels of a model that sees all rows; ``claim`` certifies that nothing ever changes."""

    def __init__(self, claim=None):
        self.claim = claim

    def fit(self, X, y):
        self.model_ = GaussianNB().fit(X, y)
        self.classes_ = self.model_.classes_
        return self

    def predict_set(self, X, alpha=0.1):
        # a threshold in the middle of the probabilities of this data: every row of training matters
        return self.model_.predict_proba(X) >= 0.2


class Boastful(MostLikely):
    def certify(self, X, alpha=0.1):
        n = len(X)
        sizes = self.predict_set(X).sum(axis=1)
        radii = SimpleNamespace(coverage_radius=np.full(n, 9), size_radius=np.full(n, 9))
        return SimpleNamespace(
            training=radii,
            calibration=radii,
            largest_train=np.tile(sizes, (10, 1)),
            largest_calib=np.tile(sizes, (10, 1)),
        )


@pytest.fixture(scope="module")
def split():
    return get_task("poisoning").split(load("digits"), 0)


def test_a_method_without_certificates_has_every_label(split):
    outcome = PoisoningTask().evaluate(MostLikely(), split, ALPHA)
    assert outcome.metrics["certified_size"] == 10
    assert outcome.metrics["mean_size"] < 2
    for side in ("calib", "train"):
        for r in RADII:
            assert outcome.metrics[f"certified_{side}_{r}"] == 0
        curve = outcome.detail["curves"][side]
        assert curve["robust"][0] == 1
        assert set(curve["robust"][1:]) == {0}
        assert curve["largest"][0] == pytest.approx(outcome.metrics["mean_size"])
        assert 0 < outcome.metrics[f"flips_{side}"] < 1
    assert outcome.metrics["broken_certificates"] == 0
    names = {metric.name for metric in PoisoningTask.metrics}
    assert set(outcome.metrics) == names - {"peak_memory"}


def test_a_false_certificate_is_found_out(split):
    outcome = PoisoningTask().evaluate(Boastful(), split, ALPHA)
    assert outcome.metrics["certified_train_4"] == 1
    assert outcome.metrics["certified_size"] == pytest.approx(outcome.metrics["mean_size"])
    assert outcome.metrics["broken_certificates"] > 0


def test_the_method_is_left_as_fitted(split):
    method = MostLikely()
    task = PoisoningTask()
    task.evaluate(method, split, ALPHA)
    expected = MostLikely().fit(
        np.concatenate([split.X_train, split.X_calib]), np.concatenate([split.y_train, split.y_calib])
    )
    np.testing.assert_array_equal(method.predict_set(split.X_test), expected.predict_set(split.X_test))


@pytest.mark.parametrize("r", [0, 1, 3, 8])
def test_random_poison_changes_at_most_r_rows(r):
    rng = np.random.default_rng(r)
    X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 3
    for _ in range(20):
        Xp, yp = random_poison(X, y, np.arange(3), r, rng)
        clean = {(*x, label) for x, label in zip(X, y, strict=True)}
        poisoned = [(*x, label) for x, label in zip(Xp, yp, strict=True)]
        gone = len(clean - set(poisoned))
        extra = len(poisoned) - len(clean & set(poisoned))
        assert max(gone, extra) <= r
        assert abs(len(Xp) - len(X)) <= r
    assert (y == np.arange(20) % 3).all()
