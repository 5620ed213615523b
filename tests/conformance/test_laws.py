"""Every method of every card keeps every law, or its card says which it cannot keep, and why."""

from assay.testing import parametrize_with_cards


@parametrize_with_cards()
def test_law(check):
    check()  # raises LawBroken unless the law is kept
