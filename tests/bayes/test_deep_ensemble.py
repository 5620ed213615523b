"""Deep ensembles: what the mean is of, whose seeds, which classes, noise and disagreement, bad input."""

import numpy as np
import pytest
from scipy.stats import entropy
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_diabetes, load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import Ridge
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from assay.bayes.deep_ensemble import DeepEnsemble, FreshCopies  # noqa: E402
from assay.bayes.map_network import MapNetwork  # noqa: E402
from assay.core.distributions import CategoricalDistribution, MixtureDistribution  # noqa: E402
from assay.core.errors import DataError, MethodError  # noqa: E402
from assay.networks.training import Training  # noqa: E402

SHORT = Training(max_epochs=8, batch_size=32, learning_rate=0.01, patience=8, validation_fraction=0.2)
X, Y = load_digits(return_X_y=True)
X, Y = X[:500] / 16, Y[:500]
TRAIN, TEST = slice(0, 300), slice(300, 500)
NUMBERS, TARGETS = load_diabetes(return_X_y=True)


@pytest.fixture(scope="module")
def networks():
    return DeepEnsemble(n_members=3, training=SHORT, random_state=0).fit(X[TRAIN], Y[TRAIN])


@pytest.fixture(scope="module")
def regression():
    method = DeepEnsemble(n_members=3, training=SHORT, likelihood="regression", random_state=0)
    return method.fit(NUMBERS[:300], TARGETS[:300])


def small(n_features, n_outputs):
    return nn.Sequential(nn.Linear(n_features, 8), nn.Tanh(), nn.Linear(8, n_outputs))


def test_mean_of_probabilities_not_of_logits(networks):
    members = np.array(list(networks.iter_member_proba(X[TEST])))
    assert members.shape == (3, 200, 10)
    assert networks.predict_proba(X[TEST]) == pytest.approx(members.mean(axis=0))
    assert isinstance(networks.predict_dist(X[TEST]), CategoricalDistribution)
    assert (networks.predict(X[TEST]) == members.mean(axis=0).argmax(axis=1)).all()


def test_first_member_is_the_network_of_that_seed(networks):
    alone = MapNetwork(training=SHORT, random_state=0).fit(X[TRAIN], Y[TRAIN])
    first, second, _ = networks.iter_member_proba(X[TEST])
    assert first == pytest.approx(alone.predict_proba(X[TEST]), abs=1e-7)
    assert np.abs(first - second).max() > 1e-3


def test_better_than_its_members_on_average(networks):
    at = np.arange(200)
    single = [-np.log(proba[at, Y[TEST]]).mean() for proba in networks.iter_member_proba(X[TEST])]
    assert -networks.score(X[TEST], Y[TEST]) < np.mean(single)


def test_seeds_repeat_and_more_members_keep_the_first(networks):
    again = clone(networks).fit(X[TRAIN], Y[TRAIN])
    assert (again.predict_proba(X[TEST]) == networks.predict_proba(X[TEST])).all()
    fewer = clone(networks).set_params(n_members=2).fit(X[TRAIN], Y[TRAIN])
    for few, more in zip(fewer.iter_member_proba(X[TEST]), networks.iter_member_proba(X[TEST]), strict=False):
        assert (few == more).all()


def test_mixture_of_gaussians(regression):
    rows = NUMBERS[300:]
    dist = regression.predict_dist(rows)
    assert isinstance(dist, MixtureDistribution)
    members = list(regression.iter_member_dist(rows))
    means, variances = np.array([m.mean for m in members]), np.array([m.variance for m in members])
    assert dist.mean == pytest.approx(means.mean(axis=0))
    assert dist.variance == pytest.approx((variances + means**2).mean(axis=0) - means.mean(axis=0) ** 2)


def test_noise_and_disagreement_of_classes(networks):
    total, aleatoric, epistemic = networks.uncertainty(X[TEST])
    members = np.array(list(networks.iter_member_proba(X[TEST])))
    assert total == pytest.approx(entropy(members.mean(axis=0), axis=1))
    assert aleatoric == pytest.approx(entropy(members, axis=2).mean(axis=0))
    assert epistemic == pytest.approx(total - aleatoric)
    assert (epistemic >= 0).all()


def test_noise_and_disagreement_of_numbers(regression):
    total, aleatoric, epistemic = regression.uncertainty(NUMBERS[300:])
    assert total == pytest.approx(regression.predict_dist(NUMBERS[300:]).variance)
    assert (epistemic > 0).all()
    assert aleatoric == pytest.approx(total - epistemic)


def test_equal_members_do_not_disagree():
    # a tree without any choice to make is the same for every seed
    method = DeepEnsemble(DecisionTreeClassifier(max_depth=2), n_members=4, random_state=0)
    rows = X[TRAIN][:, [20, 42]]
    parts = method.fit(rows, Y[TRAIN]).uncertainty(rows)
    assert parts.epistemic == pytest.approx(0, abs=1e-12)
    assert (parts.epistemic >= 0).all()


def test_forecast_is_that_of_the_members(networks):
    found = networks.forecast(X[TEST], Y[TEST])
    hot = np.eye(10)[Y[TEST]]
    measured = ((networks.predict_proba(X[TEST]) - hot) ** 2).sum(axis=1).mean()
    assert found.predict(3)[0] == pytest.approx(measured)
    assert found.n_members_ == 3
    assert networks.forecast(X[TEST], Y[TEST], loss="error").predict(3)[0] < 1
    assert networks.forecast(X[TEST], Y[TEST], loss="nll", n_bootstrap=7).n_bootstrap == 7


def test_forecast_of_numbers(regression):
    found = regression.forecast(NUMBERS[300:], TARGETS[300:])
    measured = ((regression.predict(NUMBERS[300:]) - TARGETS[300:]) ** 2).mean()
    assert found.predict(3)[0] == pytest.approx(measured)


def test_any_classifier_with_seeds_inside_of_a_pipeline():
    model = make_pipeline(StandardScaler(), MLPClassifier((8,), max_iter=5, random_state=3))
    with pytest.warns(UserWarning, match="Maximum iterations"):
        method = DeepEnsemble(model, n_members=3, random_state=0).fit(X[TRAIN], Y[TRAIN])
    seeds = [member.get_params()["mlpclassifier__random_state"] for member in method.members_]
    assert len(set(seeds)) == 3
    assert model.get_params()["mlpclassifier__random_state"] == 3
    assert not hasattr(model, "classes_")


def test_regressor_gets_the_variance_of_rows_kept_apart():
    method = DeepEnsemble(
        DecisionTreeRegressor(max_depth=3), n_members=3, likelihood="regression", random_state=0
    )
    method.fit(NUMBERS[:300], TARGETS[:300])
    spread = [member.variance_ for member in method.members_]
    assert len(set(spread)) == 3
    # rows of the training part alone would give less than this
    assert np.mean(spread) > 0.7 * np.mean((method.predict(NUMBERS[300:]) - TARGETS[300:]) ** 2)
    assert np.isfinite(method.score(NUMBERS[300:], TARGETS[300:]))


def test_texts_as_labels():
    names = np.array([f"digit {label}" for label in Y])
    method = DeepEnsemble(RandomForestClassifier(5), n_members=3, random_state=0).fit(X[TRAIN], names[TRAIN])
    assert set(method.predict(X[TEST])) <= set(names)
    assert method.forecast(X[TEST], names[TEST]).classes_.tolist() == method.classes_.tolist()


class Backwards(ClassifierMixin, BaseEstimator):
    """Classes in another order for odd seeds; class 2 is never seen by seeds that 3 divides."""

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        seen = np.unique(y)
        seen = seen[seen != 2] if self.random_state % 3 == 0 else seen
        self.classes_ = seen[::-1] if self.random_state % 2 else seen
        return self

    def predict_proba(self, X):
        weights = self.classes_ + 1.0
        return np.tile(weights / weights.sum(), (len(X), 1))


def test_classes_in_another_order_or_missing_are_aligned():
    y = np.arange(30) % 4
    method = DeepEnsemble(Backwards(), n_members=12, random_state=1).fit(np.zeros((30, 1)), y)
    orders = {tuple(member.classes_) for member in method.members_}
    assert len(orders) >= 3
    for member, proba in zip(method.members_, method.iter_member_proba(np.zeros((5, 1))), strict=True):
        expected = np.where(np.isin(range(4), member.classes_), np.arange(4) + 1.0, 0)
        assert proba == pytest.approx(np.tile(expected / expected.sum(), (5, 1)))


def test_module_factory_and_copies_of_a_module_start_anew():
    for options in (
        {"module": small},
        {"estimator": small},
        {"module": small(64, 10)},
        {"estimator": small(64, 10)},
    ):
        method = DeepEnsemble(n_members=2, training=SHORT, random_state=0, **options).fit(X[TRAIN], Y[TRAIN])
        first, second = (member.network_.module[0].weight for member in method.members_)
        assert first.shape == (8, 64)
        assert float((first - second).detach().abs().max()) > 0.01


def test_weights_that_no_layer_draws_are_named():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.scale = nn.Linear(64, 10), nn.Parameter(torch.ones(1))

        def forward(self, x):
            return self.inner(x) * self.scale

    with pytest.raises(MethodError, match="scale have no reset_parameters"):
        FreshCopies(Scaled())(64, 10)


def test_the_users_module_and_torchs_seed_are_left_alone():
    module = small(64, 10)
    before = [p.detach().clone() for p in module.parameters()]
    state = torch.random.get_rng_state()
    DeepEnsemble(module, n_members=2, training=SHORT, random_state=0).fit(X[TRAIN], Y[TRAIN])
    assert all(bool((a == b).all()) for a, b in zip(before, module.parameters(), strict=True))
    assert bool((torch.random.get_rng_state() == state).all())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"n_members": 1}, "at least 2 members"),
        ({"n_members": 2.5}, "at least 2 members"),
        ({"estimator": Ridge()}, "does not do classification"),
        ({"estimator": MLPClassifier(), "likelihood": "regression"}, "does not do regression"),
        ({"estimator": MLPClassifier(), "module": small}, "not both"),
        ({"estimator": SVC()}, "no predict_proba"),
        ({"estimator": "mlp"}, "got str"),
    ],
)
def test_impossible_settings(options, said):
    with pytest.raises(MethodError, match=said):
        DeepEnsemble(**options).fit(X[TRAIN], Y[TRAIN])


def test_copies_without_a_seed_and_one_class_are_refused():
    from sklearn.naive_bayes import GaussianNB

    with pytest.raises(MethodError, match="takes no random_state"):
        DeepEnsemble(GaussianNB()).fit(X[TRAIN], Y[TRAIN])
    with pytest.raises(DataError, match="one class only"):
        DeepEnsemble().fit(X[TRAIN], np.zeros(300, int))


def test_wrong_questions(networks, regression):
    with pytest.raises(MethodError, match="regression"):
        networks.iter_member_dist(X[TEST])
    with pytest.raises(MethodError, match="classification"):
        regression.iter_member_proba(NUMBERS)
    with pytest.raises(DataError, match="which is none of the 10 classes"):
        networks.forecast(X[TEST], Y[TEST] + 5)
