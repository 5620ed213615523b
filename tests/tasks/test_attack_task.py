"""The task of sets under attack: what the attacks find, what is measured, and bad options."""

from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.linear_model import LogisticRegression

import assay
from assay.conformal.bincp import BinCP
from assay.conformal.smoothed_sets import SmoothedSetClassifier
from assay.core.errors import TaskError
from assay.data.builtin import load
from assay.tasks import attacks, get_task
from assay.tasks.attack import MAX_TEST_ROWS, AttackTask

ALPHA = Fraction(1, 10)


class AllLabels(BaseEstimator):
    """Every label, and no chances that an attack could search."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        return self

    def predict_set(self, X, alpha=0.1):
        return np.ones((len(X), len(self.classes_)), dtype=bool)


class MostLikely(AllLabels):
    """The one most likely label of a model."""

    def fit(self, X, y):
        self.estimator_ = LogisticRegression(max_iter=300).fit(X, y)
        self.classes_ = self.estimator_.classes_
        return self

    def predict_proba(self, X):
        return self.estimator_.predict_proba(X)

    def predict_set(self, X, alpha=0.1):
        proba = self.predict_proba(X)
        return proba == proba.max(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def split():
    return get_task("attack").split(load("digits"), 0)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_search_finds_what_gradients_find(seed):
    """The default network on standardised digits: within two points of exact gradients at every radius."""
    from assay.conformal.checks.bincp import _gradient

    split = get_task("attack").split(load("digits"), seed)
    model = AttackTask().default_model().set_params(random_state=seed).fit(split.X_train, split.y_train)
    X, y = split.X_test[:300], split.y_test[:300]
    codes = np.searchsorted(model.classes_, y)
    rng = np.random.default_rng(0)
    for radius in (0.5, 2.0):
        towards = attacks.nearest_of_others(X, y, split.X_train, split.y_train, rng)

        def chance(rows):
            return model.predict_proba(rows)[np.arange(len(rows)), np.resize(codes, len(rows))]

        found = attacks.search(chance, X, radius, 0.0, rng, towards)
        moves = attacks.on_sphere(rng.standard_normal(X.shape), radius / 2)
        for _ in range(20):
            moves += radius / 8 * attacks.on_sphere(_gradient(model, X + moves, codes), 1.0)
            moves *= np.minimum(1, radius / np.linalg.norm(moves, axis=1, keepdims=True))
        assert chance(found).mean() <= chance(X + moves).mean() + 0.02


def test_only_certified_methods_are_recommended():
    found = assay.compare(
        "wine", task="attack", seeds=1, methods=["bincp", "rscp", "smooth-cp", "unsmoothed"], in_process=True
    )
    best = found.best()
    assert best.method == "bincp"
    for method in ("rscp", "smooth-cp", "unsmoothed"):
        verdict = best.verdict(method)
        assert not verdict.qualifies
        assert verdict.low or "not certified at radius 0.25" in verdict.why
    assert not all(best.verdict(method).low for method in ("rscp", "smooth-cp", "unsmoothed"))
    assert "certified at radius 0.25" in best.rule
    assert "sets that are certified at radius 0.25" in found.verdict()
    header, *rows = found.rows()
    assert header[1:3] == ("coverage under attack [95 %]", "clean coverage")
    assert len(rows[0]) == len(header)
    assert any(note.startswith("Not recommended: rscp, smooth-cp, unsmoothed") for note in found.notes())
    # nobody moves rows: then there is nothing to certify
    assert AttackTask(radius=0.0).lacks({"certified_radius": 0.0}) is None


def test_every_label_survives_and_says_nothing(split):
    found = AttackTask().evaluate(AllLabels(), split, ALPHA)
    for metric in ("coverage", "random_coverage", "attacked_coverage", "share_all"):
        assert found.metrics[metric] == 1
    assert found.metrics["mean_size"] == 10
    assert found.detail["attack"].startswith("random moves only")
    assert np.isnan(found.metrics["model_calls"])
    names = {metric.name for metric in AttackTask.metrics}
    assert set(found.metrics) == names - {"peak_memory"}


def test_the_search_does_more_harm_than_chance_and_radius_zero_does_none(split):
    far = AttackTask(radius=2.0).evaluate(MostLikely(), split, ALPHA)
    assert far.metrics["attacked_coverage"] < far.metrics["random_coverage"] - 0.1
    assert far.metrics["random_coverage"] <= far.metrics["coverage"] + 0.02
    assert far.metrics["model_calls"] == 1
    assert far.detail["attack"] == "search"
    near = AttackTask(radius=0.0).evaluate(MostLikely(), split, ALPHA)
    assert near.metrics["attacked_coverage"] == near.metrics["coverage"] == far.metrics["coverage"]


def test_certified_sets_keep_their_labels_and_are_shown_at_other_radii(split):
    radius = 0.5
    method = SmoothedSetClassifier(BinCP(), radius=radius, noise_scale=0.5, n_samples=60, random_state=0)
    found = AttackTask(radius=radius, noise_scale=0.5).evaluate(method, split, ALPHA)
    assert found.metrics["attacked_coverage"] >= 0.9 - 2 * (0.09 / MAX_TEST_ROWS) ** 0.5
    assert found.metrics["model_calls"] == 60
    radii, sizes = zip(*found.detail["size_by_radius"], strict=True)
    assert radii[0] == 0
    assert radii[8] == radius
    assert list(sizes) == sorted(sizes)
    assert sizes[8] == pytest.approx(found.metrics["mean_size"])


def test_moves_have_the_radius():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 5))
    moved = [
        attacks.random_moves(X, 0.3, rng),
        attacks.search(lambda rows: rows[:, 0], X, 0.3, 0.1, rng, towards=X[::-1]),
    ]
    for rows in moved:
        np.testing.assert_allclose(np.linalg.norm(rows - X, axis=1), 0.3)
    # the search finds the way down of a linear chance
    assert (moved[1] - X)[:, 0].mean() < -0.25


def test_gradients_find_the_worst_move_of_a_linear_network():
    torch = pytest.importorskip("torch")
    module = torch.nn.Linear(4, 2).double()
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[1.0, -0.5, 0.2, 0.0], [0.0, 0.5, -0.4, 0.3]]))
    module.train()
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10, 4))
    moves = attacks.projected_gradient(module, X, np.zeros(10, dtype=int), 0.5, 0.0, rng) - X
    assert module.training
    assert module.weight.grad is None
    weights = module.weight.detach().numpy()
    worst = weights[1] - weights[0]
    assert np.linalg.norm(moves, axis=1).max() <= 0.5 + 1e-9
    gain = moves @ worst / (0.5 * np.linalg.norm(worst))
    assert gain.min() > 0.95


def test_the_nearest_row_of_another_label():
    rows = np.array([[0.0], [1.0], [5.0]])
    found = attacks.nearest_of_others(
        np.array([[0.1]]), np.array([0]), rows, np.array([0, 1, 1]), np.random.default_rng(0)
    )
    assert found.tolist() == [[1.0]]


@pytest.mark.parametrize(
    "options",
    [{"radius": -1}, {"radius": float("nan")}, {"radius": True}, {"radius": "1"}, {"noise_scale": 0}],
)
def test_impossible_options(options):
    with pytest.raises(TaskError, match=next(iter(options))):
        AttackTask(**options)
