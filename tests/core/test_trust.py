"""Hostile descriptions of objects: no name leads to code that acts, nothing is larger than it is."""

import contextlib
import io
import json
import pickle
import time
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import Ridge
from sklearn.preprocessing import FunctionTransformer

from assay.conformal.split import SplitConformalRegressor
from assay.core.objects import Decoder, Encoder, NotLoaded
from assay.core.trust import check_npy, find, is_known, is_known_part


@pytest.mark.parametrize(
    "name",
    [
        "assay.core.objects:zipfile.os.system",
        "assay.core.objects:importlib.import_module",
        "assay.core.models:sys.modules",
        "assay.conformal.split:np.load",
        "assay.data.batches:replacing",
        "assay.data.batches:AnswerWriter",
        "assay.core.objects:Decoder",
        "assay.core.trust:find",
        "assay.core.cards:all_cards",
        "assay.conformal.fleet_store:FleetStore",
        "assay.cli.main:run",
        "torch.nn:functional.torch.load",
        "torch.nn:Module.__init__.__globals__",
        "torch.nn.modules.module:torch.hub.load",
        "torch.hub:load",
        "torch:load",
        "posix:system",
    ],
)
@pytest.mark.parametrize("kind", ["function", "class"])
def test_names_lead_to_nothing_that_acts(name, kind):
    with pytest.raises(NotLoaded):
        Decoder({}).decode({"i": 0, "k": kind, "v": name})


def test_a_name_is_what_its_module_defines():
    assert find("assay.conformal.split", "SplitConformalRegressor") is SplitConformalRegressor
    for module, name in [("assay.core.objects", "zipfile"), ("numpy", "os"), ("json", "loads.__globals__")]:
        assert find(module, name) is None
    assert find("no.such.module", "x") is None
    assert find("", "x") is None
    assert not is_known("assay.conformalx")


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("torch-dtype", "load"),
        ("torch-dtype", "hub"),
        ("torch-device", "nowhere"),
        ("Fraction", ["1e100000000"]),
        ("Fraction", ["1e100000000", 1]),
        ("Fraction", [1, 0]),
        ("Decimal", "one"),
        ("generator", {"i": 1, "k": "dict", "v": [["bit_generator", "seed"]]}),
        ("generator", {"i": 1, "k": "dict", "v": [["bit_generator", "default_rng"]]}),
        ("dtype", "i4,O"),
        ("dtype", [["a", "O"]]),
        ("ufunc", "frompyfunc"),
        ("range", [0, 1, 0]),
        ("bytes", "%%%"),
    ],
)
def test_small_values_are_checked(kind, content):
    if kind.startswith("torch"):
        pytest.importorskip("torch")
    with pytest.raises(NotLoaded):
        Decoder({}).decode({"i": 0, "k": kind, "v": content})


@pytest.mark.parametrize("kind", ["random-state", "MT19937", "Philox"])
@pytest.mark.parametrize("position", [625, -1, 10**9, "1", True, None])
def test_random_states_that_would_read_past_their_end_are_refused(kind, position):
    rng = (
        np.random.RandomState(0)
        if kind == "random-state"
        else np.random.Generator(getattr(np.random, kind)(0))
    )
    encoder = Encoder()
    node = json.dumps(encoder.encode(rng))
    for place in ('"pos", ', '"buffer_pos", '):
        start = node.find(place)
        if start >= 0:
            end = node.index("]", start)
            node = node[: start + len(place)] + json.dumps(position) + node[end:]
    with pytest.raises(NotLoaded):
        Decoder(encoder.members).decode(json.loads(node))


def test_methods_of_arrays_and_frames_are_no_functions_of_a_file():
    encoder = Encoder()
    array = encoder.encode(np.zeros(3))
    for name in ("tofile", "dump", "view"):
        node = {"i": 9, "k": "method", "of": array, "v": name}
        with pytest.raises(NotLoaded, match="no method that a file may name"):
            Decoder(encoder.members).decode(node)
    ridge = Ridge().fit(np.eye(3), np.arange(3.0))
    encoder = Encoder()
    bound = Decoder(encoder.members)
    node = encoder.encode(ridge.predict)
    assert (bound.decode(node)(np.eye(3)) == ridge.predict(np.eye(3))).all()


def npy(descr, shape, body=b""):
    buffer = io.BytesIO()
    header = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, header)
    return buffer.getvalue() + body


@pytest.mark.parametrize(
    "content",
    [
        npy("<f8", (10**9,)),
        npy("<f8", (10**18, 10**18)),
        npy("<U0", (10**15,)),
        npy("|S0", (10**15,)),
        npy("|O", (1,), pickle.dumps(1)),
        npy("<f8", (2,), bytes(24)),
        npy("<f8", (-1,), bytes(8)),
        npy([("a", "<f8")], (1,), bytes(8)),
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        b"\x93NUMPY\x03\x00\x00\x00\x00\x00",
        b"\x93NUMPY\x09\x00",
        b"",
        b"PK\x03\x04",
    ],
)
def test_arrays_that_are_not_what_they_say_are_refused(content):
    start = time.perf_counter()
    with pytest.raises(NotLoaded):
        Decoder({"p": content}).decode({"i": 0, "k": "array", "v": "p"})
    assert time.perf_counter() - start < 2


def test_arrays_of_every_kind_pass():
    for array in (np.zeros((3, 0)), np.array(2), np.array(["é"]), np.array([""]), np.zeros(2, "M8[us]")):
        buffer = io.BytesIO()
        np.save(buffer, array)
        check_npy(buffer.getvalue())


def test_a_key_made_of_itself_is_not_hashed_for_ever():
    node, number = {"i": 0, "k": "tuple", "v": [1]}, 0
    nodes = [node]
    for number in range(1, 60):
        nodes.append({"i": number, "k": "tuple", "v": [nodes[-1], {"k": "again", "i": number - 1}]})
    start = time.perf_counter()
    with pytest.raises(NotLoaded, match="too large"):
        Decoder({}).decode({"i": 99, "k": "dict", "v": [[nodes[-1], 1]]})
    assert time.perf_counter() - start < 2


# --------------------------------------------------------------------------------------- parts of skops


def part(node, members=None, compression=zipfile.ZIP_STORED):
    io_module = pytest.importorskip("skops.io")
    whole = zipfile.ZipFile(io.BytesIO(io_module.dumps(FunctionTransformer(np.log1p))))
    facts = json.loads(whole.read("schema.json"))
    node = {**{k: facts[k] for k in ("protocol", "_skops_version") if k in facts}, **node}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        archive.writestr("schema.json", json.dumps(node))
        for name, content in (members or {}).items():
            archive.writestr(name, content)
    return buffer.getvalue()


def text(value):
    node = {"__class__": "str", "__module__": "builtins", "__loader__": "JsonNode"}
    return node | {"content": json.dumps(value), "is_json": True, "__id__": abs(hash(str(value)))}


def called(module, name, *arguments, loader="ConstructorFromReduceNode"):
    values = {"__class__": "tuple", "__module__": "builtins", "__loader__": "TupleNode", "__id__": 2}
    values["content"] = [text(argument) for argument in arguments]
    node = {"__class__": name, "__module__": module, "__loader__": loader, "__id__": 1, "content": values}
    return node | {"__reduce__": {"args": values}}


class Act:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


@pytest.mark.parametrize("loader", ["ConstructorFromReduceNode", "LossNode"])
@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("pandas", "read_pickle"),
        ("pandas", "eval"),
        ("numpy", "load"),
        ("numpy", "memmap"),
        ("scipy.io", "netcdf_file"),
        ("scipy.io", "loadmat"),
        ("sklearn.datasets", "fetch_openml"),
        ("sklearn.utils._param_validation", "functools.reduce"),
        ("assay.core.archive", "write_archive"),
        ("assay.data.batches", "AnswerWriter"),
        ("assay", "load"),
        ("statsforecast.core", "StatsForecast"),
        ("os", "system"),
        ("builtins", "eval"),
    ],
)
def test_calls_of_functions_that_read_or_act_are_refused(tmp_path, module, name, loader):
    victim, evil = tmp_path / "victim", tmp_path / "evil.pkl"
    evil.write_bytes(pickle.dumps(Act(str(victim))))
    content = part(called(module, name, str(evil), loader=loader))
    with pytest.raises(NotLoaded, match=r"not trusted|cannot be read"):
        Decoder({"p": content}).decode({"i": 0, "k": "skops", "v": "p"})
    assert not victim.exists()
    assert not is_known_part(f"{module}.{name}")


def test_parts_that_unpack_to_far_more_are_refused():
    zeros = io.BytesIO()
    np.savez_compressed(zeros, data=np.zeros(10**7))
    matrix = {"__class__": "csr_matrix", "__module__": "scipy.sparse", "__loader__": "SparseMatrixNode"}
    matrix |= {"__id__": 1, "type": "scipy", "file": "m"}
    array = {"__class__": "ndarray", "__module__": "numpy", "__loader__": "NdArrayNode"}
    array |= {"__id__": 1, "type": "numpy", "file": "m"}
    for node, content in ((matrix, zeros.getvalue()), (array, npy("<f8", (10**9,)))):
        with pytest.raises(NotLoaded, match=r"would become|has 0 bytes"):
            Decoder({"p": part(node, {"m": content})}).decode({"i": 0, "k": "skops", "v": "p"})


def test_sparse_parts_come_back():
    from scipy import sparse
    from sklearn.neighbors import KNeighborsRegressor

    X = sparse.random(60, 5, density=0.4, format="csr", random_state=0)
    model = KNeighborsRegressor(algorithm="brute").fit(X, np.arange(60.0))
    encoder = Encoder()
    got = Decoder(encoder.members).decode(encoder.encode(model))
    assert (got.predict(X) == model.predict(X)).all()


# -------------------------------------------------------------------------------------------- fuzzing

_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=12,
)
_WORDS = (
    "list tuple set frozenset deque dict ordered array scalar objects tensor skops named class function "
    "method tree partial Fraction Decimal complex bytes range slice dtype ufunc generator random-state "
    "torch-device torch-dtype object again float"
)
_KINDS = st.sampled_from(_WORDS.split())
_NODE = st.recursive(
    _JSON,
    lambda inner: st.fixed_dictionaries(
        {"k": _KINDS, "i": st.integers(0, 4), "v": st.lists(inner, max_size=3) | inner},
        optional={
            "c": st.sampled_from(
                ["assay.conformal.split:SplitConformalRegressor", "torch.nn:Module", "cKDTree", "os:system"]
            ),
            "shape": st.lists(st.integers(-1, 10**12), max_size=3),
            "of": inner,
            "dtype": st.sampled_from(["float32", "bfloat16"]),
            "parameter": st.booleans(),
            "grad": st.booleans(),
        },
    ),
    max_leaves=8,
)


def decode_anything(node):
    whole = io.BytesIO()
    np.save(whole, np.arange(4.0))
    with contextlib.suppress(NotLoaded):
        Decoder({"p": whole.getvalue()}).decode(node)


@settings(max_examples=300, deadline=2000)
@given(_NODE)
def test_any_description_is_an_object_or_refused(node):
    decode_anything(node)


@pytest.mark.slow
@settings(max_examples=20_000, deadline=5000)
@given(_NODE)
def test_any_description_is_an_object_or_refused_in_full(node):
    decode_anything(node)
