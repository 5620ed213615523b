"""``assay monitor``: intervals and alarms for a stream of forecasts, with a state that survives."""

from __future__ import annotations

from pathlib import Path

import click

from assay.cli.monitor_options import Ahead, columns, default_tracker, max_ahead, parameters
from assay.cli.options import FILE, alpha_option


@click.command(short_help="Intervals and alarms for a stream of forecasts of many series.")
@click.argument("source", metavar="[FILE]", default="-")
@click.option(
    "--state",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    metavar="FOLDER",
    help="Where everything learned is kept; made if it is not there.",
)
@click.option(
    "--tracker",
    default=default_tracker().id,
    show_default=True,
    metavar="ID",
    help="A tracker of `assay methods --task online`, or your own as package.module:Class. The default has "
    f"{default_tracker().watches_because}.",
)
@alpha_option
@click.option("--lr", metavar="NUMBER", help="Step size of the tracker.  [default: the card's]")
@click.option(
    "--set",
    "settings",
    multiple=True,
    callback=parameters,
    metavar="NAME=VALUE",
    help="Another parameter of the tracker, e.g. --set window=300; may be given again.",
)
@click.option(
    "--score",
    type=click.Choice(["signed", "absolute"]),
    default="signed",
    show_default=True,
    help="Two ends that move apart from each other, or one width.",
)
@click.option(
    "--horizon",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="How many steps ahead the forecasts are made.",
)
@click.option(
    "--alarm-level",
    default="0.001",
    show_default=True,
    metavar="SHARE",
    help="The chance of a false alarm of drifted coverage, for each series over all time; none: no alarms.",
)
@click.option(
    "--alarm-scope",
    type=click.Choice(["series", "fleet"]),
    default="series",
    show_default=True,
    help="fleet: the level is the share of false ones among the alarms of all series instead.",
)
@click.option(
    "--alarm-side",
    type=click.Choice(["above", "both"]),
    default="above",
    show_default=True,
    help="both: also where fewer are missed than alpha.",
)
@click.option(
    "--alarm-after",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="Outcomes of a series before alarms may be raised for it.",
)
@click.option(
    "--batch", type=click.IntRange(1), default=10_000, show_default=True, help="Rows taken at once."
)
@click.option(
    "--wait",
    type=click.FloatRange(0),
    default=0.5,
    show_default=True,
    metavar="SECONDS",
    help="A smaller batch is taken if nothing more comes for so long.",
)
@click.option("--follow", is_flag=True, help="Go on waiting for rows at the end of FILE.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["csv", "jsonl", "parquet"]),
    help="What the rows are written in.  [default: what FILE begins with]",
)
@click.option(
    "--columns",
    callback=columns,
    metavar="ROLE=NAME,...",
    help="Names of the columns series_id, time, forecast and actual where they are others.",
)
@click.option("--out", type=FILE, metavar="FILE", help="Where intervals go, each once.  [default: stdout]")
@click.option(
    "--out-format",
    type=click.Choice(["csv", "jsonl"]),
    help="[default: by the name of the --out file, else csv]",
)
@click.option("--alarms", type=FILE, metavar="FILE", help="Also write alarms, as JSON lines, each once.")
@click.option(
    "--bad-rows",
    type=click.Choice(["skip", "stop"]),
    default="skip",
    show_default=True,
    help="What a row that cannot be used does.",
)
@click.option(
    "--max-ahead",
    callback=max_ahead,
    metavar="TIME",
    help="Refuse rows whose time is more than this after the newest before them: a whole number, or 90s, "
    "30min, 12h, 7d for dates.  [default: any time is taken]",
)
@click.option(
    "--restore", is_flag=True, help="Where the state is damaged, go back to the last one that is whole."
)
@click.option("--quiet", is_flag=True, help="Only errors and alarms on stderr.")
def monitor(
    source: str,
    state: Path,
    tracker: str,
    alpha: str,
    lr: str | None,
    settings: dict[str, object],
    score: str,
    horizon: int,
    alarm_level: str,
    alarm_scope: str,
    alarm_side: str,
    alarm_after: int,
    batch: int,
    wait: float,
    follow: bool,
    form: str | None,
    columns: tuple[str, ...],
    out: Path | None,
    out_format: str | None,
    alarms: Path | None,
    bad_rows: str,
    max_ahead: Ahead | None,
    restore: bool,
    quiet: bool,
) -> int:
    """Give each row of a stream its interval, learn the outcomes, and say where coverage drifts.

    Rows have the columns series_id, time, forecast, actual: CSV with a header, JSON lines, or Parquet.
    FILE is read from where the last run with this state was; - or nothing is standard input. An empty
    actual asks for an interval; the outcome may follow later in a row of the same series and time.

    Every batch is on the disk before the next is begun. After a kill the same command goes on: no row is
    learned twice, and --out holds each interval once. On stdout the last batch may come again, with the
    same number in the column batch.

    \b
    Exit status: 0 the stream has ended, 2 it or the state cannot be used,
    130 stopped by a signal, after the batch at hand.
    """
    from assay.cli.monitor_loop import Question, watch

    if lr is not None:
        settings = {**settings, "lr": parameters(None, None, (f"lr={lr}",))["lr"]}
    question = Question(
        source=None if source == "-" else Path(source),
        state=state,
        tracker=tracker,
        settings=settings,
        fleet={
            "alpha": alpha,
            "score": score,
            "horizon": horizon,
            "alarm_level": None if alarm_level.lower() == "none" else alarm_level,
            "alarm_scope": alarm_scope,
            "alarm_side": alarm_side,
            "alarm_after": alarm_after,
        },
        batch=batch,
        wait=wait,
        follow=follow,
        form=form,
        columns=columns,
        out=out,
        out_format=out_format,
        alarms=alarms,
        stop_at_bad=bad_rows == "stop",
        ahead=max_ahead,
        restore=restore,
        quiet=quiet,
    )
    return watch(question)
