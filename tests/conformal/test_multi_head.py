"""Heads on one backbone: shapes, what each head sees, gradients, and training."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks

torch = pytest.importorskip("torch")

from assay.conformal.multi_head import MultiHead, MultiHeadClassifier, train_heads  # noqa: E402
from assay.conformal.multiscore import MultiScoreConformal  # noqa: E402


@parametrize_with_checks([MultiHeadClassifier(epochs=40, random_state=0)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


@pytest.mark.parametrize("diversity", ["mask", "structured_dropout", None])
def test_logits_are_those_of_each_head_alone(diversity):
    heads = MultiHead(10, 4, n_heads=3, diversity=diversity, random_state=1)
    features = torch.randn(7, 10, generator=torch.Generator().manual_seed(0))
    logits = heads(features)
    assert logits.shape == (7, 3, 4)
    for j in range(3):
        alone = features * heads.mask[j] @ heads.weight[j].T + heads.bias[j]
        torch.testing.assert_close(logits[:, j], alone)


def test_what_a_head_sees():
    assert (MultiHead(10, 4, diversity=None).mask == 1).all()
    masks = MultiHead(64, 4, n_heads=5, diversity="mask").mask
    assert (masks.sum(dim=1) == 32).all()
    assert len({tuple(mask.tolist()) for mask in masks}) == 5
    blocks = MultiHead(9, 4, n_heads=3, diversity="structured_dropout").mask
    np.testing.assert_array_equal(1 - blocks.numpy(), np.kron(np.eye(3), np.ones((1, 3))))
    assert (MultiHead(9, 4, n_heads=1, diversity="structured_dropout").mask == 1).all()


def test_a_head_learns_only_from_what_it_sees():
    heads = MultiHead(8, 3, diversity="structured_dropout")
    heads(torch.ones(2, 8)).sum().backward()
    assert (heads.weight.grad[heads.mask[:, None, :].expand_as(heads.weight) == 0] == 0).all()


def test_training_lowers_the_loss_and_leaves_torch_alone():
    X, y = load_digits(n_class=4, return_X_y=True)
    features, codes = torch.as_tensor(X / 16, dtype=torch.float32), torch.as_tensor(y)
    state, losses = torch.random.get_rng_state(), []
    heads = MultiHead(64, 4)
    train_heads(
        heads, features, codes, epochs=8, learning_rate=0.01, progress=lambda *told: losses.append(told)
    )
    assert [told[0] for told in losses] == list(range(1, 9))
    assert losses[-1][2] < 0.5 * losses[0][2]
    again = train_heads(MultiHead(64, 4), features, codes, epochs=8, learning_rate=0.01)
    torch.testing.assert_close(again.weight, heads.weight, rtol=0, atol=0)
    assert (torch.random.get_rng_state() == state).all()


def test_the_estimator_gives_heads_to_multi_score_and_their_mean_to_others():
    X, y = load_digits(return_X_y=True)
    model = MultiHeadClassifier(epochs=60, n_heads=4, random_state=0).fit(X[:500], y[:500])
    p = model.predict_proba_heads(X[500:])
    assert p.shape == (1297, 10, 4)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_allclose(model.predict_proba(X[500:]), p.mean(axis=2))
    np.testing.assert_allclose(model.predict_proba_heads(X[500:501]), p[:1], rtol=1e-9)
    assert (model.predict(X[500:]) == y[500:]).mean() > 0.85
    method = MultiScoreConformal(model, scores="lac", random_state=0).calibrate(X[500:1100], y[500:1100])
    sets = method.predict_set(X[1100:])
    assert method.n_heads_ == 4
    assert sets[np.arange(len(sets)), y[1100:]].mean() > 0.86


def test_a_backbone_is_left_as_it_is():
    X, y = load_digits(n_class=3, return_X_y=True)
    X = X.astype(np.float32) / 16
    backbone = torch.nn.Sequential(torch.nn.Linear(64, 20), torch.nn.Dropout(0.5), torch.nn.ReLU()).train()
    before = {name: value.clone() for name, value in backbone.state_dict().items()}
    model = MultiHeadClassifier(backbone, epochs=20, random_state=0).fit(X[:300], y[:300])
    assert model.heads_.weight.shape == (3, 3, 20)
    assert (model.predict(X[300:]) == y[300:]).mean() > 0.8
    assert backbone.training
    for name, value in backbone.state_dict().items():
        torch.testing.assert_close(value, before[name])
    plain = MultiHeadClassifier(lambda X: X[:, 10:], epochs=2, random_state=0).fit(X, y)
    assert plain.heads_.weight.shape == (3, 3, 54)


def test_refused_arguments():
    X, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3
    for options, message in (
        ({"n_heads": 0}, "n_heads"),
        ({"diversity": "luck"}, "diversity"),
        ({"epochs": 0}, "epochs"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"learning_rate": 1e37}, "diverged"),
    ):
        with pytest.raises(ValueError, match=message):
            MultiHeadClassifier(**{"random_state": 0, **options}).fit(X, y)
    X[4] = np.nan
    with pytest.raises(ValueError, match="NaN in 1 of 30 rows, first at row 4"):
        MultiHeadClassifier().fit(X, y)
    with pytest.raises(ValueError, match="hold 1 class"):
        MultiHeadClassifier().fit(np.nan_to_num(X), np.zeros(30, int))
