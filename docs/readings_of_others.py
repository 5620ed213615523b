"""Readings of examples over time, with predictive distributions, and with rows that somebody touched."""

from __future__ import annotations

from typing import Any

import numpy as np
from method_readings import Names, Reading, coverage, percent

from assay.engine.report import online_figures
from assay.engine.report.attack_figures import radius_chart
from assay.engine.report.poisoning_figures import steps_chart
from assay.engine.report.predictive_figures import reliability_diagram, transforms_histogram
from assay.engine.report.svg import Chart
from assay.engine.wording import share
from assay.tasks.calibration import pit_histogram, reliability

_DAYS_DRAWN = 120
_UNITS = {"delhi": "degrees Celsius", "stock": "US dollars"}


def online(method: str, data: str, names: Names) -> Reading:
    """Intervals that follow a series."""
    inside, width, over = (np.asarray(names[key]) for key in ("inside", "width", "over_100"))
    endless = float(np.isinf(width).mean())
    said = [
        f"{percent(inside.mean())} of {len(inside):,} days lie in the interval that was made the day before; "
        "90 % were asked for.",
        f"Over 100 days in a row it is {percent(over.min())} at worst and {percent(over.max())} at best; "
        "chance alone moves that by 6 points or so, and errors that come in runs by more.",
        f"{percent(endless)} of the intervals have no end." if endless else "",
    ]
    steps = np.arange(len(names["y"]) - _DAYS_DRAWN, len(names["y"]))
    column = {
        "step": steps.tolist(),
        "time": [f"day {step + 1}" for step in steps],
        **{
            name: [float(v) if np.isfinite(v) else None for v in np.asarray(names[key], float)[steps]]
            for name, key in (("y", "y"), ("prediction", "forecasts"), ("lower", "lower"), ("upper", "upper"))
        },
    }
    stretch = online_figures.Stretch(0, int(steps[0]), int(steps[-1]), {"series": column})
    ends = online_figures.reach([stretch], "series")

    def drawn(width: int, height: int) -> Chart:
        return online_figures.band_chart(
            method,
            [(column, stretch)],
            kind="best",
            y_ends=ends,
            y_label=_UNITS[data],
            description=said[0],
            width=width,
            height=height,
            shifts=False,
        )

    caption = f"The last {_DAYS_DRAWN} days: interval (band), forecast (line), truth (dot; cross outside)."
    return Reading(said, [(drawn(720, 230), drawn(320, 190))], caption)


def predictive(method: str, data: str, names: Names) -> Reading:
    """Probabilities of digits, beside those of a plain model."""
    y, rows = np.asarray(names["y_test"]), np.arange(len(names["y_test"]))
    proba, plain = (names[key].predict_proba(names["X_test"]) for key in ("method", "plain"))
    mean, error = _mean(np.log(plain[rows, y] / proba[rows, y]))
    other = "the plain network" if method != "map-network" else "logistic regression"
    said = (
        f"These {len(y):,} rows cannot say whether it or {other} has the lower NLPD"
        if abs(mean) <= 2 * error
        else f"Its NLPD is {'lower' if mean < 0 else 'higher'} than that of {other}"
    )
    top, hit = proba.max(axis=1), proba.argmax(axis=1) == y
    sure = top >= 0.9
    sentences = [
        f"{said} (difference {mean:+.3f}, standard error {error:.3f} over the rows; lower is better).",
        f"Where it gives a digit 90 % or more it is right in {percent(hit[sure].mean())} of "
        f"{np.sum(sure):,} rows, elsewhere in {percent(hit[~sure].mean())} of {np.sum(~sure):,}."
        if 0 < sure.sum() < len(y)
        else f"It {'always' if sure.all() else 'never'} gives a digit 90 % or more.",
        "The last number is the chance that a picture of shuffled pixels gets a less sure answer than a "
        "digit: 0.5 is blind, 1 never takes one for the other.",
    ]
    bins = [[part["confidence"], part["accuracy"], part["n"]] for part in reliability(proba, y, 10)]
    caption = (
        "How often the likeliest digit is right, by its probability, in ten bins of as many new rows each. "
        "On the dashed line probabilities mean what they say; bars are what chance allows."
    )
    return Reading(sentences, [reliability_diagram(method, bins, "best")], caption)


def _mean(values: Any) -> tuple[float, float]:
    """The mean of the rows and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def predictive_numbers(method: str, data: str, names: Names) -> Reading:
    """Distributions of a number, beside one for all rows."""
    mean, error = _mean(np.asarray(names["everyone"]) - np.asarray(names["density"]))
    sentences = [
        f"The difference of the two is {mean:+.2f} (standard error {error:.2f}; lower is better): what the "
        "method makes of the features, beside a law that knows none.",
        f"{percent(np.mean(names['between']))} of the new rows lie between its quantiles at 5 % and 95 %. "
        "Nothing is promised here: this is what the model believes, beside what happened.",
    ]
    counts = np.asarray(pit_histogram(np.asarray(names["law"].cdf(names["y_test"]))))
    shares = (counts / counts.sum()).tolist()
    chart = transforms_histogram(method, shares, int(counts.sum()), max(shares), "best")
    caption = (
        "Where the truth lies in the predicted law. Level with the dashed line is calibrated, the band is "
        "what chance allows a bar; high in the middle: the law is too wide."
    )
    return Reading(sentences, [chart], caption)


def poisoning(method: str, data: str, names: Names) -> Reading:
    """Sets of labels, and what is proved of them."""
    said = [coverage(names, names["inside"], "of the new rows have their label in the set")]
    if "proof" not in names:
        last = (
            "The shares of sets that stay are what one simple attack left alone. Others may do more: "
            "nothing is proved."
        )
        return Reading([*said, last])
    radii, drawn = list(range(9)), []
    for side in ("training", "calibration"):
        values = [
            float(names["proof"].reliable(*((r, 0) if side == "training" else (0, r))).mean()) for r in radii
        ]
        half = max(r for r in radii if values[r] >= 0.5)
        said.append(
            f"Whatever is done to {half} {side} row{'s' * (half > 1)}, {percent(values[half])} of the sets "
            "stay as they are, provably."
            if half
            else f"Against poisoned {side} rows it proves nothing for most of the sets."
        )
        spoken = "; ".join(f"{r}: {share(value)}" for r, value in zip(radii, values, strict=True))
        drawn.append(
            steps_chart(
                method,
                radii,
                values,
                [],
                top=1.0,
                kind="best",
                x_label=f"poisoned {side} rows",
                y_label="share of sets that stay",
                description=spoken,
            )
        )
    return Reading(said, drawn, "Sets that provably stay as they are, whatever is done to so many rows.")


def attack(method: str, data: str, names: Names) -> Reading:
    """Sets of labels of rows that were moved."""
    y, model = np.asarray(names["y_test"]), names["method"]
    moved_rows = names["X_moved"] if "size" in names else names["X_test"] + 0.25 * names["step"]
    clean, moved = (
        percent(model.predict_set(rows)[np.arange(len(y)), y].mean())
        for rows in (names["X_test"], moved_rows)
    )
    certified = float(getattr(model, "certified_radius_", 0.0))
    said = [
        f"{clean} of the rows have their label in the set where they are, {moved} after a move by 0.25.",
        f"It promises 90 % for moves of up to {certified:g}, whatever their direction."
        if certified
        else "Nothing is promised for moved rows. This move is one that anyone can make who has labelled "
        "rows; others may do more harm.",
    ]
    if "size" not in names:
        return Reading(said)
    radii, size = names["radii"], names["size"]
    if size.max() > 0.99 * len(model.classes_):
        first = radii[int(np.argmax(size > 0.99 * len(model.classes_)))]
        said.append(f"From a radius of {first:.2f} on the sets have every label and say nothing.")
    chart = radius_chart(
        method, radii.tolist(), size.tolist(), top=float(size.max()), asked=float(model.radius), kind="best"
    )
    caption = "Mean size of the sets by the radius they are made for; dashed: the radius of the example."
    return Reading(said, [chart], caption)
