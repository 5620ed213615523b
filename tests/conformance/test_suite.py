"""The suite itself: what it runs, how it treats exceptions, what it refuses."""

import label_toys
import pytest
import stream_toys
import toys
from sklearn.linear_model import LinearRegression

from assay.core.cards import Card, all_cards
from assay.core.errors import MethodError, MissingDependency
from assay.testing import (
    LAWS,
    Excepted,
    LawBroken,
    NotApplicable,
    check_method,
    conformance_checks,
    parametrize_with_cards,
)

CARD = {
    "id": "toy",
    "name": "A toy",
    "cls": "toys:RankTooHigh",
    "family": "toys",
    "task": "interval",
    "role": "baseline",
    "summary": "A toy.",
}


def outcomes(results):
    return {result.name: result.status for result in results}


def test_a_failure_is_raised_with_its_law_and_numbers():
    with pytest.raises(
        LawBroken, match=r"RankTooHigh fails 2 of \d+ checks:\n  exact-rank/own-calibration-rows"
    ):
        check_method(toys.RankTooHigh)


def test_class_object_card_and_id_get_the_same_checks():
    names = [check.name for check in conformance_checks(toys.Interval)]
    assert names == [check.name for check in conformance_checks(toys.Interval(alpha=0.2))]
    assert names == [check.name for check in conformance_checks(Card(**{**CARD, "cls": "toys:Interval"}))]
    some = next(iter(all_cards()))
    assert conformance_checks(some)[0].subject.card.id == some


def test_names_are_unique_and_laws_known():
    for toy in (toys.Interval, label_toys.Labels, stream_toys.Stream):
        checks = conformance_checks(toy)
        assert len({check.name for check in checks}) == len(checks)
        assert {check.law for check in checks} <= {*LAWS}
        assert all(check.name.startswith(f"{check.law}/") for check in checks)


def test_an_object_is_cloned_never_fitted():
    method = toys.Interval(LinearRegression())
    check_method(method)
    assert set(vars(method)) == {"estimator", "alpha"}
    assert not hasattr(method.estimator, "coef_")


@pytest.mark.parametrize("key", ["exact-rank", "exact-rank/own-calibration-rows"])
def test_an_exception_is_counted_with_its_reason(key):
    results = check_method(Card(**CARD, exceptions={key: "it is a toy"}))
    excepted = [result for result in results if result.status == "excepted"]
    assert [result.name for result in excepted] == [
        "exact-rank/own-calibration-rows",
        "exact-rank/own-calibration-rows[bare]",
    ]
    assert all(result.detail.startswith("it is a toy (n = 19, alpha = 0.1: 19 ") for result in excepted)


def test_a_stale_exception_is_a_failure():
    results = check_method(toys.Interval, exceptions={"exact-rank": "none"}, on_fail="report")
    assert outcomes(results)["exact-rank/exception-is-needed[exact-rank]"] == "failed"
    with pytest.raises(LawBroken, match="remove the exception"):
        check_method(toys.Interval, exceptions={"exact-rank/own-calibration-rows[bare]": "none"})


def test_an_exception_of_an_inapplicable_check_may_stay():
    results = check_method(toys.Interval, exceptions={"memory/results-do-not-depend-on-the-bound": "no knob"})
    assert outcomes(results)["memory/results-do-not-depend-on-the-bound"] == "skipped"


def test_an_exception_covers_no_other_law():
    results = check_method(toys.RankTooHigh, exceptions={"batching": "wrong"}, on_fail="report")
    assert outcomes(results)["exact-rank/own-calibration-rows"] == "failed"


def test_unknown_exceptions_tasks_and_contracts_are_refused():
    with pytest.raises(MethodError, match="'exact-ranks', which is no law"):
        conformance_checks(toys.Interval, exceptions={"exact-ranks": "typing error"})
    with pytest.raises(MethodError, match="the task 'label-set'; its methods must be predict_set"):
        conformance_checks(toys.Interval, task="label-set")
    with pytest.raises(MethodError, match="LinearRegression does not meet the contract"):
        conformance_checks(LinearRegression())
    with pytest.raises(MethodError, match="cannot be made for its tests"):
        conformance_checks(type("Picky", (toys.Interval,), {"__init__": lambda self, needed: None}))


def test_parametrised_exceptions_are_expected_failures():
    mark = parametrize_with_cards(cards=[Card(**CARD, exceptions={"exact-rank": "it is a toy"})])
    marked = [param for param in mark.args[1] if param.marks]
    assert {param.values[0].law for param in marked} == {"exact-rank"}
    assert all(param.marks[0].kwargs["raises"] is Excepted for param in marked)
    assert marked[0].id.startswith("toy-exact-rank/")


def test_a_missing_extra_is_one_skipped_test(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    card = Card(**CARD, requires=("torch",))
    with pytest.raises(MissingDependency, match="pip install"):
        conformance_checks(card)
    (param,) = parametrize_with_cards(cards=[card]).args[1]
    assert "pip install 'assay[torch]'" in param.marks[0].kwargs["reason"]


def test_task_filters_cards():
    cards = [
        Card(**{**CARD, "cls": "toys:Interval"}),
        Card(**{**CARD, "cls": "label_toys:Labels", "task": "label-set"}),
    ]
    mark = parametrize_with_cards("label-set", cards=cards)
    assert {param.values[0].contract.task for param in mark.args[1]} == {"label-set"}


def test_testing_arguments_may_be_objects():
    card = Card(
        **{**CARD, "cls": "toys:Interval"},
        testing={
            "alpha": 0.2,
            "estimator": {"class": "sklearn.linear_model:LinearRegression", "positive": True},
        },
    )
    method = conformance_checks(card)[0].subject.make()
    assert method.estimator.positive
    assert method.alpha == 0.2


def test_not_applicable_is_a_skip_for_test_runners():
    import unittest

    assert issubclass(NotApplicable, unittest.SkipTest)
