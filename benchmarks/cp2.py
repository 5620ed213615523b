"""CP2's sets on the line: intervals and lengths of all rows at once beside a loop over the rows.

The loop is what one writes first: sort a row's draws, merge the intervals around them one by one. Where
a library has a loop of this kind it is in Python, so the loop here is one over plain floats, which is
quicker than one over array elements; a second one calls numpy for each row.
"""

import sys

import numpy as np
import runner
from runner import Case

from assay.conformal.ball_unions import BallUnionSet

N, M = 10_000, 50


def sets(n=N):
    """Draws of a two-peaked law and radii such that a row's balls leave some gaps and close others."""
    rng = np.random.default_rng(0)
    centers = rng.normal(size=(n, M)) + 4 * rng.integers(2, size=(n, M))
    return BallUnionSet(centers[:, :, None], rng.uniform(0.02, 0.3, size=n))


def by_assay(region):
    """A (k, 2) array a row."""
    return region.intervals()


def by_row(region):
    """The same, merging in Python."""
    out = []
    for row, radius in zip(region.centers[:, :, 0].tolist(), region.radius.tolist(), strict=True):
        row.sort()
        pieces = [[row[0] - radius, row[0] + radius]]
        for center in row[1:]:
            if center - radius > pieces[-1][1]:
                pieces.append([center - radius, center + radius])
            else:
                pieces[-1][1] = center + radius
        out.append(np.array(pieces))
    return out


def by_row_with_numpy(region):
    """The same, with numpy on each row."""
    out = []
    for row, radius in zip(region.centers[:, :, 0], region.radius, strict=True):
        low = np.sort(row) - radius
        high = np.sort(row) + radius
        opened = np.concatenate([[True], low[1:] > high[:-1]])
        out.append(np.column_stack([low[opened], high[np.append(opened[1:], True)]]))
    return out


def length_by_assay(region):
    """(n,) lengths."""
    return region.volume()


def length_by_row(region):
    """(n,) lengths from the merged intervals."""
    return np.array([sum(high - low for low, high in pieces.tolist()) for pieces in by_row(region)])


def same_intervals(ours, theirs):
    """How far the ends differ."""
    if [len(a) for a in ours] != [len(b) for b in theirs]:
        return "numbers of intervals differ"
    return f"ends differ by {max(np.abs(a - b).max() for a, b in zip(ours, theirs, strict=True)):.0e}"


def same_lengths(ours, theirs):
    """How far the lengths differ."""
    return f"lengths differ by {np.abs(ours - theirs).max():.0e}"


CASES = [
    Case(f"intervals, {N:,} rows x {M} draws", sets,
         {"assay": by_assay, "loop in Python": by_row, "loop with numpy": by_row_with_numpy},
         agree=same_intervals, tiny=lambda: sets(10)),
    Case(f"lengths, {N:,} rows x {M} draws", sets,
         {"assay": length_by_assay, "loop in Python": length_by_row},
         agree=same_lengths, tiny=lambda: sets(10)),
]  # fmt: skip


if __name__ == "__main__":
    sys.exit(runner.main(CASES, "cp2"))
