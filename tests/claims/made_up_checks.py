"""Checks with known outcomes for the tests of claims."""

from assay.core.errors import MissingDependency


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


def silent_once(seed):
    """The third repetition measures nothing, without an error."""
    return {} if seed == 2 else steady(seed)


def without_data(seed):
    raise MissingDependency("the folder of data is not there")
