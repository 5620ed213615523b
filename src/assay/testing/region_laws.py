"""The region contract for several outputs, through the model and from bare predictions, and its checks."""

from __future__ import annotations

import copy
import inspect
import pickle
from collections.abc import Callable
from itertools import pairwise, product
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import betabinom

from assay.testing.common_laws import refused_with
from assay.testing.interval_laws import same_for_integers, same_for_questions, same_for_targets
from assay.testing.laws import LawBroken, NotApplicable, law, require
from assay.testing.subject import N_CALIB, N_TRAIN, Contract, Subject, require_close

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

    def in_units(self, subject: Subject, units: NDArray[Any], asked: NDArray[Any]) -> Any:
        """The region after a life in which all targets are in other units."""
        X, y = self.rows(N_TRAIN, seed=0)
        method = subject.make(alpha=0.1).fit(X, y * units)
        if self.calibrates(subject):
            X, y = self.rows(N_CALIB, seed=1)
            self.learn(method, X, y * units)
        return self.region(method, asked)

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
        self._learn(verb, X, y, np.ones(2))

    def _learn(self, verb: Any, X: Any, y: Any, units: NDArray[Any]) -> None:
        if "residuals" in inspect.signature(verb).parameters:
            prediction, target = self.rows(N_TRAIN, seed=0)
            verb(X, y, residuals=(target - prediction) * units)
        else:
            verb(X, y)

    def in_units(self, subject: Subject, units: NDArray[Any], asked: NDArray[Any]) -> Any:
        """The region of the reference rows with everything in other units."""
        X, y = self.rows(N_CALIB, seed=1)
        method = subject.make(alpha=0.1)
        self._learn(getattr(method, self.calibrate), X * units, y * units, units)
        return self.region(method, asked * units)


#: levels whose answers must lie in each other
_NESTED = (0.05, 0.1, 0.2, 0.3, 0.5)
#: rows and points by which volumes are checked: the share of points inside is known to 3 % of itself
_MEASURED, _POINTS = 6, 4000
#: what an estimated volume or bounding box may be off by
_ESTIMATED = 0.15
#: exact in floating point, so that a method that scales its targets sees the same numbers
_UNITS = np.array([1024.0, 1 / 64])

CONTRACTS = (Regions(), BareRegions())


def _has(region: Any, *verbs: str) -> None:
    """Say so where a region cannot do what a check looks at."""
    missing = [verb for verb in verbs if not callable(getattr(region, verb, None))]
    if missing:
        raise NotApplicable(f"{type(region).__name__} has no {', '.join(missing)}")


@law("exact-rank")
def fresh_rows_are_covered(contract: Regions, subject: Subject) -> None:
    """Of 1,000 fresh rows no fewer are inside than chance leaves to an exactly valid method.

    With n calibration scores and rank k the number inside is beta-binomial; the bound is passed by
    chance once in 100,000 methods.
    """
    if not contract.calibrates(subject):
        raise NotApplicable("its guarantee is not that of a calibration on rows set aside")
    X, y = contract.rows(99, seed=11)
    fresh = contract.rows(1000, seed=12)
    for alpha, rank in ((0.1, 90), (0.4, 60)):
        inside = int(contract.covers(contract.calibrated(subject, X, y, alpha), *fresh).sum())
        least = int(betabinom.ppf(1e-5, 1000, rank, 100 - rank))
        require(
            inside >= least,
            f"99 calibration rows at alpha {alpha}: {inside} of 1000 fresh rows inside, not {least} or more",
        )


@law("alpha")
def levels_nest(contract: Regions, subject: Subject) -> None:
    """The region at a smaller alpha contains that at a larger one, and is no smaller."""
    X, (Xc, yc) = contract.questions(), contract.rows(N_CALIB, seed=1)
    answers = [contract.ask(contract.calibrated(subject, Xc, yc, alpha), X) for alpha in _NESTED]
    for wide, narrow in pairwise(answers):
        lost = (narrow[:, 1:] > wide[:, 1:]).any(axis=1)
        require(
            not lost.any(),
            f"{int(lost.sum())} of {len(X)} regions lose points of the region at a larger alpha",
        )
        smaller = wide[:, 0] < narrow[:, 0] - _ESTIMATED
        require(
            not smaller.any(), f"{int(smaller.sum())} of {len(X)} regions are smaller than at a larger alpha"
        )


@law("alpha")
def several_levels_are_a_list(contract: Regions, subject: Subject) -> None:
    """A sequence of levels gives a list of regions, one level a region."""
    method, X = contract.ready(subject), contract.questions(3)
    require(not isinstance(contract.region(method, X), (list, tuple)), "one level gives a list")
    answer = contract.region(method, X, alpha=[0.1])
    require(
        isinstance(answer, (list, tuple)) and len(answer) == 1, "a sequence of one level gives no list of one"
    )


@law("types")
def kinds_of_answers(contract: Regions, subject: Subject) -> None:
    """``contains`` gives (n,) booleans, ``volume`` (n,) float64, ``len`` n; one or no row alike."""
    for n in (5, 1, 0):
        X, y = contract.rows(n, seed=2)
        region = contract.region(contract.ready(subject), X)
        inside, volume = region.contains(y), region.volume()
        require(len(region) == n, f"{n} rows give a region of {len(region)}")
        for name, array, kind in (("contains", inside, np.bool_), ("volume", volume, np.float64)):
            got = (type(array), getattr(array, "shape", None), getattr(array, "dtype", None))
            require(got == (np.ndarray, (n,), np.dtype(kind)), f"{name} of {n} rows gives {got}")


@law("types")
def values_of_other_shapes_are_refused(contract: Regions, subject: Subject) -> None:
    """A column less, a row less or a single value never broadcasts against the region."""
    X, y = contract.rows(5, seed=2)
    region = contract.region(contract.ready(subject), X)
    for name, values in (("one column of two", y[:, :1]), ("one row less", y[:-1]), ("one row", y[:1])):
        try:
            answer = region.contains(values)
        except ValueError:
            continue
        raise LawBroken(f"contains of {name} is answered: {answer!r}")
    try:
        region.contains(np.where(np.arange(5)[:, None] == 2, np.nan, y))
    except ValueError:
        return
    raise LawBroken("contains of NaN is answered")


@law("types")
def tables_lists_and_layouts(contract: Regions, subject: Subject) -> None:
    """What is asked may be a list, float32, a table, in Fortran order, strided or read-only."""
    same_for_questions(contract, subject)


@law("types")
def targets_of_every_kind(contract: Regions, subject: Subject) -> None:
    """Calibration targets may be a list, a table, float32, Fortran-ordered, a tensor, read-only."""
    y = contract.rows(N_CALIB, seed=1)[1]
    table = pd.DataFrame(y, columns=["a", "b"], index=np.arange(len(y))[::-1] + 7)
    same_for_targets(contract, subject, {"a table": table, "Fortran order": np.asfortranarray(y)})


@law("types")
def whole_numbers(contract: Regions, subject: Subject) -> None:
    """Integers mean the same numbers as floats."""
    same_for_integers(contract, subject)


@law("types")
def units_do_not_matter(contract: Regions, subject: Subject) -> None:
    """Outputs in other units give the same region in those units: its volume times their product."""
    asked = contract.questions()
    regions = [contract.in_units(subject, unit, asked) for unit in (np.ones(2), _UNITS)]
    here, there = (np.log(region.volume()) for region in regions)
    # volumes may be estimates
    require_close(there - np.log(_UNITS).sum(), here, "log-volume in other units", rtol=0.01)
    for point in contract.probes():
        tiled = np.tile(point, (len(asked), 1))
        differ = regions[0].contains(tiled) != regions[1].contains(tiled * _UNITS)
        require(
            not differ.any(), f"{int(differ.sum())} of {len(asked)} regions hold other points in other units"
        )


@law("types", forms="bare")
def far_from_zero(contract: BareRegions, subject: Subject) -> None:
    """Predictions and targets moved by 1e9 move the region by 1e9: residuals are formed in float64."""
    (P, y), asked = contract.rows(N_CALIB, seed=1), contract.questions()
    here = contract.region(contract.calibrated(subject, P, y), asked)
    there = contract.region(contract.calibrated(subject, P + 1e9, y + 1e9), asked + 1e9)
    require_close(there.volume(), here.volume(), "volume moved by 1e9", rtol=1e-5)
    for point in contract.probes():
        tiled = np.tile(point, (len(asked), 1))
        differ = here.contains(tiled) != there.contains(tiled + 1e9)
        require(
            not differ.any(), f"{int(differ.sum())} of {len(asked)} regions moved by 1e9 hold other points"
        )


@law("types", forms="model")
def one_output_is_a_vector(contract: Regions, subject: Subject) -> None:
    """Targets (n,) and (n, 1) mean the same, in fit and in contains."""
    X, y = contract.rows(N_TRAIN, seed=0)
    asked, truth = contract.rows(N_CALIB, seed=1)
    regions = []
    for target in (y[:, 0], y[:, :1]):
        regions.append(contract.region(subject.make(alpha=0.2).fit(X, target), asked))
    for region in regions:
        contract_answers = [region.contains(truth[:, 0]), region.contains(truth[:, :1])]
        require(
            (contract_answers[0] == contract_answers[1]).all() and contract_answers[0].shape == (len(asked),),
            "contains((n,)) and contains((n, 1)) differ",
        )
    require_close(regions[1].volume(), regions[0].volume(), "fit with (n, 1) targets")


@law("types", verbs=("predict",), forms="model")
def point_prediction_is_a_table(contract: Regions, subject: Subject) -> None:
    """``predict`` gives (n, q) finite numbers, row by row the same."""
    method, X = contract.ready(subject), contract.questions()
    whole = np.asarray(method.predict(X))
    require(whole.shape == (len(X), 2), f"predict gives shape {whole.shape}, expected {(len(X), 2)}")
    require(np.isfinite(whole).all(), "predict gives numbers that are not finite")
    rows = np.concatenate([method.predict(X[i : i + 1]) for i in range(len(X))])
    require_close(rows, whole, "predict row by row")


@law("types")
def constant_outputs_and_equal_rows(contract: Regions, subject: Subject) -> None:
    """An output that never changes, and rows that are all alike, give regions without NaN."""
    (X, y), asked = contract.rows(N_CALIB, seed=1), contract.questions()
    constant = np.column_stack([y[:, 0], np.full(len(y), 2.0)])
    same_X, same_y = np.repeat(X[:1], len(X), axis=0), np.repeat(y[:1], len(y), axis=0)
    for name, xs, ys in (("a constant output", X, constant), ("equal rows", same_X, same_y)):
        if contract.trains():
            method = subject.make(alpha=0.1).fit(xs, ys)
        else:
            method = contract.calibrated(subject, xs, ys)
        contract.ask(method, asked)
        if name == "equal rows" and contract.trains():
            continue
        inside = int(contract.covers(method, xs, ys).sum())
        require(inside >= len(xs) // 2, f"{name}: {inside} of {len(xs)} of its own rows lie in their region")


@law("types", verbs=("calibrate",), forms="model")
def other_numbers_of_outputs_are_refused(contract: Regions, subject: Subject) -> None:
    """Fitted on two outputs, calibration with three is a ValueError with both numbers."""
    X, y = contract.rows(N_CALIB, seed=1)
    method = contract.trained(subject)
    refused_with(
        lambda: method.calibrate(X, np.column_stack([y, y[:, 0]])), {"2", "3"}, "3 outputs after a fit on 2"
    )


@law("nan-inf")
def nan_and_infinite_targets(contract: Regions, subject: Subject) -> None:
    """Five of 40 targets NaN in one output: refused with 5, 40 and the first row; infinite likewise."""
    X, y = contract.rows(N_CALIB, seed=1)
    for bad, name in ((np.nan, "NaN"), (np.inf, "infinite")):
        broken = y.copy()
        broken[[6, 11, 19, 23, 38], 1] = bad
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
def nan_and_infinite_predictions(contract: BareRegions, subject: Subject) -> None:
    """NaN or infinite predictions are refused with count and row."""
    X, y = contract.rows(N_CALIB, seed=1)
    method = contract.ready(subject)
    for bad, name in ((np.nan, "NaN"), (np.inf, "infinite")):
        broken = X.copy()
        broken[[6, 11, 19, 23, 38], 0] = bad
        steps: dict[str, Callable[[], Any]] = {
            "in calibration": lambda broken=broken: contract.calibrated(subject, broken, y),  # type: ignore[misc]
            "asked with": lambda broken=broken: contract.ask(method, broken),  # type: ignore[misc]
        }
        for where, step in steps.items():
            refused_with(step, {"5", "40", "6"}, f"{name} predictions {where}")


@law("one-rule")
def volume_is_the_measure_of_what_is_contained(contract: Regions, subject: Subject) -> None:
    """Points spread evenly over the bounding box lie in the region as often as its volume says."""
    region = contract.region(contract.ready(subject), contract.questions(_MEASURED))
    _has(region, "take", "bounding_box")
    box = np.asarray(region.bounding_box())
    require(box.shape == (_MEASURED, 2, 2), f"bounding_box gives shape {box.shape}, expected (rows, q, 2)")
    require(np.isfinite(box).all(), "the bounding box of a finite region is not finite")
    width = box[:, :, 1] - box[:, :, 0]
    # wider by a tenth: a box that is too small shows as points beyond it
    low, size = box[:, :, 0] - 0.05 * width, 1.1 * width
    share = np.random.default_rng(0).random((_POINTS, 2))
    points = low[:, None] + size[:, None] * share
    inside = region.take(np.repeat(np.arange(_MEASURED), _POINTS)).contains(points.reshape(-1, 2))
    inside = np.asarray(inside).reshape(_MEASURED, _POINTS)
    measured = size.prod(axis=1) * inside.mean(axis=1)
    volume = np.asarray(region.volume())
    error = np.abs(measured - volume) / np.maximum(volume, measured)
    require(
        (error < _ESTIMATED).all(),
        f"{int((error >= _ESTIMATED).sum())} of {_MEASURED} volumes are off by more than {_ESTIMATED:.0%}: "
        f"{volume[error.argmax()]:.4g}, by points {measured[error.argmax()]:.4g}",
    )
    slack = 0.02 * width[:, None]
    beyond = ((points < box[:, None, :, 0] - slack) | (points > box[:, None, :, 1] + slack)).any(axis=2)
    outside = int((inside & beyond).sum())
    require(outside == 0, f"{outside} points beyond the bounding box lie in their region")
    if callable(getattr(region, "log_volume", None)):
        require_close(region.log_volume(), np.log(volume), "log_volume() against volume()", rtol=0.01)


@law("one-rule")
def points_of_the_region(contract: Regions, subject: Subject) -> None:
    """What ``sample`` draws lies inside; what ``boundary`` gives lies on the border: both within the box."""
    region = contract.region(contract.ready(subject), contract.questions(_MEASURED))
    _has(region, "take", "bounding_box")
    given = [verb for verb in ("sample", "boundary") if callable(getattr(region, verb, None))]
    if not given:
        _has(region, "sample", "boundary")
    box = np.asarray(region.bounding_box())
    slack = 0.02 * (box[:, None, :, 1] - box[:, None, :, 0])
    every = region.take(np.repeat(np.arange(_MEASURED), 40))
    for verb in given:
        points = np.asarray(getattr(region, verb)(40))
        require(
            points.shape == (_MEASURED, 40, 2),
            f"{verb}(40) gives shape {points.shape}, expected (rows, 40, q)",
        )
        out = ((points < box[:, None, :, 0] - slack) | (points > box[:, None, :, 1] + slack)).any(axis=2)
        require(
            not out.any(), f"{int(out.sum())} of {out.size} points of {verb} lie outside the bounding box"
        )
        if verb == "sample":
            inside = np.asarray(every.contains(points.reshape(-1, 2)))
            require(inside.all(), f"{int((~inside).sum())} of {inside.size} sampled points lie outside")
        else:
            near = np.zeros(_MEASURED * 40, dtype=bool)
            missing = np.zeros(_MEASURED * 40, dtype=bool)
            middle = points.mean(axis=1, keepdims=True)
            for factor in (0.98, 1.02):
                moved = (middle + factor * (points - middle)).reshape(-1, 2)
                held = np.asarray(every.contains(moved))
                near |= held
                missing |= ~held
            wrong = int((~(near & missing)).sum())
            # a border may fold back towards the middle
            require(
                wrong <= 0.1 * near.size,
                f"{wrong} of {near.size} points of boundary have the region on both or on no side",
            )


@law("order")
def taken_rows_are_those_rows(contract: Regions, subject: Subject) -> None:
    """``take(rows)`` is the region of those rows: repeated, in another order, by mask, or none."""
    X = contract.questions()
    region = contract.region(contract.ready(subject), X)
    _has(region, "take")
    expected = contract.described(region)
    mask = np.arange(len(X)) % 3 == 0
    for name, rows in (
        ("an order with repeats", np.array([4, 4, 0, 7])),
        ("a mask", mask),
        ("no row", np.array([], dtype=int)),
    ):
        contract.require_same(contract.described(region.take(rows)), expected[rows], f"take({name})")


@law("object-life")
def copies_of_a_region_answer_alike(contract: Regions, subject: Subject) -> None:
    """deepcopy and pickle of a region answer as it does."""
    region = contract.region(contract.ready(subject), contract.questions(4))
    expected = contract.described(region)
    contract.require_same(contract.described(copy.deepcopy(region)), expected, "deepcopy of a region")
    contract.require_same(contract.described(pickle.loads(pickle.dumps(region))), expected, "pickled region")
