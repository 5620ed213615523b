"""Mondrian conformal prediction: thresholds by group or label, and groups that calibration has not seen."""

import numpy as np
import pytest
from groups_sample import hard_and_easy
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import ClassConditionalClassifier, LACClassifier, MondrianConformal
from assay.core.errors import AssayWarning, DataError, InfiniteSetWarning, MethodError


@parametrize_with_checks([MondrianConformal(group="y")])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_every_group_is_covered_by_a_threshold_of_its_own():
    p, y, g = hard_and_easy(3000, 0)
    calib, test = slice(0, 1500), slice(1500, None)
    m = MondrianConformal().calibrate_proba(p[calib], y[calib], groups=g[calib])
    sets = m.predict_set_proba(p[test], groups=g[test])
    for name in ("easy", "hard"):
        mine, theirs = g[calib] == name, g[test] == name
        alone = LACClassifier().calibrate_proba(p[calib][mine], y[calib][mine])
        np.testing.assert_array_equal(sets[theirs], alone.predict_set_proba(p[test][theirs]))


def test_of_two_hundred_calibrations_the_groups_cover_nine_tenths():
    covered = []
    for seed in range(200):
        p, y, g = hard_and_easy(400, seed)
        m = MondrianConformal().calibrate_proba(p[:200], y[:200], groups=g[:200])
        hit = m.predict_set_proba(p[200:], groups=g[200:])[np.arange(200), y[200:]]
        covered.append([hit[g[200:] == name].mean() for name in ("easy", "hard")])
    mean = np.mean(covered, axis=0)
    assert (mean > 0.893).all()
    assert (mean < 0.918).all()  # at most 0.9 + 1 / (n_g + 1), and chance


def test_small_groups_get_all_labels_and_the_warning_counts_them():
    p, y, _ = hard_and_easy(60, 1)
    g = np.repeat(["many", "eight", "nine"], [43, 8, 9])
    m = MondrianConformal().calibrate_proba(p, y, groups=g)
    with pytest.warns(InfiniteSetWarning, match=r"1 of 3 groups have too few .* alpha 0\.1 \(9 are needed\)"):
        sets = m.predict_set_proba(p, groups=g)
    assert sets[g == "eight"].all()
    assert not sets[g == "nine"].all()


@pytest.mark.parametrize(("unseen", "category"), [("all", InfiniteSetWarning), ("marginal", AssayWarning)])
def test_a_group_without_calibration_rows(unseen, category):
    p, y, g = hard_and_easy(400, 2)
    m = MondrianConformal(unseen=unseen).calibrate_proba(p, y, groups=g)
    asked = np.array(["easy", "new", "hard", "new"])
    with pytest.warns(category, match="2 of 4 rows are of a group without calibration rows, first at row 1"):
        sets = m.predict_set_proba(p[:4], groups=asked)
    if unseen == "all":
        assert sets[[1, 3]].all()
    else:
        marginal = LACClassifier().calibrate_proba(p, y).predict_set_proba(p[:4])
        np.testing.assert_array_equal(sets[[1, 3]], marginal[[1, 3]])
        assert not sets[[1, 3]].all()


def test_a_group_without_calibration_rows_can_be_refused():
    p, y, g = hard_and_easy(400, 2)
    m = MondrianConformal(unseen="refuse").calibrate_proba(p, y, groups=g)
    with pytest.raises(
        DataError, match=r"holds 'new' at row 1, .*: 'easy', 'hard'\); 2 of 3 rows .*'marginal'"
    ):
        m.predict_set_proba(p[:3], groups=["easy", "new", "other"])
    assert m.predict_set_proba(p[:2], groups=["easy", "hard"]).shape == (2, 4)


def test_by_label_it_is_the_class_conditional_method():
    p, y, g = hard_and_easy(600, 3)
    m = MondrianConformal(group="y").calibrate_proba(p[:300], y[:300], groups=g[:300])
    other = ClassConditionalClassifier().calibrate_proba(p[:300], y[:300])
    np.testing.assert_array_equal(
        m.predict_set_proba(p[300:], groups=g[300:]), other.predict_set_proba(p[300:])
    )


def test_a_class_without_calibration_rows():
    p, y, _ = hard_and_easy(600, 4)
    p, y = p[y != 2], y[y != 2]
    m = MondrianConformal(group="y").calibrate_proba(p, y)
    with pytest.warns(InfiniteSetWarning, match="1 of 4 classes have too few calibration rows"):
        assert m.predict_set_proba(p[:20])[:, 2].all()
    m = MondrianConformal(group="y", unseen="marginal").calibrate_proba(p, y)
    with pytest.warns(AssayWarning, match="1 of 4 classes have no calibration rows.*all classes together"):
        sets = m.predict_set_proba(p[:50])
    marginal = LACClassifier().calibrate_proba(p, y).predict_set_proba(p[:50])
    np.testing.assert_array_equal(sets[:, 2], marginal[:, 2])
    with pytest.raises(DataError, match=r"1 of 4 classes have no calibration rows, .* column 2"):
        MondrianConformal(group="y", unseen="refuse").calibrate_proba(p, y)


def test_a_single_group_is_the_marginal_method():
    p, y, _ = hard_and_easy(400, 5)
    one = MondrianConformal().calibrate_proba(p[:200], y[:200], groups=["all"] * 200)
    marginal = LACClassifier().calibrate_proba(p[:200], y[:200]).predict_set_proba(p[200:])
    np.testing.assert_array_equal(one.predict_set_proba(p[200:], groups=["all"] * 200), marginal)
    with pytest.warns(AssayWarning, match="no groups were given: all rows are one group"):
        none = MondrianConformal().calibrate_proba(p[:200], y[:200])
    np.testing.assert_array_equal(none.predict_set_proba(p[200:]), marginal)


@pytest.mark.parametrize("apart", [True, False])
def test_groups_go_through_fit_with_their_rows(apart):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = (X[:, 0] + rng.normal(size=600) > 0).astype(int)
    g = np.where(X[:, 1] > 0, "up", "down")
    m = MondrianConformal(LogisticRegression(), random_state=0)
    if apart:
        m.fit(X[:200], y[:200], X_calib=X[200:400], y_calib=y[200:400], groups_calib=g[200:400])
        counted = g[200:400]
    else:
        m.fit(X[:400], y[:400], groups=g[:400])
        counted = g[:400]
    names, counts = np.unique(counted, return_counts=True)
    held = np.bincount(m.calibrator_.codes)
    assert m.calibrator_.names.tolist() == names.tolist()
    if apart:
        assert held.tolist() == counts.tolist()
    else:
        assert held.sum() == 200
    assert m.predict_set(X[400:], groups=g[400:]).shape == (200, 2)
    again = MondrianConformal(m.estimator_).calibrate(X[200:400], y[200:400], groups=g[200:400])
    if apart:
        np.testing.assert_array_equal(
            again.predict_set(X[400:], groups=g[400:]), m.predict_set(X[400:], groups=g[400:])
        )


@pytest.mark.parametrize(
    ("arguments", "groups", "error", "message"),
    [
        ({"group": "sex"}, None, MethodError, "group must be 'groups' or 'y', got 'sex'"),
        ({"unseen": "warn"}, None, MethodError, "unseen must be one of 'all', 'marginal', 'refuse'"),
        ({}, ["a"] * 39, DataError, "groups has 39 rows, 40 are expected"),
        ({}, [None] + ["a"] * 39, DataError, "groups is missing, .* in 1 of 40 rows, first at row 0"),
        ({}, np.full((40, 2), 1), DataError, r"groups has shape \(40, 2\)"),
    ],
)
def test_bad_input(arguments, groups, error, message):
    p, y, _ = hard_and_easy(40, 6)
    with pytest.raises(error, match=message):
        MondrianConformal(**arguments).calibrate_proba(p, y, groups=groups)


def test_groups_are_asked_for_where_calibration_had_them():
    p, y, g = hard_and_easy(100, 7)
    m = MondrianConformal().calibrate_proba(p, y, groups=g)
    with pytest.raises(DataError, match="give the group of each row"):
        m.predict_set_proba(p)
