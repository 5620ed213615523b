"""A saved method on the blocks of a Ray data set; Ray itself is not imported here."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Collection, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import pandas as pd

from assay.core.errors import AssayWarning, MethodError
from assay.data.schema import Notices
from assay.engine.fitted import FittedMethod, load


class BatchPredictor:
    """Answers batches of rows; the saved method is loaded once a worker.

    For ``ray.data.Dataset.map_batches`` with ``batch_format="pandas"``, and whatever else calls an object
    with one DataFrame after the other::

        rows.map_batches(
            BatchPredictor,
            fn_constructor_args=(Path("price.assay").read_bytes(),),
            fn_constructor_kwargs={"keep": ["id"]},
            batch_format="pandas",
            concurrency=4,
        )

    Parameters
    ----------
    saved : path, or bytes
        The file of :meth:`FittedMethod.save`, or what is in it: bytes reach workers that do not see the file.
    keep : column names
        Written before the answers as they are. Ray does not keep the order of rows: keep what tells them
        apart.
    trusted : names
        As in :func:`assay.load`.

    Attributes
    ----------
    fitted : the loaded method
    notices : what was strange in the batches so far, counted

    Raises
    ------
    MethodError
        It is a bare fitted object, saved without the columns of a table.
    BrokenArchive, NotLoaded
        As :func:`assay.load` does.
    """

    def __init__(
        self,
        saved: str | PathLike[str] | bytes,
        *,
        keep: Sequence[str] = (),
        trusted: Collection[str] = (),
    ) -> None:
        self.keep = tuple(keep)
        self.notices = Notices()
        fitted = _load(saved, trusted)
        if not isinstance(fitted, FittedMethod):
            raise MethodError(
                f"the saved {type(fitted).__name__} has no columns, so that it cannot read a table; "
                "save what assay.fit gives"
            )
        self.fitted = fitted

    def __call__(self, batch: pd.DataFrame) -> pd.DataFrame:
        """The answers of :meth:`FittedMethod.predict` to one batch, after the columns to keep.

        What is strange in the rows is said once by an AssayWarning, when it is first met.
        """
        known = len(self.notices.lines())
        pieces = list(self.fitted.predict_batches(batch, notices=self.notices, keep=self.keep))
        for line in self.notices.lines()[known:]:
            warnings.warn(line, AssayWarning, stacklevel=2)
        if pieces:
            return pd.concat(pieces)
        return pd.concat([batch[list(self.keep)], self.fitted.predict(batch)], axis=1)


def _load(saved: str | PathLike[str] | bytes, trusted: Collection[str]) -> Any:
    if not isinstance(saved, bytes):
        return load(saved, trusted=trusted)
    with tempfile.TemporaryDirectory(prefix="assay-saved-") as folder:
        path = Path(folder) / "saved.assay"
        path.write_bytes(saved)
        return load(path, trusted=trusted)
