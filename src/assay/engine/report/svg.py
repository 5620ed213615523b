"""Drawing: a chart as inline SVG, axes with round ticks, and the placing of labels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from assay.engine.report.style import CHART_STYLE, DARK, LIGHT
from assay.engine.report.text import esc
from assay.engine.wording import number

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Chart:
    """A picture with a name and a description for those who cannot see it; ``note`` is for its caption."""

    title: str
    description: str
    width: int
    height: int
    body: str
    note: str = ""

    def svg(self, *, standalone: bool = False, css: str = "") -> str:
        """The ``<svg>`` element; ``standalone`` puts colours and fonts inside, for use without the page."""
        inside = ""
        if standalone:
            dark = f"@media (prefers-color-scheme: dark) {{ .assay-chart {{ {DARK} }} }}"
            inside = (
                f"<style>.assay-chart {{ {LIGHT} background: var(--paper) }} {dark} {CHART_STYLE}</style>"
            )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="assay-chart {css}" role="img" '
            f'viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}" '
            f'aria-label="{esc(self.title)}"><desc>{esc(self.description)}</desc>{inside}{self.body}</svg>'
        )

    def save(self, path: str | PathLike[str]) -> Path:
        """Write an SVG file."""
        target = Path(path)
        target.write_text(self.svg(standalone=True), encoding="utf-8")
        return target

    def _repr_svg_(self) -> str:
        return self.svg(standalone=True)

    def _repr_html_(self) -> str:
        return self.svg(standalone=True)


@dataclass(frozen=True)
class Scale:
    """Data to pixels on one axis, linear or logarithmic."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Pixel of a value; values outside the axis stop at its ends."""
        value = min(max(value, self.low), self.high)
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def inside(self, value: float) -> bool:
        """Whether the axis reaches the value."""
        return self.low <= value <= self.high

    def ticks(self, wanted: int = 5) -> list[float]:
        """Round values on the axis, two at least."""
        make = log_ticks if self.log else ticks
        found = make(self.low, self.high, wanted)
        return found if len(found) > 1 else make(self.low, self.high, 2 * wanted)

    def labels(self, wanted: int = 5) -> list[tuple[float, str]]:
        """Ticks with their text, all with the same decimals on a linear axis."""
        at = self.ticks(wanted)
        if self.log or len(at) < 2:
            return [(value, _short(value)) for value in at]
        decimals = max(0, -math.floor(math.log10(at[1] - at[0]) + 1e-9))
        if decimals and not math.isclose((at[1] - at[0]) * 10**decimals % 1, 0, abs_tol=1e-6):
            decimals += 1
        large = max(abs(at[0]), abs(at[-1])) >= 1e5
        return [(value, _short(value) if large else number(value, decimals)) for value in at]


def _short(value: float) -> str:
    """12000000 as 12M, 0.5 as 0.5."""
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size and (size > 1e3 or abs(value) >= 1e4):
            return f"{value / size:.4g}{letter}".replace("-", "−")
    return f"{value:.4g}".replace("-", "−")


def ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Multiples of 1, 2, 2.5 or 5 times a power of ten within [low, high]."""
    raw = (high - low) / max(1, wanted)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [i * step for i in range(first, last + 1)]


def log_ticks(low: float, high: float, wanted: int = 5) -> list[float]:
    """Powers of ten, with 2 and 5 times them where few powers fit."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    powers = [10.0**e for e in range(first, last + 1)]
    fine = [m * p for p in powers for m in (1, 2, 5) if low <= m * p <= high]
    if len(fine) <= wanted + 2 and len(fine) >= 2:
        return fine
    coarse = [p for p in powers if low <= p <= high]
    if len(coarse) >= 2:
        stride = math.ceil(len(coarse) / (wanted + 1))
        return coarse[::stride]
    return fine or ticks(low, high, wanted)


def padded(values: Sequence[float], pad: float = 0.06, least: float = 0.0) -> tuple[float, float]:
    """The range of the values and some air; ``least`` is the smallest width of that range."""
    low, high = min(values), max(values)
    width = max(high - low, least, abs(high) * 1e-3, 1e-9)
    middle = (low + high) / 2
    low, high = min(low, middle - width / 2), max(high, middle + width / 2)
    return low - pad * width, high + pad * width


def text_width(text: str, size: float) -> float:
    """Width of a text in pixels, rather too large than too small (fonts differ between machines)."""
    return size * sum(0.4 if c in "iljtf.,:;|!'()[] " else 0.95 if c in "mwMW@%" else 0.66 for c in text)


def overlap(a: Box, b: Box) -> bool:
    """Whether two boxes (left, top, right, bottom) overlap."""
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


#: directions in which a label may stand from its point, the preferred first
_DIRECTIONS = ((1, 0), (1, -1), (1, 1), (-1, 0), (-1, -1), (-1, 1), (0, -1), (0, 1))
_DISTANCES = (10, 18, 28, 40, 54, 70, 88, 108, 130, 155, 185)


def place_labels(
    points: Sequence[tuple[float, float, str]], frame: Box, size: float, avoid: Sequence[Box] = ()
) -> list[Box | None]:
    """Boxes for the labels of points (x, y, text) that overlap neither each other nor any marker.

    Greedy, in the given order: of the free places around the point within ``frame`` the one that is
    near, covers little of ``avoid`` and is nearer to its own point than to another. None where there
    is no free place; the caller must then name the point in another way.
    """
    markers = [(x - 7, y - 7, x + 7, y + 7) for x, y, _ in points]
    taken: list[Box] = []
    out: list[Box | None] = []
    for i, (x, y, label) in enumerate(points):
        w, h = text_width(label, size) + 4, size * 1.35
        others = [(px, py) for j, (px, py, _) in enumerate(points) if j != i]
        best, least = None, math.inf
        for cost, box in _around(x, y, w, h):
            inside = box[0] >= frame[0] and box[1] >= frame[1] and box[2] <= frame[2] and box[3] <= frame[3]
            if not inside or cost >= least or any(overlap(box, other) for other in (*markers, *taken)):
                continue
            own = distance(box, x, y)
            cost += 16 * min(3, sum(overlap(box, other) for other in avoid))
            cost += 50 * any(distance(box, px, py) < own + 4 for px, py in others)
            if cost < least:
                best, least = box, cost
        if best:
            taken.append(best)
        out.append(best)
    return out


def distance(box: Box, x: float, y: float) -> float:
    """Distance of a point from a box."""
    return math.hypot(x - min(max(x, box[0]), box[2]), y - min(max(y, box[1]), box[3]))


def _around(x: float, y: float, w: float, h: float) -> list[tuple[float, Box]]:
    """Candidate boxes around a point with their distance, the nearest first."""
    boxes = []
    for far in _DISTANCES:
        for dx, dy in _DIRECTIONS:
            side = far * (1 if dy == 0 else 0.6)
            left = x + side if dx > 0 else x - side - w if dx < 0 else x - w / 2
            middle = y + dy * (far + h / 4)
            boxes.append((float(far), (left, middle - h / 2, left + w, middle + h / 2)))
    return boxes


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    """A line element."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{css}"/>'


def words(x: float, y: float, text: str, css: str = "tick", anchor: str = "start") -> str:
    """A text element; the text is escaped here."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{css}" text-anchor="{anchor}">{esc(text)}</text>'


def rect(x: float, y: float, w: float, h: float, css: str) -> str:
    """A rectangle element."""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(w, 0):.1f}" height="{max(h, 0):.1f}" class="{css}"/>'


def marker(x: float, y: float, shape: str, css: str, tip: str = "", size: float = 5) -> str:
    """A circle, diamond, square or triangle (beyond the axis, right or left), with a text for hovering."""
    title = f"<title>{esc(tip)}</title>" if tip else ""
    if shape == "circle":
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{size:g}" class="{css}">{title}</circle>'
    r = size * 1.3
    corners = {
        "diamond": ((0, -r), (r, 0), (0, r), (-r, 0)),
        "square": ((-size, -size), (size, -size), (size, size), (-size, size)),
        "triangle": ((-size, -size), (r, 0), (-size, size)),
        "triangle-left": ((size, -size), (-r, 0), (size, size)),
    }[shape]
    path = "L".join(f"{x + dx:.1f} {y + dy:.1f}" for dx, dy in corners)
    return f'<path d="M{path}Z" class="{css}">{title}</path>'
