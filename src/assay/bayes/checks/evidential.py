"""The evidential head on the ratings of MovieLens-100K, which come in the package recbole."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import spearmanr
from threadpoolctl import threadpool_limits

from assay.core.checks import FloatArray
from assay.core.errors import MissingDependency
from assay.core.models import import_torch
from assay.core.seeds import derive_seed

Measured = Mapping[str, Mapping[str, float]]

_LEVELS, _FACTORS, _HIDDEN = 5, 32, 64
_EPOCHS, _BATCH, _RATE = 4, 2048, 1e-2
_TRAINED = 0.7


def ratings(seed: int) -> Measured:
    """The numbers of users and items start as torch's embeddings do, normal with sd 1.

    Many users of the test rows have no training rating at all and keep the numbers they started with, so that
    the size of these matters. See :func:`measure`.
    """
    return measure(seed, 1.0)


def ratings_small_start(seed: int) -> Measured:
    """The same with a start of sd 0.1."""
    return measure(seed, 0.1)


def measure(seed: int, start: float) -> Measured:
    """The first 70 % of the ratings by time train, the others test; seeds are new networks.

    32 numbers for each user and item, a network 64 - 64 - 5, four epochs. ``rmse`` of the expected level, of
    "evidential" and of the "constant" mean rating; ``correlation`` (Spearman) of the vacuity with the number
    of training ratings of the "item" and of the "user"; ``absolute_error`` in the halves of "high-vacuity"
    and "low-vacuity".
    """
    torch = import_torch("the evidential head")
    from assay.networks.evidential import EvidentialHead, evidential_loss, kl_weight

    users, items, levels = _read()
    n = round(_TRAINED * len(levels))
    with threadpool_limits(1), torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(derive_seed("evidential ratings", seed))
        nn = torch.nn
        tables = nn.ModuleList([nn.Embedding(int(codes.max()) + 1, _FACTORS) for codes in (users, items)])
        for table in tables:
            nn.init.normal_(table.weight, std=start)
        body = nn.Sequential(
            nn.Linear(2 * _FACTORS, _HIDDEN), nn.ReLU(), nn.Linear(_HIDDEN, _HIDDEN), nn.ReLU()
        )
        head = EvidentialHead(_HIDDEN, _LEVELS)
        steps = torch.optim.Adam(nn.ModuleList([tables, body, head]).parameters(), lr=_RATE)
        pairs = torch.as_tensor(np.stack([users, items], axis=1))
        labels = torch.as_tensor(levels - 1)

        def features(rows: Any) -> Any:
            columns = pairs[rows]
            return body(torch.cat([table(columns[:, i]) for i, table in enumerate(tables)], dim=1))

        for epoch in range(_EPOCHS):
            for rows in torch.split(torch.randperm(n), _BATCH):
                loss: Any = evidential_loss(
                    head(features(rows)), labels[rows], weight=kl_weight(epoch)
                ).mean()
                steps.zero_grad(set_to_none=True)
                loss.backward()
                steps.step()
        with torch.no_grad():
            last = features(slice(n, None))
            expected, vacuity = (
                head.expected_level(last).double().numpy(),
                head.vacuity(last).double().numpy(),
            )
    error, truth = np.abs(expected - levels[n:]), levels[n:]
    seen = {"user": np.bincount(users[:n], minlength=users.max() + 1)[users[n:]]}
    seen["item"] = np.bincount(items[:n], minlength=items.max() + 1)[items[n:]]
    high = vacuity > np.median(vacuity)
    return {
        "rmse": {
            "evidential": float(np.sqrt((error**2).mean())),
            "constant": float(np.sqrt(((truth - levels[:n].mean()) ** 2).mean())),
        },
        "correlation": {name: _spearman(vacuity, counts) for name, counts in seen.items()},
        "absolute_error": {
            "high-vacuity": float(error[high].mean()),
            "low-vacuity": float(error[~high].mean()),
        },
    }


def _spearman(first: FloatArray, second: NDArray[np.intp]) -> float:
    return float(spearmanr(first, second).statistic)


def _read() -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Codes of users and items, and ratings 1 .. 5, in the order of time."""
    spec = importlib.util.find_spec("recbole")
    where = "dataset_example/ml-100k/ml-100k.inter"
    if spec is None or spec.origin is None or not (path := Path(spec.origin).parent / where).exists():
        raise MissingDependency("MovieLens-100K comes with recbole: pip install --no-deps recbole==1.2.1")
    table = pd.read_csv(path, sep="\t", header=0, names=["user", "item", "rating", "time"])
    table = table.sort_values("time", kind="stable")
    return (
        pd.factorize(table["user"])[0],
        pd.factorize(table["item"])[0],
        table["rating"].to_numpy(dtype=np.intp),
    )
