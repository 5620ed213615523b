"""Readings of examples with intervals, regions and sets of labels."""

from __future__ import annotations

from typing import Any

import numpy as np
from method_readings import Names, Reading, coverage, percent, spread_of_sizes

from assay.engine.report import charts
from assay.engine.report.region_figures import plane_chart
from assay.engine.wording import number
from assay.tasks.measures import evenly_spread
from assay.tasks.outlines import outlines

#: rows in a picture of intervals
_DRAWN = 60
#: fewer rows in a part of the new rows say little of it
_ENOUGH = 100
_UNITS = {
    "diamonds": "US dollars",
    "geyser": "minutes",
    "diabetes": "progression",
}
_PAIRS = {"carat-and-price": ("carats", "US dollars"), "progression-and-sugar": ("progression", "mg/dl")}


def interval(method: str, data: str, names: Names) -> Reading:
    """Intervals of one number."""
    lower, upper, y = (np.asarray(names[key], dtype=float) for key in ("lower", "upper", "y_test"))
    return _of_one_number(
        method, data, names, [[pair] for pair in zip(lower, upper, strict=True)], (lower <= y) & (y <= upper)
    )


def interval_sets(method: str, data: str, names: Names) -> Reading:
    """Sets of one number that may be several intervals."""
    return _of_one_number(method, data, names, names["pieces"], np.asarray(names["inside"]))


def _of_one_number(method: str, data: str, names: Names, pieces: Any, inside: Any) -> Reading:
    y = np.asarray(names["y_test"], dtype=float)
    lower, upper = (np.array([row[k][k] for row in pieces], dtype=float) for k in (0, -1))
    single = all(len(row) == 1 for row in pieces)
    what = "interval" if single else "set"
    sizes = upper - lower if single else names["sets"].volume()
    middle = (lower + upper) / 2
    if callable(predict := getattr(names["method"], "predict", None)):
        middle = np.asarray(predict(names["X_test"]), dtype=float)
    said = [
        coverage(names, inside, f"of the new rows lie in their {what}"),
        "" if single else _of_pieces(pieces, sizes, upper - lower),
        spread_of_sizes(sizes, what, "wide" if single else "long"),
        _of_fifths(middle, inside),
    ]
    rows = evenly_spread(np.argsort(middle, kind="stable"), _DRAWN)
    examples = [
        {
            "row": int(i),
            "y": float(y[i]),
            "prediction": float(middle[i]),
            "lower": float(lower[i]) if np.isfinite(lower[i]) else None,
            "upper": float(upper[i]) if np.isfinite(upper[i]) else None,
            **({} if single else {"pieces": [(float(a), float(b)) for a, b in pieces[i]]}),
        }
        for i in rows
    ]
    chart = charts.strip(method, examples, description=said[0], y_label=_UNITS[data])
    bars = "interval (bar)" if single else "set (bars)"
    caption = f"{len(rows)} of the new rows: {bars}, prediction (line), truth (dot; cross outside)."
    return Reading(said, [chart], caption)


def _of_pieces(pieces: Any, sizes: Any, hulls: Any) -> str:
    several = float(np.mean([len(row) > 1 for row in pieces]))
    return (
        f"{percent(several)} of the sets are several intervals: {number(np.mean(sizes))} long on average, "
        f"where the single intervals that hold them are {number(np.mean(hulls))}."
    )


def _of_fifths(middle: Any, inside: Any) -> str:
    """Coverage of the rows with the lowest and the highest predictions, where there are enough."""
    fifths = np.array_split(np.argsort(middle, kind="stable"), 5)
    if len(fifths[0]) < _ENOUGH:
        return ""
    first, last = (percent(inside[rows].mean()) for rows in (fifths[0], fifths[-1]))
    return (
        f"Of the fifth of the rows with the lowest predictions {first} are inside, of that with the highest "
        f"{last}."
    )


def region(method: str, data: str, names: Names) -> Reading:
    """Regions of two numbers."""
    area, inside, truth = (np.asarray(names[key]) for key in ("area", "inside", "Y_test"))
    said = [
        coverage(names, inside, "of the new pairs lie in their region"),
        spread_of_sizes(area, "region", "large"),
    ]
    low, high = np.quantile(truth, [0.005, 0.995], axis=0)
    frame = np.column_stack([low - 0.15 * (high - low), high + 0.15 * (high - low)])
    # four rows from low to high prediction, or area where there is no prediction: the truth has no say
    predict = getattr(names["method"], "predict", None)
    order = np.argsort(predict(names["X_test"])[:, -1] if callable(predict) else area, kind="stable")
    rows = order[(np.array([0.1, 0.4, 0.7, 0.95]) * (len(order) - 1)).astype(int)]
    lines = outlines(names["region"], rows, frame)
    plane = {
        "frame": frame.tolist(),
        "background": truth[evenly_spread(np.argsort(truth[:, 0]), 250)].tolist(),
        "regions": [
            {
                "row": int(row),
                "y": truth[row].tolist(),
                "inside": bool(inside[row]),
                "infinite": bool(np.isinf(area[row])),
                "outlines": None if lines is None else [line.tolist() for line in lines[place]],
            }
            for place, row in enumerate(rows)
        ],
    }
    chart = plane_chart(method, plane, _PAIRS[data], description=said[0])
    caption = (
        "The regions of four new rows, each with a line from its middle to the truth (cross: outside). "
        "Light dots are new rows."
    )
    return Reading(said, [chart], caption)


def label_set(method: str, data: str, names: Names) -> Reading:
    """Sets of labels, perhaps for groups of rows."""
    sets, inside, y = (np.asarray(names[key]) for key in ("sets", "inside", "y_test"))
    sizes = sets.sum(axis=1)
    of_class = {label: inside[y == label] for label in np.unique(y)}
    worst = min(of_class, key=lambda label: of_class[label].mean())
    said = [
        coverage(names, inside, "of the new rows have their label in the set"),
        f"{percent(np.mean(sizes == 1))} of the sets have one label, {percent(np.mean(sizes == 0))} none; "
        f"the largest has {sizes.max()} of {sets.shape[1]}.",
        f"The class covered least is {worst}: {int(of_class[worst].sum())} of its "
        f"{len(of_class[worst])} new rows.",
    ]
    if "groups_test" in names:
        groups = [names["groups_test"] == group for group in np.unique(names["groups_test"])]
        said.append(
            f"Between the groups coverage differs by {100 * np.ptp([inside[g].mean() for g in groups]):.1f} "
            f"percentage points, mean size by {np.ptp([sizes[g].mean() for g in groups]):.2f} labels."
        )
    counts = [(size, float(np.sum(sizes == size))) for size in range(int(sizes.max()) + 1)]
    chart = charts.histogram(method, counts, description=said[1], kind="best")
    return Reading(said, [chart], "How many of the new rows get a set of 0, 1, 2 ... labels.")
