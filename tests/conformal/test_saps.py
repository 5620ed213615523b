"""SAPS: one rule in calibration and prediction, and what the weight does."""

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from assay.conformal import SAPSClassifier


@parametrize_with_checks([SAPSClassifier()])
def test_scikit_learn_contract(estimator, check):
    check(estimator)


def test_top_label_scores_its_probability_in_calibration_too():
    # 19 confident rows, all right: q is the 18th smallest top probability
    tops = np.arange(1, 20) / 40 + 0.5
    p = np.stack([tops, (1 - tops) * 0.75, (1 - tops) * 0.25], axis=1)
    m = SAPSClassifier(alpha=0.1).calibrate_proba(p, np.zeros(19, int), classes=range(3))
    np.testing.assert_allclose(m.calibrator_.scores, tops)
    sets = m.predict_set_proba([[0.95, 0.03, 0.02], [0.96, 0.02, 0.02], [0.54, 0.31, 0.15]])
    assert sets.tolist() == [[True, False, False], [False, False, False], [True, True, True]]


def test_only_the_top_probability_and_the_order_count():
    rng = np.random.default_rng(0)
    p = np.sort(rng.dirichlet(np.ones(5), size=200), axis=1)[:, ::-1]
    y = rng.integers(5, size=200)
    m = SAPSClassifier().calibrate_proba(p, y)
    flat = p.copy()
    flat[:, 1:] = (1 - p[:, :1]) / 4
    rows = flat[:, 1] < p[:, 0]
    np.testing.assert_array_equal(m.predict_set_proba(flat[rows]), m.predict_set_proba(p[rows]))


def test_weight_is_checked():
    with pytest.raises(ValueError, match="weight must"):
        SAPSClassifier(weight=-0.1).calibrate_proba([[0.5, 0.5]], [0])
