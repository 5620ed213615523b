"""Monte-Carlo dropout: exact moments of a linear module, which layers are switched on, bad input."""

import numpy as np
import pytest

from assay.core.distributions import MixtureDistribution
from assay.core.errors import MethodError

torch = pytest.importorskip("torch")
from small_problems import SHORT, classes, numbers  # noqa: E402
from torch import nn  # noqa: E402

from assay.bayes.mc_dropout import MCDropout  # noqa: E402


def test_moments_of_a_linear_module():
    """Of w . (m x / (1 - p)) with m Bernoulli(1 - p): mean w . x, variance p / (1 - p) sum w^2 x^2."""
    X, y = numbers()
    p = 0.3
    method = MCDropout(
        nn.Sequential(nn.Dropout(p), nn.Linear(3, 1)),
        n_samples=4000,
        likelihood="regression",
        training=SHORT,
        random_state=0,
    ).fit(X, y)
    net, rows = method.network_, X[:20]
    dist = method.predict_dist(rows)
    assert isinstance(dist, MixtureDistribution)
    w = net.module[1].weight.detach().numpy().astype(float)[0] * net.y_scale
    z = (rows - net.x_mean) / net.x_scale
    plain = net.outputs(rows)[:, 0] * net.y_scale + net.y_mean
    variance = p / (1 - p) * (z**2 @ w**2)
    assert (np.abs(dist.mean - plain) < 5 * np.sqrt(variance / 4000)).all()
    np.testing.assert_allclose(dist.variance - net.noise_std**2, variance, rtol=0.15)


def test_only_dropout_is_switched_on():
    X, y = classes()
    module = nn.Sequential(nn.Linear(2, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
    method = MCDropout(module, n_samples=8, training=SHORT, random_state=0).fit(X, y)
    before = {name: value.clone() for name, value in method.network_.module.state_dict().items()}
    proba = method.predict_proba(X)
    np.testing.assert_allclose(method.predict_proba(X[5:6]), proba[5:6], atol=1e-6)
    np.testing.assert_allclose(method.predict_proba(X[::-1])[::-1], proba, atol=1e-6)
    np.testing.assert_array_equal(method.predict_proba(X), proba)
    after = method.network_.module.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert not any(part.training for part in method.network_.module.modules())
    plain = torch.softmax(torch.as_tensor(method.network_.outputs(X)), dim=1).numpy()
    assert np.abs(proba - plain).max() > 0.01


def test_channels_are_left_out_whole():
    X, y = classes()
    module = nn.Sequential(
        nn.Unflatten(1, (2, 1)), nn.Conv1d(2, 8, 1), nn.Dropout1d(0.5), nn.Flatten(), nn.Linear(8, 3)
    )
    method = MCDropout(module, n_samples=3, training=SHORT, random_state=0).fit(X, y)
    assert method.predict_proba(X[:4]).shape == (4, 3)


def test_a_module_without_dropout_is_refused():
    X, y = classes(60)
    with pytest.raises(MethodError, match="no dropout layer to switch on, it is made of Linear"):
        MCDropout(nn.Linear(2, 3), training=SHORT).fit(X, y)


@pytest.mark.parametrize(("argument", "value"), [("rate", 0.0), ("rate", 1.0), ("n_samples", 0)])
def test_impossible_arguments(argument, value):
    with pytest.raises(MethodError, match=argument):
        MCDropout(**{argument: value}).fit(*classes(60))
