"""What a saved file may name: classes and functions of known packages, and arrays that are what they say.

A file is written by anybody. So a name counts only where it leads to a class or function that is defined
in the very module that it names: never through a module to what that module has imported, and never to
code that opens files, runs programs or reads pickles.
"""

from __future__ import annotations

import importlib
import io
import math
import zipfile
from collections.abc import Collection
from types import ModuleType
from typing import Any

import numpy as np

#: packages whose classes may be made, and whose functions may be named, by a file
_KNOWN = (
    "assay.bayes",
    "assay.conformal",
    "assay.core",
    "assay.data.prepare",
    "assay.networks",
    "torch.distributions",
    "torch.nn",
    "zuko",
)
#: parts of them that write files or run other things: a method has no business there
_HIDDEN = (
    "assay.conformal.fleet_store",
    "assay.core.archive",
    "assay.core.cards",
    "assay.core.checkpoints",
    "assay.core.durable",
    "assay.core.objects",
    "assay.core.trust",
)
#: packages whose classes may stand in a part made by skops: none opens a file when it is made
_CLASSES = (
    "sklearn",
    "numpy.random",
    "quantile_forest",
    "scipy.interpolate",
    "scipy.sparse",
    "scipy.spatial",
    "scipy.stats",
    "statsforecast.models",
)
#: packages whose functions may stand there too: arithmetic on arrays
_FUNCTIONS = ("sklearn.feature_selection", "sklearn.metrics")
_BIT_GENERATORS = {"MT19937": 624, "PCG64": None, "PCG64DXSM": None, "Philox": 4, "SFC64": None}
#: a packed array inside a part may become this many times as large
_LARGEST_RATIO = 200
_SMALL = 1 << 20


def within(name: str, packages: Collection[str]) -> bool:
    """Whether a dotted name is one of the packages or inside one."""
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def is_known(module: str) -> bool:
    """Whether what a module defines may be named by a file."""
    return within(module, _KNOWN) and not within(module, _HIDDEN)


def find(module: str, qualname: str) -> Any:
    """The class or function that ``module`` itself defines under that name; None if there is none."""
    try:
        found: Any = importlib.import_module(module)
    except (ImportError, ValueError):
        return None
    for part in qualname.split("."):
        found = getattr(found, part, None)
        if found is None or isinstance(found, ModuleType):
            return None
    defined = getattr(found, "__module__", None) == module and callable(found)
    return found if defined and getattr(found, "__qualname__", None) == qualname else None


def is_number_type(value: Any) -> bool:
    """Whether it is one of numpy's classes of numbers, such as numpy.float64."""
    return isinstance(value, type) and issubclass(value, np.generic)


def is_known_part(name: str) -> bool:
    """Whether a type that skops names ("package.module.Class") may be made without being asked for.

    skops calls some classes with arguments from the file, and hands over functions. So a name is known
    only if it leads to a class of a package whose classes do nothing but compute, or to a function of
    one whose functions do.
    """
    module, _, qualname = name.rpartition(".")
    if is_known(module):
        return find(module, qualname) is not None
    if module == "numpy":
        return qualname == "dtype" or is_number_type(getattr(np, qualname, None))
    if within(module, _CLASSES) and isinstance(found := find(module, qualname), type):
        return not issubclass(found, ModuleType)
    return within(module, _FUNCTIONS) and find(module, qualname) is not None


def check_npy(content: bytes) -> None:
    """Refuse the bytes of an NPY array that are not as many as its shape says, or that hold objects."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    read = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }.get(version)
    if read is None:
        raise ValueError(f"an array in NPY version {version[0]}.{version[1]}")
    shape, _, dtype = read(file)
    cells, left = math.prod(shape), len(content) - file.tell()
    if dtype.hasobject:
        raise ValueError("an array of objects")
    if cells * dtype.itemsize != left or (dtype.itemsize == 0 and cells > _SMALL):
        raise ValueError(f"an array of shape {shape} and type {dtype} has {left} bytes")


def check_part(content: bytes) -> None:
    """Refuse a part made by skops in which something is packed that becomes far larger than it is."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        if any(info.compress_type != zipfile.ZIP_STORED for info in archive.infolist()):
            raise ValueError("it is compressed; saved methods are not")
        for info in archive.infolist():
            if info.file_size > len(content):
                raise ValueError(f"{info.filename!r} is larger than what it is in")
            member = archive.read(info)
            if member.startswith(b"\x93NUMPY"):
                check_npy(member)
            elif member.startswith(b"PK"):
                with zipfile.ZipFile(io.BytesIO(member)) as inner:
                    total = sum(packed.file_size for packed in inner.infolist())
                if total > _SMALL + _LARGEST_RATIO * len(member):
                    raise ValueError(f"{info.filename!r} of {len(member):,} bytes would become {total:,}")


def check_key(value: Any) -> None:
    """Refuse a key of a dictionary or set that would take very long to hash: tuples of the same tuples."""
    pending, seen = [value], 0
    while pending:
        item = pending.pop()
        seen += 1
        if seen > 10_000:
            raise ValueError("a key of a dictionary is too large")
        if isinstance(item, tuple):
            pending.extend(item)


def bit_generator(state: Any) -> Any:
    """A bit generator of numpy in the state that a file gives, refused where it would read past its end."""
    name = state["bit_generator"]
    if name not in _BIT_GENERATORS:
        raise ValueError(f"{name!r} is no bit generator of numpy")
    made = getattr(np.random, name)()
    length = _BIT_GENERATORS[name]
    if length is not None:
        inner = state["state"] if name == "MT19937" else state
        position = inner["pos" if name == "MT19937" else "buffer_pos"]
        if isinstance(position, bool) or not isinstance(position, int) or not 0 <= position <= length:
            raise ValueError(f"position {position!r} of a random state of {length} numbers")
    made.state = state
    return made
