"""Fitted objects as JSON and arrays, and back: no pickle, and no code but that of known packages.

An object is its class's name and its attributes. Objects of scikit-learn and other packages go through
skops, which has a list of types that it trusts; what is beyond that list is named in the file, and is
read only if the caller names it too. Functions count by name. Arrays keep every bit.
"""

from __future__ import annotations

import base64
import functools
import inspect
import io
import itertools
import json
import operator
import sys
import zipfile
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import is_dataclass
from decimal import Decimal
from fractions import Fraction
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree, cKDTree

from assay.core.errors import AssayError, MethodError, MissingDependency
from assay.core.models import import_torch
from assay.core.trees import check_trees
from assay.core.trust import (
    bit_generator,
    check_key,
    check_npy,
    check_part,
    find,
    is_known,
    is_known_part,
    is_number_type,
    within,
)

_PLAIN_KINDS = "biufcUSMm"
_DEEPEST = 150
_PART = "part"


class NotSaved(MethodError):
    """An object holds something that a file cannot hold; the message names where."""


class NotLoaded(AssayError, ValueError):
    """A file holds something that is not known or not trusted, or does not describe an object."""


# ------------------------------------------------------------------------------------------ writing


class Encoder:
    """Turns objects into JSON values; arrays and foreign objects become ``members`` of a file.

    ``foreign`` collects the names of classes and functions that a reader must trust by name,
    ``packages`` the packages that it needs.
    """

    def __init__(self) -> None:
        self.members: dict[str, bytes] = {}
        self.foreign: set[str] = set()
        self.packages: set[str] = set()
        self._numbers: dict[int, int] = {}
        self._kept: list[Any] = []  # ids in _numbers stay valid while their objects live

    def encode(self, value: Any, where: str = "object") -> Any:
        """The JSON value that stands for an object.

        Raises
        ------
        NotSaved
            It holds an open file, a lock, a function without a name, or the like.
        """
        return self._node(value, where, 0)

    def _node(self, value: Any, where: str, depth: int) -> Any:
        if value is None or isinstance(value, (bool, str)) or type(value) is int:
            return value
        if type(value) is float:
            return value if np.isfinite(value) else {"k": "float", "v": repr(value)}
        if depth > _DEEPEST:
            raise NotSaved(f"{where}: objects lie more than {_DEEPEST} deep in each other")
        if id(value) in self._numbers:
            return {"k": "again", "i": self._numbers[id(value)]}
        self._numbers[id(value)] = len(self._numbers)
        self._kept.append(value)
        number = self._numbers[id(value)]
        return {"i": number, **self._compound(value, where, depth + 1)}

    def _compound(self, value: Any, where: str, depth: int) -> dict[str, Any]:
        def inner(item: Any, name: str) -> Any:
            return self._node(item, f"{where}{name}", depth)

        def sequence(items: Iterable[Any]) -> list[Any]:
            return [inner(item, f"[{i}]") for i, item in enumerate(items)]

        found: Any = value  # of a type that its checks below tell

        kind = type(value)
        if kind in _SEQUENCES:
            return {"k": _SEQUENCES[kind], "v": sequence(value)}
        if kind in (dict, OrderedDict):
            return {"k": "dict" if kind is dict else "ordered", "v": self._pairs(value, where, depth)}
        if kind in _TEXTS:
            return {"k": kind.__name__, "v": _TEXTS[kind](value)}
        if isinstance(value, np.ndarray):
            return self._array(value, sequence)
        if isinstance(value, np.generic):
            return {"k": "scalar", "v": self._member(np.asarray(value))}
        if isinstance(value, np.dtype):
            return {"k": "dtype", "v": value.str}
        if isinstance(value, cKDTree):  # the same points give the same tree
            content = [np.asarray(value.data), value.boxsize, int(value.leafsize)]
            return {"k": "tree", "c": kind.__name__, "v": sequence(content)}
        if isinstance(value, np.ufunc):
            return {"k": "ufunc", "v": value.__name__}
        if isinstance(value, np.random.Generator):
            return {"k": "generator", "v": inner(dict(value.bit_generator.state), ".state")}
        if isinstance(value, np.random.RandomState):
            return {"k": "random-state", "v": inner(value.get_state(legacy=False), ".state")}
        if isinstance(value, functools.partial):
            return {"k": "partial", "v": sequence([value.func, tuple(value.args), dict(value.keywords)])}
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):
            return self._tensor(torch, value)
        if torch is not None and isinstance(value, (torch.device, torch.dtype)):
            return {"k": f"torch-{kind.__name__}", "v": str(value).removeprefix("torch.")}
        if isinstance(value, type):
            return {"k": "class", "v": self._name(value, where)}
        if callable(value) and hasattr(value, "__qualname__"):
            if hasattr(value, "__self__") and not isinstance(value.__self__, type(sys)):
                return {"k": "method", "of": inner(found.__self__, ".__self__"), "v": found.__name__}
            return {"k": "function", "v": self._name(value, where)}
        return self._object(value, where, depth)

    def _pairs(self, value: Mapping[Any, Any], where: str, depth: int) -> list[Any]:
        return [
            [self._node(key, f"{where} key", depth), self._node(item, f"{where}[{key!r}]", depth)]
            for key, item in value.items()
        ]

    def _array(self, value: NDArray[Any], sequence: Callable[[Iterable[Any]], list[Any]]) -> dict[str, Any]:
        if value.dtype.kind == "O":
            return {"k": "objects", "shape": list(value.shape), "v": sequence(value.reshape(-1).tolist())}
        if value.dtype.kind not in _PLAIN_KINDS or type(value) is not np.ndarray:
            raise NotSaved(f"an array of type {type(value).__name__} ({value.dtype}) cannot be saved")
        return {"k": "array", "v": self._member(value)}

    def _member(self, value: NDArray[Any]) -> str:
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, value, allow_pickle=False)
        return self._keep(buffer.getvalue(), "npy")

    def _keep(self, content: bytes, ending: str) -> str:
        name = f"{_PART}s/{len(self.members)}.{ending}"
        self.members[name] = content
        return name

    def _tensor(self, torch: Any, value: Any) -> dict[str, Any]:
        plain = value.detach().cpu()
        kind = str(plain.dtype).removeprefix("torch.")
        if plain.dtype == torch.bfloat16:
            plain = plain.view(torch.int16)
        return {
            "k": "tensor",
            "v": self._member(plain.numpy()),
            "dtype": kind,
            "parameter": isinstance(value, torch.nn.Parameter),
            "grad": bool(value.requires_grad),
        }

    def _object(self, value: Any, where: str, depth: int) -> dict[str, Any]:
        kind = type(value)
        module = kind.__module__
        torch = sys.modules.get("torch")
        is_module = torch is not None and isinstance(value, torch.nn.Module)
        if not is_module and not within(module, ("assay",)) and not hasattr(value, "_fields"):
            return {"k": "skops", "v": self._skops(value, where)}
        name = self._name(kind, where)
        if isinstance(value, tuple):
            return {"k": "named", "c": name, "v": [self._node(v, where, depth) for v in value]}
        state = dict(vars(value)) if hasattr(value, "__dict__") else {}
        slots = [slot for base in kind.__mro__ for slot in getattr(base, "__slots__", ())]
        state |= {slot: getattr(value, slot) for slot in slots if hasattr(value, slot)}
        for attribute in state:
            if not isinstance(attribute, str):
                raise NotSaved(f"{where} has an attribute {attribute!r} that is no name")
        return {
            "k": "object",
            "c": name,
            "v": {key: self._node(item, f"{where}.{key}", depth) for key, item in state.items()},
        }

    def _skops(self, value: Any, where: str) -> str:
        skops = _import_skops()
        try:
            content = skops.dumps(value, compression=zipfile.ZIP_STORED)
            untrusted = skops.get_untrusted_types(data=content)
        except Exception as error:  # skops raises whatever an object's own methods raise
            raise NotSaved(
                f"{where} is a {type(value).__module__}.{type(value).__qualname__}, which cannot be saved: "
                f"{error}"
            ) from error
        self.foreign |= {name for name in untrusted if not is_known_part(name)}
        self.packages |= {name.partition(".")[0] for name in [type(value).__module__, "skops", *untrusted]}
        return self._keep(content, "skops")

    def _name(self, value: Any, where: str) -> str:
        """``module:qualname`` of a class or function that importing gives back."""
        module, qualname = str(value.__module__), value.__qualname__
        if find(module, qualname) is not value:
            raise NotSaved(
                f"{where} is {qualname} of {module}, which is made while a program runs (in a script, a "
                "notebook or a function); a file holds no code. Put it into a module that can be imported"
            )
        name = f"{module}:{qualname}"
        self.packages.add(module.partition(".")[0])
        if not (is_known(module) or is_number_type(value)):
            self.foreign.add(name)
        return name


_SEQUENCES: dict[type, str] = {
    list: "list",
    tuple: "tuple",
    set: "set",
    frozenset: "frozenset",
    deque: "deque",
}
_TEXTS: dict[type, Callable[[Any], Any]] = {
    Fraction: lambda value: [value.numerator, value.denominator],
    Decimal: str,
    complex: lambda value: [repr(value.real), repr(value.imag)],
    bytes: lambda value: base64.b64encode(value).decode(),
    range: lambda value: [value.start, value.stop, value.step],
    slice: lambda value: [value.start, value.stop, value.step],
}


# ------------------------------------------------------------------------------------------ reading


class Decoder:
    """Makes the objects again that an :class:`Encoder` wrote.

    Parameters
    ----------
    members : mapping
        Name -> bytes, as the encoder kept them.
    trusted : collection of str
        Further names ("package.module:Class", or skops' "package.module.Class") that may be used.
    """

    def __init__(self, members: Mapping[str, bytes], trusted: Collection[str] = ()) -> None:
        self._members = members
        self._trusted = frozenset(trusted)
        self._made: dict[int, Any] = {}

    def decode(self, node: Any) -> Any:
        """The object that a JSON value stands for.

        Raises
        ------
        NotLoaded
            The value describes no object, or one of a class that is not trusted.
        """
        try:
            return self._value(node, 0)
        except (NotLoaded, MissingDependency):
            raise
        except (ImportError, AttributeError) as error:
            raise NotLoaded(
                f"it was saved by a version that knew something which this one does not: {error}"
            ) from error
        except Exception as error:  # whatever the classes that a hostile file names make of what it holds
            raise NotLoaded(f"it does not describe an object: {type(error).__name__}: {error}") from error

    def _value(self, node: Any, depth: int) -> Any:
        if node is None or isinstance(node, (bool, str, int, float)):
            return node
        if depth > 2 * _DEEPEST or not isinstance(node, dict):
            raise NotLoaded("it does not describe an object: too deep, or a list where none can be")
        kind = node["k"]
        if kind == "again":
            return self._made[node["i"]]
        if kind == "float":
            return {"nan": np.nan, "inf": np.inf, "-inf": -np.inf}[node["v"]]
        made = self._compound(kind, node, depth + 1)
        self._made[node["i"]] = made
        return made

    def _compound(self, kind: str, node: dict[str, Any], depth: int) -> Any:
        if kind in ("list", "deque", "dict", "ordered", "object"):
            return self._growing(kind, node, depth)
        content = node.get("v")
        if kind == "tuple":
            return tuple(self._all(content, depth))
        if kind in ("set", "frozenset"):
            return {"set": set, "frozenset": frozenset}[kind](map(_key, self._all(content, depth)))
        if kind in ("array", "scalar"):
            array = self._read_array(content)
            return array if kind == "array" else array[()]
        if kind == "objects":
            return self._object_array(node, depth)
        if kind == "tensor":
            return self._read_tensor(node)
        if kind == "skops":
            return self._read_skops(content)
        if kind == "named":
            made = self._all(content, depth)
            return tuple.__new__(self._named(node["c"]), made)
        if kind in ("class", "function"):
            return self._named(content)
        if kind == "method":
            return _method(self._value(node["of"], depth), _plain_name(content))
        if kind == "tree":
            points, boxsize, leafsize = self._all(content, depth)
            return {"cKDTree": cKDTree, "KDTree": KDTree}[node["c"]](points, leafsize, boxsize=boxsize)
        if kind == "partial":
            function, arguments, keywords = self._all(content, depth)
            return functools.partial(function, *arguments, **keywords)
        return self._small(kind, content, depth)

    def _small(self, kind: str, content: Any, depth: int) -> Any:
        if kind == "Fraction":
            numerator, denominator = content
            return Fraction(operator.index(numerator), operator.index(denominator))
        if kind == "Decimal":
            return Decimal(content)
        if kind == "complex":
            return complex(float(content[0]), float(content[1]))
        if kind == "bytes":
            return base64.b64decode(content, validate=True)
        if kind in ("range", "slice"):
            return {"range": range, "slice": slice}[kind](*content)
        if kind == "dtype":
            return _plain_dtype(content)
        if kind == "ufunc":
            found = getattr(np, _plain_name(content))
            if not isinstance(found, np.ufunc):
                raise NotLoaded(f"numpy.{content} is no function of arrays")
            return found
        if kind == "generator":
            return np.random.Generator(bit_generator(self._value(content, depth)))
        if kind == "random-state":
            made = np.random.RandomState()
            state = self._value(content, depth)
            bit_generator({key: state[key] for key in ("bit_generator", "state")})
            made.set_state(state)
            return made
        if kind in ("torch-device", "torch-dtype"):
            torch = import_torch("this saved method")
            if kind == "torch-device":
                return torch.device(content)
            found = getattr(torch, _plain_name(content))
            if not isinstance(found, torch.dtype):
                raise NotLoaded(f"torch.{content} is no type of numbers")
            return found
        raise NotLoaded(f"it holds something of the kind {kind!r}, which this version does not know")

    def _growing(self, kind: str, node: dict[str, Any], depth: int) -> Any:
        """What may hold itself: it is there before what is in it."""
        if kind in ("list", "deque"):
            made: Any = [] if kind == "list" else deque()
            self._made[node["i"]] = made
            made.extend(self._all(node["v"], depth))
            return made
        if kind in ("dict", "ordered"):
            made = {} if kind == "dict" else OrderedDict()
            self._made[node["i"]] = made
            for key, item in node["v"]:
                made[_key(self._value(key, depth))] = self._value(item, depth)
            return made
        cls = self._named(node["c"])
        if not isinstance(cls, type):
            raise NotLoaded(f"{node['c']} is no class")
        made = object.__new__(cls)
        self._made[node["i"]] = made
        state = {_plain_name(key): self._value(item, depth) for key, item in node["v"].items()}
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(made, torch.nn.Module):
            made.__setstate__(state)  # it also adds what newer versions of torch keep in a module
            return made
        for key, item in state.items():
            if callable(item) and isinstance(getattr(cls, key, None), FunctionType) and not is_dataclass(cls):
                raise NotLoaded(f"it would put something in the place of {cls.__qualname__}.{key}")
            object.__setattr__(made, key, item)
        return made

    def _all(self, items: Any, depth: int) -> list[Any]:
        if not isinstance(items, list):
            raise NotLoaded("it does not describe an object: a list is missing")
        return [self._value(item, depth) for item in items]

    def _read_array(self, name: Any) -> NDArray[Any]:
        check_npy(self._members[name])
        array = np.lib.format.read_array(io.BytesIO(self._members[name]), allow_pickle=False)
        _plain_dtype(array.dtype.str)
        return np.asarray(array)

    def _object_array(self, node: dict[str, Any], depth: int) -> NDArray[Any]:
        items = self._all(node["v"], depth)
        array = np.empty(len(items), dtype=object)
        for i, item in enumerate(items):
            array[i] = item
        return array.reshape(node["shape"])

    def _read_tensor(self, node: dict[str, Any]) -> Any:
        torch = import_torch("this saved method")
        made = torch.from_numpy(self._read_array(node["v"]).copy())
        if node["dtype"] == "bfloat16":
            made = made.view(torch.bfloat16)
        if node["parameter"]:
            return torch.nn.Parameter(made, requires_grad=bool(node["grad"]))
        return made.requires_grad_(bool(node["grad"]))

    def _read_skops(self, name: Any) -> Any:
        skops = _import_skops()
        content = self._members[name]
        try:
            check_part(content)
            types = skops.get_untrusted_types(data=content)
            unknown = [t for t in types if t not in self._trusted and not is_known_part(t)]
            if unknown:
                raise NotLoaded(_not_trusted(unknown))
            made = skops.loads(content, trusted=types)
            check_trees(made)
            return made
        except NotLoaded:
            raise
        except Exception as error:  # whatever a hostile or foreign part makes skops do
            why = f"{type(error).__name__}: {error}"
            raise NotLoaded(f"a part made by skops cannot be read: {why}") from error

    def _named(self, name: Any) -> Any:
        module, _, qualname = str(name).partition(":")
        if module == "numpy" and is_number_type(getattr(np, qualname, None)):
            return getattr(np, qualname)
        if name not in self._trusted and not is_known(module):
            raise NotLoaded(_not_trusted([str(name)]))
        found = find(module, qualname)
        if found is None:
            raise NotLoaded(f"{name} is not there; was it saved by another version, or is a package missing?")
        return found


def to_json(value: Any) -> bytes:
    """UTF-8 bytes of a JSON value; NaN and infinities are refused."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=True).encode()


def from_json(content: bytes) -> Any:
    """The JSON value of UTF-8 bytes.

    Raises
    ------
    NotLoaded
        It is no JSON, or lies too deep.
    """
    try:
        return json.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise NotLoaded(f"it holds no JSON where JSON must be: {error}") from error


# ------------------------------------------------------------------------------------------- names


def _method(value: Any, name: str) -> Any:
    """A method of a known class, bound to an object of it; not what numpy or others can do with files."""
    found = inspect.getattr_static(type(value), name, None)
    module = getattr(found, "__module__", None) or ""
    if not isinstance(found, FunctionType) or not (is_known(module) or within(module, ("sklearn",))):
        raise NotLoaded(f"{type(value).__qualname__}.{name} is no method that a file may name")
    return getattr(value, name)


def _key(value: Any) -> Any:
    check_key(value)
    return value


def _plain_name(name: Any) -> str:
    if not isinstance(name, str) or not name.isidentifier() or (name.startswith("__")):
        raise NotLoaded(f"{name!r} is no name of an attribute")
    return name


def _plain_dtype(text: Any) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(text)
    if dtype.kind not in _PLAIN_KINDS:
        raise NotLoaded(f"arrays of type {dtype} are not read")
    return dtype


def _not_trusted(names: list[str]) -> str:
    listed = ", ".join(itertools.islice(names, 5))
    return (
        f"it holds objects of types that are not trusted: {listed}; if you trust who made the file, name "
        "them: load(path, trusted=[...]), or --trust NAME on the command line"
    )


def _import_skops() -> Any:
    try:
        import skops.io
    except ImportError:
        raise MissingDependency(
            "saving and loading scikit-learn models needs: pip install 'assay[save]'"
        ) from None
    return skops.io
