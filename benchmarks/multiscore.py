"""Sets of several scores: all labels of all rows in one query of a tree, against a loop over rows.

    python benchmarks/multiscore.py

The cells are learnt once, from 1,000 rows; each contender then ranks the cells of all labels of the
test rows. "rows" asks the same tree row by row, "labels" label by label; "distances" finds the nearest
of all centres row by row, as a direct transcription of the definition would.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from runner import Case, main

from assay.conformal.score_cells import Cells, Voronoi


@dataclass(frozen=True)
class Inputs:
    """Learnt cells, and the (n, K, d) score vectors of the rows asked about."""

    cells: Cells
    vectors: NDArray[np.float64]


def inputs(n: int, k: int, d: int, n_cells: int = 1000) -> Inputs:
    """True labels' vectors near zero, false ones spread out."""
    rng = np.random.default_rng(0)

    def draw(rows: int) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
        labels = rng.integers(k, size=rows)
        vectors = rng.random((rows, k, d))
        vectors[np.arange(rows), labels] *= rng.random((rows, 1))
        return vectors, labels

    vectors, labels = draw(n_cells)
    true = vectors[np.arange(n_cells), labels]
    return Inputs(Voronoi().learn(true, lambda: [(vectors, labels)]), draw(n)[0])


def batched(data: Inputs) -> NDArray[np.float64]:
    """All vectors in one query."""
    n, k, d = data.vectors.shape
    return data.cells.score(data.vectors.reshape(n * k, d)).reshape(n, k)


def by_row(data: Inputs) -> NDArray[np.float64]:
    """One query of the tree a row."""
    return np.stack([data.cells.score(row) for row in data.vectors])


def by_label(data: Inputs) -> NDArray[np.float64]:
    """One query of the tree a row and label."""
    return np.stack(
        [np.concatenate([data.cells.score(vector[None]) for vector in row]) for row in data.vectors]
    )


def by_distances(data: Inputs) -> NDArray[np.float64]:
    """All distances of a label's vector, row by row and label by label."""
    out = np.empty(data.vectors.shape[:2])
    for i, row in enumerate(data.vectors):
        for j, vector in enumerate(row):
            nearest = np.argmin(np.linalg.norm(data.cells.centers - vector, axis=1))
            out[i, j] = data.cells.rank[nearest]
    return out


def agree(ours: NDArray[Any], other: NDArray[Any]) -> str:
    """How many ranks differ."""
    return "equal" if np.array_equal(ours, other) else f"{int((ours != other).sum())} ranks differ"


CASES = [
    Case(
        f"{n:,} x {k}, {d} heads",
        partial(inputs, n, k, d),
        {"batched": batched, "rows": by_row, "labels": by_label, "distances": by_distances},
        repeats=5,
        agree=agree,
        tiny=partial(inputs, 5, k, d, 50),
    )
    for n, k, d in ((5_000, 10, 3), (5_000, 10, 5), (500, 100, 3))
]

if __name__ == "__main__":
    raise SystemExit(main(CASES, "multiscore"))
