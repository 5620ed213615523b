"""CP2-PCP: the specification's exact cases, the exact-model check, and its traps."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LinearRegression
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted, validate_data

from assay.conformal import PCP, ConditionalPCP
from assay.conformal.adjustments import Adjustment
from assay.conformal.ball_sets import distances_to_nearest
from assay.conformal.checks.cp2 import GrowingNoise, exact_model
from assay.core.errors import AssayWarning, DataError, InfiniteSetWarning, MethodError
from assay.core.seeds import row_keys, row_uniforms, seed_of

CENTERS = np.array([[0.0, 2.0]])
REFERENCE = np.array([[-0.5, 0.3, 1.1, 2.4, 3.5]])


class NormalModel(BaseEstimator):
    """Linear mean with normal noise of one size: a trainable model without torch."""

    samples_by_row = True

    def __init__(self, random_state=None):
        self.random_state = random_state

    def fit(self, X, y):
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, dtype=np.float64)
        self.mean_ = LinearRegression().fit(X, y)
        self.sd_ = np.std(y - self.mean_.predict(X)) + 1e-3
        return self

    def predict(self, X):
        check_is_fitted(self)
        return self.mean_.predict(validate_data(self, X, reset=False, dtype=np.float64))

    def sample(self, X, n_samples, random_state):
        mean = self.predict(X).reshape(len(X), 1, -1)
        X = validate_data(self, X, reset=False, dtype=np.float64)
        u = row_uniforms(row_keys(X, seed_of(random_state)), n_samples * mean.shape[2])
        return mean + self.sd_ * (u.reshape(len(X), n_samples, -1) - 0.5) * 4


@parametrize_with_checks([ConditionalPCP(NormalModel(), n_samples=8), PCP(NormalModel(), n_samples=8)])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def scored(adjustment, centers=CENTERS, reference=REFERENCE, y=(3.0,), alpha=0.2):
    method = ConditionalPCP(
        None, adjustment, n_samples=np.shape(centers)[1], n_reference=np.shape(reference)[1], alpha=alpha
    )
    return method.calibrate_samples(centers, y, reference)


def test_the_specified_scores():
    method = scored("linear")
    np.testing.assert_allclose(method.spreads_, [[0.3, 0.4, 0.5, 0.9, 1.5]])
    assert method.distances_[0] == 1
    np.testing.assert_allclose(method.conformity_scores(), [1 / 0.9])
    np.testing.assert_allclose(scored("difference").conformity_scores(), [0.1])
    # the level enters tau: at 0.4 it is the third, 0.5
    np.testing.assert_allclose(method.conformity_scores(0.4), [2.0])


def random_rows(seed, n=40, m=6, q=1):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, m, q)), rng.normal(size=(n, m + 1, q)), rng.normal(size=(n, q)), rng


@pytest.mark.parametrize("q", [1, 3])
def test_linear_scores_do_not_see_the_scale_of_a_row(q):
    centers, reference, y, rng = random_rows(0, q=q)
    r = rng.uniform(0.1, 50, size=(40, 1, 1))
    a = scored("linear", centers, reference, y).conformity_scores()
    b = scored("linear", r * centers, r * reference, r[:, 0] * y).conformity_scores()
    np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("q", [1, 3])
def test_difference_scores_do_not_see_a_shift_of_a_row(q):
    centers, reference, y, rng = random_rows(1, q=q)
    shift = rng.normal(size=(40, 1, q)) * 10
    a = scored("difference", centers, reference, y).conformity_scores()
    b = scored("difference", centers + shift, reference + shift, y + shift[:, 0]).conformity_scores()
    np.testing.assert_allclose(a, b, atol=1e-12)


@pytest.mark.parametrize(("n", "infinite"), [(9, False), (8, True)])
def test_nine_rows_take_the_largest_score_and_eight_are_too_few(n, infinite):
    centers, reference, y, _ = random_rows(2, n=9)
    method = scored("linear", centers[:n], reference[:n], y[:n], alpha=0.1)
    if infinite:
        with pytest.warns(InfiniteSetWarning):
            region = method.predict_set_samples(centers, reference)
        assert np.isinf(region.radius).all()
        assert region.contains(y + 1e12).all()
    else:
        region = method.predict_set_samples(centers, reference)
        largest = method.conformity_scores().max()
        tau = method.spreads_[:, -1]
        np.testing.assert_allclose(region.radius, largest * tau, rtol=1e-14)


@pytest.mark.parametrize("adjustment", ["linear", "difference", "identity"])
def test_set_and_score_are_one_rule_to_the_last_bit(adjustment):
    centers, reference, y, _ = random_rows(3, n=199)
    method = scored(adjustment, centers, reference, y, alpha=0.1)
    region = method.predict_set_samples(centers, reference)
    threshold = np.sort(method.conformity_scores())[179]
    np.testing.assert_array_equal(region.contains(y), method.conformity_scores() <= threshold)
    assert region.contains(y).sum() == 180


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_exact_model_is_covered_alike_at_every_noise_level(n_outputs):
    truth = GrowingNoise(n_outputs)
    rng = np.random.default_rng(0)
    X, y = truth.generate(2000, rng)
    X_test, y_test = truth.generate(4000, rng)
    group = np.minimum((X_test[:, 0] * 5).astype(int), 4)

    def bins(method):
        covered = method.calibrate(X, y).predict_set(X_test).contains(y_test)
        return np.array([covered[group == k].mean() for k in range(5)])

    linear = bins(ConditionalPCP(truth, random_state=0))
    assert (linear >= 0.86).all(), linear
    assert (linear <= 0.94).all(), linear
    fixed = bins(PCP(truth, random_state=0))
    assert fixed[-1] < 0.80, fixed
    assert fixed[0] > 0.97, fixed


def test_check_of_the_claims_measures_the_same():
    measured = exact_model(0)
    assert measured["worst_bin_gap"]["cp2"] < 0.04
    assert measured["last_bin_coverage"]["pcp"] < 0.80
    assert exact_model(0) == measured


def test_zero_spread_is_floored_alike_in_calibration_and_test():
    # an atom: all draws 5; half of the rows hit it, half miss it by 1
    centers, reference = np.full((20, 4), 5.0), np.full((20, 4), 5.0)
    y = np.where(np.arange(20) < 10, 5.0, 6.0)
    method = ConditionalPCP(None, n_samples=4, alpha=0.1).calibrate_samples(centers, y, reference)
    scores = method.conformity_scores()
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(scores[:10], 0)
    region = method.predict_set_samples(centers, reference)
    assert region.contains(y).all()
    method.set_params(alpha=0.6)
    # the 9th smallest score is 0: the set is the atom itself
    region = method.predict_set_samples(centers, reference)
    np.testing.assert_array_equal(region.contains(y), y == 5)
    assert region.volume().max() == 0


def test_draws_that_float32_cannot_tell_apart_do_not_divide_by_zero():
    far = np.float32(3e8) + np.zeros((20, 4), dtype=np.float32)
    y = np.full(20, 3e8) + np.arange(20.0)
    method = ConditionalPCP(None, n_samples=4).calibrate_samples(far, y, far)
    region = method.predict_set_samples(far, far)
    np.testing.assert_allclose(region.radius, 18, rtol=1e-9)
    assert region.centers.dtype == np.float64


def test_distances_are_float64():
    centers = np.full((19, 2), 1e9)
    y = 1e9 + np.arange(1.0, 20)
    assert PCP(n_samples=2).calibrate_samples(centers, y).distances_[3] == 4


def test_difference_can_give_the_empty_set():
    # the targets sit on the draws while the model's own spread is 1: Q = -1
    centers = np.tile([0.0, 10.0], (19, 1))
    reference = np.tile([1.0, 9.0], (19, 1))
    method = ConditionalPCP(None, "difference", n_samples=2).calibrate_samples(
        centers, np.zeros(19), reference
    )
    assert method.predict_set_samples(centers[:1], reference[:1]).radius[0] == pytest.approx(0, abs=1e-300)
    region = method.predict_set_samples(centers[:1], centers[:1])
    assert region.radius[0] < -0.99
    assert not region.contains([0.0])[0]
    assert region.volume()[0] == 0
    assert len(region.intervals()[0]) == 0
    lower, upper = region.hull()[0]
    assert lower > upper


def calibrated(truth=None, **params):
    truth = truth or GrowingNoise()
    X, y = truth.generate(200, np.random.default_rng(5))
    return ConditionalPCP(truth, random_state=0, **params).calibrate(X, y), X, y


def test_another_number_of_draws_or_adjustment_is_refused():
    for change in ({"n_samples": 20}, {"n_reference": 7}, {"adjustment": "difference"}):
        method, X, _ = calibrated()
        method.set_params(**change)
        with pytest.raises(MethodError, match="changed since calibration"):
            method.predict_set(X)


class Tempered(GrowingNoise):
    temperature = 1.0

    def scale(self, X):
        return self.temperature * super().scale(X)


def test_another_sampler_is_refused():
    truth = Tempered()
    method, X, _ = calibrated(truth)
    method.predict_set(X)
    truth.temperature = 0.7
    with pytest.raises(MethodError, match="samples have changed since calibration"):
        method.predict_interval(X)


def test_sampler_that_ignores_its_seed_warns():
    rng = np.random.default_rng(0)

    class Careless:
        def sample(self, X, n_samples, random_state):
            return rng.normal(size=(len(X), n_samples, 1))

    X, y = np.zeros((50, 1)), np.random.default_rng(1).normal(size=50)
    with pytest.warns(AssayWarning, match="same random_state"):
        method = ConditionalPCP(Careless()).calibrate(X, y)
    assert method.predict_set(X).contains(y).mean() > 0.7


def test_draws_of_centres_and_references_are_apart_and_a_users_sampler_gets_new_ones_for_test_rows():
    seeds = []

    class Recorder:
        def sample(self, X, n_samples, random_state):
            seeds.append(random_state)
            return np.random.default_rng(random_state).normal(size=(len(X), n_samples))

    X, y = np.zeros((30, 1)), np.zeros(30)
    ConditionalPCP(Recorder(), random_state=0).calibrate(X, y).predict_set(X)
    probe, calibration = seeds[:2], seeds[2:4]
    assert probe[0] == probe[1] == seeds[4]
    assert len({*calibration, *seeds[5:]}) == 4


def test_other_level_after_calibration_equals_calibrating_there():
    method, X, y = calibrated()
    direct = ConditionalPCP(GrowingNoise(), alpha=0.3, random_state=0).calibrate(X, y)
    np.testing.assert_array_equal(method.predict_set(X, 0.3).radius, direct.predict_set(X).radius)
    two = method.predict_set(X, [0.1, 0.3])
    np.testing.assert_array_equal(two[1].radius, direct.predict_set(X).radius)
    assert method.predict_interval(X[:3], [0.1, 0.3]).shape == (2, 3, 2)
    given = ConditionalPCP(GrowingNoise(), random_state=0).calibrate(X, y, alpha=0.3)
    np.testing.assert_array_equal(given.predict_set(X).radius, direct.predict_set(X).radius)


@pytest.mark.parametrize("q", [1, 2])
def test_batches_order_and_memory_do_not_matter(q):
    truth = GrowingNoise(q)
    method, X, y = calibrated(truth)
    whole = method.predict_set(X)
    for i in (0, 7, 199):
        one = method.predict_set(X[i : i + 1])
        np.testing.assert_allclose(one.radius, whole.radius[i : i + 1])
        np.testing.assert_array_equal(one.centers[0], whole.centers[i])
    order = np.random.default_rng(1).permutation(len(X))
    small = ConditionalPCP(truth, random_state=0, max_memory=20_000).calibrate(X[order], y[order])
    np.testing.assert_allclose(small.predict_set(X).radius, whole.radius, rtol=1e-12)
    assert method.predict_set(X[:0]).contains(y[:0]).shape == (0,)
    if q == 1:
        assert method.predict_interval(X[:0]).shape == (0, 2)
        assert method.predict_set(X[:0]).intervals() == []


def test_copies_answer_the_same():
    method, X, _ = calibrated()
    expected = method.predict_interval(X)
    for other in (pickle.loads(pickle.dumps(method)), copy.deepcopy(method)):
        np.testing.assert_array_equal(other.predict_interval(X), expected)
    fresh = clone(method)
    assert not hasattr(fresh, "model_")


def test_own_adjustment():
    power = Adjustment(
        f=lambda tau, v: tau * v**2, f_inv=lambda tau, v: np.sqrt(v / tau), phi=1.0, name="square"
    )
    a, X, _ = calibrated(adjustment=power)
    b, _, _ = calibrated()
    # sqrt(v / tau) ranks as v / tau does: the sets are the same
    np.testing.assert_allclose(a.predict_set(X).radius, b.predict_set(X).radius, rtol=1e-12)
    shifted = Adjustment(f=lambda tau, v: tau * v, f_inv=lambda tau, v: v / tau, phi=2.0)
    with pytest.raises(MethodError, match="give `solve`"):
        calibrated(adjustment=shifted)[0].predict_set(X)
    solved = Adjustment(
        f=lambda tau, v: tau * v, f_inv=lambda tau, v: v / tau, phi=2.0, solve=lambda t: t / 2
    )
    c, _, _ = calibrated(adjustment=solved)
    np.testing.assert_allclose(c.predict_set(X).radius, b.predict_set(X).radius, rtol=1e-12)


def test_distances_agree_between_line_pairs_and_tree():
    rng = np.random.default_rng(0)
    centers, points = rng.normal(size=(3, 300, 2)), rng.normal(size=(3, 300, 2))
    tree = distances_to_nearest(points, centers)
    pairs = np.stack(
        [distances_to_nearest(points[:, i : i + 50], centers, max_memory=10**6) for i in range(0, 300, 50)],
        axis=1,
    ).reshape(3, 300)
    np.testing.assert_allclose(tree, pairs, rtol=1e-12)
    line = distances_to_nearest(points[:, :, :1], centers[:, :, :1])
    brute = np.abs(points[:, :, None, 0] - centers[:, None, :, 0]).min(axis=2)
    np.testing.assert_array_equal(line, brute)


def test_bad_input_is_named():
    X, y = GrowingNoise().generate(50, np.random.default_rng(5))
    with pytest.raises(MethodError, match="adjustment must be one of"):
        ConditionalPCP(GrowingNoise(), "cubic").calibrate(X, y)
    with pytest.raises(MethodError, match="n_samples must be at least 1"):
        ConditionalPCP(GrowingNoise(), n_samples=0).calibrate(X, y)
    with pytest.raises(MethodError, match="n_reference must be at least 1"):
        ConditionalPCP(GrowingNoise(), n_reference=0).calibrate(X, y)
    with pytest.raises(MethodError, match="no sample"):
        ConditionalPCP(LinearRegression()).calibrate(X, y)
    with pytest.raises(MethodError, match="use calibrate"):
        ConditionalPCP(GrowingNoise()).fit(X, y)
    with pytest.raises(MethodError, match="needs a trained model"):
        ConditionalPCP().calibrate(X, y)
    bad = y.copy()
    bad[7] = np.nan
    with pytest.raises(DataError, match="1 of 50 rows, first at row 7"):
        ConditionalPCP(GrowingNoise()).calibrate(X, bad)
    with pytest.raises(DataError, match=r"shape \(4, 4, 2\), expected \(4, 4, 1\)"):
        ConditionalPCP(GrowingNoise(2)).calibrate(X, y)
    with pytest.raises(DataError, match="reference is missing"):
        ConditionalPCP(None, n_samples=2).calibrate_samples(np.zeros((9, 2)), np.zeros(9))
    with pytest.raises(MethodError, match="one output"):
        calibrated(GrowingNoise(2))[0].predict_interval(X)

    class Broken(GrowingNoise):
        def sample(self, X, n_samples, random_state):
            return np.full((len(X), n_samples, 1), np.nan)

    with pytest.raises(DataError, match="model's samples is NaN in 4 of 4 rows"):
        ConditionalPCP(Broken()).calibrate(X, y)


def test_failed_calibration_leaves_no_half_state():
    method, X, y = calibrated()
    before = method.predict_interval(X)
    with pytest.raises(ValueError, match="200, 199"):
        method.calibrate(X, y[:-1])
    y[3] = np.nan
    with pytest.raises(DataError):
        method.calibrate(X, y)
    np.testing.assert_array_equal(method.predict_interval(X), before)


def test_fit_trains_on_its_rows_and_calibrates_on_the_others():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = X[:, 0] + rng.normal(size=400)
    method = ConditionalPCP(NormalModel(), random_state=0).fit(X[:200], y[:200], X[200:], y[200:])
    assert len(method.distances_) == 200
    np.testing.assert_allclose(
        method.predict(X), LinearRegression().fit(X[:200], y[:200]).predict(X), rtol=1e-10
    )
    halves = ConditionalPCP(NormalModel(), random_state=0).fit(X, y)
    assert len(halves.distances_) == 200
    again = ConditionalPCP(NormalModel(), random_state=0).fit(X, y)
    np.testing.assert_array_equal(halves.predict_interval(X), again.predict_interval(X))


def test_hull_holds_the_set_and_is_no_shorter():
    method, X, y = calibrated()
    region, hull = method.predict_set(X), method.predict_interval(X)
    inside = (hull[:, 0] <= y[:, 0]) & (y[:, 0] <= hull[:, 1])
    assert (inside >= region.contains(y)).all()
    assert (np.diff(hull)[:, 0] >= region.volume() - 1e-12).all()
