"""Saved methods changed by anybody, under a digest that is right: the same answers, or a refusal."""

import json
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.ensemble import ExtraTreesRegressor, HistGradientBoostingRegressor, RandomForestRegressor

import assay
from assay.cli.main import run
from assay.core.archive import read_archive, write_archive
from assay.core.errors import AssayError
from assay.core.objects import Decoder, Encoder, NotLoaded
from assay.engine.fitted import about


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"a": rng.normal(size=90), "t": rng.choice(["u", "v"], 90)})
    return frame.assign(y=frame["a"] + rng.normal(size=90))


@pytest.fixture(scope="module", params=["trees", "forest"])
def saved(request, rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("saved") / "m.assay"
    models = {
        "trees": HistGradientBoostingRegressor(max_iter=2, min_samples_leaf=5),
        "forest": ExtraTreesRegressor(2, random_state=0),
    }
    model = models[request.param]
    assay.fit(rows, "y", method="split", model=model).save(path)
    return path, read_archive(path)


def answers_or_refuses(path, members, rows):
    write_archive(path, members)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            about(path)
            assay.load(path).predict(rows[["a", "t"]])
        except AssayError:
            return
        except Warning as error:  # pragma: no cover
            raise AssertionError(error) from error


@st.composite
def edits(draw):
    """A member by its place, and what becomes of its bytes."""
    kind = draw(st.sampled_from(["flip", "flip", "flip", "cut", "double", "digits", "word", "empty"]))
    return draw(st.integers(0, 10**6)), kind, draw(st.floats(0, 1)), draw(st.integers(0, 255))


def edited(members, edit):
    place, kind, where, value = edit
    name = sorted(members)[place % len(members)]
    content = bytearray(members[name])
    at = min(int(where * len(content)), max(len(content) - 1, 0))
    if kind == "flip" and content:
        content[at] ^= value or 1
    elif kind == "cut":
        del content[at:]
    elif kind == "double":
        content += content[at:]
    elif kind == "digits":
        found = [i for i, byte in enumerate(content) if 48 <= byte <= 57]
        if found:
            content[found[int(where * (len(found) - 1))]] = 48 + value % 10
    elif kind == "word":
        for old, new in ((b"null", b"true"), (b"true", b"null"), (b'"', b"["), (b"0", b"-1")):
            if value % 4 == 0 and old in content:
                content = content.replace(old, new, 1 + value // 16)
            value //= 2
    elif kind == "empty":
        content.clear()
    return members | {name: bytes(content)}


FEW = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))


@FEW
@given(edit=edits())
def test_any_edit_is_answered_or_refused(saved, rows, tmp_path_factory, edit):
    answers_or_refuses(saved[0].with_name("e.assay"), edited(saved[1], edit), rows)


@pytest.mark.slow
@settings(FEW, max_examples=10_000)
@given(edit=edits())
def test_any_edit_is_answered_or_refused_in_full(saved, rows, edit):
    answers_or_refuses(saved[0].with_name("e.assay"), edited(saved[1], edit), rows)


def test_facts_that_are_missing_or_strange_are_refused(saved, capsys):
    path, members = saved
    facts = json.loads(members["about.json"])
    broken = path.with_name("f.assay")
    for name in facts:
        for value in (..., 7.5, [{"a": []}]):
            if isinstance(value, list) and isinstance(facts[name], list):
                continue
            changed = {key: v for key, v in facts.items() if key != name}
            changed |= {} if value is ... else {name: value}
            write_archive(broken, members | {"about.json": json.dumps(changed).encode()})
            with pytest.raises(NotLoaded):
                assay.load(broken)
            assert run(["show", str(broken)]) == 2
    capsys.readouterr()
    write_archive(broken, members | {"about.json": json.dumps(facts | {"alpha": "1e-99999999"}).encode()})
    with pytest.raises(NotLoaded):
        assay.load(broken)


def test_signs_that_steer_a_terminal_are_not_printed(saved, capsys):
    path, members = saved
    facts = json.loads(members["about.json"])
    broken = path.with_name("f.assay")
    strange = facts | {"guarantee": "\x1b[2J\x9b31m all\x07", "dataset": "\x1b]0;x\x07"}
    write_archive(broken, members | {"about.json": json.dumps(strange).encode()})
    assert run(["show", str(broken)]) == 0
    out = capsys.readouterr().out
    assert not any((ord(c) < 32 and c != "\n") or 127 <= ord(c) < 160 for c in out)
    assert "all" in out


@pytest.mark.parametrize("field", ["left", "right", "feature_idx"])
@pytest.mark.parametrize("value", [0, 10**6])
def test_trees_that_lead_nowhere_are_refused(rows, field, value):
    if (field, value) == ("feature_idx", 0):
        pytest.skip("a feature that is there")
    X, y = np.column_stack([rows["a"], rows["a"] ** 2]), rows["y"]
    model = HistGradientBoostingRegressor(max_iter=2, min_samples_leaf=5).fit(X, y)
    assert through(model) is not None
    model._predictors[1][0].nodes[field][0] = value
    with pytest.raises(NotLoaded, match="a tree"):
        through(model)


def test_trees_of_forests_too(rows):
    X, y = rows[["a"]].to_numpy(), rows["y"]
    forest = RandomForestRegressor(3, random_state=0).fit(X, y)
    through(forest)
    state = forest.estimators_[2].tree_.__getstate__()
    state["nodes"]["left_child"][0] = 0
    forest.estimators_[2].tree_.__setstate__(state)
    with pytest.raises(NotLoaded, match="children that are not there"):
        through(forest)
    forest = RandomForestRegressor(3, random_state=0).fit(np.tile(X, 9), y)
    forest.n_features_in_ = 1
    with pytest.raises(NotLoaded, match="another width"):
        through(forest)


def through(model):
    encoder = Encoder()
    node = encoder.encode(model)
    return Decoder(encoder.members).decode(node)
