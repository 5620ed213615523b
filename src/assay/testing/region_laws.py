"""The region contract for several outputs, through the model and from bare predictions, and its checks."""

from __future__ import annotations

import inspect
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.testing.laws import require
from assay.testing.subject import N_TRAIN, Contract, Subject, require_close

_ROUNDING = 1e-9
#: points of the plane, in units of the outputs, at which a region's answer is read
_PROBES = 24
_TARGETS = np.array([3.0, 1.5])


class Regions(Contract):
    """``fit``, perhaps ``calibrate``, ``predict_region(X, alpha=None) -> Region``; two outputs."""

    task = "region"
    predict = "predict_region"

    def applies(self, subject: Subject) -> bool:
        return subject.has("fit", self.predict) and not subject.has("update")

    def rows(self, n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
        rng = np.random.default_rng(seed)
        X = np.round(rng.normal(size=(n, 3)) * 64) / 64
        noise = rng.normal(size=(n, 2)) @ np.array([[1.0, 0.6], [0.0, 0.5]])
        noise *= (0.5 + np.abs(X[:, 2]))[:, None]
        Y = np.column_stack([2 * X[:, 0] - X[:, 1], X[:, 1] + 0.5 * X[:, 0]]) + noise
        return X, np.round(Y * 1024) / 1024

    def learn(self, method: Any, X: Any, y: Any) -> None:
        verb = getattr(method, self.calibrate)
        fresh = not any(name.endswith("_") for name in vars(method))
        if fresh and "X_shape" in inspect.signature(verb).parameters:
            # a model trained elsewhere: further rows give the region its shape
            rows = self.rows(N_TRAIN, seed=8)
            verb(X, y, X_shape=rows[0], y_shape=rows[1])
        else:
            verb(X, y)

    def region(self, method: Any, X: Any, alpha: Any = None) -> Any:
        """The method's own answer: a region, or a list of them."""
        verb = getattr(method, self.predict)
        return verb(X) if alpha is None else verb(X, alpha=alpha)

    def ask(self, method: Any, X: Any, alpha: Any = None) -> NDArray[Any]:
        """(n, c) or (L, n, c): log-volume of each row's region, and what it says of the same points."""
        answer = self.region(method, X, alpha)
        if isinstance(answer, (list, tuple)):
            return np.stack([self.described(region) for region in answer])
        return self.described(answer)

    def described(self, region: Any) -> NDArray[Any]:
        """(n, 1 + probes) numbers that tell regions apart; log-volume +inf where unbounded."""
        n = len(region)
        inside = np.empty((n, _PROBES))
        for j, point in enumerate(self.probes()):
            inside[:, j] = region.contains(np.tile(point, (n, 1)))
        with np.errstate(divide="ignore"):
            log_volume = np.log(np.asarray(region.volume(), dtype=np.float64))
        require(log_volume.shape == (n,), f"volume() of {n} regions has shape {log_volume.shape}")
        require(not np.isnan(log_volume).any(), f"{int(np.isnan(log_volume).sum())} of {n} volumes are NaN")
        # an empty region has log-volume -inf, which no other answer can be mistaken for
        return np.column_stack([log_volume, inside])

    def probes(self) -> NDArray[Any]:
        """Points at irrational places, lest one lies on a border."""
        return np.asarray(np.random.default_rng(77).normal(size=(_PROBES, 2)) * _TARGETS)

    def covers(self, method: Any, X: Any, y: Any) -> NDArray[np.bool_]:
        """Whether y, or a point a rounding away from it, lies in its region."""
        region = self.region(method, X)
        inside = np.zeros(len(y), dtype=bool)
        for step in product((0.0, -1.0, 1.0), repeat=y.shape[1]):
            inside |= np.asarray(region.contains(y + _ROUNDING * np.array(step) * (1 + np.abs(y))))
        return inside

    def unbounded(self, answer: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((answer[..., 0] == np.inf) & (answer[..., 1:] == 1).all(axis=-1))

    def require_same(self, got: Any, expected: Any, what: str) -> None:
        require_close(got, expected, what)


class BareRegions(Regions):
    """``calibrate_pred(y_pred, y)`` and ``predict_region_pred(y_pred)``, q predictions a row."""

    form = "bare"
    calibrate = "calibrate_pred"
    predict = "predict_region_pred"

    def applies(self, subject: Subject) -> bool:
        return subject.has(self.calibrate, self.predict)

    def rows(self, n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
        X, Y = super().rows(n, seed)
        return np.column_stack([2 * X[:, 0] - X[:, 1], X[:, 1] + 0.5 * X[:, 0]]), Y

    def learn(self, method: Any, X: Any, y: Any) -> None:
        verb = getattr(method, self.calibrate)
        if "residuals" in inspect.signature(verb).parameters:
            prediction, target = self.rows(N_TRAIN, seed=0)
            verb(X, y, residuals=target - prediction)
        else:
            verb(X, y)


CONTRACTS = (Regions(), BareRegions())
