"""Boxes and ellipsoids: exact volumes, borders that belong, unbounded and empty ones, bad input."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.conformal.boxes import Box
from assay.conformal.ellipsoids import Ellipsoid, mahalanobis
from assay.conformal.region_shapes import farthest, log_unit_ball
from assay.core.errors import DataError, MethodError

Z2 = np.zeros((1, 2))


@pytest.mark.parametrize(("q", "volume"), [(1, 2), (2, np.pi), (3, 4 * np.pi / 3)])
def test_unit_balls(q, volume):
    assert np.exp(log_unit_ball(q)) == pytest.approx(volume, rel=1e-12)
    assert Ellipsoid(np.zeros((1, q)), np.eye(q), 1.0).volume()[0] == pytest.approx(volume, rel=1e-12)


def test_score_with_the_unit_covariance_is_the_length():
    r = np.random.default_rng(0).normal(size=(50, 2))
    np.testing.assert_allclose(mahalanobis(r, np.eye(2)), np.linalg.norm(r, axis=1), rtol=1e-14)


def test_ellipsoid_of_the_specification():
    # C = diag(4, 1), threshold 2: 8 pi
    region = Ellipsoid(Z2, np.diag([2.0, 1.0]), 2.0)
    assert region.volume()[0] == pytest.approx(25.1327, abs=1e-4)
    assert region.take([0, 0, 0, 0]).contains([[4, 0], [4.001, 0], [0, 2], [0, 2.001]]).tolist() == [
        1,
        0,
        1,
        0,
    ]
    np.testing.assert_allclose(region.bounding_box(), [[[-4, 4], [-2, 2]]])


def test_score_is_the_quadratic_form():
    rng = np.random.default_rng(1)
    root = rng.normal(size=(4, 4))
    cov = root @ root.T + np.eye(4)
    r = rng.normal(size=(30, 4))
    direct = np.sqrt(np.einsum("ni,ij,nj->n", r, np.linalg.inv(cov), r))
    np.testing.assert_allclose(mahalanobis(r, np.linalg.cholesky(cov)), direct, rtol=1e-10)
    several = np.stack([np.linalg.cholesky(cov * c) for c in range(1, 31)])
    np.testing.assert_allclose(mahalanobis(r, several), direct / np.sqrt(np.arange(1, 31)), rtol=1e-10)


def test_box_volume_and_borders():
    box = Box(np.array([[0.0, -1.0]]), np.array([[2.0, 3.0]]))
    assert box.volume()[0] == 8
    assert box.log_volume()[0] == pytest.approx(np.log(8))
    assert box.take(np.zeros(3, int)).contains([[0, 3], [2, -1], [2, 3.0000001]]).tolist() == [
        True,
        True,
        False,
    ]
    np.testing.assert_array_equal(box.bounding_box(), [[[0, 2], [-1, 3]]])


def test_unbounded_flat_and_empty():
    box = Box(
        np.array([[-np.inf, 0], [0, 0], [1, 0], [-np.inf, 0]]),
        np.array([[np.inf, 1], [0, 1], [0, 9], [0, 0]]),
    )
    np.testing.assert_array_equal(box.volume(), [np.inf, 0, 0, 0])
    np.testing.assert_array_equal(box.log_volume(), [np.inf, -np.inf, -np.inf, -np.inf])
    np.testing.assert_array_equal(box.contains(np.zeros((4, 2))), [True, True, False, True])
    np.testing.assert_array_equal(box.bounding_box()[2], [[np.inf, -np.inf]] * 2)
    ball = Ellipsoid(np.zeros((3, 2)), np.eye(2), [np.inf, 0, -1])
    np.testing.assert_array_equal(ball.volume(), [np.inf, 0, 0])
    np.testing.assert_array_equal(ball.contains(np.zeros((3, 2))), [True, True, False])
    np.testing.assert_array_equal(ball.contains(np.full((3, 2), 1e300)), [True, False, False])
    np.testing.assert_array_equal(ball.bounding_box()[2], [[np.inf, -np.inf]] * 2)
    for region in (box, ball):
        for call in (region.boundary, region.sample):
            with pytest.raises(MethodError, match=r"of . regions are unbounded or empty, first at row 0"):
                call(8)


def test_volumes_beyond_floats_have_logarithms():
    wide = Box(np.zeros((1, 400)), np.full((1, 400), 10.0))
    assert wide.volume()[0] == np.inf
    assert wide.log_volume()[0] == pytest.approx(400 * np.log(10))
    small = Ellipsoid(np.zeros((1, 300)), 1e-3 * np.eye(300), 1.0)
    assert small.volume()[0] == 0
    assert -4000 < small.log_volume()[0] < -2000


def test_border_of_a_box_goes_once_around():
    box = Box(np.array([[0.0, -1.0]]), np.array([[2.0, 3.0]]))
    points = box.boundary(40)[0]
    assert {(0, -1), (2, -1), (2, 3), (0, 3)} <= {tuple(p) for p in points}
    x, y = np.vstack([points, points[:1]]).T
    assert abs(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1])) / 2 == pytest.approx(8)
    assert box.take(np.zeros(40, int)).contains(points).all()


def test_border_of_an_ellipse_has_its_area():
    root = np.array([[2.0, 0.0], [0.5, 0.5]])
    region = Ellipsoid(np.array([[5.0, -3.0]]), root, 2.0)
    points = region.boundary(2000)[0]
    x, y = np.vstack([points, points[:1]]).T
    assert abs(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1])) / 2 == pytest.approx(region.volume()[0], rel=1e-4)
    assert region.volume()[0] == pytest.approx(12.566371, abs=1e-6)


@pytest.mark.parametrize("q", [2, 3, 5])
def test_points_inside_are_uniform_and_borders_are_borders(q):
    rng = np.random.default_rng(q)
    root = np.linalg.cholesky(np.eye(q) + 0.5)
    for region in (
        Box.around(rng.normal(size=(2, q)), 1.0, rng.uniform(1, 2, size=(2, q))),
        Ellipsoid(rng.normal(size=(2, q)), root, [1.0, 3.0]),
    ):
        inside, border = region.sample(4000), region.boundary(500)
        every = region.take(np.repeat([0, 1], 4000))
        assert every.contains(inside.reshape(-1, q)).all()
        of_border = region.take(np.repeat([0, 1], 500))
        middle = region.bounding_box().mean(axis=2)[:, None]
        for factor, held in ((1 - 1e-9, True), (1 + 1e-9, False)):
            moved = (middle + factor * (border - middle)).reshape(-1, q)
            assert (of_border.contains(moved) == held).all()
        width = np.diff(region.bounding_box(), axis=2)[:, :, 0]
        np.testing.assert_allclose(inside.mean(axis=1), middle[:, 0], atol=0.1 * width.max())
        # half of the volume lies where the distance from the middle is below 2^(-1/q) of the border's
        half = middle + (inside - middle) * 2 ** (1 / q)
        assert every.contains(half.reshape(-1, q)).mean() == pytest.approx(0.5, abs=0.06)


@given(
    st.floats(-1e12, 1e12),
    st.floats(0, 1e12),
)
def test_ends_are_those_of_the_subtraction(center, distance):
    (end,) = farthest(np.array([center]), np.array([distance]))
    assert end - center <= distance
    assert np.nextafter(end, np.inf) - center > distance


def test_one_output_has_ends():
    np.testing.assert_array_equal(Ellipsoid(np.array([[1.0]]), np.eye(1), 2.0).hull(), [[-1, 3]])
    box = Box(np.array([[1.0], [2.0]]), np.array([[3.0], [0.0]]))
    np.testing.assert_array_equal(box.hull()[0], [1, 3])
    assert [len(piece) for piece in box.intervals()] == [1, 0]
    with pytest.raises(MethodError, match="hull"):
        box.boundary(8)
    with pytest.raises(MethodError, match="one output; this region has 2"):
        Box(Z2, Z2).hull()


def test_bad_input_is_refused():
    with pytest.raises(DataError, match=r"lower has shape \(1, 2\), upper \(2, 2\)"):
        Box(Z2, np.zeros((2, 2)))
    with pytest.raises(DataError, match=r"cholesky has shape \(3, 3\)"):
        Ellipsoid(Z2, np.eye(3), 1.0)
    for region in (Box(Z2, Z2), Ellipsoid(Z2, np.eye(2), 1.0)):
        for values, message in (
            (np.zeros(1), "1 outputs, the region has 2"),
            (np.zeros((2, 2)), "2 rows, 1 are expected"),
            ([[0, np.nan]], "NaN in 1 of 1 rows"),
            ([["a", "b"]], "not numbers"),
        ):
            with pytest.raises(DataError, match=message):
                region.contains(values)
