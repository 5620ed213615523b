"""Buffers of residuals against what one would write without them."""

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from assay.conformal.residual_history import ResidualHistory, SortedRecent, WindowDistances


def filled(values, capacity, segments=None):
    history = ResidualHistory(capacity)
    for i, value in enumerate(values):
        history.append(value, 0 if segments is None else segments[i])
    return history


@pytest.mark.parametrize("capacity", [1, 3, 7, None])
def test_history_holds_the_last_ones(capacity):
    x = np.random.default_rng(0).normal(size=100)
    history = ResidualHistory(capacity)
    for i, value in enumerate(x):
        history.append(value, i // 10)
        kept = slice(max(0, i + 1 - (capacity or 1000)), i + 1)
        np.testing.assert_array_equal(history.values, x[kept])
        np.testing.assert_array_equal(history.segments, np.arange(100)[kept] // 10)
        assert history.seen == i + 1


@pytest.mark.parametrize("capacity", [1, 2, 9, None])
def test_sorted_values_with_ties_and_ages(capacity):
    x = np.random.default_rng(1).integers(0, 5, size=200).astype(float)
    ordered = SortedRecent(capacity, x[:4])
    for t in range(4, 200):
        ordered.append(x[t])
        last = x[max(0, t + 1 - (capacity or 1000)) : t + 1]
        order = np.argsort(last, kind="stable")
        np.testing.assert_array_equal(ordered.values, last[order])
        np.testing.assert_array_equal(ordered.ages, len(last) - 1 - order)


@pytest.mark.parametrize(("capacity", "width"), [(30, 1), (30, 4), (50, 20), (12, 11)])
def test_distances_step_by_step(capacity, width):
    """A residual of 1e8 passes through, and leaves no rounding behind."""
    x = np.random.default_rng(2).normal(size=200)
    x[60] = 1e8
    history = filled(x[: width + 1], capacity)
    distances = WindowDistances(history, width, capacity - width)
    for t in range(width + 1, 200):
        history.append(x[t])
        distances.step()
        windows = sliding_window_view(x[max(0, t + 1 - capacity) : t + 1], width)
        expected = ((windows[:-1] - windows[-1]) ** 2).sum(axis=1)[::-1]
        np.testing.assert_allclose(distances.squared, expected, rtol=1e-12, atol=0)


def test_windows_are_newest_first():
    windows, targets, last = filled([1.0, 2, 3, 4, 5], 10).windows(2)
    np.testing.assert_array_equal(windows, [[2, 1], [3, 2], [4, 3]])
    np.testing.assert_array_equal(targets, [3, 4, 5])
    np.testing.assert_array_equal(last, [5, 4])


def test_windows_do_not_straddle_a_gap():
    x, segments = np.arange(8.0), [0, 0, 0, 0, 1, 1, 1, 1]
    history = filled(x, 8, segments)
    windows, targets, _ = history.windows(2)
    np.testing.assert_array_equal(windows, [[1, 0], [2, 1], [5, 4], [6, 5]])
    np.testing.assert_array_equal(targets, [2, 3, 6, 7])
    distances = WindowDistances(history, 2, 6)
    # lags 1, 2: windows (5, 6) and (4, 5); lags 3, 4 cross the border; lags 5, 6 lie before it
    np.testing.assert_array_equal(distances.squared, [2, 8, np.inf, np.inf, 50, 72])
    assert distances.last_is_whole
    history.append(8.0, 2)
    distances.step()
    assert not distances.last_is_whole
