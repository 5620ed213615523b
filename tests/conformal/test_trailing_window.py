"""The rank rule on the last residuals."""

import numpy as np
import pytest

from assay.conformal.trailing_window import TrailingWindow
from assay.core.errors import MethodError
from assay.core.quantiles import conformal_quantile

RANKS = [(9, 0.1, 9), (4, 0.2, 4), (19, 0.1, 18), (9, 0.2, 8), (14, 0.2, 12), (9, 0.7, 3), (19, 0.7, 6),
         (19, 0.95, 1), (1, 0.5, 1), (5, 0.1, np.inf)]  # fmt: skip


@pytest.mark.parametrize(("n", "alpha", "q"), RANKS)
def test_exact_ranks(n, alpha, q):
    x = np.random.default_rng(0).permutation(np.arange(1.0, n + 1)) * np.where(np.arange(n) % 2, 1, -1)
    assert TrailingWindow(window=n).fit(x).predict_interval(0.0, alpha).tolist() == [-q, q]


def test_signed_sides_share_alpha():
    n18 = TrailingWindow(window=18, sides="signed").fit(np.arange(18.0))
    assert n18.predict_interval(0.0, 0.1).tolist() == [-np.inf, np.inf]
    n20 = TrailingWindow(window=20, sides="signed").fit(np.arange(20.0))
    assert n20.predict_interval(0.0, 0.1).tolist() == [0, 19]


def test_window_moves_on():
    x = np.random.default_rng(0).normal(size=300)
    ends = TrailingWindow(window=50).run(x, 20, 0.1)
    for t in (20, 60, 299):
        q = conformal_quantile(np.abs(x[max(0, t - 50) : t]), 0.1)
        np.testing.assert_array_equal(ends[t - 20], [-q, q])


@pytest.mark.parametrize(("arguments", "message"), [({"window": 0}, "window"), ({"sides": "both"}, "sides")])
def test_bad_arguments(arguments, message):
    with pytest.raises(MethodError, match=message):
        TrailingWindow(**arguments).fit([1.0])
