"""Miscoverage levels and conformal ranks, exact for the decimal that the user typed.

One truth for the whole package: with n calibration scores the threshold is the
k-th smallest, ``k = ceil((1 - alpha) * (n + 1))``; when ``k > n`` it is +inf.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Iterable
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from numbers import Rational, Real
from typing import Any

from assay.core.errors import InfiniteSetWarning, MethodError

# alpha * (n + 1) is computed exactly from the decimal; this guard only forgives
# levels that are themselves the result of float arithmetic, such as 1 - 0.9.
_GUARD = Fraction(1, 10**9)
_MAX_EXPONENT = 400


def parse_alpha(alpha: Any) -> Fraction:
    """Turn one miscoverage level into an exact fraction.

    Parameters
    ----------
    alpha : float, int, str, Decimal, Fraction or 0-d array
        A number in [0, 1). Floats stand for their shortest decimal
        (``0.1`` is one tenth); strings such as ``"0.1"`` or ``"1/10"`` are
        exact. 0 is legal and asks for sets that contain everything.

    Raises
    ------
    MethodError
        (also a ``ValueError``) outside [0, 1), NaN, or not a number.
    """
    value: Any = alpha
    level: Fraction
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item") and not isinstance(value, Real):
        value = value[()] if hasattr(value, "astype") else value.item()
    try:
        if isinstance(value, bool):
            raise ValueError
        if isinstance(value, Rational):
            level = Fraction(int(value.numerator), int(value.denominator))
        elif isinstance(value, (str, Decimal)):
            exact: str | Decimal = value
            if isinstance(value, str) and "/" not in value:
                exact = Decimal(value.strip())
            if isinstance(exact, Decimal) and abs(exact.adjusted()) > _MAX_EXPONENT:
                # an integer with a million digits is no level, and takes minutes to make
                raise ValueError
            level = Fraction(exact)
        elif isinstance(value, Real) or hasattr(value, "dtype"):
            # str() of a numpy float32 0.1 is "0.1", the decimal that was typed
            level = Fraction(str(value))
        else:
            raise ValueError
    except (ValueError, TypeError, ZeroDivisionError, InvalidOperation, OverflowError):
        raise MethodError(
            f"alpha must be a number in [0, 1), got {alpha!r}; 0.1 asks for 90 % coverage"
        ) from None
    if not 0 <= level < 1:
        raise MethodError(f"alpha must lie in [0, 1), got {alpha!r}; 0.1 asks for 90 % coverage")
    return level


def parse_levels(alpha: Any) -> tuple[tuple[Fraction, ...], bool]:
    """Parse one level or a sequence of levels; returns (levels, whether one scalar was given)."""
    is_scalar = isinstance(alpha, (str, Real, Decimal)) or getattr(alpha, "ndim", None) == 0
    if is_scalar or not isinstance(alpha, Iterable):
        return (parse_alpha(alpha),), True
    levels = tuple(parse_alpha(a) for a in alpha)
    if not levels:
        raise MethodError("alpha is an empty sequence; give at least one level, such as 0.1")
    return levels, False


def conformal_rank(n: int, alpha: Any) -> int:
    """Rank k = ceil((1 - alpha)(n + 1)) of the conformal threshold among n scores, from 1 to n + 1.

    ``k = n + 1`` means that n scores are too few: the threshold is +inf.
    """
    level = alpha if isinstance(alpha, Fraction) else parse_alpha(alpha)
    return operator.index(n) + 1 - lower_rank(n, level)


def lower_rank(n: int, alpha: Any) -> int:
    """Rank floor(alpha (n + 1)) counted from the small end; 0 means -inf."""
    level = alpha if isinstance(alpha, Fraction) else parse_alpha(alpha)
    n = operator.index(n)
    # alpha < 1 never takes all n + 1 ranks, whatever the guard forgives
    return min(math.floor(level * (n + 1) + _GUARD), n)


def smallest_n(alpha: Any) -> int | None:
    """Smallest number of calibration rows with a finite threshold; None for alpha = 0."""
    level = alpha if isinstance(alpha, Fraction) else parse_alpha(alpha)
    if level == 0:
        return None
    return max(math.ceil((1 - _GUARD) / level) - 1, 1)


def warn_infinite(n: int, alpha: Any, what: str = "set", stacklevel: int = 3) -> None:
    """Warn that n calibration rows are too few for alpha, naming how many suffice."""
    level = alpha if isinstance(alpha, Fraction) else parse_alpha(alpha)
    need = smallest_n(level)
    enough = "no number of rows gives" if need is None else f"at least {need} are needed for"
    warnings.warn(
        f"{n} calibration rows at alpha {float(level):g}: {enough} a finite {what}; it is infinite",
        InfiniteSetWarning,
        stacklevel=stacklevel,
    )
