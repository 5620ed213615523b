"""From a question to its rows: numbers, the store, and what is run again."""

import math
import os
import random
import sys
import warnings
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import trivial_methods
from sklearn.linear_model import LinearRegression

from assay.core.cards import Card
from assay.core.errors import MethodError, StoreError
from assay.engine import run
from assay.engine.bench import build_method, describe_error, is_out_of_memory, plain
from assay.engine.executors.inline import InlineExecutor
from assay.engine.executors.spawn import WorkerProcess
from assay.engine.memory import available_memory, default_limit
from assay.engine.plan import Limits, MethodSpec, Question, TrialResult
from assay.engine.run import Interrupted, is_final, plan_trials, run_question
from assay.engine.store import Store


def question(*names, seeds=(0, 1), **changes):
    """A question about the tiny table; a name is a class of trivial_methods."""
    methods = tuple(
        name if isinstance(name, MethodSpec) else MethodSpec(name, f"trivial_methods:{name}")
        for name in names
    )
    base = Question(trivial_methods.table(), trivial_methods.TASK, Fraction(1, 10), methods, None, seeds)
    return replace(base, **changes)


def numbers(rows):
    """What must not depend on where a trial ran."""
    return [
        (row.method, row.seed, row.status, {k: v for k, v in row.metrics.items() if k != "peak_memory"})
        for row in rows
    ]


def test_one_worker_two_workers_and_this_process_give_equal_numbers():
    asked = question("Mean", "Least", "Writes")
    here = run_question(asked, in_process=True)[1]
    assert [(row.method, row.seed) for row in here] == [
        ("Mean", 0), ("Mean", 1), ("Least", 0), ("Least", 1), ("Writes", 0), ("Writes", 1),
    ]  # fmt: skip
    assert {row.status for row in here} == {"ok"}
    for workers in (1, 2):
        rows = run_question(asked, workers=workers)[1]
        assert numbers(rows) == numbers(here)
        assert all(row.metrics["peak_memory"] >= 0 for row in rows)
    # a method that writes into its rows does not spoil those of the next
    assert numbers(run_question(question("Writes", "Mean"), in_process=True)[1])[2:] == numbers(here)[:2]


def test_no_more_processes_than_trials(monkeypatch):
    asked = []

    class Counts(InlineExecutor):
        def __init__(self, question, workers):
            super().__init__(question)
            asked.append(workers)

    monkeypatch.setattr(run, "LocalExecutor", Counts)
    run_question(question("Mean"), workers=10**6)
    assert asked == [2]


def test_rows_carry_odd_numbers_details_and_notices():
    _, rows = run_question(question("Odd", "Warns", seeds=(0,)), in_process=True)
    assert math.isnan(rows[0].metrics["nan"])
    assert rows[0].metrics["infinite"] == math.inf
    assert rows[0].detail == {"n_train": 20}
    assert type(rows[0].detail["n_train"]) is int
    assert rows[1].notices == ("UserWarning: mind the gap",)


def test_a_run_in_this_process_leaves_it_as_it_was():
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    before = np.random.get_state()[1].copy(), random.getstate(), list(warnings.filters)  # noqa: NPY002
    environment, path = dict(os.environ), list(sys.path)
    run_question(question("Least", "Warns", "Raises"), in_process=True)
    assert (np.random.get_state()[1] == before[0]).all()  # noqa: NPY002
    assert random.getstate() == before[1]
    assert list(warnings.filters) == before[2]
    assert dict(os.environ) == environment
    assert sys.path == path


def test_the_store_answers_what_it_knows(tmp_path):
    with Store(tmp_path / "runs.db") as store:
        events = []
        info, rows = run_question(question("Mean", "Raises"), in_process=True, store=store)
        info2, again = run_question(
            question("Mean", "Odd", "Raises", seeds=(1, 0, 2)),
            in_process=True,
            store=store,
            progress=events.append,
        )
        assert [event.done for event in events] == [4, 5, 6, 7, 8, 9]
        assert {event.total for event in events} == {9}
        assert {event.reused for event in events} == {4}
        assert events[0].result is None
        known = {(row.method, row.seed): row for row in rows}
        for row in again:
            if (row.method, row.seed) in known:
                assert repr(row) == repr(known[row.method, row.seed])
        assert [run.id for run in store.runs()] == [info.id, info2.id]
        kept_info, kept = store.run(info2.id)
        assert kept_info == info2
        assert repr(kept) == repr(again)  # NaN is not equal to itself


def test_failures_run_again_only_when_asked(tmp_path):
    with Store(tmp_path / "runs.db") as store:
        asked = question("Mean", "Raises", seeds=(0,))
        ran = []

        def run(**options):
            ran.clear()
            run_question(
                asked,
                in_process=True,
                store=store,
                progress=lambda event: ran.append(event.result),
                **options,
            )
            return [row.method for row in ran if row is not None]

        assert run() == ["Mean", "Raises"]
        assert run() == []
        assert run(retry_failed=True) == ["Raises"]


@pytest.mark.parametrize(
    ("status", "ran_under", "now", "final"),
    [
        ("ok", Limits(), Limits(1.0, 1), True),
        ("failed", Limits(), Limits(1.0, 1), True),
        ("timed out", Limits(3.0), Limits(3.0), True),
        ("timed out", Limits(3.0), Limits(2.0), True),
        ("timed out", Limits(3.0), Limits(4.0), False),
        ("timed out", Limits(3.0), Limits(None), False),
        ("timed out", Limits(3.0, 5), Limits(3.0, 10), True),
        ("out of memory", Limits(3.0, 5), Limits(9.0, 5), True),
        ("out of memory", Limits(3.0, 5), Limits(3.0, 6), False),
        ("out of memory", Limits(3.0, None), Limits(3.0, 6), True),
    ],
)
def test_a_row_that_met_a_limit_stands_while_the_limit_is_not_larger(status, ran_under, now, final):
    row = TrialResult("i", "m", 0, status, {}, 1.0)
    assert is_final(row, ran_under, now, retry_failed=False) is final
    assert is_final(row, ran_under, now, retry_failed=True) is (status == "ok")


def test_a_trial_that_a_signal_from_outside_ended_runs_again():
    row = TrialResult("i", "m", 0, "failed", {}, 1.0, detail={"ended_from_outside": True})
    assert not is_final(row, Limits(), Limits(), retry_failed=False)


def test_skipped_methods_are_rows_and_run_once_they_can(tmp_path):
    skipped = MethodSpec("late", "trivial_methods:Mean", skip="needs: pip install 'assay[torch]'")
    with Store(tmp_path / "runs.db") as store:
        _, rows = run_question(question("Mean", skipped), in_process=True, store=store)
        assert [(row.status, row.error) for row in rows[2:]] == [
            ("skipped", "needs: pip install 'assay[torch]'")
        ] * 2
        assert len(store.run("last")[1]) == 4
        _, rows = run_question(question("Mean", replace(skipped, skip=None)), in_process=True, store=store)
        assert {row.status for row in rows} == {"ok"}


def test_two_names_for_one_method_run_once():
    events = []
    twice = MethodSpec("other", "trivial_methods:Mean")
    _, rows = run_question(question("Mean", twice), in_process=True, progress=events.append)
    assert [row.method for row in rows] == ["Mean", "Mean", "other", "other"]
    assert rows[0].metrics == rows[2].metrics
    assert [event.done for event in events] == [0, 2, 4]


def test_another_process_that_was_faster_is_believed(tmp_path):
    asked = question("Mean", "Odd", seeds=(0,))
    first, second = plan_trials(asked)
    with Store(tmp_path / "runs.db") as store, Store(tmp_path / "runs.db") as other:

        def meanwhile(event):
            if event.result is None:
                other.put(TrialResult(second.identity, "x", 0, "ok", {"error": -1.0}, 0.0))
            elif event.result.identity == first.identity:
                assert event.done == 1

        _, rows = run_question(asked, in_process=True, store=store, progress=meanwhile)
    assert rows[1].metrics == {"error": -1.0}
    assert rows[1].method == "Odd"


def test_ctrl_c_in_this_process_reports_what_is_done(tmp_path):
    with Store(tmp_path / "runs.db") as store:
        with pytest.raises(Interrupted, match="2 of 3 trials have not run") as stop:
            run_question(question("Mean", "Interrupts", "Odd", seeds=(0,)), in_process=True, store=store)
        assert [row.status for row in stop.value.results] == ["ok", "skipped", "skipped"]
        assert "interrupted" in stop.value.results[1].error
        assert len(store.run("last")[1]) == 1
        assert store.run("last")[0] == stop.value.info


def test_a_store_that_cannot_be_written_ends_the_run(tmp_path):
    store = Store(tmp_path / "runs.db")
    with pytest.raises(StoreError):
        run_question(
            question("Mean"),
            in_process=True,
            store=store,
            progress=lambda event: event.result and store.close(),
        )


def test_what_the_constructor_is_given():
    notices = []
    spec = MethodSpec("m", "trivial_methods:Least")
    built = build_method(trivial_methods.Least, spec, LinearRegression(), 7, Fraction(1, 10), notices)
    assert (built.alpha, built.random_state) == (0.1, 7)
    assert isinstance(built.estimator, LinearRegression)
    built = build_method(
        trivial_methods.Least, replace(spec, params={"random_state": 1}), None, 7, Fraction(1, 10), notices
    )
    assert built.random_state == 1
    assert notices == []


class Around:
    """A method with another object inside, and a horizon."""

    def __init__(self, inner=None, alpha=None, horizon=None):
        self.inner, self.alpha, self.horizon = inner, alpha, horizon


def test_options_of_the_task_and_objects_of_a_card():
    spec = MethodSpec("m", "x:Around", params={"inner": {"class": "trivial_methods:Least", "alpha": 0.3}})
    built = build_method(Around, spec, None, 0, Fraction(1, 10), [], {"horizon": 4, "forecast": "f"})
    assert (built.alpha, built.horizon, built.inner.alpha) == (0.1, 4, 0.3)
    assert isinstance(built.inner, trivial_methods.Least)
    own = Around(alpha=0.2, horizon=1)
    built = build_method(own, MethodSpec("m", own), None, 0, Fraction(1, 10), [], {"horizon": 4})
    assert (built.alpha, built.horizon, own.horizon) == (0.1, 4, 1)


def test_an_object_keeps_its_own_estimator_and_gets_the_level():
    from sklearn.ensemble import RandomForestRegressor

    from assay.conformal import SplitConformalRegressor

    own = SplitConformalRegressor(RandomForestRegressor(3), alpha=0.3)
    spec = MethodSpec("m", own)
    built = build_method(own, spec, LinearRegression(), 7, Fraction(1, 20), [])
    assert (built.alpha, built.random_state) == (0.05, 7)
    assert isinstance(built.estimator, RandomForestRegressor)
    assert own.alpha == 0.3
    bare = build_method(SplitConformalRegressor(), spec, RandomForestRegressor(), 7, Fraction(1, 20), [])
    assert isinstance(bare.estimator, RandomForestRegressor)
    assert isinstance(bare.estimator.random_state, int)


def test_a_method_with_a_model_of_its_own_says_so(monkeypatch):
    cards = {
        kind: Card(kind, kind, "trivial_methods:Least", "f", "tiny", "paper", "s", model=kind)
        for kind in ("own", "ridge", "any")
    }
    monkeypatch.setattr("assay.engine.bench.all_cards", lambda: cards)
    from sklearn.ensemble import RandomForestRegressor

    for kind, says in (("own", True), ("ridge", True), ("any", False)):
        notices = []
        spec = MethodSpec("m", "trivial_methods:Least", card=kind)
        built = build_method(
            trivial_methods.Least, spec, RandomForestRegressor(), 0, Fraction(1, 10), notices
        )
        assert (built.estimator is None) is says
        assert notices == (["fitted with its own model, not with RandomForestRegressor"] if says else [])
    # over time the model makes the forecasts, whatever is inside the method
    cards["own"] = replace(cards["own"], task="online")
    notices = []
    spec = MethodSpec("m", "trivial_methods:Least", card="own")
    build_method(trivial_methods.Least, spec, RandomForestRegressor(), 0, Fraction(1, 10), notices)
    assert notices == []


def test_which_errors_are_a_want_of_memory():
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"))
    assert is_out_of_memory(OSError(12, "Cannot allocate memory"))
    assert not is_out_of_memory(ValueError("out of memory"))
    wrapped = ValueError("fit failed")
    wrapped.__cause__ = MemoryError()
    assert is_out_of_memory(wrapped)


def test_an_error_says_type_message_and_frames():
    def inner():
        raise KeyError("price")

    try:
        inner()
    except KeyError as error:
        lines = describe_error(error).splitlines()
    assert lines[0] == "KeyError: 'price'"
    assert lines[-1].endswith('in inner: raise KeyError("price")')


def test_details_become_plain():
    assert plain({"a": np.array([1.0, np.nan]), 2: (np.float32(0.5), np.bool_(True), np.str_("x"))}) == {
        "a": [1.0, None],
        "2": [0.5, True, "x"],
    }
    with pytest.raises(MethodError, match="holds a object"):
        plain(object())


def test_the_default_memory_limit_is_a_round_share():
    free = available_memory()
    assert free is None or free > 0
    one, two = default_limit(1), default_limit(2)
    if one is not None:
        assert one <= free * 0.81 or one == 256 * 2**20
        assert two <= one
        assert one % (256 * 2**20) == 0


def test_a_worker_that_ends_with_zero_is_noticed():
    process = WorkerProcess(target=int)
    process.start()
    process.join(30)
    assert process.exitcode not in (0, None)


def test_an_interrupt_is_noted_once_and_raised_when_asked_for():
    import signal

    from assay.engine.executors.interrupts import InterruptNote

    before = signal.getsignal(signal.SIGINT)
    note = InterruptNote()
    note.install()
    try:
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            note.check()
        note.check()
    finally:
        note.restore()
    assert signal.getsignal(signal.SIGINT) is before
