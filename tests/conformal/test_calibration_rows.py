"""Calibration rows beside the training rows: both the table and its targets, or neither."""

import inspect

import numpy as np
import pytest

from assay.conformal.mondrian import MondrianConformal
from assay.core.cards import all_cards
from assay.core.errors import DataError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 3))
LABELS = (X[:, 0] > 0).astype(int)
TARGETS = {"region": X[:, :2] + 1, "label-set": LABELS, "attack": LABELS, "poisoning": LABELS}


def takes_calibration_rows(card):
    fit = None if card.missing else getattr(card.load(), "fit", None)
    return fit is not None and "y_calib" in inspect.signature(fit).parameters


CARDS = [card for card in all_cards().values() if takes_calibration_rows(card)]


@pytest.mark.parametrize("card", CARDS, ids=lambda card: card.id)
def test_one_of_the_two_is_refused(card):
    y = TARGETS.get(card.task, X[:, 0])
    method = card.load()(**{**card.defaults, **card.testing})
    with pytest.raises(DataError, match="y_calib is given without X_calib"):
        method.fit(X, y, y_calib=y)
    with pytest.raises(DataError, match="X_calib is given without y_calib"):
        method.fit(X, y, X_calib=X + 1)


def test_all_that_calibrate_are_here():
    assert len(CARDS) > 40
    assert {card.task for card in CARDS} >= {"interval", "region", "label-set", "attack", "poisoning"}


def test_groups_of_no_calibration_rows():
    groups = np.resize(["a", "b"], 60)
    with pytest.raises(DataError, match="groups_calib are given without X_calib"):
        MondrianConformal().fit(X, LABELS, groups=groups, groups_calib=groups)
