"""Temperature scaling: the temperature, the labels, the network, bad input."""

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from assay.core.errors import MethodError

pytest.importorskip("torch")

from small_problems import SHORT, classes

from assay.bayes.map_network import MapNetwork
from assay.bayes.temperature import TemperatureScaling, fit_temperature
from assay.networks.training import Training


def too_sure(n, factor, seed=0):
    """Logits that are ``factor`` times those of which the labels are drawn."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n, 4)) * 2
    u = rng.random((n, 1))
    codes = (u > np.cumsum(softmax(logits, axis=1), axis=1)[:, :-1]).sum(axis=1)
    return factor * logits, codes


@pytest.mark.parametrize("factor", [0.5, 1.0, 3.0])
def test_the_temperature_that_made_the_labels_is_found(factor):
    assert fit_temperature(*too_sure(20_000, factor)) == pytest.approx(factor, rel=0.05)


class Logits(ClassifierMixin, BaseEstimator):
    """A fitted classifier whose logits are its features."""

    classes_ = np.arange(4)

    def fit(self, X, y):
        return self

    def decision_function(self, X):
        return X

    def predict(self, X):
        return X.argmax(axis=1)

    def __sklearn_is_fitted__(self):
        return True


def test_agreement_with_scikit_learn():
    logits, codes = too_sure(2000, 2.5)
    other = CalibratedClassifierCV(FrozenEstimator(Logits()), method="temperature").fit(logits, codes)
    ours = softmax(logits / fit_temperature(logits, codes), axis=1)
    np.testing.assert_allclose(ours, other.predict_proba(logits), atol=1e-3)


def test_it_is_the_network_with_other_confidence():
    X, y = classes()
    plain = MapNetwork(training=SHORT, random_state=3).fit(X, y)
    scaled = TemperatureScaling(training=SHORT, random_state=3).fit(X, y)
    np.testing.assert_array_equal(scaled.network_.outputs(X), plain.network_.outputs(X))
    np.testing.assert_array_equal(scaled.predict(X), plain.predict(X))
    expected = softmax(plain.network_.outputs(X) / scaled.temperature_, axis=1)
    np.testing.assert_allclose(scaled.predict_proba(X), expected, rtol=1e-10)
    held = plain.network_.validation_rows
    assert scaled.score(X[held], y[held]) >= plain.score(X[held], y[held])


def test_what_it_cannot_do():
    X, y = classes(60)
    with pytest.raises(MethodError, match="for classes"):
        TemperatureScaling(likelihood="regression").fit(X, np.arange(60.0))
    with pytest.raises(MethodError, match="15 rows are given; at least 20"):
        TemperatureScaling(training=SHORT).fit(X[:15], y[:15])
    with pytest.raises(MethodError, match="patience"):
        TemperatureScaling(training=Training(3, 32, 0.01, None, 0.2)).fit(X, y)
