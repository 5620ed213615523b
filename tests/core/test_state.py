"""All or nothing."""

import pytest

from assay.core.state import all_or_nothing


class Thing:
    pass


def test_a_block_that_raises_leaves_nothing():
    thing = Thing()
    thing.kept, thing.replaced = 1, 2

    def interrupted():
        with all_or_nothing(thing):
            thing.replaced, thing.new = 3, 4
            del thing.kept
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert vars(thing) == {"kept": 1, "replaced": 2}


def test_a_block_that_ends_keeps_everything():
    thing = Thing()
    with all_or_nothing(thing):
        thing.new = 4
    assert vars(thing) == {"new": 4}
