"""A fleet whose state survives: every batch is on the disk before it is acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from assay.conformal.fleet import Fleet, FleetStep
from assay.conformal.fleet_keys import id_list, time_keys
from assay.core.checkpoints import Opened, StateFolder
from assay.core.checks import as_vector
from assay.core.durable import Record
from assay.core.errors import DataError, StoreError

Note = Mapping[str, Any]

_FORMAT = 1


class DurableFleet:
    """A :class:`Fleet` with its state in a folder.

    A batch is applied, then its rows and a note of the caller are appended to a journal as one record with
    checksums and brought to the disk; then :meth:`update` returns. After a kill at any point the folder
    holds all acknowledged batches, each once, and at most one more that was on the disk when the kill came.
    Opening loads the newest checkpoint, checks every byte, and applies the journal behind it: the state is
    the same, bit for bit, as if nothing had happened.

    Parameters
    ----------
    fleet : Fleet
        A fresh one; it gets the state that is in the folder.
    path : str or Path
        The folder; made if it is not there. One process at a time may hold it.
    restore : bool, default False
        Where something is damaged, go back to the last state that can be had, instead of refusing.
    checkpoint_rows, checkpoint_batches : int
        A checkpoint is written when the journal behind the last one holds so many. They bound the time of
        opening: 500,000 rows are applied again in about half a second.

    Attributes
    ----------
    number : int
        Batches acknowledged so far.
    note : dict
        The note of the last of them.
    opened : Opened or None
        What was found; None for a new state.

    Raises
    ------
    StoreError
        The folder cannot be used, is in use by another process, or is damaged; the message says what can
        be restored.
    DataError
        The state is of a fleet with other parameters; the message says which.
    """

    def __init__(
        self,
        fleet: Fleet,
        path: str | Path,
        *,
        restore: bool = False,
        checkpoint_rows: int = 500_000,
        checkpoint_batches: int = 1_000,
    ) -> None:
        if fleet.series:
            raise StoreError(f"the fleet has {len(fleet.series)} series already; give a fresh one")
        self.fleet = fleet
        self.note: dict[str, Any] = {}
        self.opened: Opened | None = None
        self._limits = checkpoint_rows, checkpoint_batches
        self._rows = self._batches = 0
        self._failed = ""
        self._folder = StateFolder(Path(path))
        self._folder.acquire()
        try:
            if self._folder.empty:
                self._folder.begin(self._about(), fleet.state_views())
            else:
                find = self._folder.restore if restore else self._folder.open
                self.opened = find(self._load, self._again)
                if self.opened.lost:
                    self.checkpoint()
        except BaseException:
            self._folder.close()
            raise

    @property
    def number(self) -> int:
        """Batches acknowledged so far."""
        return self._folder.number

    def update(
        self,
        ids: Any,
        times: Any,
        forecasts: Any,
        actuals: Any,
        *,
        note: Note | Callable[[FleetStep], Note] = {},  # noqa: B006 - never changed
    ) -> FleetStep:
        """As :meth:`Fleet.update`; the batch is on the disk when this returns.

        Parameters
        ----------
        note : mapping that JSON can hold, or a function of the step that gives one
            Kept in the same record as the rows: where the input was, say, so that both are known or
            neither. A function is called after the rows have been applied and before they are kept, which
            is the moment to write the answer: it may then come twice after a kill, but never be lost.

        Raises
        ------
        StoreError
            The record could not be written; the batch is not acknowledged, and the object takes no more.
        """
        if self._failed:
            raise StoreError(f"this object takes no more batches after: {self._failed}; open the state again")
        names = id_list(ids)
        keys, kind = time_keys(times)
        rows = {
            "times": keys,
            "forecasts": as_vector(forecasts, "forecasts", length=len(names)),
            "actuals": as_vector(actuals, "actuals", length=len(names)),
        }
        known = len(self.fleet.series_ids)
        step = self.fleet.update(names, times, rows["forecasts"], rows["actuals"])
        self._failed = "a batch that was applied and not kept"
        said = dict(note(step) if callable(note) else note)
        places = self.fleet.series_ids.find(names)
        unknown = [name for name, place in zip(names, places.tolist(), strict=True) if place < 0]
        about = {
            "note": said,
            "kind": kind,
            "new": [self.fleet.series_ids[i] for i in range(known, len(self.fleet.series_ids))],
            "unknown": unknown,
        }
        self._folder.append(about, {"series": places, **rows})
        self._failed = ""
        self.note = said
        self._count(len(names))
        if self._rows >= self._limits[0] or self._batches >= self._limits[1]:
            self.checkpoint()
        return step

    def checkpoint(self) -> int:
        """Write the whole state; the number of bytes."""
        size = self._folder.checkpoint(self._about(), self.fleet.state_views())
        self._rows = self._batches = 0
        return size

    def close(self) -> None:
        """Write a checkpoint if batches came after the last, and let the folder go."""
        try:
            if self._batches and not self._failed:
                self.checkpoint()
        finally:
            self._folder.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

    # --- inside ------------------------------------------------------------------------------------

    def _about(self) -> dict[str, Any]:
        return {"format": _FORMAT, "config": self.fleet.config, "note": self.note}

    def _load(self, record: Record) -> None:
        if record.about.get("format") != _FORMAT:
            raise StoreError(
                f"{self._folder.path} has format {record.about.get('format')}, this assay knows {_FORMAT}"
            )
        theirs, ours = record.about["config"], self.fleet.config
        other = [
            f"{name} is {theirs.get(name, 'not there')} in the state and {ours.get(name, 'not there')} here"
            for name in dict.fromkeys([*theirs, *ours])
            if theirs.get(name) != ours.get(name)
        ]
        if other:
            raise DataError(
                f"the state {self._folder.path} belongs to another fleet: {'; '.join(other)}. Give the same "
                "parameters, or name another state"
            )
        self.fleet.adopt_state(record.arrays)
        self.note = record.about["note"]
        self._rows = self._batches = 0

    def _again(self, record: Record) -> None:
        """Apply a batch of the journal."""
        about, arrays = record.about, record.arrays
        names = [*self.fleet.series, *about["new"]]
        unknown = iter(about["unknown"])
        ids = [names[place] if place >= 0 else next(unknown) for place in arrays["series"].tolist()]
        times = arrays["times"] if about["kind"] == "number" else arrays["times"].view("datetime64[us]")
        self.fleet.update(ids, times, arrays["forecasts"], arrays["actuals"])
        self.note = about["note"]
        self._count(len(ids))

    def _count(self, rows: int) -> None:
        self._rows += rows
        self._batches += 1


__all__ = ["DurableFleet"]
