"""NexCP: weights that fade with age."""

import numpy as np
import pytest

from assay.conformal.nexcp import NexCP
from assay.core.errors import MethodError
from assay.core.quantiles import conformal_quantile


@pytest.mark.parametrize(("alpha", "q"), [(0.6, 3), (0.8, 2), (0.5, np.inf)])
def test_three_scores(alpha, q):
    method = NexCP(rho=0.5).fit([1.0, -2.0, 3.0])
    assert method.predict_interval(10.0, alpha).tolist() == [10 - q, 10 + q]


def test_rho_one_is_split_conformal():
    x = np.random.default_rng(0).normal(size=150)
    ends = NexCP(rho=1).run(x, 50, 0.1)
    for t in range(50, 150):
        q = conformal_quantile(np.abs(x[:t]), 0.1)
        np.testing.assert_array_equal(ends[t - 50], [-q, q])


def test_agrees_with_the_weighted_quantile():
    x = np.random.default_rng(0).normal(size=400)
    ends = NexCP(rho=0.98).run(x, 300, 0.1)
    for t in (300, 350, 399):
        weights = 0.98 ** np.arange(t, 0, -1.0)
        q = conformal_quantile(np.abs(x[:t]), 0.1, weights, 1.0)
        np.testing.assert_array_equal(ends[t - 300], [-q, q])


def test_remembers_what_matters():
    method = NexCP(rho=0.99).fit(np.zeros(10))
    kept = method.history_.capacity
    assert 0.99 ** (kept + 1) / 0.01 < 1e-12 < 0.99 ** (kept - 2) / 0.01
    assert kept == 3208
    assert NexCP(rho=1).fit(np.zeros(10)).history_.capacity is None
    assert NexCP(history=5).fit(np.zeros(10)).history_.values.shape == (5,)


@pytest.mark.parametrize("rho", [0, 1.1, -1, np.nan])
def test_bad_rho(rho):
    with pytest.raises(MethodError, match="rho must lie in"):
        NexCP(rho=rho).fit([1.0])
