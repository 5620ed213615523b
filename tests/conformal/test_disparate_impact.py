"""Disparate impact of decisions: gains, their bootstrap, odds ratios by GEE, and separation."""

import sys

import numpy as np
import pandas as pd
import pytest

from assay.conformal.disparate_impact import DisparateImpact
from assay.core.errors import AssayWarning, DataError, MethodError, MissingDependency


def decisions(cells, participants=10):
    """Decisions with (right, wrong) counts for each (treatment, group), dealt out to participants."""
    rows = [
        (treatment, group, correct)
        for (treatment, group), (right, wrong) in cells.items()
        for correct in [1] * right + [0] * wrong
    ]
    frame = pd.DataFrame(rows, columns=["treatment", "group", "correct"])
    frame["participant"] = frame["treatment"] + (frame.groupby("treatment").cumcount() % participants).astype(
        str
    )
    return frame.assign(item=np.arange(len(frame)) % 7)


GAIN = {
    ("control", "a"): (50, 50),
    ("control", "b"): (60, 40),
    ("sets", "a"): (70, 30),
    ("sets", "b"): (65, 35),
}
CROSS = {
    ("control", "a"): (20, 30),
    ("control", "b"): (25, 25),
    ("sets", "a"): (30, 20),
    ("sets", "b"): (25, 25),
}


def simulated(seed, n=600, items=20):
    rng = np.random.default_rng(seed)
    participant = np.repeat(np.arange(n), items)
    treated, group = participant % 2, rng.integers(2, size=n * items)
    log_odds = -0.2 + 0.8 * treated + 0.3 * group - 0.5 * treated * group
    return pd.DataFrame(
        {
            "participant": participant,
            "treatment": np.where(treated, "a-treatment", "control"),  # before control in the alphabet
            "item": np.tile(np.arange(items), n),
            "group": np.where(group, "b", "a"),
            "correct": rng.random(n * items) < 1 / (1 + np.exp(-log_odds)),
            "difficulty": rng.normal(size=n * items),
            "kind": rng.choice(["x", "y", "z"], size=n * items),
        }
    )


def test_gains_by_hand():
    found = DisparateImpact(decisions(GAIN)).delta(n_bootstrap=0).loc["sets"]
    assert found["delta_a"] == pytest.approx(0.2)
    assert found["delta_b"] == pytest.approx(0.05)
    assert found["disparate_impact"] == pytest.approx(0.15)
    assert (found["helped_most"], found["helped_least"]) == ("a", "b")
    assert np.isnan([found["low"], found["high"], found["low_a"]]).all()


def test_several_treatments_and_groups():
    cells = {
        ("control", "a"): (50, 50), ("control", "b"): (50, 50), ("control", "c"): (50, 50),
        ("x", "a"): (60, 40), ("x", "b"): (40, 60), ("x", "c"): (55, 45),
        ("y", "a"): (50, 50), ("y", "b"): (50, 50), ("y", "c"): (50, 50),
    }  # fmt: skip
    frame = decisions(cells).assign(participant=lambda d: d["treatment"] + (d.index % 17).astype(str))
    found = DisparateImpact(frame.sample(frac=1, random_state=0)).delta(n_bootstrap=50)
    assert found.index.tolist() == ["x", "y"]
    assert found["disparate_impact"].tolist() == pytest.approx([0.2, 0.0])
    assert (found["low"] >= 0).all()
    assert found.loc["y", "high"] > 0  # by chance alone


def test_the_bootstrap_keeps_the_decisions_of_a_participant_together():
    # each participant decides always alike: 200 copies of a decision are no more than one
    frame = decisions(GAIN, participants=400)
    copies = pd.concat([frame] * 50, ignore_index=True)
    once, many = (DisparateImpact(data).delta(random_state=3).loc["sets"] for data in (frame, copies))
    np.testing.assert_allclose(once.drop(["helped_most", "helped_least"]).astype(float),
                               many.drop(["helped_most", "helped_least"]).astype(float))  # fmt: skip
    width = once["high_a"] - once["low_a"]
    assert width == pytest.approx(2 * 1.96 * np.sqrt((0.5 * 0.5 + 0.7 * 0.3) / 100), rel=0.15)
    again = DisparateImpact(frame).delta(random_state=3).loc["sets"]
    assert again["low"] == once["low"]
    assert DisparateImpact(frame).delta(random_state=4).loc["sets", "low_a"] != once["low_a"]


def test_draws_with_an_empty_cell_are_counted():
    cells = {("control", "a"): (5, 5), ("control", "b"): (5, 5), ("sets", "a"): (5, 5), ("sets", "b"): (1, 0)}
    with pytest.warns(
        AssayWarning, match=r"\d+ of 200 draws of participants leave a group without decisions"
    ):
        DisparateImpact(decisions(cells)).delta(n_bootstrap=200)


def test_odds_ratios_of_a_saturated_table_are_the_cross_products():
    pytest.importorskip("statsmodels")
    audit = DisparateImpact(decisions(CROSS, participants=25))
    found = audit.odds_ratios()
    assert found.index.tolist() == [("sets", "a"), ("sets", "b")]
    # the exchangeable correlation weighs clusters unequally: near, and exact where each is one decision
    assert found.loc[("sets", "a"), "odds_ratio"] == pytest.approx(2.25, rel=0.05)
    single = decisions(CROSS).assign(participant=np.arange(200))
    found = DisparateImpact(single).odds_ratios()
    assert found["odds_ratio"].tolist() == pytest.approx([2.25, 1.0], rel=1e-6)
    assert found.loc[("sets", "a"), "robust_se"] == pytest.approx(
        np.sqrt(1 / 30 + 1 / 20 + 1 / 20 + 1 / 30), rel=1e-3
    )
    most = DisparateImpact(single).max_ror().loc["sets"]
    assert most["max_ror"] == pytest.approx(2.25, rel=1e-6)
    assert (most["helped_most"], most["helped_least"]) == ("a", "b")
    assert most["low"] < 2.25 < most["high"]


def test_known_odds_ratios_are_recovered():
    pytest.importorskip("statsmodels")
    audit = DisparateImpact(simulated(0))
    found = audit.odds_ratios()
    truth = {"a": 0.8, "b": 0.3}
    for group, value in truth.items():
        row = found.loc[("a-treatment", group)]
        assert abs(row["log_odds_ratio"] - value) < 3 * row["robust_se"]
        assert 0.04 < row["robust_se"] < 0.07
    most = audit.max_ror().loc["a-treatment"]
    error = np.log(most["high"] / most["low"]) / (2 * 1.96)
    assert abs(np.log(most["max_ror"]) - 0.5) < 3 * error


def test_it_is_the_model_with_an_interaction():
    sm = pytest.importorskip("statsmodels.api")
    import statsmodels.formula.api as smf

    data = simulated(1, n=120)
    found = DisparateImpact(data).odds_ratios("difficulty + kind")
    model = smf.gee(
        "correct ~ C(treatment, Treatment(reference='control')) * group + difficulty + kind",
        groups="participant",
        data=data.assign(correct=data["correct"].astype(int)),
        family=sm.families.Binomial(),
        cov_struct=sm.cov_struct.Exchangeable(),
    ).fit()
    effects = sorted((name for name in model.params.index if "T.a-treatment" in name), key=len)
    effect, interaction = effects
    expected = [model.params[effect], model.params[effect] + model.params[interaction]]
    np.testing.assert_allclose(found["log_odds_ratio"], expected, rtol=1e-4)
    assert found["robust_se"].iloc[0] == pytest.approx(model.bse[effect], rel=1e-3)
    same = DisparateImpact(data).odds_ratios(["difficulty", "kind"])
    pd.testing.assert_frame_equal(found, same)


def test_one_who_decides_on_every_item_is_clustered_by_item():
    pytest.importorskip("statsmodels")
    single = decisions(CROSS).assign(participant="model")
    with pytest.raises(DataError, match="all decisions belong to one participant; take cluster='item'"):
        DisparateImpact(single).odds_ratios()
    assert np.isfinite(DisparateImpact(single).odds_ratios(cluster="item").to_numpy()).all()


@pytest.mark.parametrize(
    ("cell", "counts", "ratio"),
    [
        (("sets", "a"), (50, 0), np.inf),
        (("sets", "a"), (0, 50), 0.0),
        (("control", "a"), (50, 0), 0.0),
        (("control", "a"), (0, 50), np.inf),
    ],
)
def test_separation_is_named_and_has_no_interval(cell, counts, ratio):
    pytest.importorskip("statsmodels")
    audit = DisparateImpact(decisions({**CROSS, cell: counts}))
    right = "right" if counts[0] else "wrong"
    with pytest.warns(AssayWarning, match=rf"1 of 4 pairs .*: a under {cell[0]} \(all {right}\)"):
        found = audit.odds_ratios()
    assert found.loc[("sets", "a"), "odds_ratio"] == ratio
    assert np.isnan(found.loc[("sets", "a"), "robust_se"])
    assert found.loc[("sets", "b"), "odds_ratio"] == pytest.approx(1.0, abs=0.1)
    with pytest.warns(AssayWarning):
        assert audit.max_ror().loc["sets", "max_ror"] == np.inf


def test_both_separated_is_undefined():
    pytest.importorskip("statsmodels")
    audit = DisparateImpact(decisions({**CROSS, ("sets", "a"): (50, 0), ("control", "a"): (50, 0)}))
    with pytest.warns(AssayWarning, match="2 of 4 pairs"):
        assert np.isnan(audit.odds_ratios().loc[("sets", "a"), "odds_ratio"])
    with pytest.warns(AssayWarning):
        assert np.isnan(audit.max_ror().loc["sets", "max_ror"])


def test_a_covariate_that_separates():
    pytest.importorskip("statsmodels")
    data = decisions(CROSS)
    with pytest.warns(AssayWarning, match="not reliable"):
        DisparateImpact(data.assign(leak=data["correct"] * 2.0)).odds_ratios("leak")
    with pytest.raises(DataError, match="rank 4: a covariate is constant"):
        DisparateImpact(data.assign(one=1.0)).odds_ratios("one")


def test_without_statsmodels(monkeypatch):
    monkeypatch.setitem(sys.modules, "statsmodels.api", None)
    monkeypatch.setitem(sys.modules, "statsmodels", None)
    with pytest.raises(MissingDependency, match=r"pip install 'assay\[audit\]'"):
        DisparateImpact(decisions(CROSS)).odds_ratios()
    assert len(DisparateImpact(decisions(CROSS)).delta(n_bootstrap=10)) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.drop(columns=["item", "group"]), "no column item, group; it needs participant"),
        (lambda d: d[:0], "decisions has no rows"),
        (lambda d: d.assign(group=d["group"].where(d.index != 3)), "group is missing in 1 of 200 .* row 3"),
        (lambda d: d.assign(correct=0.5), "correct is 0.5 in row 0"),
        (lambda d: d.assign(treatment="sets"), r"no decision has the treatment 'control'.*: sets"),
        (lambda d: d[d["treatment"] == "control"], r"1 treatment\(s\) and 2 group\(s\)"),
        (
            lambda d: d[(d["treatment"] == "control") | (d["group"] == "a")],
            "no decision on group b under sets; 1 of 4",
        ),
    ],
)
def test_bad_decisions(change, message):
    with pytest.raises(DataError, match=message):
        DisparateImpact(change(decisions(CROSS)))


def test_bad_arguments():
    audit = DisparateImpact(decisions(CROSS))
    with pytest.raises(MethodError, match="n_bootstrap must not be negative"):
        audit.delta(n_bootstrap=-1)
    pytest.importorskip("statsmodels")
    with pytest.raises(MethodError, match="cluster must be"):
        audit.odds_ratios(cluster="group")
    with pytest.raises(DataError, match="no column 'hardness'"):
        audit.odds_ratios("hardness")
