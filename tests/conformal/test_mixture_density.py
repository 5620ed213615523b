"""The mixture density network: its density, its draws, and the traps of training it."""

import copy
import pickle

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the extra torch")

import torch
from scipy.integrate import quad
from scipy.stats import kstest, norm
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import ConditionalPCP
from assay.conformal.mixture_density import MixtureDensityNetwork
from assay.core.errors import DataError, MethodError

TINY = {"n_components": 3, "hidden": (16,), "max_epochs": 30, "random_state": 0}


@parametrize_with_checks([MixtureDensityNetwork(2, (8,), max_epochs=40, learning_rate=0.03, random_state=0)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def two_branches(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 1, size=(n, 1))
    y = rng.choice([-1, 1], size=n) * (1 + X[:, 0]) + 0.1 * rng.normal(size=n)
    return 7 * X, 1000 + 50 * y


@pytest.fixture(scope="module")
def model():
    return MixtureDensityNetwork(4, (32, 32), learning_rate=1e-2, max_epochs=80, random_state=0).fit(
        *two_branches(2000, 0)
    )


def test_learns_both_branches(model):
    X, y = two_branches(2000, 1)
    truth = np.log(0.5) + norm.logpdf(np.abs(y - 1000) / 50, 1 + X[:, 0] / 7, 0.1) - np.log(50)
    assert truth.mean() - model.log_prob(X, y).mean() < 0.15
    assert abs(model.predict(X).mean() - 1000) < 15


def test_density_integrates_to_one_and_draws_follow_it(model):
    x = np.array([[3.0]])
    total, _ = quad(lambda v: np.exp(model.log_prob(x, [v])[0]), 700, 1300, limit=400)
    assert total == pytest.approx(1, abs=1e-6)
    draws = model.sample(x, 4000, 5)[0, :, 0]
    grid = np.sort(draws)
    log_w, means, scales = model.mixture(x)

    def cdf(v):
        return (np.exp(log_w) * norm.cdf((v[:, None] - means[:, :, 0]) / scales[:, :, 0])).sum(axis=1)

    assert kstest(grid, cdf).pvalue > 0.001


def test_draws_depend_on_row_and_seed_only(model):
    X, _ = two_branches(30, 2)
    whole = model.sample(X, 7, 3)
    assert whole.shape == (30, 7, 1)
    order = np.random.default_rng(0).permutation(30)
    np.testing.assert_allclose(model.sample(X[order], 7, 3), whole[order], rtol=1e-12)
    np.testing.assert_allclose(
        np.concatenate([model.sample(X[i : i + 1], 7, 3) for i in range(30)]), whole, rtol=1e-12
    )
    assert not np.allclose(model.sample(X, 7, 4), whole)
    assert model.sample(X[:0], 7, 3).shape == (0, 7, 1)


def test_several_outputs():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 2))
    Y = np.column_stack([X[:, 0], -X[:, 1]]) + [0.1, 0.5] * rng.normal(size=(500, 2))
    model = MixtureDensityNetwork(**TINY).fit(X, Y)
    assert model.predict(X).shape == (500, 2)
    assert model.sample(X[:3], 5, 0).shape == (3, 5, 2)
    points = rng.normal(size=(3, 4, 2))
    each = [model.log_prob(X[:3], points[:, j]) for j in range(4)]
    np.testing.assert_allclose(model.log_prob_samples(X[:3], points), np.column_stack(each))
    sets = ConditionalPCP(MixtureDensityNetwork(**TINY), random_state=0).fit(X, Y).predict_set(X)
    assert sets.contains(Y).mean() > 0.8


def test_one_gaussian_knows_its_level():
    X, y = two_branches(100, 0)
    model = MixtureDensityNetwork(1, (8,), max_epochs=5, random_state=0).fit(X, y)
    scale = model.mixture(X)[2][:, 0, 0]
    np.testing.assert_allclose(np.exp(model.hdr_log_threshold(X, 0.1)) * scale, 0.103136, rtol=1e-5)
    assert MixtureDensityNetwork(**TINY).fit(X, y).hdr_log_threshold(X, 0.1) is None


def test_column_constant_in_training_stays_harmless():
    X, y = two_branches(200, 0)
    X = np.column_stack([X, np.full(200, 0.1)])
    model = MixtureDensityNetwork(**TINY).fit(X, y)
    moved = X.copy()
    moved[:, 1] = 1.0
    assert model.x_scaler_.scale_[1] == 1
    assert np.abs(model.predict(moved) - model.predict(X)).max() < 10 * y.std()


def test_constant_target_is_taken():
    X, _ = two_branches(60, 0)
    model = MixtureDensityNetwork(**TINY).fit(X, np.full(60, 3.0))
    assert np.isfinite(model.sample(X, 5, 0)).all()
    method = ConditionalPCP(MixtureDensityNetwork(**TINY), random_state=0).fit(X, np.full(60, 3.0))
    assert method.predict_set(X).contains(np.full(60, 3.0)).mean() > 0.85


def test_training_repeats_and_leaves_torch_alone(model):
    state = torch.random.get_rng_state()
    again = MixtureDensityNetwork(4, (32, 32), learning_rate=1e-2, max_epochs=80, random_state=0).fit(
        *two_branches(2000, 0)
    )
    assert torch.equal(torch.random.get_rng_state(), state)
    X, _ = two_branches(5, 3)
    np.testing.assert_allclose(again.predict(X), model.predict(X), rtol=1e-4)


def test_copies_answer_the_same(model):
    X, y = two_branches(20, 3)
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        np.testing.assert_array_equal(other.log_prob(X, y), model.log_prob(X, y))


def test_progress_and_epochs():
    X, y = two_branches(100, 0)
    seen = []
    fixed = MixtureDensityNetwork(
        2, (8,), max_epochs=6, patience=None, random_state=0, progress=lambda *event: seen.append(event)
    ).fit(X, y)
    assert [event[:2] for event in seen] == [(i, 6) for i in range(1, 7)]
    assert fixed.n_epochs_ == 6
    early = MixtureDensityNetwork(2, (8,), max_epochs=500, patience=2, learning_rate=0.05, random_state=0)
    assert early.fit(X, y).n_epochs_ < 500


def test_bad_input_is_named():
    X, y = two_branches(50, 0)
    with pytest.raises(MethodError, match="must be at least 1"):
        MixtureDensityNetwork(0).fit(X, y)
    with pytest.raises(MethodError, match="validation_fraction"):
        MixtureDensityNetwork(validation_fraction=1).fit(X, y)
    with pytest.raises(MethodError, match="learning_rate"):
        MixtureDensityNetwork(learning_rate=0).fit(X, y)
    with pytest.raises(MethodError, match="diverged"):
        MixtureDensityNetwork(2, (8,), learning_rate=1e30, random_state=0).fit(X, y)
    model = MixtureDensityNetwork(**TINY).fit(X, y)
    with pytest.raises(DataError, match=r"expected \(50, m, 1\)"):
        model.log_prob_samples(X, np.zeros((50, 3, 2)))
    with pytest.raises(ValueError, match="features"):
        model.sample(X[:, [0, 0]], 3, 0)
