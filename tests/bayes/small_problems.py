"""Small problems and a short training that the tests of predictive methods share."""

import numpy as np

from assay.networks.training import Training

SHORT = Training(max_epochs=15, batch_size=32, learning_rate=0.01, patience=15, validation_fraction=0.2)


def classes(n=300, seed=0, scale=1.5):
    """Three overlapping clouds in the plane, with labels that are words."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(3, size=n)
    centres = scale * np.array([[0.0, 1.0], [1.0, -0.5], [-1.0, -0.5]])
    return centres[codes] + rng.normal(size=(n, 2)), np.array(["no", "maybe", "yes"])[codes]


def numbers(n=300, seed=0):
    """A line with noise of sd 0.5, in units of tens."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, 10 * (X @ [1.0, -2.0, 0.5] + 0.5 * rng.normal(size=n)) + 100
