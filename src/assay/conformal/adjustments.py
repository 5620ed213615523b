"""Adjustments f_tau: how a row's own spread enters its conformal score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from assay.core.checks import FloatArray
from assay.core.errors import MethodError

_ULPS = 4


def _same(t: FloatArray) -> FloatArray:
    return t


@dataclass(frozen=True)
class Adjustment:
    """A family of increasing maps f_tau with inverse, and the point phi where tau is read off.

    All functions take and give arrays of one number a row.

    Parameters
    ----------
    f, f_inv : functions of (tau, v)
        Both increase in v; ``f_inv(tau, f(tau, v)) = v``.
    phi : float
        ``tau -> f(tau, phi)`` must be increasing and onto.
    solve : function of t, optional
        The tau with ``f(tau, phi) = t``. The default takes tau = t, right for the linear (phi = 1)
        and the difference (phi = 0) map; it is checked against f when a method uses it.
    name : str
    """

    f: Callable[[FloatArray, FloatArray], FloatArray]
    f_inv: Callable[[FloatArray, FloatArray], FloatArray]
    phi: float
    solve: Callable[[FloatArray], FloatArray] = _same
    name: str = "custom"

    def tau(self, t: FloatArray) -> FloatArray:
        """The tau of each row from the size t that holds 1 - alpha of the model's mass.

        Raises
        ------
        MethodError
            ``f(tau, phi)`` does not give t back.
        """
        tau = np.asarray(self.solve(t), dtype=np.float64)
        if self.name != IDENTITY.name:
            back = np.asarray(self.f(tau, np.full_like(tau, self.phi)))
            bad = ~np.isclose(back, t, rtol=1e-9, atol=0)
            if bad.any():
                row = int(np.argmax(bad))
                raise MethodError(
                    f"adjustment {self.name!r}: f(tau, phi) is {back[row]:g} where {t[row]:g} is needed (row "
                    f"{row}, {int(bad.sum())} of {len(t)} rows); give `solve`, the tau with f(tau, phi) = t"
                )
        return tau

    def scores(self, tau: FloatArray, v: FloatArray) -> FloatArray:
        """(n,) conformal scores of rows with raw scores v."""
        # a far-out row may overflow to +inf, which is a legal rank
        with np.errstate(over="ignore"):
            return np.asarray(self.f_inv(tau, v), dtype=np.float64)

    def bound(self, tau: FloatArray, threshold: float) -> FloatArray:
        """(n,) largest raw scores whose conformal score is at most the threshold.

        Set and score are one rule up to the last bit: the rounding of f is corrected by f_inv.
        """
        q = np.full_like(tau, threshold)
        with np.errstate(over="ignore"):
            v = np.asarray(self.f(tau, q), dtype=np.float64)
            for _ in range(_ULPS):
                v = np.where(self.scores(tau, v) > q, np.nextafter(v, -np.inf), v)
            for _ in range(_ULPS):
                up = np.nextafter(v, np.inf)
                v = np.where(self.scores(tau, up) <= q, up, v)
        return v


# named functions, not lambdas: a fitted method must survive pickling and copying
def _times(tau: FloatArray, v: FloatArray) -> FloatArray:
    return tau * v


def _over(tau: FloatArray, v: FloatArray) -> FloatArray:
    return v / tau


def _plus(tau: FloatArray, v: FloatArray) -> FloatArray:
    return tau + v


def _minus(tau: FloatArray, v: FloatArray) -> FloatArray:
    return v - tau


def _only(tau: FloatArray, v: FloatArray) -> FloatArray:
    return v


LINEAR = Adjustment(_times, _over, 1.0, name="linear")
DIFFERENCE = Adjustment(_plus, _minus, 0.0, name="difference")
#: takes no notice of tau: plain split conformal prediction with the raw score
IDENTITY = Adjustment(_only, _only, 0.0, name="identity")

_NAMED = {adjustment.name: adjustment for adjustment in (LINEAR, DIFFERENCE, IDENTITY)}


def resolve_adjustment(adjustment: Any) -> Adjustment:
    """The adjustment of a name, or the object itself; an unknown name lists the known ones."""
    if isinstance(adjustment, Adjustment):
        return adjustment
    if isinstance(adjustment, str) and adjustment in _NAMED:
        return _NAMED[adjustment]
    raise MethodError(f"adjustment must be one of {sorted(_NAMED)} or an Adjustment, got {adjustment!r}")
