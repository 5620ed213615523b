"""Fitted predictive methods inside conformal ones, as they are."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from small_problems import SHORT, classes, numbers  # noqa: E402

from assay.bayes.map_network import MapNetwork  # noqa: E402
from assay.bayes.mc_dropout import MCDropout  # noqa: E402
from assay.bayes.sklearn_model import SklearnPredictive  # noqa: E402
from assay.conformal import (  # noqa: E402
    PCP,
    APSClassifier,
    ConditionalPCP,
    HPDSplitRegressor,
    LACClassifier,
    NormalizedConformalRegressor,
    SplitConformalRegressor,
)

# coverage of one draw of calibration and test rows: 0.9, with an sd of 0.023
X, Y = numbers(800)
TRAIN, CALIB, TEST = slice(0, 150), slice(150, 450), slice(450, 800)


@pytest.fixture(
    scope="module",
    params=[
        MapNetwork(likelihood="regression", training=SHORT, random_state=0),
        MCDropout(likelihood="regression", training=SHORT, n_samples=5, random_state=0),
        SklearnPredictive(likelihood="regression", random_state=0),
    ],
    ids=["gaussian", "mixture", "trees"],
)
def model(request):
    return request.param.fit(X[TRAIN], Y[TRAIN])


@pytest.mark.parametrize("cls", [PCP, ConditionalPCP, HPDSplitRegressor])
def test_as_a_density_model(model, cls):
    method = cls(model, random_state=0).calibrate(X[CALIB], Y[CALIB])
    region = method.predict_region(X[TEST])
    assert 0.8 < region.contains(Y[TEST]).mean() < 0.97
    volume = region.volume()
    np.testing.assert_allclose(method.predict_region(X[TEST][:3]).volume(), volume[:3], rtol=1e-3)


def test_trained_inside(model):
    method = ConditionalPCP(
        MapNetwork(likelihood="regression", training=SHORT, random_state=0), random_state=0
    )
    assert method.fit(X[:400], Y[:400]).predict_region(X[TEST]).contains(Y[TEST]).mean() > 0.8


def test_as_a_model_of_the_spread(model):
    method = NormalizedConformalRegressor(model, scale_estimator=model.predict_std)
    low, high = method.calibrate(X[CALIB], Y[CALIB]).predict_interval(X[TEST]).T
    assert 0.8 < ((low <= Y[TEST]) & (Y[TEST] <= high)).mean() < 0.97
    width, spread = high - low, model.predict_std(X[TEST])
    np.testing.assert_allclose(width / spread, width[0] / spread[0], rtol=1e-6)


def test_as_a_regressor(model):
    method = SplitConformalRegressor(model).calibrate(X[CALIB], Y[CALIB])
    np.testing.assert_allclose(
        method.predict_interval(X[TEST]).mean(axis=1), model.predict(X[TEST]), rtol=1e-6
    )


def test_densities_of_many_values_are_those_of_single_ones(model):
    values = Y[TEST][:5, None] + np.array([-3.0, 0.0, 8.0])
    expected = np.stack([model.log_prob(X[TEST][:5], column) for column in values.T], axis=1)
    np.testing.assert_allclose(model.log_prob_samples(X[TEST][:5], values[:, :, None]), expected, rtol=1e-6)
    with pytest.raises(ValueError, match=r"expected \(5, m\)"):
        model.log_prob_samples(X[TEST][:5], values[:4])


@pytest.mark.parametrize("cls", [LACClassifier, APSClassifier])
def test_as_a_classifier(cls):
    rows, labels = classes(900)
    model = MapNetwork(training=SHORT, random_state=0).fit(rows[:200], labels[:200])
    method = cls(model).calibrate(rows[200:500], labels[200:500])
    sets = method.predict_set(rows[500:])
    column = np.searchsorted(method.classes_, labels[500:])
    assert sets[np.arange(400), column].mean() > 0.8
    fitted = cls(MapNetwork(training=SHORT, random_state=0)).fit(rows[:500], labels[:500])
    assert fitted.predict_set(rows[500:]).shape == (400, 3)
