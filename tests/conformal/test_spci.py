"""SPCI: a forest's weights, against another library's forest and by refits."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from assay.conformal.spci import SPCI
from assay.core.errors import DataError, MethodError


def ar(n, seed=0):
    rng = np.random.default_rng(seed)
    out = np.zeros(n)
    for t in range(1, n):
        out[t] = 0.8 * out[t - 1] + rng.normal()
    return out


def test_quantiles_agree_with_a_quantile_forest():
    """Both forests hold the leaf mates of a window; without a bootstrap they are the same rows."""
    forests = pytest.importorskip("quantile_forest")
    x = ar(400)
    method = SPCI(window=6, n_trees=4, random_state=0).fit(x)
    ours = method._trained()
    X, y = sliding_window_view(x[:-1], 6), x[6:]
    order = np.argsort(y, kind="stable")
    peer = forests.RandomForestQuantileRegressor(
        n_estimators=1, max_depth=2, bootstrap=False, max_samples_leaf=None, random_state=0
    ).fit(X[order], y[order])
    ours._model = peer
    ours._leaves = peer.apply(X[order])
    ours._shares = 1.0 / np.bincount(ours._leaves[:, 0])[ours._leaves]
    levels = np.array([0.05, 0.33, 0.5, 0.77, 0.95])
    asked = sliding_window_view(ar(50, seed=1), 6)
    theirs = peer.predict(asked, quantiles=list(levels), interpolation="lower", weighted_quantile=False)
    mine = ours.quantiles(asked, levels)
    # the peer's rank is floor(g (n - 1)) from 0, ours ceil(g n) from 1: neighbours in a leaf at most
    leaves = {leaf: np.sort(y[order][ours._leaves[:, 0] == leaf]) for leaf in np.unique(ours._leaves)}
    for row, leaf in enumerate(peer.apply(asked)[:, 0]):
        mates = leaves[leaf]
        expected = mates[np.ceil(levels * len(mates) - 1e-9).astype(int) - 1]
        np.testing.assert_array_equal(mine[row], expected)
        gap = np.searchsorted(mates, mine[row]) - np.searchsorted(mates, theirs[row])
        assert np.abs(gap).max() <= 1


def test_looks_at_the_last_residuals():
    """An interval after a large residual lies above one after a small one."""
    x = ar(800)
    method = SPCI(window=3, random_state=0).fit(x)
    high = method.update(4.0).predict_interval(0.0)
    method.update(0.0)
    low = method.update(-4.0).predict_interval(0.0)
    assert high[0] > low[0] + 2
    assert high[1] > low[1] + 2


def test_refit_every_step_is_a_fresh_fit():
    x = ar(140)
    method = SPCI(window=4, n_trees=3, random_state=7)
    ends = method.run(x, 120, 0.2)
    assert len({tuple(row) for row in ends}) > 10
    lazy = SPCI(window=4, n_trees=3, refit_every=20, random_state=7).run(x, 120, 0.2)
    np.testing.assert_array_equal(lazy[0], ends[0])
    assert not np.array_equal(lazy[1:], ends[1:])


def test_windows_never_straddle_a_gap():
    x = ar(100)
    x[50:] += 1e6
    method = SPCI(window=3, random_state=0).fit(x, np.arange(100) // 50)
    assert len(method._trained().targets) == 94
    X = sliding_window_view(x[:-1], 3)
    assert sum(np.ptp(X, axis=1) > 1e5) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"window": 99}, "100 residuals remembered with windows of 99: more than 100"),
     ({"window": 10, "history": 11}, "11 residuals remembered"), ({"refit_every": 0}, "refit_every"),
     ({"window": 0}, "window must be")],
)  # fmt: skip
def test_bad_arguments(arguments, message):
    with pytest.raises((DataError, MethodError), match=message):
        SPCI(**arguments).fit(ar(100))
