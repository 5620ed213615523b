"""How much the repetitions of a check of a claim share: a check that draws its own splits says so."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

from assay.core.errors import MethodError

_Check = TypeVar("_Check", bound=Callable[..., Any])
_NAME = "test_to_train"


def draws_own_splits(test_to_train: float, folds: int = 1) -> Callable[[_Check], _Check]:
    """Decorator of a check whose seeds each divide the whole table anew, in its own proportions.

    Its seeds are judged with the variance of overlapping splits of that ratio (Nadeau and Bengio),
    not that of the task's splits.

    Parameters
    ----------
    test_to_train : float
        Test rows / training rows of one division.
    folds : int, default 1
        Divisions that one seed's value is the mean of. A mean over k folds varies about k times less
        from seed to seed, while what the seeds share stays: the ratio of the seed is k times as large
        (the correction for repeated cross-validation, in terms of its repetitions).

    Raises
    ------
    MethodError
        A ratio that is not a finite number above 0, or folds below 1.
    """
    if not (0 < test_to_train < math.inf and folds >= 1):
        raise MethodError(
            f"test_to_train must be a finite number above 0 and folds at least 1, got {test_to_train!r} "
            f"and {folds!r}"
        )

    def mark(check: _Check) -> _Check:
        check.__dict__[_NAME] = folds * test_to_train
        return check

    return mark


def own_ratio(check: Any) -> float | None:
    """Ratio with which a check's seeds are judged; None if it does not say one."""
    ratio = getattr(check, _NAME, None)
    return None if ratio is None else float(ratio)
