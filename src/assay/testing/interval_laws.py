"""The interval contract, from a model and from bare predictions, and the checks of its own."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from assay.testing.common_laws import refused_with
from assay.testing.laws import LawBroken, NotApplicable, law, require
from assay.testing.subject import N_CALIB, N_TRAIN, Contract, Subject, require_close

# an end of an interval is f(x) + (y - f(x)), which is y up to a rounding or two
_ROUNDING = 1e-9


class Intervals(Contract):
    """``fit``, perhaps ``calibrate``, ``predict_interval``."""

    task = "interval"
    predict = "predict_interval"

    def applies(self, subject: Subject) -> bool:
        return subject.has("fit", self.predict) and not subject.has("update")

    def rows(self, n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
        rng = np.random.default_rng(seed)
        X = np.round(rng.normal(size=(n, 3)) * 64) / 64
        noise = (0.5 + np.abs(X[:, 2])) * rng.normal(size=n)
        return X, np.round((2 * X[:, 0] - X[:, 1] + noise) * 1024) / 1024

    def covers(self, method: Any, X: Any, y: Any) -> NDArray[np.bool_]:
        if self.form == "" and hasattr(method, "predict_set"):
            # the interval is only the hull of what is calibrated
            return np.asarray(method.predict_set(X).contains(y), dtype=bool)
        ends = self.ask(method, X)
        slack = _ROUNDING * (1 + np.abs(y))
        return np.asarray((ends[:, 0] - slack <= y) & (y <= ends[:, 1] + slack))

    def unbounded(self, answer: NDArray[Any]) -> NDArray[np.bool_]:
        return np.asarray((answer[..., 0] == -np.inf) & (answer[..., 1] == np.inf))

    def require_same(self, got: Any, expected: Any, what: str) -> None:
        require_close(got, expected, what)


class BareIntervals(Intervals):
    """``calibrate_pred(y_pred, y)`` and ``predict_interval_pred(y_pred)``, one prediction a row."""

    form = "bare"
    calibrate = "calibrate_pred"
    predict = "predict_interval_pred"

    def applies(self, subject: Subject) -> bool:
        return subject.has(self.calibrate, self.predict) and self._takes_its_rows(subject)

    def _takes_its_rows(self, subject: Subject) -> bool:
        """Whether predictions of this form are taken: one argument means many things."""
        X, y = self.rows(5, seed=0)
        method = subject.make(alpha=0.5)
        try:
            self.learn(method, X, y)
            self.ask(method, X)
        except (TypeError, ValueError):
            return False
        return True

    def rows(self, n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
        X, y = super().rows(n, seed)
        return 2 * X[:, 0] - X[:, 1], y

    def moved(self, X: NDArray[Any], by: float) -> NDArray[Any]:
        """The predictions of targets that are larger by a constant."""
        return X + by


class BareQuantiles(BareIntervals):
    """As before with (n, 2) predictions: a lower and an upper quantile of each row."""

    form = "bare-quantiles"

    def rows(self, n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
        X, y = Intervals.rows(self, n, seed)
        centre, spread = 2 * X[:, 0] - X[:, 1], 0.5 + np.abs(X[:, 2])
        return np.column_stack([centre - spread, centre + spread]), y


class BareScaled(BareIntervals):
    """``calibrate_pred(y_pred, y, scale)`` and ``predict_interval_pred(y_pred, scale)``, as columns of X."""

    form = "bare-scaled"

    def rows(self, n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
        X, y = Intervals.rows(self, n, seed)
        return np.column_stack([2 * X[:, 0] - X[:, 1], 0.5 + np.abs(X[:, 2])]), y

    def learn(self, method: Any, X: Any, y: Any) -> None:
        prediction, scale = _columns(X)
        method.calibrate_pred(prediction, y, scale=scale)

    def ask(self, method: Any, X: Any, alpha: Any = None) -> NDArray[Any]:
        prediction, scale = _columns(X)
        more = {} if alpha is None else {"alpha": alpha}
        return np.asarray(method.predict_interval_pred(prediction, scale=scale, **more))

    def moved(self, X: NDArray[Any], by: float) -> NDArray[Any]:
        return np.asarray(X + np.array([by, 0.0]))


def _columns(X: Any) -> tuple[Any, Any]:
    if isinstance(X, list):
        return [row[0] for row in X], [row[1] for row in X]
    return (X.iloc[:, 0], X.iloc[:, 1]) if hasattr(X, "iloc") else (X[:, 0], X[:, 1])


#: levels whose answers must lie in each other
_NESTED = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)

CONTRACTS = (Intervals(), BareIntervals(), BareQuantiles(), BareScaled())


def same_for_questions(contract: Contract, subject: Subject) -> None:
    """Raise LawBroken unless the answer is the same whatever holds the question."""
    X, method = contract.questions(), contract.ready(subject)
    expected = contract.ask(method, X)
    for name, variant in variants(X).items():
        contract.require_same(contract.ask(method, variant), expected, f"asked with {name}")


def same_for_targets(contract: Contract, subject: Subject, further: dict[str, Any]) -> None:
    """Raise LawBroken unless the answer is the same whatever holds the calibration targets."""
    X, y = contract.rows(N_CALIB, seed=1)
    asked = contract.questions()
    expected = contract.ask(contract.calibrated(subject, X, y), asked)
    targets: dict[str, Any] = {
        "a list": y.tolist(),
        "float32": y.astype(np.float32),
        "a read-only array": read_only(y),
        **further,
    }
    if (tensor := as_tensor(y)) is not None:
        targets["a tensor"] = tensor
    for name, target in targets.items():
        got = contract.ask(contract.calibrated(subject, X, target), asked)
        contract.require_same(got, expected, f"targets given as {name}")


def same_for_integers(contract: Contract, subject: Subject) -> None:
    """Raise LawBroken unless integers mean the same numbers as floats."""
    X, y = contract.rows(N_CALIB, seed=1)
    X, y = np.round(X * 4), np.round(y * 8)
    asked = np.round(contract.questions() * 4)
    expected = contract.ask(contract.calibrated(subject, X, y), asked)
    got = contract.ask(contract.calibrated(subject, X.astype(int), y.astype(int)), asked.astype(int))
    contract.require_same(got, expected, "integers")


@law("types", verbs=("calibrate_pred",), forms="model")
def bare_predictions_are_of_a_known_form(contract: Intervals, subject: Subject) -> None:
    """Says so where bare predictions are of a form that the suite has no contract for."""
    if not any(other.applies(subject) for other in CONTRACTS if other.form):
        raise NotApplicable(
            "its bare predictions are of a form of their own, tested by the method's own tests"
        )


@law("alpha")
def levels_nest(contract: Intervals, subject: Subject) -> None:
    """The interval at a smaller alpha contains that at a larger one."""
    X, (Xc, yc) = contract.questions(200), contract.rows(N_CALIB, seed=1)
    answers = [contract.ask(contract.calibrated(subject, Xc, yc, alpha), X) for alpha in _NESTED]
    for wide, narrow in pairwise(answers):
        empty = narrow[:, 0] > narrow[:, 1]
        inside = (wide[:, 0] <= narrow[:, 0] + _ROUNDING) & (narrow[:, 1] <= wide[:, 1] + _ROUNDING)
        bad = ~(inside | empty)
        require(
            not bad.any(), f"{int(bad.sum())} of {len(X)} intervals do not contain that at a larger alpha"
        )


@law("types")
def float64_ends(contract: Intervals, subject: Subject) -> None:
    """The answer is a float64 array."""
    answer = contract.ask(contract.ready(subject), contract.questions())
    require(answer.dtype == np.float64, f"predicted {answer.dtype}, expected float64")


@law("types")
def tables_lists_and_layouts(contract: Intervals, subject: Subject) -> None:
    """What is asked may be a list, float32, a table, in Fortran order, strided or read-only."""
    same_for_questions(contract, subject)


@law("types")
def targets_of_every_kind(contract: Intervals, subject: Subject) -> None:
    """Calibration targets may be a list, a Series, float32, an (n, 1) column, a tensor, read-only."""
    y = contract.rows(N_CALIB, seed=1)[1]
    series = pd.Series(y, index=np.arange(len(y))[::-1] + 7)
    same_for_targets(contract, subject, {"a Series": series, "an (n, 1) column": y[:, None]})


@law("types")
def whole_numbers(contract: Intervals, subject: Subject) -> None:
    """Integers mean the same numbers as floats."""
    same_for_integers(contract, subject)


@law("types")
def far_from_zero(contract: Intervals, subject: Subject) -> None:
    """Predictions and targets moved by 1e9 move the interval by 1e9: residuals are formed in float64."""
    asked = contract.questions()
    X, y = contract.rows(N_CALIB, seed=1)
    if isinstance(contract, BareIntervals):
        expected = contract.ask(contract.calibrated(subject, X, y), asked)
        far = contract.calibrated(subject, contract.moved(X, 1e9), y + 1e9)
        got = contract.ask(far, contract.moved(asked, 1e9)) - 1e9
        # a float64 near 1e9 is exact to 1e-7, a float32 to 64
        require_close(got, expected, "moved by 1e9", rtol=1e-5)
        rough = contract.moved(X, 1e8).astype(np.float32)
        answer = contract.ask(contract.calibrated(subject, rough, y + 1e8), rough)
        require(
            np.isfinite(answer).all(), "float32 predictions of targets around 1e8 give no finite interval"
        )
        return
    Xt, yt = contract.rows(N_TRAIN, seed=0)
    big = 1e6 * yt + 1e8
    answer = np.asarray(subject.make(alpha=0.1).fit(Xt, big).predict_interval(Xt))
    inside = np.mean((answer[:, 0] <= big) & (big <= answer[:, 1]))
    require(np.isfinite(answer).all(), "targets around 1e8 give infinite or missing ends")
    require(
        inside > 0.5,
        f"targets around 1e8: {inside:.0%} of the rows of fit lie in their interval at alpha 0.1",
    )


@law("types", forms="bare")
def half_precision(contract: Intervals, subject: Subject) -> None:
    """Bare float16 predictions mean the numbers that they hold."""
    X, y = contract.rows(N_CALIB, seed=1)
    asked = contract.questions()
    for kind in (np.float16, np.longdouble):
        expected = contract.ask(
            contract.calibrated(subject, X.astype(kind).astype(float), y), asked.astype(kind).astype(float)
        )
        got = contract.ask(contract.calibrated(subject, X.astype(kind), y), asked.astype(kind))
        contract.require_same(got, expected, f"{np.dtype(kind)} predictions")


@law("types")
def columns_mean_vectors(contract: Intervals, subject: Subject) -> None:
    """(n, 1) predictions and targets mean (n,), and never broadcast to (n, n)."""
    if contract.form != "bare":
        raise NotApplicable("predictions are no vector")
    X, y = contract.rows(N_CALIB, seed=1)
    asked = contract.questions()
    expected = contract.ask(contract.calibrated(subject, X, y), asked)
    for name, xs, ys in (
        ("predictions", X[:, None], y),
        ("targets", X, y[:, None]),
        ("predictions and targets", X[:, None], y[:, None]),
    ):
        got = contract.ask(contract.calibrated(subject, xs, ys), asked[:, None])
        contract.require_same(got, expected, f"(n, 1) {name}")


@law("nan-inf")
def nan_and_infinite_targets(contract: Intervals, subject: Subject) -> None:
    """Five of 40 targets NaN: refused with 5, 40 and the first row; infinite targets likewise."""
    X, y = contract.rows(N_CALIB, seed=1)
    for bad, name in ((np.nan, "NaN"), (np.inf, "infinite")):
        broken = y.copy()
        broken[[6, 11, 19, 23, 38]] = bad
        refused_with(
            lambda broken=broken: contract.calibrated(subject, X, broken), {"5", "40", "6"}, f"{name} targets"
        )
        if contract.trains():
            refused_with(
                lambda broken=broken: subject.make().fit(X, broken),
                {"5", "40", "6"},
                f"{name} targets in fit",
            )


@law("nan-inf", forms="bare")
def nan_and_infinite_predictions(contract: Intervals, subject: Subject) -> None:
    """NaN predictions are refused with count and row; infinite ones give no NaN."""
    X, y = contract.rows(N_CALIB, seed=1)
    broken = X.copy()
    broken[[6, 11, 19, 23, 38]] = np.nan
    refused_with(
        lambda: contract.calibrated(subject, broken, y), {"5", "40", "6"}, "NaN predictions in calibration"
    )
    method = contract.ready(subject)
    refused_with(lambda: contract.ask(method, broken), {"5", "40", "6"}, "NaN predictions")
    broken[[6, 11, 19, 23, 38]] = np.inf
    short = contract.calibrated(subject, X[:3], y[:3])
    steps: dict[str, Callable[[], NDArray[Any]]] = {
        "asked with": lambda: contract.ask(method, broken),
        "asked with, and calibrated on three rows,": lambda: contract.ask(short, broken),
        "calibrated on": lambda: contract.ask(contract.calibrated(subject, broken, y), X),
    }
    for name, step in steps.items():
        try:
            answer = step()
        except ValueError:
            continue
        nans = int(np.isnan(answer).sum())
        require(nans == 0, f"{name} infinite predictions {nans} ends are NaN")


@law("nan-inf")
def infinite_with_infinite(contract: Intervals, subject: Subject) -> None:
    """Too few rows: both ends infinite for every row, none NaN."""
    X, y = contract.rank_rows(3)
    answer = contract.ask(contract.calibrated(subject, X, y), contract.questions())
    require(not np.isnan(answer).any(), f"3 rows at alpha 0.1: {int(np.isnan(answer).sum())} ends are NaN")


@law("types", verbs=("predict",), forms="model")
def point_prediction_is_a_vector(contract: Intervals, subject: Subject) -> None:
    """``predict`` gives (n,) finite numbers, row by row the same."""
    method, X = contract.ready(subject), contract.questions()
    whole = np.asarray(method.predict(X))
    require(whole.shape == (len(X),), f"predict gives shape {whole.shape}, expected {(len(X),)}")
    require(np.isfinite(whole).all(), "predict gives numbers that are not finite")
    require_close(
        np.concatenate([method.predict(X[i : i + 1]) for i in range(len(X))]), whole, "predict row by row"
    )


@law("types", forms="model")
def a_column_of_targets_never_broadcasts(contract: Intervals, subject: Subject) -> None:
    """fit with (n, 1) targets is fit with (n,)."""
    X, y = contract.rows(N_TRAIN, seed=0)
    asked = contract.questions()
    expected = subject.make().fit(X, y).predict_interval(asked)
    require_close(
        subject.make().fit(X, y[:, None]).predict_interval(asked), expected, "fit with (n, 1) targets"
    )


def variants(X: NDArray[Any]) -> dict[str, Any]:
    """The same numbers in other clothes."""
    clothes: dict[str, Any] = {
        "a list": X.tolist(),
        "float32": X.astype(np.float32),
        "a strided view": np.repeat(X, 2, axis=0)[::2],
        "a read-only array": read_only(X),
    }
    if X.ndim == 2:
        clothes["Fortran order"] = np.asfortranarray(X)
        clothes["a table"] = pd.DataFrame(
            X, columns=[f"x{i}" for i in range(X.shape[1])], index=range(7, 7 + len(X))
        )
    else:
        clothes["a Series"] = pd.Series(X, index=range(7, 7 + len(X)))
        if (tensor := as_tensor(X)) is not None:
            clothes["a tensor"] = tensor
    return clothes


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """A copy that raises when written to."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def as_tensor(array: NDArray[Any]) -> Any:
    """A torch tensor that asks for gradients, None where torch is not installed."""
    try:
        import torch
    except ImportError:
        return None
    return torch.tensor(array, requires_grad=array.dtype.kind == "f")


__all__ = ["CONTRACTS", "BareIntervals", "Intervals", "LawBroken", "as_tensor", "read_only", "variants"]
