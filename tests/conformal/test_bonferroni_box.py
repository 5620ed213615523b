"""Bonferroni boxes: each side is split conformal at alpha / q."""

from fractions import Fraction

import numpy as np
import pytest
from region_rows import banana, correlated, no_signal

from assay.conformal.bonferroni_box import BonferroniBoxRegressor
from assay.conformal.split import SplitConformalRegressor
from assay.core.errors import InfiniteSetWarning


def test_sides_are_split_conformal_intervals():
    (X, Y), (Xc, Yc), (Xt, _) = correlated(100, 0, 3), correlated(60, 1, 3), correlated(9, 2, 3)
    box = BonferroniBoxRegressor(alpha=0.3).fit(X, Y, Xc, Yc).predict_region(Xt)
    for j in range(3):
        one = SplitConformalRegressor(alpha=0.1).fit(X, Y[:, j], Xc, Yc[:, j]).predict_interval(Xt)
        np.testing.assert_allclose(np.column_stack([box.lower[:, j], box.upper[:, j]]), one, rtol=1e-9)


def test_share_of_the_level_is_exact():
    # 3 outputs at alpha 0.3: rank 27 of 29 at one tenth; floats say 0.3 / 3 < 0.1
    R = np.column_stack([np.arange(1.0, 30.0)] * 3)
    method = BonferroniBoxRegressor(alpha=0.3).calibrate_pred(np.zeros_like(R), R)
    np.testing.assert_array_equal(method.predict_region_pred(np.zeros((1, 3))).upper, [[27, 27, 27]])
    np.testing.assert_array_equal(
        method.predict_region_pred(np.zeros((1, 3)), alpha=Fraction(3, 10)).upper, [[27, 27, 27]]
    )


def test_too_few_rows_for_a_share_of_the_level():
    R = np.column_stack([np.arange(1.0, 19.0)] * 2)
    method = BonferroniBoxRegressor().calibrate_pred(np.zeros_like(R), R)
    with pytest.warns(InfiniteSetWarning, match=r"18 calibration rows at alpha 0.05: at least 19"):
        box = method.predict_region_pred(np.zeros((2, 2)))
    assert (box.volume() == np.inf).all()
    R = np.vstack([R, [[19.0, 0.5]]])
    method.calibrate_pred(np.zeros_like(R), R)
    np.testing.assert_array_equal(method.predict_region_pred(np.zeros((1, 2))).upper, [[19, 18]])


def test_ties_and_borders_belong():
    Y = np.tile([[0.3, -0.7]], (20, 1))
    method = BonferroniBoxRegressor(lambda X: np.full((len(X), 2), 0.1)).calibrate(np.zeros((20, 1)), Y)
    box = method.predict_region(np.zeros((20, 1)))
    assert box.contains(Y).all()
    assert not box.contains(np.nextafter(Y, [[np.inf, -np.inf]])).any()


def test_banana():
    # the specification's 0.956 and 23.29 are those of linear regression
    (X, Y), (Xc, Yc), (Xt, Yt) = banana(4000, 0), banana(2000, 1), banana(4000, 2)
    box = BonferroniBoxRegressor().fit(X, Y, Xc, Yc).predict_region(Xt)
    assert box.contains(Yt).mean() == pytest.approx(0.956, abs=0.02)
    assert box.volume().mean() == pytest.approx(23.29, rel=0.12)


def test_prefit_models_of_any_kind():
    torch = pytest.importorskip("torch")
    X, Y = correlated(40, 0)
    with torch.random.fork_rng():
        network = torch.nn.Linear(3, 2)
    weight, bias = (p.detach().double().numpy() for p in network.parameters())
    by_hand = BonferroniBoxRegressor(lambda A: A @ weight.T + bias).calibrate(X, Y).predict_region(X)
    by_torch = BonferroniBoxRegressor(network).calibrate(X, Y).predict_region(X)
    np.testing.assert_allclose(by_torch.upper, by_hand.upper, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match=r"shape \(40, 2\), expected \(40, 3\)"):
        BonferroniBoxRegressor(no_signal).calibrate(X, np.column_stack([Y, Y[:, 0]]))
    with pytest.raises(ValueError, match="no scikit-learn style estimator"):
        BonferroniBoxRegressor(no_signal).fit(X, Y)
    with pytest.raises(ValueError, match="needs a trained estimator"):
        BonferroniBoxRegressor().calibrate(X, Y)
