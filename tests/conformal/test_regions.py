"""Regions: exact lengths, merged intervals, volumes by Monte Carlo, unbounded and empty sets."""

import numpy as np
import pytest
from scipy.special import gammaln

from assay.conformal.ball_unions import BallUnionSet, nearest_center
from assay.conformal.checks.cp2 import GrowingNoise
from assay.conformal.regions import LevelSet
from assay.core.errors import DataError, MethodError


def balls(centers, radius, **options):
    centers = np.asarray(centers, dtype=float)
    return BallUnionSet(
        centers if centers.ndim == 3 else centers[:, :, None], np.asarray(radius, float), **options
    )


def test_length_of_the_specification():
    region = balls([[0.0, 0.4, 3.4]], [0.5])
    assert region.volume()[0] == pytest.approx(2.4)
    np.testing.assert_allclose(region.intervals()[0], [[-0.5, 0.9], [2.9, 3.9]])
    np.testing.assert_allclose(region.hull(), [[-0.5, 3.9]])
    four = balls(np.tile([0.0, 0.4, 3.4], (4, 1)), [0.5] * 4)
    np.testing.assert_array_equal(four.contains([-0.5, 0.91, 3.9, 2.89]), [True, False, True, False])


def test_touching_balls_merge():
    np.testing.assert_array_equal(balls([[0.0, 2.0]], [1.0]).intervals()[0], [[-1, 3]])


def test_intervals_agree_with_length_and_membership():
    rng = np.random.default_rng(0)
    region = balls(rng.normal(size=(300, 20)), rng.uniform(-0.05, 0.3, size=300))
    pieces = region.intervals()
    assert len(pieces) == 300
    np.testing.assert_allclose([np.diff(p).sum() for p in pieces], region.volume(), atol=1e-12)
    y = rng.normal(size=300)
    by_piece = [bool(((p[:, 0] <= v) & (v <= p[:, 1])).any()) for p, v in zip(pieces, y, strict=True)]
    np.testing.assert_array_equal(by_piece, region.contains(y))
    assert all((p[1:, 0] > p[:-1, 1]).all() for p in pieces)


def test_unbounded_and_empty_are_said_and_never_dropped():
    region = balls([[0.0, 1.0]] * 3, [np.inf, -0.1, 0.0])
    np.testing.assert_array_equal(region.volume(), [np.inf, 0, 0])
    np.testing.assert_array_equal(region.intervals()[0], [[-np.inf, np.inf]])
    assert region.intervals()[1].shape == (0, 2)
    np.testing.assert_array_equal(region.intervals()[2], [[0, 0], [1, 1]])
    np.testing.assert_array_equal(region.contains([9.0, 0.0, 1.0]), [True, False, True])
    np.testing.assert_array_equal(region.volume("mc"), [np.inf, 0, 0])


def test_monte_carlo_volume_agrees_with_exact_ones():
    rng = np.random.default_rng(1)
    line = balls(rng.normal(size=(5, 10)), np.full(5, 0.2))
    np.testing.assert_allclose(line.volume("mc", n_points=20_000), line.volume(), rtol=0.02)
    # two discs of radius 1 at distance 1: 2 pi minus the lens
    lens = 2 * np.arccos(0.5) - 0.5 * np.sqrt(3)
    discs = balls(np.array([[[0.0, 0.0], [1.0, 0.0]]]), [1.0])
    assert discs.volume(n_points=40_000)[0] == pytest.approx(2 * np.pi - lens, rel=0.01)
    ball = balls(np.zeros((1, 1, 3)), [2.0])
    assert ball.volume()[0] == pytest.approx(4 / 3 * np.pi * 8, rel=1e-12)


def test_what_needs_one_output_says_so():
    region = balls(np.zeros((2, 3, 2)), [1.0, 1.0])
    for call in (region.intervals, region.hull):
        with pytest.raises(MethodError, match="one output; this region has 2"):
            call()
    with pytest.raises(MethodError, match="one or two outputs; this region has 3"):
        balls(np.zeros((2, 3, 3)), [1.0, 1.0]).volume("exact")
    with pytest.raises(DataError, match="y has 1 outputs, the region has 2"):
        region.contains(np.zeros(2))
    with pytest.raises(MethodError, match="'auto', 'exact' or 'mc'"):
        region.volume("grid")
    with pytest.raises(DataError, match="3 rows, 2 are expected"):
        region.contains(np.zeros((3, 2)))


def by_points(centers, radius, n=200_000):
    """Area of the union by points spread over its bounding box."""
    low, high = centers.min(axis=0) - radius, centers.max(axis=0) + radius
    points = low + (high - low) * np.random.default_rng(0).random((n, 2))
    square = ((points[:, None] - centers) ** 2).sum(axis=2)
    return (square.min(axis=1) <= radius**2).mean() * (high - low).prod()


def test_exact_areas():
    lens = 2 * np.arccos(0.5) - 0.5 * np.sqrt(3)
    pair = [[0.0, 0.0], [1.0, 0.0]]
    turn = np.arange(12) * np.pi / 6
    ring = np.column_stack([np.cos(turn), np.sin(turn)])
    far = [[0.0, 0.0], [1e9, 0.0], [0.0, -1e9]]
    for centers, radius, area in (
        ([[3.0, 4.0]], 2.0, 4 * np.pi),
        (pair, 1.0, 2 * np.pi - lens),
        (pair + pair + pair[:1], 1.0, 2 * np.pi - lens),
        ([[0.0, 0.0], [2.0, 0.0]], 1.0, 2 * np.pi),
        (far, 1e-3, 3e-6 * np.pi),
        (ring, 0.3, None),
        (ring, 0.9, None),
    ):
        centers = np.array(centers)
        region = balls(centers[None], [radius])
        if area is None:
            # a ring with a hole, and one without
            assert region.volume()[0] == pytest.approx(by_points(centers, radius), rel=0.01)
        else:
            assert region.volume("exact")[0] == pytest.approx(area, rel=1e-12)


def test_exact_areas_agree_with_points_and_memory_changes_nothing():
    rng = np.random.default_rng(3)
    centers = rng.normal(size=(40, 30, 2)) * rng.uniform(0.1, 3, size=(40, 1, 1))
    radius = rng.uniform(0.05, 1.5, size=40)
    region = balls(centers, radius)
    np.testing.assert_allclose(region.volume("mc", n_points=40_000), region.volume(), rtol=0.03)
    np.testing.assert_allclose(balls(centers, radius, max_memory=1).volume(), region.volume(), rtol=1e-12)


def test_many_balls_or_far_ones_take_the_tree():
    rng = np.random.default_rng(4)
    close = rng.normal(size=(2, 300, 3))
    tree = balls(close, [0.5, 0.5]).volume(n_points=20_000)
    ball = [balls(close[:, :150], [0.5, 0.5]).volume(n_points=20_000)]
    assert (tree > ball[0]).all()
    far = balls(np.array([[[0.0, 0, 0], [1e6, 0, 0]]]), [1.0])
    assert far.volume()[0] == pytest.approx(8 * np.pi / 3, rel=1e-9)


def test_scaled_balls_are_ellipsoids():
    scale = np.array([2.0, 0.5])
    region = BallUnionSet(np.zeros((3, 1, 2)), np.array([1.0, np.inf, -1.0]), scale=scale)
    np.testing.assert_allclose(region.volume(), [np.pi, np.inf, 0])
    np.testing.assert_array_equal(region.contains([[2.0, 0.0], [9, 9], [0, 0]]), [True, True, False])
    assert not region.take([0]).contains([[0.0, 0.6]])[0]
    np.testing.assert_array_equal(region.bounding_box()[0], [[-2, 2], [-0.5, 0.5]])
    np.testing.assert_array_equal(region.bounding_box()[2], [[np.inf, -np.inf]] * 2)
    with pytest.raises(MethodError, match="2 of 3 regions are unbounded or empty, first at row 1"):
        region.sample(5)


def test_sampled_points_are_uniform_over_the_union():
    centers = np.array([[[0.0, 0.0], [0.1, 0.0], [0.0, 0.1], [9.0, 9.0]]])
    region = balls(centers, [1.0])
    points = region.sample(4000)[0]
    assert region.take(np.zeros(4000, int)).contains(points).all()
    alone = np.pi / region.volume()[0]
    assert (points[:, 0] > 5).mean() == pytest.approx(alone, abs=0.03)


def test_memory_bound_changes_nothing():
    rng = np.random.default_rng(2)
    y, centers = rng.normal(size=(50, 3)), rng.normal(size=(50, 40, 3))
    np.testing.assert_array_equal(nearest_center(y, centers, 1000), nearest_center(y, centers))


X = np.linspace(0.1, 0.9, 5)[:, None]


def level_set(log_ratio, n_outputs=1):
    truth = GrowingNoise(n_outputs)
    peak = truth.log_prob(X, np.zeros((5, n_outputs)))
    return LevelSet(truth, X, peak + log_ratio, n_outputs), truth.scale(X)


def test_level_set_of_a_normal_is_its_interval():
    region, scale = level_set(-0.5 * 1.7**2)
    np.testing.assert_allclose(region.hull(), np.outer(1.7 * scale, [-1, 1]), rtol=1e-9)
    np.testing.assert_allclose(region.volume(), 3.4 * scale, rtol=1e-9)
    np.testing.assert_allclose(region.volume("mc", n_points=20_000), 3.4 * scale, rtol=0.05)
    assert region.contains(1.699 * scale).all()
    assert not region.contains(1.701 * scale).any()
    far, _ = level_set(-0.5 * 30.0**2)
    np.testing.assert_allclose(far.volume(), 60 * scale, rtol=1e-9)


def test_level_set_in_the_plane():
    region, scale = level_set(-0.5 * 1.5**2, 2)
    np.testing.assert_allclose(region.volume(n_points=40_000), np.pi * (1.5 * scale) ** 2, rtol=0.03)


def test_level_set_rows_and_box():
    region, scale = level_set(-0.5 * 1.5**2, 2)
    taken = region.take(np.repeat(np.arange(5), 3))
    np.testing.assert_array_equal(
        taken.contains(np.repeat(scale, 3)[:, None] * np.tile([[0, 0], [1.4, 0], [1.2, 1.2]], (5, 1))),
        np.tile([True, True, False], 5),
    )
    box = region.bounding_box() / scale[:, None, None]
    assert ((np.abs(box) >= 1.5) & (np.abs(box) < 1.9)).all()
    whole = LevelSet(GrowingNoise(2), X, np.array([-np.inf, np.inf, 0, 0, 0.0]), 2).bounding_box()
    np.testing.assert_array_equal(whole[:2], [[[-np.inf, np.inf]] * 2, [[np.inf, -np.inf]] * 2])
    line, scale = level_set(-0.5 * 1.7**2)
    np.testing.assert_allclose(line.bounding_box()[:, 0], np.outer(1.7 * scale, [-1, 1]), rtol=1e-9)


def test_level_set_of_two_modes_has_two_pieces():
    class Pair:
        def sample(self, X, n_samples, random_state):
            rng = np.random.default_rng(random_state)
            shape = (len(X), n_samples)
            return rng.choice([-3.0, 3.0], size=shape) + rng.normal(size=shape)

        def log_prob(self, X, y):
            return np.logaddexp(-0.5 * (y - 3) ** 2, -0.5 * (y + 3) ** 2) - np.log(2 * np.sqrt(2 * np.pi))

    region = LevelSet(Pair(), X, np.full(5, np.log(0.1)), 1)
    pieces = region.intervals()
    half = np.sqrt(-2 * np.log(0.1 * 2 * np.sqrt(2 * np.pi)))
    for piece in pieces:
        np.testing.assert_allclose(piece, [[-3 - half, -3 + half], [3 - half, 3 + half]], atol=1e-3)
    np.testing.assert_allclose(region.volume("mc", n_points=20_000), region.volume(), rtol=0.05)


def test_level_set_everything_and_nothing():
    region = LevelSet(GrowingNoise(), X, np.array([-np.inf, np.inf, -np.inf, 1e9, 0.0]), 1)
    np.testing.assert_array_equal(region.volume()[:4], [np.inf, 0, np.inf, 0])
    np.testing.assert_array_equal(region.volume("mc")[:4], [np.inf, 0, np.inf, 0])
    np.testing.assert_array_equal(region.hull()[0], [-np.inf, np.inf])
    assert region.hull()[1, 0] > region.hull()[1, 1]
    np.testing.assert_array_equal(region.contains(np.zeros(5))[:4], [True, False, True, False])


def test_a_density_without_end_is_refused():
    class Flat:
        def sample(self, X, n_samples, random_state):
            return np.random.default_rng(random_state).normal(size=(len(X), n_samples))

        def log_prob(self, X, y):
            return np.zeros(len(X))

    with pytest.raises(MethodError, match="in 5 rows the model's density stays above"):
        LevelSet(Flat(), X, np.full(5, -1.0), 1).volume()


def test_volumes_beyond_floats_have_a_logarithm():
    class Normal:
        samples_by_row = True

        def log_prob(self, X, y):
            return -0.5 * ((y / 1e25) ** 2).sum(axis=1) - 16 * np.log(1e25 * np.sqrt(2 * np.pi))

        def sample(self, X, n_samples, random_state):
            draws = np.random.default_rng(random_state).normal(size=(n_samples, 16))
            return 1e25 * np.broadcast_to(draws, (len(X), n_samples, 16))

    units = 16 * np.log(1e25)
    level = LevelSet(Normal(), np.zeros((2, 1)), np.full(2, -12.0 - units - 8 * np.log(2 * np.pi)), 16)
    balls = BallUnionSet(np.zeros((2, 1, 16)), np.array([1.0, np.inf]), scale=np.full(16, 1e25))
    # a ball of radius sqrt(24), and one of radius 1
    ball = 8 * np.log(np.pi) - gammaln(9)
    np.testing.assert_allclose(level.log_volume(), ball + 8 * np.log(24) + units, atol=1.0)
    np.testing.assert_allclose(balls.log_volume(), [ball + units, np.inf], rtol=1e-12)
    assert (balls.volume() == np.inf).all()
