"""The method under test and the contract it is tested by."""

from __future__ import annotations

import copy
import inspect
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from assay.core.cards import Card, build_argument
from assay.core.errors import MethodError
from assay.testing.laws import LawBroken, require

#: rows of the reference problem that every method is trained, calibrated and asked on
N_TRAIN, N_CALIB, N_TEST = 60, 40, 25


class Subject:
    """A method under test: makes fresh unfitted objects of it.

    Parameters
    ----------
    method : Card, class, or unfitted object
        A card stands for its class with its defaults and the arguments of its ``[testing]`` table; an
        argument that is a table with a ``class`` ("package.module:Class") is made with the rest of it.
    exceptions : mapping, optional
        Name of a law or of a check -> why the method cannot keep it; the card's if not given.
    params : mapping, optional
        Further constructor arguments.
    """

    def __init__(
        self,
        method: Any,
        *,
        exceptions: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> None:
        self.card = method if isinstance(method, Card) else None
        own = {**self.card.defaults, **self.card.testing} if self.card else {}
        self.params = {**{key: build_argument(value) for key, value in own.items()}, **(params or {})}
        if exceptions is None:
            exceptions = self.card.exceptions if self.card else {}
        self.exceptions = dict(exceptions)
        self._template = None
        if self.card is not None:
            self.cls = self.card.load()
        elif isinstance(method, type):
            self.cls = method
        else:
            self.cls, self._template = type(method), method
        self.name = self.card.id if self.card else self.cls.__name__
        self._kept: dict[Any, Any] = {}
        self._example = self.make()

    def make(self, **overrides: Any) -> Any:
        """A fresh unfitted object; overrides that the constructor does not take are left out."""
        params = {**self.params, **{key: value for key, value in overrides.items() if self.takes(key)}}
        if self.takes("random_state"):
            params.setdefault("random_state", 0)
        if self._template is None:
            try:
                return self.cls(**params)
            except TypeError as error:
                raise MethodError(
                    f"{self.cls.__name__} cannot be made for its tests: {error}; give an unfitted object, "
                    "or arguments in the card's [testing] table"
                ) from error
        if hasattr(self._template, "get_params"):
            return clone(self._template).set_params(**params)
        fresh = copy.deepcopy(self._template)
        for key, value in params.items():
            setattr(fresh, key, value)
        return fresh

    def takes(self, parameter: str) -> bool:
        """Whether the constructor has a parameter of this name."""
        return parameter in inspect.signature(self.cls).parameters

    def has(self, *verbs: str) -> bool:
        """Whether the method has all of these methods."""
        return all(callable(getattr(self._example, verb, None)) for verb in verbs)

    def verb_takes(self, verb: str, parameter: str) -> bool:
        """Whether one of its methods has a parameter of this name."""
        return self.has(verb) and parameter in inspect.signature(getattr(self._example, verb)).parameters

    def keep(self, key: Any, build: Any) -> Any:
        """A private copy of what ``build()`` gave the first time: training is paid once."""
        if key not in self._kept:
            self._kept[key] = build()
        return copy.deepcopy(self._kept[key])


class Contract(ABC):
    """One way to train, calibrate and ask a method, with the reference problem for it.

    ``X`` below is what the method is asked about: rows of a table, or bare predictions.
    Answers have their rows on the axis before the last, levels first: (n, c) or (L, n, c).
    """

    #: the kind of task of the cards, and the form in which it is asked ("" is through the model)
    task: ClassVar[str]
    form: ClassVar[str] = ""
    #: names of the methods that calibrate and predict
    calibrate: ClassVar[str] = "calibrate"
    predict: ClassVar[str]
    #: whether the checks shared by all contracts apply to it
    shared: ClassVar[bool] = True

    def applies(self, subject: Subject) -> bool:
        """Whether the method has what this contract asks."""
        return subject.has("fit", self.predict)

    @abstractmethod
    def rows(self, n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """n rows (X, y) of the reference problem; numbers that float32 holds exactly."""

    def rank_rows(self, n: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """n rows with scores that differ, for every score worth the name."""
        return self.rows(n, seed=5)

    @abstractmethod
    def covers(self, method: Any, X: Any, y: Any) -> NDArray[np.bool_]:
        """(n,) whether the method's answer at its own alpha contains y."""

    @abstractmethod
    def unbounded(self, answer: NDArray[Any]) -> NDArray[np.bool_]:
        """(n,) whether the answer of a row is everything there is."""

    @abstractmethod
    def require_same(self, got: Any, expected: Any, what: str) -> None:
        """Raise LawBroken unless two answers agree up to rounding."""

    def calibrates(self, subject: Subject) -> bool:
        """Whether calibration is a step of its own; otherwise ``fit`` does all."""
        return subject.has(self.calibrate)

    def trains(self) -> bool:
        """Whether ``fit`` comes before calibration."""
        return self.form == ""

    def trained(self, subject: Subject, alpha: Any = 0.1) -> Any:
        """A fitted object, or a fresh one where the contract needs no training."""
        if not self.trains():
            return subject.make(alpha=alpha)
        X, y = self.rows(N_TRAIN, seed=0)
        return set_alpha(subject.keep((self.task, self.form), lambda: subject.make().fit(X, y)), alpha)

    def calibrated(self, subject: Subject, X: Any, y: Any, alpha: Any = 0.1) -> Any:
        """Calibrated on these rows; where ``fit`` does all, fitted on them."""
        if not self.calibrates(subject):
            return subject.make(alpha=alpha).fit(X, y)
        method = self.trained(subject, alpha)
        self.learn(method, X, y)
        return method

    def learn(self, method: Any, X: Any, y: Any) -> None:
        """Calibrate the object on these rows, in place."""
        getattr(method, self.calibrate)(X, y)

    def ready(self, subject: Subject, alpha: Any = 0.1) -> Any:
        """Trained and calibrated on the reference rows."""
        X, y = self.rows(N_CALIB, seed=1)
        key = (self.task, self.form, "ready", repr(alpha))
        return subject.keep(key, lambda: self.calibrated(subject, X, y, alpha))

    def ask(self, method: Any, X: Any, alpha: Any = None) -> NDArray[Any]:
        """The method's own answer."""
        verb = getattr(method, self.predict)
        answer = verb(X) if alpha is None else verb(X, alpha=alpha)
        return np.asarray(answer)

    def questions(self, n: int = N_TEST) -> NDArray[Any]:
        """X of n further rows."""
        return self.rows(n, seed=2)[0]


def set_alpha(method: Any, alpha: Any) -> Any:
    """Give the method another level the way its class allows."""
    if hasattr(method, "set_params"):
        if "alpha" in method.get_params(deep=False):
            method.set_params(alpha=alpha)
    elif hasattr(method, "alpha"):
        method.alpha = alpha
    return method


def require_close(got: Any, expected: Any, what: str, rtol: float = 1e-6) -> None:
    """Raise LawBroken unless two float arrays have one shape and agree to rtol of their scale."""
    got, expected = np.asarray(got), np.asarray(expected)
    require(got.shape == expected.shape, f"{what}: shape {got.shape}, expected {expected.shape}")
    finite = np.isfinite(expected)
    scale = float(np.abs(expected[finite]).max()) if finite.any() else 1.0
    same = np.isclose(got, expected, rtol=rtol, atol=rtol * scale, equal_nan=True)
    if not same.all():
        first = tuple(int(i) for i in np.argwhere(~same)[0])
        raise LawBroken(
            f"{what}: {int((~same).sum())} of {same.size} numbers differ, first at {first}: "
            f"{got[first]!r}, expected {expected[first]!r}"
        )


def caught_warnings(call: Any) -> tuple[Any, list[str]]:
    """The value of call() and the texts of the warnings that it gave."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        value = call()
    return value, [str(item.message) for item in caught]
