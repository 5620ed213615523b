"""Has coverage drifted? Exact tests that are right about both answers."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import assay
from assay.core.errors import DataError
from assay.data import builtin
from assay.engine.coverage import check, evidence, two_sided

TENTH = Fraction(1, 10)


def test_p_values_are_the_exact_ones():
    assert two_sided(90, 100, TENTH) == pytest.approx(1.0)
    expected = 2 * stats.binom(100, 0.9).cdf(80)
    assert two_sided(80, 100, TENTH) == pytest.approx(expected, rel=1e-9)
    law = stats.betabinom(50, 90, 10)  # 99 calibration rows: rank 90
    assert two_sided(38, 50, TENTH, 99) == pytest.approx(2 * law.cdf(38), rel=1e-9)
    assert two_sided(5, 5, TENTH, 3) == 1.0
    assert two_sided(4, 5, TENTH, 3) == 0.0


def test_the_p_value_is_valid_where_nothing_has_drifted():
    """Split conformal on exchangeable scores: a p-value below .05 comes in at most 5 % of the draws."""
    rng = np.random.default_rng(0)
    n, m, draws = 60, 80, 4000
    scores = rng.random((draws, n + m))
    rank = 55  # ceil(.9 * 61)
    q = np.sort(scores[:, :n], axis=1)[:, rank - 1 : rank]
    covered = (scores[:, n:] <= q).sum(axis=1)
    p = np.array([two_sided(k, m, TENTH, n) for k in range(m + 1)])[covered]
    assert (p <= 0.05).mean() <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / draws)
    binomial = np.array([two_sided(k, m, TENTH) for k in range(m + 1)])[covered]
    assert (binomial <= 0.05).mean() > 0.08  # would call a calm method drifted far too often


@pytest.mark.parametrize("n_calib", [0, 60, 3])
def test_the_evidence_is_a_martingale_where_nothing_has_drifted(n_calib):
    """Exactly: its mean after one more row, by the law of that row, is what it was."""
    for n in range(12):
        for k in range(n + 1):
            if n_calib == 0:
                chance = 0.9
            elif n_calib == 3:  # sets are everything: all rows are covered
                if k < n:
                    continue
                chance = 1.0
            else:  # rank 55 of 60
                chance = (55 + k) / (61 + n)
            after = chance * evidence(k + 1, n + 1, TENTH, n_calib)
            if chance < 1:
                after += (1 - chance) * evidence(k, n + 1, TENTH, n_calib)
            assert after == pytest.approx(evidence(k, n, TENTH, n_calib), rel=1e-9)
    assert evidence(0, 0, TENTH, n_calib) == 1.0


def test_whoever_looks_after_every_row_is_rarely_misled():
    """Calm methods, looked at after each row: the evidence reaches 1 / level in a share of the level."""
    rng = np.random.default_rng(0)
    n_calib, rows, draws, level = 99, 300, 300, 0.05
    reach = rng.beta(90, 10, size=(draws, 1))
    covered = (rng.random((draws, rows)) < reach).cumsum(axis=1)
    evidences = np.array(
        [[evidence(k, n, TENTH, n_calib) for n, k in enumerate(draw, start=1)] for draw in covered.tolist()]
    )
    assert (evidences.max(axis=1) >= 1 / level).mean() <= level + 3 * np.sqrt(level * (1 - level) / draws)
    assert evidence(140, 200, TENTH, n_calib) > 1 / level  # 70 % of 200 rows


@pytest.fixture(scope="module")
def fitted():
    return assay.fit(_rows(0, 600), "y", method="split", name="rows")


def _rows(seed, n, spread=1.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    frame = pd.DataFrame(X, columns=["a", "b"])
    frame["side"] = np.where(X[:, 1] > 0, "right", "left")
    frame["y"] = X[:, 0] + spread * rng.normal(size=n) * np.where(X[:, 1] > 0, 1.5, 0.5)
    return frame


def test_calm_rows_are_as_promised_and_drifted_ones_are_not(fitted):
    calm = check(fitted, _rows(1, 800))
    assert not calm.drifted
    assert calm.n_calib == 200
    wild = check(fitted, _rows(1, 800, spread=2.0))
    assert wild.drifted
    assert wild.parts[0].verdict == "below"
    tame = check(fitted, _rows(1, 800, spread=0.2))
    assert tame.parts[0].verdict == "above"


def test_groups_say_where_to_look(fitted):
    found = check(fitted, _rows(2, 2000), group="side").table().set_index("name")
    assert found.loc["side left", "verdict"] == "above"
    assert found.loc["side right", "verdict"] == "below"
    assert found.loc["all rows", "covered"] == found.loc[["side left", "side right"], "covered"].sum()
    assert (found["adjusted"] >= found["p"]).all()


def test_a_part_that_is_all_rows_is_not_said_twice():
    fitted = assay.fit("digits", method="lac", alpha=0.1)  # sets of one label or none
    rows = builtin.load("digits").frame
    found = check(fitted, rows.assign(pixel_0_2=rows["pixel_0_2"] + 1))
    assert [part.kind for part in found.parts] == ["all"]


def test_training_rows_are_left_out(fitted):
    mixed = pd.concat([_rows(0, 600), _rows(3, 50)])
    found = check(fitted, mixed)
    assert found.parts[0].rows == 50
    assert any("600 rows that it was fitted on, left out" in line for line in found.notices)
    with pytest.raises(DataError, match="no new row"):
        check(fitted, _rows(0, 600))


def test_rows_without_outcome_are_left_out_and_text_is_refused(fitted):
    rows = _rows(4, 60)
    rows.loc[:9, "y"] = np.nan
    assert check(fitted, rows).parts[0].rows == 50
    with pytest.raises(DataError, match="target 'y' is not among the columns"):
        check(fitted, rows.drop(columns="y"))
    with pytest.raises(DataError, match="'y' was numbers in training"):
        check(fitted, rows.assign(y="much"))
    with pytest.raises(DataError, match="no column 'x' to group by"):
        check(fitted, rows, group="x")


def test_label_sets_and_labels_never_seen():
    rows = _rows(5, 600).assign(kind=lambda f: np.where(f["y"] > 0, "p", "n")).drop(columns="y")
    fitted = assay.fit(rows, "kind", method="lac")
    new = _rows(6, 300).assign(kind=lambda f: np.where(f["y"] > 0, "p", "n")).drop(columns="y")
    assert not check(fitted, new).drifted
    strange = check(fitted, new.assign(kind="other"))
    assert strange.parts[0].covered == 0


def test_groups_that_say_nothing_are_seldom_called_drifted():
    """Groups drawn by lot, 60 calibrations of 99 rows: binomial tests called 6 of 10 of them drifted."""
    rng = np.random.default_rng(0)
    called = 0
    for _ in range(60):
        kept = np.sort(rng.random(99))[89]
        p = np.array([two_sided(int((rng.random(700) <= kept).sum()), 700, TENTH, 99) for _ in range(3)])
        called += bool((3 * p <= 0.05).any())
    assert called <= 9


def test_small_p_values_keep_their_size_on_both_sides():
    for k, n, n_calib in ((100_000, 100_000, 0), (99_500, 100_000, 20_000), (80_000, 100_000, 20_000)):
        assert 0 <= two_sided(k, n, TENTH, n_calib) < 1e-30
    law = stats.betabinom(500, 900, 100)
    assert two_sided(495, 500, TENTH, 999) == pytest.approx(2 * law.pmf(range(495, 501)).sum(), rel=1e-9)
    assert two_sided(0, 10, TENTH) == pytest.approx(2e-10, rel=1e-6)


def test_groups_calibrated_apart_have_their_own_number():
    rows = _rows(5, 900).assign(kind=lambda f: np.where(f["y"] > 0, "p", "n")).drop(columns="y")
    fitted = assay.fit(rows, "kind", method="mondrian", group="side")
    assert sum(fitted.about["calib_by_group"].values()) == fitted.about["n_calib"]
    assert set(fitted.about["calib_by_group"]) == {"left", "right"}


@pytest.mark.parametrize("cell", ["NA", "", 1e200])
def test_an_outcome_that_turns_out_to_be_missing_is_not_missed(fitted, cell):
    rows = _rows(4, 40).astype({"y": object})
    rows.loc[:9, "y"] = cell
    found = check(fitted, rows)
    assert found.parts[0].rows == 30
    assert any("10 rows without an outcome, left out" in line for line in found.notices)
