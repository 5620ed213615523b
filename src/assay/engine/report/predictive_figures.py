"""Pictures of predictive distributions: calibration, sharpness and examples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from assay.engine.choice import Choice
from assay.engine.report.charts import PANEL_WIDTH, Row, dot_rows
from assay.engine.report.figures import Figure, Numbers, finished, kind_of, shape_of
from assay.engine.report.svg import Chart, Scale, line, marker, rect, words
from assay.engine.stats import Summary
from assay.engine.wording import number, plural, share, shorten

#: methods whose examples are drawn, and rows of each
MAX_DRAWN = 9
_ROWS = 14
_LEFT, _RIGHT, _TOP, _BOTTOM, _HEIGHT = 42.0, PANEL_WIDTH - 18.0, 30.0, 190.0, 232
_CONFIDENCE = 0.95
_SHARPNESS = ("5 %", "25 %", "median", "75 %", "95 %")


def calibration(summary: Summary, choice: Choice) -> Figure | None:
    """Reliability diagrams for labels, histograms of probability integral transforms for numbers."""
    return _reliability(summary, choice) or _integral_transforms(summary, choice)


def _reliability(summary: Summary, choice: Choice) -> Figure | None:
    of_methods = _details(summary, "reliability")
    if not of_methods:
        return None
    panels, rows = [], []
    for name, trials in of_methods.items():
        fewest = min(len(bins) for bins in trials)
        bins = [
            [float(np.mean([trial[i][key] for trial in trials])) for key in ("confidence", "accuracy", "n")]
            for i in range(fewest)
        ]
        rows += [(name, share(x), share(y), number(n, 0)) for x, y, n in bins]
        panels.append(reliability_diagram(name, bins, kind_of(choice, name)))
    caption = (
        "Accuracy against the largest probability, in bins of equal mass, mean over seeds. On the dashed "
        "line probabilities mean what they say; below it the method is too sure. With few rows a bin points "
        "lie off the line by chance: bars are the 95 % range of a bin's accuracy on one split if its "
        "probabilities were right."
    )
    header = ("method", "largest probability", "accuracy", "rows a split")
    return Figure(tuple(panels), caption, Numbers(header, tuple(rows)))


def reliability_diagram(name: str, bins: Sequence[Sequence[float]], kind: str) -> Chart:
    """Accuracy against confidence; each bin is its mean confidence, its accuracy and its rows."""
    low = min(0.9, *(min(x, y) for x, y, _ in bins))
    low = float(np.floor(low * 10) / 10)
    x, y = Scale(low, 1.0, _LEFT, _RIGHT), Scale(low, 1.0, _BOTTOM, _TOP)
    parts = _axes(name, "accuracy", "largest probability", x, y)
    parts.append(line(x(low), y(low), x(1.0), y(1.0), "nominal"))
    spots = []
    for confidence, accuracy, n in bins:
        count = max(1, round(n))
        tail = (1 - _CONFIDENCE) / 2
        ends = [float(stats.binom.ppf(p, count, confidence)) / count for p in (tail, 1 - tail)]
        parts.append(line(x(confidence), y(ends[0]), x(confidence), y(ends[1]), "e-plain"))
        spots.append((x(confidence), y(accuracy), f"{share(confidence)} said, {share(accuracy)} right"))
    path = " ".join(f"{'L' if i else 'M'}{px:.1f} {py:.1f}" for i, (px, py, _) in enumerate(spots))
    parts.append(f'<path d="{path}" class="track-{"best" if kind == "best" else "plain"}"/>')
    parts += [marker(px, py, "circle", f"m-{kind}", tip, 3.5) for px, py, tip in spots]
    spoken = "; ".join(f"{share(c)}: {share(a)}" for c, a, _ in bins)
    return Chart(f"{name}: reliability", spoken, PANEL_WIDTH, _HEIGHT, "".join(parts))


def _axes(name: str, y_label: str, x_label: str, x: Scale, y: Scale) -> list[str]:
    parts = [words(0, 13, shorten(name, 24), "strong"), words(PANEL_WIDTH, 13, y_label, "tick", "end")]
    for value, label in y.labels(4):
        parts.append(line(_LEFT, y(value), _RIGHT, y(value), "grid"))
        parts.append(words(_LEFT - 7, y(value) + 4, label, "tick", "end"))
    parts += [words(x(value), _BOTTOM + 17, label, "tick", "middle") for value, label in x.labels(4)]
    parts.append(words((_LEFT + _RIGHT) / 2, _BOTTOM + 36, x_label, "tick", "middle"))
    return parts


def _integral_transforms(summary: Summary, choice: Choice) -> Figure | None:
    of_methods = _details(summary, "pit_histogram")
    if not of_methods:
        return None
    top = max(float(np.mean([_shares(t) for t in trials], axis=0).max()) for trials in of_methods.values())
    panels, rows = [], []
    for name, trials in of_methods.items():
        shares = np.mean([_shares(counts) for counts in trials], axis=0)
        n = int(sum(trials[0]))
        panels.append(transforms_histogram(name, shares.tolist(), n, top, kind_of(choice, name)))
        rows.append((name, *(share(float(value)) for value in shares)))
    bars = len(rows[0]) - 1
    caption = (
        "Where the targets lie in their predicted distributions: the share of test rows by the predicted "
        "probability of a smaller target, mean over seeds. Level with the dashed line is calibrated, the "
        "band is its 95 % range for a bar on one split. High at both ends: too narrow. High in the middle: "
        "too wide. Leaning to one side: predictions too low (right) or too high (left)."
    )
    header = ("method", *(f"to {(i + 1) / bars:g}" for i in range(bars)))
    return Figure(tuple(panels), caption, Numbers(header, tuple(rows)))


def _shares(counts: Sequence[int]) -> Any:
    return np.asarray(counts, dtype=float) / max(1, sum(counts))


def transforms_histogram(name: str, shares: Sequence[float], n: int, top: float, kind: str) -> Chart:
    """Shares of rows by probability integral transform, of n rows; ``top`` is the end of the axis."""
    bars = len(shares)
    tail = (1 - _CONFIDENCE) / 2
    ends = [float(stats.binom.ppf(p, n, 1 / bars)) / n for p in (tail, 1 - tail)]
    x, y = Scale(0.0, 1.0, _LEFT, _RIGHT), Scale(0.0, max(top, ends[1]) * 1.05, _BOTTOM, _TOP)
    parts = _axes(name, "share of rows", "predicted probability of a smaller target", x, y)
    parts.insert(0, rect(_LEFT, y(ends[1]), _RIGHT - _LEFT, y(ends[0]) - y(ends[1]), "band"))
    for i, value in enumerate(shares):
        left, right = x(i / bars), x((i + 1) / bars)
        parts.append(rect(left + 1, y(value), right - left - 2, _BOTTOM - y(value), f"h-{kind}"))
    parts.append(line(_LEFT, y(1 / bars), _RIGHT, y(1 / bars), "nominal"))
    spoken = "; ".join(f"to {(i + 1) / bars:g}: {share(value)}" for i, value in enumerate(shares))
    return Chart(f"{name}: where targets lie", spoken, PANEL_WIDTH, _HEIGHT, "".join(parts))


def sharpness(summary: Summary, choice: Choice) -> Figure | None:
    """How sure the methods are over the test rows: quantiles of the entropy or of the standard deviation."""
    of_methods = _details(summary, "sharpness")
    if not of_methods:
        return None
    label = summary.label("sharpness").removeprefix("mean ")
    rows, table = [], []
    for name, trials in of_methods.items():
        values = [float(np.mean([trial[i][1] for trial in trials])) for i in range(len(_SHARPNESS))]
        shape = shape_of(summary, choice, name)
        rows.append(
            Row(name, values[2], (values[0], values[4]), number(values[2]), kind_of(choice, name), shape)
        )
        table.append((name, *map(number, values)))
    spoken = "; ".join(f"{row.name}: {row.text}" for row in rows)
    chart = dot_rows(rows, title=f"{label}, median", description=spoken)
    caption = (
        f"The {label} of the predictions, median over the test rows; bars reach from the 5 % to the 95 % "
        "quantile, all mean over seeds. Among calibrated methods the sharper one says more; one without a "
        "bar is as sure of every row."
    )
    return Figure((chart,), caption, Numbers(("method", *_SHARPNESS), tuple(table)))


def likeliest_labels(summary: Summary, choice: Choice) -> Figure | None:
    """A few test rows of the first seed with their likeliest labels, from sure to unsure."""
    of_methods = _details(summary, "likeliest")
    if not of_methods:
        return None
    # the recommended method and the reference before the others
    order = sorted(of_methods, key=lambda name: (name != choice.method, name != summary.reference))
    drawn = order[:MAX_DRAWN]
    panels, rows = [], []
    for name in drawn:
        every = of_methods[name][0]
        at = np.linspace(0, len(every) - 1, min(_ROWS, len(every))).round().astype(int)
        examples = [every[i] for i in at]
        panels.append(_labels_panel(name, examples))
        rows += [
            (
                name,
                str(example["row"]),
                str(example["y"]),
                ", ".join(f"{label} {share(p)}" for label, p in example["proba"]),
                number(example["nlpd"]),
            )
            for example in examples
        ]
    some = f" Drawn: {len(drawn)} of {len(of_methods)} methods." if len(drawn) < len(of_methods) else ""
    caption = (
        f"{plural(_ROWS, 'test row')} of the first seed, evenly spread from the surest to the least sure by "
        "the method's own entropy: the likeliest label and its probability; orange is wrong, with the "
        f"truth.{some}"
    )
    header = ("method", "row", "true label", "likeliest", "−log p of the truth")
    return Figure(tuple(panels), caption, Numbers(header, tuple(rows)))


def _labels_panel(name: str, examples: Sequence[Mapping[str, Any]]) -> Chart:
    top, step, left = 26.0, 17.0, 100.0
    bar = Scale(0.0, 1.0, left, PANEL_WIDTH - 84.0)
    parts = [words(0, 13, shorten(name, 24), "strong")]
    wrong = 0
    for i, example in enumerate(examples):
        y = top + step * i
        label, p = example["proba"][0]
        right = label == example["y"]
        wrong += not right
        parts.append(words(0, y + 12, shorten(label, 15), "name" if right else "t-low"))
        parts.append(rect(left, y + 2, bar(1.0) - left, step - 5, "cell-empty"))
        parts.append(rect(left, y + 2, bar(p) - left, step - 5, "h-best" if right else "h-low"))
        text = share(p) if right else f"{share(p)}, {shorten(example['y'], 7)}"
        parts.append(words(PANEL_WIDTH, y + 12, text, "tick" if right else "t-low", "end"))
    parts.append(words(PANEL_WIDTH, 13, f"{wrong} of {len(examples)} wrong", "tick", "end"))
    height = int(top + step * len(examples) + 6)
    spoken = "; ".join(
        f"row {e['row']}: {e['proba'][0][0]} with {share(e['proba'][0][1])}, truth {e['y']}" for e in examples
    )
    return Chart(f"{name}: likeliest labels", spoken, PANEL_WIDTH, height, "".join(parts))


def _details(summary: Summary, key: str) -> dict[str, list[Any]]:
    """Method -> that part of the detail of each finished trial, by seed."""
    out: dict[str, list[Any]] = {}
    for found in finished(summary):
        seen = [r.detail[key] for _, r in sorted(summary.ok(found.name).items()) if r.detail.get(key)]
        # other tasks have details of other shapes under their own names
        if seen and summary.info.task == "predictive":
            out[found.name] = seen
    return out
