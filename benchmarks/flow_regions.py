"""Volume of a flow's region by points of the latent ball, beside a grid of the outputs.

    .bench-env/bin/python benchmarks/flow_regions.py

The grid has 200 points an output over each region's bounding box, which it is given; the share of
them that lie in the region, times the box. The latent ball gets the fewest points (a power of two)
whose mean error is not above the grid's. Errors are relative to 2^15 points of the latent ball.
"""

import sys
from functools import cache
from itertools import product, takewhile

import numpy as np
import runner
from runner import Case, Unavailable

SIDE = 200
RADIUS = 2.2
REFERENCE = 2**15


@cache
def region(q, rows):
    """Regions of a flow trained on bent noise in q outputs."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise Unavailable("torch is not installed") from None
    from assay.conformal.flow_density import FlowDensityRegressor
    from assay.conformal.flow_region import FlowRegion

    rng = np.random.default_rng(0)
    X, first = rng.uniform(-1, 1, (3000, 1)), rng.normal(size=(3000, 1))
    Y = np.hstack([first, first**2 + X + 0.3 * rng.normal(size=(3000, q - 1))])
    flow = FlowDensityRegressor(max_epochs=30, lr=2e-3, random_state=0).fit(X, Y)
    return FlowRegion(flow, np.linspace(-1, 1, rows)[:, None], RADIUS, q)


@cache
def reference(q, rows):
    """Volumes from many points."""
    return region(q, rows).volume(REFERENCE)


def by_grid(data):
    """Volumes by a grid of the outputs, one row after the other."""
    regions, _, side = data
    q = regions.n_outputs
    out = []
    for i, box in enumerate(regions.bounding_box()):
        width = box[:, 1] - box[:, 0]
        axes = [
            low + (np.arange(side) + 0.5) * size / side for low, size in zip(box[:, 0], width, strict=True)
        ]
        row = regions.take([i])
        inside = 0
        # 200^2 points at a time: 200^3 would not fit into memory with their images
        plane = np.stack(np.meshgrid(*axes[-2:], indexing="ij"), axis=-1).reshape(-1, 2)
        for rest in product(*axes[:-2]):
            points = np.hstack([np.broadcast_to(rest, (len(plane), q - 2)), plane])
            z, _ = row.flow.inverse_points(points[None], row.X)
            inside += int((np.linalg.norm(z[0], axis=1) <= row.radius).sum())
        out.append(inside / side**q * width.prod())
    return np.array(out)


def by_latent_ball(data):
    """Volumes of the library."""
    regions, points, _ = data
    return regions.volume(points)


def error(volumes, q):
    """Mean relative error."""
    return float(np.abs(volumes / reference(q, len(volumes)) - 1).mean())


@cache
def enough(q, rows):
    """Points of the latent ball with no more error than the grid."""
    aim = error(by_grid((region(q, rows), None, SIDE)), q)
    sizes = [2**k for k in range(4, 14)]
    short = takewhile(lambda m: error(region(q, rows).volume(m), q) > aim, sizes)
    return sizes[min(len(list(short)), len(sizes) - 1)]


def inputs(q, rows):
    """(regions, points of the latent ball, points of the grid a side)."""
    points = enough(q, rows)
    print(f"# {points} points of the latent ball, {SIDE}^{q} of the grid", file=sys.stderr, flush=True)
    return region(q, rows), points, SIDE


def agree(ours, theirs, q):
    """Both errors."""
    return f"error {error(theirs, q):.1e}; ours {error(ours, q):.1e}"


def case(q, rows, repeats):
    """Both ways for q outputs."""
    return Case(
        f"{q} outputs, {rows} rows",
        lambda: inputs(q, rows),
        {"assay": by_latent_ball, f"grid {SIDE}^{q}": by_grid},
        repeats=repeats,
        agree=lambda ours, theirs: agree(ours, theirs, q),
        tiny=lambda: (region(q, 1), 16, 8),
    )


CASES = [case(2, 20, 5), case(3, 1, 1)]


if __name__ == "__main__":
    sys.exit(runner.main(CASES, "flow_regions"))
