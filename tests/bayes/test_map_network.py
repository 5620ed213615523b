"""The trained network: what it predicts, the same for the same seed, user modules, bad input."""

import copy

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.datasets import load_diabetes, load_digits
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from assay.core.errors import AssayWarning, DataError, MethodError
from assay.core.probabilities import softmax

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from assay.bayes.map_network import MapNetwork  # noqa: E402
from assay.networks.predictive import train_predictive_network  # noqa: E402
from assay.networks.training import Training  # noqa: E402

SHORT = Training(max_epochs=3, batch_size=32, learning_rate=0.01, patience=3, validation_fraction=0.2)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order[:900]], y[order[:900]], X[order[900:]], y[order[900:]]


@pytest.fixture(scope="module")
def fitted(digits):
    return MapNetwork(random_state=0).fit(*digits[:2])


def test_as_good_as_the_network_of_scikit_learn(digits, fitted):
    X, y, X_test, y_test = digits
    other = make_pipeline(
        StandardScaler(), MLPClassifier((64, 32), early_stopping=True, n_iter_no_change=20, random_state=0)
    ).fit(X, y)
    assert (fitted.predict(X_test) == y_test).mean() >= other.score(X_test, y_test) - 0.02
    theirs = -np.log(other.predict_proba(X_test)[np.arange(len(y_test)), y_test]).mean()
    assert -fitted.score(X_test, y_test) <= theirs + 0.05


def test_probabilities_are_the_softmax_of_the_module(digits, fitted):
    X_test = digits[2]
    net = fitted.network_
    rows = torch.as_tensor(((X_test - net.x_mean) / net.x_scale).astype(np.float32))
    with torch.no_grad():
        expected = softmax(net.module(rows).double().numpy())
    np.testing.assert_allclose(fitted.predict_proba(X_test), expected, atol=1e-6)
    assert not net.module.training


def test_regression_is_a_gaussian_with_the_validation_residual():
    X, y = load_diabetes(return_X_y=True)
    method = MapNetwork(likelihood="regression", random_state=1).fit(X[:350], y[:350])
    net, dist = method.network_, method.predict_dist(X[350:])
    held = net.validation_rows
    assert len(held) == round(0.15 * 350)
    assert not set(held) & set(net.training_rows)
    rest = y[held] - method.predict(X[held])
    assert net.noise_std == pytest.approx(np.sqrt(np.mean(rest**2)), rel=1e-6)
    np.testing.assert_allclose(dist.std, net.noise_std)
    error = np.sqrt(np.mean((dist.mean - y[350:]) ** 2))
    assert error < 0.85 * y[350:].std()


def test_the_same_seed_gives_the_same_network(digits):
    X, y = digits[:2]
    first = train_predictive_network(X, y, "classification", random_state=5, training=SHORT)
    torch.manual_seed(99)
    before = torch.get_rng_state()
    again = MapNetwork(random_state=5, training=SHORT).fit(X, y).network_
    assert torch.equal(torch.get_rng_state(), before)
    np.testing.assert_array_equal(again.outputs(X), first.outputs(X))
    other = train_predictive_network(X, y, "classification", random_state=6, training=SHORT)
    assert np.abs(other.outputs(X) - first.outputs(X)).max() > 0.1


def test_a_module_of_the_user_is_copied(digits):
    X, y, X_test, y_test = digits
    mine = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.Tanh(), nn.Dropout(0.2), nn.Linear(32, 10))
    start = copy.deepcopy(mine.state_dict())
    method = clone(MapNetwork(mine, random_state=0)).fit(X, y)
    assert mine.training
    assert all(torch.equal(value, start[name]) for name, value in mine.state_dict().items())
    assert (method.predict(X_test) == y_test).mean() > 0.9
    np.testing.assert_allclose(method.predict_proba(X_test[:1]), method.predict_proba(X_test)[:1], atol=1e-6)


def test_a_factory_is_told_the_sizes(digits):
    X, y = digits[:2]
    asked = []

    def factory(n_features, n_outputs):
        asked.append((n_features, n_outputs))
        return nn.Linear(n_features, n_outputs)

    method = MapNetwork(factory, training=SHORT, random_state=0).fit(X, y)
    assert asked == [(64, 10)]
    assert isinstance(method.network_.module, nn.Linear)


def test_half_precision_is_said(digits):
    X, y = digits[:2]
    with pytest.warns(AssayWarning, match="holds bfloat16 weights; it is trained and run in float32"):
        method = MapNetwork(nn.Linear(64, 10).bfloat16(), training=SHORT, random_state=0).fit(X, y)
    assert method.network_.module.weight.dtype == torch.float32


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"module": nn.Linear(64, 7)}, r"gives shape \(2, 7\) for 2 rows of 64 features; \(2, 10\)"),
        ({"module": nn.Linear(9, 10)}, "cannot take rows of 64 features"),
        ({"module": nn.ReLU()}, "no weights to train"),
        ({"module": 3}, "module must be a torch"),
        ({"module": lambda d, k: "net"}, "module must be a torch"),
        ({"likelihood": "poisson"}, "likelihood must be"),
        ({"training": Training(3, 32, 1e12, 3, 0.2)}, "diverged"),
        ({"training": Training(0, 32, 0.1, 3, 0.2)}, "max_epochs"),
    ],
)
def test_impossible_arguments(digits, arguments, words):
    X, y = digits[:2]
    with pytest.raises(MethodError, match=words):
        MapNetwork(random_state=0, **arguments).fit(X, y)


def test_impossible_targets(digits):
    X, y = digits[:2]
    with pytest.raises(DataError, match="one class only"):
        MapNetwork().fit(X, np.ones(len(y), dtype=int))
    with pytest.raises(DataError, match="continuous numbers"):
        MapNetwork().fit(X, y + 0.5)
    with pytest.raises(DataError, match="not numbers"):
        MapNetwork(likelihood="regression").fit(X, y.astype(str))


def test_every_class_trains_and_few_rows_do_not_validate():
    X = np.random.default_rng(0).normal(size=(30, 2))
    y = np.array(["a"] * 28 + ["b", "c"])
    net = train_predictive_network(X, y, "classification", random_state=0, training=SHORT)
    assert set(y[net.training_rows]) == {"a", "b", "c"}
    assert len(net.validation_rows) == 6
    few = train_predictive_network(X[-15:], y[-15:], "classification", random_state=0, training=SHORT)
    assert len(few.validation_rows) == 0


def test_a_constant_target_has_a_noise_floor():
    X = np.random.default_rng(0).normal(size=(40, 2))
    net = train_predictive_network(X, np.full(40, 7.0), "regression", random_state=0, training=SHORT)
    assert net.noise_std > 0


def test_what_it_is_follows_the_likelihood():
    assert is_classifier(MapNetwork())
    assert is_regressor(MapNetwork(likelihood="regression"))
    assert not hasattr(MapNetwork(likelihood="regression"), "predict_proba")
    assert not hasattr(MapNetwork(), "predict_std")
