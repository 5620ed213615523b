"""``assay compare``: the question about the user's table, answered."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.cli import text
from assay.cli.main import State
from assay.cli.options import (
    FILE,
    alpha_option,
    check_outputs,
    check_writable,
    drop_option,
    json_option,
    names,
    size,
    store_option,
    store_path,
)

if TYPE_CHECKING:
    from assay.engine.comparison import Comparison


@click.command()
@click.argument("data", metavar="FILE", required=False)
@click.option(
    "--proba",
    type=FILE,
    metavar="FILE",
    help="In place of FILE: class probabilities, an NPZ with arrays proba (n, K) and y (n,), perhaps groups "
    "and classes. No model is trained.",
)
@click.option(
    "--target",
    metavar="COLUMN[,...]",
    help="The column to predict, or several with commas between; a built-in set knows its own.",
)
@alpha_option
@click.option(
    "--methods",
    callback=names,
    metavar="A,B,...",
    help="Ids of `assay methods`, or your own classes as package.module:Class.  [default: all that suit]",
)
@click.option(
    "--model",
    metavar="MODULE:CLASS",
    help="The model inside the methods, e.g. sklearn.ensemble:RandomForestRegressor.",
)
@click.option(
    "--seeds", type=click.IntRange(1), default=5, show_default=True, help="Random splits of the rows."
)
@click.option(
    "--task",
    default="auto",
    show_default=True,
    metavar="TASK",
    help="auto decides from the columns; or a task of `assay methods`, such as interval or label-set.",
)
@click.option("--time", metavar="COLUMN", help="The column that orders the rows of a series.")
@click.option("--group", metavar="COLUMN", help="The column that names the series, or a group of rows.")
@click.option(
    "--horizon",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    metavar="STEPS",
    help="How many steps ahead a forecast is made; with --time.",
)
@click.option(
    "--forecast",
    metavar="COLUMN",
    help="The column that holds forecasts, made --horizon steps before; with --time.",
)
@click.option(
    "--shifted",
    metavar="FILE",
    help="Rows on which methods should be less sure, or 'permute': shuffled test rows; for predictive.",
)
@click.option(
    "--radius",
    type=click.FloatRange(0),
    metavar="DISTANCE",
    help="How far rows may be moved, in standard deviations; with --task attack.  [default: 0.25]",
)
@click.option(
    "--noise-scale",
    type=click.FloatRange(0, min_open=True),
    metavar="DEVIATION",
    help="Of the noise that robust methods add; with --task attack.  [default: 0.25]",
)
@drop_option
@click.option(
    "--workers",
    type=click.IntRange(1),
    help="Trials at the same time.  [default: 1; with ray the CPUs of the cluster]",
)
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    metavar="SECONDS",
    help="End a trial that takes longer.",
)
@click.option("--memory", callback=size, metavar="SIZE", help="End a trial that takes more memory, e.g. 2G.")
@store_option
@click.option("--report", type=FILE, metavar="FILE", help="The HTML page.  [default: assay-report-DATA.html]")
@json_option
@click.option("--name", help="What to call the data in the report.  [default: the file's name]")
@click.option("--retry-failed", is_flag=True, help="Run kept trials that failed once more.")
@click.option(
    "--in-process", is_flag=True, help="Run everything in this process, to debug a method; no limits."
)
@click.option(
    "--backend",
    type=click.Choice(["local", "ray"]),
    default="local",
    show_default=True,
    help="Run the trials on this machine, or on the nodes of a Ray cluster.",
)
@click.option(
    "--address",
    metavar="HOST:PORT",
    help="The Ray cluster; auto finds the one of this machine.  [default: one that is started here]",
)
@click.option("--quiet", is_flag=True, help="No progress, only the answer.")
@click.pass_obj
def compare(
    state: State,
    data: str | None,
    proba: Path | None,
    target: str | None,
    alpha: str,
    methods: tuple[str, ...] | None,
    model: str | None,
    seeds: int,
    task: str,
    time: str | None,
    group: str | None,
    horizon: int,
    forecast: str | None,
    radius: float | None,
    noise_scale: float | None,
    shifted: str | None,
    drop: tuple[str, ...] | None,
    workers: int | None,
    timeout: float | None,
    memory: int | None,
    store: Path | None,
    report: Path | None,
    json_file: Path | None,
    name: str | None,
    retry_failed: bool,
    in_process: bool,
    backend: str,
    address: str | None,
    quiet: bool,
) -> int:
    """Compare methods on a table and say which one to use.

    FILE is a CSV, Parquet, Feather, NPZ or ARFF file, or a built-in set of `assay datasets`.
    Finished trials are kept: the same command again goes on where it was.

    \b
    Exit status: 0 every trial went well (skipped ones do not count), 1 some trial failed,
    2 the question or the data cannot be used, 130 interrupted.
    """
    if (data is None) == (proba is None):
        raise click.UsageError("give one FILE: a table, or class probabilities as --proba FILE")
    check_outputs((report, json_file), data, proba, shifted, store_path(store))
    if report is None:
        check_writable(default_report("data"))

    from assay.cli.progress import progress, show_trials
    from assay.engine.api import compare as run_comparison
    from assay.engine.run import Interrupted

    where = store_path(store)
    stopped: Interrupted | None = None
    with text.collected_warnings() as notices:
        try:
            with progress(quiet=quiet) as show:
                result = run_comparison(
                    proba if data is None else data,
                    target,
                    proba=proba is not None,
                    methods=list(methods) if methods is not None else None,
                    model=model,
                    seeds=seeds,
                    alpha=alpha,
                    task=task,
                    workers=workers,
                    timeout=timeout,
                    memory_limit=memory,
                    store=where,
                    in_process=in_process,
                    backend=backend,
                    address=address,
                    retry_failed=retry_failed,
                    progress=show_trials(show),
                    name=name,
                    drop=drop or (),
                    time=time,
                    group=group,
                    horizon=horizon,
                    forecast=forecast,
                    radius=radius,
                    noise_scale=noise_scale,
                    shifted=shifted,
                    command=shlex.join(["assay", *state.argv]),
                )
        except Interrupted as interrupt:
            stopped, result = interrupt, interrupt.comparison
        finally:
            text.show_warnings(notices)
    report = report or default_report(result.info.dataset)
    status = finish(result, store=where, report=report, json_file=json_file)
    if stopped is None:
        return status
    click.echo(f"{stopped}; the same command goes on from here", err=True)
    return 130


def default_report(name: str) -> Path:
    """The page in the current folder, named after the data or the run."""
    slug = re.sub(r"[^\w.-]+", "-", name).strip("-.")
    return Path(f"assay-report-{slug or 'data'}.html")


def finish(result: Comparison, *, store: Path, report: Path | None, json_file: Path | None) -> int:
    """Print the answer, write its files, and return the exit status."""
    from assay.cli.answer import answer

    click.echo(answer(result))
    if report is not None:
        result.to_html(report)
        click.echo(f"report: {report}")
    if json_file is not None:
        result.to_json(json_file)
        click.echo(f"json: {json_file}")
    click.echo(f"run {result.info.id} kept in {store}")
    return 1 if result.failed else 0
