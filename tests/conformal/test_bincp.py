"""BinCP: its rule by hand, its limits, and that robust sets hold the label of moved rows."""

import numpy as np
import pytest
from scipy.stats import beta, norm

from assay.conformal.binary_certificate import BinaryCertificate
from assay.conformal.bincp import BinCP
from assay.conformal.checks.bincp import cifar, digits
from assay.core.errors import DataError, InfiniteSetWarning, MethodError, MissingDependency

N, K, M = 60, 4, 150


def samples(seed, n=N, k=K, m=M):
    """(n, k, m) scores in which label 0 fits best, and labels."""
    rng = np.random.default_rng(seed)
    level = rng.normal(0.25, 0.15, size=(n, k, 1))
    level[:, 0] += 0.5
    return np.clip(level + rng.normal(0, 0.1, size=(n, k, m)), 0, 1), np.zeros(n, dtype=int)


def by_hand(calibration, test, alpha, radius, scale, p, eta=0.001, extra=None):
    """The rule, step by step, one row and label at a time."""
    n, m = calibration.shape
    k = test.shape[1]
    delta = eta / (n + (k if extra is None else extra))
    x0 = round(p * m)
    ranked = np.sort([np.sort(row)[::-1][x0 - 1] for row in calibration])
    tau = ranked[int(np.floor((n + 1) * (alpha - eta))) - 1]
    p_low = beta.ppf(delta, x0, m - x0 + 1)
    needed = norm.cdf(norm.ppf(p_low) - radius / scale)
    out = np.empty(test.shape[:2], dtype=bool)
    for i, j in np.ndindex(out.shape):
        hits = int((test[i, j] >= tau).sum())
        upper = 1.0 if hits == m else beta.ppf(1 - delta, hits + 1, m - hits)
        out[i, j] = upper >= needed
    return out


@pytest.mark.parametrize("radius", [0.0, 0.1, 0.25])
@pytest.mark.parametrize("p", [0.6, 0.8, 0.9])
@pytest.mark.parametrize("union", ["n+K", "n+1"])
def test_the_rule_by_hand(radius, p, union):
    (S, y), (T, _) = samples(0), samples(1)
    found = BinCP(radius=radius, p=p, union=union).calibrate(S, y).predict_set(T)
    expected = by_hand(S[:, 0], T, 0.1, radius, 0.25, p, extra=1 if union == "n+1" else None)
    np.testing.assert_array_equal(found, expected)
    assert 0 < expected.mean() < 1


def test_without_correction_radius_zero_is_split_conformal_on_the_quantiles():
    (S, y), (T, _) = samples(2), samples(3)
    x0 = round(0.8 * M)
    lam, own = (np.sort(part, axis=-1)[..., M - x0] for part in (S[:, 0], T))
    tau = np.sort(lam)[int(0.1 * (N + 1)) - 1]
    found = BinCP(correction=None).calibrate(S, y).predict_set(T)
    np.testing.assert_array_equal(found, own >= tau)


def test_a_fixed_threshold_by_hand_and_from_counts():
    (S, y), (T, _) = samples(4), samples(5)
    method = BinCP(radius=0.1, threshold=0.5).calibrate(S, y)
    found = method.predict_set(T)
    delta = 0.001 / (N + K)
    hits = np.sort((S[:, 0] >= 0.5).sum(axis=1))[int(np.floor((N + 1) * 0.099)) - 1]
    p_low = beta.ppf(delta, hits, M - hits + 1) if hits else 0.0
    needed = norm.cdf(norm.ppf(p_low) - 0.1 / 0.25)
    test_hits = (T >= 0.5).sum(axis=2)
    upper = np.where(test_hits == M, 1, beta.ppf(1 - delta, test_hits + 1, np.maximum(M - test_hits, 1e-9)))
    np.testing.assert_array_equal(found, upper >= needed)
    counted = BinCP(radius=0.1, threshold=0.5).calibrate_counts((S[:, 0] >= 0.5).sum(axis=1), M, K)
    np.testing.assert_array_equal(counted.predict_set_counts(test_hits), found)
    assert method.conservative_probability() == pytest.approx(p_low)
    assert method.certified_level() == pytest.approx(needed)


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_sets_grow_with_the_radius_and_with_the_level(threshold):
    (S, y), (T, _) = samples(6), samples(7)
    method = BinCP(threshold=threshold).calibrate(S, y)
    by_radius = method.certified_sets(T, [0, 0.05, 0.1, 0.2, 0.4, 1])
    by_level = method.predict_set(T, [0.05, 0.1, 0.3])
    assert (by_radius[:-1] <= by_radius[1:]).all()
    assert (by_level[1:] <= by_level[:-1]).all()
    np.testing.assert_array_equal(by_radius[0], method.predict_set(T))
    for i, radius in enumerate([0, 0.05, 0.1]):
        again = BinCP(radius=radius, threshold=threshold).calibrate(S, y).predict_set(T)
        np.testing.assert_array_equal(by_radius[i], again)


def test_many_samples_make_the_correction_small():
    rng = np.random.default_rng(0)
    level = rng.uniform(size=(200, 1))
    S = level + rng.normal(0, 0.1, size=(200, 20_000))
    corrected = BinCP(radius=0.1).calibrate(S, n_classes=2)
    plain = BinCP(radius=0.1, correction=None).calibrate(S, n_classes=2)
    assert corrected.certified_level() == pytest.approx(plain.certified_level(), abs=0.02)
    assert plain.certified_level() == pytest.approx(norm.cdf(norm.ppf(0.8) - 0.4))


def test_true_labels_alone_are_enough_and_unbounded_scores_are_allowed():
    (S, y), (T, _) = samples(8), samples(9)
    whole = BinCP(radius=0.1).calibrate(S, y).predict_set(T)
    own = BinCP(radius=0.1).calibrate(S[:, 0], n_classes=K).predict_set(T)
    np.testing.assert_array_equal(whole, own)
    scaled = BinCP(radius=0.1).calibrate(np.exp(9 * S), y).predict_set(np.exp(9 * T))
    np.testing.assert_array_equal(whole, scaled)


def test_moved_rows_keep_their_label():
    """A half-space score in one dimension, the worst there is, moved by the full radius."""
    scale = radius = 0.25
    rng = np.random.default_rng(1)

    def scores(x):
        noisy = x[:, None] + scale * rng.standard_normal((len(x), 100))
        return np.stack([noisy, -noisy], axis=1)

    covered, uncertified = [], []
    for _ in range(40):
        x = rng.normal(0.5, 0.3, size=300)
        method = BinCP(radius=radius, certificate=BinaryCertificate(scale=scale))
        method.calibrate(scores(x[:100]), np.zeros(100, dtype=int))
        covered.append(method.predict_set(scores(x[100:] - radius))[:, 0].mean())
        usual = BinCP(correction=None).calibrate(scores(x[:100]), np.zeros(100, dtype=int))
        uncertified.append(usual.predict_set(scores(x[100:] - radius))[:, 0].mean())
    assert np.mean(covered) >= 0.9
    # and without the certificate the same moves do harm
    assert np.mean(uncertified) < 0.85


def test_digits_sets_are_the_smallest_and_hold_attacked_rows():
    found = digits(0)
    for size in ("size_0.12", "size_0.25"):
        assert found[size]["bincp"] <= min(found[size]["cas"], found[size]["rscp-plus"])
    assert found["size_0.25"]["bincp"] < 1.6
    for metric in ("coverage", "random", "attacked"):
        assert found[metric]["bincp"] >= 0.9 - 2 * (0.09 / 700) ** 0.5
    assert found["attacked"]["bincp"] < found["coverage"]["bincp"]


def test_too_few_rows_take_every_label_and_say_so():
    (S, y), (T, _) = samples(0), samples(1)
    method = BinCP().calibrate(S[:9], y[:9])
    with pytest.warns(InfiniteSetWarning, match=r"9 calibration rows at alpha 0\.1.*at least 10"):
        assert method.predict_set(T).all()
    assert not BinCP().calibrate(S[:10], y[:10]).predict_set(T).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"alpha": 0.001}, "0.001 pays"),
        ({"alpha": 0.0005}, "0.001 pays"),
        ({"radius": -1}, "radius"),
        ({"p": 0.001}, "less than one"),
        ({"p": 0}, "p must lie"),
        ({"p": 1.5}, "p must lie"),
        ({"confidence": 1.0}, "confidence"),
        ({"correction": "bonferroni"}, "correction"),
        ({"union": "K"}, "union"),
        ({"threshold": float("nan")}, "threshold"),
    ],
)
def test_impossible_parameters(arguments, words):
    S, y = samples(0)
    with pytest.raises(MethodError, match=words):
        BinCP(**arguments).calibrate(S, y)


def test_impossible_samples():
    (S, y), (T, _) = samples(0), samples(1)
    broken = S.copy()
    broken[3, 1, 2] = np.nan
    with pytest.raises(DataError, match="NaN"):
        BinCP().calibrate(broken, y)
    with pytest.raises(DataError, match="need the true labels"):
        BinCP().calibrate(S)
    with pytest.raises(DataError, match="n_classes"):
        BinCP().calibrate(S[:, 0])
    method = BinCP().calibrate(S, y)
    for other in (T[:, :3], T[:, :, :20]):
        with pytest.raises(DataError, match=f"{K} labels and {M} samples"):
            method.predict_set(other)
    with pytest.raises(MethodError, match="fixed threshold"):
        method.predict_set_counts(np.ones((2, K), dtype=int))
    with pytest.raises(DataError, match="not between 0 and 150"):
        BinCP(threshold=0.5).calibrate_counts([10, 151], M, K)


def test_the_images_are_asked_for_by_name(tmp_path):
    with pytest.raises(MissingDependency, match=r"cifar10-features/features\.npz"):
        cifar(0, data=tmp_path)
