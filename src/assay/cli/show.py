"""``assay show``: what a saved method is, without making anything of it but its head."""

from __future__ import annotations

from pathlib import Path

import click

from assay.cli import text


@click.command()
@click.argument("saved", metavar="SAVED", type=click.Path(dir_okay=False, path_type=Path))
def show(saved: Path) -> int:
    """Show what SAVED is: method, data, level, columns, versions, guarantee, and the types to be trusted."""
    from assay.engine.fitted import about

    facts = about(saved)
    if facts["kind"] == "object":
        lines = [("object", facts["class"])]
    else:
        classes = facts["classes"]
        lines = [
            (
                "method",
                f"{facts['method']}" + (f" (assay methods: {facts['card']})" if facts["card"] else ""),
            ),
            ("task", facts["why_task"]),
            ("target", ", ".join(facts["targets"])),
            ("alpha", facts["alpha"]),
            ("guarantee", facts["guarantee"] or "its card names none"),
            ("model", facts["model"]),
            ("parameters", ", ".join(f"{k}={v}" for k, v in facts["params"].items()) or "the defaults"),
            ("data", f"{facts['dataset']} ({facts['source']}), SHA-256 {facts['fingerprint']}"),
            ("rows", f"{facts['n_rows']:,}: {facts['n_train']:,} train, {facts['n_calib']:,} calibrate"),
            ("seed", str(facts["seed"])),
            *([("classes", ", ".join(classes))] if classes else []),
            *([("group", f"{facts['group']}")] if facts["group"] else []),
            ("columns", ", ".join(f"{c['name']} ({c['kind']})" for c in facts["columns"])),
            ("created", facts["created"]),
            *[("note", note) for note in facts["notes"]],
        ]
    lines += [
        ("versions", ", ".join(f"{name} {version}" for name, version in facts["versions"].items())),
        (
            "to be trusted",
            ", ".join(facts["trust"]) or "nothing beyond assay, scikit-learn, SciPy and torch.nn",
        ),
        ("file", f"{saved}, {saved.stat().st_size / 2**20:.2f} MiB, whole (SHA-256 checked)"),
    ]
    for label, content in lines:
        click.echo(text.paragraph(label, content))
    return 0
