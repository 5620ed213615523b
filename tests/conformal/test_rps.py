"""Reliable prediction sets: certificates against every poisoning of tiny data, loops, and bad input."""

import itertools
import warnings
from fractions import Fraction

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB

from assay.conformal.majority import binomial_threshold, conformity_rank
from assay.conformal.partitioned import PartitionedClassifier
from assay.conformal.poisoning_certificates import worst_case_vote_scores
from assay.conformal.rps import ReliablePredictionSets
from assay.core.errors import AssayWarning, DataError, InfiniteSetWarning, MethodError

X, Y = load_digits(return_X_y=True)
ORDER = np.random.default_rng(0).permutation(len(Y))
TRAIN, CALIB, TEST = ORDER[:500], ORDER[500:900], ORDER[900:1100]

pytestmark = pytest.mark.filterwarnings("ignore::assay.core.errors.AssayWarning")


class Nearest(ClassifierMixin, BaseEstimator):
    """The label of the nearest training row: the cheapest classifier there is."""

    def fit(self, X, y):
        self.X_, self.y_, self.classes_ = np.asarray(X), np.asarray(y), np.unique(y)
        return self

    def predict(self, X):
        near = np.abs(np.asarray(X)[:, :1] - self.X_[:, 0]).argmin(axis=1)
        return self.y_[near]

    def predict_proba(self, X):
        return np.where(self.predict(X)[:, None] == self.classes_, 0.7, 0.3 / (len(self.classes_) - 1))


def digits(**options):
    options = {"n_partitions": 12, "n_calibration_partitions": 8, **options}
    return ReliablePredictionSets(GaussianNB(), **options).fit(X[TRAIN], Y[TRAIN], X[CALIB], Y[CALIB])


# ---- every poisoning of tiny data

LABELS = np.array([0, 1, 2])


def _tiny(seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(40, 1))
    y = np.where(rng.random(40) < 0.75, np.digitize(x[:, 0], [-0.5, 0.5]), rng.integers(3, size=40))
    return (x[:12], y[:12]), (x[12:28], y[12:28]), x[28:]


def _poisonings(x, y, rows):
    """Every single change: each of some rows taken away or relabelled, and rows added."""
    for row in rows:
        yield np.delete(x, row, axis=0), np.delete(y, row)
        for label in LABELS[y[row] != LABELS]:
            changed = y.copy()
            changed[row] = label
            yield x, changed
    for value, label in itertools.product((-0.9, 0.05, 1.3), LABELS):
        yield np.append(x, [[value]], axis=0), np.append(y, label)


def _check(clean, poisoned, kept, out):
    assert not (clean & ~poisoned)[kept].any(), "a label left a set whose coverage was certified"
    assert not (poisoned & ~clean)[out].any(), "a label entered a set whose size was certified"


TINY = [
    {"majority": "binomial", "rank": "published", "smoothing": "softmax"},
    {"majority": "exact", "rank": "tight", "smoothing": "softmax"},
    {"majority": "exact", "rank": "published", "smoothing": None},
]


@pytest.mark.parametrize("options", TINY, ids=lambda o: "-".join(map(str, o.values())))
def test_no_poisoning_of_two_calibration_rows_breaks_a_certificate(options):
    reached, certified = 0, 0
    for seed in range(4):
        train, (xc, yc), test = _tiny(seed)
        method = ReliablePredictionSets(
            Nearest(), alpha=0.3, n_partitions=5, n_calibration_partitions=4, random_state=seed, **options
        )
        method.fit(*train, xc, yc)
        clean, found = method.predict_set(test), method.certify(test)
        kinds = {r: (found.reliable(0, r, "coverage"), found.reliable(0, r, "size")) for r in (1, 2)}
        certified += kinds[1][0].sum() + kinds[1][1].sum()
        for x1, y1 in _poisonings(xc, yc, range(0, 16, 3)):
            once = method.calibrate(x1, y1).predict_set(test)
            _check(clean, once, *kinds[1])
            for x2, y2 in _poisonings(x1, y1, (1, 7)):
                twice = method.calibrate(x2, y2).predict_set(test)
                _check(clean, twice, *kinds[2])
                reached += (twice != clean).any(axis=1).sum()
    assert reached, "the poison must be able to change something, or nothing was tested"
    assert certified, "something must be certified, or nothing was tested"


@pytest.mark.parametrize("options", TINY, ids=lambda o: "-".join(map(str, o.values())))
@pytest.mark.parametrize("seed", range(2))
def test_no_poisoning_of_training_and_calibration_rows_breaks_a_certificate(options, seed):
    (xt, yt), (xc, yc), test = _tiny(seed)
    method = ReliablePredictionSets(
        Nearest(), alpha=0.3, n_partitions=5, n_calibration_partitions=3, random_state=seed, **options
    )
    method.fit(xt, yt, xc, yc)
    clean, found = method.predict_set(test), method.certify(test)
    for x1, y1 in _poisonings(xt, yt, range(12)):
        other = clone(method).fit(x1, y1, xc, yc)
        assert list(other.classes_) == [0, 1, 2]
        _check(clean, other.predict_set(test), found.reliable(1, 0, "coverage"), found.reliable(1, 0, "size"))
        for x2, y2 in _poisonings(xc, yc, (2, 9)):
            other.calibrate(x2, y2)
            _check(
                clean, other.predict_set(test), found.reliable(1, 1, "coverage"), found.reliable(1, 1, "size")
            )


# ---- the published formulas, as loops


def _looped(votes, calib_votes, calib_labels, parts, k_t, k_c, alpha, r_train, r_calib):
    """Reliable for coverage, and for size, by the formulas of the paper, one class and part at a time."""
    tau = binomial_threshold(k_c, alpha)

    def thresholds(scores):
        out = []
        for j in range(k_c):
            own = np.sort(scores[parts == j])
            rank = conformity_rank(len(own), alpha, "published")
            out.append(own[rank - 1] if rank else -np.inf)
        return np.array(out)

    rows = np.arange(len(calib_votes))
    scores = {
        side: (
            worst_case_vote_scores(votes, r_train, side, k_t),
            thresholds(worst_case_vote_scores(calib_votes, r_train, side, k_t)[rows, calib_labels]),
        )
        for side in ("lower", "upper")
    }
    plain = worst_case_vote_scores(votes, 0, "lower", k_t)
    clean = thresholds(worst_case_vote_scores(calib_votes, 0, "lower", k_t)[rows, calib_labels])
    coverage, size = np.ones(len(votes), dtype=bool), np.ones(len(votes), dtype=bool)
    for i, y in np.ndindex(*votes.shape):
        if (plain[i, y] >= clean).sum() > tau:
            coverage[i] &= (scores["lower"][0][i, y] >= scores["upper"][1]).sum() > tau + r_calib
        else:
            size[i] &= k_c - ((scores["upper"][0][i, y] < scores["lower"][1]).sum() - r_calib) <= tau
    return coverage, size


def test_closed_forms_agree_with_the_published_formulas():
    rng = np.random.default_rng(5)
    k_t, k_c, alpha = 15, 6, Fraction(1, 10)
    sharp = rng.dirichlet(np.full(5, 0.3), size=260)
    votes = rng.multinomial(k_t, sharp)
    labels = np.array([rng.choice(5, p=p) for p in sharp])
    method = ReliablePredictionSets(alpha=alpha, n_partitions=k_t, n_calibration_partitions=k_c)
    method.calibrate_votes(votes[:200], labels[:200], classes=range(5), keys=np.arange(200))
    found = method.certify_votes(votes[200:])
    for r_train, r_calib in itertools.product((0, 1, 2, 4, 15), (0, 1, 2)):
        coverage, size = _looped(
            votes[200:], votes[:200], labels[:200], method.parts_, k_t, k_c, alpha, r_train, r_calib
        )
        np.testing.assert_array_equal(found.reliable(r_train, r_calib, "coverage"), coverage)
        np.testing.assert_array_equal(found.reliable(r_train, r_calib, "size"), size)


def test_calibration_radii_of_one_model_are_counts_of_parts():
    method = digits(n_partitions=1)
    sets, found = method.predict_set(X[TEST]), method.certify(X[TEST]).calibration
    thresholds = method._level_rules((Fraction(1, 10),))[0][0]
    held = ((1 - method.predict_proba(X[TEST]))[..., None] <= thresholds).sum(axis=2)
    tau = binomial_threshold(8, Fraction(1, 10))
    for i in range(len(TEST)):
        inside, outside = held[i][sets[i]], held[i][~sets[i]]
        assert found.coverage_radius[i] == (inside.min() - tau - 1 if len(inside) else 8)
        assert found.size_radius[i] == (tau - outside.max() if len(outside) else 8)


# ---- what the sets are


@pytest.mark.parametrize("majority", ["binomial", "exact"])
def test_coverage_on_digits(majority):
    covered = []
    for seed in range(4):
        rows = np.random.default_rng(seed).permutation(len(Y))
        train, calib, test = rows[:897], rows[897:1297], rows[1297:]
        method = ReliablePredictionSets(
            LogisticRegression(max_iter=50), n_partitions=20, n_calibration_partitions=10, majority=majority
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            method.fit(X[train], Y[train], X[calib], Y[calib])
        covered.append(method.predict_set(X[test])[np.arange(500), Y[test]].mean())
    assert np.mean(covered) >= 0.88


def test_certificates_nest():
    found = digits().certify(X[TEST])
    assert (np.diff(found.coverage, axis=0) <= 0).all()
    assert (np.diff(found.size, axis=0) <= 0).all()
    assert (np.diff(found.largest_train, axis=0) >= 0).all()
    assert (np.diff(found.largest_calib, axis=0) >= 0).all()
    sizes = digits().predict_set(X[TEST]).sum(axis=1)
    np.testing.assert_array_equal(found.largest_train[0], sizes)
    np.testing.assert_array_equal(found.largest_calib[0], sizes)
    assert found.reliable(0, 0).all()
    assert not found.reliable(99, 0).any()
    grid = found.grid([0, 1, 2], [0, 1, 2])
    assert (np.diff(grid, axis=0) <= 0).all()
    assert (np.diff(grid, axis=1) <= 0).all()
    np.testing.assert_array_equal(found.training.robust_radius >= 2, found.reliable(2, 0))
    np.testing.assert_array_equal(found.calibration.coverage_radius >= 1, found.reliable(0, 1, "coverage"))


def test_the_order_of_classes_rows_and_blocks_does_not_matter():
    method = digits()
    found = method.certify(X[TEST])
    names = np.array(list("jihgfedcba"))
    renamed = ReliablePredictionSets(GaussianNB(), n_partitions=12, n_calibration_partitions=8)
    renamed.fit(X[TRAIN], names[Y[TRAIN]], X[CALIB], names[Y[CALIB]])
    np.testing.assert_array_equal(renamed.predict_set(X[TEST])[:, ::-1], method.predict_set(X[TEST]))
    other = renamed.certify(X[TEST])
    np.testing.assert_array_equal(other.coverage, found.coverage)
    np.testing.assert_array_equal(other.size, found.size)
    small = digits(max_memory=30_000).certify(X[TEST])
    for name in ("coverage", "size", "largest_calib"):
        np.testing.assert_array_equal(getattr(small, name), getattr(found, name))
    assert len(method.certify(X[:0]).calibration.coverage_radius) == 0


def test_votes_alone_give_the_same():
    method = digits()
    votes = {
        name: method.estimator_.predict_votes(X[rows]) for name, rows in (("calib", CALIB), ("test", TEST))
    }
    bare = ReliablePredictionSets(n_partitions=12, n_calibration_partitions=8)
    bare.calibrate_votes(votes["calib"], Y[CALIB], keys=X[CALIB])
    np.testing.assert_array_equal(bare.predict_set_votes(votes["test"]), method.predict_set(X[TEST]))
    np.testing.assert_array_equal(bare.certify_votes(votes["test"]).size, method.certify(X[TEST]).size)
    without_keys = ReliablePredictionSets(n_partitions=12, n_calibration_partitions=1)
    without_keys.calibrate_votes(votes["calib"], Y[CALIB])
    assert without_keys.predict_set_votes(votes["test"]).any()


def test_probabilities_alone_certify_calibration_rows():
    proba = GaussianNB().fit(X[TRAIN], Y[TRAIN]).predict_proba(X)
    method = ReliablePredictionSets(n_calibration_partitions=4).calibrate_proba(
        proba[CALIB] * 0.9 + 0.01, Y[CALIB]
    )
    found = method.certify_proba(proba[TEST])
    assert found.coverage.shape == (1, 200)
    assert found.calibration.robust_radius.max() >= 1
    assert (found.training.robust_radius[method.predict_set_proba(proba[TEST]).any(axis=1)] == 0).all()


def test_a_trained_partitioned_classifier_is_used_as_it_is():
    members = PartitionedClassifier(GaussianNB(), 12, random_state=0).fit(X[TRAIN], Y[TRAIN])
    method = ReliablePredictionSets(members, n_calibration_partitions=8).calibrate(X[CALIB], Y[CALIB])
    np.testing.assert_array_equal(method.predict_set(X[TEST]), digits().predict_set(X[TEST]))
    assert method.score_.n_partitions == 12


def test_a_limit_of_the_radius_is_told():
    found = digits().certify(X[TEST], max_r_train=1)
    assert found.coverage.shape[0] == 2
    with pytest.raises(MethodError, match="up to 1 were computed, 2 was asked for"):
        found.reliable(2, 0)
    with pytest.raises(MethodError, match="max_r_train must be at least 0"):
        digits().certify(X[TEST], max_r_train=-1)


def test_short_parts_hold_everything_with_a_warning():
    method = ReliablePredictionSets(GaussianNB(), n_partitions=5, n_calibration_partitions=30)
    method.fit(X[TRAIN], Y[TRAIN], X[CALIB[:150]], Y[CALIB[:150]])
    with pytest.warns(
        InfiniteSetWarning, match=r"\d+ of 30 calibration parts .* alpha 0.1 \(at least 9 are needed"
    ):
        method.predict_set(X[TEST])


def test_bad_questions():
    method = digits()
    with pytest.raises(MethodError, match="takes no groups"):
        method.predict_set(X[TEST], groups=np.zeros(len(TEST)))
    with pytest.raises(MethodError, match="calibrated with votes"):
        method.predict_set_proba(np.full((3, 10), 0.1))
    with pytest.raises(MethodError, match="use calibrate_proba"):
        method.certify_proba(np.full((3, 10), 0.1))
    with pytest.raises(MethodError, match="use calibrate_votes"):
        ReliablePredictionSets().predict_set_votes([[1, 0]])
    with pytest.raises(DataError, match=r"shape \(1, 3\); \(n, 10\)"):
        method.predict_set_votes([[1, 0, 0]])
    with pytest.raises(MethodError, match="kind must be one of robust"):
        method.certify(X[TEST]).reliable(1, 1, "both")
    with pytest.raises(MethodError, match="radius is at least 0"):
        method.certify(X[TEST]).reliable(-1)
    with pytest.raises(MethodError, match="n_calibration_partitions must be a whole number"):
        digits(n_calibration_partitions=0)
    with pytest.raises(MethodError, match="majority must be one of"):
        digits(majority="most").predict_set(X[TEST])
    bare = ReliablePredictionSets(n_partitions=3)
    with pytest.raises(DataError, match="0 calibration rows"):
        bare.calibrate_votes(np.empty((0, 2)), [], classes=[0, 1])
    with pytest.raises(DataError, match="keys has 1 rows, votes has 2"):
        bare.calibrate_votes([[1, 2], [3, 0]], [0, 1], keys=[[1.0]])


def test_warnings_of_parts_name_numbers():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ReliablePredictionSets(GaussianNB(), n_partitions=60, n_calibration_partitions=1).fit(X[:80], Y[:80])
    texts = [str(w.message) for w in caught if issubclass(w.category, AssayWarning)]
    assert any("of 60 parts of 40 training rows" in text for text in texts)
