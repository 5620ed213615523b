"""What every tracker keeps: NumPy and Numba agree, batches, delays, state, bad input."""

import numpy as np
import pytest

from assay.conformal import tracker_ranks, tracker_rates, tracker_steps
from assay.conformal.aci import AdaptiveTracker
from assay.conformal.agaci import AggregatedTracker
from assay.conformal.decaying_ogd import DecayingGradientTracker
from assay.conformal.dtaci import DynamicallyTunedTracker
from assay.conformal.eci import ErrorQuantifiedTracker
from assay.conformal.ogd import OnlineGradientTracker
from assay.conformal.pid import PIDTracker
from assay.conformal.rolling_quantile import RollingQuantileTracker
from assay.conformal.saocp import StronglyAdaptiveTracker
from assay.conformal.sf_ogd import ScaleFreeGradientTracker
from assay.conformal.tracker_compiled import has_numba
from assay.core.errors import DataError, MethodError

TRACKERS = {
    "eci": ErrorQuantifiedTracker(window=20),
    "eci-cutoff": ErrorQuantifiedTracker(variant="cutoff"),
    "eci-integral": ErrorQuantifiedTracker(variant="integral", c="auto", window=7),
    "eci-integral-now": ErrorQuantifiedTracker(variant="integral", include_current=True),
    "eci-smoothed": ErrorQuantifiedTracker(variant="smoothed"),
    "eci-auto": ErrorQuantifiedTracker(lr="auto", window=20),
    "ogd": OnlineGradientTracker(),
    "ogd-auto": OnlineGradientTracker(lr="auto"),
    "decaying": DecayingGradientTracker(),
    "decaying-auto": DecayingGradientTracker(lr="auto"),
    "sf-ogd": ScaleFreeGradientTracker(),
    "sf-ogd-rates": ScaleFreeGradientTracker(lr=(0.1, 1.0)),
    "pid": PIDTracker(window=20, integral_gain=0.1),
    "saocp": StronglyAdaptiveTracker(),
    "aci": AdaptiveTracker(gamma=0.05, window=30),
    "aci-growing": AdaptiveTracker(gamma=0.05, window=None),
    "aci-clipped": AdaptiveTracker(gamma=0.05, window=30, clip=True),
    "dtaci": DynamicallyTunedTracker(window=30),
    "agaci": AggregatedTracker(window=30),
    "rolling": RollingQuantileTracker(window=30),
}
needs_numba = pytest.mark.skipif(not has_numba(), reason="needs: pip install 'assay[fast]'")


def make(name, **changes):
    from sklearn.base import clone

    return clone(TRACKERS[name]).set_params(**changes)


@pytest.fixture
def scores():
    """(3, 180) rounded, so that there are ties; the middle series misses every seventh."""
    values = np.round(np.random.default_rng(0).normal(size=(3, 180)).cumsum(axis=1) * 0.3, 2)
    values[1, ::7] = np.nan
    return values


@pytest.fixture
def without_numba(monkeypatch):
    for module in (tracker_steps, tracker_ranks):
        monkeypatch.setattr(module, "has_numba", lambda: False)


def same(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


@needs_numba
@pytest.mark.parametrize("horizon", [1, 4])
@pytest.mark.parametrize("name", TRACKERS)
def test_compiled_and_numpy_are_equal(name, horizon, scores, monkeypatch):
    compiled = make(name, horizon=horizon)
    got = compiled.run(scores)
    for module in (tracker_steps, tracker_ranks):
        monkeypatch.setattr(module, "has_numba", lambda: False)
    plain = make(name, horizon=horizon)
    same(plain.run(scores), got)
    same(plain.threshold_, compiled.threshold_)
    other = compiled.get_state()
    for key, array in plain.get_state().items():
        same(array, other[key])


@pytest.mark.parametrize("horizon", [1, 3])
@pytest.mark.parametrize("name", TRACKERS)
def test_run_is_step_by_step_and_in_parts(name, horizon, scores):
    whole = make(name, horizon=horizon)
    expected = whole.run(scores)
    steps = make(name, horizon=horizon)
    for t in range(scores.shape[1]):
        if t:
            np.testing.assert_array_equal(steps.threshold_, expected[:, t])
        steps.update(scores[:, t])
    np.testing.assert_array_equal(steps.threshold_, whole.threshold_)
    parts = make(name, horizon=horizon)
    got = [parts.run(scores[:, a:b]) for a, b in ((0, 1), (1, 1), (1, 100), (100, 180))]
    np.testing.assert_array_equal(np.concatenate(got, axis=1), expected)


@pytest.mark.parametrize("name", TRACKERS)
def test_a_series_does_not_know_of_the_others(name, scores):
    together = make(name).run(scores)
    for i, row in enumerate(scores):
        np.testing.assert_array_equal(make(name).run(row), together[i])


@pytest.mark.parametrize("name", TRACKERS)
def test_missing_scores_leave_no_trace(name, scores):
    with_gaps, present = make(name), ~np.isnan(scores[1])
    out = with_gaps.run(scores[1])
    without = make(name)
    np.testing.assert_array_equal(without.run(scores[1][present]), out[present])
    states = with_gaps.get_state(), without.get_state()
    for key in states[0]:
        np.testing.assert_array_equal(*(state[key] for state in states))


@pytest.mark.parametrize("horizon", [1, 5])
@pytest.mark.parametrize("name", TRACKERS)
def test_nothing_looks_ahead(name, horizon, scores):
    expected = make(name, horizon=horizon).run(scores)
    for t in (1, 60, 150):
        future = scores.copy()
        future[:, t:] = np.nan
        got = make(name, horizon=horizon).run(future)
        # the threshold of step t + h - 1 is the last that rests on what came before t
        np.testing.assert_array_equal(got[:, : t + 1], expected[:, : t + 1])
        changed = scores.copy()
        changed[:, t:] += 5.0
        got = make(name, horizon=horizon).run(changed)
        known = t + horizon
        rows = [0, 2]  # the series without gaps: the delay counts scores
        np.testing.assert_array_equal(got[rows, :known], expected[rows, :known])
        assert (got[rows, known : known + 30] != expected[rows, known : known + 30]).any()


@pytest.mark.parametrize("horizon", [1, 3])
@pytest.mark.parametrize("name", TRACKERS)
def test_state_moves_and_is_bounded(name, horizon, scores):
    tracker = make(name, horizon=horizon)
    tracker.run(scores[:, :70])
    state = tracker.get_state()
    assert all(array.shape[0] == 3 and array.dtype == np.float64 for array in state.values())
    other = make(name, horizon=horizon).set_state(state)
    for array in state.values():
        array[...] = 0.0  # copies on both sides
    expected = tracker.run(scores[:, 70:])
    np.testing.assert_array_equal(other.run(scores[:, 70:]), expected)
    if name != "aci-growing":
        assert {k: a.shape for k, a in other.get_state().items()} == {k: a.shape for k, a in state.items()}


@pytest.mark.parametrize("name", ["eci-auto", "aci"])
def test_bad_states_are_refused(name):
    tracker = make(name)
    good = tracker.run(np.ones((2, 5))) is not None and tracker.get_state()
    missing = {key: array for key, array in good.items() if key != "window"}
    with pytest.raises(DataError, match="has the arrays"):
        make(name).set_state(missing)
    with pytest.raises(DataError, match="parameters need"):
        make(name, window=21).set_state(good)
    with pytest.raises(DataError, match="one length"):
        make(name).set_state({**good, "threshold": np.zeros(3)})
    with pytest.raises(DataError, match="type"):
        make(name).set_state({**good, "threshold": np.zeros(2, dtype=np.float32)})


@pytest.mark.parametrize("name", TRACKERS)
def test_bad_input_is_refused_and_learns_nothing(name):
    tracker = make(name).start(2)
    tracker.update([0.5, 1.0])
    before = tracker.get_state()
    with pytest.raises(DataError, match="3 series, but the tracker follows 2"):
        tracker.update([1.0, 2.0, 3.0])
    with pytest.raises(DataError, match="shape"):
        tracker.update(np.zeros((2, 2)))
    if not tracker.infinite_scores:
        with pytest.raises(DataError, match=r"infinite 1 times of 4, first in series 1 at step 0"):
            tracker.run([[0.1, 0.2], [np.inf, 0.3]])
    for key, array in tracker.get_state().items():
        np.testing.assert_array_equal(array, before[key])
    for alpha in (0, 1, -0.1, float("nan"), "x"):
        with pytest.raises(MethodError, match="alpha"):
            make(name, alpha=alpha).update(1.0)
    with pytest.raises(MethodError, match="horizon"):
        make(name, horizon=0).update(1.0)


@pytest.mark.parametrize("name", [n for n in TRACKERS if "lr" in TRACKERS[n].get_params() and n != "saocp"])
def test_bad_rates_are_refused(name):
    for lr in (0, -1.0, float("inf"), float("nan"), "fast", (), (0.1, 0.0), True):
        with pytest.raises(MethodError, match="lr"):
            make(name, lr=lr).update(1.0)


def test_one_series_speaks_in_numbers():
    tracker = OnlineGradientTracker(0.1, 1.0)
    assert tracker.threshold_ == 0.0
    assert isinstance(tracker.update(3.0).threshold_, float)
    assert tracker.run([1.0, 2.0]).shape == (2,)
    fleet = OnlineGradientTracker(0.1, 1.0).start(1)
    assert fleet.update([3.0]).threshold_.shape == (1,)


def test_range_window_is_exact(scores):
    """The step of ECI uses the range of the last W scores, of any stream: rising, falling, with ties."""
    rng = np.random.default_rng(1)
    streams = np.stack([np.arange(60.0), -np.arange(60.0), rng.integers(0, 3, 60), rng.normal(size=60)])
    tracker = ErrorQuantifiedTracker(window=7).start(4)
    for t in range(60):
        tracker.update(streams[:, t])
        last = streams[:, max(t - 6, 0) : t + 1]
        state = tracker.get_state()
        np.testing.assert_array_equal(state["window_high"], last.max(axis=1))
        np.testing.assert_array_equal(state["window_low"], last.min(axis=1))


def test_mixture_of_rates_by_hand():
    """Two OGD trackers, one score above both: the weights move by the stated rule."""
    tracker = OnlineGradientTracker(0.1, lr=(1.0, 2.0))
    same(tracker.run([1.0, 1.0]), [0.0, 1.35])  # (0.9 + 1.8) / 2
    losses = np.array([0.1 * 0.9, 0.8 * 0.1])
    gain = (np.log(2 * 2 * 500) + 1) / 500
    mean = (0.9**2 + (losses**2).mean()) / 2
    w = np.exp(-np.sqrt(gain / mean) * losses)
    w = 0.999 * w / w.sum() + 0.001 / 2
    same(tracker.get_state()["rate_weights"][0], w)
    counted = w - 0.002 / 2
    same(tracker.threshold_, counted @ [1.8, 1.6] / counted.sum())


def test_automatic_rate_needs_no_unit():
    scores = np.random.default_rng(2).normal(size=400)
    for name in ("ogd-auto", "decaying-auto"):
        same(make(name).run(1000 * scores) / 1000, make(name).run(scores))


@pytest.mark.parametrize("numba", [pytest.param(True, marks=needs_numba), False])
def test_automatic_rate_outlives_infinite_thresholds_and_huge_scores(numba, request):
    """A PID correction that saturates early gives infinite thresholds for a while."""
    if not numba:
        request.getfixturevalue("without_numba")
    scores = np.abs(np.random.default_rng(0).normal(size=800))
    q = PIDTracker(0.1, "auto", saturation=0.3).run(scores)
    assert np.isposinf(q[:50]).any()
    assert not np.isnan(q).any()
    assert 0.05 < (scores[400:] > q[400:]).mean() < 0.15
    scores[20] = 1e200
    tracker = make("ogd-auto")
    q = tracker.run(scores)
    assert np.isfinite(q).all()
    assert np.ptp(tracker.get_state()["rate_weights"]) > 0.01


@needs_numba
def test_the_short_loop_of_gradient_descent_gives_the_bits_of_the_long_one(scores):
    short = OnlineGradientTracker(0.1, 0.3)
    long = OnlineGradientTracker(0.1, 0.3).start(3)
    expected = np.empty_like(scores)
    tracker_steps.StepTracker._run(long, long.state_, scores, expected)
    np.testing.assert_array_equal(short.run(scores), expected)
    for name, array in long.get_state().items():
        np.testing.assert_array_equal(short.get_state()[name], array)


@pytest.mark.usefixtures("without_numba")
def test_numpy_path_follows_a_fleet():
    tracker = make("eci").start(4)
    for score in np.random.default_rng(3).normal(size=(50, 4)):
        tracker.update(np.where(np.arange(4) == 2, np.nan, score))
    assert tracker.threshold_[2] == 0
    assert (tracker.threshold_[[0, 1, 3]] > 0).all()


@pytest.mark.parametrize("horizon", [1, 4])
@pytest.mark.parametrize("numba", [pytest.param(True, marks=needs_numba), False])
@pytest.mark.parametrize("name", ["eci", "eci-cutoff", "sf-ogd", "pid"])
def test_rates_share_a_window_and_give_the_bits_of_trackers_of_their_own(
    name, numba, horizon, scores, request
):
    """Each rate followed by a tracker of its own, with a window of its own, and weighted afterwards."""
    if not numba:
        request.getfixturevalue("without_numba")
    rates = (1.0, 0.3, 0.05)
    together = make(name, lr=rates, horizon=horizon)
    got = together.run(scores)
    each = [make(name, lr=rate, horizon=horizon) for rate in rates]
    alone = np.stack([tracker.run(scores) for tracker in each])
    for j, tracker in enumerate(each):
        np.testing.assert_array_equal(together.get_state()["threshold"][:, j], tracker.threshold_)
    state = tracker_rates.fresh_mixture(3, len(rates))
    gain = tracker_rates.loss_gain(len(rates))
    for i, row in enumerate(scores):
        seen = []
        for t, score in enumerate(row):
            q = alone[:, i : i + 1, t]
            mean = tracker_rates.mean_threshold(state["rate_weights"][i : i + 1], q)[0]
            assert got[i, t] == (pytest.approx(mean, rel=1e-12, abs=1e-12) if numba else mean)
            if np.isnan(score):
                continue
            seen.append((np.array([score]), q))
            if len(seen) >= horizon:
                k = np.array([len(seen) - horizon])
                own = state["rate_weights"], state["rate_loss"]
                due = seen[len(seen) - horizon]
                tracker_rates.reweigh(0.1, gain, *own, np.array([i]), *due, k)
    same(together.get_state()["rate_weights"], state["rate_weights"])


@pytest.mark.parametrize("name", ["eci", "pid", "ogd"])
def test_a_rate_more_costs_a_series_its_numbers_and_no_window(name):
    """The range of the last scores, and the scores that wait, are the same for all rates."""
    scores = np.random.default_rng(0).normal(size=(5, 130))
    sizes = []
    for rates in (2, 6):
        tracker = make(name, lr=tuple(0.5**i for i in range(rates)), horizon=3)
        tracker.run(scores)
        state = tracker.get_state()
        assert state["window"].ndim == 2
        sizes.append(sum(array.nbytes for array in state.values()) / 5)
    own = sum(make(name)._columns().values()) + 2  # and its threshold and weight
    assert sizes[1] - sizes[0] == 4 * 8 * (own + 2)  # and two thresholds that wait
