"""Weight posteriors: closed forms, laplace-torch and IVON as oracles, bad input."""

import copy
import warnings

import numpy as np
import pytest

from assay.core.errors import AssayWarning, DataError, MethodError
from assay.networks.selection import selected_names

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from assay.bayes.curvature import diag_ggn, kron_ggn, marginal_likelihood_precision  # noqa: E402
from assay.bayes.posterior import GaussianPosterior, KroneckerBlock, posterior_of  # noqa: E402
from assay.bayes.transformer import CausalTransformer  # noqa: E402


@pytest.fixture
def problem():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double().eval()
    return net, torch.randn(23, 4).double(), torch.randint(0, 3, (23,))


def relative(found, expected):
    return float(((found - expected).abs() / expected.abs()).max())


def test_diagonal_of_two_layers_in_closed_form(problem):
    net, X, _ = problem
    with torch.no_grad():
        p = net(X).softmax(-1)
        a = net[1](net[0](X))
    found = diag_ggn(net, X).diagonal
    spread = p * (1 - p)
    assert relative(found["2.bias"], spread.sum(0)) < 1e-13
    assert relative(found["2.weight"], spread.T @ a.square()) < 1e-13
    # the first layer: by a Jacobian with respect to its pre-activations
    slope = (1 - a.square())[:, None, :] * net[2].weight.detach()
    lam = torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
    own = torch.einsum("nki,nkl,nli->ni", slope, lam, slope)
    assert relative(found["0.bias"], own.sum(0)) < 1e-13
    assert relative(found["0.weight"], own.T @ X.square()) < 1e-13


def test_linear_regression_is_bayesian_linear_regression():
    X = torch.tensor([[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]).double()
    net = nn.Linear(2, 1).double()
    posterior = GaussianPosterior.from_diag_ggn(net, X, 4.0, "regression", noise_std=0.5)
    expected = 1 / (torch.tensor([[10.0, 4.0]]).double() / 0.25 + 4.0)
    torch.testing.assert_close(posterior.variances["weight"], expected, rtol=1e-13, atol=0)
    torch.testing.assert_close(posterior.variances["bias"], torch.tensor([1 / 16.0]).double())


def test_memory_and_batches_change_nothing(problem):
    net, X, _ = problem
    whole = diag_ggn(net, X).diagonal
    for other in (diag_ggn(net, X, max_memory=1), diag_ggn(net, [X[:7], (X[7:], None)])):
        for name, values in whole.items():
            torch.testing.assert_close(other.diagonal[name], values, rtol=1e-12, atol=0)


class Twice(nn.Module):
    """One layer that is called twice, and a weight that is used outside of its layer."""

    def __init__(self):
        super().__init__()
        self.again, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.again(torch.tanh(self.again(x)))))


class Outside(Twice):
    def forward(self, x):
        return self.last(torch.tanh(self.again(x))) + 0.5 * x @ self.last.weight.T


def by_brute_force(net, X):
    """The diagonal from one Jacobian a row and weight."""
    total = {name: torch.zeros_like(p) for name, p in net.named_parameters()}
    for row in X:
        f = net(row[None])[0]
        p = f.softmax(-1).detach()
        slopes = [torch.autograd.grad(f[k], list(net.parameters()), retain_graph=True) for k in range(len(f))]
        for i, name in enumerate(total):
            jacobian = torch.stack([slope[i] for slope in slopes])
            mean = torch.tensordot(p, jacobian, 1)
            total[name] += torch.tensordot(p, jacobian.square(), 1) - mean.square()
    return total


@pytest.mark.parametrize(
    "net",
    [
        Twice(),
        Outside(),
        nn.Sequential(nn.Linear(4, 6), nn.ReLU(inplace=True), nn.Linear(6, 6), nn.GELU(), nn.Linear(6, 3)),
        nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Linear(6, 3)),
    ],
    ids=["called-twice", "used-outside", "in-place", "another-layer"],
)
def test_the_diagonal_is_exact_whatever_the_network(net):
    torch.manual_seed(1)
    net, X = net.double(), torch.randn(9, 4).double()
    found, expected = diag_ggn(net, X).diagonal, by_brute_force(net, X)
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-9, atol=1e-12)


def test_activations_that_write_over_their_input_change_no_kronecker_factor():
    torch.manual_seed(1)
    layers = [nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)]
    X = torch.randn(9, 4).double()
    plain = kron_ggn(nn.Sequential(*layers).double(), X)
    layers[1] = nn.ReLU(inplace=True)
    found = kron_ggn(nn.Sequential(*layers).double(), X)
    for name, factor in plain.factors.items():
        torch.testing.assert_close(found.factors[name].precision(1.0, False), factor.precision(1.0, False))
    with pytest.raises(MethodError, match="'again' is called 2 times"):
        kron_ggn(Twice(), torch.randn(3, 4))


def test_sketches_are_unbiased_over_sequences():
    torch.manual_seed(0)
    net = CausalTransformer(5, 4, width=8, depth=1, heads=2)
    tokens = torch.randint(0, 5, (3, 4))
    exact, drawn = diag_ggn(net, tokens), diag_ggn(net, tokens, sketches=2000)
    for name, values in exact.diagonal.items():
        total = float(values.sum())
        if total > 1e-6:  # a key's bias has no influence at all
            assert float(drawn.diagonal[name].sum()) == pytest.approx(total, rel=0.1)


def loader(X, y, batch_size=100):
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(X, y), batch_size=batch_size)


@pytest.mark.parametrize("likelihood", ["classification", "regression"])
def test_diagonal_is_that_of_laplace_torch(problem, likelihood):
    laplace = pytest.importorskip("laplace")
    backend = pytest.importorskip("laplace.curvature").BackPackGGN
    net, X, y = problem
    mine = copy.deepcopy(net)
    target = y if likelihood == "classification" else torch.randn(len(X), 3).double()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        la = laplace.Laplace(net, likelihood, "all", "diag", sigma_noise=1.0, backend=backend)
        la.fit(loader(X, target, 7))
    found = diag_ggn(mine, X, likelihood, noise_std=1.0).diagonal
    assert relative(torch.cat([v.reshape(-1) for v in found.values()]), la.H) < 1e-12
    taken, own = (
        GaussianPosterior.from_laplace(la),
        GaussianPosterior.from_diag_ggn(mine, X, 1.0, likelihood, noise_std=1.0),
    )
    for name in own.names:
        assert relative(taken.variances[name], own.variances[name]) < 1e-12
    # the backend leaves hooks and tensors of its own on the module
    again = GaussianPosterior.from_diag_ggn(net, X, 1.0, likelihood, noise_std=1.0)
    assert relative(again.variances["0.weight"], own.variances["0.weight"]) < 1e-12


def test_evidence_is_largest_where_laplace_torch_says(problem):
    laplace = pytest.importorskip("laplace")
    net, X, y = problem
    best = marginal_likelihood_precision(diag_ggn(net, X))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        la = laplace.Laplace(
            net, "classification", "all", "diag", backend=pytest.importorskip("laplace.curvature").BackPackGGN
        )
        la.fit(loader(X, y))
    evidence = [
        float(la.log_marginal_likelihood(torch.tensor([t]).double()))
        for t in (0.97 * best, best, 1.03 * best)
    ]
    assert max(evidence) == evidence[1]


@pytest.mark.parametrize("subset", ["all", "last_layer"])
def test_kronecker_posterior_is_that_of_laplace_torch(problem, subset):
    laplace = pytest.importorskip("laplace")
    net, X, y = problem
    mine = copy.deepcopy(net)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        la = laplace.Laplace(
            net,
            "classification",
            subset,
            "kron",
            backend=pytest.importorskip("laplace.curvature").BackPackGGN,
        )
        la.fit(loader(X, y))
    taken = GaussianPosterior.from_laplace(la)
    own = GaussianPosterior.from_kron_ggn(mine, X, 1.0, params=subset)
    assert taken.names == own.names == selected_names(mine, subset)
    for name in own.names:
        assert relative(taken.variance(name), own.variance(name)) < 1e-11


def test_kronecker_factors_are_exact_for_one_row(problem):
    net, X, _ = problem
    row = X[:1]
    curvature, diagonal = kron_ggn(net, row), diag_ggn(net, row).diagonal
    for name, factor in curvature.factors.items():
        B = factor.out_vectors @ torch.diag(factor.out_values) @ factor.out_vectors.T
        A = factor.in_vectors @ torch.diag(factor.in_values) @ factor.in_vectors.T
        product = torch.outer(B.diagonal(), A.diagonal()).reshape(diagonal[name].shape)
        torch.testing.assert_close(product, diagonal[name], rtol=1e-10, atol=1e-14)


def test_product_form_is_a_kronecker_product(problem):
    net, X, _ = problem
    curvature = kron_ggn(net, X, damping=True)
    block, factor = posterior_of(curvature, 9.0).blocks["0.weight"], curvature.factors["0.weight"]
    expected = torch.outer(1 / (factor.out_values + 3), 1 / (factor.in_values + 3))
    torch.testing.assert_close(block.variance, expected)
    bias = posterior_of(curvature, 9.0).blocks["0.bias"]
    torch.testing.assert_close(bias.variance[:, 0], 1 / (curvature.factors["0.bias"].out_values + 9))


def test_draws_have_the_covariance_of_the_posterior():
    B, A = torch.tensor([[2.0, 0.5], [0.5, 1.0]]), torch.tensor([[1.0, -0.3], [-0.3, 0.5]])
    net = nn.Linear(2, 2, bias=False)
    posterior = GaussianPosterior({}, {"weight": KroneckerBlock.from_factors(B, A)})
    generator = torch.Generator().manual_seed(0)
    drawn = torch.stack([posterior.sample(net, generator)["weight"] for _ in range(20000)])
    found = torch.cov(drawn.reshape(-1, 4).T)
    torch.testing.assert_close(found, torch.kron(B, A), atol=0.06, rtol=0)


def test_variances_of_ivon():
    ivon = pytest.importorskip("ivon")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    opt = ivon.IVON(net.parameters(), lr=0.1, ess=50.0, hess_init=0.5, weight_decay=1e-3)
    X, y = torch.randn(20, 3), torch.randint(0, 2, (20,))
    for _ in range(3):
        with opt.sampled_params(train=True):
            opt.zero_grad()
            nn.functional.cross_entropy(net(X), y).backward()
        opt.step()
    posterior = GaussianPosterior.from_ivon(opt, net)
    group = opt.param_groups[0]
    flat = torch.cat([posterior.variances[name].reshape(-1) for name, _ in net.named_parameters()])
    torch.testing.assert_close(flat, 1 / (50.0 * (group["hess"] + 1e-3)))
    posterior.check(net)
    with pytest.raises(MethodError, match="a parameter of shape"):
        GaussianPosterior.from_ivon(opt, copy.deepcopy(net))


def test_negative_variances_are_counted(problem):
    net, X, _ = problem
    variances = GaussianPosterior.from_diag_ggn(net, X, 1.0).variances
    variances["2.bias"][:2] = -1e-9
    with pytest.warns(AssayWarning, match=r"2 of 43 posterior variances are negative \(first in '2.bias'\)"):
        posterior = GaussianPosterior(variances)
    assert float(posterior.variances["2.bias"].min()) == 0
    variances["0.weight"][0, 0] = float("nan")
    with pytest.raises(MethodError, match=r"1 of 20 variances of '0.weight' are NaN or infinite"):
        GaussianPosterior(variances)


def test_another_architecture_is_named(problem):
    net, X, _ = problem
    posterior = GaussianPosterior.from_diag_ggn(net, X, 1.0)
    other = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    with pytest.raises(MethodError, match=r"'2.weight' is \(3, 5\) in the posterior and \(2, 5\)"):
        posterior.check(other)
    with pytest.raises(MethodError, match=r"it has '2.weight' \(3, 5\), the module has no such parameter"):
        posterior.check(nn.Sequential(nn.Linear(4, 5), nn.Tanh()))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda net, X: diag_ggn(net, X, "poisson"), "likelihood must be"),
        (lambda net, X: diag_ggn(net, X, "regression"), "needs noise_std"),
        (lambda net, X: diag_ggn(net, X, params="first"), "params must be"),
        (lambda net, X: diag_ggn(net, X, params=lambda name, p: False), "no weights are left"),
        (lambda net, X: diag_ggn("net", X), "torch.nn.Module is expected"),
        (lambda net, X: kron_ggn(net, X[:0]), "no rows"),
        (lambda net, X: GaussianPosterior.from_diag_ggn(net, X, 0.0), "prior_precision must be above 0"),
        (lambda net, X: GaussianPosterior.from_diag_ggn(net, X, "cv"), "prior_precision must be above 0"),
        (lambda net, X: GaussianPosterior({}), "at least one parameter"),
        (
            lambda net, X: GaussianPosterior({"0.bias": torch.ones(5)}).with_prior_precision(2.0),
            "cannot be changed",
        ),
        (lambda net, X: GaussianPosterior.from_laplace(nn.Linear(1, 1)), "Linear is not fitted"),
    ],
)
def test_bad_input(problem, call, words):
    net, X, _ = problem
    with pytest.raises(MethodError, match=words):
        call(net, X)


def test_kronecker_factors_are_for_linear_layers():
    net = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3))
    with pytest.raises(MethodError, match=r"'1.weight' belongs to a LayerNorm"):
        kron_ggn(net, np.zeros((3, 4)))
    kept = kron_ggn(net, np.ones((3, 4)), params=lambda name, p: not name.startswith("1."))
    assert list(kept.factors) == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_the_module_stays_as_it_is(problem):
    net, X, _ = problem
    net.train()
    before = copy.deepcopy(net.state_dict())
    diag_ggn(net, X)
    kron_ggn(net, X)
    assert net.training
    assert all(p.grad is None and p.requires_grad for p in net.parameters())
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert not net[0]._forward_hooks


@pytest.mark.parametrize("make", [diag_ggn, kron_ggn])
def test_rows_that_tell_nothing_are_refused(problem, make):
    net, X, _ = problem
    for nothing in (X[:0], iter([]), []):
        with pytest.raises(MethodError, match="no rows to take the curvature from"):
            make(net, nothing)
    X[[2, 5], 1] = torch.tensor([np.nan, np.inf]).double()
    with pytest.raises(DataError, match="NaN or infinite in 2 of 23 rows, first at row 2"):
        make(net, X)


@pytest.mark.parametrize("make", [diag_ggn, kron_ggn])
def test_whole_numbers_are_numbers_where_there_are_no_tokens(problem, make):
    net, _, _ = problem
    X = np.arange(12).reshape(3, 4)
    torch.testing.assert_close(make(net, X).log_det(1.0), make(net, X.astype(float)).log_det(1.0))


@pytest.mark.parametrize("make", [diag_ggn, kron_ggn])
def test_curvature_of_half_precision_is_said_to_be_single(problem, make):
    net, X, _ = problem
    with pytest.warns(AssayWarning, match="holds float16 weights"):
        make(net.half(), X)


def test_rows_go_to_the_device_of_the_weights(monkeypatch):
    """The meta device stands for a processor that this machine may lack: it refuses rows from elsewhere."""
    from assay.bayes import latent

    monkeypatch.setattr(latent, "to_numpy", lambda values: np.zeros(values.shape))
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    posterior = GaussianPosterior({name: torch.ones_like(p) for name, p in net.named_parameters()})
    net, rows = net.to("meta"), torch.ones(6, 4)
    assert latent.glm_variance(net, posterior, rows).shape == (6, 3)
    assert latent.glm_variance(net, posterior, rows, max_memory=1).shape == (6, 3)
    assert [out.shape for out in latent.sampled_outputs(net, posterior, rows, 2, 0)] == [(6, 3), (6, 3)]
