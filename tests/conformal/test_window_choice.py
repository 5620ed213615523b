"""Choosing the window: by validation, and by the last change."""

import numpy as np
import pytest

from assay.conformal.enbpi import EnbPI
from assay.conformal.kowcpi import KernelWeightedResidualInterval
from assay.conformal.spci import SPCI
from assay.conformal.window_choice import WindowSelector, change_point_window
from assay.core.errors import AssayWarning, DataError, MethodError

pytestmark = pytest.mark.filterwarnings("ignore:.*equal ones")


def test_narrowest_of_those_that_cover():
    x = np.random.default_rng(0).normal(size=640)
    chosen = WindowSelector((2, 3, 20), KernelWeightedResidualInterval(min_ess=60), alpha=0.35).fit(x)
    valid = chosen.coverage_ >= 0.65
    assert valid.any()
    assert chosen.window_ == (2, 3, 20)[int(np.argmin(np.where(valid, chosen.width_, np.inf)))]
    ends = KernelWeightedResidualInterval(3, min_ess=60).run(x, 560, 0.35)
    assert chosen.width_[1] == pytest.approx(np.diff(ends).mean())
    assert chosen.coverage_[1] == ((ends[:, 0] <= x[560:]) & (x[560:] <= ends[:, 1])).mean()
    assert chosen.method_.window == chosen.window_
    assert len(chosen.method_.history_) == 640


def test_none_covers():
    x = np.r_[np.zeros(300) + 0.1 * np.random.default_rng(0).normal(size=300), np.arange(50) * 10.0]
    with pytest.warns(AssayWarning, match=r"no window of \(1, 2\) covers 90% of 44 validation steps"):
        chosen = WindowSelector((1, 2)).fit(x)
    assert chosen.coverage_.max() < 0.9


def test_other_methods():
    x = np.random.default_rng(0).normal(size=120)
    forest = SPCI(n_trees=2, refit_every=50, random_state=0)
    assert WindowSelector((2, 5), forest, alpha=0.5).fit(x).window_ in (2, 5)
    with pytest.raises(ValueError, match="window"):
        WindowSelector((2, 5), EnbPI()).fit(x)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"windows": ()}, "windows is empty"), ({"validation": 1}, "validation"),
     ({"windows": (90,)}, "87 are left for windows of 90")],
)  # fmt: skip
def test_bad_arguments(arguments, message):
    with pytest.raises((MethodError, DataError), match=message):
        WindowSelector(**arguments).fit(np.random.default_rng(0).normal(size=100))


@pytest.mark.parametrize(("factor", "shift"), [(6.0, 0.0), (1.0, 5.0)])
def test_change_is_found(factor, shift):
    rng = np.random.default_rng(0)
    x = np.r_[rng.normal(size=200), shift + factor * rng.normal(size=60)]
    assert abs(change_point_window(x) - 60) <= 3


def test_without_a_change():
    x = np.random.default_rng(0).normal(size=200)
    assert change_point_window(x) == 15
    assert change_point_window(x, w_min=5) == 10
    assert change_point_window(np.zeros(100)) == 15


def test_by_the_formula():
    x = np.random.default_rng(3).normal(size=80) * np.r_[np.ones(50), 3 * np.ones(30)]
    last = x[-60:]
    statistic = {
        k: 60 * np.log(last.var()) - k * np.log(last[:k].var()) - (60 - k) * np.log(last[k:].var())
        for k in range(10, 51)
    }
    best = max(statistic, key=statistic.get)
    assert statistic[best] > 2.5 * np.log(60)
    assert change_point_window(x, w_max=60) == max(60 - best, 15)


def test_too_short():
    with pytest.raises(DataError, match="at least 26 residuals"):
        change_point_window(np.zeros(25))
