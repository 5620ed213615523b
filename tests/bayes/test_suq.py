"""Streamlined models and the methods that train one: probabilities, the scale, bad input, one posterior."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from small_problems import SHORT, classes, numbers

from assay.core.errors import AssayWarning, DataError, MethodError
from assay.core.probabilities import softmax

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from assay.bayes.glm_laplace import GLMLaplace  # noqa: E402
from assay.bayes.latent import glm_variance, probit  # noqa: E402
from assay.bayes.map_network import MapNetwork  # noqa: E402
from assay.bayes.mc_laplace import MonteCarloLaplace  # noqa: E402
from assay.bayes.posterior import GaussianPosterior  # noqa: E402
from assay.bayes.streamlined import streamline  # noqa: E402
from assay.bayes.suq import StreamlinedNetwork  # noqa: E402
from assay.networks.training import Training  # noqa: E402


def test_probit_of_the_paper():
    found = probit(np.array([[2.0, 0.0]]), np.array([[4.0, 4.0]]))
    np.testing.assert_allclose(found, [[0.7768, 0.2232]], atol=5e-5)
    three = probit(np.array([[1.0, 0.0, -1.0]]), np.ones((1, 3)))
    np.testing.assert_allclose(three, [[0.620274, 0.265814, 0.113911]], atol=2e-6)


@pytest.fixture
def trained():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4)).astype(np.float32)
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 1)
    opt = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(150):
        opt.zero_grad()
        nn.functional.cross_entropy(net(torch.as_tensor(X)), torch.as_tensor(y)).backward()
        opt.step()
    return net, X, y


def test_one_hidden_layer_is_the_linearised_predictive_up_to_a_product(trained):
    """SUQ adds V_2 v_1, the product of the variances of both layers, to J S J'."""
    net, X, _ = trained
    net = net.double()
    posterior = GaussianPosterior.from_diag_ggn(net, X, 5.0)
    _, spread = streamline(net, posterior).forward_latent(X)
    x = torch.as_tensor(X).double()
    linear = torch.as_tensor(glm_variance(net, posterior, x))
    V = posterior.variances
    hidden = (x.square() @ V["0.weight"].T + V["0.bias"]) * (net[0](x) > 0)
    torch.testing.assert_close(spread, linear + hidden @ V["2.weight"].T)


def test_jacobian_in_pieces_changes_nothing(trained):
    net, X, _ = trained
    for posterior in (
        GaussianPosterior.from_diag_ggn(net, X, 5.0),
        GaussianPosterior.from_kron_ggn(net, X, 5.0),
    ):
        x = torch.as_tensor(X)
        whole = glm_variance(net, posterior, x)
        np.testing.assert_allclose(glm_variance(net, posterior, x, max_memory=1), whole, rtol=1e-5)


def test_the_scale_is_the_best_one(trained):
    net, X, y = trained
    model = streamline(net, GaussianPosterior.from_diag_ggn(net, X, 0.5))
    mean, variance = model.latent(X)

    def nlpd(log_c):
        return -np.log(probit(mean, variance / np.exp(log_c))[np.arange(len(y)), y]).mean()

    y = np.where(np.arange(60) % 5 == 0, (y + 1) % 3, y)  # one in five is wrong: certainty costs
    best = minimize_scalar(nlpd, bounds=(-5, 12), method="bounded")
    before = model.nlpd(X, y)
    model.fit_scale(X, y)
    assert model.nlpd(X, y) == pytest.approx(best.fun, abs=1e-5)
    assert model.nlpd(X, y) < before
    np.testing.assert_allclose(model.latent(X)[1], variance / model.scale_, rtol=1e-6)
    # again from where it is, from batches, and from labels in a column, which never pair with every row
    scale = model.scale_
    for data, target in ((X, y[:, None]), ([(X[:20], y[:20]), (X[20:], y[20:, None])], None)):
        assert model.fit_scale(data, target).scale_ == pytest.approx(scale, rel=1e-4)


def test_a_scale_at_the_end_of_its_range_is_said(trained):
    net, X, _ = trained
    model = streamline(net, GaussianPosterior.from_diag_ggn(net, X, 1e4))
    with pytest.warns(AssayWarning, match="end of its range, 1e"):
        model.fit_scale(X, model.predict(X))


def test_regression_adds_the_noise():
    net = nn.Linear(2, 1)
    posterior = GaussianPosterior({"weight": torch.tensor([[0.1, 0.2]]), "bias": torch.tensor([0.05])})
    model = streamline(net, posterior, likelihood="regression", noise_std=0.3)
    mean, std = model.predict([[1.0, 2.0]], return_std=True)
    assert std == pytest.approx([np.sqrt(0.1 + 0.8 + 0.05 + 0.09)])
    y = mean + 0.7
    expected = 0.5 * np.log(2 * np.pi * std**2) + 0.5 * 0.49 / std**2
    assert model.nlpd(np.array([[1.0, 2.0]]), y) == pytest.approx(float(expected[0]), rel=1e-5)
    with pytest.raises(MethodError, match="predict_proba is there for"):
        model.predict_proba([[1.0, 2.0]])


def test_rows_do_not_meet(trained):
    net, X, _ = trained
    for structure in ("diag", "kron"):
        model = streamline(net, GaussianPosterior.from_kron_ggn(net, X, 1.0), structure)
        mean, variance = model.latent(X)
        for i in (0, 7):
            one = model.latent(X[i : i + 1])
            np.testing.assert_allclose(one[0], mean[i : i + 1], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(one[1], variance[i : i + 1], rtol=1e-4)
        assert model.forward_latent(X[:0])[0].shape == (0, 3)
    labels, spread = model.predict(X, return_std=True)
    assert labels.shape == spread.shape == (60,)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda net, p: streamline(net, p, "full"), "structure must be"),
        (lambda net, p: streamline(net, p, likelihood="poisson"), "likelihood must be"),
        (lambda net, p: streamline(net, p, likelihood="regression"), "needs noise_std"),
        (lambda net, p: streamline(net, p).fit_scale(np.ones((2, 4)), [0, 3]), r"class numbers 0 .. 2"),
        (lambda net, p: streamline(net, p).fit_scale(np.ones((2, 4)), [0, 1, 2]), r"y has shape \(3,\)"),
        (lambda net, p: streamline(net, p).fit_scale([np.ones((2, 4))]), "fit_scale needs targets"),
        (lambda net, p: streamline(net[0], p), r"it has '0.weight' \(8, 4\), the module has no"),
    ],
)
def test_bad_input(trained, call, words):
    net, X, _ = trained
    with pytest.raises((MethodError, DataError), match=words):
        call(net, GaussianPosterior.from_diag_ggn(net, X, 1.0))


def test_a_failed_scale_leaves_the_old_one(trained):
    net, X, y = trained
    y = np.where(np.arange(60) % 5 == 0, (y + 1) % 3, y)
    model = streamline(net, GaussianPosterior.from_diag_ggn(net, X, 0.5)).fit_scale(X, y)
    scale = model.scale_
    with pytest.raises(DataError):
        model.fit_scale(X, y + 7)
    assert model.scale_ == scale


METHODS = [
    StreamlinedNetwork(fit_scale=False),
    StreamlinedNetwork(structure="kron", fit_scale=False),
    MonteCarloLaplace(n_samples=20),
    GLMLaplace(),
    GLMLaplace(params="last_layer", structure="kron"),
]


@pytest.mark.parametrize("likelihood", ["classification", "regression"])
@pytest.mark.parametrize("number", range(len(METHODS)))
def test_a_huge_precision_is_the_network_alone(number, likelihood):
    X, y = classes() if likelihood == "classification" else numbers()
    how = {"likelihood": likelihood, "training": SHORT, "random_state": 0}
    plain = MapNetwork(**how).fit(X, y)
    method = METHODS[number].set_params(**how, prior_precision=1e10).fit(X, y)
    found, expected = method.predict_dist(X[:30]), plain.predict_dist(X[:30])
    if likelihood == "classification":
        np.testing.assert_allclose(found.proba, expected.proba, atol=1e-3)
    else:
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-3)
        np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-2)


def test_all_methods_share_network_and_posterior():
    X, y = classes()
    fitted = [
        type(m)(prior_precision="validation", training=SHORT, random_state=3).fit(X, y)
        for m in (METHODS[0], METHODS[2], METHODS[3])
    ]
    first = fitted[0]
    for other in fitted[1:]:
        assert other.prior_precision_ == first.prior_precision_
        for name, values in first.posterior_.variances.items():
            assert torch.equal(other.posterior_.variances[name], values)
    assert (
        first.network_.outputs(X).tolist()
        == MapNetwork(training=SHORT, random_state=3).fit(X, y).network_.outputs(X).tolist()
    )


def test_sampling_is_the_mean_over_the_drawn_networks():
    X, y = classes()
    method = MonteCarloLaplace(None, 5.0, 40, training=SHORT, random_state=0).fit(X, y)
    proba = method.predict_proba(X)
    np.testing.assert_array_equal(method.predict_proba(X), proba)
    np.testing.assert_allclose(method.predict_proba(X[5:6]), proba[5:6], rtol=1e-5)
    more = MonteCarloLaplace(None, 5.0, 4000, training=SHORT, random_state=0).fit(X, y).predict_proba(X[:20])
    assert np.abs(more - proba[:20]).max() < 0.15
    with pytest.raises(MethodError, match="n_samples must be at least 1"):
        MonteCarloLaplace(n_samples=0, training=SHORT).fit(X, y)


def test_sampled_numbers_are_a_mixture():
    X, y = numbers()
    method = MonteCarloLaplace(None, 5.0, 50, likelihood="regression", training=SHORT, random_state=0).fit(
        X, y
    )
    dist = method.predict_dist(X[:10])
    assert (dist.variance > method.network_.noise_std**2).all()
    net = method.network_
    members = dist.cdf(y[:10])
    assert ((members > 0) & (members < 1)).all()
    narrow = MonteCarloLaplace(None, 1e4, 50, likelihood="regression", training=SHORT, random_state=0).fit(
        X, y
    )
    linear = GLMLaplace(None, 1e4, likelihood="regression", training=SHORT, random_state=0).fit(X, y)
    found, expected = narrow.predict_dist(X[:10]), linear.predict_dist(X[:10])
    np.testing.assert_allclose(found.mean, expected.mean, atol=0.3 * net.noise_std)
    np.testing.assert_allclose(found.variance, expected.variance, rtol=0.2)


def test_validated_precision_beats_the_ends_of_the_grid():
    X, y = classes()
    net_rows = MapNetwork(training=SHORT, random_state=0).fit(X, y).network_.validation_rows

    def loss(t):
        method = GLMLaplace(prior_precision=t, training=SHORT, random_state=0).fit(X, y)
        return -method.score(X[net_rows], y[net_rows]), method.prior_precision_

    best, t = loss("validation")
    assert best <= min(loss(1e-4)[0], loss(1.0)[0], loss(1e4)[0]) + 1e-9
    assert 1e-4 <= t <= 1e4


def test_few_rows_use_the_evidence():
    X, y = classes(n=15)
    few = StreamlinedNetwork(training=SHORT, random_state=0).fit(X, y)
    assert len(few.network_.validation_rows) == 0
    by_evidence = StreamlinedNetwork(prior_precision="marglik", training=SHORT, random_state=0).fit(X, y)
    assert few.prior_precision_ == by_evidence.prior_precision_
    assert few.scale_ == 1


def test_far_rows_are_less_sure():
    X, y = classes()
    far = np.array([[40.0, 40.0]])
    how = {"training": Training(60, 32, 0.01, None, 0.2), "random_state": 0}
    sure = MapNetwork(**how).fit(X, y).predict_proba(far).max()
    for method in (StreamlinedNetwork(None, 1.0, fit_scale=False, **how), GLMLaplace(None, 1.0, **how)):
        assert method.fit(X, y).predict_proba(far).max() < sure - 0.03


def test_user_module_and_unknown_structure():
    X, y = classes()
    mine = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.SiLU(), nn.Dropout(0.1), nn.Linear(8, 3))
    method = StreamlinedNetwork(mine, training=SHORT, random_state=0).fit(X, y)
    np.testing.assert_allclose(method.predict_proba(X).sum(1), 1, atol=1e-9)
    with pytest.raises(MethodError, match="structure must be"):
        StreamlinedNetwork(structure="full", training=SHORT).fit(X, y)
    with pytest.raises(MethodError, match="Softmax at '1'"):
        StreamlinedNetwork(nn.Sequential(nn.Linear(2, 3), nn.Softmax(-1)), training=SHORT).fit(X, y)


def test_softmax_of_the_mean_for_certain_weights(trained):
    net, X, _ = trained
    model = streamline(net, GaussianPosterior({"0.weight": torch.zeros(8, 4)}))
    np.testing.assert_allclose(model.predict_proba(X), softmax(net(torch.as_tensor(X))), atol=1e-6)


def test_many_rows_in_pieces(trained, monkeypatch):
    net, X, _ = trained
    posterior = GaussianPosterior.from_diag_ggn(net, X, 1.0)
    rows = np.concatenate([X] * 5)
    sizes = []
    monkeypatch.setattr("assay.bayes.streamlined._PIECE", 40 * 32)  # 40 rows of the hidden layer's 8 floats
    model = streamline(net, posterior)
    one_pass = model._pass
    monkeypatch.setattr(model, "_pass", lambda piece: sizes.append(len(piece)) or one_pass(piece))
    mean, variance = model.latent(rows)
    assert sizes == [16] + [40] * 7 + [4]
    np.testing.assert_allclose(mean[-60:], mean[:60], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(variance[-60:], variance[:60], rtol=1e-5)
