"""Boxes of ACP-GN: against one output, separate outputs, and refits of a model with shared weights."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from assay.conformal.gauss_newton import GaussNewtonConformal  # noqa: E402
from assay.conformal.gauss_newton_boxes import GaussNewtonBoxes  # noqa: E402
from assay.conformal.network_regressor import NetworkRegressor  # noqa: E402
from assay.core.errors import AssayWarning, InfiniteSetWarning  # noqa: E402
from assay.core.seeds import derive_seed  # noqa: E402

RESIDUALS = ["standard", "deleted", "studentized"]


class Shared(torch.nn.Module):
    """y_1 = w . x and y_2 = w . x[::-1]: linear, two outputs with the same weights."""

    def __init__(self, weights):
        super().__init__()
        self.w = torch.nn.Parameter(torch.as_tensor(weights))

    def forward(self, x):
        return torch.stack([x @ self.w, x.flip(1) @ self.w], dim=1)


def rows(n, seed=0, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    Y = np.column_stack([X @ np.arange(1.0, d + 1), X[:, ::-1] @ np.arange(1.0, d + 1)])
    return X, Y + rng.normal(size=(n, 2))


def solved(X, Y, reg):
    """Jacobian (n, 2, d) of the shared model and the weights of its ridge regression."""
    J = np.stack([X, X[:, ::-1]], axis=1)
    flat = J.reshape(-1, X.shape[1])
    return J, np.linalg.solve(flat.T @ flat + reg * np.eye(X.shape[1]), flat.T @ Y.ravel())


def refitted(X, Y, x, label, reg, residual):
    """(n + 1, 2) residuals of a refit on the rows and (x, label), transformed by their blocks."""
    A, T = np.vstack([X, x]), np.vstack([Y, label])
    J, weights = solved(A, T, reg)
    flat = J.reshape(-1, X.shape[1])
    inverse = np.linalg.inv(flat.T @ flat + reg * np.eye(X.shape[1]))
    out = T - J @ weights
    for i in range(len(A)):
        values, vectors = np.linalg.eigh(np.eye(2) - J[i] @ inverse @ J[i].T)
        power = {"standard": 0.0, "deleted": -1.0, "studentized": -0.5}[residual]
        out[i] = vectors * values**power @ vectors.T @ out[i]
    return out


@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize("d", [3, 80])
def test_ends_are_where_refits_change_their_mind(residual, d):
    # d = 80 has more weights than the 60 numbers that are fitted: the dual form
    X, Y = rows(30, d=d)
    module = Shared(solved(X, Y, 0.7)[1])
    method = GaussNewtonBoxes(module, 0.7, residual).fit(X, Y)
    x = rows(1, seed=1, d=d)[0]
    (centre,), (box,) = method.predict(x), method.predict_box(x, 0.4)
    assert np.isfinite(box).all()
    for k in (0, 1):
        for end, outwards in zip(box[k], (-1, 1), strict=True):
            for step, inside in ((-1e-6, True), (1e-6, False)):
                label = centre.copy()
                label[k] = end + outwards * step
                scores = np.abs(refitted(X, Y, x, label, 0.7, residual)[:, k])
                assert (np.mean(scores >= scores[-1] - 1e-11) > 0.2) == inside


def two_heads():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return torch.nn.Linear(3, 2).double()


def quiet(method, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssayWarning)
        return method.fit(X, y)


@pytest.mark.parametrize("residual", RESIDUALS)
@pytest.mark.parametrize("solver", ["exact", "two_sided"])
def test_outputs_with_weights_of_their_own_are_separate_problems_at_half_the_level(residual, solver):
    X, Y = rows(60)
    X_test = rows(9, seed=1)[0] * 4
    heads = two_heads()
    boxes = quiet(GaussNewtonBoxes(heads, 1.0, residual, solver), X, Y).predict_box(X_test, [0.2, 0.5])
    assert boxes.shape == (2, 9, 2, 2)
    for k in (0, 1):
        one = torch.nn.Linear(3, 1).double()
        with torch.no_grad():
            one.weight.copy_(heads.weight[k : k + 1])
            one.bias.copy_(heads.bias[k : k + 1])
        alone = quiet(GaussNewtonConformal(one, 1.0, residual, solver), X, Y[:, k])
        np.testing.assert_allclose(boxes[:, :, k], alone.predict_interval(X_test, [0.1, 0.25]), rtol=1e-9)


def test_memory_copies_rows_and_few_rows():
    X, Y = rows(40)
    method = quiet(GaussNewtonBoxes(two_heads()), X, Y)
    whole = method.predict_box(X)
    small = quiet(GaussNewtonBoxes(two_heads(), batch_size=3, max_memory=1), X, Y)
    np.testing.assert_allclose(small.predict_box(X), whole, rtol=1e-10)
    assert method.predict_box(X[:0]).shape == (0, 2, 2)
    with pytest.warns(InfiniteSetWarning, match="at least 49"):
        assert np.isinf(method.predict_box(X, 0.04)).all()


def test_networks_trained_here_are_one_an_output():
    X, Y = rows(60)
    X_test = rows(9, seed=1)[0]
    template = NetworkRegressor(hidden=(4,), epochs=40, polish=0)
    method = quiet(GaussNewtonBoxes(template, 1.0, random_state=5), X, Y)
    region = method.predict_region(X_test, 0.2)
    for k in (0, 1):
        alone = GaussNewtonConformal(template, 1.0, random_state=derive_seed(5, "output", k))
        ends = quiet(alone, X, Y[:, k]).predict_interval(X_test, 0.1)
        np.testing.assert_allclose(np.column_stack([region.lower[:, k], region.upper[:, k]]), ends)
    np.testing.assert_allclose(method.predict(X_test), region.bounding_box().mean(axis=2), rtol=0.5, atol=2)
    wide, narrow = method.predict_region(X_test, [0.1, 0.4])
    assert (wide.volume() > narrow.volume()).all()
    # fitted again with a trained module, nothing of the networks is left
    method.set_params(module=two_heads())
    assert not hasattr(quiet(method, X, Y), "outputs_")


def test_a_box_is_a_region():
    X, Y = rows(40)
    method = quiet(GaussNewtonBoxes(two_heads()), X, Y)
    box, region = method.predict_box(X, 0.3), method.predict_region(X, 0.3)
    np.testing.assert_array_equal(region.bounding_box(), box)
    np.testing.assert_array_equal(region.contains(Y), ((box[..., 0] <= Y) & (box[..., 1] >= Y)).all(axis=1))
    np.testing.assert_allclose(region.volume(), np.diff(box, axis=2)[..., 0].prod(axis=1))


def test_boxes_cover_together():
    inside = []
    X_test, Y_test = rows(100, seed=10_000)
    for seed in range(12):
        X, Y = rows(60, seed=seed)
        box = GaussNewtonBoxes(Shared(solved(X, Y, 0.7)[1]), 0.7).fit(X, Y).predict_box(X_test, 0.2)
        inside.append(((box[..., 0] <= Y_test) & (Y_test <= box[..., 1])).all(axis=1).mean())
    assert 0.77 < np.mean(inside) < 0.88


def test_what_cannot_be_is_refused():
    X, Y = rows(20)
    with pytest.raises(ValueError, match="reg must be the number"):
        GaussNewtonBoxes(two_heads(), "cv").fit(X, Y)
    with pytest.raises(ValueError, match="reg must be a finite number above 0"):
        GaussNewtonBoxes(two_heads(), 0).fit(X, Y)
    with pytest.raises(ValueError, match=r"gives shape \(\d+, 2\) .* 3\) is expected"):
        GaussNewtonBoxes(two_heads()).fit(X, np.column_stack([Y, Y[:, 0]]))
    with pytest.warns(AssayWarning, match="not at a minimum"):
        GaussNewtonBoxes(two_heads()).fit(X, Y)
