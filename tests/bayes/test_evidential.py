"""The evidential network: mean of the Dirichlet, the loss it is trained with, and what it refuses."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

torch = pytest.importorskip("torch")

from assay.bayes.evidential import EvidentialNetwork  # noqa: E402
from assay.bayes.map_network import MapNetwork  # noqa: E402
from assay.core.errors import MethodError  # noqa: E402
from assay.networks.evidential import evidential_loss  # noqa: E402
from assay.networks.training import Training  # noqa: E402

X, Y = load_digits(return_X_y=True)
TRAIN, TEST = slice(0, 600), slice(600, 900)
SHORT = Training(max_epochs=20, batch_size=32, learning_rate=0.01, patience=20, validation_fraction=0.2)


@pytest.fixture(scope="module")
def fitted():
    return EvidentialNetwork(training=SHORT, random_state=0).fit(X[TRAIN], Y[TRAIN])


def test_probabilities_are_the_mean_of_the_dirichlet(fitted):
    alpha = fitted.alpha(X[TEST])
    assert (alpha >= 1).all()
    assert fitted.predict_proba(X[TEST]) == pytest.approx(alpha / alpha.sum(axis=1, keepdims=True))
    assert fitted.vacuity(X[TEST]) == pytest.approx(10 / alpha.sum(axis=1))
    with torch.no_grad():
        outputs = fitted.network_.module(fitted.network_.inputs(X[TEST]))
        expected = torch.nn.functional.softplus(outputs.double()) + 1
    assert alpha == pytest.approx(expected.numpy(), rel=1e-6)


def test_it_learns(fitted):
    assert (fitted.predict(X[TEST]) == Y[TEST]).mean() > 0.85
    assert -fitted.score(X[TEST], Y[TEST]) < np.log(10) / 2


def test_kept_loss_is_that_of_the_full_weight(fitted):
    net = fitted.network_
    rows = net.validation_rows
    alpha = torch.as_tensor(fitted.alpha(X[TRAIN][rows]))
    labels = torch.as_tensor(Y[TRAIN][rows])
    assert net.loss == pytest.approx(float(evidential_loss(alpha, labels).mean()), rel=1e-4)


def test_the_divergence_shrinks_evidence_for_wrong_classes(fitted):
    without = EvidentialNetwork(kl_weight=0, training=SHORT, random_state=0).fit(X[TRAIN], Y[TRAIN])

    def wrong(method):
        alpha = method.alpha(X[TEST])
        alpha[np.arange(300), Y[TEST]] = 1
        return (alpha - 1).sum(axis=1).mean()

    assert wrong(fitted) < wrong(without)


def test_starts_from_the_network_of_the_family():
    one = Training(max_epochs=1, batch_size=32, learning_rate=1e-12, patience=5, validation_fraction=0.2)
    plain, evidential = (
        method(training=one, random_state=4).fit(X[TRAIN], Y[TRAIN]).network_
        for method in (MapNetwork, EvidentialNetwork)
    )
    assert (plain.validation_rows == evidential.validation_rows).all()
    assert plain.outputs(X[:5]) == pytest.approx(evidential.outputs(X[:5]), abs=1e-5)


def test_numbers_and_impossible_weights_are_refused():
    with pytest.raises(MethodError, match="for classes only"):
        EvidentialNetwork(likelihood="regression").fit(X[TRAIN], Y[TRAIN].astype(float))
    for options in ({"kl_weight": -1}, {"kl_weight": float("nan")}, {"anneal_epochs": 0}):
        with pytest.raises(MethodError, match="kl_weight"):
            EvidentialNetwork(**options).fit(X[TRAIN], Y[TRAIN])
