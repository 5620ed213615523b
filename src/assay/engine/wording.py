"""Numbers and counts for reading."""

from __future__ import annotations

import math

from assay.engine.stats import Estimate

NONE = "–"
_MINUS = "−"


def shorten(text: str, limit: int) -> str:
    """At most ``limit`` characters, the middle left out."""
    if len(text) <= limit:
        return text
    tail = (limit - 1) // 2
    return f"{text[: limit - 1 - tail]}…{text[len(text) - tail :]}"


def number(value: float | None, decimals: int | None = None) -> str:
    """A number for reading; without ``decimals`` three significant digits and all before the point."""
    if value is None or math.isnan(value):
        return NONE
    if math.isinf(value):
        return "∞" if value > 0 else f"{_MINUS}∞"
    size = abs(value)
    if size >= 1e9 or (0 < size < 1e-4 and decimals is None):
        digits, exponent = f"{value:.2e}".split("e")
        text = f"{digits}e{int(exponent)}"
    else:
        if decimals is None:
            decimals = max(0, 2 - math.floor(math.log10(size))) if size else 0
        # adding zero turns a negative zero into zero
        text = f"{round(value, decimals) + 0.0:,.{decimals}f}"
    return text.replace("-", _MINUS)


def share(value: float | None) -> str:
    """A coverage or another share, three decimals."""
    return number(value, 3)


def signed(value: float | None, decimals: int | None = None) -> str:
    """A difference, with its sign unless it is zero as shown."""
    text = number(value, decimals)
    shows_zero = not any(digit in text for digit in "123456789∞")
    return f"+{text}" if value is not None and value > 0 and not shows_zero else text


def decimals_for(of: Estimate) -> int | None:
    """Decimals that show two significant digits of the interval's half width; None if there is none."""
    if of.low is None or of.high is None:
        return None
    half = (of.high - of.low) / 2
    if half <= 1e-9 * abs(of.mean):
        return None
    return min(6, max(1 - math.floor(math.log10(half)), 0))


def interval(of: Estimate, decimals: int | None = None) -> str:
    """The interval in brackets, or an empty string."""
    if of.low is None or of.high is None:
        return ""
    decimals = decimals_for(of) if decimals is None else decimals
    return f"[{number(of.low, decimals)}, {number(of.high, decimals)}]"


def mean(of: Estimate, decimals: int | None = None) -> str:
    """The mean; without ``decimals`` with as many as its interval supports."""
    return number(of.mean, decimals_for(of) if decimals is None else decimals)


def estimate_text(of: Estimate | None, decimals: int | None = None) -> str:
    """A mean and its interval, such as "0.903 [0.881, 0.925]"; the mean alone where there is none."""
    if of is None or math.isnan(of.mean):
        return NONE
    return f"{mean(of, decimals)} {interval(of, decimals)}".strip()


def duration(seconds: float | None) -> str:
    """Seconds in the unit that reads best."""
    if seconds is None or math.isnan(seconds):
        return NONE
    if seconds < 0.0995:
        return f"{number(seconds * 1000)} ms"
    if seconds < 120:
        return f"{number(seconds)} s"
    minutes = seconds / 60
    return f"{number(minutes)} min" if minutes < 120 else f"{number(minutes / 60)} h"


def memory(size: float) -> str:
    """Bytes in the unit that reads best."""
    mib = size / 2**20
    return f"{number(mib)} MiB" if mib < 1024 else f"{number(mib / 1024)} GiB"


def plural(n: int, word: str, words: str | None = None) -> str:
    """A count and its noun: "1 seed", "5 seeds"; ``words`` is a plural of another form."""
    return f"{n:,} {word if n == 1 else words or f'{word}s'}"
