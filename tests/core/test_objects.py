"""Objects as JSON and arrays: every bit comes back, and nothing runs that is not known."""

import functools
import io
import os
import zipfile
from collections import OrderedDict, deque
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor

from assay.conformal.split import SplitConformalRegressor
from assay.core.objects import Decoder, Encoder, NotLoaded, NotSaved, from_json, to_json


def through(value, trusted=()):
    encoder = Encoder()
    text = to_json(encoder.encode(value))
    return Decoder(encoder.members, trusted).decode(from_json(text))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        -(2**70),
        0.1,
        float("inf"),
        "é\u2028\ud800",
        b"\x00\xff",
        (1, (2.5, "a")),
        [1, [2, []]],
        {"a": 1, 2: "b", (1, 2): None, Fraction(1, 10): {3}},
        OrderedDict([("b", 1), ("a", 2)]),
        deque([1, 2]),
        frozenset({1, "x"}),
        Fraction(1, 3),
        Decimal("0.10"),
        1 + 2j,
        range(1, 9, 2),
        slice(None, 3),
        np.dtype("<f4"),
        np.float64,
        np.maximum,
    ],
)
def test_plain_values_come_back(value):
    got = through(value)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    "array",
    [
        np.array([[0.1, np.nan], [-0.0, np.inf]]),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(["é", "abc"]),
        np.array(["2020-01-01", "NaT"], dtype="datetime64[us]"),
        np.array([], dtype=np.int8),
        np.array(3, dtype=np.uint16),
        np.array([True, False]),
    ],
)
def test_arrays_keep_every_bit(array):
    got = through(array)
    assert got.dtype == array.dtype
    assert got.shape == array.shape
    assert got.tobytes() == array.tobytes()
    assert got.flags.f_contiguous == array.flags.f_contiguous


def test_arrays_of_objects_and_scalars_come_back():
    got = through(np.array([["a", None], [1, 2.5]], dtype=object))
    assert got.tolist() == [["a", None], [1, 2.5]]
    scalar = through(np.float32(0.1))
    assert scalar == np.float32(0.1)
    assert type(scalar) is np.float32


def test_one_object_in_two_places_stays_one():
    shared = [1]
    got = through({"a": shared, "b": shared})
    assert got["a"] is got["b"]
    cycle = []
    cycle.append(cycle)
    back = through(cycle)
    assert back[0] is back


def test_random_states_go_on_where_they_were():
    for rng in (np.random.default_rng(3), np.random.RandomState(3)):
        rng.normal(size=3)
        assert (through(rng).normal(size=5) == rng.normal(size=5)).all()


def test_a_method_and_its_model_come_back():
    X, y = np.random.default_rng(0).normal(size=(80, 3)), np.arange(80.0)
    method = SplitConformalRegressor(RandomForestRegressor(5, random_state=0), random_state=0).fit(X, y)
    got = through(method)
    assert (got.predict_interval(X) == method.predict_interval(X)).all()


def test_torch_modules_come_back():
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.GELU()).eval()
    X = torch.randn(5, 3)
    got = through(module)
    assert torch.equal(got(X), module(X))
    assert not got.training
    half = through(torch.randn(3).to(torch.bfloat16))
    assert half.dtype == torch.bfloat16


def test_what_a_file_cannot_hold_is_refused_with_its_place():
    method = SplitConformalRegressor(alpha=0.1)
    method.extra_ = {"inside": [lambda x: x]}
    with pytest.raises(NotSaved, match=r"extra_\['inside'\]\[0\]"):
        through(method)
    with pytest.raises(NotSaved), open(os.devnull) as file:
        through([file])


def test_functions_of_packages_that_are_not_known_are_refused():
    with pytest.raises(NotLoaded, match=r"not trusted.*shutil:rmtree|shutil:rmtree"):
        through(_named("shutil", "rmtree"))
    assert through(os.path.join, trusted=["posixpath:join"]) is os.path.join


def _named(module, name):
    import importlib

    return getattr(importlib.import_module(module), name)


@pytest.mark.parametrize(
    "node",
    [
        {"i": 0, "k": "function", "v": "os:system"},
        {"i": 0, "k": "class", "v": "subprocess:Popen"},
        {"i": 0, "k": "function", "v": "builtins:eval"},
        {"i": 0, "k": "function", "v": "assay.core.archive:write_archive"},
        {"i": 0, "k": "function", "v": "assay.engine.fitted:save"},
        {"i": 0, "k": "function", "v": "numpy:load"},
        {"i": 0, "k": "ufunc", "v": "load"},
        {"i": 0, "k": "object", "c": "os:_wrap_close", "v": {}},
        {
            "i": 0,
            "k": "object",
            "c": "assay.conformal.split:SplitConformalRegressor",
            "v": {"predict_interval": {"i": 1, "k": "class", "v": "numpy:float64"}},
        },
        {"i": 0, "k": "object", "c": "assay.conformal.split:SplitConformalRegressor", "v": {"__class__": 1}},
        {"i": 0, "k": "object", "c": "assay.conformal.split:best_level", "v": {}},
        {"i": 0, "k": "array", "v": "parts/9.npy"},
        {"i": 0, "k": "strange", "v": 1},
        {"i": 0, "k": "again", "i ": 9},
        {"k": "tuple", "v": [1]},
        {"i": 0, "k": "tuple", "v": 7},
        {"i": 0, "k": "objects", "shape": [10**9], "v": []},
        {"i": 0, "k": "dict", "v": [[{"i": 1, "k": "list", "v": []}, 1]]},
        {"i": 0, "k": "float", "v": "1e5"},
        {"i": 0, "k": "generator", "v": {"i": 1, "k": "dict", "v": [["bit_generator", "seed"]]}},
        [1],
        "deep",
    ],
)
def test_hostile_descriptions_are_refused(node):
    if node == "deep":
        for _ in range(400):
            node = {"i": 0, "k": "list", "v": [node]}
    with pytest.raises(NotLoaded):
        Decoder({}).decode(node)


def test_pickles_inside_arrays_are_refused():
    buffer = io.BytesIO()
    np.save(buffer, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(NotLoaded):
        Decoder({"parts/0.npy": buffer.getvalue()}).decode({"i": 0, "k": "array", "v": "parts/0.npy"})


def test_compressed_parts_are_refused():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("schema.json", "{}" + " " * 10**6)
    with pytest.raises(NotLoaded, match="compressed"):
        Decoder({"p": buffer.getvalue()}).decode({"i": 0, "k": "skops", "v": "p"})


def test_partials_of_known_functions_come_back():
    from assay.core.levels import conformal_rank

    got = through(functools.partial(conformal_rank, 9))
    assert got(Fraction(1, 10)) == conformal_rank(9, Fraction(1, 10))
