"""SWAG: moments of the draws, batch normalisation, the same start as the network, bad input."""

from dataclasses import replace

import numpy as np
import pytest

from assay.core.errors import MethodError

torch = pytest.importorskip("torch")
from small_problems import SHORT, classes, numbers  # noqa: E402
from torch import nn  # noqa: E402

from assay.bayes.map_network import MapNetwork  # noqa: E402
from assay.bayes.swag import SWAG  # noqa: E402


def linear(n_samples=10, training=SHORT, **arguments):
    with torch.random.fork_rng():  # a given module is trained from the weights that it has
        torch.manual_seed(0)
        module = nn.Linear(3, 1)
    return SWAG(
        module,
        n_samples=n_samples,
        epochs=12,
        likelihood="regression",
        training=training,
        random_state=0,
        **arguments,
    ).fit(*numbers())


def test_moments_of_the_draws():
    method = linear(20_000, rank=5)
    D = method.deviations_
    assert D.shape == (5, 4)
    expected = 0.5 * (np.diag(method.variance_) + D.T @ D / 4)
    scale = np.sqrt(np.diag(expected))
    error = (np.cov(method.weights_.T) - expected) / np.outer(scale, scale)
    assert np.abs(error).max() < 0.05
    assert (np.abs(method.weights_.mean(axis=0) - method.mean_) < 5 * scale / np.sqrt(20_000)).all()


def test_it_starts_at_the_network_and_stays_a_good_one():
    X, y = numbers()
    settled = replace(SHORT, max_epochs=100)  # far from the optimum SGD would go on, and rightly
    method = linear(rank=20, training=settled)
    plain = MapNetwork(method.module, likelihood="regression", training=settled, random_state=0).fit(X, y)
    np.testing.assert_array_equal(method.network_.outputs(X), plain.network_.outputs(X))
    assert len(method.deviations_) == 12  # fewer epochs than the rank
    assert np.abs(method.predict(X) - plain.predict(X)).max() < 0.3 * y.std()
    assert (method.predict_std(X) > plain.predict_std(X)).all()


def test_batch_normalisation_is_run_for_each_draw():
    X, y = classes()
    module = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))
    method = SWAG(module, n_samples=3, epochs=4, training=SHORT, random_state=0).fit(X, y)
    rows = method.network_.inputs(X[method.network_.training_rows])
    for draw, buffers in zip(method.weights_, method._buffers, strict=True):
        weight = torch.as_tensor(draw[:16].reshape(8, 2), dtype=torch.float32)
        bias = torch.as_tensor(draw[16:24], dtype=torch.float32)
        mean = (rows @ weight.T + bias).mean(dim=0)
        # the mean of the means of batches of nearly one size
        np.testing.assert_allclose(buffers["1.running_mean"], mean, atol=0.1)
    assert not torch.equal(method._buffers[0]["1.running_mean"], method._buffers[1]["1.running_mean"])


def test_validation_rows_choose_the_rate():
    X, y = classes()
    made = {}
    for rate in ("validation", 0.01, 0.001, 0.0001):
        made[rate] = SWAG(learning_rate=rate, n_samples=5, epochs=6, training=SHORT, random_state=0).fit(X, y)
    held = made[0.01].network_.validation_rows
    likelihood = {rate: method.log_prob(X[held], y[held]).mean() for rate, method in made.items()}
    best = max((0.01, 0.001, 0.0001), key=likelihood.get)
    assert made["validation"].learning_rate_ == best
    np.testing.assert_array_equal(made["validation"].weights_, made[best].weights_)
    np.testing.assert_array_equal(made["validation"].predict_proba(X), made[best].predict_proba(X))
    assert len({round(value, 12) for value in likelihood.values()}) == 3  # they do differ


def test_without_validation_rows_the_rate_is_that_of_the_paper():
    X, y = classes()
    rows = [int(np.flatnonzero(y == label)[0]) for label in np.unique(y)]  # one a class: all of them train
    method = SWAG(n_samples=2, epochs=3, training=SHORT, random_state=0).fit(X[rows], y[rows])
    assert len(method.network_.validation_rows) == 0
    assert method.learning_rate_ == 0.01


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rank": 1}, "rank and epochs"),
        ({"epochs": 1}, "rank and epochs"),
        ({"n_samples": 0}, "n_samples"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"learning_rate": "auto"}, "'validation'"),
        ({"learning_rate": 1e9}, "diverged in epoch"),
    ],
)
def test_impossible_arguments(arguments, words):
    with pytest.raises(MethodError, match=words):
        SWAG(nn.Linear(3, 1), likelihood="regression", training=SHORT, **arguments).fit(*numbers(80))
