"""The predictive contract, for labels and for numbers, and its checks."""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import pickle
import sys
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from assay.testing.common_laws import numbers, refused_with
from assay.testing.interval_laws import read_only, variants
from assay.testing.laws import LawBroken, NotApplicable, law, require
from assay.testing.object_laws import process_state, unusual_random_states
from assay.testing.subject import N_TEST, N_TRAIN, Contract, Subject, require_close

_K = 3
_DRAWS = 4000
#: networks are run in float32, whose last bits depend on the number of rows
_CLOSE = 1e-4


class Distributions(Contract):
    """``fit``, ``predict_dist`` for labels 0 to 2; ``likelihood`` is set where the constructor takes it."""

    task = "predictive"
    form = "classes"
    predict = "predict_dist"
    shared = False
    likelihood = "classification"

    def applies(self, subject: Subject) -> bool:
        if not subject.has("fit", self.predict):
            return False
        if subject.takes("likelihood"):
            return subject.card is None or subject.card.only_for in ("", self.likelihood)
        return subject.has("predict_proba") == (self.likelihood == "classification")

    def rows(self, n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
        rng = np.random.default_rng(seed)
        y = np.resize(np.arange(_K), n)
        rng.shuffle(y)
        return np.round((1.5 * np.eye(_K)[y] + rng.normal(size=(n, 3))) * 64) / 64, y

    def make(self, subject: Subject, **overrides: Any) -> Any:
        """A fresh unfitted object of this likelihood."""
        return subject.make(likelihood=self.likelihood, **overrides)

    def fitted(self, subject: Subject) -> Any:
        """Fitted on the reference rows; a private copy."""
        rows = self.rows(N_TRAIN, seed=0)
        return subject.keep((self.task, self.form), lambda: self.make(subject).fit(*rows))

    def ask(self, method: Any, X: Any, alpha: Any = None) -> NDArray[Any]:
        """(n, c) numbers that a distribution is known by: the probabilities of the classes."""
        return np.asarray(method.predict_dist(X).proba)

    def covers(self, method: Any, X: Any, y: Any) -> NDArray[np.bool_]:
        return np.asarray(np.isfinite(method.predict_dist(X).log_prob(y)))

    def unbounded(self, answer: NDArray[Any]) -> NDArray[np.bool_]:
        return np.zeros(len(answer), dtype=bool)

    def require_same(self, got: Any, expected: Any, what: str) -> None:
        require_close(got, expected, what, rtol=_CLOSE)


class NumericDistributions(Distributions):
    """The same for a numeric target: the answer is mean and variance."""

    form = "numbers"
    likelihood = "regression"

    def rows(self, n: int, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
        rng = np.random.default_rng(seed)
        X = np.round(rng.normal(size=(n, 3)) * 64) / 64
        return X, np.round((20 + 8 * X[:, 0] - 4 * X[:, 1] + 2 * rng.normal(size=n)) * 64) / 64

    def ask(self, method: Any, X: Any, alpha: Any = None) -> NDArray[Any]:
        dist = method.predict_dist(X)
        return np.stack([dist.mean, dist.variance], axis=1)


CONTRACTS = (Distributions(), NumericDistributions())


@law("types", forms="classes")
def rows_are_probabilities(contract: Distributions, subject: Subject) -> None:
    """One probability a class, finite, not negative, rows that sum to one, in the order of classes_."""
    method, X = contract.fitted(subject), contract.questions()
    dist = method.predict_dist(X)
    proba = np.asarray(dist.proba)
    require(proba.shape == (N_TEST, _K), f"probabilities of shape {proba.shape}, expected {(N_TEST, _K)}")
    require(np.isfinite(proba).all() and (proba >= 0).all(), "probabilities that are negative or not finite")
    off = float(np.abs(proba.sum(axis=1) - 1).max())
    require(off < 1e-6, f"a row of probabilities misses one by {off:.2g}")
    require(np.asarray(dist.classes).tolist() == [0, 1, 2], f"classes are {dist.classes}, expected 0, 1, 2")


@law("types", forms="numbers")
def moments_are_numbers(contract: Distributions, subject: Subject) -> None:
    """(n,) finite means and variances above zero, float64."""
    dist = contract.fitted(subject).predict_dist(contract.questions())
    for name in ("mean", "variance"):
        values = np.asarray(getattr(dist, name))
        require(values.shape == (N_TEST,), f"{name} has shape {values.shape}, expected {(N_TEST,)}")
        require(values.dtype == np.float64, f"{name} is {values.dtype}, expected float64")
        require(np.isfinite(values).all(), f"{name} is not finite")
    require((np.asarray(dist.variance) > 0).all(), "a variance is not above zero")


@law("types")
def tables_lists_and_layouts(contract: Distributions, subject: Subject) -> None:
    """What is asked may be a list, float32, a table, in Fortran order, strided, read-only or objects."""
    method, X = contract.fitted(subject), contract.questions()
    expected = contract.ask(method, X)
    for name, variant in {**variants(X), "objects": X.astype(object)}.items():
        contract.require_same(contract.ask(method, variant), expected, f"asked with {name}")


@law("types")
def learns_from_any_dtype(contract: Distributions, subject: Subject) -> None:
    """float32 and object tables train the same method, and so do targets of shape (n, 1)."""
    (X, y), asked = contract.rows(N_TRAIN, seed=0), contract.questions()
    expected = contract.ask(contract.fitted(subject), asked)
    for name, rows, target in (
        ("float32", X.astype(np.float32), y),
        ("objects", X.astype(object), y[:, None]),
    ):
        got = contract.ask(contract.make(subject).fit(rows, target), asked)
        contract.require_same(got, expected, f"trained on {name}")


@law("types")
def one_row_and_no_row(contract: Distributions, subject: Subject) -> None:
    """One row gives one distribution, no row none."""
    method, X = contract.fitted(subject), contract.questions()
    for n in (1, 0):
        dist = method.predict_dist(X[:n])
        require(len(dist) == n, f"{n} rows give {len(dist)} distributions")
        shape = np.asarray(method.predict(X[:n])).shape
        require(shape == (n,), f"predict gives shape {shape} for {n} rows")


@law("types")
def a_constant_feature(contract: Distributions, subject: Subject) -> None:
    """A feature that is the same in every training row gives finite answers, also where it differs."""
    X, y = contract.rows(N_TRAIN, seed=0)
    X[:, 1] = 3.0
    method, asked = contract.make(subject).fit(X, y), contract.questions()
    require(
        np.isfinite(contract.ask(method, asked)).all(), "a constant feature gives answers that are not finite"
    )


@law("batching")
def any_chunks(contract: Distributions, subject: Subject) -> None:
    """All rows at once, single rows and uneven chunks give one answer; so does asking again."""
    method, X = contract.fitted(subject), contract.questions()
    whole = contract.ask(method, X)
    for size in (1, 7):
        parts = [contract.ask(method, X[i : i + size]) for i in range(0, len(X), size)]
        contract.require_same(np.concatenate(parts), whole, f"chunks of {size} rows against {len(X)} at once")
    contract.require_same(contract.ask(method, X), whole, "the same rows asked again")


@law("order")
def test_rows_permuted(contract: Distributions, subject: Subject) -> None:
    """Permuting the rows asked for permutes the answer."""
    method, X = contract.fitted(subject), contract.questions()
    order = np.random.default_rng(4).permutation(len(X))
    got = contract.ask(method, X[order])
    contract.require_same(got, contract.ask(method, X)[order], "rows in another order")


@law("labels", forms="classes")
def any_kind_of_label(contract: Distributions, subject: Subject) -> None:
    """Text and integers that do not start at zero train the same method; the classes are sorted."""
    (X, y), asked = contract.rows(N_TRAIN, seed=0), contract.questions()
    expected = contract.ask(contract.fitted(subject), asked)
    for name, labels in (("text", np.array(["a", "b", "c"])), ("integers from 5", np.array([5, 7, 9]))):
        method = contract.make(subject).fit(X, labels[y])
        contract.require_same(contract.ask(method, asked), expected, name)
        dist = method.predict_dist(asked)
        require(np.asarray(dist.classes).tolist() == labels.tolist(), f"{name}: classes are {dist.classes}")
        require(set(np.asarray(method.predict(asked))) <= set(labels), f"{name}: predict gives other labels")


@law("labels", forms="classes")
def two_classes(contract: Distributions, subject: Subject) -> None:
    """Two classes have two columns."""
    X, y = contract.rows(N_TRAIN, seed=0)
    answer = contract.ask(contract.make(subject).fit(X, y > 0), contract.questions())
    require(answer.shape == (N_TEST, 2), f"two classes give shape {answer.shape}")


@law("labels", forms="classes")
def unseen_class_is_refused(contract: Distributions, subject: Subject) -> None:
    """The log probability of a label that training has not seen is an error that names it and its row."""
    method, X = contract.fitted(subject), contract.questions(4)
    refused_with(lambda: method.predict_dist(X).log_prob([0, 1, 77, 2]), {"77", "2"}, "label 77 at row 2")


@law("labels", forms="classes")
def one_class_is_refused(contract: Distributions, subject: Subject) -> None:
    """Nothing can be learnt from one class: a ValueError that says so."""
    X, y = contract.rows(N_TRAIN, seed=0)
    _refused(lambda: contract.make(subject).fit(X, np.zeros_like(y)), "class", "one class only")


@law("nan-inf")
def nan_and_inf_are_refused(contract: Distributions, subject: Subject) -> None:
    """NaN and infinite values in X, in fit and when asked, and in y: a ValueError naming row and count."""
    (X, y), asked = contract.rows(N_TRAIN, seed=0), contract.questions()
    method = contract.fitted(subject)
    for value in (np.nan, np.inf):
        bad, bad_asked = X.copy(), asked.copy()
        bad[[4, 9], 1] = bad_asked[[4, 9], 1] = value
        refused_with(lambda bad=bad: contract.make(subject).fit(bad, y), {"2", "4"}, f"{value} in X of fit")
        refused_with(
            lambda bad=bad_asked: contract.ask(method, bad), {"2", "4"}, f"{value} in the X asked for"
        )
    target = y.astype(float)
    target[[4, 9]] = np.nan
    refused_with(lambda: contract.make(subject).fit(X, target), {"2", "4"}, "NaN in y")
    _refused(lambda: method.predict_dist(asked).log_prob(np.full(N_TEST, np.nan)), "", "NaN in log_prob")


@law("one-distribution", forms="classes")
def log_prob_is_of_the_probabilities(contract: Distributions, subject: Subject) -> None:
    """log_prob of a label is the logarithm of its probability."""
    dist = contract.fitted(subject).predict_dist(contract.questions())
    for k in range(_K):
        with np.errstate(divide="ignore"):
            expected = np.log(dist.proba[:, k])
        require_close(dist.log_prob(np.full(N_TEST, k)), expected, f"log_prob of class {k}")


@law("one-distribution", forms="numbers")
def density_is_the_slope_of_the_cdf(contract: Distributions, subject: Subject) -> None:
    """exp(log_prob) is the derivative of cdf, at several quantiles; the cdf runs from 0 to 1."""
    dist = contract.fitted(subject).predict_dist(contract.questions())
    step = 1e-4 * np.asarray(dist.std)
    for p in (0.02, 0.3, 0.5, 0.9):
        y = dist.quantile(p)
        slope = (dist.cdf(y + step) - dist.cdf(y - step)) / (2 * step)
        require_close(np.exp(dist.log_prob(y)), slope, f"density at the {p} quantile", rtol=1e-4)
    far = 60 * np.asarray(dist.std)
    require((dist.cdf(dist.mean - far) < 1e-3).all(), "the cdf is not near 0 far on the left")
    require((dist.cdf(dist.mean + far) > 1 - 1e-3).all(), "the cdf is not near 1 far on the right")


@law("one-distribution", forms="numbers")
def quantiles_invert_the_cdf(contract: Distributions, subject: Subject) -> None:
    """quantile is increasing in p and cdf(quantile(p)) is p; several p give one row each."""
    dist = contract.fitted(subject).predict_dist(contract.questions())
    levels = [0.01, 0.2, 0.5, 0.8, 0.99]
    ends = np.asarray(dist.quantile(levels))
    require(ends.shape == (5, N_TEST), f"quantiles at 5 levels have shape {ends.shape}")
    require(all((a < b).all() for a, b in pairwise(ends)), "quantiles do not increase with p")
    for p, q in zip(levels, ends, strict=True):
        require_close(dist.cdf(q), np.full(N_TEST, p), f"cdf of the {p} quantile", rtol=1e-6)
        require_close(dist.quantile(p), q, f"the {p} quantile alone")


@law("one-distribution")
def draws_have_its_moments(contract: Distributions, subject: Subject) -> None:
    """Means, variances or shares of many draws are those of the distribution, up to chance."""
    dist = contract.fitted(subject).predict_dist(contract.questions())
    draws = np.asarray(dist.sample(_DRAWS, 1))
    require(draws.shape == (N_TEST, _DRAWS), f"{_DRAWS} draws have shape {draws.shape}")
    if contract.likelihood == "classification":
        proba = np.asarray(dist.proba)
        share = np.stack([(draws == k).mean(axis=1) for k in range(_K)], axis=1)
        far = np.abs(share - proba) / np.sqrt(np.maximum(proba * (1 - proba), 1e-3) / _DRAWS)
    else:
        far = np.abs(draws.mean(axis=1) - dist.mean) / (np.asarray(dist.std) / np.sqrt(_DRAWS))
        inside = (draws <= dist.quantile(0.8)[:, None]).mean(axis=1)
        far = np.maximum(far, np.abs(inside - 0.8) / np.sqrt(0.16 / _DRAWS))
    require(far.max() < 6, f"draws are {far.max():.1f} standard errors from the distribution")
    require(np.array_equal(dist.sample(3, 5), dist.sample(3, 5)), "one random_state, two answers")


@law("one-distribution")
def predict_is_of_the_distribution(contract: Distributions, subject: Subject) -> None:
    """predict is the mean, or the likeliest label; predict_proba and predict_std are those of it."""
    method, X = contract.fitted(subject), contract.questions()
    dist, predicted = method.predict_dist(X), np.asarray(method.predict(X))
    if contract.likelihood == "regression":
        contract.require_same(predicted, dist.mean, "predict against the mean")
        if hasattr(method, "predict_std"):
            contract.require_same(method.predict_std(X), dist.std, "predict_std")
        return
    require(
        (predicted == np.asarray(dist.classes)[dist.proba.argmax(axis=1)]).all(), "predict is not the mode"
    )
    if hasattr(method, "predict_proba"):
        contract.require_same(method.predict_proba(X), dist.proba, "predict_proba")
        require((np.asarray(method.classes_) == np.asarray(dist.classes)).all(), "classes_ differ")


@law("one-distribution")
def rows_can_be_taken(contract: Distributions, subject: Subject) -> None:
    """take(rows) are the distributions of those rows, repeats allowed."""
    method, X = contract.fitted(subject), contract.questions()
    y = contract.rows(N_TEST, seed=2)[1]
    dist, rows = method.predict_dist(X), np.array([3, 3, 0])
    taken = dist.take(rows)
    require(len(taken) == 3, f"take of 3 rows gives {len(taken)}")
    require_close(taken.log_prob(y[rows]), dist.log_prob(y)[rows], "log_prob of taken rows")


@law("one-distribution", verbs=("sample", "log_prob"))
def the_method_is_a_density_model(contract: Distributions, subject: Subject) -> None:
    """sample(X) and log_prob(X, y) are those of predict_dist(X); draws do not depend on the batch."""
    method, (X, y) = contract.fitted(subject), contract.rows(N_TEST, seed=2)
    require_close(method.log_prob(X, y), method.predict_dist(X).log_prob(y), "log_prob(X, y)", rtol=_CLOSE)
    draws = np.asarray(method.sample(X, 6, 0))
    require(draws.shape == (N_TEST, 6), f"sample(X, 6) has shape {draws.shape}")
    alone = np.concatenate([method.sample(X[i : i + 5], 6, 0) for i in range(0, N_TEST, 5)])
    if contract.likelihood == "regression":
        contract.require_same(alone, draws, "draws in chunks")
    else:
        require((alone == draws).mean() > 0.98, "draws in chunks differ from draws at once")


@law("nothing-global")
def process_and_inputs_stay(contract: Distributions, subject: Subject) -> None:
    """A life leaves random states, filters, threads and what it was given alone, and prints nothing."""
    (X, y), asked = contract.rows(N_TRAIN, seed=0), contract.questions()
    contract.fitted(subject)  # modules that are imported for the first time may change the process
    out, err = io.StringIO(), io.StringIO()
    with unusual_random_states():
        before = process_state()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            method = contract.make(subject).fit(read_only(X), read_only(y))
            contract.ask(method, read_only(asked))
            method.predict_dist(asked).sample(2, 0)
        after = process_state()
    changed = [key for key in before if before[key] != after[key]]
    require(not changed, f"fitting and asking changed {', '.join(changed)}")
    printed = out.getvalue() + err.getvalue()
    require(not printed, f"it prints: {printed[:200]!r}")


@law("nothing-global")
def module_of_the_user_stays(contract: Distributions, subject: Subject) -> None:
    """A module given in training mode keeps its weights, its mode and its hooks."""
    torch = sys.modules.get("torch")
    if torch is None or not subject.takes("module"):
        raise NotApplicable("it takes no module")
    outputs = _K if contract.likelihood == "classification" else 1
    nn = torch.nn
    with torch.random.fork_rng(devices=[]):
        module = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, outputs))
    start = copy.deepcopy(module.state_dict())
    try:
        method = contract.make(subject, module=module).fit(*contract.rows(N_TRAIN, seed=0))
    except ValueError as error:
        raise NotApplicable(f"it takes no module of that form: {error}") from error
    contract.ask(method, contract.questions())
    require(all(part.training for part in module.modules()), "the module is no longer in training mode")
    same = all(torch.equal(value, start[name]) for name, value in module.state_dict().items())
    require(same, "the weights of the module have changed")
    hooks = [part for part in module.modules() if part._forward_hooks or part._forward_pre_hooks]
    require(not hooks and all(p.grad is None for p in module.parameters()), "it leaves hooks or gradients")


@law("object-life")
def the_same_life_gives_the_same_answer(contract: Distributions, subject: Subject) -> None:
    """Made alike, fitted again after other rows, copied or pickled: exactly the same answer."""
    rows, X = contract.rows(N_TRAIN, seed=0), contract.questions()
    expected = contract.ask(contract.fitted(subject), X)
    method = contract.make(subject).fit(*contract.rows(N_TRAIN - 3, seed=40)).fit(*rows)
    lives = {
        "fitted again after other rows": method,
        "deepcopy": copy.deepcopy(method),
        "pickle": pickle.loads(pickle.dumps(method)),
    }
    for what, other in lives.items():
        require(np.array_equal(contract.ask(other, X), expected), f"{what}: the answer differs")


@law("object-life")
def clones_and_constructors(contract: Distributions, subject: Subject) -> None:
    """The constructor stores its arguments and nothing else; a clone has the same and nothing fitted."""
    fresh = contract.make(subject)
    if not hasattr(fresh, "get_params"):
        raise NotApplicable("it has no get_params")
    more = sorted(set(vars(fresh)) - set(fresh.get_params(deep=False)))
    require(not more, f"the constructor makes {more} beside its arguments")
    twin = clone(contract.fitted(subject))
    fitted = [name for name in vars(twin) if name.endswith("_") and not name.startswith("_")]
    require(not fitted, f"a clone already has {fitted}")
    for name in inspect.signature(subject.cls).parameters:
        require(repr(getattr(twin, name)) == repr(getattr(fresh, name)), f"clone changed {name}")


@law("object-life")
def not_fitted_and_failed_fits(contract: Distributions, subject: Subject) -> None:
    """Asked before fit, or after a fit that failed: an error that says so; a fitted one stays as it was."""
    (X, y), asked = contract.rows(N_TRAIN, seed=0), contract.questions()
    fresh, method = contract.make(subject), contract.fitted(subject)
    _refused(lambda: contract.ask(fresh, asked), "fit", "asked before fit")
    expected = contract.ask(method, asked)
    for other in (fresh, method):
        _refused(lambda other=other: other.fit(X, y[:-5]), "", "5 targets too few")
    _refused(lambda: contract.ask(fresh, asked), "fit", "asked after a failed fit")
    contract.require_same(contract.ask(method, asked), expected, "a fitted object after a failed fit")


@law("error-numbers")
def lengths_and_widths_are_named(contract: Distributions, subject: Subject) -> None:
    """60 rows with 57 targets, and 2 features for 3: a ValueError with both numbers."""
    X, y = contract.rows(N_TRAIN, seed=0)
    refused_with(lambda: contract.make(subject).fit(X, y[:-3]), {str(N_TRAIN), str(N_TRAIN - 3)}, "lengths")
    method, asked = contract.fitted(subject), contract.questions()
    refused_with(lambda: contract.ask(method, asked[:, :2]), {"2", "3"}, "2 features for 3")
    try:
        method.predict_dist(asked).log_prob(contract.rows(N_TEST - 3, seed=2)[1])
    except ValueError as error:
        require({str(N_TEST), str(N_TEST - 3)} <= numbers(str(error)), f"log_prob of 22 for 25: {error}")
    else:
        raise LawBroken("log_prob takes 22 targets for 25 rows")


def _refused(call: Any, word: str, what: str) -> None:
    try:
        call()
    except ValueError as error:  # scikit-learn's NotFittedError is one
        require(word in str(error).lower(), f"{what}: the error must name {word!r}, and says: {error}")
    else:
        raise LawBroken(f"{what}: accepted; a ValueError is expected")
