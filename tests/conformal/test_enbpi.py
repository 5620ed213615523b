"""EnbPI: quantiles of the last residuals."""

import numpy as np
import pytest

from assay.conformal.enbpi import EnbPI
from assay.core.errors import MethodError


def test_exact_ranks():
    # levels 0, .025, ... of 1..40: the k-th smallest with k = ceil(g * 40), the first of equal widths
    x = np.random.default_rng(0).permutation(np.arange(1.0, 41))
    assert EnbPI().fit(x).predict_interval(0.0, 0.1).tolist() == [1, 36]
    assert EnbPI(fixed_beta=0.05).fit(x).predict_interval(0.0, 0.1).tolist() == [2, 38]
    assert EnbPI(fixed_beta=0.1).fit(x).predict_interval(0.0, 0.1).tolist() == [4, 40]


def test_the_longer_tail_is_cut():
    x = np.r_[np.zeros(90), np.arange(1.0, 11)]
    assert EnbPI().fit(x).predict_interval(0.0, 0.1).tolist() == [0, 0]


@pytest.mark.parametrize(("level", "percent"), [(0.025, 3), (0.05, 5), (0.075, 8), (0.1, 10), (0.0, 0)])
def test_legacy_levels_are_whole_per_cent_upwards(level, percent):
    x = np.random.default_rng(0).normal(size=77)
    ends = EnbPI(fixed_beta=level, legacy_percent=True).fit(x).predict_interval(0.0, 0.1)
    upper = np.ceil(round(100 * (0.9 + level), 6))
    np.testing.assert_allclose(ends, np.percentile(x, [percent, upper]))


def test_only_the_window_counts():
    x = np.random.default_rng(0).normal(size=500)
    method = EnbPI(past_window=60)
    ends = method.run(x, 200, 0.1)
    for t in (200, 230, 499):
        expected = EnbPI(past_window=1000).fit(x[t - 60 : t]).predict_interval(0.0, 0.1)
        np.testing.assert_array_equal(ends[t - 200], expected)


def test_no_residuals_is_everything():
    assert EnbPI().fit([]).predict_interval(1.0).tolist() == [-np.inf, np.inf]


@pytest.mark.parametrize("window", [0, 2.5, True])
def test_bad_window(window):
    with pytest.raises(MethodError, match="past_window must be an integer"):
        EnbPI(past_window=window).fit([1.0])
