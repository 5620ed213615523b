"""ACP-GN, SCP-GN and the Laplace interval: linear networks against refits, any module, the traps."""

import io
import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.utils.estimator_checks import parametrize_with_checks

torch = pytest.importorskip("torch")

from assay.conformal.full_ridge import FullConformalRidge  # noqa: E402
from assay.conformal.gauss_newton import GaussNewtonConformal  # noqa: E402
from assay.conformal.gauss_newton_split import GaussNewtonSplitConformal  # noqa: E402
from assay.conformal.interval_base import split_rows  # noqa: E402
from assay.conformal.laplace import LinearizedLaplaceRegressor  # noqa: E402
from assay.conformal.network_regressor import NetworkRegressor  # noqa: E402
from assay.conformal.tangent_leverage import (  # noqa: E402
    GRID,
    TangentLeverage,
    choose_by_left_out,
    gradient_ratio,
)
from assay.core.errors import AssayWarning, InfiniteSetWarning  # noqa: E402

SMALL = NetworkRegressor((4,), epochs=30, polish=30, random_state=0)


@parametrize_with_checks(
    [
        NetworkRegressor((4,), epochs=20, polish=5, random_state=0),
        GaussNewtonConformal(SMALL, random_state=0),
        LinearizedLaplaceRegressor(SMALL, random_state=0),
    ]
)
def test_scikit_learn_contract(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssayWarning)
        check(estimator)


def table(n, seed=0, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X[:, 0] - 2 * X[:, 1] + np.sin(2 * X[:, 2]) + 0.5 * rng.normal(size=n)


def linear_module(X, y, reg):
    """A linear layer without bias at the minimum of its penalised squared error."""
    layer = torch.nn.Linear(X.shape[1], 1, bias=False).double()
    weights = np.linalg.solve(X.T @ X + reg * np.eye(X.shape[1]), X.T @ y)
    with torch.no_grad():
        layer.weight.copy_(torch.as_tensor(weights)[None])
    return layer


def mlp(d=3, seed=0):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.nn.Sequential(torch.nn.Linear(d, 6), torch.nn.GELU(), torch.nn.Linear(6, 1))


def split_half(X, y):
    """Rows that refine calibrates on, random_state 1."""
    _, X_half, _, y_half = split_rows(X, y, 0.5, 1)
    return X_half, y_half


def quiet(call, *arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssayWarning)
        return call(*arguments, **options)


@pytest.mark.parametrize("n", [40, 8])
def test_linear_module_is_conformalised_ridge_regression(n):
    # n = 8 has fewer rows than weights: the dual form
    X, y = table(n, d=10)
    X_test = table(30, seed=1, d=10)[0] * 3
    method = GaussNewtonConformal(linear_module(X, y, 0.7), 0.7, "standard").fit(X, y)
    assert method.leverage_.is_primal == (n == 40)
    assert method.gradient_ratio_ < 1e-10
    expected = FullConformalRidge(Ridge(0.7, fit_intercept=False)).fit(X, y)
    np.testing.assert_allclose(
        method.predict_interval(X_test, [0.2, 0.4]), expected.predict_interval(X_test, [0.2, 0.4]), rtol=1e-8
    )


@pytest.mark.parametrize("score", ["standard", "deleted", "studentized"])
def test_p_value_is_that_of_a_refit_and_marks_the_ends(score):
    X, y = table(30)
    method = GaussNewtonConformal(linear_module(X, y, 0.7), 0.7, score).fit(X, y)
    X_test, y_test = table(12, seed=1)
    for x, label, got in zip(X_test, y_test, method.p_value(X_test, y_test), strict=True):
        A, t = np.vstack([X, x]), np.append(y, label)
        hat = A @ np.linalg.solve(A.T @ A + 0.7 * np.eye(3), A.T)
        free = 1 - hat.diagonal()
        scores = np.abs(t - hat @ t) / {"standard": 1, "deleted": free, "studentized": free**0.5}[score]
        assert got == pytest.approx(np.mean(scores >= scores[-1] - 1e-12))
    lower, upper = method.predict_interval(X_test, 0.2).T
    assert (method.p_value(X_test, lower + 1e-9) > 0.2).all()
    assert (method.p_value(X_test, upper + 1e-6) <= 0.2).all()


def test_left_out_residuals_of_a_refit():
    X, y = table(25)
    method = GaussNewtonConformal(linear_module(X, y, 0.7), 0.7).fit(X, y)
    got = method.residuals_ / (1 - method.leverage_.own)
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        weights = np.linalg.solve(X[rest].T @ X[rest] + 0.7 * np.eye(3), X[rest].T @ y[rest])
        assert got[i] == pytest.approx(y[i] - X[i] @ weights, abs=1e-12)


@pytest.mark.parametrize("reg", [0.3, np.geomspace(0.02, 5, 9)], ids=["one", "by weight"])
@pytest.mark.parametrize("n", [30, 5])
def test_hat_values_in_both_forms(n, reg):
    rng = np.random.default_rng(0)
    J, new = rng.normal(size=(n, 9)), rng.normal(size=(4, 9))
    inverse = np.linalg.inv(J.T @ J + np.diag(np.broadcast_to(reg, 9)))
    leverage = TangentLeverage(J, reg)
    np.testing.assert_allclose(leverage.reg, reg, rtol=1e-12)
    own, cross = leverage.cross(new)
    np.testing.assert_allclose(own, np.diag(new @ inverse @ new.T), rtol=1e-10)
    np.testing.assert_allclose(leverage.own_of(new), own, rtol=1e-12)
    np.testing.assert_allclose(cross, new @ inverse @ J.T, atol=1e-12)
    np.testing.assert_allclose(leverage.own, np.diag(J @ inverse @ J.T), atol=1e-12)
    np.testing.assert_allclose(leverage.solve(new[0]), inverse @ new[0], rtol=1e-9)
    np.testing.assert_allclose(leverage.own_blocks(new[None])[0], new @ inverse @ new.T, atol=1e-12)


def test_singular_factor_raises_the_penalty_and_says_so():
    J = np.repeat(np.random.default_rng(0).normal(size=(20, 1)), 3, axis=1) * 1e6
    with pytest.warns(AssayWarning, match="reg is raised to"):
        leverage = TangentLeverage(J, 1e-12)
    assert leverage.reg > 1e-12
    assert np.isfinite(leverage.own).all()


def test_jacobian_is_the_derivative():
    X, _ = table(7)
    module = mlp()
    method = quiet(GaussNewtonConformal(module, 1.0).fit, X, np.arange(7.0))
    values, jacobian = method.network_.values_and_jacobian(X)
    double = mlp().double()
    np.testing.assert_allclose(values, double(torch.as_tensor(X)).detach().numpy()[:, 0], rtol=1e-12)
    for i, x in enumerate(torch.as_tensor(X)):
        double.zero_grad()
        double(x).sum().backward()
        gradient = np.concatenate([p.grad.numpy().ravel() for p in double.parameters()])
        np.testing.assert_allclose(jacobian[i], gradient, rtol=1e-10, atol=1e-14)


def saved_by_plain_pytorch(X, y):
    """Bytes of a state_dict: float32, mean loss, SGD's weight decay w = 2 reg / N, nothing of assay."""
    net = mlp(seed=3)
    optimiser = torch.optim.LBFGS(net.parameters(), max_iter=800, line_search_fn="strong_wolfe")
    x, t = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)[:, None]

    def loss():
        optimiser.zero_grad()
        value = ((net(x) - t) ** 2).mean() + 0.5 / len(t) * sum((p**2).sum() for p in net.parameters())
        value.backward()
        return value

    optimiser.step(loss)
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    return file.getvalue()


def test_module_saved_by_plain_pytorch_is_calibrated_without_training():
    X, y = table(150)
    stored = saved_by_plain_pytorch(X, y)
    net = mlp(seed=9)
    net.load_state_dict(torch.load(io.BytesIO(stored)))
    net.train()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method = GaussNewtonConformal(net, 0.5).fit(X, y)
    assert method.gradient_ratio_ < 0.1
    X_test, y_test = table(600, seed=1)
    ends = method.predict_interval(X_test)
    assert 0.85 < np.mean((ends[:, 0] <= y_test) & (y_test <= ends[:, 1])) < 0.95
    np.testing.assert_allclose(
        method.predict(X_test), net(torch.tensor(X_test).float()).detach()[:, 0], atol=1e-5
    )
    # the user's module: weights, precision, mode and gradients as they were
    assert net.training
    loaded = torch.load(io.BytesIO(stored))
    assert all(torch.equal(value, loaded[name]) for name, value in net.state_dict().items())
    assert all(p.grad is None and p.dtype == torch.float32 for p in net.parameters())


@pytest.mark.parametrize("solver", ["exact", "two_sided"])
def test_chunks_and_memory_change_nothing(solver):
    X, y = table(60)
    X_test = np.concatenate([table(40, seed=1)[0], [[40.0, -30, 20]]])
    module = quiet(NetworkRegressor((5,), random_state=0).fit, X, y).module_
    whole = quiet(GaussNewtonConformal(module, solver=solver).fit, X, y)
    small = quiet(GaussNewtonConformal(module, solver=solver, batch_size=3, max_memory=1).fit, X, y)
    np.testing.assert_allclose(
        small.predict_interval(X_test, [0.1, 0.3]), whole.predict_interval(X_test, [0.1, 0.3]), rtol=1e-9
    )
    np.testing.assert_allclose(small.leverage(X_test), whole.leverage(X_test), rtol=1e-9)
    np.testing.assert_array_equal(
        small.p_value(X_test[:40], table(40, seed=1)[1]), whole.p_value(X_test[:40], table(40, seed=1)[1])
    )


@pytest.mark.parametrize("n", [60, 20])
def test_refined_is_full_conformal_ridge_on_the_tangent(n):
    # n = 20 has fewer rows than the 31 weights
    X, y = table(n)
    method = GaussNewtonConformal(mlp(), 0.5, "standard", refine=True).fit(X, y)
    X_test = table(10, seed=1)[0]
    theta, network = method.network_.theta, method.network_
    values, J = network.values_and_jacobian(X)
    values_test, J_test = network.values_and_jacobian(X_test)
    ridge = FullConformalRidge(Ridge(0.5, fit_intercept=False)).fit(J, y - values + J @ theta)
    offset = values_test - J_test @ theta
    np.testing.assert_allclose(
        method.predict_interval(X_test, 0.2), ridge.predict_interval(J_test, 0.2) + offset[:, None], rtol=1e-7
    )
    np.testing.assert_allclose(method.predict(X_test), ridge.predict(J_test) + offset, rtol=1e-8)


def test_refined_covers_whatever_the_network():
    # a network of random weights: only the tangent features must not depend on the rows
    covered = []
    for seed in range(80):
        X, y = table(20, seed=seed)
        method = GaussNewtonConformal(mlp(), 0.5, refine=True).fit(X[:19], y[:19])
        ((lower, upper),) = method.predict_interval(X[19:], 0.2)
        covered.append(lower <= y[19] <= upper)
    assert 0.7 < np.mean(covered) < 0.9


def test_refine_trains_on_one_half():
    X, y = table(60)
    method = GaussNewtonConformal(SMALL, refine=True, random_state=1).fit(X, y)
    assert len(method.residuals_) == 30
    with pytest.raises(ValueError, match="refine calibrates on; give a number"):
        GaussNewtonConformal(mlp(), "cv", refine=True).fit(X, y)


def test_weights_that_count():
    X, y = table(40)
    module = mlp()
    sizes = {
        params if isinstance(params, str) else "function": len(
            quiet(GaussNewtonConformal(module, 1.0, params=params).fit, X, y).network_.theta
        )
        for params in ("all", "last_layer", lambda name, parameter: name.endswith("bias"))
    }
    assert sizes == {"all": 31, "last_layer": 7, "function": 7}
    module[0].requires_grad_(False)
    assert len(quiet(GaussNewtonConformal(module, 1.0).fit, X, y).network_.theta) == 7
    # features of the last layer and 1: its tangent is a ridge regression on them
    method = quiet(GaussNewtonConformal(mlp(), 1.0, params="last_layer").fit, X, y)
    features = mlp().double()[:2](torch.as_tensor(X)).detach().numpy()
    np.testing.assert_allclose(
        method.network_.values_and_jacobian(X)[1], np.column_stack([features, np.ones(40)]), rtol=1e-10
    )
    with pytest.raises(ValueError, match="no weights are left"):
        GaussNewtonConformal(mlp(), params=lambda name, parameter: False).fit(X, y)
    with pytest.raises(ValueError, match="params must be"):
        GaussNewtonConformal(mlp(), params="first").fit(X, y)


def test_batch_norm_and_dropout_are_used_as_in_evaluation():
    X, y = table(40)
    layers = [torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.Dropout(0.5), torch.nn.Linear(5, 1)]
    with torch.random.fork_rng():
        module = torch.nn.Sequential(*layers)
        module(torch.randn(100, 3))
    method = quiet(GaussNewtonConformal(module, 1.0).fit, X, y)
    assert module.training
    whole = method.predict_interval(X)
    rows = np.concatenate([method.predict_interval(X[i : i + 1]) for i in range(len(X))])
    np.testing.assert_allclose(rows, whole, rtol=1e-9)


def test_modules_whose_rows_depend_on_each_other_are_refused():
    X, y = table(20)
    norm = torch.nn.BatchNorm1d(3, track_running_stats=False)
    module = torch.nn.Sequential(norm, torch.nn.Linear(3, 1))

    class Noise(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 1)

        def forward(self, x):
            return self.layer(x) + torch.linspace(0, 1, len(x), dtype=x.dtype)[:, None]

    for bad in (Noise(), module):
        with pytest.raises(ValueError, match=r"depends on the other rows|no single one"):
            GaussNewtonConformal(bad).fit(X, y)
    with pytest.raises(ValueError, match=r"gives shape \(\d+, 2\)"):
        GaussNewtonConformal(torch.nn.Linear(3, 2)).fit(X, y)


def test_network_short_of_its_minimum_is_warned_of_with_the_ratio():
    X, y = table(40)
    module = mlp()
    with pytest.warns(AssayWarning, match=r"the gradient is \d\.\d\d of its data part.*refine=True"):
        method = GaussNewtonConformal(module, 0.1).fit(X, y)
    values, J = method.network_.values_and_jacobian(X)
    pull = J.T @ (y - values)
    expected = np.linalg.norm(pull - 0.1 * method.network_.theta) / np.linalg.norm(pull)
    assert method.gradient_ratio_ == pytest.approx(expected)
    assert gradient_ratio(J, np.zeros(40), np.zeros(31), 1.0) == 0


def test_polished_network_is_at_its_minimum():
    X, y = table(80)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AssayWarning)
        method = GaussNewtonConformal(NetworkRegressor((5,)), 0.3, random_state=0).fit(X, y)
    assert method.gradient_ratio_ < 0.1
    # the penalty of the standardised target, in units of y squared
    assert method.reg_ == pytest.approx(0.3 * y.var())


def test_penalty_chosen_by_left_out_rows_is_that_of_refits():
    X, y = table(30, d=8)
    module = linear_module(X, y, 1e-3)
    method = quiet(GaussNewtonConformal(module, "cv").fit, X, y)
    errors = []
    for reg in GRID:
        total = 0.0
        for i in range(30):
            rest = np.arange(30) != i
            weights = np.linalg.solve(X[rest].T @ X[rest] + reg * np.eye(8), X[rest].T @ y[rest])
            total += (y[i] - X[i] @ weights) ** 2
        errors.append(total)
    assert method.reg_ == GRID[int(np.argmin(errors))]
    values = X @ module.weight.detach().numpy()[0]
    assert choose_by_left_out(X, y - values, module.weight.detach().numpy()[0]) == method.reg_


@pytest.mark.parametrize("reg", ["marglik", "cv"])
def test_penalty_of_a_network_trained_here_is_chosen(reg):
    X, y = table(60)
    network = NetworkRegressor((5,), epochs=150, polish=300)
    method = quiet(GaussNewtonConformal(network, reg, random_state=0).fit, X, y)
    assert method.reg_ == pytest.approx(method.estimator_.reg_, rel=1e-9)
    X_test, y_test = table(400, seed=1)
    ends = method.predict_interval(X_test)
    assert 0.8 < np.mean((ends[:, 0] <= y_test) & (y_test <= ends[:, 1])) < 0.98
    again = quiet(clone(method).fit, X, y)
    np.testing.assert_array_equal(again.predict_interval(X_test), ends)
    if reg == "cv":
        assert method.reg_ / y.var() == pytest.approx(10.0 ** round(np.log10(method.reg_ / y.var())))
        with pytest.raises(ValueError, match="at least 20 rows, got 12"):
            clone(method).fit(X[:12], y[:12])


def test_evidence_gives_each_layer_its_penalty():
    X, y = table(120)
    network = NetworkRegressor((8,), polish=500, reg="marglik", random_state=1)
    trained = network.fit(X, y)
    weights = {name: value for name, value in trained.module_.named_parameters() if value.requires_grad}
    assert list(trained.reg_) == list(weights)
    assert len(set(trained.reg_.values())) == 4
    assert 0.45 < trained.noise_ < 0.6  # 0.5 in the table
    # trained jointly: at the last weights the evidence would move little
    tangent = quiet(GaussNewtonConformal(trained.module_, "marglik").fit, X, y)
    assert max(abs(np.log(tangent.reg_[name] / trained.reg_[name])) for name in weights) < 0.5
    # at a minimum of the loss with these penalties, and the hat values have them
    method = GaussNewtonConformal(network, "marglik", random_state=1).fit(X, y)
    assert method.gradient_ratio_ < 0.1
    _, J = method.network_.values_and_jacobian(X)
    penalty = np.repeat(list(trained.reg_.values()), [value.numel() for value in weights.values()])
    hat = J @ np.linalg.solve(J.T @ J + np.diag(penalty), J.T)
    np.testing.assert_allclose(method.leverage(X), hat.diagonal(), rtol=1e-8)
    # the rest of the layers is left out with their penalties
    last = quiet(GaussNewtonConformal(network, "marglik", params="last_layer", random_state=1).fit, X, y)
    assert last.reg_ == {name: pytest.approx(trained.reg_[name]) for name in ("3.weight", "3.bias")}
    short = clone(SMALL).set_params(epochs=110)
    laplace = quiet(LinearizedLaplaceRegressor(short, "marglik", random_state=1).fit, X, y)
    assert laplace.noise_ == laplace.estimator_.noise_ > 0


def test_refined_with_a_penalty_for_each_layer_is_a_ridge_refit():
    X, y = table(60)
    method = quiet(GaussNewtonConformal(SMALL, "marglik", refine=True, random_state=1).fit, X, y)
    with_penalties = method.network_
    values, J = with_penalties.values_and_jacobian(X[:9])
    assert isinstance(method.reg_, dict)
    shift = method.predict(X[:9]) - values
    assert np.abs(shift).max() > 0
    # the p-value of the refit with the same penalties, from scratch
    rows = split_half(X, y)
    values, J = with_penalties.values_and_jacobian(rows[0])
    penalty = np.repeat(list(method.reg_.values()), with_penalties.sizes)
    t = rows[1] - values + J @ with_penalties.theta
    hat = J @ np.linalg.solve(J.T @ J + np.diag(penalty), J.T)
    np.testing.assert_allclose(method.residuals_, t - hat @ t, atol=1e-8)


def test_evidence_that_is_never_looked_at_is_refused():
    X, y = table(20)
    with pytest.raises(ValueError, match="more than 100 epochs or a polish, got 60"):
        NetworkRegressor((4,), epochs=60, polish=0, reg="marglik").fit(X, y)


@pytest.mark.parametrize("reg", [0, -1.0, np.nan, np.inf, "evidence"])
@pytest.mark.parametrize(
    "make", [GaussNewtonConformal, GaussNewtonSplitConformal, LinearizedLaplaceRegressor]
)
def test_penalties_that_make_no_sense_are_refused(make, reg):
    X, y = table(20)
    with pytest.raises(ValueError, match="reg must be"):
        make(SMALL, reg).fit(X, y)


def test_bad_input_and_choices_are_refused():
    X, y = table(20)
    broken = X.copy()
    broken[[3, 8], 1] = np.nan
    with pytest.raises(ValueError, match="X is NaN in 2 of 20 rows, first at row 3"):
        GaussNewtonConformal(mlp()).fit(broken, y)
    with pytest.raises(ValueError, match="residual must be one of"):
        GaussNewtonConformal(mlp(), residual="abs").fit(X, y)
    with pytest.raises(ValueError, match="solver must be one of"):
        GaussNewtonConformal(mlp(), solver="vovk").fit(X, y)
    with pytest.raises(ValueError, match="trained torch"):
        GaussNewtonConformal(Ridge()).fit(X, y)
    method = quiet(GaussNewtonConformal(mlp()).fit, X, y)
    with pytest.raises(ValueError, match=r"row of X has shape \(2,\), expected \(3,\)"):
        method.predict_interval(X[:, :2])
    with pytest.raises(ValueError, match="max_memory"):
        GaussNewtonConformal(mlp(), max_memory=0).fit(X, y)
    with torch.no_grad():
        method.module[0].weight[0, 0] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        clone(method).fit(X, y)


def test_too_few_rows_are_infinite_with_a_warning_once():
    X, y = table(8)
    method = quiet(GaussNewtonConformal(mlp(), max_memory=1).fit, X, y)
    with pytest.warns(InfiniteSetWarning, match="at least 9") as caught:
        ends = method.predict_interval(X, [0.1, 0.3])
    assert len(caught) == 1
    assert np.isinf(ends[0]).all()
    assert np.isfinite(ends[1]).all()
    two = quiet(GaussNewtonConformal(mlp(), solver="two_sided").fit, X, y)
    with pytest.warns(InfiniteSetWarning, match="at least 13"):
        assert np.isinf(two.predict_interval(X, 0.15)).all()


def test_images_pass_as_the_module_takes_them():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20, 1, 4, 4)), rng.normal(size=20)
    module = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 1))
    method = quiet(GaussNewtonConformal(module, 1.0).fit, X, y)
    assert method.predict_interval(X[:3]).shape == (3, 2)
    assert method.predict_interval(X[:0], [0.1, 0.2]).shape == (2, 0, 2)
    copy = pickle.loads(pickle.dumps(method))
    np.testing.assert_array_equal(copy.predict_interval(X), method.predict_interval(X))


def test_split_counterpart():
    X, y = table(200)
    method = GaussNewtonSplitConformal(SMALL, 1.0, random_state=0).fit(X[:100], y[:100], X[100:], y[100:])
    spread = np.sqrt(1 + method.leverage(X[100:]))
    np.testing.assert_allclose(method.scores_, np.abs(y[100:] - method.predict(X[100:])) / spread, rtol=1e-12)
    half = np.diff(method.predict_interval(X))[:, 0] / 2
    np.testing.assert_allclose(half, np.sort(method.scores_)[90] * np.sqrt(1 + method.leverage(X)))
    assert method.leverage(X * 20).mean() > method.leverage(X).mean()
    with pytest.raises(ValueError, match="give X_calib and y_calib"):
        GaussNewtonSplitConformal(mlp()).fit(X, y)
    with pytest.raises(ValueError, match="call fit first"):
        GaussNewtonSplitConformal(mlp()).calibrate(X, y)
    assert quiet(GaussNewtonSplitConformal(mlp()).fit, X[:100], y[:100], X[100:], y[100:]).predict_interval(
        X
    ).shape == (200, 2)


@pytest.mark.parametrize("n", [60, 20])
def test_laplace_interval_is_the_gaussian_of_the_linear_model(n):
    X, y = table(n, d=30)
    method = LinearizedLaplaceRegressor(linear_module(X, y, 2.0), 2.0, alpha=0.05).fit(X, y)
    inverse = np.linalg.inv(X.T @ X + 2 * np.eye(30))
    rest = y - X @ inverse @ X.T @ y
    half = 1.959963985 * np.sqrt(np.mean(rest**2) * (1 + np.einsum("ij,jk,ik->i", X, inverse, X)))
    ends = method.predict_interval(X)
    np.testing.assert_allclose((ends[:, 1] - ends[:, 0]) / 2, half, rtol=1e-7)
    tuned = quiet(LinearizedLaplaceRegressor(linear_module(X, y, 2.0), "marglik").fit, X, y)
    assert tuned.noise_ > 0
    assert np.isinf(method.predict_interval(X, 0)).all()


def test_on_a_sine_network_intervals_widen_where_no_rows_are():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, size=(120, 1))
    y = np.sin(4 * x[:, 0]) + 0.1 * rng.normal(size=120)
    method = quiet(GaussNewtonConformal(NetworkRegressor((10,)), 0.05, random_state=0).fit, x, y)
    inside, outside = np.diff(method.predict_interval([[0.0], [3.0]]))[:, 0]
    assert outside > 2 * inside
    assert 0.3 < inside < 0.6  # 2 * 1.645 * 0.1 and a little


def test_progress_is_told():
    seen = []
    X, y = table(20)
    NetworkRegressor((3,), epochs=4, polish=0, progress=lambda *now: seen.append(now)).fit(X, y)
    assert [now[:2] for now in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]
