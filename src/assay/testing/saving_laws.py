"""A fitted object that is saved and loaded is the same object."""

from __future__ import annotations

from typing import Any

import numpy as np

from assay.core.objects import Decoder, Encoder, from_json, to_json
from assay.testing.laws import law, require
from assay.testing.subject import Contract, Subject


@law("saving")
def saved_and_loaded_is_the_same(contract: Contract, subject: Subject) -> None:
    """What is read back from JSON and arrays answers with the same bits."""
    method, X = contract.ready(subject), contract.questions()
    before, answer = written(method), contract.ask(method, X)
    loaded = read(*before)
    require(type(loaded) is type(method), f"a {type(loaded).__name__} came back")
    got = contract.ask(loaded, X)
    require(np.array_equal(got, answer, equal_nan=answer.dtype.kind == "f"), "its answer has other bits")


def written(method: Any) -> tuple[bytes, Encoder]:
    """The JSON text of an object, and the encoder that keeps its arrays."""
    encoder = Encoder()
    return to_json(encoder.encode(method, type(method).__name__)), encoder


def read(text: bytes, encoder: Encoder) -> Any:
    """The object that they hold; a class of somebody else's is trusted."""
    return Decoder(encoder.members, encoder.foreign).decode(from_json(text))
