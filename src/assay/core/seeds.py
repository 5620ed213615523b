"""Seeds and random numbers that depend on a row's content, never on its place in a batch."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.core.errors import MethodError

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)


def derive_seed(*parts: Any) -> int:
    """A 32-bit seed from any printable parts; the same parts give the same seed everywhere."""
    digest = hashlib.sha256("\x1f".join(map(str, parts)).encode()).digest()
    return int.from_bytes(digest[:4], "big")


def seed_of(random_state: Any) -> int:
    """An integer seed from None, an int, a RandomState or a Generator (which advance by one draw)."""
    if random_state is None:
        return int(np.random.default_rng().integers(2**32))
    if isinstance(random_state, (int, np.integer)):
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    if not hasattr(random_state, "randint"):
        raise MethodError(
            f"random_state must be None, an integer, a numpy Generator or a RandomState, got {random_state!r}"
        )
    return int(random_state.randint(2**31 - 1))


def _mix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of splitmix64, elementwise (wraps modulo 2**64 by design)."""
    z = (z ^ (z >> np.uint64(30))) * _MIX1
    z = (z ^ (z >> np.uint64(27))) * _MIX2
    return z ^ (z >> np.uint64(31))


def row_keys(X: NDArray[Any], seed: int, stream: str = "") -> NDArray[np.uint64]:
    """One 64-bit key a row of a (n, d) array, from the row's values, the seed and the stream's name.

    Equal rows have equal keys, whatever the batch; -0.0 counts as 0.0.
    """
    rows = np.asarray(X, dtype=np.float64)
    values = np.ascontiguousarray(rows.reshape(len(rows), math.prod(rows.shape[1:]))) + 0.0
    bits = values.view(np.uint64)
    with np.errstate(over="ignore"):
        key = np.full(len(bits), derive_seed(seed, stream), dtype=np.uint64)
        for column in range(bits.shape[1]):
            key = _mix(key * _GOLDEN + bits[:, column])
        return _mix(key + _GOLDEN)


def unordered_row_keys(X: NDArray[Any], seed: int, stream: str = "") -> NDArray[np.uint64]:
    """Like :func:`row_keys`, but permuting the columns of X changes no key."""
    values = np.asarray(X, dtype=np.float64) + 0.0
    with np.errstate(over="ignore"):
        words = _mix(values.view(np.uint64) * _GOLDEN + np.uint64(derive_seed(seed, stream)))
        return _mix(words.sum(axis=1, dtype=np.uint64) + _GOLDEN)


def row_uniforms(keys: NDArray[np.uint64], m: int, start: int = 0) -> NDArray[np.float64]:
    """(n, m) uniforms in (0, 1): numbers start .. start + m - 1 of each row's own sequence."""
    with np.errstate(over="ignore"):
        counter = (np.arange(start + 1, start + m + 1, dtype=np.uint64) * _GOLDEN)[None, :]
        bits = _mix(keys[:, None] + counter)
    # 52 bits: with one more the largest would round to 1
    return ((bits >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
