"""SUQ for a sequence model: a small transformer for the characters of WikiText-2, trained here."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import logsumexp
from threadpoolctl import threadpool_limits

from assay.bayes.curvature import diag_ggn, split_weights
from assay.bayes.latent import latent_nlpd, sampled_outputs
from assay.bayes.posterior import GaussianPosterior, posterior_of
from assay.bayes.streamlined import streamline
from assay.bayes.transformer import CausalTransformer
from assay.core.checks import FloatArray
from assay.core.errors import MissingDependency
from assay.core.models import import_torch
from assay.core.seeds import derive_seed

torch = import_torch("the checks of SUQ")

_PLACES, _KINDS = 64, 64
_STEPS, _BATCH = 800, 32
_CURVATURE, _HELD, _TEST = 512, 64, 128
_DRAWS, _TANGENTS = 100, 50
_PRECISIONS = (1e2, 1e3, 1e4, 1e5)
_WIDE = 1e3

Measured = Mapping[str, Mapping[str, float]]


def wikitext(seed: int, data: Any = None) -> Measured:
    """A transformer of two blocks of width 64 on characters: 64 kinds, 64 places, 800 steps of Adam.

    Random are the value matrices, the feed-forward layers and the head; the curvature is the Gauss-Newton
    diagonal by 4 random signs a sequence, times the sequences in the training text over those looked at.
    The prior precision is that of four with the smallest sampled NLPD (20 draws) on 64 held-out sequences.

    Metrics: ``nlpd`` in nats a character on 128 sequences of the test text, for ``map-network``, ``suq``,
    ``suq-scaled`` (on the held-out sequences), ``mc-laplace-100`` and ``glm-laplace`` (variances of 50
    random tangents); ``perplexity``, its exponential; ``gap`` of ``suq`` from the sampled one;
    ``nlpd_1000`` at prior precision 1,000.
    """
    train, test = _texts(data)
    rng = np.random.default_rng(derive_seed("suq text", seed))
    held_from = int(0.95 * len(train))
    with threadpool_limits(1):
        net = _trained(train[:held_from], seed)
        looked_at = _sequences(train[:held_from], _CURVATURE, rng)
        held, judged = (_sequences(part, n, rng) for part, n in ((train[held_from:], _HELD), (test, _TEST)))
        curvature = diag_ggn(net, looked_at[:, :-1], params=_random, sketches=4, random_state=seed)
        times = held_from / (_PLACES * _CURVATURE)
        for values in curvature.diagonal.values():
            values *= times
        losses = [_sampled(net, posterior_of(curvature, t), held, 20, seed) for t in _PRECISIONS]
        posterior = posterior_of(curvature, _PRECISIONS[int(np.argmin(losses))])
        model = streamline(net, posterior)
        tokens, codes = judged[:, :-1], judged[:, 1:]
        mean, _ = model.latent(tokens)
        nlpd = {
            "map-network": _of(mean, np.zeros_like(mean), codes),
            "suq": model.nlpd(tokens, codes),
            "mc-laplace-100": _sampled(net, posterior, judged, _DRAWS, seed),
            "glm-laplace": _of(mean, _tangent_variance(net, posterior, tokens, seed), codes),
        }
        wide = posterior_of(curvature, _WIDE)
        wider = {
            "suq": streamline(net, wide).nlpd(tokens, codes),
            "mc-laplace-100": _sampled(net, wide, judged, _DRAWS, seed),
        }
        nlpd["suq-scaled"] = model.fit_scale(held[:, :-1], held[:, 1:]).nlpd(tokens, codes)
    return {
        "nlpd": nlpd,
        "perplexity": {name: float(np.exp(value)) for name, value in nlpd.items()},
        "nlpd_1000": wider,
        "gap": {"suq": abs(nlpd["suq"] - nlpd["mc-laplace-100"])},
        "prior_precision": {"suq": float(posterior.prior_precision or np.nan)},
        "scale": {"suq": model.scale_},
    }


def _random(name: str, parameter: Any) -> bool:
    return "value" in name or "feed_forward" in name or name.startswith("4.")


def _texts(data: Any) -> tuple[Any, Any]:
    """Codes of the characters of the validation text, which trains here, and of the test text."""
    folder = Path(data or os.environ.get("ASSAY_DATA", "../shared/data")) / "wikitext-2"
    texts = []
    for name in ("valid.txt.gz", "test.txt.gz"):
        if not (folder / name).exists():
            raise MissingDependency(f"{folder / name} is not there; name the folder of data in ASSAY_DATA")
        with gzip.open(folder / name, "rt", encoding="utf-8") as handle:
            texts.append(handle.read())
    # the commonest kinds; all others are one more
    kinds = [kind for kind, _ in Counter(texts[0]).most_common(_KINDS - 1)]
    code = {kind: i for i, kind in enumerate(kinds)}
    train, test = (torch.tensor([code.get(character, _KINDS - 1) for character in text]) for text in texts)
    return train, test


def _sequences(codes: Any, n: int, rng: np.random.Generator) -> Any:
    """(n, places + 1) pieces of a text from places drawn at random."""
    starts = torch.as_tensor(rng.integers(0, len(codes) - _PLACES - 1, n))
    return codes[starts[:, None] + torch.arange(_PLACES + 1)]


def _trained(codes: Any, seed: int) -> Any:
    rng = np.random.default_rng(derive_seed("suq text batches", seed))
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.random.default_generator.manual_seed(derive_seed("suq text start", seed))
        net = CausalTransformer(_KINDS, _PLACES)
        steps = torch.optim.Adam(net.parameters(), lr=2e-3)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(steps, _STEPS)
        for _ in range(_STEPS):
            batch = _sequences(codes, _BATCH, rng)
            steps.zero_grad(set_to_none=True)
            logits = net(batch[:, :-1])
            torch.nn.functional.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten()).backward()
            steps.step()
            schedule.step()
    return net.eval()


def _of(mean: FloatArray, variance: FloatArray, codes: Any) -> float:
    flat = (mean.reshape(-1, _KINDS), variance.reshape(-1, _KINDS))
    return latent_nlpd(*flat, codes.numpy(), "classification")


def _sampled(net: Any, posterior: GaussianPosterior, pieces: Any, draws: int, seed: int) -> float:
    """Minus the mean log of the mean probability over drawn networks."""
    codes = pieces[:, 1:].numpy()[..., None]

    def logs() -> Iterator[FloatArray]:
        for f in sampled_outputs(net, posterior, pieces[:, :-1], draws, seed):
            yield np.take_along_axis(f, codes, -1)[..., 0] - logsumexp(f, axis=-1)

    return float(-(logsumexp(np.stack(list(logs())), axis=0) - np.log(draws)).mean())


def _tangent_variance(net: Any, posterior: GaussianPosterior, tokens: Any, seed: int) -> FloatArray:
    """Diagonal of J S J' from random tangents: mean square of J d with d drawn from N(0, S)."""
    chosen, rest = split_weights(net, posterior.names)
    generator = torch.Generator().manual_seed(derive_seed("suq text tangents", seed))
    total: Any = 0.0
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH), torch.no_grad():
        for _ in range(_TANGENTS):
            drawn = posterior.sample(net, generator)
            tangent = {name: drawn[name] - chosen[name] for name in chosen}
            _, out = torch.func.jvp(
                lambda w: torch.func.functional_call(net, {**w, **rest}, (tokens,)), (chosen,), (tangent,)
            )
            total = total + out.double().square()
    return np.asarray((total / _TANGENTS).numpy())
