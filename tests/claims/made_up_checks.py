"""Checks with known outcomes for the tests of claims."""

from assay.core.errors import MissingDependency
from assay.core.overlap import draws_own_splits


def steady(seed):
    """The gain of ours over theirs is 0.1 on every seed but for a ripple."""
    ripple = 0.01 * (seed % 2)
    return {"gap": {"ours": 0.1 + ripple, "theirs": 0.2 + 2 * ripple}, "cover": {"ours": 0.9 + ripple}}


def noisy(seed):
    """No difference that few seeds could show."""
    return {"gap": {"ours": (-1) ** seed, "theirs": 0.0}}


def fails_once(seed):
    """The third repetition is an error."""
    if seed == 2:
        raise RuntimeError("no luck with this one")
    return steady(seed)


def on_split(seed, split):
    """Sizes of the split it was given."""
    return {"rows": {"ours": len(split.y_test), "theirs": len(split.y_train)}}


def reads_a_folder(seed, data=None):
    """The number in a file of the folder of data."""
    if data is None:
        raise MissingDependency("the folder of data is not there")
    value = float((data / "gap.txt").read_text())
    return {"gap": {"ours": value + 0.01 * seed, "theirs": 1.0}}


def silent_once(seed):
    """The third repetition measures nothing, without an error."""
    return {} if seed == 2 else steady(seed)


@draws_own_splits(1 / 9)
def own_nine_tenths(seed, split):
    """A gain that the ratio decides on, from splits of its own."""
    return rippled(seed, split)


def rippled(seed, split):
    """The same gain from the splits that are given."""
    return {"gap": {"ours": 0.0, "theirs": 0.15 + 0.1 * (-1) ** seed}}


def without_data(seed):
    raise MissingDependency("the folder of data is not there")
