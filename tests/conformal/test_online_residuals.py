"""Methods on residuals in the online contract."""

import json

import numpy as np
import pytest
from sklearn.base import clone

from assay.conformal.bootstrap_residuals import BootstrapResiduals
from assay.conformal.enbpi import EnbPI
from assay.conformal.kowcpi import KernelWeightedResidualInterval
from assay.conformal.nexcp import NexCP
from assay.conformal.online_residuals import OnlineResidualRegressor
from assay.conformal.spci import SPCI
from assay.conformal.trailing_window import TrailingWindow
from assay.core.errors import DataError, MethodError

pytestmark = pytest.mark.filterwarnings("ignore:.*equal ones")
METHODS = [
    KernelWeightedResidualInterval(2, history=60),
    SPCI(window=4, n_trees=2, refit_every=10, history=50, random_state=0),
    EnbPI(past_window=30),
    NexCP(),
    NexCP(rho=1),
    TrailingWindow(),
]


@pytest.fixture(params=METHODS, ids=repr)
def method(request):
    return clone(request.param)


def stream(n, n_series=None, seed=0):
    rng = np.random.default_rng(seed)
    shape = n if n_series is None else (n_series, n)
    return rng.normal(size=shape).cumsum(-1) * 0.1 + rng.normal(size=shape), rng.normal(size=shape)


def test_offsets_are_the_methods_own(method):
    y, f = stream(150)
    ends = OnlineResidualRegressor(method, calibration=40).run(y, f)
    own = clone(method).run(y - f, 40, 0.1)
    np.testing.assert_allclose(ends[40:], own + f[40:, None], rtol=1e-12)


def test_before_calibration_ends_are_ranks(method):
    y, f = stream(50)
    ends = OnlineResidualRegressor(method, alpha=0.2, calibration=40).run(y, f)
    assert np.isinf(ends[:9]).all()
    residuals = np.sort((y - f)[:19])
    np.testing.assert_array_equal(ends[19], f[19] + residuals[[1, 17]])


def test_the_future_as_nan_changes_nothing(method):
    y, f = stream(150)
    whole = OnlineResidualRegressor(method, calibration=40).run(y, f)
    for t in (5, 39, 40, 41, 100):
        known = y.copy()
        known[t:] = np.nan
        ends = OnlineResidualRegressor(method, calibration=40).run(known, f)
        np.testing.assert_array_equal(ends[: t + 1], whole[: t + 1])
        # nothing is learned afterwards
        np.testing.assert_allclose(ends[t:] - f[t:, None], np.broadcast_to(ends[t] - f[t], ends[t:].shape),
                                   rtol=1e-9)  # fmt: skip


@pytest.mark.parametrize("horizon", [1, 2, 7])
def test_series_do_not_know_of_each_other(method, horizon):
    y, f = stream(130, 3)
    y[1, 20:35] = np.nan
    y[2, ::3] = np.nan
    together = OnlineResidualRegressor(method, calibration=40, horizon=horizon)
    ends = together.run(y, f)
    assert ends.shape == (3, 130, 2)
    for i in range(3):
        alone = OnlineResidualRegressor(method, calibration=40, horizon=horizon).run(y[i], f[i])
        np.testing.assert_array_equal(ends[i], alone)
    steps = OnlineResidualRegressor(method, calibration=40, horizon=horizon)
    for t in range(130):
        np.testing.assert_allclose(steps.predict_interval(f[:, t]), ends[:, t], rtol=1e-12)
        steps.update(y[:, t])
    assert together.n_series_ == 3


def test_delayed_outcomes(method):
    """With horizon h the interval at t is that of t - h + 1 without a delay."""
    y, f = stream(150)
    at_once = OnlineResidualRegressor(method, calibration=40).run(y, f) - f[:, None]
    late = OnlineResidualRegressor(method, calibration=40, horizon=5).run(y, f) - f[:, None]
    np.testing.assert_allclose(late[4:], at_once[:-4], rtol=1e-9)
    np.testing.assert_array_equal(late[:4], np.broadcast_to([-np.inf, np.inf], (4, 2)))


def test_state_moves_in_the_middle(method):
    y, f = stream(160, 3)
    y[0, :90] = np.nan  # still collecting when the others are fitted
    first = OnlineResidualRegressor(method, calibration=40, horizon=3)
    first.run(y[:, :100], f[:, :100])
    state = first.get_state()
    assert all(array.shape[0] == 3 for array in state.values())
    moved = OnlineResidualRegressor(method, calibration=40, horizon=3).set_state(
        {name: np.array(json.loads(json.dumps(array.tolist()))) for name, array in state.items()}
    )
    np.testing.assert_allclose(
        moved.run(y[:, 100:], f[:, 100:]), first.run(y[:, 100:], f[:, 100:]), rtol=1e-9
    )
    fresh = OnlineResidualRegressor(method)
    assert OnlineResidualRegressor(method).set_state(fresh.get_state()).run(*stream(20)).shape == (20, 2)


def test_ensemble_residuals_start_the_stream():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = X[:, 0] + rng.normal(size=300)
    ensemble = BootstrapResiduals(n_models=5, random_state=0).fit(X[:200], y[:200])
    stream = OnlineResidualRegressor(EnbPI(past_window=100)).fit_residuals(ensemble.residuals_)
    centre = ensemble.predict(X[200:])
    ends = stream.run(y[200:], centre)
    residuals = np.concatenate([ensemble.residuals_, y[200:] - centre])
    np.testing.assert_allclose(ends, EnbPI(past_window=100).run(residuals, 200, 0.1) + centre[:, None])


def test_bad_input(method):
    online = OnlineResidualRegressor(method, calibration=40)
    with pytest.raises(MethodError, match="call predict_interval before"):
        online.update(1.0)
    with pytest.raises(DataError, match="forecast is NaN or infinite"):
        online.predict_interval(np.nan)
    online.predict_interval([0.0, 1.0])
    with pytest.raises(DataError, match="y has shape"):
        online.update(1.0)
    with pytest.raises(DataError, match="is of 1 series, there were 2"):
        online.predict_interval(0.0)
    with pytest.raises(DataError, match="infinite 1 times, first in series 1"):
        online.update([0.0, np.inf])
    with pytest.raises(DataError, match="for both"):
        online.run(np.zeros(3), np.zeros(4))
    online.start().update(2.0, forecast=1.0)
    assert online.n_series_ == 1


@pytest.mark.parametrize(
    "arguments",
    [{"method": None}, {"calibration": 0}, {"horizon": 0}, {"horizon": 1.5}, {"alpha": 1}, {"method": EnbPI}],
)
def test_bad_arguments(arguments):
    name = next(iter(arguments))
    with pytest.raises(MethodError, match=name):
        OnlineResidualRegressor(**{"method": EnbPI(), **arguments}).predict_interval(0.0)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-30, 1e30, 1e140, 1e160, 1e299])
def test_scores_of_any_size_are_right_or_refused(method, scale):
    """Scaled by a power of two an answer is scaled, to the bit; or there is an error that says what to do."""
    unit = 2.0 ** round(np.log2(scale))
    y, forecasts = stream(150)
    y, forecasts = y * 2.0**20, forecasts * 2.0**20
    expected = OnlineResidualRegressor(clone(method), calibration=80).run(y, forecasts)
    unit /= 2.0**20
    online = OnlineResidualRegressor(clone(method), calibration=80)
    if isinstance(method, KernelWeightedResidualInterval) and not 1e-130 < scale < 1e149:
        with pytest.raises(DataError, match=r"in a (larger|smaller) unit"):
            online.run(y * unit, forecasts * unit)
        return
    got = online.run(y * unit, forecasts * unit)
    same = np.isclose(got / unit, expected, rtol=1e-12, atol=1e-12)
    if isinstance(method, SPCI):  # its trees take values that differ by 1e-7 as equal, so that units matter
        assert same.mean() > 0.9
        assert not np.isnan(got).any()
    else:
        assert same.all()


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_one_wild_outcome_and_differences_beyond_all_numbers(method):
    y, forecasts = stream(150)
    y[90] = 1e290
    online = OnlineResidualRegressor(clone(method), calibration=80)
    if isinstance(method, KernelWeightedResidualInterval):
        with pytest.raises(DataError, match=r"1 of 150 are beyond 1e\+150"):
            online.run(y, forecasts)
    else:
        got = online.run(y, forecasts)
        assert not np.isnan(got).any()
        assert np.isfinite(got[89]).all()
    with pytest.raises(DataError, match="y - forecast: 1 of 1 are beyond"):
        OnlineResidualRegressor(clone(method)).run([1.7e308], [-1.7e308])
    online = OnlineResidualRegressor(clone(method))
    online.predict_interval(-1.7e308)
    with pytest.raises(DataError, match="y - forecast: 1 of 1 are beyond"):
        online.update(1.7e308)
    fitted = clone(method).fit(y[:80])
    for wrong in (lambda: fitted.update(1e301), lambda: fitted.fit([1e301] * 99)):
        with pytest.raises(DataError, match="beyond"):
            wrong()
