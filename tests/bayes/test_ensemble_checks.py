"""What the claims are measured with: members trained at once are those trained one by one."""

import numpy as np
import pytest
from sklearn.datasets import load_iris

torch = pytest.importorskip("torch")

from assay.bayes.checks import evidential  # noqa: E402
from assay.bayes.checks.deep_ensemble import forecasts, questions  # noqa: E402
from assay.bayes.checks.many_members import member_probabilities  # noqa: E402
from assay.core.errors import MissingDependency  # noqa: E402
from assay.core.seeds import derive_seed  # noqa: E402


def test_members_at_once_learn_and_differ():
    X, y = load_iris(return_X_y=True)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    found = member_probabilities(X[::2], y[::2], X[1::2], n_members=3, epochs=(1, 200), seed=0)
    assert found[200].shape == (3, 75, 3)
    assert found[200].sum(axis=2) == pytest.approx(1)
    early, late = ((proba.argmax(axis=2) == y[1::2]).mean(axis=1) for proba in (found[1], found[200]))
    assert (late > 0.9).all()
    assert late.mean() > early.mean()
    assert np.abs(found[200][0] - found[200][1]).max() > 0.01
    again = member_probabilities(X[::2], y[::2], X[1::2], n_members=3, epochs=(200,), seed=0)
    assert (again[200] == found[200]).all()


def test_training_at_once_is_training_one_by_one():
    X, y = load_iris(return_X_y=True)
    seed, m, n, d, h, k, member = 5, 3, 150, 4, 24, 3, 1
    at_once = member_probabilities(X, y, X, n_members=m, epochs=(4,), seed=seed)[4][member]
    generator = torch.Generator().manual_seed(derive_seed("many members", seed))
    rows, labels = torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(y)
    net = torch.nn.Sequential(torch.nn.Linear(d, h), torch.nn.ReLU(), torch.nn.Linear(h, k))
    with torch.no_grad():
        for layer in (net[0], net[2]):
            fan_out, fan_in = layer.weight.shape
            bound = (6 / (fan_in + fan_out)) ** 0.5
            drawn = torch.rand((m, fan_in, fan_out), generator=generator)[member]
            layer.weight.copy_((drawn * 2 * bound - bound).T)
            layer.bias.zero_()
    steps = torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-4)
    for _ in range(4):
        order = torch.rand((m, n), generator=generator).argsort(dim=1)[member]
        for batch in order.split(32):
            steps.zero_grad()
            torch.nn.functional.cross_entropy(net(rows[batch]), labels[batch]).backward()
            steps.step()
    with torch.no_grad():
        alone = torch.softmax(net(rows).double(), dim=1).numpy()
    assert at_once == pytest.approx(alone, abs=1e-5)


def test_forecast_beats_the_naive_one_on_made_up_members():
    rng = np.random.default_rng(0)
    base = rng.dirichlet([1, 1, 1], size=800)
    y = np.array([rng.choice(3, p=row) for row in base])
    proba = np.exp(np.log(base + 0.05) + rng.normal(size=(48, 800, 3)))
    found = forecasts(proba / proba.sum(axis=2, keepdims=True), y, 0)
    assert found["bias"]["forecast-2"] < found["bias"]["naive-2"]
    assert found["unseen_error"]["forecast-5"] < found["unseen_error"]["naive-5"]
    assert found["gain"]["deep-ensembles"] > 0


def test_missing_data_skips(tmp_path, monkeypatch):
    with pytest.raises(MissingDependency, match="TREC"):
        questions(0, tmp_path)
    monkeypatch.setattr(evidential.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependency, match="recbole"):
        evidential.ratings(0)
