"""What to read from a method's worked example, and its picture: made of the example's own variables.

Sentences say what came out, good or bad; nothing is known of it beforehand. Pictures are the report's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from assay.engine.report.svg import Chart
from assay.engine.report.text import esc
from assay.engine.wording import number
from assay.tasks.measures import expected_coverage

#: the level of all examples
ALPHA = Fraction(1, 10)
#: the variables of an example that ran
Names = Mapping[str, Any]


@dataclass(frozen=True)
class Reading:
    """Sentences, and perhaps charts under one caption; of a pair the second is for narrow screens."""

    sentences: Sequence[str]
    charts: Sequence[Chart | tuple[Chart, Chart]] = ()
    caption: str = ""

    @property
    def words(self) -> str:
        """The sentences as one paragraph."""
        return " ".join(sentence for sentence in self.sentences if sentence)

    @property
    def picture(self) -> str:
        """The charts as HTML in one line, nothing where there are none."""
        if not self.charts:
            return ""
        parts = []
        for chart in self.charts:
            if isinstance(chart, tuple):
                wide, narrow = chart
                parts.append(f'<div class="assay-wide">{wide.svg()}</div>')
                parts.append(f'<div class="assay-narrow">{narrow.svg()}</div>')
            else:
                parts.append(f'<div class="assay-panel">{chart.svg()}</div>')
        caption = f"<figcaption>{esc(self.caption)}</figcaption>"
        return f'<figure class="assay-figure">{"".join(parts)}{caption}</figure>'


def percent(value: float) -> str:
    """0.905 as 90.5 %."""
    return f"{100 * value:.1f} %"


def coverage(names: Names, inside: Any, what: str) -> str:
    """How many are inside, and what chance allows an exactly valid method."""
    n, k = len(inside), int(np.sum(inside))
    rows = len(names["X_train"])
    given = len(names["X_calib"]) if "X_calib" in names else None
    size = getattr(names["method"], "calibration_size", None)
    n_calib = given or (rows if size is None else round(size * rows) if isinstance(size, float) else size)
    low, high = expected_coverage(n_calib, n, ALPHA)
    where = (
        "this one is below, it covers too little"
        if k / n < low
        else "this one is above, with sets larger than they need be"
        if k / n > high
        else "this one is inside"
    )
    return (
        f"{percent(k / n)} {what}; 90 % were asked for. With {n_calib:,} "
        f"{'training' if size is None else 'calibration'} rows and {n:,} new ones, 95 of 100 splits give an "
        f"exactly valid method between {percent(low)} and {percent(high)}: {where}."
    )


def spread_of_sizes(sizes: Any, what: str, size: str) -> str:
    """Whether easy rows get smaller sets than hard ones."""
    low, high = np.quantile(sizes, [0.1, 0.9], method="nearest")
    if not np.isfinite(high):
        return f"{percent(np.isinf(sizes).mean())} of the {what}s have no end."
    if high - low <= 1e-6 * abs(high):
        return f"Every {what} is as {size} as any other: the method does not tell easy rows from hard ones."
    return f"One {what} in ten is less than {number(low)} {size}, one in ten more than {number(high)}: " + (
        "nearly the same for all rows." if high < 1.25 * low else "they differ from row to row."
    )
