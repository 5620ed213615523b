"""Intervals from trackers: sides, order of the ends, state, streams and fleets, bad input."""

import numpy as np
import pytest

from assay.conformal.aci import AdaptiveTracker
from assay.conformal.eci import ErrorQuantifiedTracker
from assay.conformal.ogd import OnlineGradientTracker
from assay.conformal.online import OnlineConformalRegressor
from assay.core.errors import DataError, MethodError


@pytest.fixture
def stream():
    rng = np.random.default_rng(0)
    forecasts = rng.normal(size=(3, 120)).cumsum(axis=1)
    return forecasts + rng.normal(size=(3, 120)) * [[1], [5], [0.1]], forecasts


def test_signed_intervals_are_two_trackers_at_half_the_level(stream):
    y, f = stream
    got = OnlineConformalRegressor(ErrorQuantifiedTracker(), alpha=0.2).run(y, f)
    above, below = (ErrorQuantifiedTracker(0.1).run(sign * (y - f)) for sign in (1, -1))
    lower, upper = f - below, f + above
    np.testing.assert_array_equal(got[..., 0], np.minimum(lower, upper))
    np.testing.assert_array_equal(got[..., 1], np.maximum(lower, upper))


def test_absolute_intervals_are_one_tracker(stream):
    y, f = stream
    got = OnlineConformalRegressor(OnlineGradientTracker(0.1, 0.5), score="absolute").run(y, f)
    q = np.maximum(OnlineGradientTracker(0.1, 0.5).run(np.abs(y - f)), 0)
    np.testing.assert_array_equal(got, np.stack([f - q, f + q], axis=-1))


def test_ends_change_places_when_the_sign_does(stream):
    y, f = stream
    for tracker in (ErrorQuantifiedTracker(), AdaptiveTracker()):
        one = OnlineConformalRegressor(tracker).run(y, f)
        other = OnlineConformalRegressor(tracker).run(-y, -f)
        np.testing.assert_array_equal(one, -other[..., ::-1])


def test_thresholds_below_zero_stay_in_the_state():
    method = OnlineConformalRegressor(OnlineGradientTracker(0.1, 1.0), score="absolute")
    method.run(np.zeros(1), np.zeros(1))
    assert method.tracker_.threshold_[0] == pytest.approx(-0.1)
    np.testing.assert_array_equal(method.predict_interval(7.0), [7.0, 7.0])
    signed = OnlineConformalRegressor(OnlineGradientTracker(0.1, 1.0))
    signed.run(np.zeros(1), np.zeros(1))
    np.testing.assert_allclose(signed.tracker_.threshold_, -0.05)
    np.testing.assert_allclose(signed.predict_interval(7.0), [6.95, 7.05])


@pytest.mark.parametrize(
    ("above", "below", "expected"),
    [
        (-np.inf, 1.0, [2.0, 2.0]),
        (1.0, -np.inf, [4.0, 4.0]),
        (-np.inf, -np.inf, [3.0, 3.0]),
        (-np.inf, np.inf, [-np.inf, 3.0]),
        (np.inf, 2.0, [1.0, np.inf]),
    ],
)
def test_a_threshold_of_minus_infinity_is_no_width(above, below, expected):
    method = OnlineConformalRegressor(AdaptiveTracker())
    state = method.get_state()
    state["threshold"][0] = above, below
    np.testing.assert_array_equal(method.set_state(state).predict_interval(3.0), expected)


@pytest.mark.parametrize("horizon", [1, 3])
@pytest.mark.parametrize("score", ["signed", "absolute"])
def test_fleet_is_its_series_and_goes_on_from_its_state(score, horizon, stream):
    y, f = stream
    y = np.where(np.random.default_rng(1).random(y.shape) < 0.1, np.nan, y)
    method = OnlineConformalRegressor(ErrorQuantifiedTracker(), score=score, horizon=horizon)
    whole = method.run(y, f)
    for i in range(3):
        alone = OnlineConformalRegressor(ErrorQuantifiedTracker(), score=score, horizon=horizon)
        np.testing.assert_array_equal(alone.run(y[i], f[i]), whole[i])
    steps = OnlineConformalRegressor(ErrorQuantifiedTracker(), score=score, horizon=horizon)
    for t in range(y.shape[1]):
        if t == 60:
            state = steps.get_state()
            assert all(array.shape[0] == 3 for array in state.values())
            steps = OnlineConformalRegressor(ErrorQuantifiedTracker(), score=score, horizon=horizon)
            steps.set_state(state)
        np.testing.assert_array_equal(steps.predict_interval(f[:, t]), whole[:, t])
        steps.update(y[:, t])


def test_forecast_may_come_with_the_outcome(stream):
    y, f = stream
    whole, other = (OnlineConformalRegressor(ErrorQuantifiedTracker()) for _ in range(2))
    whole.run(y, f)
    for t in range(y.shape[1]):
        other.update(y[:, t], f[:, t])
    np.testing.assert_array_equal(other.tracker_.threshold_, whole.tracker_.threshold_)


def test_bad_input():
    method = OnlineConformalRegressor(OnlineGradientTracker())
    with pytest.raises(DataError, match="no forecast"):
        method.update(1.0)
    for forecast in (np.nan, np.inf):
        with pytest.raises(DataError, match="forecast is NaN or infinite"):
            method.predict_interval(forecast)
    with pytest.raises(DataError, match="y has shape"):
        method.run(np.zeros(3), np.zeros(4))
    with pytest.raises(DataError, match=r"first at \[1, 0\]"):
        method.run(np.zeros((2, 2)), [[0, 0], [np.nan, 0]])
    method.start(2).predict_interval([1.0, 2.0])
    with pytest.raises(DataError, match="3 series, but 2 are followed"):
        method.update([1.0, 2.0, 3.0])
    with pytest.raises(DataError, match="infinite"):
        method.update([np.inf, 1.0])
    with pytest.raises(DataError, match="axis 1"):
        OnlineConformalRegressor(OnlineGradientTracker(), score="absolute").set_state(method.get_state())
    with pytest.raises(MethodError, match="score"):
        OnlineConformalRegressor(OnlineGradientTracker(), score="squared").predict_interval(0.0)
    with pytest.raises(MethodError, match="tracker must be"):
        OnlineConformalRegressor("ogd").predict_interval(0.0)
