"""Claims: what a card may say, how a verdict is reached, what the ledger keeps."""

import dataclasses
import json

import numpy as np
import pytest

import assay
from assay.claims import api
from assay.claims.claim import Claim, claims_of, read_claim
from assay.claims.ledger import Ledger, Row, read, recorded
from assay.claims.verdict import judge
from assay.core.cards import Card, all_cards, get_card, import_object
from assay.core.errors import MethodError, StoreError
from assay.core.overlap import draws_own_splits, own_ratio
from assay.data.builtin import names
from assay.engine.stats import corrected_interval
from assay.tasks import get_task

RAW = {
    "id": "gap",
    "statement": "the gap is smaller",
    "where": "Table 1",
    "paper": "0.1 against 0.2",
    "check": "made_up_checks:steady",
    "metric": "gap",
    "method": "ours",
    "versus": "theirs",
    "better": "lower",
    "seeds": 6,
}


def card(*claims, path=""):
    return Card(
        id="toy",
        name="Toy",
        cls="x:Y",
        family="f",
        task="interval",
        role="paper",
        summary="",
        claims=claims,
        path=path,
    )


def claim(**changes):
    return read_claim(card(), {**RAW, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"better": "larger"}, "'lower' or 'higher', got 'larger'"),
        ({"unit": "metres"}, "unit must be"),
        ({"seeds": 1}, "at least 2"),
        ({"exact": True}, "an exact claim has a check, no dataset, and seeds = 1"),
        ({"exact": True, "seeds": 1, "dataset": "iris"}, "an exact claim has a check, no dataset"),
        ({"check": None}, "name a dataset, a check, or both"),
        ({"verdict": "holds"}, r"unknown keys \['verdict'\]"),
    ],
)
def test_ill_formed_claims_are_refused(changes, message):
    with pytest.raises(MethodError, match=message):
        claim(**changes)


def test_missing_keys_and_double_ids_are_named():
    with pytest.raises(MethodError, match=r"claim 'gap'.*missing keys \['versus'\]"):
        read_claim(card(), {key: value for key, value in RAW.items() if key != "versus"})
    with pytest.raises(MethodError, match="two claims have the id 'gap'"):
        claims_of(card(RAW, RAW))


def test_expectation_in_words():
    assert claim().expectation == "gap of ours is lower than theirs"
    assert claim(versus=0.9, better="higher", margin=-0.01).expectation == (
        "gap of ours is higher than 0.9, or at most 0.01 worse"
    )
    assert claim(margin=0.1).expectation.endswith("by at least 0.1")


GAINS = {
    "holds": [0.9, 1.0, 1.1, 1.0],
    "does not hold": [-0.9, -1.0, -1.1, -1.0],
    "undecided": [-1.0, 1.1, -0.9, 1.0],
}


@pytest.mark.parametrize("expected", GAINS)
@pytest.mark.parametrize("better", ["higher", "lower"])
def test_verdict_follows_the_side_of_the_interval(expected, better):
    sign = 1 if better == "higher" else -1
    ours = {seed: 5 + sign * gain for seed, gain in enumerate(GAINS[expected])}
    verdict = judge(claim(better=better), ours, dict.fromkeys(range(4), 5.0), ratio=0.0)
    assert verdict.outcome == expected
    low, high = corrected_interval(GAINS[expected], 0.0)
    assert (verdict.gain.low, verdict.gain.high) == pytest.approx((low, high))


def test_margin_moves_the_border():
    ours, versus = dict(enumerate([0.49, 0.5, 0.51, 0.5])), dict.fromkeys(range(4), 0.0)
    outcomes = {
        margin: judge(claim(better="higher", margin=margin), ours, versus, 0.0).outcome
        for margin in (-1.0, 0.0, 0.4, 0.5, 0.6)
    }
    assert outcomes == {
        -1.0: "holds",
        0.0: "holds",
        0.4: "holds",
        0.5: "undecided",
        0.6: "does not hold",
    }


@pytest.mark.parametrize("better", ["higher", "lower"])
def test_no_difference_at_all_is_not_a_better_one(better):
    same = dict.fromkeys(range(5), 0.25)
    assert judge(claim(better=better), same, dict(same), 0.5).outcome == "does not hold"
    assert judge(claim(better=better, margin=-0.01), same, dict(same), 0.5).outcome == "holds"
    assert judge(claim(better="higher", margin=0.25), same, dict.fromkeys(same, 0.0), 0.5).outcome == "holds"


@pytest.mark.parametrize(
    ("ours", "margin", "outcome"),
    [(0.9, 0.0, "holds"), (1.0, 0.0, "does not hold"), (1.1, 0.0, "does not hold"), (1.1, -0.2, "holds")],
)
def test_one_value_decides_where_nothing_is_random(ours, margin, outcome):
    exact = claim(seeds=1, exact=True, margin=margin)
    verdict = judge(exact, {0: ours}, {0: 1.0}, 0.0)
    assert verdict.outcome == outcome
    assert verdict.gain.low == verdict.gain.high == pytest.approx(1.0 - ours)
    assert judge(exact, {0: ours}, {0: 1.0}, 0.0, failures=1).outcome == "undecided"
    assert judge(exact, {0: np.nan}, {0: 1.0}, 0.0).outcome == "undecided"
    assert judge(exact, {0: np.inf}, {0: 1.0}, 0.0).outcome == "undecided"


def test_a_check_without_its_data_is_skipped(monkeypatch):
    (row,) = verified(monkeypatch, {**RAW, "check": "made_up_checks:without_data"})
    assert (row.verdict, row.reason) == ("skipped", "the folder of data is not there")


def test_seeds_that_only_one_side_or_nobody_has_leave_it_undecided():
    ours, versus = dict.fromkeys(range(6), 1.0), dict.fromkeys(range(4), 0.0)
    for one, other in [(ours, versus), (versus, ours)]:
        verdict = judge(claim(better="higher"), one, other, 0.0)
        assert (verdict.outcome, verdict.reason) == ("undecided", "no value on 2 of 6 seeds")
    verdict = judge(claim(better="higher"), ours, dict.fromkeys(ours, 0.0), 0.0, seeds=range(8))
    assert (verdict.outcome, verdict.reason) == ("undecided", "no value on 2 of 8 seeds")


def test_a_check_that_says_nothing_on_one_seed_is_not_judged_on_the_others(monkeypatch):
    (row,) = verified(monkeypatch, {**RAW, "check": "made_up_checks:silent_once"})
    assert (row.verdict, row.reason, row.seeds) == ("undecided", "no value on 1 of 6 seeds", 5)


def test_overlapping_splits_are_judged_more_carefully():
    ours = dict(enumerate([0.2, 1.4, 0.9, 0.3, 1.1, 0.6]))
    versus = dict.fromkeys(ours, 0.0)
    assert judge(claim(better="higher"), ours, versus, ratio=0.0).outcome == "holds"
    assert judge(claim(better="higher"), ours, versus, ratio=2.0).outcome == "undecided"


@pytest.mark.parametrize(
    ("ours", "failures", "reason"),
    [
        ([1.0, 1.0, 1.0], 2, "2 trials did not finish"),
        ([1.0, np.nan, 1.0], 0, "no value on 1 of 3 seeds"),
        ([1.0, np.inf, 1.0], 0, "infinite values"),
        ([1.0], 0, "too few seeds"),
        ([], 0, "nothing was measured as gap"),
    ],
)
def test_gaps_in_the_evidence_leave_it_undecided(ours, failures, reason):
    verdict = judge(
        claim(better="higher"), dict(enumerate(ours)), dict.fromkeys(range(len(ours)), 0.0), 0.0, failures
    )
    assert (verdict.outcome, verdict.reason) == ("undecided", reason)


def verified(monkeypatch, *claims, **options):
    monkeypatch.syspath_prepend(__file__.rpartition("/")[0])
    toy = card(*claims)
    monkeypatch.setattr(api, "select", lambda methods: list(claims_of(toy)))
    # the methods of these claims have no cards
    monkeypatch.setattr("assay.claims.measure.all_cards", dict)
    return assay.verify(**options)


def test_checks_are_run_once_for_all_their_claims(monkeypatch):
    events = []
    bound = {**RAW, "id": "cover", "metric": "cover", "versus": 0.8, "better": "higher"}
    ledger = verified(monkeypatch, RAW, bound, progress=events.append, command="assay verify toy")
    assert [event.done for event in events] == [1, 2, 3, 4, 5, 6, 6]
    assert {event.total for event in events} == {6}
    assert [row.claim for row in events[-1].rows] == ["toy/gap", "toy/cover"]
    gap, cover = ledger
    assert (gap.verdict, cover.verdict) == ("holds", "holds")
    assert gap.ours == pytest.approx(0.105)
    assert gap.baseline == pytest.approx(0.21)
    assert gap.gain == pytest.approx(0.105)
    assert gap.low < gap.gain < gap.high
    assert cover.versus == "0.8"
    assert gap.per_seed["1"] == pytest.approx({"ours": 0.11, "baseline": 0.22})
    assert gap.seeds == 6
    assert gap.command == "assay verify toy"
    assert gap.versions["assay"] == assay.__version__


def test_fewer_seeds_may_be_asked_for(monkeypatch):
    (row,) = verified(monkeypatch, {**RAW, "check": "made_up_checks:noisy"}, seeds=[0, 1, 5])
    assert row.seeds == 3
    assert set(row.per_seed) == {"0", "1", "5"}
    assert row.verdict == "undecided"


def test_a_failed_repetition_is_said(monkeypatch):
    (row,) = verified(monkeypatch, {**RAW, "check": "made_up_checks:fails_once"})
    assert row.verdict == "undecided"
    assert row.reason == "1 trials did not finish; seed 2: RuntimeError: no luck with this one"
    assert row.seeds == 5


def test_claims_without_their_data_and_long_ones_are_skipped(monkeypatch, tmp_path):
    ledger = verified(
        monkeypatch,
        {**RAW, "id": "absent", "dataset": "bike"},
        {**RAW, "id": "long", "long": True},
        data=tmp_path,
    )
    assert [row.verdict for row in ledger] == ["skipped", "skipped"]
    assert "bike needs" in ledger[0].reason
    assert "long" in ledger[1].reason
    assert ledger[0].ours is None


def test_a_check_reads_the_folder_that_verify_is_given(monkeypatch, tmp_path):
    (tmp_path / "gap.txt").write_text("0.25")
    (one,) = verified(monkeypatch, {**RAW, "check": "made_up_checks:reads_a_folder"}, data=tmp_path)
    assert one.ours == pytest.approx(0.275)
    (none,) = verified(monkeypatch, {**RAW, "check": "made_up_checks:reads_a_folder"})
    assert none.verdict == "skipped"


def test_a_check_on_data_gets_the_split_of_the_task(monkeypatch):
    raw = {**RAW, "dataset": "diabetes", "check": "made_up_checks:on_split", "metric": "rows", "seeds": 2}
    (row,) = verified(monkeypatch, raw)
    assert row.verdict == "holds"
    assert row.ours == 442 // 4
    assert row.baseline == 442 - 2 * (442 // 4)


def test_a_check_that_draws_its_own_splits_is_judged_by_their_ratio(monkeypatch):
    # gains 0.25, 0.05, 0.25, ...: 0.15 with an sd of 0.107 over 8 seeds; their interval is
    # 0.15 -+ 2.365 * 0.107 * sqrt(1 / 8 + ratio), which reaches 0 for the task's 1 / 2 but not for 1 / 9
    raw = {**RAW, "dataset": "diabetes", "metric": "gap", "seeds": 8}
    of_task, own = verified(
        monkeypatch,
        {**raw, "check": "made_up_checks:rippled"},
        {**raw, "id": "own", "check": "made_up_checks:own_nine_tenths"},
    )
    assert of_task.verdict == "undecided"
    assert own.verdict == "holds"
    values = [0.25, 0.05] * 4
    low, high = corrected_interval(values, 1 / 9)
    assert (own.low, own.high) == (pytest.approx(low), pytest.approx(high))


def test_ratios_of_the_checks_of_gauss_newton_are_those_of_their_splits():
    where = "assay.conformal.checks.gauss_newton:"
    for name, ratio in (("nine_tenths", 1 / 9), ("nine_tenths_settled", 1 / 9), ("ten_folds", 10 / 9)):
        assert own_ratio(import_object(where + name)) == pytest.approx(ratio)
    assert own_ratio(import_object("assay.conformal.checks.cp2:real_data")) is None
    for wrong in (0, -1.0, float("inf")):
        with pytest.raises(MethodError, match="test_to_train must be"):
            draws_own_splits(wrong)


def test_a_mean_over_folds_is_judged_as_the_folds_themselves():
    # 5 seeds of 4 folds: what the repeated cross-validation's correction gives on the folds
    rng = np.random.default_rng(0)
    folds = rng.normal(size=(2000, 5, 4))
    of_folds = (1 / 20 + 1 / 3) * folds.reshape(2000, 20).var(axis=1, ddof=1).mean()
    of_seeds = (1 / 5 + 4 / 3) * folds.mean(axis=2).var(axis=1, ddof=1).mean()
    assert of_seeds == pytest.approx(of_folds, rel=0.05)


def test_a_comparison_is_run_by_the_engine():
    toy = Card(**{**vars(get_card("split")), "claims": (
        {**RAW, "check": None, "dataset": "diabetes", "metric": "mean_width", "unit": "target sd",
         "method": "split", "versus": "cqr", "seeds": 2},
        {**RAW, "id": "cover", "check": None, "dataset": "diabetes", "metric": "coverage",
         "method": "split", "versus": 0.5, "better": "higher", "seeds": 2},
    )})  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "select", lambda methods: list(claims_of(toy)))
        events = []
        width, cover = assay.verify(progress=events.append)
    assert events[-1].done == events[-1].total == 4
    assert 1 < width.ours < 5
    assert cover.ours > 0.8
    assert width.versions


def row(**changes):
    base = Row(
        claim="toy/gap",
        method="toy",
        statement="the gap is smaller",
        where="Table 1",
        expectation="gap of ours is lower than theirs",
        paper="0.1 against 0.2",
        dataset="",
        metric="gap",
        unit="",
        versus="theirs",
        verdict="holds",
        ours=0.1,
        baseline=0.2,
        gain=0.1,
        low=0.05,
        high=0.15,
        seeds=6,
        date="2025-01-01",
    )
    return dataclasses.replace(base, **changes)


def test_ledger_is_read_back_as_it_was_written(tmp_path):
    ledger = Ledger([row(), row(claim="toy/other", verdict="skipped", ours=None)])
    ledger.to_json(tmp_path / "l.json")
    assert list(read(tmp_path / "l.json")) == list(ledger)
    Ledger([row(ours=float("inf"), per_seed={"0": {"ours": float("inf"), "baseline": 1.0}})]).to_json(
        tmp_path / "inf.json"
    )
    assert json.loads((tmp_path / "inf.json").read_text())["claims"][0]["ours"] is None
    (tmp_path / "new.json").write_text('{"format": 99, "claims": []}')
    with pytest.raises(StoreError, match="newer version"):
        read(tmp_path / "new.json")
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(StoreError, match="not a ledger"):
        read(tmp_path / "bad.json")


def test_ledger_as_text_and_table():
    ledger = Ledger([row(), row(claim="toy/b", verdict="undecided", reason="too few seeds", versus="0.8")])
    text = str(ledger)
    assert "0.1 [0.05, 0.15]" in text
    assert "undecided: too few seeds" in text
    assert "0.2 (theirs)" in text
    assert ledger.counts() == {"holds": 1, "does not hold": 0, "undecided": 1, "skipped": 0}
    assert list(ledger.table()["verdict"]) == ["holds", "undecided"]
    assert len(ledger.of("other")) == 0


def test_recording_replaces_what_was_run_and_keeps_the_rest(tmp_path, monkeypatch):
    toy = card({"id": "gap"}, {"id": "other"}, path=str(tmp_path / "toy.toml"))
    monkeypatch.setattr("assay.claims.ledger.get_card", lambda method: toy)
    Ledger([row(), row(claim="toy/other"), row(claim="toy/given-up")]).record()
    assert [r.claim for r in recorded("toy")] == ["toy/gap", "toy/other"]
    Ledger([row(ours=0.3), row(claim="toy/other", verdict="skipped")]).record()
    again = recorded("toy")
    assert again[0].ours == 0.3
    assert again[1].verdict == "holds"


def test_unknown_methods_and_methods_without_claims_are_named():
    with pytest.raises(MethodError, match="no method 'cp3'"):
        assay.verify(["cp3"])
    with pytest.raises(MethodError, match=r"split makes no claim; methods with claims: \w+"):
        assay.verify(["split"])
    with pytest.raises(MethodError, match=r"give a list, such as \['cp2'\]"):
        assay.verify("cp2")


EVERY = [claim for card in all_cards().values() for claim in claims_of(card)]


@pytest.mark.parametrize("made", EVERY, ids=lambda made: made.name)
def test_claims_of_the_cards_can_be_measured(made: Claim):
    # a check may measure variants beside the method, such as other arguments, under names of its own
    assert made.check is not None or set(made.methods) <= set(all_cards())
    assert made.dataset is None or made.dataset in names()
    if made.check is None:
        assert made.metric in {metric.name for metric in get_task(made.task).metrics}
    elif not any(get_card(method).missing for method in made.methods if method in all_cards()):
        assert callable(import_object(made.check))


def test_the_recorded_ledger_belongs_to_the_claims_of_the_cards():
    by_name = {made.name: made for made in EVERY}
    for kept in recorded():
        assert kept.claim in by_name, f"{kept.claim} is recorded, but no card claims it"
        assert kept.verdict in {"holds", "does not hold", "undecided"}
        assert kept.seeds >= (1 if by_name[kept.claim].exact else 2)
