"""Laplace evidence by layers: the closed form, its derivatives, both matrices, one layer."""

import numpy as np
import pytest

from assay.conformal.laplace_evidence import Evidence, maximise_evidence

SIZES = (3, 1, 5)


def problem(n, seed=0):
    rng = np.random.default_rng(seed)
    J = rng.normal(size=(n, sum(SIZES))) * np.repeat([3.0, 1.0, 0.2], SIZES)
    return J, 0.3 * rng.normal(size=n), rng.normal(size=sum(SIZES))


def closed_form(J, r, theta, d, noise):
    prior = np.repeat(d, SIZES if len(d) > 1 else len(theta))
    _, log_det = np.linalg.slogdet(J.T @ J / noise + np.diag(prior))
    return (
        -(r @ r) / (2 * noise)
        - len(r) / 2 * np.log(2 * np.pi * noise)
        - prior @ theta**2 / 2
        + np.log(prior).sum() / 2
        - log_det / 2
    )


@pytest.mark.parametrize("n", [40, 6])
@pytest.mark.parametrize("sizes", [SIZES, None])
def test_value_is_the_closed_form_and_the_gradient_its_derivative(n, sizes):
    # n = 6 has fewer rows than weights: the matrix of rows
    J, r, theta = problem(n)
    evidence = Evidence(J, r, theta, sizes)
    at = np.array([0.4, -1.0, 2.0, -0.7] if sizes else [0.4, -0.7])

    def value(log_values):
        return closed_form(J, r, theta, np.exp(log_values[:-1]), np.exp(log_values[-1]))

    got, gradient = evidence.value_and_gradient(at)
    assert got == pytest.approx(value(at), rel=1e-12)
    step = 1e-5
    numeric = [(value(at + step * e) - value(at - step * e)) / (2 * step) for e in np.eye(len(at))]
    np.testing.assert_allclose(gradient, numeric, rtol=1e-7, atol=1e-7)


def test_both_matrices_give_the_same_evidence():
    # nine weights and nine rows, and a tenth of zeros in either: neither number changes but for the noise's
    J, r, theta = problem(9)
    at = np.array([0.4, -1.0, 2.0, -0.7])
    rows, by_rows = Evidence(J, r, theta, SIZES).value_and_gradient(at)
    wide = np.column_stack([J, np.zeros(9)])
    weights, by_weights = Evidence(wide, r, np.append(theta, 0.0), (3, 1, 6)).value_and_gradient(at)
    assert weights == pytest.approx(rows, rel=1e-12)
    np.testing.assert_allclose(by_weights, by_rows, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("n", [50, 6])
def test_maximum_is_stationary_and_no_neighbour_is_larger(n):
    J, r, theta = problem(n)
    d, noise = maximise_evidence(J, r, theta, SIZES)
    best = closed_form(J, r, theta, d, noise)
    for layer in range(3):
        for factor in (0.8, 1.25):
            moved = d.copy()
            moved[layer] *= factor
            assert closed_form(J, r, theta, moved, noise) <= best + 1e-6
    if n == 50:
        for factor in (0.8, 1.25):
            assert closed_form(J, r, theta, d, noise * factor) < best
        one, noise_of_one = maximise_evidence(J, r, theta)
        assert best > closed_form(J, r, theta, np.repeat(one, 3), noise_of_one) + 0.1


def test_one_layer_is_the_scalar_case():
    # with eigenvalues s of J'J: gamma = sum s / (s + d s2) weights are determined, and at the maximum
    # d |theta|^2 = gamma and |r|^2 / s2 = n - gamma
    J, r, theta = problem(60, seed=1)
    (d,), noise = maximise_evidence(J, r, theta)
    s = np.linalg.eigvalsh(J.T @ J)
    gamma = (s / (s + d * noise)).sum()
    assert d * (theta @ theta) == pytest.approx(gamma, rel=1e-3)
    assert r @ r / noise == pytest.approx(60 - gamma, rel=1e-3)
    # layers with one precision each are the scalar case too
    scalar, _ = Evidence(J, r, theta).value_and_gradient(np.log([d, noise]))
    layers, _ = Evidence(J, r, theta, SIZES).value_and_gradient(np.log([d, d, d, noise]))
    assert layers == pytest.approx(scalar, rel=1e-12)


def test_search_from_elsewhere_ends_in_the_same_place():
    J, r, theta = problem(50)
    d, noise = maximise_evidence(J, r, theta, SIZES)
    again, noise_again = maximise_evidence(J, r, theta, SIZES, (np.array([30.0, 0.05, 9.0]), 1e-3))
    np.testing.assert_allclose(np.append(again, noise_again), np.append(d, noise), rtol=1e-2)


@pytest.mark.parametrize("scale", [1e8, 1e-8, 0.0])
@pytest.mark.parametrize("n", [50, 6])
def test_extremes_stay_finite(n, scale):
    J, r, theta = problem(n)
    d, noise = maximise_evidence(J * scale, r * 0, theta, SIZES)
    assert np.isfinite(d).all()
    assert noise > 0


def test_layers_that_are_not_those_of_the_jacobian_are_refused():
    J, r, theta = problem(10)
    with pytest.raises(ValueError, match=r"the layers have \[3, 1\] weights, the Jacobian 9 columns"):
        Evidence(J, r, theta, (3, 1))
