"""The conformance suite: the laws that every method must keep, for third-party methods too.

>>> from assay.testing import check_method
>>> results = check_method("split")
"""

from assay.testing.laws import LAWS, LawBroken, NotApplicable
from assay.testing.suite import (
    Check,
    CheckResult,
    Excepted,
    check_method,
    conformance_checks,
    parametrize_with_cards,
)

__all__ = [
    "LAWS",
    "Check",
    "CheckResult",
    "Excepted",
    "LawBroken",
    "NotApplicable",
    "check_method",
    "conformance_checks",
    "parametrize_with_cards",
]
