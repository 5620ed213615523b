"""Exact small cases of the online baselines, and their bounds."""

import math

import numpy as np
import pytest
from sklearn.base import clone

from assay.conformal.aci import AdaptiveTracker
from assay.conformal.agaci import AggregatedTracker
from assay.conformal.decaying_ogd import DecayingGradientTracker
from assay.conformal.dtaci import DynamicallyTunedTracker
from assay.conformal.ogd import OnlineGradientTracker
from assay.conformal.pid import PIDTracker
from assay.conformal.rolling_quantile import RollingQuantileTracker
from assay.conformal.saocp import StronglyAdaptiveTracker
from assay.conformal.sf_ogd import ScaleFreeGradientTracker
from assay.conformal.tracker_compiled import advance_levels
from assay.core.errors import MethodError
from assay.core.quantiles import conformal_pvalue, conformal_quantile


def level(tracker):
    return float(tracker.get_state()["levels"][0])


def test_gradient_descent():
    tracker = OnlineGradientTracker(0.1, 2.0)
    np.testing.assert_allclose(tracker.run([1.0, 1.0, 5.0]), [0, 1.8, 1.6])
    assert tracker.threshold_ == pytest.approx(3.4)


def test_decaying_steps():
    tracker = DecayingGradientTracker(0.1, 1.0)
    got = tracker.run([5.0, 5.0, 0.0])
    np.testing.assert_allclose(got, [0, 0.9, 0.9 + 0.9 * 2**-0.6])
    assert tracker.threshold_ == pytest.approx(got[2] - 0.1 * 3**-0.6)
    with pytest.raises(MethodError, match="epsilon"):
        DecayingGradientTracker(epsilon=0.5).update(1.0)


def test_scale_free_steps():
    tracker = ScaleFreeGradientTracker(0.1, 1.0)
    np.testing.assert_allclose(tracker.run([1.0, 0.0]), [0, 1])
    assert tracker.threshold_ == pytest.approx(0.889568, abs=5e-7)


def test_integral_of_pid():
    """t = 9 and 3 misses before it: r = 0.970112; without the integral it is the adaptive gradient step."""
    tracker = PIDTracker(0.1, integral_gain=10.0, saturation=5.0)
    proportional = PIDTracker(0.1, integral_gain=0.0, saturation=5.0)
    for one in (tracker, proportional):
        one.run(np.zeros(9))  # nine hits ...
        state = one.get_state()
        state["misses"][:] = 3.0  # ... of which three are counted as misses
        one.set_state(state).update(0.0)
    assert tracker.threshold_ - tracker.get_state()["base"][0] == pytest.approx(0.970112, abs=5e-7)
    assert proportional.threshold_ == proportional.get_state()["base"][0]


@pytest.mark.parametrize("horizon", [1, 3])
def test_scorecaster_of_pid_is_added_to_the_threshold(horizon):
    """By hand: the forecast is the mean of the last two known scores, from the second on."""
    asked = []

    def cast(past, h):
        asked.append((len(past), h))
        return past[-2:].mean()

    s = np.array([1.0, 4.0, 2.0, np.nan, 6.0, 3.0, 5.0, 1.0])
    tracker = PIDTracker(0.1, 0.5, integral_gain=0.0, window=2, memory=3, scorecaster=cast, horizon=horizon)
    seen, base, q, expected, due = [], 0.0, 0.0, [], []
    for score in s:
        expected.append(q)
        if np.isnan(score):
            continue
        due.append((score, q))
        if len(due) < horizon:
            continue
        score, then = due.pop(0)
        eta = 0.5 * (np.ptp(seen[-2:]) if seen else 1.0)
        base += eta * ((score > then) - 0.1)
        seen.append(score)
        q = base + (np.mean(seen[-2:]) if len(seen) >= 2 else 0.0)
    np.testing.assert_allclose(tracker.run(s), expected, atol=1e-12)
    np.testing.assert_allclose(tracker.threshold_, q, atol=1e-12)
    assert set(asked) == {(2, horizon), (3, horizon)}
    first = clone(tracker)
    first.run(s[:5])
    again = clone(tracker).set_state(first.get_state())
    np.testing.assert_array_equal(again.run(s[5:]), tracker.start().run(s)[5:])


def test_scorecasters_that_cannot_be():
    with pytest.raises(MethodError, match="None, 'theta' or callable, got 'arima'"):
        PIDTracker(scorecaster="arima").start()
    with pytest.raises(MethodError, match="forecast nan for series 0"):
        PIDTracker(scorecaster=lambda past, h: np.nan, window=1).update(1.0)


def test_theta_follows_scores_that_can_be_foretold():
    pytest.importorskip("statsforecast")
    s = 10 * np.sin(np.arange(200) / 8) + np.random.default_rng(0).normal(size=200)

    def loss(scorecaster):
        tracker = PIDTracker(0.1, integral_gain=0.0, window=20, scorecaster=scorecaster)
        gap = s[100:] - tracker.run(s)[100:]
        return np.maximum(0.9 * gap, -0.1 * gap).mean()

    assert loss("theta") < 0.8 * loss(None)
    assert PIDTracker(window=5, scorecaster="theta").run(np.ones((2, 9))).shape == (2, 9)


def test_integral_of_pid_saturates():
    tracker = PIDTracker(0.1, saturation=0.01)
    tracker.run([1.0, 2.0])
    assert tracker.update(3.0).threshold_ == math.inf
    assert np.isfinite(tracker.get_state()["base"]).all()


def test_adaptive_levels():
    tracker = AdaptiveTracker(0.1, 0.05)
    state = tracker.get_state()
    levels = []
    for miss in (1, 0, 0):
        state["threshold"][:] = -1.0 if miss else 1.0
        tracker.set_state(state).update(0.0)
        state = tracker.get_state()
        levels.append(level(tracker))
    np.testing.assert_allclose(levels, [0.055, 0.06, 0.065])


@pytest.mark.parametrize("window", [None, 20])
def test_adaptive_threshold_is_the_rank_rule_and_a_miss_a_small_p_value(window):
    scores = np.round(np.random.default_rng(0).normal(size=150), 1)
    tracker = AdaptiveTracker(0.3, 0.02, window)
    alpha = 0.3
    for t, score in enumerate(scores):
        past = scores[:t] if window is None else scores[max(t - window, 0) : t]
        expected = math.inf if alpha <= 0 else -math.inf if alpha >= 1 else None
        if expected is None:
            expected = math.inf if t == 0 else conformal_quantile(past, round(alpha, 12))
        assert tracker.threshold_ == expected
        miss = score > tracker.threshold_
        if t and 0 < alpha < 1:
            assert miss == (conformal_pvalue(past, [score])[0] <= alpha + 1e-12)
        tracker.update(score)
        alpha += 0.02 * (0.3 - miss)
        assert level(tracker) == pytest.approx(alpha, abs=1e-12)


def test_adaptive_level_is_never_confined():
    scores = np.random.default_rng(6).normal(size=300) + np.repeat([0, 5, -5], 100)
    tracker, seen = AdaptiveTracker(0.4, 0.5, 10), []
    for score in scores:
        now = level(tracker)
        assert (tracker.threshold_ == -math.inf) == (now >= 1)
        assert now > 0 or tracker.threshold_ == math.inf
        tracker.update(score)
        seen.append(now)
    assert min(seen) < 0
    assert max(seen) >= 1
    clipped = AdaptiveTracker(0.4, 0.5, 10, clip=True).run(scores)
    assert np.isfinite(clipped[1:]).all()


def test_infinite_scores_are_ranked():
    tracker = AdaptiveTracker(0.5, 0.001, 10)
    tracker.run([math.inf, -math.inf, 1.0, 2.0])
    assert tracker.threshold_ == 2.0
    assert tracker.run([math.inf] * 12)[-1] == math.inf


def test_adaptive_bound_on_adversarial_sequences():
    n, T, gamma, alpha = 100, 400, 0.05, 0.1
    rng = np.random.default_rng(1)
    tracker = AdaptiveTracker(alpha, gamma, 50).start(n)
    misses = np.zeros(n)
    for t in range(1, T + 1):
        q = tracker.threshold_
        above = np.where(np.isfinite(q), q + 1e-9, np.where(q < 0, 0.0, rng.random(n)))
        below = np.where(np.isfinite(q), q, rng.random(n))
        score = np.where(rng.random(n) < np.linspace(0, 1, n), above, below)
        misses += score > q
        tracker.update(score)
        assert (np.abs(misses / t - alpha) <= (0.9 + gamma) / (gamma * t) + 1e-12).all()


def test_rolling_quantile_is_the_rank_rule():
    scores = np.random.default_rng(2).normal(size=60)
    got = RollingQuantileTracker(0.1, 25).run(scores)
    expected = [
        conformal_quantile(scores[max(t - 25, 0) : t], 0.1) if t >= 9 else math.inf for t in range(60)
    ]
    np.testing.assert_array_equal(got, expected)


def test_dynamically_tuned_levels_and_weights():
    tracker = DynamicallyTunedTracker(0.1, (0.01, 0.1), eta=2.72, sigma=0.001)
    p = tracker._parameters()
    c = tracker._fresh(1)["values"]
    means = []
    for _ in range(2):
        means.append(c[2, 0])
        advance_levels(p, c, np.zeros(1), np.zeros(1), np.array([0.05]), np.array([19]))
    np.testing.assert_allclose(means, [0.1, 0.0505])
    np.testing.assert_allclose(c[5:7, 0], [0.082, 0.02])
    np.testing.assert_allclose(c[7:9, 0], [0.477665, 0.522335], atol=5e-7)


def test_dynamically_tuned_default_rate():
    assert DynamicallyTunedTracker()._parameters().eta == pytest.approx(2.7199, abs=5e-5)
    assert DynamicallyTunedTracker()._parameters().sigma == 0.001
    for changes, word in (({"gammas": ()}, "gammas"), ({"sigma": 1}, "sigma"), ({"eta": 0}, "eta")):
        with pytest.raises(MethodError, match=word):
            DynamicallyTunedTracker(**changes).update(1.0)


def test_aggregated_means():
    """Experts that always say 1 and 2 at the level 0.95; scores 1.5, 2.5, 0.5."""
    tracker = AggregatedTracker(0.05, (0.01, 0.1))
    p, c = tracker._parameters(), tracker._fresh(1)["values"]
    means = []
    for score in (1.5, 2.5, 0.5):
        c[4:6, 0] = 1.0, 2.0
        means.append(c[6:8, 0] @ c[4:6, 0])
        advance_levels(p, c, np.array([score]), np.zeros(1), np.array([0.5]), np.array([19]))
    np.testing.assert_allclose(means, [1.5, 1.616567, 1.869596], atol=5e-7)


def test_aggregated_is_finite_once_a_score_is_there():
    got = AggregatedTracker(0.1).run(np.random.default_rng(3).normal(size=200))
    assert got[0] == math.inf
    assert np.isfinite(got[1:]).all()


def strongly_adaptive(scores, alpha, bound):
    """The algorithm with a list of experts, as the docstring has it."""
    experts, out, mixture = {}, [], 0.0

    def loss(s, q):
        return (s - q) * (1 - alpha) if s > q else (q - s) * alpha

    for t, s in enumerate(scores, 1):
        experts[t] = {"q": mixture, "g2": 0.0, "G": 0.0, "bet": 0.0, "w": 0.0, "end": t + 8 * (t & -t)}
        experts = {i: e for i, e in experts.items() if e["end"] > t}
        prior = {i: 1 / (i**2 * (1 + math.floor(math.log2(i)))) for i in experts}
        share = {i: prior[i] * max(e["w"], 0) for i, e in experts.items()}
        if sum(share.values()) <= 0:
            share = prior
        mixture = sum(share[i] * experts[i]["q"] for i in experts) / sum(share.values())
        out.append(mixture)
        for i, e in experts.items():
            gain = (loss(s, mixture) - loss(s, e["q"])) / bound / max(alpha, 1 - alpha)
            gain = gain if e["w"] > 0 else max(gain, 0)
            e["G"] += gain
            e["bet"] += e["w"] * gain
            e["w"] = e["G"] * (1 + e["bet"]) / (t - i + 1)
            gradient = (s > e["q"]) - alpha
            e["g2"] += gradient**2
            e["q"] += bound / math.sqrt(3) * gradient / math.sqrt(e["g2"])
    return out


def test_strongly_adaptive_against_a_list_of_experts():
    scores = np.random.default_rng(4).normal(size=300) + np.where(np.arange(300) < 150, 0, 4)
    np.testing.assert_allclose(
        StronglyAdaptiveTracker(0.1, 3.0).run(scores), strongly_adaptive(scores, 0.1, 3.0), atol=1e-9
    )


def test_strongly_adaptive_follows_a_shift():
    scores = np.random.default_rng(5).normal(size=4000) + np.where(np.arange(4000) < 2000, 0, 10)
    q = StronglyAdaptiveTracker(0.1).run(scores)
    assert (scores > q)[2200:].mean() == pytest.approx(0.1, abs=0.05)
