"""Ranks over shards: exact against numpy, and a sketch that keeps its promise."""

import copy
import itertools
import math
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.conformal import SplitConformalRegressor
from assay.core.errors import DataError, InfiniteSetWarning, MethodError
from assay.core.levels import conformal_rank
from assay.core.quantiles import conformal_quantile
from assay.core.sharded import RankSearch, RankSketch, sharded_quantile


def search(shards, rank, capacity=64):
    """The k-th smallest; every summary is pickled on its way, and merged in another order each pass."""
    found = RankSearch(lambda n: rank, capacity)
    while not found.is_done:
        window = pickle.loads(pickle.dumps(found.window))
        summaries = [pickle.loads(pickle.dumps(window.summarise([s], i))) for i, s in enumerate(shards)]
        np.random.default_rng(found.passes).shuffle(summaries)
        first, *others = summaries
        for summary in others:
            first.merge(summary)
        found.update(first)
        assert found.passes < 40
    return found


numbers = st.one_of(
    st.floats(allow_nan=False), st.integers(-3, 3).map(float), st.sampled_from([math.inf, -math.inf, -0.0])
)
few = st.lists(st.lists(numbers, max_size=60), min_size=1, max_size=5)


@st.composite
def many(draw):
    """Shards of hundreds of values, with few or many distinct ones, sorted or not."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = draw(st.lists(st.integers(0, 700), min_size=1, max_size=6))
    distinct = draw(st.sampled_from([1, 2, 5, 300, 10**9]))
    shards = [rng.integers(0, distinct, size).astype(float) for size in sizes]
    if draw(st.booleans()):
        shards = [np.sort(shard) for shard in shards]
    for shard in shards:
        shard[rng.random(len(shard)) < draw(st.sampled_from([0.0, 0.2]))] = draw(
            st.sampled_from([math.inf, -math.inf, 0.0])
        )
    return shards


@given(shards=st.one_of(few, many()), data=st.data())
@settings(max_examples=150, deadline=None)
def test_the_search_finds_the_kth_smallest_of_all(shards, data):
    values = np.concatenate([np.asarray(shard, dtype=float) for shard in shards])
    if not len(values):
        assert search(shards, 1).value == math.inf
        return
    rank = data.draw(st.integers(1, len(values)))
    assert search(shards, rank).value == np.partition(values, rank - 1)[rank - 1]
    assert search(shards, len(values) + 1).value == math.inf


@pytest.mark.parametrize("order", ["random", "ascending", "descending", "one value", "two values"])
def test_two_passes_do(order):
    rng = np.random.default_rng(1)
    values = rng.normal(size=300_000)
    values = {
        "random": values,
        "ascending": np.sort(values),
        "descending": np.sort(values)[::-1],
        "one value": np.full(300_000, 0.5),
        "two values": np.where(values > 0, 1.0, 0.0),
    }[order]
    shards = np.array_split(values, 7)
    for rank in (1, 1234, 150_000, 270_001, 300_000):
        found = search(shards, rank, capacity=2048)
        assert found.value == np.partition(values, rank - 1)[rank - 1]
        assert found.passes <= 2
        assert found.n == 300_000


def test_a_window_that_misses_is_put_right():
    """Windows of bad sketches: the search is led astray and comes back."""
    values = np.random.default_rng(2).normal(size=5000)
    ascending = np.sort(values)
    for rank, (low, high) in itertools.product(
        (1, 2500, 5000), ((10, 20), (4000, 4010), (2499, 2499), (2500, 4000))
    ):
        found = RankSearch(lambda n, rank=rank: rank, 64)
        found.update(found.window.summarise([values]))
        found._go_on(ascending[low], ascending[high])
        while not found.is_done:
            found.update(found.window.summarise([values], found.passes))
        assert found.value == ascending[rank - 1]


def test_the_quantile_is_that_of_scores_in_memory():
    rng = np.random.default_rng(3)
    shards = [rng.exponential(size=n) for n in (0, 1, 5000, 999)]
    everything = np.concatenate(shards)
    for alpha in (0.1, "0.05", 0.5, 0.001):
        assert sharded_quantile(lambda: shards, alpha, capacity=256) == conformal_quantile(everything, alpha)
    with pytest.warns(InfiniteSetWarning, match="6000 calibration rows at alpha 0.0001"):
        assert sharded_quantile(lambda: iter(shards), 0.0001) == math.inf
    with pytest.warns(InfiniteSetWarning, match="0 calibration rows"):
        assert sharded_quantile(lambda: [], 0.1) == math.inf


def test_intervals_are_those_of_the_method_in_memory():
    rng = np.random.default_rng(7)
    prediction, y, new = rng.normal(size=(3, 5000))
    q = sharded_quantile(lambda: np.array_split(np.abs(y - prediction), 9), 0.1, capacity=128)
    method = SplitConformalRegressor(alpha=0.1).calibrate_pred(prediction, y)
    np.testing.assert_array_equal(np.stack([new - q, new + q], 1), method.predict_interval_pred(new))


def test_what_is_no_shard_is_refused():
    with pytest.raises(DataError, match="scores of shard 0"):
        sharded_quantile(lambda: [[1.0, math.nan]], 0.1)
    sizes = iter([5000, 4999])
    with pytest.raises(DataError, match=r"pass 2 met 4,999 scores, the first 5,000"):
        sharded_quantile(lambda: [np.arange(next(sizes), dtype=float)], 0.1, capacity=64)
    with pytest.raises(MethodError, match="counts from 1"):
        search([[1.0]], 0)
    with pytest.raises(MethodError, match="at least 64"):
        RankSketch(1)
    with pytest.raises(MethodError, match="cannot be merged"):
        RankSketch(64).merge(RankSketch(65))
    with pytest.raises(MethodError, match="between 0 and 1"):
        RankSketch().error(0)
    with pytest.raises(MethodError, match="there are 0 values"):
        RankSketch().select(1)


def merged(shards, capacity, seed):
    """One sketch of all shards, merged as a tree."""
    sketches = [RankSketch(capacity, 1000 * seed + i).update(shard) for i, shard in enumerate(shards)]
    while len(sketches) > 1:
        pairs = [sketches[i].merge(sketches[i + 1]) for i in range(0, len(sketches) - 1, 2)]
        sketches = pairs + sketches[2 * len(pairs) :]
    return sketches[0]


@given(sizes=st.lists(st.integers(0, 4000), min_size=1, max_size=6), seed=st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_no_rank_is_further_off_than_the_worst(sizes, seed):
    rng = np.random.default_rng(seed)
    shards = [rng.integers(0, 500, size).astype(float) for size in sizes]
    sketch = merged(shards, 64, seed)
    values = np.sort(np.concatenate(shards))
    kept, ranks = sketch._ranked
    assert sketch.n == len(values) == (ranks[-1] if len(ranks) else 0)
    last = np.append(kept[1:] != kept[:-1], True)[: len(kept)]
    off = np.abs(ranks[last] - np.searchsorted(values, kept[last], side="right"))
    assert off.max(initial=0) <= sketch.worst_error
    assert sketch.is_exact == (sketch.worst_error == 0)
    if len(values):
        assert sketch.maximum == values[-1]


def test_memory_is_bounded_and_the_error_goes_with_the_capacity():
    rng = np.random.default_rng(4)
    errors = []
    for capacity in (512, 4096):
        sketch = RankSketch(capacity, 0)
        for _ in range(40):
            sketch.update(rng.normal(size=25_000))
        held = sum(map(len, sketch._levels))
        assert held <= 3 * capacity + min(4096, capacity) * len(sketch._levels)
        errors.append(sketch.error(1e-6) / sketch.n)
        assert errors[-1] <= 9 / capacity
    assert errors[1] < errors[0] / 4


def test_the_chance_of_a_rank_too_large_is_as_stated():
    values = np.random.default_rng(5).permutation(20_000).astype(float)
    shards = np.array_split(values, 5)
    at = 17_000
    sketches = [merged(shards, 128, seed) for seed in range(300)]
    over = np.array([s._ranked[1][np.searchsorted(s._ranked[0], at, side="right") - 1] for s in sketches])
    off = over - (at + 1)
    assert abs(off.mean()) < 4 * off.std() / math.sqrt(300)
    for failure in (0.5, 0.1, 0.02):
        assert (off > sketches[0].error(failure)).mean() <= failure
    # the bound is not idle either: half of what it allows is reached
    assert np.abs(off).max() > sketches[0].error(0.02) / 2


def test_the_threshold_of_a_sketch_covers_as_the_exact_one_does():
    values = np.random.default_rng(6).permutation(20_000).astype(float)
    shards = np.array_split(values, 5)
    for alpha, failure in ((0.1, 1e-6), (0.1, 0.05), (0.02, 0.001)):
        exact = conformal_quantile(values, alpha)
        sketches = [merged(shards, 128, seed) for seed in range(100)]
        thresholds = np.array([sketch.threshold(alpha, failure) for sketch in sketches])
        # a fresh score falls at or below threshold t with probability (t + 1) / (n + 1) or more
        coverage = (thresholds + 1) / 20_001
        assert coverage.mean() >= 1 - alpha
        assert (thresholds < exact).mean() <= failure
        assert coverage.mean() <= 1 - alpha + 2 * sketches[0].error(failure) / 20_000 + failure
    # where all are kept it is the exact one
    small = RankSketch().update(values[:999])
    assert small.threshold(0.1) == conformal_quantile(values[:999], 0.1)


def test_the_ends_of_a_sketch():
    sketch = RankSketch(64, 0).update(np.arange(5000.0))
    assert sketch.threshold(0.001) == 4999.0
    with pytest.warns(InfiniteSetWarning):
        assert sketch.threshold(0.0001) == math.inf
    with pytest.raises(MethodError, match="below alpha"):
        sketch.threshold(0.01, failure=0.3)
    with pytest.warns(InfiniteSetWarning, match="0 calibration rows"):
        assert RankSketch().threshold(0.1) == math.inf
    other = copy.deepcopy(sketch)
    RankSketch(64, 1).merge(sketch)
    assert pickle.dumps(other) == pickle.dumps(sketch)
    assert conformal_rank(5000, 0.1) <= sketch.threshold(0.1) + 1
