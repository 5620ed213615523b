"""A scikit-learn model and a distribution around it: the model's own numbers, honest residuals, bad input."""

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.model_selection import KFold, cross_val_predict
from sklearn.neighbors import KNeighborsRegressor
from sklearn.svm import LinearSVC

from assay.bayes.sklearn_model import SklearnPredictive
from assay.core.errors import DataError, MethodError


def classes(n=90):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2))
    return X, np.where(X[:, 0] + 0.5 * rng.normal(size=n) > 0, "up", "down")


def numbers(n=90):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(n, 2))
    return X, X @ [2.0, -1.0] + rng.normal(size=n)


def test_probabilities_are_those_of_the_model():
    X, y = classes()
    method = SklearnPredictive(LogisticRegression()).fit(X, y)
    other = LogisticRegression().fit(X, y)
    np.testing.assert_array_equal(method.predict_proba(X), other.predict_proba(X))
    assert method.classes_.tolist() == ["down", "up"]
    np.testing.assert_array_equal(method.predict(X), other.predict(X))


def test_the_width_is_the_residual_in_cross_validation():
    X, y = numbers()
    method = SklearnPredictive(KNeighborsRegressor(1), folds=4, likelihood="regression", random_state=0).fit(
        X, y
    )
    assert np.abs(method.predict(X) - y).max() == 0  # its own rows would say that there is no error
    assert 0.7 < method.noise_std_ / 1.7 < 1.3
    again = SklearnPredictive(LinearRegression(), folds=90, likelihood="regression").fit(X, y)
    rest = y - cross_val_predict(LinearRegression(), X, y, cv=KFold(90))
    assert again.noise_std_ == pytest.approx(np.sqrt(np.mean(rest**2)), rel=1e-9)


def test_trees_by_default():
    X, y = classes()
    assert SklearnPredictive(random_state=0).fit(X, y).predict_proba(X).shape == (90, 2)
    X, y = numbers()
    assert SklearnPredictive(likelihood="regression", random_state=0).fit(X, y).predict_std(X).shape == (90,)


def test_impossible_arguments():
    with pytest.raises(MethodError, match="LinearSVC has no predict_proba"):
        SklearnPredictive(LinearSVC()).fit(*classes())
    with pytest.raises(MethodError, match="is a classifier"):
        SklearnPredictive(LogisticRegression(), likelihood="regression").fit(*numbers())
    with pytest.raises(MethodError, match="between 2 and the 90 rows, got 91"):
        SklearnPredictive(LinearRegression(), folds=91, likelihood="regression").fit(*numbers())
    X, _ = numbers()
    with pytest.raises(DataError, match="without any error"):
        SklearnPredictive(LinearRegression(), likelihood="regression").fit(X, np.zeros(90))
    with pytest.raises(DataError, match="one class only"):
        SklearnPredictive(LogisticRegression()).fit(numbers()[0], np.ones(90, dtype=int))
