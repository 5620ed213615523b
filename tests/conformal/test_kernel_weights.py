"""Weights of empirical likelihood, kernels, and the choice of the bandwidth."""

import numpy as np
import pytest
from scipy.optimize import brentq

from assay.conformal.kernel_weights import (
    aicc,
    aicc_bandwidth,
    effective_size,
    kernel_values,
    rnw_multiplier,
    rnw_probabilities,
)
from assay.core.errors import DataError, MethodError
from assay.core.quantiles import weighted_quantile


@pytest.mark.parametrize("c", [1e-30, 0.3, 1.0, 7.0, 1e30])
def test_three_numbers(c):
    g = np.array([-c, c, c])
    assert rnw_multiplier(g) == pytest.approx(1 / (3 * c), rel=1e-12)
    np.testing.assert_allclose(rnw_probabilities(g), [1 / 2, 1 / 4, 1 / 4], rtol=1e-12)


@pytest.mark.parametrize("g", [[1.0, -1.0], [-3.0, 3.0, 0.0, -0.2, 0.2]])
def test_symmetric_numbers_change_nothing(g):
    assert rnw_multiplier(np.array(g)) == pytest.approx(0, abs=1e-14)


@pytest.mark.parametrize("g", [[0.0, 0.0], [1.0, 2.0, 0.0], [-1.0, -5.0], []])
def test_one_sign_alone_changes_nothing(g):
    """The condition cannot be met: plain weights, never an error or a division by 0."""
    assert rnw_multiplier(np.array(g)) == 0


@pytest.mark.parametrize("spread", [0, 1, 5, 12])
def test_conditions_hold_for_random_numbers(spread):
    rng = np.random.default_rng(spread)
    for _ in range(100):
        g = rng.normal(size=rng.integers(2, 200)) * np.exp(spread * rng.normal(size=1)) ** rng.normal()
        g *= np.exp(rng.normal(size=len(g)) * min(spread, 3))
        if g.min() >= 0 or g.max() <= 0:
            continue
        p = rnw_probabilities(g)
        assert abs(p.sum() - 1) < 1e-10
        assert abs(p @ g) < 1e-10 * np.abs(g).max()
        assert p.min() > 0
        lam = rnw_multiplier(g)
        assert -1 / g.max() < lam < -1 / g.min()


def test_root_agrees_with_a_bracketing_solver():
    rng = np.random.default_rng(3)
    for _ in range(50):
        g = rng.normal(0.3, 1, size=40)
        low, high = -1 / g.max(), -1 / g.min()
        inside = 1e-12 * (high - low)
        root = brentq(lambda lam, g=g: (g / (1 + lam * g)).sum(), low + inside, high - inside, xtol=1e-15)
        assert rnw_multiplier(g) == pytest.approx(root, rel=1e-9, abs=1e-12)


def test_scale_of_g_changes_the_multiplier_alone():
    """The factor h^-w of a kernel may be left out: it over- and underflows for long windows."""
    g = np.random.default_rng(0).normal(0.2, 1, 50)
    np.testing.assert_allclose(rnw_probabilities(g * 1e200), rnw_probabilities(g), rtol=1e-10)
    assert rnw_multiplier(g * 1e200) == pytest.approx(rnw_multiplier(g) / 1e200)


def test_kernels():
    squared = np.array([0.0, 1.0, 4.0, 9.0, np.inf])
    np.testing.assert_allclose(kernel_values(squared, 2.0), [1, 0.75, 0, 0, 0])
    np.testing.assert_allclose(
        kernel_values(squared, 2.0, "gaussian"), np.exp([0, -1 / 8, -1 / 2, -9 / 8, -np.inf])
    )
    # far from everything the nearest still counts
    np.testing.assert_allclose(kernel_values(squared + 1e8, 1.0, "gaussian")[0], 1)
    with pytest.raises(MethodError, match="kernel must be one of"):
        kernel_values(squared, 1.0, "uniform")


def test_effective_size():
    assert effective_size(np.full(8, 1 / 8)) == pytest.approx(8)
    assert effective_size(np.array([0.0, 1.0])) == 1


@pytest.mark.parametrize("kernel", ["epanechnikov", "gaussian"])
def test_aicc_of_the_whole_smoother(kernel):
    rng = np.random.default_rng(0)
    X, y, h = rng.normal(size=(60, 2)), rng.normal(size=60), 2.0
    squared = ((X[:, None] - X[None]) ** 2).sum(-1)
    K = np.exp(-squared / (2 * h**2)) if kernel == "gaussian" else np.maximum(1 - squared / h**2, 0)
    S = K / K.sum(1, keepdims=True)
    trace = np.trace(S @ S.T)
    expected = np.log(((y - S @ y) ** 2).sum()) + (60 + trace) / (60 - trace - 2)
    np.testing.assert_allclose(aicc(X, y, [h], kernel), [expected], rtol=1e-12)


def test_bandwidth_follows_the_signal():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 1))
    grid = [0.05, 0.2, 0.8, 3.0, 12.0]
    assert aicc_bandwidth(X, np.sin(8 * X[:, 0]) + 0.05 * rng.normal(size=400), grid) <= 0.2
    assert aicc_bandwidth(X, rng.normal(size=400), grid) >= 3.0


def test_long_grid_in_two_passes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 2))
    y = X[:, 0] + 0.3 * rng.normal(size=150)
    grid = list(np.linspace(0.2, 6, 60))
    best = aicc_bandwidth(X, y, grid)
    whole = aicc(X, y, grid)
    assert aicc(X, y, [best])[0] < whole.min() + 0.05


def test_no_degree_of_freedom_is_told():
    X = np.arange(6.0)[:, None]
    with pytest.raises(MethodError, match="degree of freedom with 6 windows"):
        aicc_bandwidth(X, X[:, 0], [0.01, 0.1])
    with pytest.raises(MethodError, match="positive"):
        aicc_bandwidth(X, X[:, 0], [0.0])
    with pytest.raises(DataError, match="6 windows and 5 targets"):
        aicc_bandwidth(X, X[:5, 0], [1.0])


@pytest.mark.parametrize(("level", "value"), [(0.1, 1), (0.3, 2), (0.31, 3), (0.6, 3), (1, 4), (0, 1)])
def test_weighted_quantile_of_four(level, value):
    assert weighted_quantile([1, 2, 3, 4], level, [0.1, 0.2, 0.3, 0.4]) == value
