"""Rows for tests of region methods."""

import numpy as np


def banana(n, seed):
    """x in (-1, 1); y_1 standard normal, y_2 = y_1^2 + x + 0.2 e."""
    rng = np.random.default_rng(seed)
    x, a, e = rng.uniform(-1, 1, size=n), rng.normal(size=n), rng.normal(size=n)
    return x[:, None], np.column_stack([a, a**2 + x + 0.2 * e])


def correlated(n, seed, q=2):
    """Linear signal, correlated normal noise of standard deviations 1, 2, ..., q."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    root = np.linalg.cholesky(0.4 * np.eye(q) + 0.6)
    return X, X @ np.ones((3, q)) + rng.normal(size=(n, q)) @ root.T * np.arange(1, q + 1)


def no_signal(X):
    """A prefit model of two outputs that predicts 0."""
    return np.zeros((len(X), 2))
