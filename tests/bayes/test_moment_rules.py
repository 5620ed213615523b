"""Rules by module type: exact small cases, sampling and derivatives as oracles, what has no rule."""

import numpy as np
import pytest

from assay.core.errors import AssayWarning, MethodError

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from assay.bayes.moment_activations import ACTIVATIONS, slope  # noqa: E402
from assay.bayes.moment_rules import _RULES, Scope, propagate, register_rule  # noqa: E402
from assay.bayes.posterior import GaussianPosterior, KroneckerBlock  # noqa: E402
from assay.bayes.streamlined import streamline  # noqa: E402


def moments(module, variances, mean, variance=None, structure="diag", blocks=None):
    posterior = GaussianPosterior(variances or {"elsewhere.weight": torch.ones(1)}, blocks)
    with torch.no_grad():
        return propagate(Scope(module.double().eval(), posterior, structure), mean, variance)


def constant(module, value):
    return {name: torch.full_like(p, value).double() for name, p in module.named_parameters()}


def test_linear_layer_of_the_paper():
    layer = nn.Linear(2, 1).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.3, 0.7]], dtype=torch.float64))
        layer.bias.zero_()
    variances = {
        "weight": torch.tensor([[0.1, 0.2]], dtype=torch.float64),
        "bias": torch.tensor([0.05], dtype=torch.float64),
    }
    mean, spread = torch.tensor([[1.0, -2.0]]).double(), torch.tensor([[0.5, 0.25]]).double()
    out, found = moments(layer, variances, mean, spread)
    assert float(out) == pytest.approx(-1.1, abs=1e-12)
    assert float(found) == pytest.approx(1.2175, abs=1e-12)
    rng = np.random.default_rng(0)
    x = rng.normal(mean.numpy(), np.sqrt(spread.numpy()), (400_000, 2))
    w = rng.normal([0.3, 0.7], np.sqrt([0.1, 0.2]), (400_000, 2))
    drawn = (x * w).sum(1) + rng.normal(0, np.sqrt(0.05), 400_000)
    assert drawn.var() == pytest.approx(float(found), rel=0.01)


@pytest.mark.parametrize("random", [("weight", "bias"), ("weight",), ("bias",), ()])
@pytest.mark.parametrize("uncertain", [True, False])
def test_linear_and_convolution_agree(random, uncertain):
    """A convolution of one place is a linear layer, whichever of its parts are random."""
    torch.manual_seed(0)
    linear, conv = nn.Linear(3, 4).double(), nn.Conv2d(3, 4, 1).double()
    with torch.no_grad():
        conv.weight.copy_(linear.weight[:, :, None, None])
        conv.bias.copy_(linear.bias)
    variances = {"weight": torch.rand(4, 3).double(), "bias": torch.rand(4).double()}
    mean, spread = torch.randn(5, 3).double(), torch.rand(5, 3).double() if uncertain else None
    wide = {**variances, "weight": variances["weight"][:, :, None, None]}

    def of(module, given):
        return moments(module, {name: given[name] for name in random}, *inputs[module])

    inputs = {
        linear: (mean, spread),
        conv: (mean[:, :, None, None], None if spread is None else spread[:, :, None, None]),
    }
    (out, found), (same, other) = of(linear, variances), of(conv, wide)
    torch.testing.assert_close(same[:, :, 0, 0], out)
    if found is None:
        assert other is None
        return
    torch.testing.assert_close(other[:, :, 0, 0], found)
    V = variances["weight"] if "weight" in random else torch.zeros(4, 3)
    v_b = variances["bias"] if "bias" in random else torch.zeros(4)
    v = torch.zeros(5, 3).double() if spread is None else spread
    M = linear.weight.detach()
    expected = mean.square() @ V.double().T + v @ (M.square() + V).double().T + v_b
    torch.testing.assert_close(found, expected)


def test_convolution_against_its_matrix():
    torch.manual_seed(1)
    conv = nn.Conv1d(2, 3, 3, stride=2, padding=1, bias=False).double()
    variances = {"weight": torch.rand_like(conv.weight)}
    mean, spread = torch.randn(1, 2, 7).double(), torch.rand(1, 2, 7).double()
    _, found = moments(conv, variances, mean, spread)
    # the matrix of the convolution and that of its variances, by pushing unit vectors through
    eye = torch.eye(14).double().reshape(14, 2, 7)
    M = conv(eye).detach().reshape(14, -1).T
    with torch.no_grad():
        conv.weight.copy_(variances["weight"])
    V = conv(eye).detach().reshape(14, -1).T
    expected = V @ mean.reshape(-1).square() + (M.square() + V) @ spread.reshape(-1)
    torch.testing.assert_close(found.reshape(-1), expected)


@pytest.mark.parametrize("kind", [k for k in ACTIVATIONS if isinstance(k, type)], ids=lambda k: k.__name__)
def test_slopes_are_those_of_automatic_differentiation(kind):
    module = kind(0.1, 0.2) if kind is nn.Threshold else kind()
    x = torch.linspace(-3.05, 2.95, 25).double()
    value, derivative = slope(module, x)
    expected, by_jvp = torch.func.jvp(module, (x,), (torch.ones_like(x),))
    torch.testing.assert_close(value, expected, atol=1e-9, rtol=1e-7)
    torch.testing.assert_close(derivative, by_jvp, atol=1e-9, rtol=1e-7)


def test_tanh_gelu_and_other_arguments():
    x = torch.linspace(-4, 4, 33).double()
    for module in (nn.GELU("tanh"), nn.LeakyReLU(0.3), nn.ELU(1.7), nn.Softplus(2.0, 3.0)):
        value, derivative = slope(module, x)
        expected, by_jvp = torch.func.jvp(module, (x,), (torch.ones_like(x),))
        torch.testing.assert_close(value, expected)
        torch.testing.assert_close(derivative, by_jvp)


def test_relu_at_or_below_zero_is_certain():
    mean = torch.tensor([[-1.0, 0.0, 2.0]]).double()
    value, spread = moments(nn.ReLU(), None, mean, torch.full((1, 3), 0.5).double())
    assert value.tolist() == [[0, 0, 2]]
    assert spread.tolist() == [[0, 0, 0.5]]


NORMS = [
    (nn.LayerNorm(6), (4, 6)),
    (nn.LayerNorm(6, elementwise_affine=False), (4, 6)),
    (nn.RMSNorm(6, eps=1e-5), (4, 6)),
    (nn.BatchNorm1d(6), (4, 6)),
    (nn.BatchNorm2d(6), (4, 6, 2, 3)),
    (nn.GroupNorm(3, 6), (4, 6, 5)),
]


@pytest.mark.parametrize(("norm", "shape"), NORMS, ids=lambda x: getattr(type(x), "__name__", ""))
def test_norms_scale_by_what_they_divide_by(norm, shape):
    torch.manual_seed(0)
    norm = norm.double()
    for p in norm.parameters():
        nn.init.uniform_(p, 0.5, 1.5)
    if hasattr(norm, "running_var"):
        norm.running_var.uniform_(0.5, 2)
        norm.running_mean.normal_()
    mean, spread = torch.randn(shape).double() * 2, torch.rand(shape).double()
    out, found = moments(norm, None, mean, spread)
    torch.testing.assert_close(out, norm.eval()(mean))
    # what the norm multiplies by, found from its output: subtract the output at beta alone
    axes = {nn.LayerNorm: (1,), nn.RMSNorm: (1,)}.get(type(norm))
    if axes:
        square = mean.square().mean(1, keepdim=True) if isinstance(norm, nn.RMSNorm) else None
        square = mean.var(1, correction=0, keepdim=True) if square is None else square
        gamma = 1.0 if norm.weight is None else norm.weight.detach().square()
        torch.testing.assert_close(found, spread * gamma / (square + norm.eps))
    elif isinstance(norm, nn.GroupNorm):
        square = mean.reshape(4, 3, -1).var(-1, correction=0).repeat_interleave(2, 1)[:, :, None]
        gamma = norm.weight.detach().square()[:, None]
        torch.testing.assert_close(found, spread * gamma / (square + norm.eps))
    else:
        by_norm = norm(mean + 1) - norm(mean)
        torch.testing.assert_close(found, spread * by_norm.detach().square())


@pytest.mark.parametrize(("norm", "shape"), [n for n in NORMS if n[0].weight is not None], ids=str)
def test_random_weights_of_norms_by_sampling(norm, shape):
    norm = norm.double().eval()
    variances = {name: torch.full_like(p, 0.04) for name, p in norm.named_parameters()}
    mean = torch.randn(shape, generator=torch.Generator().manual_seed(0)).double()
    _, found = moments(norm, variances, mean)
    posterior, generator = GaussianPosterior(variances), torch.Generator().manual_seed(1)
    drawn = [
        torch.func.functional_call(norm, posterior.sample(norm, generator), (mean,)) for _ in range(4000)
    ]
    torch.testing.assert_close(found, torch.stack(drawn).detach().var(0), rtol=0.15, atol=0)


@pytest.mark.parametrize(
    ("pool", "shape"),
    [
        (nn.AvgPool2d(2), (2, 3, 4, 6)),
        (nn.AvgPool2d(3, 2, 1), (2, 3, 5, 5)),
        (nn.AvgPool2d(3, 2, 1, count_include_pad=False), (2, 3, 5, 5)),
        (nn.AvgPool1d(2), (2, 3, 6)),
        (nn.AdaptiveAvgPool2d(1), (2, 3, 4, 4)),
        (nn.AdaptiveAvgPool1d(3), (2, 3, 6)),
    ],
    ids=str,
)
def test_average_pooling_is_a_linear_map(pool, shape):
    mean, spread = torch.randn(shape).double(), torch.rand(shape).double()
    out, found = moments(pool, None, mean, spread)
    size = mean[0].numel()
    M = pool(torch.eye(size).double().reshape(size, *shape[1:])).reshape(size, -1).T
    torch.testing.assert_close(out, pool(mean))
    torch.testing.assert_close(found.reshape(2, -1), spread.reshape(2, -1) @ M.square().T)


def test_max_pooling_follows_the_largest():
    mean = torch.tensor([[[[1.0, 5.0], [2.0, 3.0]]]]).double()
    spread = torch.tensor([[[[0.1, 0.2], [0.3, 0.4]]]]).double()
    out, found = moments(nn.MaxPool2d(2), None, mean, spread)
    assert float(out) == 5
    assert float(found) == pytest.approx(0.2)


def test_certain_inputs_and_weights_stay_certain():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4, 2)).double()
    x = torch.randn(5, 3).double()
    model = streamline(net, GaussianPosterior(constant(net, 0.0)))
    mean, spread = model.forward_latent(x)
    torch.testing.assert_close(mean, net.eval()(x).detach(), rtol=0, atol=0)
    assert not spread.any()


def test_kronecker_identity_factors():
    layer = nn.Linear(3, 2, bias=False)
    block = KroneckerBlock.from_factors(0.7 * torch.eye(2).double(), torch.eye(3).double())
    mean = torch.tensor([[1.0, 2.0, 2.0]]).double()
    _, spread = moments(layer, {}, mean, structure="kron", blocks={"weight": block})
    torch.testing.assert_close(spread[0], 0.7 * 9 * torch.eye(2).double())


def test_kronecker_product_formula():
    torch.manual_seed(0)

    def positive(size):
        root = torch.randn(size, size).double()
        return root @ root.T

    layer, A, B, S = nn.Linear(3, 2).double(), positive(3), positive(2), positive(3)
    cov_b = positive(2)
    blocks = {
        "weight": KroneckerBlock.from_factors(B, A),
        "bias": KroneckerBlock(*torch.linalg.eigh(cov_b)[::-1], None),
    }
    values, vectors = torch.linalg.eigh(cov_b)
    blocks["bias"] = KroneckerBlock(vectors, torch.ones(1, 1).double(), values[:, None])
    mean = torch.randn(1, 3).double()
    _, found = moments(layer, {}, mean, S[None], "kron", blocks)
    m, M = mean[0], layer.weight.detach()
    expected = (m @ A @ m) * B + M @ S @ M.T + torch.trace(A @ S) * B + cov_b
    torch.testing.assert_close(found[0], expected)


def test_kronecker_with_diagonal_factors_is_the_diagonal_rule():
    torch.manual_seed(0)
    layer = nn.Linear(3, 2, bias=False).double()
    a, b = torch.rand(3).double(), torch.rand(2).double()
    mean, spread = torch.randn(4, 3).double(), torch.rand(4, 3).double()
    blocks = {"weight": KroneckerBlock.from_factors(torch.diag(b), torch.diag(a))}
    _, found = moments(layer, {}, mean, torch.diag_embed(spread), "kron", blocks)
    _, diagonal = moments(layer, {"weight": torch.outer(b, a)}, mean, spread)
    torch.testing.assert_close(found.diagonal(dim1=1, dim2=2), diagonal)


def test_covariances_through_activations_and_norms():
    torch.manual_seed(0)
    root = torch.randn(4, 4).double()
    S, mean = (root @ root.T)[None], torch.randn(1, 4).double()
    for module in (nn.Tanh(), nn.LayerNorm(4), nn.BatchNorm1d(4), nn.Dropout(0.3), nn.Flatten()):
        _, found = moments(module, None, mean, S, "kron")
        _, diagonal = moments(module, None, mean, S.diagonal(dim1=1, dim2=2))
        torch.testing.assert_close(found.diagonal(dim1=1, dim2=2), diagonal)
        torch.testing.assert_close(found, found.transpose(1, 2))


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return x + self.inner(x)


@pytest.fixture
def with_rule():
    def rule(mean, variance, module, scope):
        m, v = scope.run("inner", mean, variance)
        return mean + m, v if variance is None else variance + v

    register_rule(Residual, rule)
    yield
    del _RULES["diag"][Residual]


def test_a_rule_of_the_user(with_rule):
    net = nn.Sequential(nn.Linear(3, 3), Residual(nn.Sequential(nn.Linear(3, 3), nn.Tanh())), nn.Linear(3, 1))
    net = net.double()
    posterior = GaussianPosterior(constant(net, 1e-4))
    mean, spread = streamline(net, posterior).forward_latent(torch.ones(2, 3).double())
    torch.testing.assert_close(mean, net(torch.ones(2, 3).double()).detach())
    generator = torch.Generator().manual_seed(0)
    drawn = [
        torch.func.functional_call(net, posterior.sample(net, generator), (torch.ones(1, 3).double(),))
        for _ in range(4000)
    ]
    assert float(spread[0]) == pytest.approx(float(torch.stack(drawn).var()), rel=0.25)


def test_an_unknown_module_is_named_with_its_path():
    net = nn.Sequential(nn.Linear(3, 3), nn.Sequential(nn.ReLU(), Residual(nn.Linear(3, 3))))
    posterior = GaussianPosterior(constant(net, 0.1))
    with pytest.raises(
        MethodError, match=r"Residual at '1.1' \(children: inner\).*register_rule\(Residual, rule\)"
    ):
        streamline(net, posterior)
    with pytest.raises(MethodError, match="structure must be"):
        register_rule(Residual, lambda *a: a, structure="full")


def test_an_unknown_module_before_the_first_random_weight_is_run():
    net = nn.Sequential(nn.Linear(3, 3), Residual(nn.Linear(3, 3)), nn.Linear(3, 2)).double()
    last = {name: v for name, v in constant(net, 0.1).items() if name.startswith("2.")}
    x = torch.randn(4, 3).double()
    mean, spread = streamline(net, GaussianPosterior(last)).forward_latent(x)
    h = net[1](net[0](x)).detach()
    torch.testing.assert_close(mean, net(x).detach())
    torch.testing.assert_close(spread, (0.1 * h.square().sum(1) + 0.1)[:, None].expand(4, 2))


def test_an_unknown_module_after_it_is_refused_when_it_runs():
    net = nn.Sequential(nn.Linear(3, 3), nn.Softmax(-1))
    model = streamline(net, GaussianPosterior({"0.weight": torch.ones(3, 3)}))
    with pytest.raises(MethodError, match="Softmax at '1'"):
        model.forward_latent(torch.ones(1, 3))
    with pytest.raises(MethodError, match="Softmax at '1'"):
        streamline(net, GaussianPosterior({"0.weight": torch.ones(3, 3)}), example_input=torch.ones(1, 3))


def test_shared_weights_are_refused():
    tied = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    tied[2].weight = tied[0].weight
    with pytest.raises(MethodError, match=r"'2.weight' is tied to '0.weight'"):
        streamline(tied, GaussianPosterior({"0.weight": torch.ones(3, 3)}))
    layer = nn.Linear(3, 3)
    reused = nn.Sequential(layer, nn.ReLU(), layer)
    with pytest.raises(MethodError, match=r"module at '2' is that at '0', used twice"):
        streamline(reused, GaussianPosterior({"0.weight": torch.ones(3, 3)}))
    act = nn.ReLU()
    streamline(
        nn.Sequential(nn.Linear(3, 3), act, nn.Linear(3, 3), act),
        GaussianPosterior({"0.bias": torch.ones(3)}),
    )


def test_half_precision_is_computed_in_single_and_said():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).bfloat16()
    with pytest.warns(
        AssayWarning, match="holds bfloat16 weights; mean and variance are computed in float32"
    ):
        model = streamline(net, GaussianPosterior(constant(net, 0.1)))
    mean, spread = model.forward_latent(torch.ones(1, 3))
    assert mean.dtype == spread.dtype == torch.float32
    assert net[0].weight.dtype == torch.bfloat16


def test_training_mode_is_switched_in_the_copy_only():
    net = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.9), nn.Linear(4, 2)).double().train()
    x = torch.randn(6, 3).double()
    mean, _ = streamline(net, GaussianPosterior(constant(net, 0.1))).forward_latent(x)
    assert net.training
    assert int(net[1].num_batches_tracked) == 0
    torch.testing.assert_close(mean, net.eval()(x).detach())
