"""``assay.compare`` and ``assay.methods``: what a user may ask, and what is refused before anything runs."""

import json
import os
import subprocess
import sys
import textwrap

import numpy as np
import pandas as pd
import pytest
import trivial_methods
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.tree import DecisionTreeRegressor

import assay
from assay.conformal import SplitConformalRegressor
from assay.core.cards import all_cards
from assay.core.errors import DataError, MethodError, StoreError, TaskError
from assay.engine import api
from assay.engine.api import choose_methods, compare
from assay.engine.run import Interrupted
from assay.tasks import get_task


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    x = rng.normal(size=240)
    return pd.DataFrame({"x": x, "place": rng.choice(["a", "b"], 240), "price": 3 * x + rng.normal(size=240)})


def ask(frame, **options):
    return compare(frame, "price", **{"methods": ["split"], "seeds": 2, "in_process": True, **options})


def test_a_comparison_of_ids_classes_objects_paths_and_pairs(frame):
    asked = [
        "split",
        SplitConformalRegressor,
        SplitConformalRegressor(LinearRegression(), symmetric=False),
        "assay.conformal:SplitConformalRegressor",
        ("tree", SplitConformalRegressor(DecisionTreeRegressor(max_depth=3))),
    ]
    found = ask(frame, methods=asked, model="sklearn.linear_model:Ridge", alpha="0.2", name="houses")
    assert [method["name"] for method in found.info.methods] == [
        "split", "SplitConformalRegressor", "SplitConformalRegressor-2", "SplitConformalRegressor-3", "tree",
    ]  # fmt: skip
    assert found.failed == ()
    assert {row.status for row in found.results} == {"ok"}
    assert (found.info.alpha, found.info.task, found.info.dataset) == ("0.2", "interval", "houses")
    assert found.info.model == "sklearn.linear_model:Ridge"
    assert found.info.limits == {"seconds": None, "memory": None}
    widths = found.table().query("metric == 'mean_width'").groupby("method")["value"].mean()
    # the same class with the same model on the same splits; the tree has a model of its own
    assert widths["split"] == widths["SplitConformalRegressor"] == widths["SplitConformalRegressor-3"]
    assert widths["tree"] != widths["split"]
    assert 0.7 < found.table().query("metric == 'coverage'")["value"].mean() < 0.9


def test_an_open_random_state_of_the_model_comes_from_the_seed(frame):
    first, second = (
        ask(frame, model="sklearn.ensemble:ExtraTreesRegressor", seeds=[4]).table() for _ in range(2)
    )
    timeless = ~first["metric"].isin(["fit_seconds", "predict_seconds", "peak_memory"])
    pd.testing.assert_frame_equal(
        first[timeless].drop(columns="seconds"), second[timeless].drop(columns="seconds")
    )


def test_without_names_all_of_the_menu_take_part_the_reference_first(frame):
    task = get_task("interval")
    table = trivial_methods.table(200)
    chosen = choose_methods(None, task, table)
    assert chosen[0].card == task.reference
    expected = {card.id for card in all_cards().values() if card.task == "interval" and card.in_menu}
    assert {spec.card for spec in chosen} == expected


def test_who_is_left_out_and_why(monkeypatch):
    from dataclasses import replace

    task, table = get_task("interval"), trivial_methods.table(200)
    split = all_cards()["split"]
    slow = replace(split, id="slow", max_rows=149)
    fits = replace(split, id="fits", max_rows=150)
    monkeypatch.setattr(api, "all_cards", lambda: {"split": split, "slow": slow, "fits": fits})
    monkeypatch.setattr(api, "get_card", lambda name: slow)
    reasons = {spec.name: spec.skip for spec in choose_methods(None, task, table)}
    assert reasons["split"] is reasons["fits"] is None
    assert reasons["slow"].startswith("150 training rows are more than the 149")
    assert choose_methods(["slow"], task, table)[0].skip is None

    class Lacking(type(split)):
        missing = ("torch",)

    lacking = Lacking(**{**vars(split), "id": "lacking"})
    monkeypatch.setattr(api, "get_card", lambda name: lacking)
    assert choose_methods(["lacking"], task, table)[0].skip == "needs: pip install 'assay[torch]'"


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"methods": ["spilt"]}, MethodError, "no method 'spilt'; nearest: split"),
        ({"methods": ["no.such.module:Class"]}, MethodError, "cannot import 'no.such.module'"),
        ({"methods": ["assay.conformal.split:SplitConformal"]}, MethodError, "did you mean SplitConf"),
        ({"methods": ["lac"]}, TaskError, "lac is a method of the task 'label-set', this is 'interval'"),
        ({"methods": [LinearRegression]}, TaskError, "LinearRegression cannot take part.*predict_interval"),
        ({"methods": [trivial_methods.Mean()]}, TaskError, "Mean has no predict_interval"),
        ({"methods": "split"}, MethodError, "give a list"),
        ({"methods": []}, MethodError, "no methods are given"),
        ({"methods": [("a", "b", "c")]}, MethodError, r"no \(name, method\) pair"),
        ({"model": LogisticRegression()}, MethodError, "is a classifier, but.*give a regressor"),
        ({"model": "sklearn.linear_model.Ridge"}, MethodError, "did you mean sklearn.linear_model:Ridge"),
        ({"model": "sklearn.frozen:FrozenEstimator"}, MethodError, "cannot be made without arguments"),
        ({"model": Ridge}, MethodError, r"is the class Ridge; give an object: Ridge\(\)"),
        ({"model": object()}, MethodError, r"has no fit\(X, y\)"),
        ({"alpha": 1.5}, MethodError, "alpha must lie in"),
        ({"methods": [("a\udcff", "split")]}, MethodError, "cannot be printed"),
        ({"methods": [(" ", "split")]}, MethodError, "is empty"),
        ({"seeds": 0}, TaskError, "from 1 to 10,000"),
        ({"seeds": 10**30}, TaskError, "from 1 to 10,000"),
        ({"seeds": [1, 1]}, TaskError, "must be distinct"),
        ({"seeds": [-1]}, TaskError, "seed -1 is not a whole number"),
        ({"seeds": "5"}, TaskError, "give a number of splits"),
        ({"workers": 0, "in_process": False}, TaskError, "workers is 0"),
        ({"workers": 2}, TaskError, "workers needs processes"),
        ({"timeout": 3}, TaskError, "timeout needs processes"),
        ({"timeout": -1, "in_process": False}, TaskError, "timeout is -1 seconds"),
        ({"memory_limit": 0, "in_process": False}, TaskError, "memory_limit is 0 bytes"),
        ({"task": "intervals"}, TaskError, "no task 'intervals'"),
        ({"store": "/no/such/folder/runs.db"}, StoreError, "does not exist"),
        ({"drop": ["nope"]}, DataError, "nope"),
    ],
)  # fmt: skip
def test_what_is_refused_before_anything_runs(frame, options, error, text):
    events = []
    with pytest.raises(error, match=text):
        ask(frame, progress=events.append, **options)
    assert events == []


def test_the_same_call_again_runs_nothing_and_edited_data_everything(frame, tmp_path):
    path, store = tmp_path / "houses.csv", tmp_path / "runs.db"
    frame.to_csv(path, index=False)
    reused = []

    def run():
        found = compare(
            path, "price", methods=["split"], seeds=2, in_process=True, store=store,
            progress=lambda event: reused.append(event.reused),
        )  # fmt: skip
        return found.table()

    first = run()
    second = run()
    pd.testing.assert_frame_equal(first, second)
    assert reused == [0, 0, 0, 2]
    edited = frame.copy()
    edited.loc[0, "x"] += 1.0
    edited.to_csv(path, index=False)
    run()
    assert reused[4:] == [0, 0, 0]


def test_ctrl_c_carries_the_comparison_so_far(frame, monkeypatch):
    def stop(event):
        if event.done == 1:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted) as stopped:
        ask(frame, progress=stop)
    statuses = [row.status for row in stopped.value.comparison.results]
    assert statuses == ["ok", "skipped"]


def test_a_users_file_in_this_folder_is_found_and_the_path_is_as_before(frame, tmp_path, monkeypatch):
    (tmp_path / "my_own_methods.py").write_text(
        "from assay.conformal import SplitConformalRegressor\nclass Own(SplitConformalRegressor): pass\n"
    )
    monkeypatch.chdir(tmp_path)
    before = list(sys.path)
    found = ask(frame, methods=["split", "my_own_methods:Own"])
    assert {row.status for row in found.results} == {"ok"}
    assert sys.path == before


def test_a_plain_object_is_asked_for_the_level_of_the_question(frame):
    class Plain:
        def __init__(self, alpha):
            self.alpha = alpha

        def fit(self, X, y):
            self.ends = np.quantile(y, [self.alpha / 2, 1 - self.alpha / 2])
            return self

        def predict_interval(self, X):
            return np.tile(self.ends, (len(X), 1))

    mine = Plain(alpha=0.8)
    table = ask(frame, methods=[mine], seeds=5).table()
    assert table.query("metric == 'coverage'")["value"].mean() > 0.8
    assert mine.alpha == 0.8


SCRIPT = """
    import numpy as np
    import pandas as pd
    import assay
    from assay.conformal import SplitConformalRegressor

    print("script starts")
    FACTOR = 2.0

    def widen(interval):
        centre = interval.mean(axis=1, keepdims=True)
        return centre + FACTOR * (interval - centre)

    class Wide(SplitConformalRegressor):
        def predict_interval(self, X, alpha=None):
            return widen(super().predict_interval(X, alpha))

    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    frame = pd.DataFrame({"x": x, "y": x + rng.normal(size=200)})
    reused = []
    found = assay.compare(
        frame, "y", methods=["split", Wide, ("typed", "beside_it:Beside")], seeds=2, workers=2,
        store="runs.db", progress=lambda event: reused.append(event.reused),
    )
    table = found.table()
    widths = table[table["metric"] == "mean_width"].groupby("method")["value"].mean()
    print(sorted(set(table["status"])), round(widths["Wide"] / widths["split"], 6), reused[-1])
"""


def test_a_plain_script_without_a_main_guard_works_and_its_class_is_known_again(tmp_path):
    (tmp_path / "script.py").write_text(textwrap.dedent(SCRIPT))
    (tmp_path / "beside_it.py").write_text(
        "from assay.conformal import SplitConformalRegressor\nclass Beside(SplitConformalRegressor): pass\n"
    )

    def run():
        command = [sys.executable, "script.py"]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, env=os.environ, timeout=120
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        return done.stdout.splitlines()

    assert run() == ["script starts", "['ok'] 2.0 0"]
    assert run() == ["script starts", "['ok'] 2.0 6"]


def test_the_table_of_methods():
    found = assay.methods()
    assert list(found["id"]) == list(all_cards())
    assert set(assay.methods("label-set")["task"]) == {"label-set"}
    with pytest.raises(TaskError, match="no task 'x'"):
        assay.methods("x")
    assert json.loads(found.to_json(orient="records"))[0]["id"] == found["id"][0]
