"""``assay certify``: how many poisoned rows the label sets of the user's classifier survive."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import click

from assay.cli import text
from assay.cli.options import FILE, alpha_option, check_outputs, drop_option, json_option

if TYPE_CHECKING:
    from assay.engine.certify import CertifiedTable


@click.command()
@click.argument("data", metavar="FILE")
@click.option("--target", metavar="COLUMN", help="The column of labels; a built-in set knows its own.")
@click.option(
    "--model",
    metavar="MODULE:CLASS",
    help="Your scikit-learn classifier, a class or an unfitted object.  [default: logistic regression]",
)
@click.option(
    "--partitions",
    type=click.IntRange(1),
    metavar="N",
    help="Parts of the training rows, a model each.  [default: as many as leave 4 rows a class, at most 100]",
)
@click.option(
    "--calibration-partitions",
    type=click.IntRange(1),
    metavar="N",
    help="Parts of the calibration rows.  [default: as many as the rows allow, at most 40]",
)
@alpha_option
@click.option(
    "--majority",
    type=click.Choice(["exact", "binomial"]),
    default="exact",
    show_default=True,
    help="exact keeps to the coverage; binomial is the paper's rule.",
)
@click.option(
    "--seed", type=click.IntRange(0), default=0, show_default=True, help="Of split, parts and models."
)
@drop_option
@click.option("--rows", type=FILE, metavar="FILE", help="Also write set and radii of each test row, as CSV.")
@json_option
def certify(
    data: str,
    target: str | None,
    model: str | None,
    partitions: int | None,
    calibration_partitions: int | None,
    alpha: str,
    majority: str,
    seed: int,
    drop: tuple[str, ...] | None,
    rows: Path | None,
    json_file: Path | None,
) -> int:
    """Certify the label sets of a classifier against poisoned rows.

    The rows are divided into parts by their content, and a model is trained on each: a poisoned row then
    reaches one of many votes, or one of many calibrated sets. The table says which share of the label sets
    provably stays the same when so many rows are added, taken away or relabelled, whatever they are.

    \b
    assay certify data.csv --target y
    assay certify data.csv --target y --model sklearn.tree:DecisionTreeClassifier --partitions 50
    """
    check_outputs((rows, json_file), data)

    from assay.engine.certify import certify as run

    with text.collected_warnings() as notices:
        try:
            found = run(
                data,
                target,
                model=model,
                partitions=partitions,
                calibration_partitions=calibration_partitions,
                alpha=alpha,
                seed=seed,
                majority=majority,
                drop=drop or (),
            )
        finally:
            text.show_warnings(notices)
    click.echo(answer(found))
    if rows is not None:
        found.rows().to_csv(rows, index=False)
        click.echo(f"rows: {rows}")
    if json_file is not None:
        found.to_json(json_file)
        click.echo(f"json: {json_file}")
    return 0


def answer(found: CertifiedTable) -> str:
    """All that the command prints."""
    level = float(found.alpha)
    head = (
        f"Label sets for {found.target} in {found.name} at alpha {level:g}: {found.model}, trained on "
        f"{found.partitions} parts of {found.n_train:,} rows, calibrated on {found.calibration_partitions} "
        f"parts of {found.n_calib:,}. On {found.n_test:,} test rows: coverage {found.coverage:.3f}, "
        f"{found.mean_size:.2f} labels in a set, accuracy of the vote {found.accuracy:.3f}."
    )
    rows = found.table().to_dict("records")
    tables = []
    for side, word in (("train", "training"), ("calib", "calibration")):
        lines = [
            [
                str(int(row["poisoned"])),
                *(f"{row[f'{side}_{key}']:.1%}" for key in ("same", "none_lost", "none_gained")),
                f"{row[f'{side}_labels']:.2f}",
                *([f"{row['both_same']:.1%}"] if side == "calib" else []),
            ]
            for row in rows
        ]
        header = [f"poisoned {word} rows", "same", "none lost", "none gained", "most labels"]
        header += ["same, as many of both"] * (side == "calib")
        tables.append(text.table(lines, header, right=range(len(header))))
    legend = (
        "Shares of the test rows whose set provably stays the same, loses no label, or gains none when so "
        "many rows are added, taken away or relabelled; a row whose features change counts as two. Most "
        "labels: mean of the most that a set can then have."
    )
    notes = "\n".join(_filled(note) for note in found.notes)
    return "\n\n".join([_filled(head), *tables, _filled(legend), notes]) + "\n"


def _filled(sentence: str) -> str:
    return textwrap.fill(sentence, text.width(), break_long_words=False, break_on_hyphens=False)
