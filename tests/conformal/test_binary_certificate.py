"""Certificates of one event under noise, and bounds on what samples say: exact cases, limits, bad input."""

from itertools import pairwise, product

import numpy as np
import pytest
from scipy.stats import beta

from assay.conformal.binary_certificate import BinaryCertificate
from assay.conformal.monte_carlo_bounds import (
    bernstein_error,
    clopper_pearson_lower,
    clopper_pearson_upper,
    hoeffding_error,
)
from assay.core.errors import MethodError

ALL = [
    (BinaryCertificate("gaussian", scale=0.25), 0.3),
    (BinaryCertificate("laplace", scale=0.25), 0.3),
    (BinaryCertificate("uniform", scale=0.25), 0.3),
    (BinaryCertificate("sparse", scale=(0.1, 0.6)), (2, 1)),
]
P = np.linspace(0, 1, 101)


@pytest.mark.parametrize(
    ("noise", "scale", "p", "radius", "expected"),
    [
        ("gaussian", 0.25, 0.8, 0.25, 0.4370792),
        ("gaussian", 0.5, 0.9, 0.25, 0.7827609),
        ("uniform", 0.25, 0.8, 0.125, 0.6556624),
        ("laplace", 1.0, 0.9, 0.5, 0.8351279),
        ("laplace", 1.0, 0.6, 1.0, 0.2299247),
        ("laplace", 1.0, 0.3, 0.2, 0.2456192),
        ("laplace", 1.0, 0.99, 0.1, 0.9889483),
        ("sparse", (0.1, 0.6), 0.5, (2, 1), 0.1533333),
        ("sparse", (0.1, 0.6), 0.8, (2, 1), 0.3533333),
        ("sparse", (0.1, 0.6), 0.95, (2, 1), 0.68),
    ],
)
def test_known_values(noise, scale, p, radius, expected):
    assert BinaryCertificate(noise, scale=scale).lower(p, radius) == pytest.approx(expected, abs=1e-7)


@pytest.mark.parametrize(("certificate", "radius"), ALL)
def test_bounds_lie_around_p_and_rise_with_it(certificate, radius):
    low, high = certificate.lower(P, radius), certificate.upper(P, radius)
    assert (low <= P + 1e-12).all()
    assert (high >= P - 1e-12).all()
    assert (np.diff(low) >= -1e-12).all()
    assert (np.diff(high) >= -1e-12).all()
    assert low[0] == 0
    assert high[-1] == 1
    np.testing.assert_array_equal(certificate.lower(P, 0), P)
    np.testing.assert_array_equal(certificate.upper(P, 0), P)


@pytest.mark.parametrize("noise", ["gaussian", "laplace"])
def test_the_sure_event_stays_sure_and_the_way_back_is_exact(noise):
    certificate = BinaryCertificate(noise, scale=0.25)
    inner = P[1:-1]
    np.testing.assert_allclose(certificate.upper(certificate.lower(inner, 0.2), 0.2), inner, atol=1e-9)
    assert certificate.lower(1.0, 0.2) == 1
    assert certificate.lower([0.0, 1.0], 1e6).tolist() == [0, 1]
    np.testing.assert_allclose(BinaryCertificate(noise, scale=1e9).lower(P, 0.2), P, atol=1e-8)


@pytest.mark.parametrize("noise", ["gaussian", "laplace", "uniform"])
def test_a_half_line_attains_the_bound_in_one_dimension(noise):
    """Uniform noise: events that lie where the two densities differ. All: worst event by simulation."""
    scale, radius = 0.5, 0.3
    rng = np.random.default_rng(0)
    draws = {
        "gaussian": lambda n: scale * rng.standard_normal(n),
        "laplace": lambda n: rng.laplace(scale=scale, size=n),
        "uniform": lambda n: rng.uniform(-scale * 3**0.5, scale * 3**0.5, n),
    }[noise](400_000)
    for p in (0.3, 0.8, 0.95):
        # the event {noise <= t} of probability p, after a move to the right
        t = np.quantile(draws, p)
        found = np.mean(draws + radius <= t)
        bound = BinaryCertificate(noise, scale=scale).lower(p, radius)
        assert found >= bound - 0.004
        assert found == pytest.approx(bound, abs=0.004)


def test_flips_against_all_events_of_three_bits():
    """Every randomised event is a mix of the 2^8 plain ones; the bound is their lower convex hull."""
    plus, minus = 0.1, 0.6
    before = np.array([0, 0, 1])  # two bits are added, one is deleted
    after = 1 - before

    def outcomes(bits):
        flip = np.where(bits == 0, plus, minus)
        return np.array(
            [np.prod(np.where(np.array(to) != bits, flip, 1 - flip)) for to in product((0, 1), repeat=3)]
        )

    events = np.array(list(product((0, 1), repeat=8)))
    here, there = events @ outcomes(before), events @ outcomes(after)
    certificate = BinaryCertificate("sparse", scale=(plus, minus))
    bound = certificate.lower(np.clip(here, 0, 1), (2, 1))
    assert (bound <= there + 1e-12).all()
    # at corners of the hull an event attains it
    assert (np.abs(bound - there) < 1e-12).sum() >= 4


@pytest.mark.parametrize(("hits", "expected"), [(120, 0.6834714), (150, 0.9549926)])
def test_clopper_pearson_lower(hits, expected):
    assert clopper_pearson_lower(hits, 150, 0.001) == pytest.approx(expected, abs=1e-7)


def test_clopper_pearson_at_the_ends_and_inside():
    assert clopper_pearson_upper(0, 150, 0.001) == pytest.approx(0.0450074, abs=1e-7)
    assert clopper_pearson_upper(150, 150, 0.001) == 1
    assert clopper_pearson_lower(0, 150, 0.001) == 0
    hits = np.arange(1, 20)
    np.testing.assert_allclose(clopper_pearson_lower(hits, 20, 0.01), beta.ppf(0.01, hits, 21 - hits))
    np.testing.assert_allclose(clopper_pearson_upper(hits, 20, 0.01), beta.ppf(0.99, hits + 1, 20 - hits))


def test_errors_of_means():
    assert hoeffding_error(256, 0.001) == pytest.approx(0.116154, abs=1e-6)
    half = np.tile([0.0, 1.0], 128)
    assert bernstein_error(half.var(ddof=1), 256, 0.001) == pytest.approx(0.191632, abs=1e-6)


def test_sets_of_radii_are_ordered():
    for certificate, _ in ALL[:3]:
        bounds = [certificate.lower(P, r) for r in (0, 0.1, 0.3, 1, 5)]
        assert all((b <= a + 1e-12).all() for a, b in pairwise(bounds))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"noise": "cauchy"}, "cauchy"),
        ({"noise": "uniform", "norm": "l2"}, "l1"),
        ({"noise": "laplace", "norm": "l2"}, "l1"),
        ({"noise": "gaussian", "norm": "l1"}, "l2"),
        ({"scale": 0}, "above 0"),
        ({"scale": -1.0}, "above 0"),
        ({"scale": float("nan")}, "above 0"),
        ({"noise": "sparse", "scale": (0.5, 0.6)}, "sum below 1"),
        ({"noise": "sparse", "scale": 0.25}, "p_plus"),
    ],
)
def test_impossible_certificates(arguments, words):
    with pytest.raises(MethodError, match=words):
        BinaryCertificate(**arguments)


@pytest.mark.parametrize("radius", [-0.1, float("nan"), float("inf"), (1, 2)])
def test_impossible_radii(radius):
    with pytest.raises(MethodError, match="radius"):
        BinaryCertificate().lower(0.5, radius)


@pytest.mark.parametrize("radius", [(1,), (1.5, 0), (-1, 0), 2])
def test_impossible_flips(radius):
    with pytest.raises(MethodError, match="bits added"):
        BinaryCertificate("sparse", scale=(0.1, 0.6)).lower(0.5, radius)


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_no_probability(p):
    with pytest.raises(MethodError, match=r"\[0, 1\]"):
        BinaryCertificate().lower(p, 0.1)
