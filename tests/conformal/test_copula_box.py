"""Copula boxes: ranks in the margins, the largest rank calibrated."""

import numpy as np
import pytest
from region_rows import banana

from assay.conformal.copula_box import CopulaBoxRegressor
from assay.conformal.max_score_box import MaxScoreBoxRegressor


def test_ranks_by_hand():
    shape = np.array([[1.0, 10.0], [-2.0, 20.0], [3.0, -20.0], [4.0, 40.0]])
    R = np.array([[2.0, 0.0], [0.5, 20.0], [2.5, 30.0], [8.0, 1.0]])
    method = CopulaBoxRegressor(alpha=0.4).calibrate_pred(0 * R, R, residuals=shape)
    # margins: 1, 2, 3, 4 at ranks 1 to 4; 10, 20, 40 at 1, 3, 4. Beyond 4: in root mean squares
    unit = np.sqrt(np.mean(shape[:, 0] ** 2))
    np.testing.assert_allclose(method.scores_, [2, 3, 3.5, 4 + 4 / unit])
    # rank 3 of 4: threshold 3.5
    np.testing.assert_allclose(method.predict_region_pred([[0.0, 0.0]]).upper, [[3.5, 30]])
    np.testing.assert_allclose(method.predict_region_pred([[0.0, 0.0]], alpha=0.2).upper[0, 0], 8)


def test_own_calibration_rows_are_inside_by_rank():
    rng = np.random.default_rng(0)
    for seed in range(20):
        R, shape = rng.normal(size=(19, 2)), np.round(rng.normal(size=(30, 2)), 1 + seed % 3)
        method = CopulaBoxRegressor(alpha=0.25).calibrate_pred(0 * R, R, residuals=shape)
        assert method.predict_region_pred(0 * R).contains(R).sum() == 15


def test_only_ranks_of_the_margins_count():
    rng = np.random.default_rng(1)
    R, shape = rng.normal(size=(200, 2)), rng.normal(size=(100, 2))
    bent = [np.column_stack([a[:, 0], a[:, 1] ** 3]) for a in (R, shape)]
    plain = CopulaBoxRegressor(alpha=0.3).calibrate_pred(0 * R, R, residuals=shape)
    cubed = CopulaBoxRegressor(alpha=0.3).calibrate_pred(0 * R, bent[0], residuals=bent[1])
    a, b = (m.predict_region_pred(np.zeros((1, 2))).upper[0] for m in (plain, cubed))
    np.testing.assert_allclose([a[0], a[1] ** 3], b, rtol=0.03)


def test_smaller_than_the_max_score_box_where_tails_differ():
    rows = banana(4000, 0), banana(2000, 1), banana(4000, 2)
    (X, Y), (Xc, Yc), (Xt, Yt) = rows
    copula = CopulaBoxRegressor(random_state=0).fit(X, Y, Xc, Yc).predict_region(Xt)
    largest = MaxScoreBoxRegressor(random_state=0).fit(X, Y, Xc, Yc).predict_region(Xt)
    assert copula.volume().mean() < 0.9 * largest.volume().mean()
    assert copula.contains(Yt).mean() == pytest.approx(0.9, abs=0.025)


def test_coverage_over_many_calibrations_is_exact():
    # 9 scores at alpha 0.2: rank 8, mean coverage 0.8, whatever the margins are
    rng = np.random.default_rng(2)
    shape = rng.normal(size=(20, 2))
    inside = []
    for _ in range(400):
        R = rng.standard_t(3, size=(109, 2))
        method = CopulaBoxRegressor(alpha=0.2).calibrate_pred(0 * R[:9], R[:9], residuals=shape)
        inside.append(method.predict_region_pred(0 * R[9:]).contains(R[9:]).mean())
    # 0.12 is the standard deviation of Beta(8, 2)
    assert np.mean(inside) == pytest.approx(0.8, abs=4 * 0.13 / 20)
