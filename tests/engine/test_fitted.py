"""fit, save, load, predict: the same answers to the bit, and a clear word about new rows."""

import os
import signal
import subprocess
import sys
import time
import warnings
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression

import assay
from assay.core.archive import BrokenArchive, read_archive, write_archive
from assay.core.errors import AssayWarning, DataError, MethodError, TaskError
from assay.core.objects import NotLoaded, NotSaved, from_json, to_json
from assay.data.schema import Notices
from assay.engine.fitted import about


@pytest.fixture(scope="module")
def homes():
    rng = np.random.default_rng(0)
    n = 400
    frame = pd.DataFrame(
        {
            "area": rng.uniform(20, 200, n).round(1),
            "rooms": rng.integers(1, 7, n),
            "town": rng.choice(["Ulm", "Bonn", "Kiel"], n),
            "new": rng.random(n) < 0.3,
        }
    )
    frame["price"] = 3 * frame["area"] + 40 * (frame["town"] == "Bonn") + rng.normal(0, 20, n)
    frame["tax"] = 0.1 * frame["price"] + rng.normal(0, 3, n)
    frame["kind"] = np.where(frame["area"] + rng.normal(0, 20, n) > 90, "house", "flat")
    return frame


QUESTIONS = {
    "interval": {"target": "price", "method": "split", "drop": ["tax", "kind"]},
    "region": {"target": ["price", "tax"], "method": "max-score-box", "drop": ["kind"]},
    "label-set": {"target": "kind", "method": "lac", "drop": ["price", "tax"]},
    "groups": {"target": "kind", "method": "mondrian", "drop": ["price", "tax"], "group": "town"},
}


@pytest.fixture(scope="module", params=QUESTIONS)
def fitted(request, homes):
    return assay.fit(homes[:300], **QUESTIONS[request.param])


def test_a_loaded_method_answers_the_same_bits(fitted, homes, tmp_path):
    loaded = assay.load(fitted.save(tmp_path / "m.assay"))
    new = homes[300:].drop(columns=["price", "tax", "kind"])
    pd.testing.assert_frame_equal(loaded.predict(new), fitted.predict(new), check_exact=True)
    again = loaded.save(tmp_path / "again.assay")
    assert read_archive(again)["state.json"] == read_archive(tmp_path / "m.assay")["state.json"]


def test_files_frames_and_orders_give_one_answer(fitted, homes, tmp_path):
    new = homes[300:].drop(columns=["price", "tax", "kind"])
    expected = fitted.predict(new).reset_index(drop=True)
    new.to_csv(tmp_path / "n.csv", index=False)
    new.to_parquet(tmp_path / "n.parquet")
    for path in ("n.csv", "n.parquet"):
        pd.testing.assert_frame_equal(fitted.predict(tmp_path / path).reset_index(drop=True), expected)
    turned = fitted.predict(new[new.columns[::-1]][::-1])[::-1].reset_index(drop=True)
    pd.testing.assert_frame_equal(turned, expected)
    pieces = list(fitted.predict_batches(new, notices=Notices(), rows=7))
    pd.testing.assert_frame_equal(pd.concat(pieces).reset_index(drop=True), expected)
    assert list(fitted.predict(new).index) == list(new.index)


def test_no_rows_and_one_row(fitted, homes):
    new = homes[300:].drop(columns=["price", "tax", "kind"])
    none = fitted.predict(new[:0])
    one = fitted.predict(new[:1])
    assert len(none) == 0
    assert list(none.columns) == list(one.columns)
    pd.testing.assert_frame_equal(one, fitted.predict(new)[:1])


def test_rows_train_and_calibrate_two_to_one(fitted):
    facts = fitted.about
    assert facts["n_train"] + facts["n_calib"] == facts["n_rows"] == 300
    assert 95 <= facts["n_calib"] <= 105


def test_strange_rows_are_warned_of_by_name(homes):
    fitted = assay.fit(homes, **QUESTIONS["interval"])
    new = homes[:3].drop(columns=["tax", "kind"]).assign(town=["Rom", "Ulm", "Ulm"])
    with pytest.warns(AssayWarning, match=r"town: 1 row with a value that was not in the training rows"):
        fitted.predict(new)
    with pytest.raises(DataError, match="1 column is missing: 'area'"):
        fitted.predict(new.drop(columns="area"))
    with pytest.raises(DataError, match="array of shape"):
        fitted.predict(np.zeros((3, 9)))


def test_a_model_of_ones_own_and_a_seed(homes, tmp_path):
    question = QUESTIONS["interval"] | {"model": ExtraTreesRegressor(10, random_state=3), "alpha": 0.2}
    first, second = (assay.fit(homes, **question, seed=s) for s in (1, 1))
    new = homes.drop(columns=["price", "tax", "kind"])
    pd.testing.assert_frame_equal(first.predict(new), second.predict(new))
    third = assay.fit(homes, **question, seed=2)
    assert not third.predict(new).equals(first.predict(new))
    loaded = assay.load(first.save(tmp_path / "m"))
    assert loaded.about["alpha"] == "0.2"
    assert "ExtraTreesRegressor" in loaded.about["model"]


def test_bare_objects_are_saved_too(tmp_path):
    from assay.conformal.aci import AdaptiveTracker
    from assay.conformal.online import OnlineConformalRegressor

    rng = np.random.default_rng(0)
    y = rng.normal(size=200)
    stream = OnlineConformalRegressor(AdaptiveTracker(alpha=0.1))
    stream.run(y[:100], np.zeros(100))
    assay.save(stream, tmp_path / "s.assay")
    loaded = assay.load(tmp_path / "s.assay")
    assert np.array_equal(loaded.run(y[100:], np.zeros(100)), stream.run(y[100:], np.zeros(100)))
    assert about(tmp_path / "s.assay")["kind"] == "object"


def test_what_cannot_be_saved_says_where(homes, tmp_path):
    fitted = assay.fit(homes, **QUESTIONS["interval"])
    fitted.method.hook_ = lambda x: x
    with pytest.raises(NotSaved, match="hook_"):
        fitted.save(tmp_path / "m")
    assert not list(tmp_path.iterdir())


def test_tasks_without_a_final_fit_say_so(homes):
    series = homes[["price"]].assign(day=range(400))
    with pytest.raises(TaskError, match=r"not fitted once and kept.*assay monitor"):
        assay.fit(series, "price", task="online", method="aci")
    with pytest.raises(MethodError, match="--group"):
        assay.fit(homes, "kind", method="mondrian", drop=["price", "tax"])


def test_other_formats_versions_and_answers_are_told(homes, tmp_path):
    path = assay.fit(homes, **QUESTIONS["interval"]).save(tmp_path / "m")
    members = read_archive(path)
    facts = from_json(members["about.json"])

    def changed(**new):
        write_archive(path, members | {"about.json": to_json(facts | new)})
        return path

    with pytest.raises(NotLoaded, match=r"format 99.*reads format 1"):
        assay.load(changed(format=99))
    with pytest.warns(AssayWarning, match=r"scikit-learn 1\.0, here .*It answers as before"):
        assay.load(changed(versions=facts["versions"] | {"scikit-learn": "1.0"}))
    with pytest.raises(NotLoaded, match="does not describe a saved method"):
        assay.load(changed(columns=None))
    state = from_json(members["state.json"])
    other = members | {"about.json": to_json(facts)}
    other["state.json"] = to_json(state).replace(b'"alpha":0.1', b'"alpha":0.5')
    write_archive(path, other)
    with pytest.raises(NotLoaded, match="answers otherwise than when it was saved"):
        assay.load(path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BrokenArchive):
        assay.load(path)


def test_types_that_are_not_known_must_be_trusted(homes, tmp_path, monkeypatch):
    (tmp_path / "their_models.py").write_text(
        "from sklearn.linear_model import LinearRegression\nclass Mine(LinearRegression):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from their_models import Mine

    path = assay.fit(homes, **QUESTIONS["interval"], model=Mine()).save(tmp_path / "m")
    X = homes[:3].drop(columns=["tax", "kind"])
    assert about(path)["trust"] == ["their_models.Mine"]
    with pytest.raises(NotLoaded, match=r"not trusted: their_models\.Mine"):
        assay.load(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(assay.load(path, trusted=["their_models.Mine"]).predict(X)) == 3


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_a_killed_save_leaves_the_former_file(tmp_path):
    """A process that does nothing but save is killed at some moment: the file is always a whole one."""
    path = tmp_path / "m.assay"
    code = (
        "import numpy as np, assay\n"
        "from assay.conformal.split import SplitConformalRegressor\n"
        "X = np.random.default_rng(0).normal(size=(4000, 3))\n"
        "m = SplitConformalRegressor().fit(X, X[:, 0])\n"
        f"while True: assay.save(m, {str(path)!r})\n"
    )
    for delay in (0.0, 0.013, 0.04):
        child = subprocess.Popen([sys.executable, "-c", code])
        deadline = time.monotonic() + 60
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert type(assay.load(path)).__name__ == "SplitConformalRegressor"


class CountingRegressor(LinearRegression):
    asked: ClassVar[list[int]] = []

    def predict(self, X):
        self.asked.append(len(X))
        return super().predict(X)


class CountingClassifier(LogisticRegression):
    asked: ClassVar[list[int]] = []

    def predict_proba(self, X):
        self.asked.append(len(X))
        return super().predict_proba(X)


@pytest.mark.parametrize(
    ("method", "model", "target", "calls"),
    [
        ("split", CountingRegressor, "price", 1),
        ("normalized", CountingRegressor, "price", 2),  # its model of the centre and that of the spread
        ("ellipsoid", CountingRegressor, "price,area", 1),  # of both targets
        ("lac", CountingClassifier, "town", 1),
        ("aps", CountingClassifier, "town", 1),
    ],
)
def test_a_prediction_and_its_set_ask_the_model_once(homes, method, model, target, calls):
    fitted = assay.fit(homes[:300], target, method=method, model=model())
    new = homes[300:].drop(columns=target.split(","))
    X = fitted.prepare(new[list(fitted.schema.names)])
    model.asked.clear()
    answers = fitted.predict(new)
    assert model.asked == [len(new)] * calls
    np.testing.assert_array_equal(
        answers.filter(like="prediction").to_numpy().squeeze(), fitted.method.predict(X)
    )
    if target == "price":
        interval = fitted.method.predict_interval(X)
        np.testing.assert_array_equal(answers[["lower", "upper"]].to_numpy(), interval)
