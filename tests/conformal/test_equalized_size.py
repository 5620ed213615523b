"""Equalised set size: the step functions, the exact small cases, sizes and coverage by group."""

from fractions import Fraction

import numpy as np
import pytest
from groups_sample import hard_and_easy
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import EqualizedSetSize, LACClassifier, MondrianConformal, RAPSClassifier
from assay.conformal.equalized_size import SizeCurve, size_curve
from assay.conformal.label_scores import LACScore
from assay.core.errors import AssayWarning, DataError, InfiniteSetWarning, MethodError


@parametrize_with_checks([EqualizedSetSize()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def equalised(p, y, g, calib, **arguments):
    arguments = {"label_score": "lac", **arguments}
    return EqualizedSetSize(**arguments).calibrate_proba(p[calib], y[calib], groups=g[calib])


def test_the_mean_size_at_a_threshold():
    # two rows of group 0 with scores .1 .5 .9 and .2 .5 .8, one of group 1 with .3 .6 .7
    events = np.array([0.1, 0.2, 0.3, 0.5, 0.5, 0.6, 0.7, 0.8, 0.9])
    groups = np.array([0, 0, 1, 0, 0, 1, 1, 0, 0])
    counts = np.array([2, 1])
    own = size_curve(events, groups, 3, counts, 0, 1.0)
    assert own.breaks.tolist() == [0.1, 0.2, 0.5, 0.8, 0.9]
    assert own([-np.inf, 0.1, 0.15, 0.2, 0.4999, 0.5, np.inf]).tolist() == [0, 0.5, 0.5, 1, 1, 2, 3]
    assert size_curve(events, groups, 3, counts, 1, 1.0)([0.29, 0.3, 0.65, np.inf]).tolist() == [0, 1, 2, 3]
    pooled = size_curve(events, groups, 3, counts, None, 1.0)
    np.testing.assert_allclose(pooled([0.0, 0.3, 0.5, np.inf]), [0, 1, 5 / 3, 3])
    mixed = size_curve(events, groups, 3, counts, 0, 0.25)
    s = np.linspace(-0.1, 1.1, 200)
    np.testing.assert_allclose(mixed(s), 0.75 * pooled(s) + 0.25 * own(s))


def test_every_label_counts_at_infinity_and_none_before():
    p, y, g = hard_and_easy(500, 0)
    for shrinkage in (0.0, 0.3, 1.0):
        for curve in equalised(p, y, g, slice(0, 500), shrinkage=shrinkage).calibrator_.curves:
            assert curve(-np.inf) == 0
            assert curve(np.inf) == pytest.approx(4, abs=1e-12)
            assert (np.diff(curve.values) >= 0).all()


def test_the_last_score_within_a_size():
    curve = SizeCurve(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 1.0, 2.0]))
    # below the size: everything up to just before the step; at it: up to the tie
    assert curve.last(0.5, 9.0) == np.nextafter(1.0, 0)
    assert curve.last(1.0, 2.5) == 2.5
    assert curve.last(1.0, 0.5) == np.nextafter(1.0, 0)
    assert curve.last(1.0, 9.0) == np.nextafter(3.0, 0)
    assert curve.last(2.0, 2.5) == np.nextafter(3.0, 0)
    assert curve.last(5.0, 0.0) == np.inf
    rng = np.random.default_rng(0)
    s = np.concatenate([rng.uniform(0, 4, 200), [1, 2, 3]])
    for value, tie in (
        (0.0, 0.5),
        (0.5, 1.0),
        (1.0, 1.0),
        (1.0, 2.7),
        (2.0, 3.0),
        (2.0, 3.5),
        (np.inf, np.inf),
    ):
        inside = [(curve(x), x) <= (value, tie) for x in s]
        np.testing.assert_array_equal(s <= curve.last(value, tie), inside)


@pytest.mark.parametrize("label_score", ["lac", "aps", "raps", "margin"])
def test_one_group_gives_the_marginal_sets_exactly(label_score):
    p, y, _ = hard_and_easy(900, 1)
    g = np.full(900, "all")
    one = equalised(p, y, g, slice(0, 400), label_score=label_score)
    from assay.conformal import ClusteredClassifier

    marginal = ClusteredClassifier(label_score=label_score, n_clusters=1).calibrate_proba(p[:400], y[:400])
    levels = [0.05, 0.1, 0.3]
    np.testing.assert_array_equal(
        one.predict_set_proba(p[400:], levels, groups=g[400:]), marginal.predict_set_proba(p[400:], levels)
    )
    with pytest.warns(AssayWarning, match="no groups were given"):
        none = EqualizedSetSize(label_score=label_score).calibrate_proba(p[:400], y[:400])
    np.testing.assert_array_equal(none.predict_set_proba(p[400:]), marginal.predict_set_proba(p[400:]))


def test_without_shrinkage_it_is_one_threshold_whatever_the_groups():
    p, y, g = hard_and_easy(900, 2)
    m = equalised(p, y, g, slice(0, 400), shrinkage=0.0)
    marginal = LACClassifier().calibrate_proba(p[:400], y[:400])
    np.testing.assert_array_equal(
        m.predict_set_proba(p[400:], groups=g[400:]), marginal.predict_set_proba(p[400:])
    )


def test_groups_with_equal_rows_have_equal_thresholds():
    p, y, _ = hard_and_easy(300, 3)
    both, labels = np.concatenate([p, p]), np.concatenate([y, y])
    g = np.repeat([0, 1], 300)
    for criterion in ("mean_size", "singleton"):
        m = equalised(both, labels, g, slice(None), criterion=criterion)
        thresholds = m.calibrator_.thresholds([Fraction(1, 10), Fraction(1, 5)], np.array([0, 1]))
        np.testing.assert_array_equal(thresholds[:, 0], thresholds[:, 1])
        np.testing.assert_array_equal(
            m.predict_set_proba(p, groups=np.zeros(300, int)),
            m.predict_set_proba(p, groups=np.ones(300, int)),
        )


def test_set_and_score_are_one_rule():
    p, y, g = hard_and_easy(700, 4)
    for shrinkage in (0.4, 1.0):
        m = equalised(p, y, g, slice(0, 300), shrinkage=shrinkage)
        kappa, tie = m.calibrator_.cut([Fraction(1, 10)])[0]
        scores = LACScore().all(p[300:])
        code = (g[300:] == "hard").astype(int)
        u = np.where(code[:, None] == 1, m.calibrator_.curves[1](scores), m.calibrator_.curves[0](scores))
        expected = (u < kappa) | ((u == kappa) & (scores <= tie))
        np.testing.assert_array_equal(m.predict_set_proba(p[300:], groups=g[300:]), expected)
        assert m.expected_size_ == kappa


def gaps(sets, y, g):
    covered, sizes = sets[np.arange(len(y)), y], sets.sum(axis=1)
    by = [(covered[g == name].mean(), sizes[g == name].mean()) for name in ("easy", "hard")]
    return np.abs(np.subtract(*by))


@pytest.mark.parametrize("reference", ["calibration", "split"])
def test_sizes_are_equal_and_coverage_is_not(reference):
    p, y, g = hard_and_easy(7000, 5)
    calib, test = slice(0, 3000), slice(3000, None)
    m = equalised(p, y, g, calib, reference=reference, random_state=0)
    sets = m.predict_set_proba(p[test], groups=g[test])
    marginal = LACClassifier().calibrate_proba(p[calib], y[calib]).predict_set_proba(p[test])
    mondrian = MondrianConformal().calibrate_proba(p[calib], y[calib], groups=g[calib])
    by_group = mondrian.predict_set_proba(p[test], groups=g[test])
    found = [gaps(answer, y[test], g[test]) for answer in (sets, marginal, by_group)]
    assert found[0][1] < 0.1 < found[1][1] < found[2][1]
    assert found[2][0] < 0.04 < found[0][0]
    assert abs(sets.sum(axis=1).mean() - m.expected_size_) < 0.1
    if reference == "split":
        assert len(m.calibrator_.scores) == 1500


def test_the_other_criterion_equalises_how_often_there_is_more_than_one_label():
    p, y, g = hard_and_easy(7000, 6)
    m = equalised(p, y, g, slice(0, 3000), criterion="singleton")
    several = m.predict_set_proba(p[3000:], groups=g[3000:]).sum(axis=1) > 1
    shares = [several[g[3000:] == name].mean() for name in ("easy", "hard")]
    assert abs(shares[0] - shares[1]) < 0.05
    assert abs(several.mean() - m.expected_size_) < 0.05


def test_more_shrinkage_means_a_smaller_gap():
    p, y, g = hard_and_easy(6000, 7)
    found = [
        gaps(
            equalised(p, y, g, slice(0, 3000), shrinkage=s).predict_set_proba(p[3000:], groups=g[3000:]),
            y[3000:],
            g[3000:],
        )[1]
        for s in (0.0, 0.5, 1.0)
    ]
    assert found[0] > found[1] > found[2]


def test_coverage_over_two_hundred_calibrations():
    covered = {"calibration": [], "split": [], "further": []}
    for seed in range(200):
        p, y, g = hard_and_easy(600, 1000 + seed)
        for reference in covered:
            given = (p[400:], g[400:]) if reference == "further" else reference
            m = equalised(p, y, g, slice(0, 200), reference=given, random_state=seed)
            hit = m.predict_set_proba(p[200:400], groups=g[200:400])[np.arange(200), y[200:400]]
            covered[reference].append(hit.mean())
    for reference, values in covered.items():
        # 0.9 at least, at most 1/(n + 1) more, three standard errors of chance
        error = 3 * np.std(values) / np.sqrt(len(values))
        assert 0.9 - error < np.mean(values) < 0.91 + error, reference


def test_further_rows_of_a_table_go_through_the_model():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(900, 3))
    y = np.where(X[:, 0] + rng.normal(size=900) > 0, "yes", "no")
    g = (X[:, 1] > 0).astype(int)
    further = X[600:], g[600:]
    m = EqualizedSetSize(LogisticRegression(), label_score="lac", reference=further)
    m.fit(X[:200], y[:200], X_calib=X[200:400], y_calib=y[200:400], groups_calib=g[200:400])
    proba = m.estimator_.predict_proba(X)
    bare = EqualizedSetSize(label_score="lac", reference=(proba[600:], g[600:]))
    bare.calibrate_proba(proba[200:400], y[200:400], groups=g[200:400])
    np.testing.assert_array_equal(
        m.predict_set(X[400:600], groups=g[400:600]),
        bare.predict_set_proba(proba[400:600], groups=g[400:600]),
    )


@pytest.mark.parametrize("unseen", ["all", "marginal"])
def test_groups_without_reference_rows(unseen):
    p, y, g = hard_and_easy(1000, 8)
    m = equalised(p, y, g, slice(0, 400), unseen=unseen)
    asked = np.where(np.arange(600) % 2, "new", g[400:])
    category = InfiniteSetWarning if unseen == "all" else AssayWarning
    with pytest.warns(
        category, match="300 of 600 rows are of a group without calibration rows, first at row 1"
    ):
        sets = m.predict_set_proba(p[400:], groups=asked)
    new = asked == "new"
    if unseen == "all":
        assert sets[new].all()
    else:
        kappa, tie = m.calibrator_.cut([Fraction(1, 10)])[0]
        scores = LACScore().all(p[400:][new])
        u = m.calibrator_.pooled(scores)
        np.testing.assert_array_equal(sets[new], (u < kappa) | ((u == kappa) & (scores <= tie)))
    # rows that calibrate but have no reference rows are judged as new rows of their group are
    m = equalised(p, y, np.where(np.arange(1000) < 20, "new", g), slice(0, 400), reference=(p[400:], g[400:]))
    assert (m.calibrator_.codes[:20] == -1).all()
    with pytest.raises(DataError, match="a group without calibration rows"):
        equalised(p, y, g, slice(0, 400), unseen="refuse").predict_set_proba(p[:1], groups=["new"])


def test_too_few_rows():
    p, y, g = hard_and_easy(8, 9)
    m = EqualizedSetSize(label_score="lac")
    with pytest.warns(
        AssayWarning, match=r"2 of 2 groups have fewer than 20 reference rows \(easy \d, hard \d\)"
    ):
        m.calibrate_proba(p, y, groups=g)
    with pytest.warns(InfiniteSetWarning, match=r"8 calibration rows at alpha 0\.1: at least 9"):
        assert m.predict_set_proba(p, groups=g).all()
    with pytest.raises(DataError, match="1 calibration row: reference='split' needs at least two"):
        EqualizedSetSize(reference="split").calibrate_proba(p[:1], y[:1], classes=range(4), groups=g[:1])
    with pytest.raises(DataError, match="there are 0 reference rows"):
        EqualizedSetSize(reference=(p[:0], g[:0])).calibrate_proba(p, y, groups=g)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"criterion": "log"}, MethodError, "criterion must be 'mean_size' or 'singleton', got 'log'"),
        ({"shrinkage": 1.5}, MethodError, r"shrinkage must lie in \[0, 1\], got 1.5"),
        ({"reference": "train"}, MethodError, "reference must be 'calibration', 'split' or a pair .*'train'"),
        ({"reference": ([], [], [])}, MethodError, "reference must be .* got a tuple"),
        ({"reference": np.ones((2, 4))}, MethodError, "reference must be .* got a ndarray"),
        ({"unseen": "no"}, MethodError, "unseen must be one of"),
        ({"reference": (np.ones((3, 4)), [0, 1, 0])}, DataError, "the row sums to 4 instead of 1"),
        ({"reference": (np.ones((3, 4)) / 4, [0, 1])}, DataError, "groups of reference has 2 rows, 3 are"),
    ],
)
def test_bad_arguments(arguments, error, message):
    p, y, g = hard_and_easy(60, 10)
    with pytest.raises(error, match=message):
        EqualizedSetSize(**arguments).calibrate_proba(p, y, groups=g)


def test_randomised_scores_of_the_paper():
    p, y, g = hard_and_easy(4000, 11)
    m = equalised(p, y, g, slice(0, 2000), label_score="raps", randomised=True, random_state=3)
    sets = m.predict_set_proba(p[2000:], groups=g[2000:])
    raps = RAPSClassifier(randomised=True, random_state=3).calibrate_proba(p[:2000], y[:2000])
    assert gaps(sets, y[2000:], g[2000:])[1] < gaps(raps.predict_set_proba(p[2000:]), y[2000:], g[2000:])[1]
    # one u a row: no label is passed over for a less likely one
    order = np.argsort(-p[2000:], axis=1)
    ranked = np.take_along_axis(sets, order, axis=1).astype(int)
    assert (np.diff(ranked, axis=1) <= 0).all()
