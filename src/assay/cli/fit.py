"""``assay fit``: a method fitted on all rows of a table, saved for use."""

from __future__ import annotations

from pathlib import Path

import click

from assay.cli import text
from assay.cli.options import check_writable, existing_store, names, store_option, store_path
from assay.core.errors import DataError, MethodError


@click.command()
@click.argument("data", metavar="FILE", required=False)
@click.option("--target", metavar="COLUMN[,...]", help="The column to predict, or several; as in compare.")
@click.option("--method", metavar="ID", help="An id of `assay methods`, or your own package.module:Class.")
@click.option("--from", "run", metavar="RUN", help="The winner of a kept comparison: an id, or last.")
@click.option("--alpha", metavar="SHARE", help="The share that may be missed.  [default: 0.1]")
@click.option("--model", metavar="MODULE:CLASS", help="The model inside the method.")
@click.option("--task", metavar="TASK", help="interval, region, label-set, ...  [default: from the columns]")
@click.option("--group", metavar="COLUMN", help="A column that names a group of rows.")
@click.option("--drop", callback=names, metavar="A,B,...", help="Columns to leave out.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of split and method.")
@click.option(
    "-o",
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="The file to save to, such as price.assay.",
)
@store_option
def fit(
    data: str | None,
    target: str | None,
    method: str | None,
    run: str | None,
    alpha: str | None,
    model: str | None,
    task: str | None,
    group: str | None,
    drop: tuple[str, ...] | None,
    seed: int,
    out: Path,
    store: Path | None,
) -> int:
    """Fit a method on all rows of FILE and save it: two thirds train it, one third calibrates it.

    With --from the method, its level, model and target are those of a comparison's winner, and FILE, if
    it is not given, the file that was compared.

    \b
    assay fit housing.csv --target price --method cp2 --alpha 0.1 -o price.assay
    assay fit --from last -o price.assay
    """
    kept = None if run is None else store_path(store)
    check_writable(out, data, kept)
    from assay.engine.fitting import fit as run_fit

    asked = {
        "target": target,
        "method": method,
        "model": model,
        "alpha": alpha,
        "task": task,
        "group": group,
    }
    fingerprint = None
    if run is not None:
        if method is not None:
            raise click.UsageError("--from takes the winner of the run, --method names one; give one of them")
        found, fingerprint = _of_run(run, store)
        data = data or found.pop("source")
        found.pop("source", None)
        asked = {key: value if value is not None else found.get(key) for key, value in asked.items()}
    if data is None:
        raise click.UsageError("give the FILE of the table, or --from RUN")
    check_writable(out, data, kept)
    arguments = {key: value for key, value in asked.items() if value is not None}
    with text.collected_warnings() as notices:
        try:
            fitted = run_fit(data, drop=drop or (), seed=seed, **arguments)
        finally:
            text.show_warnings(notices)
    if fingerprint is not None and fingerprint != fitted.about["fingerprint"]:
        click.echo("warning: the rows or columns are not those of the comparison", err=True)
    fitted.save(out)
    about = fitted.about
    rows = f"{about['n_train']:,} rows trained it"
    rows += f", {about['n_calib']:,} calibrated it" if about["n_calib"] else ""
    click.echo(
        text.paragraph(
            "",
            f"{about['method']} for {fitted.target} ({about['task']}, alpha {about['alpha']}) fitted on "
            f"{about['dataset']}: {rows}. Saved: {out} ({out.stat().st_size / 2**20:.1f} MiB).",
            indent=0,
        )
    )
    for note in about["notes"]:
        click.echo(text.plain(f"note: {note}"))
    return 0


def _of_run(run: str, store: Path | None) -> tuple[dict[str, str | None], str]:
    """(what a fit needs of the winner of a kept run, the fingerprint of its data)."""
    from assay.engine.comparison import Comparison
    from assay.engine.store import Store

    with Store(existing_store(store)) as kept:
        info, results = kept.run(run)
    best = Comparison(info, results).best()
    if best.method is None:
        raise MethodError(f"run {info.id} has no winner: {best.reason}; name a method with --method")
    winner = next(m for m in info.methods if m["name"] == best.method)
    if winner["card"] is None and ":" not in str(winner["target"]):
        raise MethodError(f"the winner {best.method} is an object of a program; fit it in Python: assay.fit")
    own_model = info.model == "the default of the task"
    if not own_model and ":" not in info.model:
        raise MethodError(f"the comparison's model was an object ({info.model}); name its class with --model")
    if info.options:
        raise DataError(f"run {info.id} was made with {dict(info.options)}, with which nothing is fitted")
    return {
        "source": info.source,
        "target": info.target,
        "method": winner["card"] or str(winner["target"]),
        "model": None if own_model else info.model,
        "alpha": info.alpha,
        "task": info.task,
        "group": info.group,
    }, info.fingerprint
