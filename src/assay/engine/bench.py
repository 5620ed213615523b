"""One trial: build the method, let the task evaluate it, and make one row of whatever happens."""

from __future__ import annotations

import contextlib
import copy
import errno
import gc
import importlib
import inspect
import math
import random
import sys
import time
import traceback
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from threadpoolctl import threadpool_limits

from assay.core.cards import EXTRAS, Card, all_cards, build_argument, import_object
from assay.core.errors import MethodError
from assay.core.seeds import derive_seed
from assay.data.table import Table
from assay.engine.memory import MemoryMeter, memory_limit
from assay.engine.plan import MethodSpec, Status, Trial, TrialResult
from assay.tasks import Split, Task, get_task, running

_SPLITS_KEPT = 2
_FRAMES_SHOWN = 3
_ERROR_LENGTH = 2000
_NOTICES_KEPT = 20
_MEMORY_WORDS = (
    "allocate memory",
    "bad_alloc",
    "out of memory",
    "unable to allocate",
    "failed to allocate",
    "memoryerror",
)


def load_task(name: str, options: Mapping[str, Any] | None = None) -> Task:
    """A task by its name, or of the class at ``package.module:Class``, with the options asked for."""
    if ":" not in name:
        return get_task(name, **(options or {}))
    task: Task = import_object(name)(**(options or {}))
    return task


def load_model(model: Any) -> Any:
    """An unfitted estimator from ``package.module:Class`` (or the path of an estimator); else unchanged."""
    if not isinstance(model, str):
        return model
    found = import_object(model)
    if not inspect.isclass(found):
        return found
    try:
        return found()
    except TypeError as error:
        raise MethodError(f"the model {model} cannot be made without arguments: {error}") from error


def failure(identity: str, method: str, seed: int, error: BaseException) -> TrialResult:
    """The row of a trial that ended with an exception."""
    status: Status = "out of memory" if is_out_of_memory(error) else "failed"
    return TrialResult(identity, method, seed, status, {}, 0.0, describe_error(error))


def mentions_memory(text: str) -> bool:
    """Whether an error message or a process's last words speak of memory that could not be had."""
    lower = text.lower()
    return any(word in lower for word in _MEMORY_WORDS)


@dataclass
class Bench:
    """Where trials of one question are carried out, one after the other.

    ``isolated`` says that the process belongs to the trials: its high-water mark may be reset and
    no interrupt of the user's arrives in it.
    """

    table: Table
    task_name: str
    alpha: Fraction
    model: Any
    isolated: bool
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model = load_model(self.model)
        self.task = load_task(self.task_name, self.options).with_model(self.model)
        self._splits: OrderedDict[int, Any] = OrderedDict()
        self._limited_at = 0

    def run(
        self, trial: Trial, memory: int | None = None, begin: Callable[[], None] = lambda: None
    ) -> TrialResult:
        """One row for the trial, whatever happens in it.

        ``begin`` is called when the method is loaded and its rows are ready: the trial's time runs
        from there.

        Only an interrupt by the user (KeyboardInterrupt in a process that is not isolated) and the
        death of the process get past.
        """
        start = time.perf_counter()
        notices: list[str] = []
        try:
            target = load_target(trial.method)
            split = copy.deepcopy(self._split(trial.seed))  # a method may write into what it is given
            begin()
            start = time.perf_counter()
            metrics, detail = self._evaluate(trial, target, split, memory, notices)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and not self.isolated:
                raise
            row = failure(trial.identity, trial.method.name, trial.seed, error)
        else:
            row = TrialResult(trial.identity, trial.method.name, trial.seed, "ok", metrics, 0.0, "", detail)
        if row.status == "out of memory":
            self._splits.clear()
        if row.status != "ok":
            gc.collect()
        return replace(row, seconds=time.perf_counter() - start, notices=tuple(notices))

    def fit(self, method: MethodSpec, split: Split, seed: int, notices: list[str]) -> Any:
        """The method built and fitted on a split, as a trial does it; warnings become notices."""
        target = load_target(method)
        with _recorded_warnings(notices, every=self.isolated), self._one_thread():
            built = build_method(
                target, method, self._model_for(method), seed, self.alpha, notices, self.options
            )
            with _seeded(seed):
                running.fit(built, split)
        return built

    def _evaluate(
        self, trial: Trial, target: Any, split: Any, memory: int | None, notices: list[str]
    ) -> tuple[dict[str, float], dict[str, Any]]:
        with (
            _recorded_warnings(notices, every=self.isolated),
            self._one_thread(),
            memory_limit(memory),
            MemoryMeter(reset=self.isolated) as meter,
        ):
            model = self._model_for(trial.method)
            method = build_method(target, trial.method, model, trial.seed, self.alpha, notices, self.options)
            # only now: modules that are imported for the first time may draw random numbers
            with _seeded(trial.seed):
                outcome = self.task.evaluate(method, split, self.alpha)
        metrics = {name: float(value) for name, value in outcome.metrics.items()}
        metrics["peak_memory"] = meter.peak
        notices.extend(notice for notice in outcome.notices if notice not in notices)
        return metrics, plain(outcome.detail)

    def _model_for(self, method: MethodSpec) -> Any:
        card = all_cards().get(method.card) if method.card else None
        quantile = card is not None and card.model == "quantile"
        if self.model is None:
            return self.task.default_quantile_model() if quantile else self.task.default_model()
        return self.model if quantile else self.task.fitting(self.model)

    @contextlib.contextmanager
    def _one_thread(self) -> Iterator[None]:
        """Linear algebra on one thread, so that numbers do not depend on where a trial runs."""
        if not self.isolated:
            with threadpool_limits(limits=1):
                yield
            return
        # looking for the libraries takes 10 ms: again only when modules have been loaded since
        if len(sys.modules) != self._limited_at:
            threadpool_limits(limits=1)
            self._limited_at = len(sys.modules)
        yield

    def _split(self, seed: int) -> Any:
        if seed in self._splits:
            self._splits.move_to_end(seed)
        else:
            self._splits[seed] = self.task.split(self.table, seed)
            while len(self._splits) > _SPLITS_KEPT:
                self._splits.popitem(last=False)
        return self._splits[seed]


def load_target(method: MethodSpec) -> Any:
    """The class (or unfitted object) of a method; a card's missing extra is named."""
    if method.card is not None and method.card in all_cards():
        card = all_cards()[method.card]
        found = card.load()
        for extra in card.requires:
            importlib.import_module(EXTRAS[extra])  # a lazy import would count in the trial's numbers
    else:
        found = import_object(method.target) if isinstance(method.target, str) else method.target
    torch = sys.modules.get("torch")
    if torch is not None:
        _warm_up(torch)
    return found


@cache
def _warm_up(torch: Any) -> None:
    """Take one step with an optimiser: the first one of a process loads a compiler, for seconds."""
    with torch.enable_grad():
        parameter = torch.zeros(1, requires_grad=True)
        parameter.sum().backward()
        torch.optim.Adam([parameter]).step()


def build_method(
    target: Any,
    method: MethodSpec,
    model: Any,
    seed: int,
    alpha: Fraction,
    notices: list[str],
    options: Mapping[str, Any] | None = None,
) -> Any:
    """An unfitted method for one trial, with the arguments that the question decides.

    ``alpha``, ``estimator``, ``random_state`` and the task's ``options`` are given where the constructor
    takes them and ``params`` does not; a parameter that is a table with a ``class`` is made an object.
    An object keeps its own estimator and random state; its alpha and options become those of the question.
    """
    options = options or {}
    params = {name: build_argument(value) for name, value in method.params.items()}
    card = all_cards().get(method.card) if method.card else None
    offered: dict[str, Any] = {"alpha": float(alpha), "random_state": seed, **options}
    seeded = _with_seed(model, seed)
    if card is None or _suits(card, seeded):
        offered["estimator"] = seeded
    elif card.task not in ("online", "predictive"):
        # in the first the model forecasts, outside of all methods; in the second networks are the methods
        notices.append(f"fitted with its own model, not with {_model_name(seeded)}")
    if inspect.isclass(target):
        taken = _parameters(target)
        arguments = {name: value for name, value in offered.items() if name in taken}
        return target(**{**arguments, **params})
    built = clone(target) if hasattr(target, "get_params") else copy.deepcopy(target)
    own = built.get_params(deep=False) if hasattr(built, "get_params") else {}
    changes = {name: value for name, value in offered.items() if name in own and own[name] is None}
    changes |= {name: offered[name] for name in ("alpha", *options) if name in own}
    if not own:
        for name in ("alpha", *options):
            if hasattr(built, name):
                setattr(built, name, offered[name])
    changes |= params
    return built.set_params(**changes) if changes else built


def _suits(card: Card, model: Any) -> bool:
    if card.model == "own":
        return False
    if card.model == "ridge":
        from sklearn.linear_model import LinearRegression, Ridge

        return isinstance(model, (Ridge, LinearRegression))
    return True


def _model_name(model: Any) -> str:
    """The class of the model; of copies of it for several targets, that of the copies."""
    from sklearn.multioutput import MultiOutputRegressor

    return type(model.estimator if isinstance(model, MultiOutputRegressor) else model).__name__


def _parameters(cls: type) -> set[str]:
    return {
        name
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }


def _with_seed(model: Any, seed: int) -> Any:
    """A fresh copy of the model; every random state that is None becomes one derived from the seed."""
    if not hasattr(model, "get_params"):
        return copy.deepcopy(model)
    fresh = clone(model)
    open_states = [
        key
        for key, value in fresh.get_params(deep=True).items()
        if value is None and (key == "random_state" or key.endswith("__random_state"))
    ]
    return fresh.set_params(**{key: derive_seed(seed, key) for key in open_states})


@contextlib.contextmanager
def _recorded_warnings(notices: list[str], *, every: bool) -> Iterator[None]:
    """Warnings that escape the method become notices of the row, each once.

    ``every`` sets the user's filters aside, which only a process of our own may do.
    """
    with warnings.catch_warnings(record=True) as caught:
        if every:
            warnings.simplefilter("default")
        try:
            yield
        finally:
            for warning in caught:
                text = _said(warning.message)
                if text not in notices and len(notices) < _NOTICES_KEPT:
                    notices.append(text)


@contextlib.contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Global generators start from the seed for methods that use them, and are put back afterwards."""
    value = derive_seed(seed, "global generators")
    torch = sys.modules.get("torch")
    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002
    torch_state = torch.random.get_rng_state() if torch is not None else None
    random.seed(value)
    np.random.seed(value)  # noqa: NPY002
    if torch is not None:
        torch.random.default_generator.manual_seed(value)
    try:
        yield
    finally:
        random.setstate(python_state)
        np.random.set_state(numpy_state)  # noqa: NPY002
        if torch is not None:
            torch.random.set_rng_state(torch_state)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an exception, or one that it was raised from, is an allocation that was refused."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if isinstance(link, MemoryError) or type(link).__name__ == "OutOfMemoryError":
            return True
        if isinstance(link, OSError) and link.errno == errno.ENOMEM:
            return True
        if isinstance(link, (RuntimeError, ImportError)) and mentions_memory(_said(link)):
            return True
        link = link.__cause__ or link.__context__
    return False


def describe_error(error: BaseException) -> str:
    """Type and message, then the last frames of the traceback, one a line."""
    if isinstance(error, SystemExit):
        text = f"SystemExit: the method ended the program with status {error.code!r}"
    else:
        text = _said(error)
    frames = traceback.extract_tb(error.__traceback__)
    here = Path(__file__)
    shown = [frame for frame in frames if Path(frame.filename) != here][-_FRAMES_SHOWN:]
    lines = [f"  {frame.filename}:{frame.lineno} in {frame.name}: {frame.line}" for frame in shown]
    return _encodable("\n".join([text[:_ERROR_LENGTH], *lines]))


def _said(error: BaseException | str) -> str:
    """Type and message of an error or a warning, whatever the code does that makes its text."""
    name = type(error).__name__
    try:
        text = f"{name}: {error}"
    except BaseException as second:
        text = f"{name} (its text raised {type(second).__name__})"
    return _encodable(text.rstrip(": \n"))


def _encodable(text: str) -> str:
    """The text with lone surrogates written out: no file and no database takes them."""
    return text.encode("utf-8", "backslashreplace").decode()


def plain(value: Any) -> Any:
    """The same value of JSON's types only: numpy's numbers and arrays, tuples and sets are turned."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, (int, float)):
        return value if isinstance(value, int) or math.isfinite(value) else None
    if isinstance(value, np.ndarray):
        return [plain(item) for item in value.tolist()]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (Sequence, set, frozenset)):
        return [plain(item) for item in value]
    raise MethodError(f"the task's detail holds a {type(value).__name__}, which is not JSON")
