"""SUQ beside sampling and the linearised predictive of the same posterior: digits, and tables of numbers."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from assay.bayes.curvature import diag_ggn
from assay.bayes.latent import glm_variance, latent_nlpd, sampled_outputs
from assay.bayes.posterior import GaussianPosterior, posterior_of
from assay.bayes.streamlined import streamline
from assay.core.checks import FloatArray
from assay.core.distributions import MixtureDistribution
from assay.core.models import import_torch
from assay.core.overlap import draws_own_splits
from assay.core.probabilities import softmax
from assay.core.seeds import derive_seed
from assay.networks.mlp import build_mlp
from assay.networks.predictive import WEIGHT_DECAY, train_predictive_network
from assay.networks.training import Training, minimise

torch = import_torch("the checks of SUQ")

_TRAIN = _VALIDATION = _TEST = 300
_SAMPLES = 200
_PRECISIONS = (100.0, 10.0, 1.0)
_TIMINGS = 5
#: 200 epochs at 1e-2 bring a network of 32 units to zero training errors: the mode that Laplace assumes
_SETTLED = Training(200, 64, 1e-2, None, 0.1)

Measured = Mapping[str, Mapping[str, float]]


@draws_own_splits(_TEST / _TRAIN)
def digits_settled(seed: int) -> Measured:
    """An MLP of 32 hidden units trained on 300 digits to the end, pixels in 0 .. 1, diagonal Gauss-Newton.

    Metrics at prior precisions 100, 10 and 1 (suffix ``_100`` ...): ``nlpd`` of ``map-network``, ``suq``
    without a scale, ``suq-scaled`` with one fitted on 300 other rows, ``glm-laplace`` and
    ``mc-laplace-200``; ``gap`` of ``suq`` is the absolute difference of its NLPD from the sampled one's;
    ``accuracy``; ``gain`` is what the scale takes off the NLPD, ``scale`` itself.
    """
    return _digits(seed, _trained_to_the_end)


@draws_own_splits(_TEST / _TRAIN)
def digits_early(seed: int) -> Measured:
    """:func:`digits_settled` with two hidden layers of 64 and 32, stopped early (the house network)."""
    return _digits(seed, _trained_as_the_house_does)


def _trained_to_the_end(X: FloatArray, y: NDArray[Any], seed: int) -> tuple[Any, FloatArray, FloatArray]:
    """(module, mean, scale of its inputs)."""
    generator = torch.Generator().manual_seed(derive_seed("suq digits batches", seed))
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        torch.random.default_generator.manual_seed(derive_seed("suq digits start", seed))
        module = build_mlp(X.shape[1], 10, (32,))
        x, codes = torch.as_tensor((X / 16).astype(np.float32)), torch.as_tensor(y)
        weights = list(module.parameters())
        minimise(
            torch,
            weights,
            lambda rows, _: torch.nn.functional.cross_entropy(module(x[rows]), codes[rows]),
            len(x),
            torch.optim.Adam(weights, lr=_SETTLED.learning_rate, weight_decay=WEIGHT_DECAY),
            _SETTLED,
            generator,
        )
    return module.eval(), np.zeros(X.shape[1]), np.full(X.shape[1], 16.0)


def _trained_as_the_house_does(
    X: FloatArray, y: NDArray[Any], seed: int
) -> tuple[Any, FloatArray, FloatArray]:
    """(module, mean, scale of its inputs)."""
    net = train_predictive_network(X, y, "classification", random_state=seed)
    return net.module, net.x_mean, net.x_scale


def _digits(seed: int, train_on: Callable[..., tuple[Any, FloatArray, FloatArray]]) -> Measured:
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(derive_seed("suq digits", seed)).permutation(len(y))
    train, held, rest = order[:_TRAIN], order[_TRAIN : _TRAIN + _VALIDATION], order[_TRAIN + _VALIDATION :]
    test = rest[:_TEST]
    module, mean, scale = train_on(X[train], y[train], seed)
    inputs = torch.as_tensor(((X - mean) / scale).astype(np.float32))
    curvature = diag_ggn(copy.deepcopy(module).double(), inputs[train].double())
    x, codes = inputs[test], y[test]
    out: dict[str, dict[str, float]] = {}
    with torch.no_grad():
        logits = module(x).numpy().astype(np.float64)
    plain = latent_nlpd(logits, np.zeros_like(logits), codes, "classification")
    with threadpool_limits(1):
        for t in _PRECISIONS:
            posterior, name = posterior_of(curvature, t), f"{t:g}"
            model = streamline(module, posterior)
            suq = model.nlpd(x, codes)
            proba = np.mean(
                [softmax(f) for f in sampled_outputs(module, posterior, x, _SAMPLES, seed)], axis=0
            )
            sampled = float(-np.log(np.maximum(proba[np.arange(_TEST), codes], 1e-300)).mean())
            linear = glm_variance(module, posterior, x)
            out[f"nlpd_{name}"] = {
                "map-network": plain,
                "suq": suq,
                "glm-laplace": latent_nlpd(logits, linear, codes, "classification"),
                "mc-laplace-200": sampled,
            }
            out[f"gap_{name}"] = {"suq": abs(suq - sampled)}
            out[f"accuracy_{name}"] = {
                "map-network": float((logits.argmax(1) == codes).mean()),
                "suq": float((model.predict(x) == codes).mean()),
                "mc-laplace-200": float((proba.argmax(1) == codes).mean()),
            }
            scaled = model.fit_scale(inputs[held], y[held]).nlpd(x, codes)
            out[f"nlpd_{name}"]["suq-scaled"] = scaled
            out[f"gain_{name}"] = {"suq": suq - scaled}
            out[f"scale_{name}"] = {"suq": model.scale_}
    return out


def digits_speed(seed: int) -> Measured:
    """The network of :func:`digits_settled` on all 1,197 rows that neither train nor validate, one thread.

    ``speed`` is the time of 200 plain passes to probabilities, divided by that of one of SUQ: the least that
    200 samples take, as no weights are drawn.
    """
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(derive_seed("suq digits", seed)).permutation(len(y))
    train, rest = order[:_TRAIN], order[_TRAIN + _VALIDATION :]
    with threadpool_limits(1):
        module, _, scale = _trained_to_the_end(X[train], y[train], seed)
        inputs = torch.as_tensor((X / scale).astype(np.float32))
        model = streamline(module, GaussianPosterior.from_diag_ggn(module, inputs[train], 100.0))
        x = inputs[rest]

        def plain() -> None:
            with torch.no_grad():
                for _ in range(_SAMPLES):
                    module(x).softmax(-1)

        return {"speed": {"suq": _quickest(plain) / _quickest(lambda: model.predict_proba(x))}}


def _quickest(run: Callable[[], Any]) -> float:
    run()
    seconds = []
    for _ in range(_TIMINGS):
        start = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def fifty_units(seed: int, split: Any) -> Measured:
    """A network of 50 hidden units for numbers, prior precision by the evidence, diagonal Gauss-Newton.

    Metrics: ``nlpd`` in the units of the target for ``map-network``, ``suq`` (no scale), ``suq-scaled``
    (scale fitted on the network's validation rows), ``glm-laplace`` and ``mc-laplace-500``; ``gap`` of
    ``suq`` is the absolute difference of its NLPD from the sampled one's; ``rmse`` of ``suq``.
    """
    X, y, X_test = split.X_train, split.y_train, split.X_test
    net = train_predictive_network(X, y, "regression", lambda d, k: build_mlp(d, k, (50,)), seed)
    rows, noise = net.inputs(X[net.training_rows]).double(), net.noise_std_z
    curvature = diag_ggn(copy.deepcopy(net.module).double(), rows, "regression", noise_std=noise)
    posterior = posterior_of(curvature, "marglik")
    x, target = net.inputs(X_test), net.targets(split.y_test).numpy()
    mean = net.outputs(X_test)
    with threadpool_limits(1):
        model = streamline(net.module, posterior, "diag", "regression", noise)
        nlpd = {"map-network": latent_nlpd(mean, np.zeros_like(mean), target, "regression", noise)}
        nlpd["suq"] = model.nlpd(x, target)
        linear = glm_variance(net.module, posterior, x)
        nlpd["glm-laplace"] = latent_nlpd(mean, linear, target, "regression", noise)
        drawn = np.stack([z[:, 0] for z in sampled_outputs(net.module, posterior, x, 500, seed)])
        nlpd["mc-laplace-500"] = -float(MixtureDistribution(drawn, noise**2).log_prob(target[:, 0]).mean())
        if len(net.validation_rows):
            held = net.validation_rows
            nlpd["suq-scaled"] = model.fit_scale(net.inputs(X[held]), net.targets(y[held])).nlpd(x, target)
    error = (mean - target) * net.y_scale
    # a density of the standardised target is y_scale times that of the target
    return {
        "nlpd": {name: value + float(np.log(net.y_scale)) for name, value in nlpd.items()},
        "gap": {"suq": abs(nlpd["suq"] - nlpd["mc-laplace-500"])},
        "rmse": {"suq": float(np.sqrt(np.mean(error**2)))},
    }
