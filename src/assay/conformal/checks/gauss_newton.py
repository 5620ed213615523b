"""ACP-GN on the paper's splits: nine tenths of the rows, or a fold of ten, and split conformal beside it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.compose import TransformedTargetRegressor

from assay.conformal.cqr_network import ConformalizedQuantileNetwork
from assay.conformal.gauss_newton import GaussNewtonConformal
from assay.conformal.gauss_newton_split import GaussNewtonSplitConformal
from assay.conformal.laplace import LinearizedLaplaceRegressor
from assay.conformal.network_regressor import NetworkRegressor
from assay.conformal.normalized import NormalizedConformalRegressor
from assay.conformal.split import SplitConformalRegressor
from assay.core.checks import FloatArray
from assay.core.errors import AssayWarning
from assay.core.overlap import draws_own_splits
from assay.core.seeds import derive_seed

_LEVELS = (0.1, 0.05, 0.01)
_TEST = 0.1
_FOLDS = 10
# the training of the reproduction: full-batch Adam; and the same network brought to its optimum
_ADAM = NetworkRegressor((50,), epochs=800, polish=0)
_SETTLED = NetworkRegressor((50,))
# the paper's choice on small tables: a prior precision for each layer, by the evidence
_BY_EVIDENCE = NetworkRegressor((50,), epochs=800, polish=0, reg="marglik")

Measured = Mapping[str, Mapping[str, float]]


@draws_own_splits(_TEST / (1 - _TEST))
def nine_tenths(seed: int, split: Any) -> Measured:
    """All methods on 90 % of the rows, tested on the other 10 %; networks trained by Adam alone.

    Metrics, all in the units of the target: ``width`` and ``coverage`` at 90 %, ``width_95`` and
    ``coverage_95``, ``width_99`` and ``coverage_99``; ``width_ratio`` is the mean width at 90 % divided
    by that of split conformal prediction with half of the rows.
    """
    return _one_split(seed, split, _ADAM)


@draws_own_splits(_TEST / (1 - _TEST))
def nine_tenths_settled(seed: int, split: Any) -> Measured:
    """:func:`nine_tenths` with networks brought to the optimum of their loss by L-BFGS."""
    return _one_split(seed, split, _SETTLED)


@draws_own_splits(1 / (_FOLDS - 1), _FOLDS)
def ten_folds(seed: int, split: Any) -> Measured:
    """:func:`nine_tenths` averaged over the ten folds of one shuffle of the rows.

    Networks trained by Adam alone, as in the paper, their penalties by the Laplace evidence. Two more
    methods: ``cqr-network``, and ``normalized`` with a second network for the log of the residual's size,
    ``|r| / (exp(g(x)) + 1)``; g learns from rows set aside, not from training residuals as in the paper.
    """
    X, y = _all_rows(split)
    order = np.random.default_rng(derive_seed("acp-gn folds", seed)).permutation(len(y))
    folds = np.array_split(order, _FOLDS)
    measured = [
        _measure(X, y, np.setdiff1d(order, test), test, derive_seed(seed, fold), _BY_EVIDENCE, _adaptive)
        for fold, test in enumerate(folds)
    ]
    return _derived(
        {
            metric: {name: float(np.mean([m[metric][name] for m in measured])) for name in by_method}
            for metric, by_method in measured[0].items()
        }
    )


def _one_split(seed: int, split: Any, network: NetworkRegressor) -> Measured:
    X, y = _all_rows(split)
    order = np.random.default_rng(derive_seed("acp-gn rows", seed)).permutation(len(y))
    held = round(_TEST * len(y))
    return _derived(_measure(X, y, order[held:], order[:held], seed, network))


def _all_rows(split: Any) -> tuple[FloatArray, FloatArray]:
    """The whole table in one order for all seeds, so that each seed draws its own nine tenths."""
    X = np.concatenate([split.X_train, split.X_calib, split.X_test])
    y = np.concatenate([split.y_train, split.y_calib, split.y_test])
    order = np.lexsort((*X.T, y))
    return X[order], y[order]


def _measure(
    X: FloatArray,
    y: FloatArray,
    train: NDArray[np.intp],
    test: NDArray[np.intp],
    seed: int,
    network: NetworkRegressor,
    more: Callable[[NetworkRegressor, int], dict[str, Any]] | None = None,
) -> dict[str, dict[str, float]]:
    of_split = NetworkRegressor(**{**network.get_params(), "random_state": seed})
    methods: dict[str, Any] = {
        "acp-gn": GaussNewtonConformal(network, network.reg, random_state=seed),
        "split": SplitConformalRegressor(of_split, random_state=seed),
        "scp-gn": GaussNewtonSplitConformal(network, network.reg, random_state=seed),
        "laplace": LinearizedLaplaceRegressor(network, network.reg, random_state=seed),
    }
    if more is not None:
        methods |= more(of_split, seed)
    out: dict[str, dict[str, float]] = {}
    for name, method in methods.items():
        with warnings.catch_warnings():
            # how far from the optimum a training stops is part of what is measured
            warnings.simplefilter("ignore", AssayWarning)
            method.fit(X[train], y[train])
            ends = method.predict_interval(X[test], alpha=_LEVELS)
        for level, (lower, upper) in zip(_LEVELS, np.moveaxis(ends, 2, 1), strict=True):
            suffix = "" if level == 0.1 else f"_{round(100 * (1 - level))}"
            covered = (lower <= y[test]) & (y[test] <= upper)
            out.setdefault(f"width{suffix}", {})[name] = float((upper - lower).mean())
            out.setdefault(f"coverage{suffix}", {})[name] = float(covered.mean())
    return out


def _adaptive(network: NetworkRegressor, seed: int) -> dict[str, Any]:
    """Methods whose width follows a model of the noise."""
    of_size = TransformedTargetRegressor(
        NetworkRegressor((50,), reg="cv", polish=0, random_state=seed), func=_log, inverse_func=np.exp
    )
    return {
        "cqr-network": ConformalizedQuantileNetwork(alpha=_LEVELS, random_state=seed),
        "normalized": NormalizedConformalRegressor(network, of_size, beta=1.0, random_state=seed),
    }


def _log(size: FloatArray) -> FloatArray:
    return np.asarray(np.log(np.maximum(size, 1e-9)))


def _derived(measured: dict[str, dict[str, float]]) -> Measured:
    out = dict(measured)
    out["width_ratio"] = {
        name: value / measured["width"]["split"] for name, value in measured["width"].items()
    }
    return out
