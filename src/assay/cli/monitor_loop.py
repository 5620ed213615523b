"""The loop of ``assay monitor``: a batch is read, applied, answered, kept; then the next."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import repeat
from pathlib import Path
from types import FrameType
from typing import Any

import click
import numpy as np

from assay.cli import text
from assay.cli.monitor_clock import LateSeries, far_ahead
from assay.cli.monitor_options import Ahead, default_tracker
from assay.cli.monitor_out import COLUMNS, OutFile, Stdout, as_csv, as_json
from assay.conformal.fleet import ISSUED, LATE, REPEATED, STATUS, Drift, Fleet, FleetStep
from assay.conformal.fleet_store import DurableFleet
from assay.core.cards import get_card, import_object
from assay.core.errors import DataError, MethodError
from assay.data.stream import open_stream
from assay.data.stream_rows import BadRow, Rows
from assay.engine.wording import plural

#: refused rows that are shown one by one
_SHOWN = 5
#: alarms of one batch that are shown one by one
_SHOWN_ALARMS = 10
_REFRESH_SECONDS = 0.5


@dataclass(frozen=True)
class Question:
    """What the command line asked for."""

    source: Path | None
    state: Path
    tracker: str
    settings: Mapping[str, object]
    fleet: Mapping[str, Any]
    batch: int
    wait: float
    follow: bool
    form: str | None
    columns: tuple[str, ...]
    out: Path | None
    out_format: str | None
    alarms: Path | None
    stop_at_bad: bool
    ahead: Ahead | None
    restore: bool
    quiet: bool


def build_tracker(name: str, settings: Mapping[str, object]) -> tuple[Any, str]:
    """The tracker of a card, or of ``package.module:Class``, with these settings; and what it is called."""
    if ":" in name:
        made, given = import_object(name), dict(settings)
    else:
        card = get_card(name)
        spec = card.defaults.get("tracker")
        if card.task != "online" or not isinstance(spec, Mapping):
            raise MethodError(f"{name} is no tracker of a stream; `assay methods --task online` lists them")
        name, made = card.id, import_object(spec["class"])
        given = {**{key: value for key, value in spec.items() if key != "class"}, **settings}
    said = ", ".join(f"{key}={value!r}" for key, value in given.items()) or "its own defaults"
    try:
        return made(**given), f"{name} ({said})"
    except TypeError as error:
        raise MethodError(
            f"{name} does not take {', '.join(settings) or 'these parameters'}: {error}"
        ) from None


def watch(question: Question) -> int:
    """Follow the stream to its end, or to a signal; the exit status."""
    with ExitStack() as stack:
        stop = stack.enter_context(_signals())
        notices = stack.enter_context(text.collected_warnings())
        tracker, said = build_tracker(question.tracker, question.settings)
        fleet = Fleet(tracker, **question.fleet)
        text.show_warnings(notices)
        default = default_tracker()
        if question.tracker == default.id:
            said += f", the default: {default.watches_because}; --tracker names another"
        state = stack.enter_context(DurableFleet(fleet, question.state, restore=question.restore))
        if not question.quiet:
            click.echo(f"tracker: {said}", err=True)
        return _Watch(question, state, stop, stack).run()


@contextmanager
def _signals() -> Iterator[list[int]]:
    """Collect SIGINT and SIGTERM instead of dying of them."""
    seen: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        seen.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield seen
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Watch:
    """One run over a stream."""

    def __init__(self, question: Question, state: DurableFleet, stop: list[int], stack: ExitStack) -> None:
        self._question, self._state, self._stop = question, state, stop
        self._bad = self._rows = 0
        self._late = LateSeries()
        self._before = dict(state.fleet.counts)
        self._begun = self._shown = time.monotonic()
        note = state.note
        # of files that this run does not write, the lengths stay known for one that does
        self._known = {name: note[name] for name in ("out", "alarms") if note.get(name)}
        form = question.out_format or ("jsonl" if _is_json(question.out) else "csv")
        self._format = as_json if form == "jsonl" else as_csv
        if question.out and question.alarms and question.out.resolve() == question.alarms.resolve():
            raise DataError(f"--out and --alarms are one file, {question.out}; name two")
        header = "" if form == "jsonl" else as_csv([COLUMNS])
        self._out: OutFile | Stdout = (
            Stdout(header) if question.out is None else OutFile(question.out, note.get("out"), header)
        )
        stack.enter_context(closing(self._out))
        self._alarms = None if question.alarms is None else OutFile(question.alarms, note.get("alarms"), "")
        if self._alarms is not None:
            stack.enter_context(closing(self._alarms))
        # known as ours before anything is in them, or a kill would leave files that are nobody's
        files = {name: file.position() for name, file in self._files().items()}
        if any(note.get(name) != place for name, place in files.items()):
            state.keep_note({**note, **files})
        self._stream = stack.enter_context(
            closing(
                open_stream(
                    question.source,
                    form=question.form,
                    follow=question.follow,
                    columns=question.columns,
                    position=note.get("input"),
                    kind=state.fleet.time_kind,
                    stop=lambda: bool(stop),
                    say=self._say,
                )
            )
        )

    def run(self) -> int:
        """To the end of the stream, or a signal."""
        self._say_opened()
        try:
            for rows, position in self._stream.batches(self._question.batch, self._question.wait):
                self._take(rows, position)
                self._show_progress()
        finally:
            self._clear_progress()
        self._say_summary()
        if self._stop:
            name = signal.Signals(self._stop[0]).name
            click.echo(
                f"stopped by {name} after batch {self._state.number}; the same command goes on", err=True
            )
            return 130
        return 0

    # --- inside ------------------------------------------------------------------------------------

    def _take(self, rows: Rows, position: Mapping[str, Any]) -> None:
        if self._question.ahead is not None:
            refused = far_ahead(rows, self._state.fleet.newest, self._question.ahead)
            rows = rows.without(refused) if refused else rows
        if rows.bad:
            self._refuse(rows.bad)

        def answer(step: FleetStep) -> dict[str, Any]:
            refused = [
                BadRow(
                    rows.lines[i], f"{STATUS[int(step.status[i])]} for series {rows.ids[i]!r} at that time"
                )
                for i in (step.status > LATE).nonzero()[0].tolist()
            ]
            if refused:
                self._refuse(refused)
            self._out.write(self._format(self._answers(rows, step)))
            if step.drifts:
                self._cry(step.drifts)
            files = {name: file.position() for name, file in self._files().items()}
            return {"input": position, **self._known, **files}

        step = self._state.update(rows.ids, rows.time_array(), rows.forecasts, rows.actuals, note=answer)
        self._late.note(rows, step.status == LATE, step.status <= REPEATED)
        self._rows += len(rows)

    def _files(self) -> dict[str, OutFile]:
        files = {"out": self._out, "alarms": self._alarms}
        return {name: file for name, file in files.items() if isinstance(file, OutFile)}

    def _answers(self, rows: Rows, step: FleetStep) -> Iterator[tuple[Any, ...]]:
        at = np.flatnonzero(step.status <= ISSUED)
        names: Sequence[str] = rows.ids
        stamps = rows.stamps
        if len(at) < len(rows):
            names, stamps = [names[i] for i in at.tolist()], [stamps[i] for i in at.tolist()]
        csv = self._format is as_csv
        covered = np.array(["", "0", "1"] if csv else [None, False, True], object)
        alarm = np.array(["0", "1"] if csv else [False, True], object)
        return zip(
            repeat(self._state.number + 1, len(at)),
            names,
            stamps,
            step.forecast[at].tolist(),
            step.interval[at, 0].tolist(),
            step.interval[at, 1].tolist(),
            covered[step.covered[at] + 1].tolist(),
            alarm[step.alarm[at].astype(int)].tolist(),
            strict=True,
        )

    def _cry(self, drifts: tuple[Drift, ...]) -> None:
        """Alarms: to their file before the batch is kept, and to stderr."""
        self._clear_progress()
        for drift in drifts[:_SHOWN_ALARMS]:
            click.echo(
                f"alarm: series {_shown(drift.series_id)} at {self._time(drift.time)}: {drift.misses} of "
                f"{drift.outcomes} outcomes missed ({drift.misses / drift.outcomes:.1%}) since its test "
                f"began, alpha is {self._state.fleet.alpha:g}; evidence {drift.evidence:.3g}",
                err=True,
            )
        if len(drifts) > _SHOWN_ALARMS:
            click.echo(f"alarm: {len(drifts) - _SHOWN_ALARMS} more series in this batch", err=True)
        lines = [
            json.dumps(
                {
                    "batch": self._state.number + 1,
                    "series_id": drift.series_id,
                    "time": self._time(drift.time),
                    "misses": drift.misses,
                    "outcomes": drift.outcomes,
                    "evidence": drift.evidence,
                },
                ensure_ascii=False,
            )
            + "\n"
            for drift in drifts
        ]
        if self._alarms is not None:
            self._alarms.write("".join(lines))

    def _time(self, key: int) -> int | str:
        if self._state.fleet.time_kind != "date":
            return key
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=key)).isoformat()

    def _refuse(self, bad: list[BadRow]) -> None:
        if self._question.stop_at_bad:
            raise DataError(
                f"line {bad[0].line}: {bad[0].reason} ({plural(len(bad), 'such row')} in this batch, of "
                "which nothing was kept); mend it, or leave such rows out with --bad-rows skip"
            )
        self._clear_progress()
        for row in bad[: max(0, _SHOWN - self._bad)]:
            click.echo(f"refused: line {row.line}: {row.reason}", err=True)
        self._bad += len(bad)

    def _say(self, line: str) -> None:
        if not self._question.quiet:
            self._clear_progress()
            click.echo(line, err=True)

    def _say_opened(self) -> None:
        opened = self._state.opened
        if opened is None:
            return
        if opened.lost:
            click.echo(f"restored the state after batch {opened.number}; damaged: {opened.lost}", err=True)
        self._say(
            f"{self._question.state}: {len(self._state.fleet.series_ids):,} series "
            f"after batch {opened.number}"
        )

    def _say_summary(self) -> None:
        now = self._state.fleet.counts
        came = {name: now[name] - self._before[name] for name in now}
        parts = [f"{count:,} {name}" for name, count in came.items() if count]
        if self._bad:
            parts.append(f"{self._bad:,} refused")
        known = f"{len(self._state.fleet.series_ids):,} series"
        self._say(f"{plural(self._rows, 'row')}: {', '.join(parts) or 'nothing new'}; {known}")

        self._say_late()

    def _say_late(self) -> None:
        """Name series that a time far ahead has made deaf."""
        found = list(self._late)
        for name, count, newest in found[:_SHOWN]:
            learned, issued = self._state.fleet.clock(name)
            clock = self._time(learned if learned > newest else issued)
            self._say(
                f"series {_shown(name)} stands at {clock} and takes only later times: its last "
                f"{plural(count, 'row')} came late, the newest of {self._time(newest)}"
            )
        if found:
            more = f" ({len(found) - _SHOWN} more such series)" if len(found) > _SHOWN else ""
            self._say(
                f"If that time is wrong{more}: feed the stream from its beginning to a new --state, with "
                "--max-ahead, which refuses times that are far ahead"
            )

    def _show_progress(self) -> None:
        now = time.monotonic()
        if self._question.quiet or not sys.stderr.isatty() or now - self._shown < _REFRESH_SECONDS:
            return
        self._shown = now
        speed = self._rows / (now - self._begun)
        sys.stderr.write(f"\r\x1b[K{self._rows:,} rows, {speed:,.0f} a second, {self._bad:,} refused")
        sys.stderr.flush()

    def _clear_progress(self) -> None:
        if sys.stderr.isatty() and not self._question.quiet:
            sys.stderr.write("\r\x1b[K")


def _shown(name: str) -> str:
    """An id for a terminal, on which control characters would act."""
    return name if name.isprintable() else repr(name)


def _is_json(path: Path | None) -> bool:
    return path is not None and path.suffix.lower() in (".jsonl", ".ndjson", ".json")
