"""The report of label sets by group."""

import numpy as np
import pandas as pd
import pytest
from groups_sample import hard_and_easy

from assay.conformal import LACClassifier
from assay.conformal.set_fairness import set_fairness_report
from assay.core.errors import DataError

SETS = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0], [1, 1, 1], [0, 0, 1]], dtype=bool)
Y = np.array([0, 2, 1, 1, 2])
GROUPS = np.array(["b", "b", "a", "b", "a"])


def test_a_small_case_by_hand():
    proba = np.array([[0.8, 0.1, 0.1], [0.5, 0.3, 0.2], [0.4, 0.5, 0.1], [0.6, 0.3, 0.1], [0.1, 0.2, 0.7]])
    found = set_fairness_report(SETS, Y, GROUPS, proba=proba)
    expected = pd.DataFrame(
        {
            "rows": [2, 3, 5, 1],
            "coverage": [0.5, 2 / 3, 0.6, 1 / 6],
            "mean_size": [0.5, 2.0, 1.4, 1.5],
            "share_singleton": [0.5, 1 / 3, 0.4, 1 / 6],
            "top1_accuracy": [1.0, 1 / 3, 0.6, 2 / 3],
        },
        index=pd.Index(["a", "b", "(all)", "(gap)"], dtype=object, name="group"),
    )
    pd.testing.assert_frame_equal(found, expected)


def test_both_gaps_are_there_with_and_without_probabilities():
    found = set_fairness_report(SETS, Y, GROUPS)
    assert list(found.columns) == ["rows", "coverage", "mean_size", "share_singleton"]
    assert not found.loc["(gap)"].isna().any()


def test_labels_and_groups_of_other_kinds():
    names = np.array(["x", "y", "z"])
    by_number = set_fairness_report(SETS, Y, GROUPS)
    by_name = set_fairness_report(SETS.tolist(), names[Y].tolist(), [*GROUPS], classes=["x", "y", "z"])
    pd.testing.assert_frame_equal(by_number, by_name)
    turned = set_fairness_report(SETS[:, ::-1], names[Y], GROUPS == "b", classes=["z", "y", "x"])
    assert turned.index.tolist() == [False, True, "(all)", "(gap)"]
    np.testing.assert_allclose(turned.to_numpy(float), by_number.to_numpy(float))


def test_it_agrees_with_a_loop():
    p, y, g = hard_and_easy(900, 0)
    sets = LACClassifier().calibrate_proba(p[:300], y[:300]).predict_set_proba(p[300:])
    found = set_fairness_report(sets, y[300:], g[300:], proba=p[300:])
    for name in ("easy", "hard"):
        rows = [i for i in range(600) if g[300 + i] == name]
        assert found.loc[name, "rows"] == len(rows)
        assert found.loc[name, "coverage"] == pytest.approx(np.mean([sets[i, y[300 + i]] for i in rows]))
        assert found.loc[name, "mean_size"] == pytest.approx(np.mean([sets[i].sum() for i in rows]))
        right = [p[300 + i].argmax() == y[300 + i] for i in rows]
        assert found.loc[name, "top1_accuracy"] == pytest.approx(np.mean(right))


@pytest.mark.parametrize(
    ("sets", "y", "groups", "more", "message"),
    [
        (SETS[0], Y, GROUPS, {}, r"sets has shape \(3,\)"),
        (SETS * 2.0, Y, GROUPS, {}, "neither true nor false"),
        (SETS[:0], Y[:0], GROUPS[:0], {}, "0 rows"),
        (SETS, Y[:4], GROUPS, {}, "y has 4 rows, 5 are expected"),
        (SETS, Y, GROUPS[:4], {}, "groups has 4 rows, 5 are expected"),
        (SETS, Y, [None, *GROUPS[1:]], {}, "groups is missing, .* in 1 of 5 rows, first at row 0"),
        (SETS, Y + 1, GROUPS, {"classes": [0, 1, 2]}, "y holds 3 at row 1, which is none of the 3 classes"),
        (SETS, Y, GROUPS, {"proba": np.ones((5, 3))}, "sums to 3 instead of 1"),
        (SETS, Y, GROUPS, {"proba": np.ones((4, 3)) / 3}, "proba has 4 rows, 5 are expected"),
    ],
)
def test_bad_input(sets, y, groups, more, message):
    with pytest.raises(DataError, match=message):
        set_fairness_report(sets, y, groups, **more)
