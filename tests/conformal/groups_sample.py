"""Probabilities of rows of two groups, in one of which the model is much less sure."""

import numpy as np


def hard_and_easy(n, seed, k=4):
    """((n, k) probabilities, (n,) labels, (n,) "easy" or "hard")."""
    rng = np.random.default_rng(seed)
    groups = np.where(rng.random(n) < 0.5, "easy", "hard")
    y = rng.integers(k, size=n)
    logits = rng.normal(size=(n, k))
    logits[np.arange(n), y] += np.where(groups == "easy", 3.5, 1.0)
    p = np.exp(logits)
    return p / p.sum(axis=1, keepdims=True), y, groups
