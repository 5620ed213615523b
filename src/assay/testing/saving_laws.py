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


def written(method: Any) -> tuple[bytes, dict[str, bytes]]:
    """The JSON text and the members of a file that holds the object."""
    encoder = Encoder()
    text = to_json(encoder.encode(method, type(method).__name__))
    return text, encoder.members


def read(text: bytes, members: dict[str, bytes]) -> Any:
    """The object that they hold."""
    return Decoder(members).decode(from_json(text))
