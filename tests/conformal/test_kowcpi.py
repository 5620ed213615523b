"""KOWCPI: the algorithm written out, exact cases, its traps."""

import os
import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view
from sklearn.base import clone

from assay.conformal.enbpi import EnbPI
from assay.conformal.kernel_weights import aicc, rnw_multiplier
from assay.conformal.kowcpi import KernelWeightedResidualInterval
from assay.core.errors import AssayWarning, DataError, MethodError

pytestmark = pytest.mark.filterwarnings("ignore:.*equal ones")
DATA = Path(os.environ.get("ASSAY_DATA", Path(__file__).parents[2].parent / "shared" / "data"))


def written_out(residuals, w, h, alpha, *, kernel="epanechnikov", reweight=True, decay=1.0, betas=5):
    """One interval by the steps of the paper, windows built anew."""
    windows = sliding_window_view(residuals, w)[:, ::-1]
    X, x, Y = windows[:-1], windows[-1], residuals[w:]
    squared = ((X - x) ** 2).sum(1)
    K = np.maximum(1 - squared / h**2, 0) if kernel == "epanechnikov" else np.exp(-squared / (2 * h**2))
    p = np.full(len(Y), 1 / len(Y))
    if reweight:
        g = (X[:, 0] - x[0]) * K
        p = p / (1 + rnw_multiplier(g) * g)
    W = p * K * decay ** np.arange(len(Y))[::-1]
    W = W / W.sum() if W.sum() > 0 else np.full(len(Y), 1 / len(Y))
    order = np.argsort(Y, kind="stable")
    mass = np.cumsum(W[order])
    best = None
    for beta in np.linspace(0, alpha, betas):
        ends = [Y[order][min(np.searchsorted(mass, q - 1e-12), len(Y) - 1)] for q in (beta, 1 - alpha + beta)]
        if best is None or ends[1] - ends[0] < best[1] - best[0] - 1e-15:
            best = ends
    return best, W


def ar(n, seed=0, phi=0.8):
    rng = np.random.default_rng(seed)
    out = np.zeros(n)
    for t in range(1, n):
        out[t] = phi * out[t - 1] + rng.normal() * (1 + 0.5 * abs(out[t - 1]))
    return out


@pytest.mark.parametrize("kernel", ["epanechnikov", "gaussian"])
@pytest.mark.parametrize(("reweight", "decay"), [(True, None), (False, None), (True, 0.995)])
@pytest.mark.parametrize(("w", "n_calib"), [(1, 60), (3, 120), (7, 120)])
def test_stream_is_the_algorithm_written_out(kernel, reweight, decay, w, n_calib):
    x = ar(220, seed=w)
    method = KernelWeightedResidualInterval(w, 2.5, kernel, reweight=reweight, time_decay=decay)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssayWarning)
        ends = method.run(x, n_calib, 0.2)
    for t in range(n_calib, len(x)):
        expected, _ = written_out(
            x[t - n_calib : t], w, 2.5, 0.2, kernel=kernel, reweight=reweight, decay=decay or 1.0
        )
        np.testing.assert_allclose(ends[t - n_calib], expected, atol=1e-12)
    method.fit(x[:n_calib])
    np.testing.assert_allclose(method.weights_, written_out(x[:n_calib], w, 2.5, 0.2, kernel=kernel,
                               reweight=reweight, decay=decay or 1.0)[1], atol=1e-12)  # fmt: skip


def test_growing_history():
    x = ar(150)
    method = KernelWeightedResidualInterval(2, 2.0, history=80).fit(x[:30])
    for t in range(30, 150):
        expected, _ = written_out(x[max(0, t - 80) : t], 2, 2.0, 0.2)
        np.testing.assert_allclose(method.predict_interval(0.0, 0.2), expected, atol=1e-12)
        method.update(x[t])


def test_the_newest_residual_is_reweighted():
    """The newest residual comes first in a window: its weighted mean is the last residual."""
    x = ar(400)
    method = KernelWeightedResidualInterval(3, 6.0).fit(x)
    assert method.lambda_ != 0
    windows = sliding_window_view(x, 3)[:-1]
    assert method.weights_ @ windows[:, 2] == pytest.approx(x[-1], abs=1e-9)
    assert abs(method.weights_ @ windows[:, 0] - x[-3]) > 1e-3
    assert method.weights_.sum() == pytest.approx(1)
    assert method.ess_ == pytest.approx(1 / (method.weights_**2).sum())


def test_flat_kernel_leaves_the_moment_condition():
    x = ar(100)
    method = KernelWeightedResidualInterval(2, 1e9).fit(x)
    first = sliding_window_view(x, 2)[:-1, 1] - x[-1]
    lam = rnw_multiplier(first)
    np.testing.assert_allclose(method.weights_, 1 / (98 * (1 + lam * first)), rtol=1e-6)


def test_an_edge_of_all_residuals_is_plain():
    """No residual is above the last one: g has one sign, and the weights are the kernel's."""
    x = np.concatenate([ar(80), [1e3]])
    method = KernelWeightedResidualInterval(1, 1e4).fit(x)
    assert method.lambda_ == 0
    np.testing.assert_allclose(method.weights_, np.full(80, 1 / 80), rtol=0.02)


@pytest.mark.parametrize("bandwidth", ["aicc", 1.0])
def test_constant_residuals(bandwidth):
    method = KernelWeightedResidualInterval(3, bandwidth).fit(np.full(50, 2.5))
    np.testing.assert_array_equal(method.predict_interval(10.0, 0.1), [12.5, 12.5])
    assert method.ess_ == pytest.approx(47)
    assert method.update(2.5).predict_interval(0.0, 0.1).tolist() == [2.5, 2.5]


def test_ties_and_equal_windows():
    """Residuals of a few values, as at night for the sun: most windows are equal."""
    x = np.random.default_rng(0).choice([0.0, 0.0, 0.0, 1.0, -1.0], size=300)
    method = KernelWeightedResidualInterval(4)
    ends = method.run(x, 200, 0.1)
    assert np.isfinite(ends).all()
    assert method.bandwidth_ > 0
    t = 250
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssayWarning)
        method = KernelWeightedResidualInterval(4, method.bandwidth_).fit(x[t - 200 : t])
    np.testing.assert_array_equal(ends[t - 200], method.predict_interval(0.0, 0.1))


@pytest.mark.parametrize("scale", [1e-6, 3.0, 1e6])
def test_scale_and_shift(scale):
    x = ar(300)
    plain = KernelWeightedResidualInterval(3).run(x, 200, 0.1)
    np.testing.assert_allclose(
        KernelWeightedResidualInterval(3).run(scale * x, 200, 0.1), scale * plain, rtol=1e-7, atol=0
    )
    np.testing.assert_allclose(KernelWeightedResidualInterval(3).run(x + 5, 200, 0.1), plain + 5, rtol=1e-9)


def test_no_window_near_is_uniform_and_told():
    x = np.concatenate([ar(100), [1e4]])
    method = KernelWeightedResidualInterval(1, 0.1).fit(x)
    assert method.uniform_
    assert method.ess_ == pytest.approx(100)
    np.testing.assert_allclose(method.weights_, 1 / 100)


def test_bandwidth_is_the_best_of_nine():
    x = ar(250)
    method = KernelWeightedResidualInterval(2).fit(x)
    windows = sliding_window_view(x, 2)[:, ::-1]
    middle = np.median(np.sqrt(((windows[:-1] - windows[-1]) ** 2).sum(1)))
    grid = middle * np.array([0.2, 0.3, 0.4, 0.6, 0.8, 1, 1.5, 2, 3])
    assert method.bandwidth_ == pytest.approx(grid[np.argmin(aicc(windows[:-1], x[2:], grid))])
    before = method.bandwidth_
    for residual in ar(300, seed=5):
        method.update(residual)
    assert method.bandwidth_ == before


def test_bandwidth_is_chosen_anew_while_the_history_fills():
    x = ar(500)
    method = KernelWeightedResidualInterval(2, history=200).fit(x[:40])
    seen = []
    for residual in x[40:]:
        seen.append(method.bandwidth_)
        method.update(residual)
    changes = [40 + i for i in range(1, len(seen)) if seen[i] != seen[i - 1]]
    assert set(changes) <= {80, 160, 200}
    assert seen[-1] == pytest.approx(KernelWeightedResidualInterval(2).fit(x[:200]).bandwidth_)


def test_long_windows_warn_with_numbers_once():
    x = np.random.default_rng(0).normal(size=400)
    method = KernelWeightedResidualInterval(20, 4.0).fit(x)
    with pytest.warns(AssayWarning, match=r"380 windows of 20 residuals weigh .* equal ones, .* min_ess"):
        method.predict_interval(0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(20):
            method.update(0.1).predict_interval(0.0)


def test_long_windows_lose_coverage_and_min_ess_brings_it_back():
    x = np.random.default_rng(0).normal(size=1200)
    with pytest.warns(AssayWarning, match="equal ones"):
        thin = KernelWeightedResidualInterval(20, 4.5).run(x, 800, 0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        thick = KernelWeightedResidualInterval(20, 4.5, min_ess=150).run(x, 800, 0.1)
    covered = [((e[:, 0] <= x[800:]) & (x[800:] <= e[:, 1])).mean() for e in (thin, thick)]
    assert covered[0] < 0.8
    assert covered[1] > 0.87


@pytest.mark.parametrize("last", [0.0, 2.5, 50.0])
def test_min_ess_is_reached_at_the_edge_too(last):
    """Near the edge the condition on the weights concentrates them, whatever the kernel: it is left out."""
    x = np.concatenate([np.random.default_rng(0).normal(size=300), [last]])
    assert KernelWeightedResidualInterval(2, 0.1, min_ess=100).fit(x).ess_ >= 100 * (1 - 1e-12)


def test_few_windows_or_a_gap_fall_back_to_all_residuals():
    x = np.array([3.0, -1.0, 2.0, 5.0, 4.0, 0.0])
    method = KernelWeightedResidualInterval(2, 1.0).fit(x)
    np.testing.assert_array_equal(method.predict_interval(0.0, 0.1), [-1, 5])
    long = ar(100)
    method = KernelWeightedResidualInterval(3, 2.0, fixed_beta=0.1).fit(long)
    method.update(0.5, new_segment=True)
    ordered = np.sort(np.concatenate([long[1:], [0.5]]))
    np.testing.assert_array_equal(method.predict_interval(0.0, 0.2), ordered[[9, 89]])


def test_windows_never_straddle_a_gap():
    x = ar(200)
    segments = np.repeat(["a", "b"], 100)
    method = KernelWeightedResidualInterval(3, 4.0).fit(x, segments)
    assert (method.weights_[97:100] == 0).all()
    apart = KernelWeightedResidualInterval(3, 4.0, history=200).fit(x[:100])
    apart.update(x[100], new_segment=True)
    for residual in x[101:]:
        apart.update(residual)
    np.testing.assert_allclose(apart.weights_, method.weights_, rtol=1e-12)


def test_the_future_changes_nothing():
    x = ar(400)
    whole = KernelWeightedResidualInterval(3).run(x, 200, 0.1)
    method = KernelWeightedResidualInterval(3).fit(x[:200])
    for t in range(200, 300):
        np.testing.assert_array_equal(method.predict_interval(0.0, 0.1), whole[t - 200])
        method.update(x[t])
    shuffled = np.concatenate([x[:300], 1e3 * ar(100, seed=9)])
    np.testing.assert_array_equal(
        KernelWeightedResidualInterval(3).run(shuffled, 200, 0.1)[:101], whole[:101]
    )


def test_several_levels_and_forecasts():
    method = KernelWeightedResidualInterval(2).fit(ar(300))
    at_once = method.predict_interval([1.0, 2.0, 3.0], [0.2, 0.1])
    assert at_once.shape == (2, 3, 2)
    np.testing.assert_array_equal(at_once[1, 2], method.predict_interval(3.0, "0.1"))
    both = method.run(ar(300), 250, [0.2, 0.1])
    np.testing.assert_array_equal(both[0], clone(method).run(ar(300), 250, 0.2))


def test_state_moves():
    x = ar(400)
    first = KernelWeightedResidualInterval(3, history=150).fit(x[:100])
    for residual in x[100:220]:
        first.update(residual)
    second = KernelWeightedResidualInterval(3, history=150).set_state(first.get_state())
    third = pickle.loads(pickle.dumps(first))
    for residual in x[220:]:
        ends = first.predict_interval(0.0)
        np.testing.assert_allclose(second.predict_interval(0.0), ends, rtol=1e-12)
        np.testing.assert_array_equal(third.predict_interval(0.0), ends)
        for method in (first, second, third):
            method.update(residual)
    with pytest.raises(MethodError, match="the state lacks"):
        second.set_state({"residuals": x})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"window": 0}, "window"), ({"window": 2.0}, "window"), ({"bandwidth": -1}, "bandwidth"),
     ({"bandwidth": "cv"}, "bandwidth"), ({"kernel": "box"}, "kernel"), ({"time_decay": 0}, "time_decay"),
     ({"min_ess": 0}, "min_ess"), ({"min_ess": 96}, "the history holds 95 windows"),
     ({"window": 99}, "100 residuals remembered with windows of 99: more than 100"),
     ({"history": 5}, "5 residuals remembered with windows of 5: more than 6")],
)  # fmt: skip
def test_bad_arguments(arguments, message):
    method = KernelWeightedResidualInterval(**arguments)
    with pytest.raises((MethodError, DataError), match=message):
        method.fit(ar(100))
    assert not hasattr(method, "history_")


def test_missing_residuals_are_refused():
    x = ar(100)
    x[[3, 50]] = np.nan
    with pytest.raises(DataError, match="residuals is NaN in 2 of 100 rows, first at row 3"):
        KernelWeightedResidualInterval().fit(x)
    method = KernelWeightedResidualInterval(2).fit(ar(100))
    before = method.predict_interval(0.0)
    for bad in (np.nan, np.inf, [1.0, 2.0]):
        with pytest.raises(DataError):
            method.update(bad)
    np.testing.assert_array_equal(method.predict_interval(0.0), before)
    with pytest.raises(DataError, match="segments has shape"):
        KernelWeightedResidualInterval().fit(ar(100), segments=[1, 2])


@pytest.mark.skipif(not (DATA / "ts-shift" / "elec2.csv.gz").exists(), reason="no data")
def test_electricity(monkeypatch):
    """The check of the specification: narrower than EnbPI by far, at valid coverage."""
    from assay.conformal.checks import kowcpi as checks

    monkeypatch.setenv("ASSAY_DATA", str(DATA))
    residuals, n = checks._residuals("electric", 0)
    assert (len(residuals), n) == (3444, 2755)
    for method, coverage, width in (
        (EnbPI(past_window=300), 0.907, 0.325),
        (KernelWeightedResidualInterval(3), 0.904, 0.175),
        (KernelWeightedResidualInterval(5), 0.896, 0.183),
    ):
        found = checks._judge(method, residuals, n)
        assert found[0] == pytest.approx(coverage, abs=0.015)
        assert found[1] == pytest.approx(width, abs=0.01)
