"""Checks of the object's life and of what must stay as it was."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import os
import pickle
import random
import sys
import threading
import tracemalloc
import warnings
from collections.abc import Iterator
from typing import Any

import joblib
import numpy as np
import threadpoolctl
from sklearn.base import clone

from assay.testing.laws import LawBroken, NotApplicable, law, require
from assay.testing.subject import N_CALIB, N_TRAIN, Contract, Subject, set_alpha

_MIB = 2**20


def _life(contract: Contract, subject: Subject, alpha: Any = 0.1) -> Any:
    """The answer of an object that lives from its making to its answer here."""
    method = subject.make(alpha=alpha)
    return contract.ask(_brought_up(contract, subject, method), contract.questions())


def _brought_up(contract: Contract, subject: Subject, method: Any, seed: int = 0) -> Any:
    """The given object fitted and calibrated; another seed gives other rows."""
    if contract.trains():
        method.fit(*contract.rows(N_TRAIN, seed=seed))
    if contract.calibrates(subject):
        contract.learn(method, *contract.rows(N_CALIB, seed=seed + 1))
    return method


@law("object-life")
def a_second_life_is_the_same(contract: Contract, subject: Subject) -> None:
    """Two objects made alike answer alike; so does one that is fitted and calibrated again."""
    expected = _life(contract, subject)
    contract.require_same(_life(contract, subject), expected, "a second object made alike")
    method = _brought_up(contract, subject, subject.make(alpha=0.1), seed=40)
    _brought_up(contract, subject, method)
    contract.require_same(
        contract.ask(method, contract.questions()), expected, "fitted again after other rows"
    )


@law("object-life")
def copies_answer_alike(contract: Contract, subject: Subject) -> None:
    """deepcopy and pickle of a fitted object answer as it does."""
    method, X = contract.ready(subject), contract.questions()
    expected = contract.ask(method, X)
    contract.require_same(contract.ask(copy.deepcopy(method), X), expected, "deepcopy")
    contract.require_same(contract.ask(pickle.loads(pickle.dumps(method)), X), expected, "pickle")


@law("object-life")
def clones_are_strangers(contract: Contract, subject: Subject) -> None:
    """A clone has the same arguments, nothing fitted, and its life leaves the original alone."""
    method, X = contract.ready(subject), contract.questions()
    if not hasattr(method, "get_params"):
        raise NotApplicable("it has no get_params")
    expected = contract.ask(method, X)
    twin = clone(method)
    fitted = [name for name in vars(twin) if name.endswith("_") and not name.startswith("_")]
    require(not fitted, f"a clone already has {fitted}")
    for name, value in twin.get_params(deep=False).items():
        own = method.get_params(deep=False)[name]
        require(repr(value) == repr(own), f"clone changed {name} from {own!r} to {value!r}")
    _brought_up(contract, subject, twin, seed=40)
    contract.require_same(contract.ask(method, X), expected, "after a clone was fitted on other rows")


@law("object-life")
def level_set_before_calibration(contract: Contract, subject: Subject) -> None:
    """set_params(alpha=...) before fitting is the same as the constructor's alpha."""
    if not (subject.takes("alpha") and subject.has("set_params")):
        raise NotApplicable("its alpha cannot be set")
    method = set_alpha(subject.make(alpha=0.1), 0.3)
    got = contract.ask(_brought_up(contract, subject, method), contract.questions())
    contract.require_same(got, _life(contract, subject, alpha=0.3), "set_params(alpha=0.3)")


@law("object-life")
def constructor_only_stores(contract: Contract, subject: Subject) -> None:
    """Making an object checks nothing, copies nothing and adds nothing to its arguments."""
    method = subject.make()
    if not hasattr(method, "get_params"):
        raise NotApplicable("it has no get_params")
    more = sorted(set(vars(method)) - set(method.get_params(deep=False)))
    require(not more, f"the constructor makes {more} beside its arguments")


@law("object-life")
def not_fitted_says_so(contract: Contract, subject: Subject) -> None:
    """Asked before it is calibrated: an error that says so, never an AttributeError."""
    method, X = subject.make(), contract.questions()
    _refuses_to_answer(contract, method, X, "before it was fitted")


def _refuses_to_answer(contract: Contract, method: Any, X: Any, when: str) -> None:
    try:
        contract.ask(method, X)
    except ValueError as error:  # scikit-learn's NotFittedError is one
        text = str(error).lower()
        require(
            "fit" in text or "calibrat" in text, f"asked {when}: the error must say so, and says: {error}"
        )
    except Exception as error:
        raise LawBroken(
            f"asked {when}: {type(error).__name__}: {error}; expected a NotFittedError"
        ) from error
    else:
        raise LawBroken(f"asked {when}: it answers")


@law("object-life")
def failed_fit_leaves_nothing_half_done(contract: Contract, subject: Subject) -> None:
    """After a fit or calibration that fails, a fresh object is unfitted and a fitted one is as before."""
    Xt, yt = contract.rows(N_TRAIN, seed=0)
    Xc, yc = contract.rows(N_CALIB, seed=1)
    X = contract.questions()
    steps: list[tuple[str, Any]] = []
    if contract.trains():
        steps.append(("fit", lambda method: method.fit(Xt, yt[:-5])))
        if subject.verb_takes("fit", "X_calib"):
            narrow = Xc[:, :-1]
            steps.append(
                ("fit with calibration rows of too few columns", lambda m: m.fit(Xt + 1, yt, narrow, yc))
            )
    if contract.calibrates(subject):
        steps.append((contract.calibrate, lambda method: contract.learn(method, Xc, yc[:-5])))
    for name, step in steps:
        fresh = subject.make()
        _must_fail(step, fresh, name)
        fitted = sorted(key for key in vars(fresh) if key.endswith("_") and not key.startswith("_"))
        require(not fitted, f"after a failed {name} a fresh object keeps {fitted}")
        _refuses_to_answer(contract, fresh, X, f"after a failed {name}")
        method = contract.ready(subject)
        expected = contract.ask(method, X)
        _must_fail(step, method, name)
        contract.require_same(contract.ask(method, X), expected, f"a fitted object after a failed {name}")


def _must_fail(step: Any, method: Any, name: str) -> None:
    try:
        step(method)
    except Exception:  # which error it is, other laws ask
        return
    raise LawBroken(f"{name} accepts rows that do not match")


@law("object-life")
def another_process_answers_alike(contract: Contract, subject: Subject) -> None:
    """A new process that unpickles the fitted object, and one that fits it, give the same answer."""
    if subject.cls.__module__ == "__main__":
        raise NotApplicable("a class of __main__ does not exist in another process")
    method, X = contract.ready(subject), contract.questions()
    try:
        unfitted, fitted = pickle.dumps(subject.make(alpha=0.1)), pickle.dumps(method)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise LawBroken(f"it cannot be pickled: {error}") from error
    fit = contract.rows(N_TRAIN, seed=0) if contract.trains() else None
    calibrate = contract.rows(N_CALIB, seed=1) if contract.calibrates(subject) else None
    jobs = [(contract, fitted, X, None, None), (contract, unfitted, X, fit, calibrate)]
    answers = joblib.Parallel(n_jobs=2, backend="loky")(
        joblib.delayed(_answer_elsewhere)(*job) for job in jobs
    )
    expected = {"a fitted object": contract.ask(method, X), "an object fitted": _life(contract, subject)}
    for (what, here), there in zip(expected.items(), answers, strict=True):
        require(not isinstance(there, str), f"{what} in another process: {there}")
        contract.require_same(there, here, f"{what} in another process")


def _answer_elsewhere(contract: Contract, pickled: bytes, X: Any, fit: Any, calibrate: Any) -> Any:
    """The answer, or what went wrong: an error that leaves a worker makes joblib start all of them again."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            method = pickle.loads(pickled)
            if fit is not None:
                method.fit(*fit)
            if calibrate is not None:
                contract.learn(method, *calibrate)
            return contract.ask(method, X)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


@law("nothing-global")
def process_state_stays(contract: Contract, subject: Subject) -> None:
    """A whole life leaves filters, random states, threads, float errors, environment and terminal alone."""
    out, err = io.StringIO(), io.StringIO()
    with unusual_random_states():
        before = process_state()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            _life(contract, subject)
            contract.ask(contract.calibrated(subject, *contract.rank_rows(3)), contract.questions(2))
        after = process_state()
    changed = [key for key in before if before[key] != after[key]]
    require(not changed, f"fitting and asking changed {', '.join(changed)}")
    printed = out.getvalue() + err.getvalue()
    require(not printed, f"it prints: {printed[:200]!r}")


@contextlib.contextmanager
def unusual_random_states() -> Iterator[None]:
    """Global random states that no method would set by a seed of its own; as before afterwards."""
    torch = sys.modules.get("torch")
    kept = random.getstate(), np.random.get_state(), torch and torch.random.get_rng_state()  # noqa: NPY002
    random.seed("no method's seed")
    np.random.seed([20, 7, 41, 11])  # noqa: NPY002
    if torch is not None:
        torch.manual_seed(0x5EED_0F_9A)
    try:
        yield
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])  # noqa: NPY002
        if torch is not None:
            torch.random.set_rng_state(kept[2])


def process_state() -> dict[str, Any]:
    state: dict[str, Any] = {
        "the warning filters": list(warnings.filters),
        "numpy's global random state": pickle.dumps(np.random.get_state()),  # noqa: NPY002
        "random's global state": random.getstate(),
        "numpy's handling of float errors": np.geterr(),
        "numpy's print options": repr(np.get_printoptions()),
        "the environment": dict(os.environ),
        "the working directory": os.getcwd(),
        "the number of threads of a library": {
            pool["filepath"]: pool["num_threads"] for pool in threadpoolctl.threadpool_info()
        },
        "the running threads": {thread.name for thread in threading.enumerate() if not thread.daemon},
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        state["torch's random state"] = torch.random.get_rng_state().tolist()
        state["torch's default dtype"] = torch.get_default_dtype()
        state["torch's threads"] = torch.get_num_threads()
        state["torch's gradient mode"] = torch.is_grad_enabled()
        state["torch's determinism"] = torch.are_deterministic_algorithms_enabled()
    return state


@law("nothing-global")
def inputs_stay(contract: Contract, subject: Subject) -> None:
    """What the caller gave is not written to."""
    rows = [*contract.rows(N_TRAIN, seed=0), *contract.rows(N_CALIB, seed=1), contract.questions()]
    copies = [array.copy() for array in rows]
    Xt, yt, Xc, yc, X = rows
    method = subject.make(alpha=0.1)
    if contract.trains():
        method.fit(Xt, yt)
    if contract.calibrates(subject):
        contract.learn(method, Xc, yc)
    contract.ask(method, X)
    names = ("training X", "training y", "calibration X", "calibration y", "the X asked about")
    changed = [name for name, a, b in zip(names, rows, copies, strict=True) if a.tobytes() != b.tobytes()]
    require(not changed, f"{', '.join(changed)} written to")


@law("nothing-global")
def arguments_stay(contract: Contract, subject: Subject) -> None:
    """fit and predict leave the constructor's arguments, and objects among them, as they were."""
    method = subject.make(alpha=0.1)
    if not hasattr(method, "get_params"):
        raise NotApplicable("it has no get_params")
    params = method.get_params(deep=False)
    before = {name: (id(value), _bytes(value)) for name, value in params.items()}
    _brought_up(contract, subject, method)
    contract.ask(method, contract.questions())
    params = method.get_params(deep=False)
    changed = [name for name in params if before[name] != (id(params[name]), _bytes(params[name]))]
    require(not changed, f"fit or predict changed the arguments {changed}")


@law("nothing-global", forms="model")
def users_model_stays(contract: Contract, subject: Subject) -> None:
    """fit trains a copy of the model that is given; calibrate and predict leave a trained one untouched."""
    whole = contract.trained(subject)
    trained = {name: getattr(whole, f"{name}_", None) for name in inspect.signature(subject.cls).parameters}
    trained = {name: model for name, model in trained.items() if hasattr(model, "get_params")}
    if not trained:
        raise NotApplicable("it takes no model that can be made from outside")
    mine = {name: clone(model) for name, model in trained.items()}
    before = _bytes(mine)
    _brought_up(contract, subject, subject.make(alpha=0.1, **mine))
    require(
        _bytes(mine) == before, f"fit changed the models {sorted(mine)} that were given instead of clones"
    )
    if contract.calibrates(subject):
        before = _bytes(trained)
        method = subject.make(alpha=0.1, **trained)
        contract.learn(method, *contract.rows(N_CALIB, seed=1))
        contract.ask(method, contract.questions())
        require(
            _bytes(trained) == before, f"the trained models {sorted(trained)} that were given have changed"
        )


@law("nothing-global")
def users_network_stays(contract: Contract, subject: Subject) -> None:
    """A torch module in training mode keeps its modes, weights, gradients and hooks."""
    if not contract.calibrates(subject) or not subject.takes("estimator"):
        raise NotApplicable("it takes no trained network")
    try:
        import torch
    except ImportError:
        raise NotApplicable("torch is not installed") from None
    _, y = contract.rows(N_CALIB, seed=1)
    outputs = len(np.unique(y)) if y.dtype.kind != "f" else 1 if y.ndim == 1 else y.shape[1]
    with torch.random.fork_rng():
        layers = [
            torch.nn.Linear(3, 8),
            torch.nn.Dropout(0.5),
            torch.nn.BatchNorm1d(8),
            torch.nn.Linear(8, outputs),
        ]
        network = torch.nn.Sequential(*layers)
    network.train()
    layers[1].eval()
    asked = contract.questions()
    method = subject.make(alpha=0.1, estimator=network)
    before = _network_state(network)
    try:
        contract.learn(method, *contract.rows(N_CALIB, seed=1))
    except (ValueError, TypeError) as error:
        raise NotApplicable(f"it takes no torch module: {error}") from error
    contract.ask(method, asked)
    changed = [key for key, value in _network_state(network).items() if before[key] != value]
    require(not changed, f"calibrate and predict changed the network's {', '.join(changed)}")


def _network_state(network: Any) -> dict[str, Any]:
    return {
        "training modes": [module.training for module in network.modules()],
        "weights": [value.tolist() for value in network.state_dict().values()],
        "gradients": [(p.requires_grad, p.grad is None) for p in network.parameters()],
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in network.modules()],
        "dtypes": [str(p.dtype) for p in network.parameters()],
    }


def _bytes(value: Any) -> bytes:
    try:
        return pickle.dumps(value)
    except (pickle.PicklingError, AttributeError, TypeError):
        return repr(value).encode()


@law("memory")
def bounded_working_set(contract: Contract, subject: Subject) -> None:
    """Asking about many rows takes memory for the rows, never for rows times calibration rows."""
    n_calib, n_asked = 500, 5_000
    method = subject.make(alpha=0.1, max_memory=4 * _MIB)
    if contract.trains():
        method.fit(*contract.rows(n_calib, seed=6))
    if contract.calibrates(subject):
        contract.learn(method, *contract.rows(n_calib, seed=6))
    X = contract.rows(n_asked, seed=7)[0]
    contract.ask(method, X[:2])
    with _peak() as peak:
        answer = contract.ask(method, X)
    # ten times input and output for temporaries, and what a block may take
    allowed = 10 * (X.nbytes + answer.nbytes) + 16 * _MIB
    require(
        peak[0] <= allowed,
        f"{n_asked} rows against {n_calib} take {peak[0] / _MIB:.0f} MiB beyond the rows, "
        f"more than {allowed / _MIB:.0f} MiB",
    )


@law("memory")
def results_do_not_depend_on_the_bound(contract: Contract, subject: Subject) -> None:
    """max_memory changes the working set, not the answer."""
    if not subject.takes("max_memory"):
        raise NotApplicable("it has no max_memory")
    method = _brought_up(contract, subject, subject.make(alpha=0.1, max_memory=4096))
    got = contract.ask(method, contract.questions())
    contract.require_same(got, _life(contract, subject), "max_memory = 4096 bytes")


@contextlib.contextmanager
def _peak() -> Iterator[list[int]]:
    """Bytes allocated at the worst moment beyond those at the start, in a list of one."""
    peak = [0]
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    tracemalloc.reset_peak()
    start = tracemalloc.get_traced_memory()[0]
    try:
        yield peak
    finally:
        peak[0] = tracemalloc.get_traced_memory()[1] - start
        if not running:
            tracemalloc.stop()
