"""The functional core of full conformal prediction: exact cases, refits, and brute force on labels."""

import numpy as np
import pytest

from assay.conformal.full_conformal import (
    SCORES,
    SOLVERS,
    full_conformal_interval,
    outermost,
    ridge_residual_coefficients,
)
from assay.core.errors import InfiniteSetWarning

MEAN_Y = np.array([1.0, 2, 3, 4, 10])


def mean_model(score):
    """Five numbers, their mean, no penalty: all hat values 1/5."""
    fifth = np.full((1, 5), 0.2)
    return ridge_residual_coefficients(MEAN_Y - 4, np.array([4.0]), np.array([0.2]), fifth, fifth[0], score)


def ridge(seed=0, n=40, p=3, reg=0.7, x=None):
    """Rows, targets, a new row, and what the core needs of a ridge regression."""
    rng = np.random.default_rng(seed)
    J = rng.normal(size=(n, p))
    y = J @ rng.normal(size=p) + rng.normal(size=n)
    new = rng.normal(size=p) if x is None else np.asarray(x, dtype=float)
    inverse = np.linalg.inv(J.T @ J + reg * np.eye(p))
    hat = J @ inverse @ J.T
    fitted = hat @ y
    cross = (new @ inverse @ J.T)[None]
    return J, y, new, y - fitted, cross @ y, np.array([new @ inverse @ new]), cross, hat.diagonal()


def refitted_scores(J, y, new, candidate, reg, score):
    """Signed residuals of an actual refit on the rows and (new, candidate), the new row last."""
    A, t = np.vstack([J, new]), np.append(y, candidate)
    hat = A @ np.linalg.solve(A.T @ A + reg * np.eye(A.shape[1]), A.T)
    residuals = t - hat @ t
    free = 1 - hat.diagonal()
    return residuals / {"standard": 1.0, "deleted": free, "studentized": np.sqrt(free)}[score]


def test_mean_model_coefficients():
    a, b, a_star, b_star = mean_model("standard")
    np.testing.assert_allclose(a, [[-7 / 3, -4 / 3, -1 / 3, 2 / 3, 20 / 3]], atol=1e-14)
    np.testing.assert_allclose(b, np.full((1, 5), -1 / 6), atol=1e-15)
    np.testing.assert_allclose([a_star[0], b_star[0]], [-10 / 3, 5 / 6], atol=1e-14)


@pytest.mark.parametrize("score", SCORES)
def test_mean_model_intervals(score):
    coefficients = mean_model(score)
    np.testing.assert_allclose(
        full_conformal_interval(*coefficients, [0.4, 0.2]), [[[1, 8.5]], [[-5, 10]]], atol=1e-12
    )


def test_mean_model_two_sided():
    coefficients = mean_model("standard")
    np.testing.assert_allclose(full_conformal_interval(*coefficients, 0.4, "two_sided"), [[1, 10]])
    with pytest.warns(InfiniteSetWarning, match="at least 9"):
        ends = full_conformal_interval(*coefficients, 0.2, "two_sided")
    assert ends.tolist() == [[-np.inf, np.inf]]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("reg", [1e-3, 0.7, 30.0])
def test_coefficients_are_the_residuals_of_a_refit(score, reg):
    J, y, new, *core = ridge(reg=reg)
    a, b, a_star, b_star = ridge_residual_coefficients(*core, score)
    for candidate in (-3.0, 0.0, 2.5):
        expected = refitted_scores(J, y, new, candidate, reg, score)
        got = np.append(a[0] + b[0] * candidate, a_star[0] + b_star[0] * candidate)
        assert np.abs(got - expected).max() < 1e-12


def test_deleted_residuals_leave_the_prediction_alone():
    core = ridge()[3:]
    _, _, a_star, b_star = ridge_residual_coefficients(*core, "deleted")
    np.testing.assert_allclose(b_star, 1, rtol=1e-15)
    np.testing.assert_allclose(a_star, -core[1], rtol=1e-14)


@pytest.mark.parametrize("score", SCORES)
def test_inputs_stay_and_a_second_call_agrees(score):
    core = ridge()[3:]
    before = [part.copy() for part in core]
    coefficients = ridge_residual_coefficients(*core, score)
    kept = [part.copy() for part in coefficients]
    first = full_conformal_interval(*coefficients, 0.2)
    np.testing.assert_array_equal(full_conformal_interval(*coefficients, 0.2), first)
    for old, new in zip([*before, *kept], [*core, *coefficients], strict=True):
        np.testing.assert_array_equal(old, new)


def kept_labels(coefficients, alpha, labels):
    a, b, a_star, b_star = (part[0] for part in coefficients)
    others = np.abs(a + b * labels[:, None])
    own = np.abs(a_star + b_star * labels)
    return labels[(1 + (others >= own[:, None]).sum(axis=1)) / (len(a) + 1) > alpha]


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("x", [None, (4.0, -3, 1), (50.0, 0, 0)])
@pytest.mark.parametrize("alpha", [0.1, 0.4])
def test_hull_of_the_labels_kept_by_brute_force(score, x, alpha):
    coefficients = ridge_residual_coefficients(*ridge(x=x)[3:], score)
    ((lower, upper),) = full_conformal_interval(*coefficients, alpha)
    if np.isinf(lower) or np.isinf(upper):
        far = np.array([lower if np.isinf(lower) else upper])
        assert len(kept_labels(coefficients, alpha, np.clip(far, -1e9, 1e9)))
        return
    margin = 1.037 * (upper - lower)
    labels = np.linspace(lower - margin, upper + margin, 10_000)
    kept = kept_labels(coefficients, alpha, labels)
    step = labels[1] - labels[0]
    assert 0 <= kept.min() - lower <= step
    assert 0 <= upper - kept.max() <= step


def test_far_extrapolation_keeps_the_sign_of_the_slope():
    # |h(x, i)| > 1 for some rows: with b_star - b_i clipped from below the answer would be [34.43, 68.69]
    rng = np.random.default_rng(0)
    J = rng.normal(size=(100, 3))
    y = J.sum(axis=1) + rng.normal(size=100)
    new = np.array([50.0, 0, 0])
    inverse = np.linalg.inv(J.T @ J + 0.1 * np.eye(3))
    hat, cross = J @ inverse @ J.T, (new @ inverse @ J.T)[None]
    assert np.abs(cross).max() > 1
    coefficients = ridge_residual_coefficients(
        y - hat @ y, cross @ y, np.array([new @ inverse @ new]), cross, hat.diagonal(), "standard"
    )
    ((lower, upper),) = full_conformal_interval(*coefficients, 0.4)
    np.testing.assert_allclose([lower, upper], [33.71, 68.01], atol=0.005)
    for inside, outside in ((lower + 1e-6, lower - 1e-6), (upper - 1e-6, upper + 1e-6)):
        for label, is_in in ((inside, True), (outside, False)):
            scores = np.abs(refitted_scores(J, y, new, label, 0.1, "standard"))
            assert (np.mean(scores >= scores[-1] - 1e-12) > 0.4) == is_in


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("score", SCORES)
def test_scale_and_shift(solver, score):
    r, f, *hats = ridge()[3:]
    base = full_conformal_interval(*ridge_residual_coefficients(r, f, *hats, score), 0.2, solver)
    scaled = ridge_residual_coefficients(3 * r, 3 * f, *hats, score)
    np.testing.assert_allclose(full_conformal_interval(*scaled, 0.2, solver), 3 * base, rtol=1e-10)
    moved = ridge_residual_coefficients(r, f + 7, *hats, score)
    np.testing.assert_allclose(full_conformal_interval(*moved, 0.2, solver), base + 7, rtol=1e-10)


@pytest.mark.parametrize("score", SCORES)
def test_heavy_penalty_is_the_rank_of_the_residuals(score):
    _, y, _, r, f, *hats = ridge(n=99, reg=1e12)
    ends = full_conformal_interval(*ridge_residual_coefficients(r, f, *hats, score), 0.1)
    np.testing.assert_allclose(ends, f[:, None] + np.sort(np.abs(y))[89] * np.array([[-1, 1]]), rtol=1e-6)


def test_sets_that_are_rays_or_everything():
    # slopes equal to that of the new row: a ray; equal lines: everything; steeper: two rays
    a = np.array([[1.0, -1.0, 0.0, 2.0]])
    b = np.array([[1.0, 1.0, 1.0, 3.0]])
    star = np.array([0.0]), np.array([1.0])
    for need, top in ((1, np.inf), (2, np.inf), (3, np.inf), (4, 0.5)):
        assert outermost(a, b, *star, need)[0] == top
    ends = full_conformal_interval(a, b, *star, 0.2)
    assert ends.tolist() == [[-np.inf, np.inf]]
    # -|.| and |.| are one residual: its sign may be chosen freely
    np.testing.assert_array_equal(outermost(-a, -b, *star, 4), outermost(a, b, *star, 4))


def test_jackknife_plus_moves_predictions_by_the_left_out_residual():
    # mu_-i(x) = f(x) - h_xi r_i / (1 - h_i), and R_i = r_i / (1 - h_i): checked against refits
    J, y, new, r, f, _, cross, hat = ridge()
    left_out = np.empty(len(y)), np.empty(len(y))
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        weights = np.linalg.solve(J[rest].T @ J[rest] + 0.7 * np.eye(3), J[rest].T @ y[rest])
        left_out[0][i], left_out[1][i] = y[i] - J[i] @ weights, new @ weights
    np.testing.assert_allclose(r / (1 - hat), left_out[0], atol=1e-12)
    np.testing.assert_allclose(f - cross[0] * r / (1 - hat), left_out[1], atol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_bad_numbers_are_refused_by_name(bad):
    a, b, a_star, b_star = ridge_residual_coefficients(*ridge()[3:])
    with pytest.raises(ValueError, match="a is "):
        full_conformal_interval(np.where(a == a[0, 3], bad, a), b, a_star, b_star, 0.1)
    with pytest.raises(ValueError, match="b_star is not above 0 in 1 of 1"):
        full_conformal_interval(a, b, a_star, -b_star, 0.1)
    with pytest.raises(ValueError, match="solver must be one of exact, two_sided"):
        full_conformal_interval(a, b, a_star, b_star, 0.1, "burnaev")
    with pytest.raises(ValueError, match="score must be one of"):
        ridge_residual_coefficients(*ridge()[3:], "absolute")


def test_little_memory_changes_nothing():
    parts = [ridge(seed=0, x=x)[4:7] for x in ((0.1, 0, 0), (50.0, 0, 0), (0, -40.0, 9))]
    f, own, cross = (np.concatenate(part) for part in zip(*parts, strict=True))
    _, _, _, r, _, _, _, hat = ridge()
    coefficients = ridge_residual_coefficients(r, f, own, cross, hat, "standard")
    whole = full_conformal_interval(*coefficients, [0.1, 0.4])
    np.testing.assert_array_equal(full_conformal_interval(*coefficients, [0.1, 0.4], max_memory=1), whole)
    assert np.isfinite(whole[:, 0]).all()
