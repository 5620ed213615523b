"""SUQ beside the plain forward pass, beside sampled passes, and beside the code published with the paper.

Ratios refer to the plain pass: the cost of uncertainty. One thread, 256 rows, diagonal posterior.
"""

import sys
from functools import lru_cache

import numpy as np
import runner
from runner import Case, Unavailable

BATCH = 256
SAMPLES = 200


def _torch():
    try:
        import torch
    except ImportError:
        raise Unavailable("torch is not installed") from None
    torch.set_num_threads(1)
    return torch


def _inputs(net, rows):
    """(module, streamlined model, posterior, rows); variances as small as after training."""
    torch = _torch()
    from assay.bayes.posterior import GaussianPosterior
    from assay.bayes.streamlined import streamline

    net.eval()
    generator = torch.Generator().manual_seed(1)
    posterior = GaussianPosterior(
        {name: 0.01 * torch.rand(p.shape, generator=generator) for name, p in net.named_parameters()}
    )
    return net, streamline(net, posterior), posterior, rows


def mlp(n=BATCH):
    """The network of the paper for small images."""
    torch = _torch()
    nn = torch.nn
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)
    )  # fmt: skip
    return _inputs(net, torch.rand(n, 784))


def wide_mlp(n=BATCH):
    """A wider one."""
    torch = _torch()
    nn = torch.nn
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(784, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 10)
    )  # fmt: skip
    return _inputs(net, torch.rand(n, 784))


def vit(n=BATCH):
    """A vision transformer for 32 x 32 colour images: 65 places, width 128, 4 blocks of 4 heads."""
    torch = _torch()
    from assay.bayes.transformer import VisionTransformer

    torch.manual_seed(0)
    net = VisionTransformer(32, 4, 10, channels=3, width=128, depth=4, heads=4)
    return _inputs(net, torch.rand(n, 3, 32, 32))


def plain(data):
    """One forward pass."""
    net, _, _, x = data
    with _torch().no_grad():
        return net(x).numpy()


def suq(data):
    """Mean and variance of the outputs."""
    mean, variance = data[1].forward_latent(data[3])
    return mean.numpy(), variance.numpy()


def sampled(data):
    """Mean and variance over sampled passes."""
    from assay.bayes.latent import sampled_outputs

    net, _, posterior, x = data
    first = second = 0.0
    for out in sampled_outputs(net, posterior, x, SAMPLES, 0):
        first, second = first + out, second + out**2
    mean = first / SAMPLES
    return mean, second / SAMPLES - mean**2


@lru_cache(maxsize=1)
def _published(net, streamlined):
    """The model of the package suq of PyPI: made once, as ours is, which takes it seconds."""
    try:
        from suq import streamline_mlp
    except ImportError as error:
        raise Unavailable(f"package suq: {error}") from None
    variances = streamlined.posterior.variances
    flat = _torch().cat([variances[name].reshape(-1) for name, _ in net.named_parameters()])
    return streamline_mlp(net, flat, "diag", "classification")


def published(data):
    """The package suq of PyPI on the same module and posterior."""
    mean, variance = _published(data[0], data[1]).forward_latent(data[3])
    return mean.detach().numpy(), variance.detach().numpy()


def agree(reference, other):
    """Where the answer is (mean, variance): how far the mean is from the plain output."""
    mean = other[0] if isinstance(other, tuple) else other
    return f"means differ by {np.abs(mean - reference).max():.0e}"


def _few(make):
    def tiny():
        return make(2)

    return tiny


def _case(name, make, contenders, repeats):
    return Case(name, make, contenders, repeats=repeats, agree=agree, tiny=_few(make))


BOTH = {"plain pass": plain, "assay, SUQ": suq}
CASES = [
    _case(
        f"MLP 784-128-64-10, {BATCH} rows",
        mlp,
        {**BOTH, f"assay, {SAMPLES} samples": sampled, "suq 0.1.0": published},
        31,
    ),
    _case(f"MLP 784-1024-1024-10, GELU, {BATCH} rows", wide_mlp, BOTH, 15),
    _case(f"ViT, 65 places, width 128, {BATCH} images", vit, BOTH, 5),
]

if __name__ == "__main__":
    sys.exit(runner.main(CASES, "streamline"))
