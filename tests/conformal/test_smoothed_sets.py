"""Scores under noise, and label sets of any classifier from them."""

import numpy as np
import pytest
from scipy.stats import kstest, laplace, norm, uniform
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from assay.conformal.bincp import BinCP
from assay.conformal.cas import CAS
from assay.conformal.rscp import RSCP, RSCPPlus
from assay.conformal.smoothed_scores import CALIBRATION, TEST, Noise, SmoothedScores
from assay.conformal.smoothed_sets import SmoothedSetClassifier
from assay.core.errors import DataError, MethodError

RULES = [BinCP(), BinCP(threshold=0.4), RSCP(), RSCPPlus(), CAS()]


def two_columns(X):
    return np.stack([X[:, 0], -X[:, 0]], axis=1)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    return X[order] / 16, y[order]


@pytest.mark.parametrize(
    ("noise", "law"),
    [
        ("gaussian", norm(scale=0.3)),
        ("laplace", laplace(scale=0.3)),
        ("uniform", uniform(-0.3 * 3**0.5, 0.6 * 3**0.5)),
    ],
)
def test_noise_has_its_law_and_scale(noise, law):
    draws = Noise(np.zeros((1, 4)), noise, 0.3, 0, TEST).add(5000)
    assert kstest(draws.ravel(), law.cdf).pvalue > 0.001


def test_sparse_noise_flips_bits_at_its_rates():
    rows = np.tile([0.0, 1.0], (1, 500))
    draws = Noise(rows, "sparse", (0.1, 0.6), 0, TEST).add(100)[0]
    assert draws[:, ::2].mean() == pytest.approx(0.1, abs=0.01)
    assert draws[:, 1::2].mean() == pytest.approx(0.4, abs=0.01)


def test_test_rows_never_get_the_noise_of_calibration_rows():
    X = np.zeros((3, 2)) + np.arange(3)[:, None]
    scores = SmoothedScores(two_columns, score=None, n_samples=50, random_state=0)
    one, other = scores.samples(X, CALIBRATION), scores.samples(X, TEST)
    assert not np.isin(one, other).any()
    noise = one[:, 0] - X[:, :1]
    assert abs(np.corrcoef(noise)[np.triu_indices(3, 1)]).max() < 0.5
    np.testing.assert_array_equal(scores.samples(X, TEST), other)


@pytest.mark.parametrize("batch_size", [1, 7, 64, None])
def test_batches_and_counts_say_what_all_samples_say(batch_size):
    X = np.random.default_rng(0).normal(size=(9, 2))
    whole = SmoothedScores(two_columns, score=None, n_samples=20, random_state=3)
    parts = SmoothedScores(two_columns, score=None, n_samples=20, batch_size=batch_size, random_state=3)
    samples = whole.samples(X)
    assert samples.shape == (9, 2, 20)
    np.testing.assert_array_equal(parts.samples(X), samples)
    np.testing.assert_array_equal(parts.samples(X[4:6]), samples[4:6])
    np.testing.assert_array_equal(parts.counts(X, 0.1), (samples >= np.float32(0.1)).sum(axis=2))
    assert whole.calls == 9 * 20


def test_scores_are_those_of_the_noisy_rows():
    X = np.random.default_rng(0).normal(size=(30, 2))
    model = GaussianNB().fit(X, X[:, 0] > 0)
    samples = SmoothedScores(model, n_samples=3, random_state=1).samples(X)
    noisy = Noise(X, "gaussian", 0.25, 1, TEST).add(3)
    expected = np.stack([model.predict_proba(noisy[:, j]) for j in range(3)], axis=2)
    np.testing.assert_allclose(samples, expected, atol=1e-6)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: type(rule).__name__)
def test_a_classifier_s_sets_are_the_rule_s_on_its_samples(digits, rule):
    X, y = digits
    model = LogisticRegression(max_iter=500).fit(X[:500], y[:500])
    method = SmoothedSetClassifier(rule, model, radius=0.1, n_samples=60, random_state=2)
    method.calibrate(X[500:700], y[500:700])
    scores = SmoothedScores(model, n_samples=60, random_state=2)
    own = rule.__class__(**{**rule.get_params(deep=False), "radius": 0.1})
    own.calibrate(scores.samples(X[500:700], CALIBRATION), y[500:700])
    T = X[700:900]
    expected = own.predict_set(scores.samples(T))
    np.testing.assert_array_equal(method.predict_set(T), expected)
    by_radius = method.certified_sets(T, [0.0, 0.1, 0.2])
    np.testing.assert_array_equal(by_radius[1], expected)
    assert (by_radius[:-1] <= by_radius[1:]).all()
    assert rule.radius == 0


def test_a_grid_of_radii_asks_the_model_once(digits):
    X, y = digits
    method = SmoothedSetClassifier(BinCP(), n_samples=50, noisy_copies=1, random_state=0)
    method.fit(X[:300], y[:300], X[300:500], y[300:500])
    before = method.scores_.calls
    method.certified_sets(X[500:600], np.linspace(0, 1, 20))
    assert method.scores_.calls - before == 100 * 50


@pytest.mark.parametrize("copies", [0, 5])
def test_fit_trains_on_noisy_copies_and_covers(digits, copies):
    X, y = digits
    method = SmoothedSetClassifier(BinCP(), radius=0.25, noisy_copies=copies, random_state=0)
    method.fit(X[:600], y[:600], X[600:1000], y[600:1000])
    sets = method.predict_set(X[1000:])
    assert sets[np.arange(len(sets)), y[1000:]].mean() >= 0.9
    assert sets.sum(axis=1).mean() < 3
    if copies == 0:
        plain = LogisticRegression(max_iter=1000).fit(X[:600], y[:600])
        np.testing.assert_allclose(method.predict_proba(X), plain.predict_proba(X))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"noise": "cauchy"}, "cauchy"),
        ({"noise_scale": 0}, "above 0"),
        ({"n_samples": 0}, "n_samples"),
        ({"noisy_copies": -1}, "noisy_copies"),
        ({"radius": -1}, "radius"),
        ({"noise": "sparse", "noise_scale": 0.25}, "p_plus"),
    ],
)
def test_impossible_parameters(arguments, words):
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(MethodError, match=words):
        SmoothedSetClassifier(BinCP(), **arguments).fit(X, X[:, 0] > 0)


def test_no_rule_and_sparse_noise_on_numbers():
    X = np.random.default_rng(0).normal(size=(40, 2))
    with pytest.raises(MethodError, match=r"BinCP\(\)"):
        SmoothedSetClassifier(None).fit(X, X[:, 0] > 0)
    with pytest.raises(DataError, match="neither 0 nor 1 in 20 of 20"):
        SmoothedSetClassifier(BinCP(), noise="sparse", noise_scale=(0.1, 0.2), radius=(0, 0)).fit(
            X, X[:, 0] > 0
        )
    with pytest.raises(MethodError, match="trained model"):
        SmoothedSetClassifier(BinCP()).calibrate(X, X[:, 0] > 0)


def test_sparse_noise_on_bits():
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=500)
    X = (rng.random((500, 60)) < np.where(y, 0.8, 0.2)[:, None]).astype(float)
    method = SmoothedSetClassifier(
        BinCP(), noise="sparse", noise_scale=(0.3, 0.3), radius=(1, 0), random_state=0
    )
    method.fit(X[:200], y[:200], X[200:350], y[200:350])
    moved = X[350:].copy()
    # label 0 has few ones: one more speaks against it
    moved[np.arange(150), moved.argmin(axis=1)] = 1
    sets = method.predict_set(moved)
    assert sets[np.arange(150), y[350:]].mean() >= 0.9
    assert sets.sum(axis=1).mean() < 1.5
