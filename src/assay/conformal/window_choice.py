"""How many past residuals to look at: by validation, or by where the last change lies."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, clone

from assay.conformal.kowcpi import KernelWeightedResidualInterval
from assay.conformal.residual_base import ResidualIntervals
from assay.core.checks import FloatArray, check_target
from assay.core.errors import AssayWarning, DataError, MethodError
from assay.core.levels import parse_alpha
from assay.core.state import all_or_nothing

_PENALTY = 2.5
_TINY = np.finfo(np.float64).tiny


class WindowSelector(BaseEstimator):  # type: ignore[misc]
    """The window length with the narrowest intervals among those that cover on a validation stretch.

    Each length is fitted on the residuals before the stretch and goes through it step by step. Where
    none covers 1 - alpha, the one that covers most is taken, with a warning.

    Parameters
    ----------
    windows : sequence of int
        Lengths to try. Default 3, 5, 10, 20.
    method : method on residuals with a parameter ``window``, optional
        Default ``KernelWeightedResidualInterval()``.
    validation : float in (0, 1)
        Share of the residuals, the newest, that are the stretch. Default 1/8: train, validation and
        test are 7 : 1 : 2 in the paper.
    alpha : level
        Miscoverage. Default 0.1.

    Attributes
    ----------
    window_ : int
    method_ : method on residuals
        With that window, fitted on all the residuals.
    coverage_, width_ : (n_windows,) float64 arrays
        On the stretch, in the order of ``windows``.

    References
    ----------
    Lee, Xu, Xie: Kernel-based Optimally Weighted Conformal Time-Series Prediction. ICLR 2025.

    Examples
    --------
    >>> import numpy as np
    >>> residuals = np.random.default_rng(0).normal(size=400)
    >>> WindowSelector(windows=(1, 2)).fit(residuals).coverage_.shape
    (2,)
    """

    def __init__(
        self,
        windows: Sequence[int] = (3, 5, 10, 20),
        method: Any = None,
        validation: float = 0.125,
        alpha: Any = 0.1,
    ) -> None:
        self.windows = windows
        self.method = method
        self.validation = validation
        self.alpha = alpha

    def fit(self, residuals: Any) -> Self:
        """Choose from (T,) past residuals, the newest last.

        Raises
        ------
        DataError
            NaN or infinite residuals, or too few for a stretch and the longest window before it.
        """
        values = check_target(residuals, name="residuals")
        level = parse_alpha(self.alpha)
        if not 0 < self.validation < 1:
            raise MethodError(f"validation must lie in (0, 1), got {self.validation!r}")
        if len(self.windows) == 0:
            raise MethodError("windows is empty; give the lengths to try")
        held = math.ceil(self.validation * len(values))
        before = len(values) - held
        if before <= max(self.windows) + 1:
            raise DataError(
                f"{len(values)} residuals, of which {held} validate: {before} are left for windows of "
                f"{max(self.windows)}, and more than {max(self.windows) + 1} are needed"
            )
        with all_or_nothing(self):
            judged = [self._judge(values, before, window) for window in self.windows]
            self.coverage_, self.width_ = (np.array(column) for column in zip(*judged, strict=True))
            valid = self.coverage_ >= float(1 - level)
            if valid.any():
                best = int(np.argmin(np.where(valid, self.width_, np.inf)))
            else:
                best = int(np.argmax(self.coverage_))
                warnings.warn(
                    f"no window of {tuple(self.windows)} covers {float(1 - level):.0%} of {held} validation "
                    f"steps; {self.windows[best]} covers most, {self.coverage_[best]:.1%}, and is taken",
                    AssayWarning,
                    stacklevel=2,
                )
            self.window_ = int(self.windows[best])
            self.method_ = self._with(self.window_).fit(values)
        return self

    def _with(self, window: int) -> ResidualIntervals:
        method = KernelWeightedResidualInterval() if self.method is None else clone(self.method)
        made: ResidualIntervals = method.set_params(window=window)
        return made

    def _judge(self, values: FloatArray, before: int, window: int) -> tuple[float, float]:
        ends = self._with(window).run(values, before, self.alpha)
        stretch = values[before:]
        covered = (ends[:, 0] <= stretch) & (stretch <= ends[:, 1])
        return float(covered.mean()), float(np.diff(ends).mean())


def change_point_window(
    residuals: Any, *, w_min: int = 15, w_max: int | None = None, margin: int = 10
) -> int:
    """Length of the window since the last change of mean or variance, by a likelihood ratio.

    Of the last ``L = min(w_max, n - 1)`` residuals, the split k between ``margin`` and ``L - margin``
    with the largest ``L log v - k log v1 - (L - k) log v2`` (v the variances of all, of the first k and of
    the others) counts as a change if that is above ``2.5 log L``: the window is then ``L - k``,
    otherwise the larger of ``w_min`` and ``margin``. It is at least that and at most ``L - margin``.

    Parameters
    ----------
    residuals : (n,) array
        The newest last.
    w_min : int
        Default 15 (5 in the runs of the authors' code).
    w_max : int, optional
        Default all but one.
    margin : int
        Residuals on either side of a split. Default 10.

    Returns
    -------
    int

    Raises
    ------
    DataError
        NaN or infinite residuals, or fewer than ``w_min + margin + 1`` of them.
    """
    values = check_target(residuals, name="residuals")
    least = max(w_min, margin)
    length = len(values) - 1 if w_max is None else min(w_max, len(values) - 1)
    if min(w_min, margin) < 1 or length < least + margin:
        raise DataError(
            f"{len(values)} residuals with w_min {w_min}, w_max {w_max} and margin {margin}: at least "
            f"{least + margin + 1} residuals and a w_max of {least + margin} are needed"
        )
    last = values[-length:] - values[-length:].mean()
    splits = np.arange(margin, length - margin + 1)
    first, first_squares = np.cumsum(last)[splits - 1], np.cumsum(last**2)[splits - 1]
    total, total_squares = float(last.sum()), float((last**2).sum())

    def spread(n: Any, sums: Any, squares: Any) -> Any:
        # a stretch of equal residuals has variance 0, and its logarithm must stay finite
        return np.log(np.maximum(squares / n - (sums / n) ** 2, _TINY))

    statistic = (
        length * spread(length, total, total_squares)
        - splits * spread(splits, first, first_squares)
        - (length - splits) * spread(length - splits, total - first, total_squares - first_squares)
    )
    best = int(np.argmax(statistic))
    window = length - int(splits[best]) if statistic[best] > _PENALTY * math.log(length) else least
    return int(np.clip(window, least, length - margin))
