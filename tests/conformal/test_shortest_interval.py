"""How miscoverage is shared between the two sides."""

import numpy as np
import pytest

from assay.conformal.shortest_interval import shortest_interval
from assay.core.errors import MethodError


def test_the_steeper_side_gets_less():
    # an exponential distribution: all of alpha above
    ends = shortest_interval(lambda p: -np.log1p(-np.minimum(p, 1 - 1e-9)), 0.1)
    np.testing.assert_allclose(ends, [0, -np.log(0.1)])


def test_first_of_equal_widths():
    np.testing.assert_allclose(shortest_interval(lambda p: p, 0.2, 3), [0, 0.8], atol=1e-15)


def test_levels_are_exact_and_asked_for_once():
    asked = []
    shortest_interval(lambda p: asked.append(p) or p, 0.1, 5)
    assert len(asked) == 1
    assert asked[0].tolist() == [0.0, 0.025, 0.05, 0.075, 0.1, 0.9, 0.925, 0.95, 0.975, 1.0]


def test_fixed_beta():
    np.testing.assert_allclose(shortest_interval(lambda p: p**2, 0.1, fixed_beta=0.05), [0.0025, 0.9025])


@pytest.mark.parametrize("arguments", [{"n_beta": 1}, {"fixed_beta": 0.2}, {"fixed_beta": -0.1}])
def test_bad_arguments(arguments):
    with pytest.raises(MethodError, match=next(iter(arguments))):
        shortest_interval(lambda p: p, 0.1, **arguments)
